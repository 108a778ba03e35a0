"""Identification: which attention a black box computes, read from nothing but its outputs."""

from qkv.identification.identity import identity_of as identity_of
from qkv.identification.opening import functions as functions, opened as opened
from qkv.identification.routing import plain_routing as plain_routing
from qkv.identification.weights import WeightReader as WeightReader
