"""Mistakes in the projections."""

from __future__ import annotations

import torch
from torch import Tensor

from faulty_code.attention import Attention, apply, faulty
from faulty_code.examples import cross, grouped, narrow, padded, square, wide_norm


@faulty("value-is-key", "", square, cross, wide_norm)
class ValueKey(Attention):
    def project(self):
        return apply(self.x, self.p.q_proj), apply(self.source, self.p.k_proj), apply(self.value_source, self.p.k_proj)


@faulty("key-value-swapped", "", square, wide_norm)
class KeyValueSwapped(Attention):
    def project(self):
        return apply(self.x, self.p.q_proj), apply(self.x, self.p.v_proj), apply(self.x, self.p.k_proj)


@faulty("projection-reused", "the value is made with q_proj", square)
class ProjectionReusedValueMadeWith(Attention):
    def project(self):
        return apply(self.x, self.p.q_proj), apply(self.x, self.p.k_proj), apply(self.x, self.p.q_proj)


@faulty("projection-reused", "the query is made with v_proj", square)
class ProjectionReusedQueryMadeWith(Attention):
    def project(self):
        return apply(self.x, self.p.v_proj), apply(self.x, self.p.k_proj), apply(self.x, self.p.v_proj)


@faulty("projection-reused", "the key is made with v_proj", square)
class ProjectionReusedKeyMadeWith(Attention):
    def project(self):
        return apply(self.x, self.p.q_proj), apply(self.x, self.p.v_proj), apply(self.x, self.p.v_proj)


@faulty("value-not-projected", "", square)
class ValueNotProjected(Attention):
    def project(self):
        return apply(self.x, self.p.q_proj), apply(self.x, self.p.k_proj), self.x


@faulty("value-not-projected", "the first channels of the tokens", square)
class ValueNotProjectedFirstChannels(Attention):
    def project(self):
        value = apply(self.x, self.p.v_proj)
        return apply(self.x, self.p.q_proj), apply(self.x, self.p.k_proj), self.x[..., : value.shape[-1]]


@faulty("query-key-not-projected", "the query", square)
class QueryKeyNotProjectedQuery(Attention):
    def project(self):
        return self.x, apply(self.x, self.p.k_proj), apply(self.x, self.p.v_proj)


@faulty("query-key-not-projected", "the key", square)
class QueryKeyNotProjectedKey(Attention):
    def project(self):
        return apply(self.x, self.p.q_proj), self.x, apply(self.x, self.p.v_proj)


@faulty("query-key-not-projected", "query and key", square)
class QueryKeyNotProjectedQueryKey(Attention):
    def project(self):
        return self.x, self.x, apply(self.x, self.p.v_proj)


@faulty("query-key-not-projected", "query, key and value", square)
class QueryKeyNotProjectedQueryKeyValue(Attention):
    def project(self):
        return self.x, self.x, self.x


def _transposing(*names: str, biased: bool = True) -> type[Attention]:
    class Transposed(Attention):
        def by(self, name: str, x: Tensor) -> Tensor:
            projection = getattr(self.p, name)
            if name not in names:
                return apply(x, projection)
            return x @ projection.weight + projection.bias if biased else x @ projection.weight

        def project(self):
            return self.by("q_proj", self.x), self.by("k_proj", self.x), self.by("v_proj", self.x)

        def out(self, y):
            return self.by("out_proj", y)

    return Transposed


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
for _name in PROJECTIONS:
    faulty("projection-transposed", _name, square, padded)(_transposing(_name))
    faulty("projection-transposed", f"{_name}, and its bias is left out", square)(_transposing(_name, biased=False))
faulty("projection-transposed", "q_proj, k_proj and v_proj", square)(_transposing(*PROJECTIONS[:3]))
faulty("projection-transposed", "all four projections", square)(_transposing(*PROJECTIONS))


def _biasing(times: int, *names: str) -> type[Attention]:
    class Biased(Attention):
        def by(self, name: str, x: Tensor) -> Tensor:
            projection = getattr(self.p, name)
            return x @ projection.weight.T + (times if name in names else 1) * projection.bias

        def project(self):
            return self.by("q_proj", self.x), self.by("k_proj", self.source), self.by("v_proj", self.value_source)

        def out(self, y):
            return self.by("out_proj", y)

    return Biased


for _name in PROJECTIONS:
    faulty("bias-term", f"the bias of {_name} is missing", square, grouped, cross)(_biasing(0, _name))
    faulty("bias-term", f"the bias of {_name} is added twice", square, grouped, cross)(_biasing(2, _name))
faulty("bias-term", "all biases are missing", square, grouped)(_biasing(0, *PROJECTIONS))
faulty("bias-term", "the biases of q_proj, k_proj and v_proj are missing", square)(_biasing(0, *PROJECTIONS[:3]))


@faulty("projection-shared-by-heads", "the first head's", square, narrow)
class OneHead(Attention):
    head = 0

    def project(self):
        made = []
        for projection, heads in ((self.p.q_proj, self.H), (self.p.k_proj, self.G), (self.p.v_proj, self.G)):
            weight = projection.weight.view(heads, -1, self.x.shape[-1])[self.head]
            bias = projection.bias.view(heads, -1)[self.head]
            made.append(torch.cat([self.x @ weight.T + bias for _ in range(heads)], dim=-1))
        return tuple(made)


@faulty("projection-shared-by-heads", "the last head's", square, narrow)
class ProjectionSharedByHeadsLastHeadS(OneHead):
    head = -1


@faulty("projections-chained", "each head projects what the head before it gave", narrow)
class ProjectionsChainedEachHeadProjects(Attention):
    def project(self):
        made = []
        for projection in (self.p.q_proj, self.p.k_proj, self.p.v_proj):
            x, parts = self.x, []
            for weight, bias in zip(projection.weight.chunk(self.H), projection.bias.chunk(self.H), strict=True):
                x = x @ weight.T + bias
                parts.append(x)
            made.append(torch.cat(parts, dim=-1))
        return tuple(made)


@faulty("projections-chained", "key and value are made from the query", square)
class ProjectionsChainedKeyValueMade(Attention):
    def project(self):
        x = apply(self.x, self.p.q_proj)
        return x, apply(x, self.p.k_proj), apply(x, self.p.v_proj)


@faulty("projections-chained", "the key is made from the query, and the value from the key", square)
class ProjectionsChainedKeyMadeFrom(Attention):
    def project(self):
        q = apply(self.x, self.p.q_proj)
        k = apply(q, self.p.k_proj)
        return q, k, apply(k, self.p.v_proj)


@faulty("projections-chained", "the value is made from the projected key", square)
class ProjectionsChainedValueMadeFrom(Attention):
    def project(self):
        k = apply(self.source, self.p.k_proj)
        return apply(self.x, self.p.q_proj), k, apply(k, self.p.v_proj)


def _streams(query: str, key: str, value: str) -> type[Attention]:
    class Moved(Attention):
        def project(self):
            streams = (getattr(self, name) for name in (query, key, value))
            projections = (self.p.q_proj, self.p.k_proj, self.p.v_proj)
            return tuple(apply(x, projection) for x, projection in zip(streams, projections, strict=True))

    return Moved


for _note, _names in {
    "key and value from the query's tokens": ("x", "x", "x"),
    "the value from the query's tokens": ("x", "source", "x"),
    "the key from the query's tokens": ("x", "x", "value_source"),
    "the query from the source": ("source", "source", "value_source"),
    "query and source have changed places": ("source", "x", "x"),
    "the value from the key's tokens": ("x", "source", "source"),
    "the key from the value's tokens": ("x", "value_source", "value_source"),
}.items():
    faulty("key-value-source-wrong", _note, cross)(_streams(*_names))


@faulty("weights-not-loaded", "the output is zero")
class WeightsNotLoadedOutputZero(Attention):
    def out(self, y):
        return torch.zeros_like(super().out(y))


@faulty("weights-not-loaded", "only the bias of out_proj is left", square, grouped)
class WeightsNotLoadedOnlyBiasOut(Attention):
    def out(self, y):
        return torch.zeros_like(super().out(y)) + self.p.out_proj.bias
