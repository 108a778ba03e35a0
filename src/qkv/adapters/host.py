"""The candidate in this process: loaded, built, given weights and called. `HostProcess` does it in a child."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from qkv.adapters.caches.carrying import Carrier
from qkv.adapters.configs import build_config
from qkv.adapters.differentiation import recorded
from qkv.adapters.facts import facts_of
from qkv.adapters.holders import FunctionHolder, ObjectHolder
from qkv.adapters.loading import load
from qkv.adapters.messages import AS_THEY_STAND, Array, Call, Config, DType, Facts, Framework, Reply, ScriptRun
from qkv.adapters.refusing import refuse
from qkv.adapters.replaced import blamed
from qkv.adapters.results import describe, flatten
from qkv.adapters.scripts.running import run_script
from qkv.adapters.signatures import arguments_of, is_plain_function
from qkv.adapters.surroundings import Printed, captured, mode, seeded
from qkv.adapters.torch_tensors import torch_array, torch_shapes
from qkv.adapters.tracebacks import NO_AXES, is_of_qkv, raised
from qkv.adapters.values import convert, same_bits, to_numpy, to_torch
from qkv.errors import CandidateError

if TYPE_CHECKING:
    from qkv.adapters.watching.candidate import CandidateWatch

MOST_COMPARED = 1 << 20
"""Entries that are compared at once."""


class Host:
    """Holds one candidate and calls it. Its own errors, and every exception of the candidate, are `CandidateError`.

    Args:
        isolated: whether this process is the candidate's alone; then even its KeyboardInterrupt is the candidate's.
    """

    def __init__(self, *, isolated: bool = False) -> None:
        self._isolated = isolated
        self._facts: Facts | None = None
        self._class: type | None = None
        self._module: ModuleType | None = None
        self._file = ""
        self._holder: FunctionHolder | ObjectHolder | None = None
        self._making: Callable[[], Any] | None = None

    def open(self, target: Any, instead: Mapping[str, bytes] = AS_THEY_STAND) -> Facts:
        """What the candidate says of itself, once it is loaded.

        A function without arguments is a factory: it is called, and what it returns is the candidate.

        Args:
            target: ``file.py:Name`` or the like (see `loading.load`), or the object itself.
            instead: texts to run in place of what files hold, by their absolute paths.

        Raises:
            CandidateError: it can't be found or loaded.
        """
        if not isinstance(target, str):
            self._module = sys.modules.get(getattr(target, "__module__", None) or type(target).__module__)
            name = getattr(target, "__name__", type(target).__name__)
            if is_factory(target):
                self._making = target
                with self._watched(f"calling {name}()"), captured():
                    target = target()
            return self._take(target, name if isinstance(name, str) else type(target).__name__, "", ())
        with self._watched(f"importing {target}"), captured():
            loaded = load(target, instead)
        if self._isolated:
            # What a file may have set too low for us.
            sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000))
        self._module = loaded.module
        self._file = getattr(loaded.module, "__file__", None) or ""
        value = loaded.value
        if is_factory(value):
            self._making = value
            with self._watched(f"calling {loaded.name}()"), captured(), seeded(0):
                value = value()
            if not callable(value) and not hasattr(value, "forward"):
                raise CandidateError(
                    f"{loaded.name}() takes nothing and returned {describe(value)}, which is no attention",
                    hint="name a class, a function of the inputs, or a function that makes a module",
                )
        with self._watched(f"examining {loaded.name}"):
            refuse(value, loaded.name)
        facts = self._take(value, loaded.name, loaded.file, loaded.members)
        return replace(facts, beside=tuple(loaded.beside))

    def build(self, kwargs: Mapping[str, Any]) -> Facts:
        """What the object says of itself that the candidate class makes of these arguments.

        Args:
            kwargs: scalars, lists, dicts and `Config`.

        Raises:
            CandidateError: the candidate is no class, or its constructor raised.
        """
        facts = self._opened()
        cls = self._class
        if cls is None:
            raise CandidateError(f"{facts.name} is no class, so it takes no arguments to be built with")
        self._making = lambda: cls(**{name: self._argument(value) for name, value in kwargs.items()})
        with self._watched(f"building {facts.class_name}"), captured(), seeded(0):
            built = self._making()
        return self._take(built, facts.name, facts.file, facts.members)

    def state(self) -> dict[str, Array]:
        """Every array the candidate holds (parameters, buffers, attributes) by name, floating ones as float64."""
        holder = self._held()
        with self._watched(f"reading the arrays of {self._opened().name}"):
            return holder.state()

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Nothing; gives the named arrays new values, for all calls that follow.

        Raises:
            CandidateError: there is no such name, or its shape is another.
        """
        holder = self._held()
        with self._watched(f"giving weights to {self._opened().name}"):
            holder.assign(arrays)

    def call(self, call: Call) -> Reply:
        """What came of calling the candidate. Every call starts from the same state.

        Raises:
            CandidateError: it raised, or returned complex values.
        """
        if not call.watched:
            return self._call(call, None)
        # Only now: most calls aren't watched, and what reads syntax trees takes a while to import.
        from qkv.adapters.watching.candidate import CandidateWatch

        watch = CandidateWatch(self._module, self._held().value, self._file)
        try:
            if self._making is not None:
                with captured(), seeded(0):
                    watch.build(self._making)
            return self._call(call, watch)
        except CandidateError:
            # It may be that it can't be watched: compiled code may refuse what stands in for an array.
            try:
                return self._call(call, None)
            except CandidateError as error:
                error.recording = watch.recording()
                raise

    def _call(self, call: Call, watch: CandidateWatch | None) -> Reply:
        """What came of a call, watched or not."""
        holder, facts = self._held(), self._opened()
        framework = call.framework or facts.framework
        with (
            self._watched(f"preparing a call of {facts.name}"),
            captured() as printed,
            seeded(call.seed),
            mode(call.dtype, framework, call.threads),
            holder.ready(call.dtype) as candidate,
        ):
            refuse(candidate, facts.name)
            carrier = Carrier(candidate, self._module, call, _Arrays(call, framework, holder.device).converted)
            replies = [
                self._called(one, candidate, carrier, _Arrays(one, framework, holder.device), printed, watch)
                for one in (call, *call.then)
            ]
            kept = holder.kept(call.dtype) if call.then else {}
            recording = None if watch is None else watch.recording()
            return replace(replies[0], then=replies[1:], kept=kept, recording=recording)

    def _called(
        self, call: Call, candidate: Any, carrier: Carrier, arrays: _Arrays, printed: Printed,
        watch: CandidateWatch | None,
    ) -> Reply:  # fmt: skip
        """What came of one call, its caches handed over and taken back."""
        name = self._opened().name
        carrier.begin(call)
        args = carrier.filled(convert(tuple(call.args), arrays.make))
        kwargs = carrier.filled(convert(dict(call.kwargs), arrays.make))
        with recorded(call.cotangent, candidate, args, kwargs) as graph:
            started = time.perf_counter()
            with self._watched(f"calling {name}", call.axes):
                run = candidate if watch is None else watch.called(candidate)
                result = run(*graph.args, **graph.kwargs)
            seconds = time.perf_counter() - started
            with self._watched(f"the backward pass of {name}"):
                of_arguments, of_arrays = graph.gradients(result)
        with self._watched(f"reading what {name} returned"):
            returned, words = flatten(result), describe(result)
        carrier.take(result, go_on=bool(call.then))
        return Reply(returned, arrays.changed(), seconds, printed.tail(), words, of_arguments, of_arrays)

    def tensor_shapes(self, path: str) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of every tensor by name, in a file that ``torch.save`` wrote."""
        with self._watched(f"reading {path}"), captured():
            return torch_shapes(path)

    def tensor_array(self, path: str, name: str) -> Array:
        """One of its tensors; in a dtype that NumPy lacks as float32."""
        with self._watched(f"reading {path}"), captured():
            return torch_array(path, name)

    def script(self, path: str, source: str) -> ScriptRun:
        """What a plain script did, run as a program (see `scripts.running.run_script`)."""
        with captured() as printed:
            return replace(run_script(path, source), printed=printed.tail())

    def close(self) -> None:
        """Nothing; lets go of the candidate."""
        self._holder = self._class = self._facts = self._making = None

    def _take(self, value: Any, name: str, file: str, members: Any) -> Facts:
        with self._watched(f"examining {name}"):
            self._facts = facts_of(value, name, file, members)
            if isinstance(value, type):
                self._class, self._holder = value, None
            elif self._facts.what == "function":
                self._holder = FunctionHolder(value)
            else:
                self._holder = ObjectHolder(value)
        return self._facts

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Config):
            return build_config(value, self._module, self._class)
        return value

    def _opened(self) -> Facts:
        if self._facts is None:
            raise CandidateError("no candidate has been opened")
        return self._facts

    def _held(self) -> FunctionHolder | ObjectHolder:
        facts = self._opened()
        if self._holder is None:
            raise CandidateError(f"{facts.name} is a class that has not been built yet")
        return self._holder

    @contextlib.contextmanager
    def _watched(self, doing: str, axes: Mapping[str, int] = NO_AXES) -> Iterator[None]:
        """Nothing; makes a `CandidateError` of whatever is raised meanwhile. ``axes``: see `Call`."""
        try:
            yield
        except CandidateError:
            raise
        except KeyboardInterrupt as error:
            if not self._isolated:
                raise
            raise self._told(doing, error, axes) from None
        except BaseException as error:  # noqa: BLE001 - SystemExit and its like are the candidate's failures too
            raise self._told(doing, error, axes) from None

    def _told(self, doing: str, error: BaseException, axes: Mapping[str, int]) -> CandidateError:
        told = raised(doing, error, self._file, axes)
        return (blamed(doing) if is_of_qkv(error.__traceback__) else None) or told


class _Arrays:
    """The arrays of one call in the candidate's framework, and whether the candidate has changed them."""

    def __init__(self, call: Call, framework: Framework, device: Any) -> None:
        self._call, self._framework, self._device = call, framework, device
        self._made: dict[int, Any] = {}
        self._given: list[tuple[str, Array, Any]] = []

    def make(self, array: Array, path: str) -> Any:
        """The array as the candidate gets it; the same object for the same array."""
        if id(array) not in self._made:
            self._made[id(array)] = self.converted(array)
        made = self._made[id(array)]
        self._given.append((path, array, made))
        return made

    def changed(self) -> list[str]:
        """Which arguments no longer hold what they held."""
        return [path for path, array, made in self._given if not self._unchanged(array, made)]

    def _unchanged(self, array: Array, made: Any) -> bool:
        """Whether it holds what was given; large ones half by half, each piece converted once more."""
        if array.size > MOST_COMPARED and array.ndim and tuple(made.shape) == array.shape:
            half = len(array) // 2
            parts = (slice(half), slice(half, None)) if half else (0,)
            return all(self._unchanged(array[part], made[part]) for part in parts)
        return same_bits(made, self.converted(array))

    def converted(self, array: Array) -> Any:
        """A new array of the framework with these values."""
        dtype: DType = self._call.dtype
        if self._framework == "torch":
            return to_torch(array, dtype, self._device, strided=self._call.strided)
        return to_numpy(array, dtype, strided=self._call.strided)


def is_factory(value: Any) -> bool:
    """Whether a candidate is a function without arguments: it makes the attention, since it can take no inputs."""
    if not is_plain_function(value):
        return False
    return (
        callable(value)
        and hasattr(value, "__code__")
        and not any(one.required or one.kind in ("args", "kwargs") for one in arguments_of(value))
    )
