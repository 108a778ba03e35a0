"""Probes: inputs that make faults visible. Random inputs are strong only where the feature is exercised."""

from qkv.probes import lengths as _lengths
from qkv.probes import magnitudes as _magnitudes
from qkv.probes import visibility as _visibility
from qkv.probes.probe import PROBES as PROBES
from qkv.probes.probe import Probe as Probe
from qkv.probes.probe import Setting as Setting
from qkv.probes.probe import probes_for as probes_for

__all__ = ["PROBES", "Probe", "Setting", "probes_for"]
