"""The report: one document, lowered to the terminal and to JSON."""

from qkv.report.document import CandidateWords as CandidateWords
from qkv.report.document import Disagreement as Disagreement
from qkv.report.document import Example as Example
from qkv.report.document import NamedFault as NamedFault
from qkv.report.document import ProbeResult as ProbeResult
from qkv.report.document import Report as Report
from qkv.report.document import RowPair as RowPair
from qkv.report.document import Strength as Strength
from qkv.report.document import Verdict as Verdict
from qkv.report.json_form import to_json as to_json
from qkv.report.json_form import to_mapping as to_mapping
