"""Agreement: whether a layer and the module it was copied from, or copied into, give the same on random tokens."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from qkv.errors import SpecError
from qkv.layers.attention_layer import Attention
from qkv.masks import Everything, causal
from qkv.positions import Rope

TOKENS = 24

TOLERANCE = 1e-5
"""Of the largest number in the output. Both run in float64, but many a module has float32 inside."""


@torch.no_grad()
def must_agree(layer: Attention, module: nn.Module) -> None:
    """Nothing, where both give the same. The module gets the layer's mask where it takes one.

    Raises:
        SpecError: they differ; the message names the option under which they wouldn't, if there is one.
    """
    mine = copy.deepcopy(layer).to("cpu", torch.float64).eval()
    other = copy.deepcopy(module).to("cpu", torch.float64).eval()
    sources = _sources(mine, _longest(other))
    wanted = answer(other, mine, sources)
    if _alike(mine(*sources), wanted):
        return
    for words, name, value in _other_options(mine):
        changed = copy.copy(mine)
        setattr(changed, name, value)
        if _alike(changed(*sources), wanted):
            raise SpecError(
                f"the layer and {type(module).__name__} differ, and with {words} they don't.\n"
                f"Write {words} where the layer is made."
            )
    error = float((mine(*sources) - wanted).abs().max())
    raise SpecError(
        f"the layer and {type(module).__name__} differ by up to {error:.3g}, where the largest number is "
        f"{float(wanted.abs().max()):.3g}; no one option explains it. The layer: {_said(mine)}.\n"
        "What it should be otherwise, qkv.identify(module) may tell; hand that to from_module as options."
    )


def answer(module: nn.Module, layer: Attention, sources: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """The output of a module for these tokens, under the layer's mask where it takes one.

    Raises:
        SpecError: it could not be called.
    """
    query, key, value = sources
    takes = inspect.signature(module.forward).parameters
    tokens = query.shape[1]
    hidden = ~layer.mask.dense(tokens, tokens, batch=1, xp=torch)  # batch head query key
    try:
        if isinstance(module, nn.MultiheadAttention):
            handed = (x if module.batch_first else x.transpose(0, 1) for x in (query, key, value))
            output = module(*handed, attn_mask=hidden[0, 0])[0]
            return output if module.batch_first else output.transpose(0, 1)
        more: dict[str, Any] = {}
        if "attention_mask" in takes:
            lowest = torch.finfo(query.dtype).min
            more["attention_mask"] = torch.zeros(hidden.shape, dtype=query.dtype).masked_fill(hidden, lowest)
        if "position_embeddings" in takes:
            more["position_embeddings"] = _rotary(module)(query, torch.arange(tokens)[None])
        return _first(module(query, **more))
    except Exception as error:  # noqa: BLE001 - it is somebody else's code
        try:
            # Written for one sequence, as an article's first classes are.
            return torch.stack([_first(module(one)) for one in query])
        except Exception:  # noqa: BLE001 - the first error says more
            raise SpecError(f"{type(module).__name__} could not be called with tokens: {error}") from error


def _sources(layer: Attention, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random tokens of such a size that the scores matter: small weights would leave every row nearly flat."""
    draw = torch.Generator().manual_seed(0)
    widths = [one.in_features for one in (layer.q_proj, layer.k_proj, layer.v_proj)]
    sources = [torch.randn(2, longest, width, dtype=torch.float64, generator=draw) for width in widths]
    sources = [sources[0] if width == widths[0] else source for source, width in zip(sources, widths, strict=True)]
    query, key = layer.q_proj(sources[0]), layer.k_proj(sources[1])
    spread = float(query.std() * key.std()) * layer.head_dim**0.5 * (layer.scale or layer.head_dim**-0.5)
    factor = min(max((2 / max(abs(spread), 1e-12)) ** 0.5, 0.1), 1000.0)
    query, key, value = (factor * source for source in sources)
    return query, key, value


def _longest(module: nn.Module) -> int:
    """As many tokens as a mask that the module keeps has room for."""
    square = [mask.shape[-1] for mask in module.buffers() if mask.ndim >= 2 and mask.shape[-1] == mask.shape[-2]]
    return min([TOKENS, *square])


def _rotary(module: nn.Module) -> nn.Module:
    """What makes the cosines and sines for a module of transformers, which stands beside it."""
    home = vars(sys.modules[type(module).__module__])
    makers = [home[name] for name in home if name.endswith("RotaryEmbedding")]
    if len(makers) != 1:
        raise SpecError("it takes position_embeddings, and what makes them is not found beside it")
    return makers[0](module.config)


def _first(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


def _alike(given: Tensor, wanted: Tensor) -> bool:
    if given.shape != wanted.shape:
        return False
    return bool((given - wanted).abs().max() <= TOLERANCE * wanted.abs().max())


def _other_options(layer: Attention) -> Iterator[tuple[str, str, Any]]:
    """Options that are easily mistaken: as they are written, the attribute, and its value."""
    yield ("causal=False", "mask", Everything()) if layer.causal else ("causal=True", "mask", causal())
    for pairing in ("halves", "adjacent"):
        yield f"rope={pairing!r}", "rope", Rope(pairing) if layer.rope is None else Rope(pairing, layer.rope.base)
    yield "rope=None", "rope", None
    for words, scale in (("1.0", 1.0), ("None", None), (f"{layer.embed_dim}**-0.5", layer.embed_dim**-0.5)):
        yield f"scale={words}", "scale", scale
    yield f"alibi={not layer.alibi}", "alibi", not layer.alibi
    yield "softcap=None", "softcap", None


def _said(layer: Attention) -> str:
    names = ("num_heads", "num_kv_heads", "head_dim", "value_dim", "mask", "rope", "alibi", "softcap", "scale")
    return ", ".join(f"{name}={getattr(layer, name)}" for name in names)
