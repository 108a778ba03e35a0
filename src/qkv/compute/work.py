"""Work: one call of `attend` with its tiles, and what each call of a kernel is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from qkv.compute import blockwise
from qkv.compute.arguments import LEARNED, Arguments
from qkv.compute.composite import alibi, precise
from qkv.compute.tiles import Tile
from qkv.masks import Positions


@dataclass(frozen=True)
class Work:
    """What is to be computed, and how.

    Attributes:
        given: what `attend` was called with.
        tiles: what of the scores is made.
        fused: whether torch's fused kernel computes the tiles.
        lse: whether the log-sum-exp is wanted of the work itself.
        seed: of dropout.
    """

    given: Arguments
    tiles: tuple[Tile, ...]
    fused: bool
    lse: bool = True
    seed: int = 0

    def calls(self) -> Iterator[tuple[int, Tile]]:
        """Each call of a kernel, by its number."""
        return enumerate(call for tile in self.tiles for call in tile.calls())

    @cached_property
    def merges(self) -> bool:
        """Whether rows are put together of several parts, the sink being one."""
        return self.given.sinks is not None or any(not tile.first for tile in self.tiles)

    def but(self, *tensors: Tensor | None) -> Work:
        """The same work on other tensors: query, key, value, bias and sinks."""
        changed: dict[str, Any] = dict(zip(LEARNED, tensors, strict=True))
        return replace(self, given=replace(self.given, **changed))

    def added(self, call: Tile, dtype: torch.dtype, *, in_kernel: bool = False) -> Tensor | None:
        """What is added to the scores of a call, 4 axes that broadcast to them; None where nothing is.

        Args:
            call: the call.
            dtype: of what is added.
            in_kernel: whether the kernel itself hides what comes later in a causal tile.
        """
        given, device = self.given, self.given.query.device
        parts: list[Tensor] = []
        if not isinstance(call.masking, str):
            parts.append(call.masking.bias(dtype, device)[None, None])
        if given.bias is not None:
            parts.append(call.of_pairs(given.bias).to(dtype))
        if given.slopes is not None:
            parts.append(alibi(given.slopes, self._positions(call)).to(dtype))
        shown: list[Tensor] = []
        if call.masking == "asked":
            shown.append(given.mask.allows(self._positions(call)))
        if call.masking == "causal" and not in_kernel:
            shown.append(torch.ones(call.rows, call.width, dtype=torch.bool, device=device).tril_()[None, None])
        if given.table is not None:
            shown.append(call.of_pairs(given.table))
        parts += (torch.where(may_attend, 0.0, -torch.inf).to(dtype) for may_attend in shown)
        return sum(parts[1:], parts[0]) if parts else None

    def _positions(self, call: Tile) -> Positions:
        """Where the queries and keys of a call's rectangles stand; those of the first where distances are the same."""
        device = self.given.query.device
        query = torch.arange(call.rows, device=device) + (self.given.first + call.queries)
        key = torch.arange(call.width, device=device) + call.keys
        at = Positions.of(query, key, sequence=torch.arange(*call.sequences, device=device)[:, None, None, None])
        if call.query_step == call.key_step:
            return at
        further = torch.arange(call.count, device=device)[:, None, None, None]
        return replace(at, query=at.query + call.query_step * further, key=at.key + call.key_step * further)

    def empty(self, call: Tile, added: Tensor | None) -> Tensor | None:
        """Which rows of a call may attend to nothing, broadcasting to ``(batch, head, rows)``; None where all may."""
        if added is None:
            return None
        if self.given.table is None and self.given.bias is None and not isinstance(call.masking, str):
            empty = call.masking.empty
            return None if empty is None else torch.from_numpy(empty).to(added.device)[None, None]
        return added.amax(-1) == -torch.inf

    def kept(self, number: int, call: Tile) -> Tensor | None:
        """Which weights of a call dropout keeps, over the share that it keeps; the same each time it is asked."""
        given = self.given
        if not given.dropout_p:
            return None
        generator = torch.Generator(given.query.device).manual_seed(self.seed + number)
        sequences = call.sequences[1] - call.sequences[0]
        shape = (max(sequences, call.count), given.num_heads, call.rows, call.width)
        drawn = torch.rand(shape, generator=generator, device=given.query.device)
        return (drawn >= given.dropout_p).to(precise(given.query.dtype, given.precision)).div_(1 - given.dropout_p)

    def block(self, number: int, call: Tile) -> blockwise.Block:
        """A call as `blockwise` takes it."""
        given, exact = self.given, precise(self.given.query.dtype, self.given.precision)
        return blockwise.Block(
            call.of_queries(given.query),
            call.of_keys(given.key),
            call.of_keys(given.value),
            self.added(call, exact),
            given.scale,
            given.softcap,
            self.kept(number, call),
            exact,
            given.query.dtype if given.precision == "low" else exact,
        )
