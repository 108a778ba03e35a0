"""The report: one document, lowered to the terminal and to JSON."""

from qkv.report.document import (
    WORST_FIRST as WORST_FIRST,
    CandidateWords as CandidateWords,
    Disagreement as Disagreement,
    Example as Example,
    NamedFault as NamedFault,
    Patch as Patch,
    ProbeResult as ProbeResult,
    Report as Report,
    RowPair as RowPair,
    SourceLine as SourceLine,
    Strength as Strength,
    Verdict as Verdict,
)
from qkv.report.json_form import to_json as to_json, to_mapping as to_mapping
