"""show(): attention weights of whatever computes or holds them, to be looked at."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qkv.adapters.dump import is_dump
from qkv.adapters.opening import Conventions
from qkv.adapters.texts import script_of
from qkv.captures.black_box import view_of_black_box
from qkv.captures.dumped import view_of_dump
from qkv.captures.embedded import SENTENCE, view_of_embedded
from qkv.captures.patterns import named, scores_of
from qkv.captures.running import view_of_run, view_of_text
from qkv.captures.script import view_of_script
from qkv.captures.tensors import view_of_query_and_key, view_of_weights
from qkv.debugger import fields_of, of_dump
from qkv.errors import SpecError
from qkv.inference import intention_from
from qkv.pictures.view import AttentionView
from qkv.request import Request
from qkv.spec import AttentionSpec


def show(
    subject: Any = None,
    key: Any = None,
    value: Any = None,
    *,
    spec: AttentionSpec | Mapping[str, Any] | None = None,
    mask: Any = None,
    text: str | None = None,
    tokenizer: Any = None,
    inputs: Any = None,
    tokens: Sequence[str] | None = None,
    query_tokens: Sequence[str] | None = None,
    sequence: int = 0,
    layer: int | None = None,
    length: int | None = None,
    layout: str | None = None,
    tensors: Mapping[str, str] | None = None,
    title: str | None = None,
    seed: int = 0,
    time_limit: float = 20.0,
    memory_limit: int = 4 * 2**30,
) -> AttentionView:
    """Attention weights to be looked at: a notebook shows them, ``.save("show.html")`` writes a page.

    Args:
        subject: weights as an array or tensor, ``(query, key)``, ``(head, query, key)`` or
            ``(batch, head, query, key)``, or several as a list or a mapping; a query, with its key; a dump;
            ``"path/to/file.py:Name"``, a function or a module, whose weights are read from outside; a module with
            ``inputs``; a model of transformers, or its folder, with a ``text``. None is the embedded model.
        key: the key that goes with a query.
        value: the value that the weights mix, where there is one.
        spec: what is computed from query and key, or what a candidate is meant to compute; or some fields of it.
        mask: who may attend to whom in weights: booleans, or a mask such as ``qkv.causal()``.
        text: what a language model reads.
        tokenizer: cuts the text into tokens for a model that is handed over.
        inputs: what a module is called with: its argument, a tuple of several, or a mapping of named ones.
        tokens: a text for each key.
        query_tokens: a text for each query, where these are other tokens.
        sequence: which sequence of the batch.
        layer: which layer; None for all.
        length: tokens of the input on which a candidate's weights are read.
        layout: order of the axes of query and key; None to tell it from the shapes.
        tensors: names of a dump's tensors by role, where they are unusual: ``{"weights": "probs.3"}``.
        title: what is shown, in words.
        seed: seed of every random number.
        time_limit: seconds that one call may take (files only).
        memory_limit: bytes that it may take (files and dumps).

    Raises:
        SpecError: the spec contradicts itself, or what was given doesn't go together.
        ShapeError: the axes are none of attention weights, or there are more or fewer tokens than keys.
        CandidateError: what was given can't be run or read, or holds no attention weights.
    """
    given = fields_of(spec) if isinstance(spec, AttentionSpec) else dict(spec or {})
    request = Request(
        subject, given, isinstance(spec, AttentionSpec), Conventions(layout, seed=seed), seed, time_limit, memory_limit,
        tensors=dict(tensors or {}),
    )  # fmt: skip
    wanted = Wanted(key, value, mask, text, tokenizer, inputs, sequence, layer, length)
    view = captured(request, wanted)
    labels = {"tokens": tokens, "query_tokens": query_tokens, "title": title}
    view = view.but(**{name: given for name, given in labels.items() if given is not None})
    return named(view, scores_of(view))


@dataclass(frozen=True)
class Wanted:
    """What is to be seen of a subject; see `show`."""

    key: Any = None
    value: Any = None
    mask: Any = None
    text: str | None = None
    tokenizer: Any = None
    inputs: Any = None
    sequence: int = 0
    layer: int | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        for name in ("sequence", "layer", "length"):
            given = getattr(self, name)
            if given is not None and not hasattr(given, "__index__"):
                raise SpecError(f"{name} is {given!r}, and must be a whole number: {name}=0")


def captured(request: Request, wanted: Wanted) -> AttentionView:
    """The weights of a subject, whatever it is: see `show`, which also says what is raised."""
    subject = request.target
    if subject is None and wanted.key is not None:
        raise SpecError("a key was given without a query: qkv.show(query, key)")
    if subject is None:
        return view_of_embedded(SENTENCE if wanted.text is None else wanted.text, layer=wanted.layer)
    if wanted.text is not None:
        model = str(subject) if isinstance(subject, str | Path) else subject
        return view_of_text(model, wanted.tokenizer, wanted.text, layer=wanted.layer)
    if wanted.inputs is not None:
        return view_of_run(subject, wanted.inputs, sequence=wanted.sequence, layer=wanted.layer)
    if is_dump(subject):
        return _pointing(view_of_dump(of_dump(request, "show"), sequence=wanted.sequence, layer=wanted.layer), request)
    script = script_of(subject)
    if script is not None:
        idle = request.idle_in_scripts(layer=wanted.layer, length=wanted.length)
        return view_of_script(script, request, sequence=wanted.sequence, idle=idle)
    if request.from_file or callable(subject):
        return _pointing(view_of_black_box(request, length=wanted.length), request)
    if wanted.key is not None:
        if wanted.mask is not None:
            raise SpecError('the mask of query and key is a field of the spec: spec={"causal": True}')
        said, layout = intention_from(request.given, request.whole_spec), request.conventions.layout
        return view_of_query_and_key(subject, wanted.key, wanted.value, said, layout=layout, sequence=wanted.sequence)
    return view_of_weights(subject, mask=wanted.mask, value=wanted.value, sequence=wanted.sequence, layer=wanted.layer)


def _pointing(view: AttentionView, request: Request) -> AttentionView:
    """The view, which says where there is an answer to why its weights are not the right ones."""
    if view.focus is None or not view.focus.wrong or not request.from_file:
        return view
    command = shlex.join(["qkv", "check", str(request.target)])
    return view.but(focus=replace(view.focus, said=f"{view.focus.said}; {command} tells why"))
