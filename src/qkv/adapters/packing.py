"""Packing: texts packed into one sequence, said by where each begins (``cu_seqlens``) and how long the longest is."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.oracle import Inputs
from qkv.spec import AttentionSpec

Array = np.ndarray[Any, np.dtype[Any]]


def tokens_of_texts(spec: AttentionSpec, inputs: Inputs, *, apart: bool) -> tuple[Array, Array]:
    """How many queries and how many keys each text has, ``(text,)``; one text where nothing is packed.

    Args:
        spec: says at which position the first query stands.
        inputs: have the document of each key; a document is a text only if its tokens stand together.
        apart: whether queries and keys can be counted apart.

    Raises:
        NotApplicable: there are several sequences, a text stands in two pieces, some query belongs to none, or there
            are other numbers of queries than of keys and one number has to serve for both.
    """
    query_len, key_len = inputs.lengths
    document = np.zeros(key_len, dtype=np.int64) if inputs.document is None else inputs.document[0]
    begins = np.flatnonzero(np.diff(document, prepend=document[0] - 1))
    if inputs.batch > 1 or len(set(document[begins])) < len(begins):
        raise NotApplicable("boundaries can only say how one sequence is made of texts that stand in one piece")
    keys = np.diff(begins, append=key_len)
    if len(begins) == 1:
        queries = np.array([query_len])
    else:
        first = spec.offset_for(query_len, key_len)
        if first < 0 or first + query_len > key_len:
            raise NotApplicable("a query that stands where no token does belongs to no text")
        text = np.searchsorted(begins, np.arange(first, first + query_len), side="right") - 1
        queries = np.bincount(text, minlength=len(begins))
    if not apart and (queries != keys).any():
        raise NotApplicable("one array of boundaries serves for queries and keys, and their numbers differ")
    return queries, keys


def boundaries(counts: Array) -> Array:
    """Where each text begins, and where the last one ends, as kernels take it: int32, ``(text + 1,)``."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
