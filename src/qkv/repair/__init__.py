"""The repair: small edits of a candidate's file in its own words, shown only where the file is found right with them.

Edits may be generous, since none is believed: each is tried on the probes that the candidate failed, in the process
that holds it already, and the first that passes them is judged in full, as any candidate is. ``rules/`` has the edits.
"""

from qkv.repair.patches import patch_for as patch_for
from qkv.repair.scripts import explained_and_mended as explained_and_mended
from qkv.repair.shown_line import line_shown_by as line_shown_by
from qkv.repair.source import patch_between as patch_between
from qkv.repair.trying import Bench as Bench
from qkv.repair.writing import write as write
