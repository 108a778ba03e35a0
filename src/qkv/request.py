"""Request: what a user asks of a candidate, and who holds it meanwhile."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.adapters.host import Host
from qkv.adapters.messages import DType, Hosting
from qkv.adapters.opening import Conventions
from qkv.adapters.process import HostProcess
from qkv.adapters.targets import absolute
from qkv.errors import SpecError
from qkv.spec import FIELDS

LARGEST = {"num_heads": 1024, "num_kv_heads": 1024, "head_dim": 2048, "value_dim": 2048, "embed_dim": 65536}
"""Sizes beyond which no model goes."""


@dataclass(frozen=True)
class Request:
    """What the user asks.

    Attributes:
        target: ``file.py:Name``, or the object itself.
        given: fields of the spec, as in its JSON form.
        whole_spec: whether ``given`` is a whole spec, in which a missing field means its default.
        conventions: what was said of the candidate itself.
        seed: seed of every random number.
        time_limit: seconds that one call may take.
        memory_limit: bytes that the candidate may take.
        repeat: the command that asks the same again.
        sweep: whether to try many more sizes than usual.
        tensors: names of a dump's tensors by role, where they are unusual.
        gradients: whether to judge the backward pass too.
        length: tokens of one long sequence to judge too; None for none.
        dtype: the precision to run the candidate in; None for the best that it takes.
        advance: is told the share of long work done since it was told last.
        instead: texts to judge by in place of what files hold, by their absolute paths.
        patch_seconds: how long to look for a repair of a file that is wrong.
    """

    target: Any
    given: Mapping[str, Any] = field(default_factory=dict)
    whole_spec: bool = False
    conventions: Conventions = field(default_factory=Conventions)
    seed: int = 0
    time_limit: float = 20.0
    memory_limit: int = 4 * 2**30
    repeat: str = ""
    sweep: bool = False
    tensors: Mapping[str, str] = field(default_factory=dict)
    gradients: bool = False
    length: int | None = None
    dtype: DType | None = None
    advance: Callable[[float], None] = lambda share: None
    instead: Mapping[str, bytes] = field(default_factory=dict)
    patch_seconds: float = 0.0

    @property
    def from_file(self) -> bool:
        """Whether the candidate stands in a file."""
        return isinstance(self.target, str | Path)

    def idle_in_scripts(self, **more: Any) -> str:
        """What was said and a script has no use for, since it is held to what it computes itself; empty for nothing.

        Args:
            more: what else it has no use for, by the names of flags; what is none was not said.
        """
        said = self.conventions
        flags = ["--spec"] if self.whole_spec else [field.flag for field in FIELDS if field.name in self.given]
        options = {"layout": said.layout, "mask-argument": said.mask_meaning, "init": said.init, "call": said.call,
                   "weights": said.weights, "seed": self.seed, "tensor": self.tensors}  # fmt: skip
        flags += [f"--{name}" for name, value in options.items() if value]
        flags += [f"--{name.replace('_', '-')}" for name, value in more.items() if value is not None]
        if not flags:
            return ""
        without = "has no effect" if len(flags) == 1 else "have no effect"
        return f"{', '.join(flags)} {without}: this is a script, and its own lines say what it is meant to compute"

    @property
    def to_open(self) -> Any:
        """What a host opens."""
        return str(self.target) if self.from_file else self.target

    @property
    def name(self) -> str:
        """The candidate's name as far as it is known before it is loaded."""
        if self.from_file:
            return self.to_open.removeprefix(self.file).rpartition(":")[2]
        return str(getattr(self.target, "__name__", type(self.target).__name__))

    @property
    def file(self) -> str:
        """The candidate's file; empty for an object."""
        found = re.match(r".+?\.(?:py|ipynb)(?=:|$)", self.to_open) if self.from_file else None
        return found[0] if found else ""

    @property
    def source(self) -> bytes | None:
        """The text to judge the candidate's file by, in place of what it holds; None for what it holds."""
        return self.instead.get(absolute(self.file)) if self.file else None

    def check_sizes(self) -> None:
        """Nothing.

        Raises:
            SpecError: a size that is given is one of no attention, and would take hours or all memory to judge.
        """
        for name, most in LARGEST.items():
            size = self.given.get(name)
            if isinstance(size, int) and size > most:
                raise SpecError(f"{name} is {size}, and candidates of at most {most:,} are judged. Give a smaller one")

    def host(self) -> Hosting:
        """Who holds the candidate: a process of its own for a file, this process for an object."""
        if self.from_file:
            return HostProcess(time_limit=self.time_limit, memory_limit=self.memory_limit)
        return Host()

    def command(self, verb: str) -> str:
        """The command line that asks the same again; empty for an object."""
        if self.repeat or not self.from_file:
            return self.repeat
        return f"qkv {verb} {shlex.quote(self.to_open)} --seed {self.seed}"
