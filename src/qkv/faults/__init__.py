"""The catalogue of faults. A new fault is one more entry in one of these modules, or a module more: all are read."""

from importlib import import_module
from pkgutil import iter_modules

from qkv.faults.fault import (
    CATALOGUE as CATALOGUE,
    Family as Family,
    Fault as Fault,
    Need as Need,
    Variant as Variant,
    fault as fault,
)
from qkv.faults.gradient import GRADIENT_FAULTS as GRADIENT_FAULTS
from qkv.faults.length import LENGTH_FAULTS as LENGTH_FAULTS

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

_by_stage = sorted(CATALOGUE.values(), key=lambda entry: entry.stage)
CATALOGUE.clear()
CATALOGUE.update({entry.id: entry for entry in _by_stage})
