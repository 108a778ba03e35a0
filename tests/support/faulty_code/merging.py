"""Mistakes in merging the heads, and after it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from faulty_code.attention import Attention, apply, faulty
from faulty_code.examples import cross, decode, grouped, square

MERGES: dict[tuple[str, str], Callable[[Attention, Tensor], Tensor]] = {
    ("heads-merged-by-view", ""): lambda s, o: o.reshape(s.B, s.T, -1),
    ("heads-merged-by-view", "after transpose(2, 3)"): lambda s, o: o.transpose(2, 3).reshape(s.B, s.T, -1),
    ("heads-merged-by-view", "with the heads before the batch"): lambda s, o: o.transpose(0, 1).reshape(s.B, s.T, -1),
    ("heads-merged-by-view", "with the tokens before the batch"): lambda s, o: o.permute(2, 0, 1, 3).reshape(
        s.B, s.T, -1
    ),
    ("heads-merged-by-view", "read as (token, batch, head * dim)"): lambda s, o: o.reshape(s.T, s.B, -1).transpose(
        0, 1
    ),
    ("heads-merged-interleaved", ""): lambda s, o: o.permute(0, 2, 3, 1).flatten(2),
}
GROUPED_MERGES: dict[tuple[str, str], Callable[[Attention, Tensor], Tensor]] = {
    ("heads-merged-out-of-order", "the place in the group comes first"): lambda s, o: (
        o.view(s.B, s.G, s.H // s.G, s.T, -1).permute(0, 3, 2, 1, 4).flatten(2)
    ),
    ("heads-merged-out-of-order", "as if they had been kept with the place in the group first"): lambda s, o: (
        o.view(s.B, s.H // s.G, s.G, s.T, -1).permute(0, 3, 2, 1, 4).flatten(2)
    ),
}


def _merging(merge: Callable[[Attention, Tensor], Tensor]) -> type[Attention]:
    return type("Merging", (Attention,), {"merge": merge})


for (_id, _note), _merge in MERGES.items():
    faulty(_id, _note)(_merging(_merge))
for (_id, _note), _merge in GROUPED_MERGES.items():
    faulty(_id, _note, grouped, decode)(_merging(_merge))


@faulty("output-projection-missing", "", square)
class OutputProjectionMissing(Attention):
    def out(self, y):
        return y


@faulty("output-projection-twice", "", square)
class OutputProjectionTwice(Attention):
    def out(self, y):
        return apply(apply(y, self.p.out_proj), self.p.out_proj)


@faulty("residual-added", "x + output", square, grouped, cross)
class ResidualAddedXOutput(Attention):
    def out(self, y):
        return self.x + apply(y, self.p.out_proj)


@faulty("residual-added", "query + context, head by head", square, cross)
class ResidualAddedQueryContextHead(Attention):
    def attend(self, q, k, v):
        return q + super().attend(q, k, v)
