"""Weights in a plain script: what it multiplies values by, found in its variables by what is made of what."""

from __future__ import annotations

from qkv.adapters.texts import Text
from qkv.captures.assembling import assembled
from qkv.captures.weights import layers_of_weights
from qkv.errors import CandidateError
from qkv.pictures.attention import LayerWeights
from qkv.pictures.view import AttentionView
from qkv.request import Request
from qkv.scripts.mixes import Mix, mixes_of
from qkv.scripts.walking import read


def view_of_script(text: Text, request: Request, *, sequence: int = 0, idle: str = "") -> AttentionView:
    """The weights of every attention in a script or a notebook, each under the name of its variable.

    Args:
        text: the script.
        request: who is to run it.
        sequence: which sequence of the batch.
        idle: what was asked to no effect, in words; empty for nothing.

    Raises:
        CandidateError: it breaks a limit, or makes no context vectors of weights.
    """
    host = request.host()
    try:
        run = host.script(str(text.path), text.source)
    finally:
        host.close()
    mixes = {id(mix.weights): mix for mix in mixes_of(read(run))}
    if not mixes:
        stopped = f" before it stopped at line {run.line}: {run.error}" if run.error else ""
        raise CandidateError(
            f"no product of weights and values was found in {text.file}{stopped}",
            hint=f"qkv explain {text.file} says what each line makes",
        )
    layers: list[LayerWeights] = []
    notes = [idle] if idle else []
    for mix in mixes.values():
        made, read_as = _layers(mix, sequence)
        layers += made
        notes += read_as
    return assembled(layers, title=f"attention weights in {text.path.name}", notes=list(dict.fromkeys(notes)))


def _layers(mix: Mix, sequence: int) -> tuple[list[LayerWeights], list[str]]:
    weights, visible = mix.weights.array.astype(float), mix.visible
    if mix.context.over == "query":  # the values are mixed along the rows
        weights = weights.swapaxes(-1, -2)
    if weights.ndim == 3 and mix.weights.axes[0] == "batch":
        weights = weights[:, None]  # batch head query key
    fits = visible is not None and visible.ndim == 2 and visible.shape == weights.shape[-2:]
    return layers_of_weights(
        {mix.reading.name_of(mix.weights) or "weights": weights},
        sequence=sequence,
        may_attend=visible if fits else None,
    )
