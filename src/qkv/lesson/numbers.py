"""Every number of the lesson, by the oracle: from the dot product of two tokens to several heads."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from qkv.faults import CATALOGUE
from qkv.lesson.tokens import Tokens
from qkv.masks import Causal
from qkv.oracle import Array, Inputs, Linear, Parameters, Run, run_stages
from qkv.oracle.one_token import one_token
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

HEAD_DIM = 2
"""Numbers in a query, key or value of one head."""

DROPOUT_P = 0.5
"""Share of the weights that dropout drops, as in the article."""


@dataclass(frozen=True)
class Attention:
    """One attention on one sequence, right and with faults."""

    spec: AttentionSpec
    inputs: Inputs
    _faulty: dict[str, Run] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def run(self) -> Run:
        """The oracle's run."""
        return run_stages(self.spec, self.inputs)

    def under(self, fault: str) -> Run:
        """The run with a fault of the catalogue made in its plainest way."""
        if fault not in self._faulty:
            plainest = next(CATALOGUE[fault].variants(self.spec))
            self._faulty[fault] = run_stages(self.spec, self.inputs, plainest.replacements)
        return self._faulty[fault]

    @property
    def queries(self) -> Array:
        """``(head, query, head_dim)``."""
        return self.run.before[Stage.SCORES].query[0]

    @property
    def keys(self) -> Array:
        """``(head, key, head_dim)``."""
        return self.run.before[Stage.SCORES].key[0]

    @property
    def values(self) -> Array:
        """``(head, key, head_dim)``."""
        return self.run.before[Stage.SCORES].value[0]

    @property
    def scores(self) -> Array:
        """``query @ key.T``, ``(head, query, key)``."""
        return self.run.before[Stage.SCALE].scores[0]

    @property
    def scaled(self) -> Array:
        """The scores before the mask, ``(head, query, key)``."""
        return self.run.before[Stage.MASK].scores[0]

    @property
    def masked(self) -> Array:
        """The scores behind the mask, minus infinity where a query may not attend."""
        return self.run.before[Stage.SOFTMAX].scores[0]

    @property
    def weights(self) -> Array:
        """``(head, query, key)``."""
        return self.run.weights[0]

    @property
    def context(self) -> Array:
        """``(head, query, head_dim)``, before the heads are put side by side."""
        return self.run.before[Stage.MERGE].context[0]

    def alone(self, query: int) -> list[float]:
        """The output of one token, computed by itself with plain loops."""
        return one_token(self.spec, self.inputs, batch=0, query=query)


@dataclass(frozen=True)
class Lesson:
    """The attentions that the lesson builds one upon the other.

    Attributes:
        tokens: what they are computed on.
        num_heads: heads of the last one; its first head is the causal one.
        seed: draws the trainable weights.
    """

    tokens: Tokens
    num_heads: int = 2
    seed: int = 0

    @property
    def default_query(self) -> int:
        """The token whose context vector is computed first: the second, as in the article."""
        return 1

    @cached_property
    def simple(self) -> Attention:
        """Attention without trainable weights: every token is its own query, key and value."""
        x = self.tokens.inputs[None, None]
        return Attention(AttentionSpec(scale=1.0), Inputs(query=x, key=x, value=x))

    @cached_property
    def projections(self) -> dict[str, Array]:
        """``W_query``, ``W_key``, ``W_value``, ``(dim, heads * head_dim)``, and ``W_out``: halves and ones."""
        rng = np.random.default_rng(self.seed)
        dim, width = self.tokens.inputs.shape[1], self.num_heads * HEAD_DIM
        sizes = {"W_query": (dim, width), "W_key": (dim, width), "W_value": (dim, width), "W_out": (width, width)}
        return {name: rng.choice([-1, -0.5, 0.5, 1], size) for name, size in sizes.items()}

    @cached_property
    def trained(self) -> Attention:
        """With trainable weights, and the scores divided by ``sqrt(head_dim)``."""
        q_proj, k_proj, v_proj, _ = (Linear(weight[:, :HEAD_DIM].T) for weight in self.projections.values())
        parameters = Parameters(q_proj, k_proj, v_proj)
        return Attention(AttentionSpec(), Inputs(x=self.tokens.inputs[None], parameters=parameters))

    @cached_property
    def causal(self) -> Attention:
        """The same, no token attending to a later one."""
        return Attention(self.trained.spec.but(mask=Causal()), self.trained.inputs)

    @cached_property
    def dropped(self) -> Array:
        """The causal weights after dropout as it may fall in training, ``(query, key)``."""
        weights = self.causal.weights[0]
        kept = np.random.default_rng(self.seed).random(weights.shape) >= DROPOUT_P
        return np.where(kept, weights / (1 - DROPOUT_P), 0.0)

    @cached_property
    def multi_head(self) -> Attention:
        """Several such heads in parallel, put side by side and mixed by an output projection."""
        q_proj, k_proj, v_proj, out_proj = (Linear(weight.T) for weight in self.projections.values())
        parameters = Parameters(q_proj, k_proj, v_proj, out_proj)
        spec = AttentionSpec(num_heads=self.num_heads, mask=Causal())
        return Attention(spec, Inputs(x=self.tokens.inputs[None], parameters=parameters))
