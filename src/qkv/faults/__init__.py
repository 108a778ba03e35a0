"""The catalogue of faults, one module a stage."""

from qkv.faults import scale as _scale
from qkv.faults.fault import CATALOGUE as CATALOGUE
from qkv.faults.fault import Family as Family
from qkv.faults.fault import Fault as Fault
from qkv.faults.fault import Need as Need
from qkv.faults.fault import Variant as Variant
from qkv.faults.fault import fault as fault
