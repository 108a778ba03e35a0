"""What to build a candidate's class with: its constructor's arguments, filled by their usual names.

The sizes are chosen so that nothing hides: every axis its own size, no two equal where the class allows it, biases on,
dropout on. Where the class does not allow it, ``alternatives`` gives up one wish after the other, and ``fitted_to``
keeps to the width that a class has from elsewhere.
"""

from qkv.adapters.construction.building import alternatives as alternatives, arguments_for as arguments_for
from qkv.adapters.construction.construction import Construction as Construction
from qkv.adapters.construction.fitting import fitted_to as fitted_to
from qkv.adapters.construction.sizes import Sizes as Sizes, default_sizes as default_sizes
