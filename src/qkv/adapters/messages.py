"""What is said between the judge and the process that holds the candidate. Plain data and NumPy arrays, no framework.

The judge never sees the candidate itself, only these: so a candidate in a child process and one in the same process are
judged by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np

from qkv.adapters.recording import Recording as Recording
from qkv.vocabulary import DType as DType

Framework = Literal["torch", "numpy"]
Scalar = int | float | bool | str | None
Array = np.ndarray[Any, np.dtype[Any]]

AS_THEY_STAND: Mapping[str, bytes] = MappingProxyType({})
"""No texts to run in place of what files hold."""


@dataclass(frozen=True)
class Argument:
    """One parameter of a function's signature.

    Attributes:
        name: its name, without stars.
        kind: ``positional`` (positional only), ``either``, ``keyword`` (keyword only), ``args``, ``kwargs``.
        required: whether a call must give it.
        default: its default where that is a plain scalar, or a pair of whole numbers.
        annotation: its annotation as text; empty where there is none.
    """

    name: str
    kind: Literal["positional", "either", "keyword", "args", "kwargs"] = "either"
    required: bool = True
    default: Scalar | tuple[int, int] = None
    annotation: str = ""


@dataclass(frozen=True)
class ArrayFacts:
    """One parameter or buffer of a module.

    Attributes:
        shape: its shape.
        owner: class name of the submodule it belongs to: ``Linear``, ``Conv1D``, ``RMSNorm``, or the module's own.
        learned: a parameter (True) or a buffer (False).
        dtype: name of its dtype.
    """

    shape: tuple[int, ...]
    owner: str
    learned: bool
    dtype: str


@dataclass(frozen=True)
class Facts:
    """What a candidate says of itself, before it is called.

    Attributes:
        name: the name it was found under.
        what: ``class`` (to be built), ``object`` (built: a module or an instance that can be called), or ``function``.
        framework: what its arrays are.
        is_module: whether it is, or builds, a ``torch.nn.Module``.
        class_name: name of its class; of the function where it is one.
        file: the file it stands in, as given; empty for objects handed over in Python.
        line: first line of its definition in that file, or 0.
        foreign: whether it is defined elsewhere, in a library that the file uses.
        doc: its docstring.
        source: its source text; empty where it can't be had.
        init: arguments of its constructor, for classes.
        call: arguments of its ``forward`` or ``__call__``, or its own.
        attributes: its scalar attributes by dotted name, submodules' and config objects' included:
            ``{"num_heads": 4, "config.n_head": 4, "attn.batch_first": False}``.
        arrays: its parameters and buffers by the name they have in its state dict.
        submodules: class name of every submodule by dotted name.
        config: the Hugging Face config that it holds, as a mapping; empty where it holds none.
        members: other candidates in the same file, by name.
        beside: those of them that the user may have meant as much, where none was named.
    """

    name: str
    what: Literal["class", "object", "function"]
    framework: Framework
    is_module: bool
    class_name: str
    file: str = ""
    line: int = 0
    foreign: bool = False
    doc: str = ""
    source: str = ""
    init: Sequence[Argument] = ()
    call: Sequence[Argument] = ()
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    arrays: Mapping[str, ArrayFacts] = field(default_factory=dict)
    submodules: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    members: Sequence[str] = ()
    beside: Sequence[str] = ()


@dataclass(frozen=True)
class Config:
    """A constructor argument that is a config object: it answers to attributes, to ``[...]`` and to ``.get``.

    Attributes:
        values: every name that it answers to, whatever the class has there by default.
        annotation: the class named in the signature, to be built instead where it takes these names.
        fallbacks: further names, for which a default of the class's own goes before what stands here.
    """

    values: Mapping[str, Scalar]
    annotation: str = ""
    fallbacks: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Cotangent:
    """What to differentiate a call by: the gradients of ``sum(output * array)`` are asked for.

    Attributes:
        path: where the output stands in what the candidate returns, as in `Returned`.
        array: of the output's own shape.
        memory: how it is handed to the candidate's backward pass: ``contiguous``; ``strided``, with permuted strides;
            or ``expanded``, one number in memory that stands for every entry (what ``output.sum().backward()`` gives).
        arguments: the arguments whose gradients are wanted, by place or name: ``"0"``, ``"key"``.
        arrays: the candidate's own arrays whose gradients are wanted, by the names they have in its state.
    """

    path: str
    array: Array
    memory: Literal["contiguous", "strided", "expanded"] = "contiguous"
    arguments: Sequence[str] = ()
    arrays: Sequence[str] = ()


@dataclass(frozen=True)
class Fresh:
    """A cache to be made by the candidate's own means: by a function or a class of its file.

    Attributes:
        annotation: what the signature says of it.
        sizes: what the cache must hold, by the roles of ``names.ROLES``.
    """

    annotation: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Handed:
    """A cache among the arguments of calls that follow each other.

    Attributes:
        name: the argument's name: what it holds is handed over again in the next call, as the candidate left it or
            gave it back.
        first: what the first call gets: None, an empty list or dict, arrays, or `Fresh`.
    """

    name: str
    first: Any = None


@dataclass(frozen=True)
class Call:
    """One call of the candidate, or several that follow each other.

    Attributes:
        args: positional arguments: arrays, scalars, and lists, tuples and dicts of them.
        kwargs: keyword arguments, likewise.
        dtype: what floating arrays are cast to; a module is cast along, on a copy.
        strided: whether the arrays of three or more axes are handed over with permuted strides, not contiguous.
        seed: seed of the framework's random numbers, for candidates that draw some.
        framework: hand the arrays over as these; None means the candidate's own.
        cotangent: what to differentiate the call by; None for a call alone. For torch only.
        then: calls to make after it without putting the candidate back to its state before. `Handed` arguments go from
            one to the next.
        anew: whether a new sequence begins with it. A cache of its own is then emptied, by the candidate's own method;
            where it has none, ``overwritten`` says that it needs none, and ``emptied`` that this can't go on.
        room: sizes of a cache by role, for a candidate that has a method to set its own up; empty for none.
        watched: whether every array operation is recorded, those of building the candidate too.
        axes: size of each axis of its arrays by name, to explain an operation with whose shapes don't fit.
        threads: how many threads torch may compute on.
    """

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dtype: DType = "float64"
    strided: bool = False
    seed: int = 0
    framework: Framework | None = None
    cotangent: Cotangent | None = None
    then: Sequence[Call] = ()
    anew: Literal["", "emptied", "overwritten"] = ""
    room: Mapping[str, int] = field(default_factory=dict)
    watched: bool = False
    axes: Mapping[str, int] = field(default_factory=dict)
    threads: int = 1


@dataclass(frozen=True)
class Returned:
    """One array that the candidate returned.

    Attributes:
        path: where it stood: ``""`` (the result itself), ``"0"`` (first of a tuple), ``"attn_weights"`` (of a dict).
        array: its values, floating ones as float64, in its own shape.
        dtype: name of the dtype it had.
    """

    path: str
    array: Array
    dtype: str


@dataclass(frozen=True)
class Reply:
    """What came of a call.

    Attributes:
        returned: every array in the result, in order.
        changed: which arguments the candidate changed in place (``"0"``, ``"mask"``).
        seconds: how long the call took.
        printed: the end of what it printed.
        result: what the result was, in words, for messages: ``"tuple of Tensor (2, 7, 48), None"``.
        of_arguments: the gradients that came back, by argument; one is missing where nothing did.
        of_arrays: likewise of the candidate's own arrays, by name.
        kept: what the candidate itself holds that the calls have changed, by name: a number that tells its contents.
        then: what came of the calls after it.
        recording: what it did in this call and those after it, where that was asked for.
    """

    returned: Sequence[Returned]
    changed: Sequence[str] = ()
    seconds: float = 0.0
    printed: str = ""
    result: str = ""
    of_arguments: Mapping[str, Array] = field(default_factory=dict)
    of_arrays: Mapping[str, Array] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    then: Sequence[Reply] = ()
    recording: Recording | None = None


@dataclass(frozen=True)
class Binding:
    """A variable of a script was given an array, or was read and held it.

    Attributes:
        name: the variable.
        value: the array's number in the recording.
        after: how many operations there had been by then.
        line: the statement's line.
        function: qualified name of the function in which the name stands; empty for none.
    """

    name: str
    value: int
    after: int
    line: int = 0
    function: str = ""


@dataclass(frozen=True)
class ScriptRun:
    """What a plain script did.

    Attributes:
        recording: every array that an expression of it made; the places are those of its own lines.
        bound: each time a variable was given an array.
        held: likewise, and each time that one was read and held another array than the last time it was met there: an
            argument of a function, and what an operation has changed in place.
        error: what ended it early, in a line: ``RuntimeError: size mismatch``; empty where it ran to its end.
        line: where that was raised, or where it ended itself; 0 where it ran to its end.
        clash: why the operation that raised is impossible, where the shapes of its arrays are why.
        skipped: lines of the statements that were left out, since a package that they need isn't installed.
        printed: the end of what it printed.
        frameworks: what it has imported of ``torch`` and ``numpy``.
        lists: the numbers in lists, and in rows of lists, that its variables hold at the end.
    """

    recording: Recording
    bound: Sequence[Binding] = ()
    held: Sequence[Binding] = ()
    error: str = ""
    line: int = 0
    clash: str = ""
    skipped: Sequence[int] = ()
    printed: str = ""
    frameworks: Sequence[str] = ()
    lists: Mapping[str, Array] = field(default_factory=dict)


class Hosting(Protocol):
    """Whoever holds the candidate: `Host` in this process, `HostProcess` in a child. The judge knows only this."""

    def open(self, target: Any, instead: Mapping[str, bytes] = AS_THEY_STAND) -> Facts:
        """What the candidate says of itself, once it is loaded; some texts are run in place of what files hold."""

    def build(self, kwargs: Mapping[str, Any]) -> Facts:
        """What the object says of itself that the candidate class makes of these arguments (`Config` among them)."""

    def state(self) -> dict[str, Array]:
        """Its parameters, buffers and array attributes by name, floating ones as float64."""

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Nothing; gives the named arrays new values of the same shape."""

    def call(self, call: Call) -> Reply:
        """What came of calling it. Every call starts from the same state, save those in the ``then`` of another."""

    def script(self, path: str, source: str) -> ScriptRun:
        """What a plain script did, run as a program."""

    def close(self) -> None:
        """Nothing; lets go of the candidate."""
