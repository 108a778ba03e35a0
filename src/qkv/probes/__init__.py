"""Probes: inputs that make faults visible. Random inputs are strong only where the feature is exercised."""

from importlib import import_module
from pkgutil import iter_modules

from qkv.probes.probe import PROBES as PROBES, Probe as Probe, Setting as Setting, probes_for as probes_for

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

_ordinary_first = sorted(PROBES.items(), key=lambda entry: entry[0] != "ordinary")
PROBES.clear()
PROBES.update(_ordinary_first)
