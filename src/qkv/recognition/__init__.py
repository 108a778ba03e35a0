"""Recognition: what each array that a candidate made is: which stage, which axes, right or not."""

from qkv.recognition.arrangement import REPEATED as REPEATED
from qkv.recognition.flow import Flow as Flow, operands_of as operands_of
from qkv.recognition.known import LOW as LOW, SHOWN as SHOWN, WITHOUT_SINK as WITHOUT_SINK
from qkv.recognition.sights import FUSED as FUSED, Recognition as Recognition, Sight as Sight, recognise as recognise
