"""The candidate in a child process, with limits: however it ends, what comes of it is a reply or a `CandidateError`."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qkv.adapters.child import Child, Ended
from qkv.adapters.encoding import LOST, decode, encode
from qkv.adapters.messages import AS_THEY_STAND, Array, Call, Facts, Reply, ScriptRun
from qkv.adapters.tracebacks import MOST_LINES, code_at, in_bytes, is_own, more_memory, shown
from qkv.errors import CandidateError

SCRIPT_LIMIT = 15.0
"""Seconds that a script has at least."""

OPEN_LIMIT = 60.0
"""Seconds that loading and building a candidate may take at least: it imports a framework."""
CALL_LIMIT = 20.0
"""Seconds that one call may take."""
PATIENCE = 10.0
"""Seconds after which the child ends itself, should its parent not be there to stop it at its limit."""
MEMORY_LIMIT = 4 << 30
"""Bytes that the child may have."""

_DOING = {"open": "loading", "build": "building", "state": "reading", "assign": "giving weights to", "call": "calling",
          "tensor_shapes": "reading", "tensor_array": "reading", "script": "running"}  # fmt: skip


class HostProcess:
    """Holds one candidate in a child process. It has the methods of `Host`; a context manager that ends the child.

    After a failure that ended the child (a crash, a time or memory limit) only `open` works: it starts a new one.
    Everything else fails in the same way again.

    Args:
        time_limit: seconds that a call may take, and loading and building where that is more than the 60 they have
            anyway. It may be changed between requests.
        memory_limit: bytes that the child may have; 0 means no limit.
        ahead: packages that the child imports as it starts, before it is asked to load anything.
    """

    def __init__(
        self, *, time_limit: float = CALL_LIMIT, memory_limit: int = MEMORY_LIMIT, ahead: Sequence[str] = ()
    ) -> None:
        if not time_limit > 0 or memory_limit < 0:
            raise ValueError(f"limits of {time_limit} s and {memory_limit} bytes; give numbers above 0")
        self.time_limit = time_limit
        self._memory_limit, self._ahead = memory_limit, ahead
        self._child: Child | None = None
        self._opening: str | None = None
        self._target = self._name = ""
        self._last: CandidateError | None = None

    def start(self, target: str | None = None, instead: Mapping[str, bytes] = AS_THEY_STAND) -> HostProcess:
        """This object, at once: the child starts, and loads the target if one is given, while the caller goes on."""
        if self._child is None:
            try:
                self._child = Child(self._memory_limit, self._ahead)
            except OSError as error:
                message = f"no process could be started to hold the candidate: {error.strerror or error}"
                raise CandidateError(message, fatal=True) from None
        if target is not None and self._opening is None:
            self._opening = self._target = self._name = target
            self._last = None
            self._send("open", target, dict(instead))
        return self

    def open(self, target: Any, instead: Mapping[str, bytes] = AS_THEY_STAND) -> Facts:
        """What the candidate says of itself, once it is loaded.

        Args:
            target: ``file.py:Name`` or the like.
            instead: texts to run in place of what files hold, by their absolute paths.

        Raises:
            CandidateError: it can't be found or loaded, or broke a limit.
        """
        if not isinstance(target, str):
            raise CandidateError(
                f"a {type(target).__name__} can't be handed to another process", hint="name its file: file.py:Name"
            )
        if self._opening != target:
            if self._opening is not None:
                self.close()
            self.start(target, instead)
        self._opening = None
        facts: Facts = self._receive("open", Facts)
        self._name = facts.name
        return facts

    def build(self, kwargs: Mapping[str, Any]) -> Facts:
        """What the object says of itself that the candidate class makes of these arguments (see `Host.build`)."""
        return self._ask("build", dict(kwargs), expected=Facts)

    def state(self) -> dict[str, Array]:
        """Every array the candidate holds by name, floating ones as float64."""
        return self._ask("state", expected=dict)

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Nothing; gives the named arrays new values of the same shape."""
        self._ask("assign", dict(arrays), expected=type(None))

    def call(self, call: Call) -> Reply:
        """What came of calling the candidate (see `Host.call`)."""
        return self._ask("call", call, expected=Reply)

    def tensor_shapes(self, path: str) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of every tensor by name, in a file that ``torch.save`` wrote."""
        self._name = path
        shapes: dict[str, tuple[tuple[int, ...], str]] = self._ask("tensor_shapes", path, expected=dict)
        return shapes

    def tensor_array(self, path: str, name: str) -> Array:
        """One of its tensors; in a dtype that NumPy lacks as float32."""
        array: Array = self._ask("tensor_array", path, name, expected=np.ndarray)
        return array

    def script(self, path: str, source: str) -> ScriptRun:
        """What a plain script did (see `Host.script`)."""
        self.start()
        self._target, self._name = path, Path(path).name
        done: ScriptRun = self._ask("script", path, source, expected=ScriptRun)
        return done

    def close(self) -> None:
        """Nothing; ends the child and everything it started."""
        child, self._child, self._opening = self._child, None, None
        if child is not None:
            child.kill()

    def __enter__(self) -> HostProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, name: str, *arguments: Any, expected: type) -> Any:
        if self._child is None:
            # Whoever goes on asking is told why there is nobody to answer.
            raise self._last or CandidateError(
                "the process that held the candidate has ended", hint="open the candidate again", fatal=True
            )
        self._send(name, *arguments)
        return self._receive(name, expected)

    def _limit(self, name: str) -> float:
        if name == "script":  # which imports its framework, and then does all that it does
            return max(SCRIPT_LIMIT, 3 * self.time_limit)
        return max(OPEN_LIMIT, self.time_limit) if name in ("open", "build", "tensor_shapes") else self.time_limit

    def _send(self, name: str, *arguments: Any) -> None:
        assert self._child is not None
        limit = self._limit(name)
        self._child.send(encode((name, arguments, limit + PATIENCE)), limit)

    def _receive(self, name: str, expected: type) -> Any:
        assert self._child is not None
        try:
            answer = decode(self._child.receive())
        except Ended as ended:
            self.close()
            self._last = self._failure(name, ended)
            raise self._last from None
        except CandidateError as error:
            # No message: whatever is sent there now, it can't be told where the next one begins.
            self.close()
            error.fatal = True
            raise
        except BaseException:
            # Ctrl-C, for one: the child is in a session of its own and has not heard of it.
            self.close()
            raise
        if isinstance(answer, CandidateError):
            raise answer
        if not isinstance(answer, expected):
            self.close()
            message = f"the process that holds the candidate answered with a {type(answer).__name__}"
            raise CandidateError(message, fatal=True)
        return answer

    def _failure(self, name: str, ended: Ended) -> CandidateError:
        """The error for a child that is gone, with the line it stood at and, as its detail, what led there."""
        doing = f"{_DOING[name]} {self._name}"
        stood = _frames(ended.stack, self._target)
        where = f"; it stood at {stood[0]}" if stood else ""
        detail = "\n".join(stood[1:MOST_LINES]) if stood else ended.printed[-2000:].strip()
        message, hint = f"{doing} {_how_it_ended(ended)}", ""
        if ended.reason == "time":
            limit = self._limit(name)
            message = f"{doing} took longer than {limit:g} s and was stopped"
            hint = f"if it only needs more time: --time-limit {3 * limit:g}"
        if ended.reason == "memory":
            message = f"{doing} took more than {in_bytes(self._memory_limit)} of memory and was stopped"
            hint = more_memory(self._memory_limit)
        crash = ended.reason == "exit" and ended.code not in (None, LOST)
        return CandidateError(message + where, hint=hint, detail=detail, fatal=True, crash=crash)


def _frames(stack: str, target: str) -> list[str]:
    """The user's lines of a faulthandler stack, the innermost first: ``file.py:7: while True: (in forward)``."""
    file, end, _ = target.partition(".py")
    frames = [(path, int(line), name) for path, line, name in re.findall(r'File "(.+?)", line (\d+) in (.+)', stack)]
    own = [frame for frame in frames if is_own(frame[0], str(Path(file + end).absolute()))]
    return [f"{shown(path)}:{line}: {code_at(path, line)} (in {name})" for path, line, name in own]


def _how_it_ended(ended: Ended) -> str:
    if ended.code in (None, LOST):
        return "broke the connection with qkv: it may close or write to file descriptors that are not its own"
    if ended.code >= 0:
        return f"ended the process with exit code {ended.code}"
    try:
        name = signal.Signals(-ended.code).name
    except ValueError:
        name = f"signal {-ended.code}"
    meaning = {
        "SIGSEGV": "a segmentation fault",
        "SIGABRT": "abort",
        "SIGKILL": "killed from outside, or out of memory",
    }
    return f"crashed with {name}" + (f" ({meaning[name]})" if name in meaning else "")
