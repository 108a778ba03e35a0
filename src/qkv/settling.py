"""Settling: which reading of the candidate is meant, where names leave several open.

A reading under which everything is right is the meant one. Where none is, the one that comes nearest is kept, and the
next ones behind it: the diagnosis takes the first that a fault explains.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol, cast

import numpy as np

from qkv.adapters.abilities import Abilities, NotApplicable
from qkv.adapters.binding import LEAVE, Signature
from qkv.adapters.caches.handing import Caching
from qkv.adapters.calling import Caller, Outcome
from qkv.adapters.construction import Sizes
from qkv.adapters.doubts import Doubt
from qkv.adapters.messages import Array, Facts
from qkv.adapters.pullback import Gradients, Memory
from qkv.comparison import DRAWS, Expectation, as_seen, expectation
from qkv.diagnosis import Observation
from qkv.errors import CandidateError
from qkv.inference import Intention
from qkv.oracle import Inputs, run_stages
from qkv.probes import Probe, Setting, probes_for
from qkv.spec import AttentionSpec

QUICK = ("ordinary", "fewer-queries", "handed-mask", "padding", "handed-bias", "documents", "peaked")
"""Kinds of probe that tell readings apart."""


OPTIONAL = ("mask", "padding", "lengths", "documents", "bias")
"""Roles of arguments that a call often goes without."""


class Reading(Protocol):
    """A candidate, or a dump of one, together with one way of handing it inputs."""

    spec: AttentionSpec
    facts: Facts

    @property
    def doubts(self) -> Sequence[Doubt]:
        """What may be read wrongly, to be said where nothing else explains its numbers."""

    @property
    def abilities(self) -> Abilities:
        """What it can be given."""

    @property
    def assumptions(self) -> list[str]:
        """How it was read, in sentences."""

    def observe(self, inputs: Inputs, *, seed: int = 0) -> Outcome:
        """What it gives for these inputs."""

    def gradients(self, inputs: Inputs, cotangent: Array, memory: Memory, *, seed: int = 0) -> Gradients:
        """What its backward pass gives for these inputs and this gradient of the output."""

    def named(self, of: Mapping[str, Array]) -> Mapping[str, Array]:
        """The oracle's gradients, by the names and in the shapes that this candidate has them in."""


class CallableReading(Reading, Protocol):
    """One of a candidate that can be called."""

    caller: Caller
    caching: Caching
    signature: Signature

    def bound(self, inputs: Inputs, handed: Mapping[str, Any] = ...) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call with these inputs; ``handed`` has some of them by role."""


@dataclass
class Trial:
    """One reading, and what came of its probes.

    Attributes:
        reading: the reading.
        intention: the intention it was read under.
        seed: seed of the inputs.
        judge_empty_rows: whether somebody said what an empty row gets.
        observations: the probes that ran.
        refused: name and error of the probes that the candidate could not be called with.
        unsaid: how many probes could not be put into its arguments.
        changed: arguments that it changed in place.
        printed: the end of what it printed.
        dtype: the coarsest precision it answered in.
        known: the oracle's answers that readings of one candidate share.
        rebuild: the same candidate built with other sizes, read in every way; None where its sizes are fixed.
        built_with: the arguments that its class was built with; None where it was not built from a class.
    """

    reading: Reading
    intention: Intention
    seed: int
    judge_empty_rows: bool
    observations: list[Observation] = field(default_factory=list)
    refused: list[tuple[Probe, CandidateError]] = field(default_factory=list)
    unsaid: int = 0
    changed: set[str] = field(default_factory=set)
    printed: str = ""
    dtype: str = "float64"
    known: dict[Hashable, Expectation] = field(default_factory=dict)
    rebuild: Callable[[Sizes], Iterator[Trial]] | None = None
    built_with: Mapping[str, Any] | None = None

    @property
    def called(self) -> CallableReading:
        """The reading of a candidate that can be called: of any but a dump."""
        return cast("CallableReading", self.reading)

    @property
    def setting(self) -> Setting:
        """What probes are made for."""
        return Setting(self.reading.spec, self.reading.abilities, self.seed)

    def probes(self, quick: bool) -> Iterator[Probe]:
        """The probes still to be run."""
        done = {observation.probe.name for observation in self.observations} | {probe.name for probe, _ in self.refused}
        for probe in probes_for(self.setting):
            if probe.name not in done and (not quick or probe.name.startswith(QUICK)):
                yield probe

    def run(self, *, quick: bool) -> None:
        """Runs the probes, all or the quick ones; a candidate that refuses the first is not tried further."""
        for probe in self.probes(quick):
            if any(probe.kind == other.kind for other, _ in self.refused):
                continue
            try:
                self.observations.append(self.observe(probe))
            except NotApplicable:
                self.unsaid += 1
            except CandidateError as error:
                if error.crash:
                    error.hint = error.hint or _as_handed(self.reading)
                self.refused.append((probe, error))
                if not self.observations or error.fatal:
                    return

    def resized(self, num_heads: int, num_kv_heads: int, head_dim: int, value_dim: int) -> Trial:
        """The same reading with other heads and channels, where these are free; nothing of it has run yet."""
        sizes = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "value_dim": value_dim,
        }
        return self.under(self.reading.spec.but(**sizes))

    def under(self, spec: AttentionSpec) -> Trial:
        """The same reading held to another spec; nothing of it has run yet."""
        reading = replace(self.reading, spec=spec)  # type: ignore[type-var]  # a dataclass
        return replace(self, reading=reading, observations=[], refused=[], known={})

    def observe(self, probe: Probe, draws: int = DRAWS) -> Observation:
        """One probe, run and compared with a bar from some draws of roundings.

        Raises:
            CandidateError: the candidate fails on it.
        """
        outcome = self.reading.observe(probe.inputs, seed=probe.seed)
        self.changed |= set(outcome.changed)
        self.printed = outcome.printed or self.printed
        self.dtype = outcome.dtype
        return Observation(probe, self._expected(probe, outcome, draws), outcome.output)

    def _expected(self, probe: Probe, outcome: Outcome, draws: int) -> Expectation:
        """What the oracle says of a probe; computed once for all readings that are given the same inputs."""
        able = self.reading.abilities
        precision = (outcome.dtype, outcome.given)
        asked = (self.reading.spec, probe.name, precision, id(probe.inputs.parameters), able.batched, able.takes, draws)
        if asked not in self.known:
            with np.errstate(all="ignore"):
                right = run_stages(self.reading.spec, as_seen(probe.inputs, outcome.given))
                self.known[asked] = expectation(
                    right, outcome.dtype, judge_empty_rows=self.judge_empty_rows, draws=draws
                )
        return self.known[asked]

    def runs_plainly(self) -> bool:
        """Whether it can be called without any of the masks and biases that it need not be given."""
        reading, probe = self.called, next(iter(probes_for(self.setting)))
        optional = {role: LEAVE for role in OPTIONAL if reading.signature.has(role)}
        try:
            args, kwargs = reading.bound(probe.inputs, optional)
            reading.caller.call(args, kwargs, strided=False, seed=probe.seed)
        except (CandidateError, NotApplicable):
            return False
        return True

    @property
    def agreeing(self) -> int:
        """How many probes agree."""
        return sum(observation.comparison.agrees for observation in self.observations)

    @property
    def fingerprint(self) -> bytes:
        """What the candidate gave, and what was expected: readings that share both are one and the same."""
        pairs = ((o.output, o.expected.run.output) for o in self.observations)
        return b"".join(np.round(array, 9).tobytes() for pair in pairs for array in pair)

    @property
    def wrong(self) -> bool:
        """Whether any probe disagrees."""
        return self.agreeing < len(self.observations)

    @property
    def right(self) -> bool:
        """Whether everything that ran agrees, and something did."""
        return bool(self.observations) and not self.wrong

    @property
    def broken(self) -> tuple[Probe, CandidateError] | None:
        """The first probe that any candidate should take, and that this one could not be called with.

        One that takes lengths of multiples only has said so, and refuses what it may.
        """
        if self.reading.abilities.step > 1:
            return None
        return next(((probe, error) for probe, error in self.refused if not probe.optional), None)

    @property
    def doubts(self) -> Sequence[Doubt]:
        """What may be read wrongly."""
        return self.reading.doubts

    @property
    def nearness(self) -> tuple[int, int, float]:
        """Order among readings: fewer probes left unasked, fewer refusals among them, then the share that agrees."""
        unasked = len(self.refused) + self.unsaid
        return -unasked, -len(self.refused), self.agreeing / max(len(self.observations), 1)


def _as_handed(reading: Reading) -> str:
    """How a candidate was given the arrays over which its process came to an end, and how to give it others."""
    other = "BTHD" if getattr(reading, "layout", "") == "BHTD" else "BHTD"
    given = next((one for one in reading.assumptions if one.startswith("arrays are ")), "")
    return f"it was called as if its {given}; if they are not: --layout {other}, or another order" if given else ""


MOST_READINGS = 120

MOST_CRASHES = 3
"""Orders of axes over which a candidate's process may end before no further ones are tried."""


def settle(trials: Iterable[Trial], reopen: Callable[[], object] | None = None) -> Sequence[Trial]:
    """The readings in the order they should be judged in: one that is right alone, or the nearest first.

    Args:
        trials: the readings, the likeliest first.
        reopen: opens the candidate again, should its process end over one of them: compiled code may, where its arrays
            are in another order than it takes them to be.

    Raises:
        CandidateError: the candidate can't be called under any reading; the error is that of the likeliest.
    """
    tried: list[Trial] = []
    first_error: CandidateError | None = None
    crashed: set[str] = set()
    for trial in islice(trials, MOST_READINGS):
        layout = getattr(trial.reading, "layout", "")
        if layout in crashed:
            continue
        trial.run(quick=True)
        if trial.right and not trial.refused and not trial.unsaid:
            return [trial]
        ended = next((error for _, error in trial.refused if error.fatal), None)
        if ended is not None:
            first_error = first_error or ended
            if not ended.crash or reopen is None:
                break
            crashed.add(layout)
            reopen()
            if len(crashed) == MOST_CRASHES:
                break
        elif trial.observations:
            tried.append(trial)
        elif trial.refused:
            first_error = first_error or trial.refused[0][1]
    if not tried:
        raise first_error or CandidateError(
            "no probe could be run", hint="say more of the candidate: see qkv check --help"
        )
    # A reading under which less can be asked is no reading to pass under.
    fewest = max(trial.nearness[:2] for trial in tried)
    best = sorted((t for t in tried if t.nearness[:2] == fewest), key=lambda trial: trial.nearness, reverse=True)
    different: dict[tuple[AttentionSpec, bytes], Trial] = {}
    for trial in best:
        different.setdefault((trial.reading.spec, trial.fingerprint), trial)
    return list(different.values())
