"""Probes: inputs that make faults visible. Random inputs are strong only where the feature is exercised."""

from qkv.probes import lengths as _lengths, magnitudes as _magnitudes, visibility as _visibility
from qkv.probes.probe import PROBES as PROBES, Probe as Probe, Setting as Setting, probes_for as probes_for

__all__ = ["PROBES", "Probe", "Setting", "probes_for"]
