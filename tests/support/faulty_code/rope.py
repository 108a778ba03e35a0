"""Mistakes in rope."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from faulty_code.attention import Attention, faulty
from faulty_code.examples import cross, decode, grouped, narrow, square, wide_norm

ROPED = (square, grouped, decode, wide_norm, narrow)
HALVES = (square, decode, wide_norm, narrow)


@faulty("rope-missing", "", *ROPED)
class RopeMissing(Attention):
    def turn(self, q, k, v):
        return q, k, v


@faulty("rope-one-sided", "only the query is turned", *ROPED)
class RopeOneSidedOnlyQueryTurned(Attention):
    def rope_k(self, k, at):
        return k


@faulty("rope-one-sided", "only the key is turned", *ROPED)
class RopeOneSidedOnlyKeyTurned(Attention):
    def rope_q(self, q, at):
        return q


@faulty("rope-sign", "query and key", *ROPED)
class RopeSignQueryKey(Attention):
    def rotate(self, x, angles):
        return super().rotate(x, -angles)


@faulty("rope-sign", "query and key", *HALVES)
class RopeSignQueryKeyAgain(Attention):
    def rotate_half(self, x):
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([x2, -x1], dim=-1)


@faulty("rope-sign", "query and key", *HALVES)
class RopeSignQueryKeyOnceMore(Attention):
    """sin and cos exchanged: another rotation, the same scores."""

    def rotate(self, x, angles):
        angles = torch.cat([angles, angles], dim=-1)
        return x * angles.sin() + self.rotate_half(x) * angles.cos()


@faulty("rope-sign", "the query only", *ROPED)
class RopeSignQueryOnly(Attention):
    def rope_q(self, q, at):
        return self.rope(q, -at)


@faulty("rope-sign", "the key only", *ROPED)
class RopeSignKeyOnly(Attention):
    def rope_k(self, k, at):
        return self.rope(k, -at)


class RopeOfOneSideExchanged(RopeSignQueryKeyOnceMore):
    exchanging = False

    def exchanged(self, x, at):
        self.exchanging = True
        turned = self.rope(x, at)
        self.exchanging = False
        return turned

    def rotate(self, x, angles):
        return super().rotate(x, angles) if self.exchanging else Attention.rotate(self, x, angles)


@faulty("rope-sign", "sin and cos have changed places, for the query only", *HALVES)
class RopeOfTheQueryExchanged(RopeOfOneSideExchanged):
    def rope_q(self, q, at):
        return self.exchanged(q, at)


@faulty("rope-sign", "sin and cos have changed places, for the key only", *HALVES)
class RopeOfTheKeyExchanged(RopeOfOneSideExchanged):
    def rope_k(self, k, at):
        return self.exchanged(k, at)


@faulty("rope-applied-twice", "to the key", *ROPED)
class RopeAppliedTwiceKey(Attention):
    def rope_k(self, k, at):
        return self.rope(self.rope(k, at), at)


@faulty("rope-applied-twice", "to the query", *ROPED)
class RopeAppliedTwiceQuery(Attention):
    def rope_q(self, q, at):
        return self.rope(self.rope(q, at), at)


@faulty("rope-applied-twice", "to query and key", *ROPED)
class RopeAppliedTwiceQueryKey(Attention):
    def rope(self, x, at):
        return super().rope(super().rope(x, at), at)


@faulty("rope-applied-twice", "to the keys from before the first query", decode)
class RopeAppliedTwiceKeysFromBefore(Attention):
    def rope_k(self, k, at):
        cache = self.rope(k[:, :, :4], at[:4])
        new = self.rope(k[:, :, 4:], at[4:])
        return torch.cat([self.rope(cache, at[:4]), new], dim=2)


@faulty("value-after-rope", "", *ROPED)
class ValueAfterRope(Attention):
    def turn(self, q, k, v):
        q, k, v = super().turn(q, k, v)
        return q, k, self.rope(v, torch.arange(self.S, dtype=torch.float64))


@faulty("rope-layout", "adjacent in place of halves", *HALVES)
class RopeLayoutAdjacentPlaceHalves(Attention):
    def rotate(self, x, angles):
        x1, x2 = x[..., 0::2], x[..., 1::2]
        turned = [x1 * angles.cos() - x2 * angles.sin(), x2 * angles.cos() + x1 * angles.sin()]
        return torch.stack(turned, dim=-1).flatten(-2)


@faulty("rope-layout", "halves in place of adjacent", grouped)
class RopeLayoutHalvesPlaceAdjacent(Attention):
    def rotate(self, x, angles):
        angles = torch.cat([angles, angles], dim=-1)
        return x * angles.cos() + self.rotate_half(x) * angles.sin()


@faulty("rope-layout-mixed", "each angle twice in a row, with rotate_half", *ROPED)
class RopeLayoutMixedEachAngleTwice(Attention):
    def rotate(self, x, angles):
        cos, sin = angles.cos().repeat_interleave(2, dim=-1), angles.sin().repeat_interleave(2, dim=-1)
        return x * cos + self.rotate_half(x) * sin


@faulty("rope-layout-mixed", "all angles twice over, with neighbours", *ROPED)
class RopeLayoutMixedAllAnglesTwice(Attention):
    def rotate(self, x, angles):
        angles = torch.cat([angles, angles], dim=-1)
        return x * angles.cos() + torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2) * angles.sin()


TAKEN = {
    "all angles twice over": lambda angles: torch.cat([angles, angles], dim=-1),
    "each angle twice in a row": lambda angles: angles.repeat_interleave(2, dim=-1),
}

for _angles, _table in TAKEN.items():

    @faulty("rope-layout-mixed", f"{_angles}, with neighbours that are put back as halves", *ROPED)
    class RopeLayoutNeighboursPutBackAsHalves(Attention):
        table = staticmethod(_table)

        def rotate(self, x, angles):
            angles = self.table(angles)
            return x * angles.cos() + torch.cat([-x[..., 1::2], x[..., 0::2]], dim=-1) * angles.sin()

    @faulty("rope-layout-mixed", f"{_angles}, with halves that are put back as neighbours", *ROPED)
    class RopeLayoutHalvesPutBackAsNeighbours(Attention):
        table = staticmethod(_table)

        def rotate(self, x, angles):
            angles, (x1, x2) = self.table(angles), x.chunk(2, dim=-1)
            return x * angles.cos() + torch.stack([-x2, x1], dim=-1).flatten(-2) * angles.sin()


@faulty("rope-minus-missing", "plus in both places", *HALVES)
class RopeMinusMissing(Attention):
    def rotate_half(self, x):
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([x2, x1], dim=-1)


@faulty("rope-minus-missing", "minus in both places", *HALVES)
class RopeMinusTwice(Attention):
    def rotate_half(self, x):
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([-x2, -x1], dim=-1)


@faulty("rope-partial-ignored", "the whole head", grouped, decode)
class RopePartialIgnoredWholeHead(Attention):
    def dims(self, x):
        return x.shape[-1]


@faulty("rope-partial-ignored", "the last channels in place of the first", grouped, decode, wide_norm)
class RopePartialIgnoredLastChannelsPlace(Attention):
    def rope(self, x, at):
        return torch.cat([x[..., :-8], super().rope(x[..., -8:], at)], dim=-1)


@faulty("rope-partial-frequencies", "the frequencies", grouped, decode)
class RopePartialFrequenciesFrequencies(Attention):
    def inv_freq(self, dims):
        return self.spec.rope.base ** (-torch.arange(0, dims, 2, dtype=torch.float64) / 12)


@faulty("rope-partial-frequencies", "frequencies and pairs", decode)
class ProportionalRope(Attention):
    speeds = 12

    def rope(self, x, at):
        inv_freq = torch.zeros(6, dtype=torch.float64)
        inv_freq[:4] = self.spec.rope.base ** (-torch.arange(0, 8, 2, dtype=torch.float64) / self.speeds)
        angles = torch.outer(at, inv_freq).repeat(1, 2)
        return x * angles.cos() + self.rotate_half(x) * angles.sin()


@faulty("rope-partial-frequencies", "the pairs", decode)
class RopePartialFrequenciesPairs(ProportionalRope):
    speeds = 8


@faulty("rope-offset-lost", "the query", decode)
class QueryFromZero(Attention):
    def rope_q(self, q, at):
        return self.rope(q, torch.arange(self.T, dtype=torch.float64))


@faulty("rope-offset-lost", "the new keys alone", decode)
class NewKeysFromZero(Attention):
    def rope_k(self, k, at):
        return torch.cat([self.rope(k[:, :, :4], at[:4]), self.rope(k[:, :, 4:], at[:3])], dim=2)


@faulty("rope-offset-lost", "the query and the new keys", decode)
class RopeOffsetLostQueryNewKeys(QueryFromZero, NewKeysFromZero):
    pass


def _shifted(by: int) -> type[Attention]:
    class Shifted(Attention):
        def rope_q(self, q, at):
            return self.rope(q, at + by)

    return Shifted


for _by in (1, -1, 2, -2):
    _note = f"the query stands {abs(_by)} too far {'on' if _by > 0 else 'back'}"
    faulty("rope-offset-shifted", _note, *ROPED)(_shifted(_by))


@faulty("rope-over-heads", "", grouped, decode, wide_norm)
class RopeOverHeads(Attention):
    """Rope counts along axis -2 of (batch, token, head, dim), before keys are repeated."""

    def by_head(self, x):
        at = torch.arange(x.shape[1], dtype=torch.float64)
        return self.rope(x.transpose(1, 2), at).transpose(1, 2)

    def repeat(self, q, k, v):
        return super().repeat(self.by_head(q), self.by_head(k), v)

    def turn(self, q, k, v):
        return q, k, v


def _mscaled(query: float, key: float) -> type[Attention]:
    class Scaled(Attention):
        def mscale(self):
            return 1.0

        def factor(self, power):
            return super().mscale() ** power

        def rope_q(self, q, at):
            turned = self.rope(q, at)
            return torch.cat([turned[..., :8] * self.factor(query), turned[..., 8:]], dim=-1)

        def rope_k(self, k, at):
            turned = self.rope(k, at)
            return torch.cat([turned[..., :8] * self.factor(key), turned[..., 8:]], dim=-1)

    return Scaled


faulty("yarn-scale", "it is missing", wide_norm)(_mscaled(0, 0))
faulty("yarn-scale", "it is squared", wide_norm)(_mscaled(2, 2))
faulty("yarn-scale", "it is on the query or the key only", wide_norm)(_mscaled(1, 0))


@faulty("yarn-scale", "it is on the channels that don't turn too", wide_norm)
class YarnScaleChannelsThatDon(Attention):
    def rope(self, x, at):
        turned = super().rope(x, at)
        return torch.cat([turned[..., :8], turned[..., 8:] * self.mscale()], dim=-1)


def _inv_freq(formula: Callable[[float, Tensor, int], Tensor]) -> type[Attention]:
    class Frequencies(Attention):
        def inv_freq(self, dims):
            return formula(self.spec.rope.base, torch.arange(dims // 2, dtype=torch.float64), dims)

    return Frequencies


for _note, _formula in {
    "the exponent is i/dim in place of 2i/dim": lambda base, i, dims: base ** (-i / dims),
    "the exponent is 4i/dim in place of 2i/dim": lambda base, i, dims: base ** (-2 * (2 * i) / dims),
    "pairs are counted from 1": lambda base, i, dims: base ** (-2 * (i + 1) / dims),
    "the last pair gets 1/base": lambda base, i, dims: base ** -torch.linspace(0, 1, dims // 2, dtype=torch.float64),
    "the exponent's minus is missing": lambda base, i, dims: base ** (2 * i / dims),
    "the slowest pair comes first": lambda base, i, dims: (base ** (-2 * i / dims)).flip(0),
}.items():
    faulty("rope-frequencies", _note, square, grouped, decode, cross)(_inv_freq(_formula))  # type: ignore[arg-type]


def _based(base: float) -> type[Attention]:
    class Based(Attention):
        def __init__(self, spec, inputs):
            super().__init__(spec.but(rope=replace(spec.rope, base=base)), inputs)

    return Based


for _example, _own in ((square, 5000), (grouped, 700), (decode, 700), (cross, 10_000), (wide_norm, 700), (narrow, 100)):
    for _base in {10_000, 500_000, 1_000_000} - {_own}:
        faulty("rope-frequencies", f"the base is {_base:g} in place of {_own:g}", _example)(_based(_base))


@faulty("rope-frequencies", "the scaling is missing", narrow, wide_norm)
class RopeFrequenciesScalingMissing(Attention):
    def scaled(self, inv_freq, dims, base, scaling):
        return inv_freq


@faulty("rope-frequencies", "the scaling is on all pairs alike", narrow, wide_norm)
class RopeFrequenciesScalingAllPairs(Attention):
    def scaled(self, inv_freq, dims, base, scaling):
        return inv_freq / scaling.factor


@faulty("rope-frequencies", "the scaling is applied twice", narrow, wide_norm)
class RopeFrequenciesScalingTwice(Attention):
    def scaled(self, inv_freq, dims, base, scaling):
        return super().scaled(inv_freq, dims, base, replace(scaling, factor=scaling.factor * scaling.factor))


@faulty("rope-frequencies", "the scaling goes the wrong way", narrow, wide_norm)
class RopeFrequenciesScalingInverted(Attention):
    def scaled(self, inv_freq, dims, base, scaling):
        return super().scaled(inv_freq, dims, base, replace(scaling, factor=1 / scaling.factor))


@faulty("rope-frequencies", "the original length is 8192", narrow)
class RopeFrequenciesOriginalLength(Attention):
    def scaled(self, inv_freq, dims, base, scaling):
        return super().scaled(inv_freq, dims, base, replace(scaling, original_length=8192))


@faulty("rope-frequencies", "the base is raised instead (NTK)", narrow, wide_norm)
class RopeFrequenciesBaseRaisedInstead(Attention):
    def scaled(self, inv_freq, dims, base, scaling):
        raised = base * scaling.factor ** (dims / (dims - 2))
        return raised ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)


@faulty("rope-frequencies", "yarn is missing, with its attention factor", wide_norm)
class RopeFrequenciesYarnMissingWith(Attention):
    def inv_freq(self, dims):
        return self.spec.rope.base ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)

    def mscale(self):
        return 1.0


def _short(dtype: torch.dtype, where: str) -> type[Attention]:
    def rounded(x: Tensor, *places: str) -> Tensor:
        return x.float().to(dtype) if where in places else x

    class Short(Attention):
        def rope(self, x, at):
            dims = self.dims(x)
            inv_freq = rounded(self.inv_freq(dims), "frequencies", "angles", "everything")
            at = rounded(at, "angles", "everything")
            if where == "frequencies":
                inv_freq = inv_freq.double()
            angles = torch.outer(at, inv_freq)
            if where == "angles":
                angles = angles.double()
            cos, sin = (rounded(f(angles), "tables").double() for f in (torch.cos, torch.sin))
            if self.spec.rope.pairing == "halves":
                x1, x2 = x[..., :dims].chunk(2, dim=-1)
                turned = torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)
            else:
                x1, x2 = x[..., :dims:2], x[..., 1:dims:2]
                turned = torch.stack([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1).flatten(-2)
            return torch.cat([turned * self.mscale(), x[..., dims:]], dim=-1)

    return Short


for _dtype in (torch.bfloat16, torch.float16):
    for _where, _subject in {
        "frequencies": "the frequencies are",
        "angles": "positions, frequencies and angles are",
        "everything": "positions, frequencies, angles, cos and sin are",
        "tables": "cos and sin are",
    }.items():
        _note = f"{_subject} in {str(_dtype).removeprefix('torch.')}"
        faulty("rope-low-precision", _note, *ROPED)(_short(_dtype, _where))
