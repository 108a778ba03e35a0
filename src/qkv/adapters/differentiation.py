"""Differentiating a torch candidate: one call with a graph, and what its backward pass gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from qkv.adapters.messages import Array, Cotangent, DType
from qkv.adapters.parts import slots
from qkv.adapters.results import value_at
from qkv.adapters.values import dtype_name, imported_torch, is_tensor, to_float64, to_torch
from qkv.errors import CandidateError

Gradients = tuple[dict[str, Array], dict[str, Array]]
"""Of arguments and of the candidate's own arrays, by name; what nothing came back to is missing."""


@dataclass
class Graph:
    """One call that is, or is not, to be differentiated.

    Attributes:
        args: positional arguments to call with.
        kwargs: keyword arguments to call with.
        cotangent: what to differentiate by; None where that was not asked for.
        arguments: the tensors whose gradients are wanted, by place or name.
        arrays: likewise those of the candidate itself.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    cotangent: Cotangent | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)

    def gradients(self, result: Any) -> Gradients:
        """What the backward pass gives, once the call has returned; nothing where it was not asked for."""
        if self.cotangent is None:
            return {}, {}
        output = value_at(result, self.cotangent.path)
        if not is_tensor(output) or not output.requires_grad:
            return {}, {}
        wanted = {**{("of", name): one for name, one in self.arguments.items()},
                  **{("in", name): one for name, one in self.arrays.items()}}  # fmt: skip
        given = imported_torch().autograd.grad(
            output, list(wanted.values()), _made(self.cotangent, output), allow_unused=True
        )
        came = {key: to_float64(one) for key, one in zip(wanted, given, strict=True) if one is not None}
        return (
            {name: array for (where, name), array in came.items() if where == "of"},
            {name: array for (where, name), array in came.items() if where == "in"},
        )


def _made(cotangent: Cotangent, output: Any) -> Any:
    """The cotangent as a tensor of the output's dtype, in the memory asked for."""
    dtype: DType = dtype_name(output)  # type: ignore[assignment]  # an output that requires grad is floating
    if cotangent.memory == "expanded":
        return to_torch(cotangent.array.reshape(-1)[:1], dtype, output.device)[0].expand(cotangent.array.shape)
    return to_torch(cotangent.array, dtype, output.device, strided=cotangent.memory == "strided")


@contextmanager
def recorded(
    cotangent: Cotangent | None, candidate: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Graph]:
    """The arguments to call the candidate with; where a cotangent is given, torch keeps a graph meanwhile.

    The candidate gets copies of the leaves, as it would get what a layer below has made: it may change them in place.

    Raises:
        CandidateError: the candidate takes no tensors.
    """
    if cotangent is None:
        yield Graph(args, kwargs)
        return
    if not any(is_tensor(one) for one in (*args, *kwargs.values())):
        raise CandidateError("it is given NumPy's arrays, which keep no gradients", hint="leave --gradients out")
    torch = imported_torch()
    held = {slot.name: slot.value for slot in slots(getattr(candidate, "__self__", candidate))}
    arrays = {name: held[name] for name in cotangent.arrays}
    leaves: dict[int, Any] = {}
    copies: dict[int, Any] = {}
    with torch.enable_grad():
        for path in cotangent.arguments:
            one = _argument(args, kwargs, path)
            if id(one) not in leaves:
                leaves[id(one)] = one.detach().requires_grad_()
                copies[id(one)] = leaves[id(one)].clone()
        arguments = {path: leaves[id(_argument(args, kwargs, path))] for path in cotangent.arguments}
        frozen = [array for array in arrays.values() if not array.requires_grad]
        for array in frozen:
            array.requires_grad_()
        try:
            yield Graph(
                [copies.get(id(one), one) for one in args],
                {name: copies.get(id(one), one) for name, one in kwargs.items()},
                cotangent,
                arguments,
                arrays,
            )
        finally:
            for array in frozen:
                array.requires_grad_(False)


def _argument(args: Sequence[Any], kwargs: Mapping[str, Any], path: str) -> Any:
    return args[int(path)] if path.isdigit() else kwargs[path]
