"""Dumps: files of tensors that another program wrote while it ran an attention."""

from qkv.adapters.dump.opening import SUFFIXES as SUFFIXES, is_dump as is_dump, open_dump as open_dump
from qkv.adapters.dump.roles import INSIDE as INSIDE, ROLES as ROLES, grouped as grouped
from qkv.adapters.dump.stored import Array as Array, Contents as Contents, Stored as Stored, dtype_named as dtype_named
