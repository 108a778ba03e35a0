"""Identification: which attention a black box computes, read from nothing but its outputs."""

from qkv.identification.identity import identity_of as identity_of
from qkv.identification.opening import opened as opened
