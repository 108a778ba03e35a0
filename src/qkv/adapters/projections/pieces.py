"""What a reading is: each projection as it stands in the state, and the arrays as the oracle takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qkv.oracle.inputs import Linear, Norm, Parameters

State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Piece:
    """One projection, as it stands in the state.

    Attributes:
        weights: names of the weights; several are single heads that are set side by side.
        biases: names of their biases; empty where there are none.
        axes: a letter for each axis of a stored weight: ``e`` channels that go in, ``o`` channels that come out, ``h``
            head, ``d`` channel of a head, ``c`` which of q, k, v, ``1`` an axis of size one. ``oe`` is torch's own.
        shape: shape of one stored weight, after the slice.
        rows: which rows of the (out, in) matrix belong to the projection, in order; None means all.
        bias_rows: the same for the bias, which can be shared where the weight is not, and the other way round.
        cut: the part of the stored array that was named by the user.
        bias_cut: the same for the bias.
        output: whether it is the output's projection, whose columns, not rows, are the heads.
    """

    weights: tuple[str, ...]
    axes: str
    shape: tuple[int, ...]
    biases: tuple[str, ...] = ()
    rows: NDArray[np.intp] | None = None
    bias_rows: NDArray[np.intp] | None = None
    cut: tuple[slice, ...] = ()
    bias_cut: tuple[slice, ...] = ()
    output: bool = False

    def linear(self, state: State) -> Linear:
        """The projection as (out, in), with its bias."""
        weight = np.concatenate([self._matrix(state[name]) for name in self.weights])
        bias = np.concatenate([self._vector(state[name]) for name in self.biases]) if self.biases else None
        return Linear(_picked(weight, self.rows), None if bias is None else _picked(bias, self.bias_rows))

    @property
    def size(self) -> tuple[int, int]:
        """Channels that come out and channels that go in."""
        rows, columns = self._matrix(np.broadcast_to(0.0, self.shape), cut=False).shape
        return (rows * len(self.weights) if self.rows is None else len(self.rows)), columns

    def _matrix(self, array: NDArray[Any], cut: bool = True) -> NDArray[Any]:
        array = array[self.cut] if self.cut and cut else array
        rows = "o" if self.output else "chdo"
        ordered = _ordered(array, self.axes, "chdoe" if not self.output else "ohde")
        out = int(np.prod([size for letter, size in zip(self.axes, array.shape, strict=True) if letter in rows]))
        return ordered.reshape(out, -1)

    def _vector(self, array: NDArray[Any]) -> NDArray[Any]:
        array = array[self.bias_cut] if self.bias_cut else array
        axes = "".join(letter for letter in self.axes if letter in ("o" if self.output else "chdo"))
        if array.ndim == len(axes) and array.ndim > 1:
            array = _ordered(array, axes, "chdo")
        return array.reshape(-1)


def _picked(array: NDArray[Any], rows: NDArray[np.intp] | None) -> NDArray[Any]:
    return array if rows is None else array[rows]


def _ordered(array: NDArray[Any], axes: str, wanted: str) -> NDArray[Any]:
    """The array with its axes in the wanted order; axes of size one go last."""
    return array.transpose(sorted(range(array.ndim), key=lambda axis: f"{wanted}1".index(axes[axis])))


@dataclass(frozen=True)
class NormPiece:
    """A normalisation of query or key, as it stands in the state.

    Attributes:
        kind: see :class:`qkv.oracle.inputs.Norm`.
        weight: name of its weight; None where it has none.
        bias: name of its bias.
        eps: added to the mean square.
        plus_one: whether ``1 + weight`` multiplies.
        shape: shape of its weight; empty where it has none.
    """

    kind: Literal["rms", "layer", "l2"]
    weight: str | None = None
    bias: str | None = None
    eps: float = 1e-6
    plus_one: bool = False
    shape: tuple[int, ...] = ()

    def norm(self, state: State) -> Norm:
        """The normalisation. A weight for each head and channel broadcasts over the tokens."""
        weight, bias = (None if name is None else _per_channel(state[name]) for name in (self.weight, self.bias))
        return Norm(kind=self.kind, weight=weight, bias=bias, eps=self.eps, plus_one=self.plus_one)


def _per_channel(array: NDArray[Any]) -> NDArray[Any]:
    array = array.reshape([size for size in array.shape if size != 1] or [1])
    return array[:, None, :] if array.ndim == 2 else array


@dataclass(frozen=True, eq=False)
class ProjectionReading:
    """One way to read the state: which arrays are which projection.

    Attributes:
        words: the reading in words, for the report.
        certain: False where another convention of equal standing reads the same arrays otherwise.
        q: the query's projection.
        k: the key's.
        v: the value's.
        out: the output's; None where there is none.
        q_norm: normalisation of the query.
        k_norm: normalisation of the key.
        fused: the array that holds q, k and v in one; None where they are apart.
        sink: name of the sinks' scores.
        num_heads: number of heads, where the layout itself tells.
        unassigned: learned matrices in and beneath the attention's place that have no part in the reading.
    """

    words: str
    certain: bool
    q: Piece
    k: Piece
    v: Piece
    out: Piece | None = None
    q_norm: NormPiece | None = None
    k_norm: NormPiece | None = None
    fused: Piece | None = None
    sink: str | None = None
    num_heads: int | None = None
    unassigned: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every array that is used, by its name in the state."""
        pieces = [piece for piece in (self.q, self.k, self.v, self.out) if piece]
        norms = [norm for norm in (self.q_norm, self.k_norm) if norm]
        names = [name for piece in pieces for name in (*piece.weights, *piece.biases)]
        names += [name for norm in norms for name in (norm.weight, norm.bias) if name]
        return tuple(dict.fromkeys([*names, *([self.sink] if self.sink else [])]))

    @property
    def embed_dim(self) -> int:
        """Channels of one token of ``x``."""
        return self.q.size[1]

    @property
    def source_dim(self) -> int:
        """Channels of one token that key and value come from."""
        return self.k.size[1]

    @property
    def widths(self) -> tuple[int, int, int]:
        """Channels of all heads' query, key and value."""
        return self.q.size[0], self.k.size[0], self.v.size[0]

    @property
    def qk_norm(self) -> Literal["head", "width"] | None:
        """Over what the query is normalised; None where nothing is, or where the norm has no weight that tells."""
        if self.q_norm is None or not self.q_norm.shape:
            return None
        return "width" if np.prod(self.q_norm.shape) == self.q.size[0] and len(self.q_norm.shape) == 1 else "head"

    def parameters(self, state: State) -> Parameters:
        """The arrays as the oracle takes them."""
        return Parameters(
            q_proj=self.q.linear(state),
            k_proj=self.k.linear(state),
            v_proj=self.v.linear(state),
            out_proj=self.out.linear(state) if self.out else None,
            q_norm=self.q_norm.norm(state) if self.q_norm else None,
            k_norm=self.k_norm.norm(state) if self.k_norm else None,
            fused=self.fused.linear(state) if self.fused else None,
        )

    def sinks(self, state: State) -> NDArray[Any] | None:
        """Each head's score of the sink, ``(num_heads,)``; None where there are none."""
        return None if self.sink is None else np.asarray(state[self.sink]).reshape(-1)
