"""Trying an edited file: on the probes of its candidate, in the process that holds the candidate already."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.adapters.messages import Hosting
from qkv.adapters.process import HostProcess
from qkv.errors import CandidateError
from qkv.settling import Trial

CALL_LIMIT = 2.0
"""Seconds that one call of an edited candidate may take."""


@dataclass
class Bench:
    """Tries edited texts of one candidate, which has to be as it was judged when this is made.

    Attributes:
        host: who holds it.
        target: what the host opens.
        trial: the reading it was judged under, with the probes it failed.
        instead: the texts it was judged by in place of what files hold, by their absolute paths.
    """

    host: Hosting
    target: str
    trial: Trial
    instead: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Puts the probes in order, those that it failed and the cheap ones first; notes which arrays it was given."""
        seen = sorted(self.trial.observations, key=lambda one: (one.comparison.agrees, one.cost))
        self._probes = [observation.probe for observation in seen]
        judged = self.host.state()
        self._open({})
        fresh = self.host.state()
        self._given = {name: array for name, array in judged.items() if not np.array_equal(array, fresh[name])}
        self.host.assign(self._given)

    def passes(self, edits: Mapping[str, bytes]) -> bool:
        """Whether the candidate gives the right numbers with these texts as its files'."""
        trial = replace(self.trial, observations=[], refused=[], changed=set())
        with contextlib.suppress(CandidateError, NotApplicable), _in_a_hurry(self.host):
            self._open(edits)
            self.host.assign(self._given)
            return all(trial.observe(probe).comparison.agrees for probe in self._probes) and not trial.changed
        return False

    def _open(self, edits: Mapping[str, bytes]) -> None:
        self.host.open(self.target, {**self.instead, **edits})
        if self.trial.built_with is not None:
            self.host.build(self.trial.built_with)


@contextlib.contextmanager
def _in_a_hurry(host: Hosting) -> Iterator[None]:
    """Nothing; a call may take little time meanwhile, since an edit may have made a loop that never ends."""
    if not isinstance(host, HostProcess):
        yield
        return
    usual, host.time_limit = host.time_limit, min(host.time_limit, CALL_LIMIT)
    try:
        yield
    finally:
        host.time_limit = usual
