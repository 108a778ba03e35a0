"""Verdict: what a long sequence adds to the report on a candidate that is right on short ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qkv.adapters.messages import DType
from qkv.diagnosis import Explanation
from qkv.findings import UNEXPLAINED, named_alternatives, named_faults
from qkv.long_sequence.judging import LongSequence, judged_at
from qkv.long_sequence.together import Drift
from qkv.report import ProbeResult, Report, Verdict
from qkv.settling import Trial
from qkv.whereabouts import Inside, whereabouts


def with_length(
    report: Report,
    trial: Trial,
    length: int,
    *,
    dtype: DType | None = None,
    advance: Callable[[float], None] = lambda share: None,
) -> Report:
    """The report, with what came of one long sequence; as it is where the candidate isn't right on short ones.

    Args:
        report: what the ordinary probes gave.
        trial: the candidate, as it was read.
        length: how many tokens.
        dtype: the precision to run it in, where it was asked for.
        advance: is told the share of the work done since it was told last.
    """
    if report.verdict is not Verdict.RIGHT:
        return report
    long = judged_at(trial, length, dtype=dtype, advance=advance)
    report = replace(report, probes=[*report.probes, *_probes(long)])
    if long.first is not None:
        return _wrong(report, long)
    if long.drift is not None:
        return _drifting(report, long.drift, long.length)
    if long.refused is not None:
        why = f"right on short inputs, but it could not be run with {length:,} tokens: {long.refused.message}"
        hint, detail = long.refused.hint, long.refused.detail
        return replace(report, verdict=Verdict.UNDECIDED, why=why, hint=hint, detail=detail)
    if long.share_seen < 1:
        why = f"interrupted: {100 * long.share_seen:.0f} % of its rows at {length:,} tokens were judged, and are right"
        return replace(report, verdict=Verdict.UNDECIDED, why=why, hint="run it again, or with a smaller --length")
    return report


def _probes(long: LongSequence) -> list[ProbeResult]:
    name, exposes = f"length {long.length}", "what only length brings"
    if long.answer is None:
        return [ProbeResult(name, exposes, None, None, None, long.refused.message if long.refused else "interrupted")]
    if not long.looked_at:
        return [ProbeResult(name, exposes, None, None, None, "interrupted")]
    agrees = long.first is None and long.drift is None
    return [ProbeResult(name, exposes, agrees, long.error, long.allowed, f"{long.rows_seen:,} rows")]


def _wrong(report: Report, long: LongSequence) -> Report:
    """The report on a candidate that is wrong at this length only."""
    assert long.first is not None
    first, observation = long.first
    where = whereabouts(Inside(observation, long.diagnosis))
    place = replace(where.first, query=first)
    faults = named_faults(long.diagnosis.best)
    return replace(
        report,
        verdict=Verdict.WRONG,
        first_disagreement=place,
        rows=[replace(where.rows[-1], title=f"output of token {first}")],
        spread=f"of {long.length:,} tokens: {long.spread}",
        only_when=long.only_when,
        faults=faults,
        alternatives=named_alternatives(long.diagnosis),
        strength=None,
        why="right on short inputs, wrong on a long one" if faults else f"right on short inputs; {UNEXPLAINED}",
    )


def _drifting(report: Report, drift: Drift, length: int) -> Report:
    """The report on a candidate whose rows are wrong together only."""
    why = (
        f"right on short inputs. With {length:,} tokens no row is off by more than {report.candidate.dtype or 'its'} "
        f"precision rounds away, but all together are off as this fault has it: {drift.share:.2f} of its effect, give "
        f"or take {drift.error:.2f}, where rounding alone gives 0"
    )
    faults = named_faults(Explanation((drift.variant,), 1.0))
    return replace(report, verdict=Verdict.WRONG, why=why, faults=faults, strength=None)
