"""Faults of rope's frequencies: the pairs turn too fast or too slowly, or their angles are rounded away."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from qkv.errors import SpecError
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.needs import ROPE
from qkv.faults.position import by_sides, rope_of, with_rope
from qkv.faults.precision import BFLOAT16, FLOAT16
from qkv.faults.replacing import impossible
from qkv.oracle import Array, Inputs, Replacements, Run
from qkv.oracle.rounding import rounded
from qkv.positions import Rope, RopeScaling, rotate
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

BASES = (10_000.0, 500_000.0, 1_000_000.0, 100_000.0, 1000.0, 100.0, 5_000_000.0, 150_000.0)
"""What models in use have as ``rope_theta``."""

Frequencies = Callable[[Rope, int], list[float]]
"""Radians per token of each pair, from the rope and how many channels turn."""


def _turning(frequencies_of: Frequencies) -> Replacements:
    """The ``position`` stage with other frequencies."""

    def turn(run: Run, x: Array, at: Array) -> Array:
        rope = rope_of(run)
        frequencies = run.array(frequencies_of(rope, rope.rotary_dims(x.shape[-1])))
        return rotate(x, run.array(at), frequencies, rope.pairing, rope.attention_factor)

    return by_sides(turn, turn)


def _of_base(base: float) -> Replacements:
    def replaced(run: Run) -> Run:
        rope = rope_of(run)
        try:
            other = replace(rope, base=base)
        except SpecError:
            raise impossible(f"rope can't have the base {base}") from None
        return with_rope(other)[Stage.POSITION](run)

    return {Stage.POSITION: replaced}


def _base_words(spec: AttentionSpec, inputs: Inputs, base: float) -> str:
    known = next((number for number in BASES if math.isclose(base, number, rel_tol=1e-4)), base)
    return f"the base is {known:.6g} in place of {spec.rope.base if spec.rope else 0:g}"


def _miscounted() -> Iterator[tuple[str, Frequencies]]:
    """Formulas that people write in place of ``base^(-2i/dims)``, ``i`` from 0."""
    yield "the exponent is i/dim in place of 2i/dim", lambda rope, dims: _powers(rope, dims, lambda i: i / dims)
    yield "the exponent is 4i/dim in place of 2i/dim", lambda rope, dims: _powers(rope, dims, lambda i: 4 * i / dims)
    yield "pairs are counted from 1", lambda rope, dims: _powers(rope, dims, lambda i: 2 * (i + 1) / dims)
    yield "the last pair gets 1/base", lambda rope, dims: _powers(rope, dims, lambda i: i / max(dims / 2 - 1, 1))
    yield "the exponent's minus is missing", lambda rope, dims: _powers(rope, dims, lambda i: -2 * i / dims)
    yield "the slowest pair comes first", lambda rope, dims: rope.frequencies(dims)[::-1]


def _powers(rope: Rope, dims: int, exponent: Callable[[int], float]) -> list[float]:
    return [rope.base ** -exponent(pair) for pair in range(dims // 2)]


def _misscaled(rope: Rope, scaling: RopeScaling) -> Iterator[tuple[str, Rope]]:
    """The rope with its frequencies scaled another way. Yarn's factor on query and key stays as it is."""

    def but(**changes: object) -> Rope:
        return replace(rope, scaling=replace(scaling, **changes))  # type: ignore[arg-type]  # the fields' own types

    if scaling.kind != "linear":
        yield "the scaling is on all pairs alike", but(kind="linear")
    yield "the scaling is applied twice", but(factor=scaling.factor**2)
    yield "the scaling goes the wrong way", but(factor=1 / scaling.factor)
    if scaling.kind == "llama3" and scaling.original_length != 8192:
        yield "the original length is 8192", but(original_length=8192)


def _with_frequencies_of(other: Rope) -> Replacements:
    """Another rope's frequencies under this rope's attention factor."""
    return _turning(lambda _, dims: replace(other, dims=dims).frequencies(dims))


def _ntk(factor: float) -> Frequencies:
    """The base raised so that the slowest pair is slowed by ``factor`` and the fastest stays (NTK-aware scaling)."""

    def frequencies(rope: Rope, dims: int) -> list[float]:
        if dims == 2:
            raise impossible("a single pair is the fastest and the slowest")
        raised = rope.base * factor ** (dims / (dims - 2))
        return [raised ** (-2 * pair / dims) for pair in range(dims // 2)]

    return frequencies


@fault(
    "rope-frequencies",
    Stage.POSITION,
    title="rope's frequencies are wrong",
    explanation=(
        "Pair i is meant to turn by base^(-2i/dim) a token. Another base, exponent or scaling turns most pairs too "
        "fast or too slowly: near tokens are nearly right, and the error grows with the distance. Every row with more "
        "than one visible key is wrong, later rows more so; a short test with a loose tolerance may not see it."
    ),
    repair="inv_freq = base ** (-torch.arange(0, dim, 2) / dim)  # base is the config's rope_theta",
    needs=[ROPE],
    families=[Family(_of_base, [10.0 ** (power / 2) for power in range(2, 15)], _base_words)],
)
def rope_frequencies(spec: AttentionSpec) -> Ways:
    """``base^(-i/dim)`` and the like; another base; scaling missing, on all pairs, twice, or the wrong way."""
    rope = spec.rope
    if rope is None:
        return
    for base in BASES[:3]:
        if base != rope.base:
            yield f"the base is {base:g} in place of {rope.base:g}", _of_base(base)
    if rope.scaling is not None:
        yield "the scaling is missing", _with_frequencies_of(replace(rope, scaling=None))
        for note, other in _misscaled(rope, rope.scaling):
            yield note, _with_frequencies_of(other)
        yield "the base is raised instead (NTK)", _turning(_ntk(rope.scaling.factor))
        if rope.scaling.kind == "yarn" and rope.attention_factor != 1:
            yield "yarn is missing, with its attention factor", with_rope(replace(rope, scaling=None))
    else:
        for note, frequencies_of in _miscounted():
            yield note, _turning(frequencies_of)


def _low_precision(to: str, where: str) -> Replacements:
    """The ``position`` stage with small numbers rounded: its ``frequencies``, ``angles``, ``tables`` or everything."""

    def turn(run: Run, x: Array, at: Array) -> Array:
        rope, xp = rope_of(run), run.xp
        frequencies, at = run.array(rope.frequencies(x.shape[-1])), run.array(at)
        if where != "tables":
            frequencies = rounded(xp, frequencies, to)
        if where in ("angles", "everything"):
            at = rounded(xp, at, to)
        angles = at[:, None] * frequencies
        if where in ("angles", "everything"):
            angles = rounded(xp, angles, to)
        cos, sin = xp.cos(angles), xp.sin(angles)
        if where in ("tables", "everything"):
            cos, sin = rounded(xp, cos, to), rounded(xp, sin, to)
        return _by_table(run, x, cos, sin, rope)

    return by_sides(turn, turn)


def _by_table(run: Run, x: Array, cos: Array, sin: Array, rope: Rope) -> Array:
    """``x`` turned by given cosines and sines, ``(token, pair)``."""
    xp, pairs = run.xp, cos.shape[-1]
    cos, sin = cos * rope.attention_factor, sin * rope.attention_factor
    turning, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if rope.pairing == "halves":
        first, second = turning[..., :pairs], turning[..., pairs:]
        turning = xp.concat([first * cos - second * sin, second * cos + first * sin], axis=-1)
    else:
        first, second = turning[..., 0::2], turning[..., 1::2]
        both = xp.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
        turning = xp.reshape(both, turning.shape)
    return xp.concat([turning, rest], axis=-1)


@fault(
    "rope-low-precision",
    Stage.POSITION,
    title="rope's angles are computed in half precision",
    explanation=(
        "bfloat16 keeps three digits: it knows no whole numbers between 256 and 258, and an angle of 300 radians is "
        "off by up to one whole radian. Rows at small positions are nearly right, late ones turn by an angle of "
        "chance; where only cos and sin are rounded, all are off in the third digit. Positions, frequencies, angles "
        "and tables belong in float32, whatever the model's dtype is."
    ),
    repair="angles = positions.float()[:, None] * inv_freq.float()  # cast cos and sin last",
    needs=[ROPE],
    rounds=True,
)
def rope_low_precision(spec: AttentionSpec) -> Ways:
    """``cos(round(round(pos) * round(freq)))`` in bfloat16 or float16; or only frequencies or tables rounded."""
    if spec.rope is None:
        return
    words = {
        "frequencies": "the frequencies are",
        "angles": "positions, frequencies and angles are",
        "everything": "positions, frequencies, angles, cos and sin are",
        "tables": "cos and sin are",
    }
    for to in (BFLOAT16, FLOAT16):
        for where, subject in words.items():
            yield f"{subject} in {to}", _low_precision(to, where)
