"""A candidate that is a function of query, key and value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

from qkv.adapters.abilities import Abilities
from qkv.adapters.binding import Signature
from qkv.adapters.caches.handing import NOTHING, ROOM, Caching, as_chunk, observed
from qkv.adapters.caches.ways import Room
from qkv.adapters.calling import Array, Caller, Outcome, found, outcome
from qkv.adapters.doubts import Doubt
from qkv.adapters.givers import extras
from qkv.adapters.layouts import BATCHLESS, HEADLESS, layouts_said, merged_output, to_layout
from qkv.adapters.messages import Facts
from qkv.adapters.polarity import polarity_said
from qkv.adapters.pullback import Gradients, Memory, gradients
from qkv.adapters.shaping.sizes import axes_of
from qkv.adapters.written_masks import MaskForm, mask_forms
from qkv.errors import CandidateError
from qkv.oracle import Inputs
from qkv.oracle.chunks import newest
from qkv.spec import AttentionSpec
from qkv.vocabulary import Layout, MaskMeaning

_CORE = ("query", "key", "value")


@dataclass
class FunctionReading:
    """One way of reading a function: its layout and what its mask argument means.

    Attributes:
        caller: calls it.
        facts: what it says of itself.
        spec: the intention.
        signature: its arguments by role.
        layout: order of the axes.
        mask_form: how a mask is written for it.
        padding_form: how padding is written for it.
        doubts: what may be read wrongly.
        caching: what is known of its cache.
        free_width: whether nobody said how wide heads are.
        step: what its lengths must be a multiple of.
    """

    caller: Caller
    facts: Facts
    spec: AttentionSpec
    signature: Signature
    layout: Layout
    mask_form: MaskForm = field(default_factory=MaskForm)
    padding_form: MaskForm = field(default_factory=MaskForm)
    doubts: Sequence[Doubt] = ()
    caching: Caching = field(default_factory=Caching)
    free_width: bool = False
    step: int = 1

    @property
    def abilities(self) -> Abilities:
        """What it takes. Sizes are free: each axis gets its own."""
        spec = self.spec
        head_dim = spec.head_dim or 8
        return Abilities(
            num_heads=spec.num_heads,
            num_kv_heads=spec.kv_heads,
            head_dim=head_dim,
            value_dim=spec.value_dim or head_dim,
            takes=self.signature.takes(),
            batched=self.layout not in BATCHLESS and not self.signature.has("cu_seqlens"),
            free_lengths=not self.caching.required,
            cached=self.caching.how,
            free_sizes=True,
            free_heads=self.layout not in HEADLESS and not spec.mask.varies[1],
            free_width=self.free_width,
            step=self.step,
        )

    @property
    def assumptions(self) -> list[str]:
        """How it was read, in sentences."""
        said = [f"arrays are {self.layout} ({_spelled(self.layout)})"]
        if not Signature.of(self.facts.call).has(*_CORE):
            first, second, third = (self.signature.roles[role].name for role in _CORE)
            said.insert(0, f"{first}, {second} and {third} are query, key and value, by their places")
        if self.step > 1:
            said.append(f"it takes lengths that are multiples of {self.step} only: other lengths were not tried")
        if not self.free_width:
            said.append(f"heads have {self.abilities.head_dim} channels, as stated; this says nothing of other widths")
        return said + self.signature.in_words(self.mask_form, self.padding_form)

    def observe(self, inputs: Inputs, *, seed: int = 0) -> Outcome:
        """What it gives for these inputs.

        Raises:
            CandidateError: it fails, or returns no array of the output's shape.
        """
        if inputs.steps or self.caching.required:
            return observed(self, inputs, seed)
        args, kwargs = self.bound(inputs)
        self.caller.axes = axes_of(self.abilities, inputs)
        reply, dtype = self.caller.call(args, kwargs, strided=inputs.strided, seed=seed)
        output = found(reply, *self.shaped(inputs))
        if self.caller.fits is None:
            self.caller.fits = (self.abilities.head_dim, self.step)
        return outcome(reply, dtype, output, None, self.signature.named(reply.changed))

    def bound(self, inputs: Inputs, handed: Mapping[str, Any] = NOTHING) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call with these inputs; ``handed`` has some of them by role."""
        spec = as_chunk(self.spec, inputs).but(head_dim=inputs.query.shape[-1])  # type: ignore[union-attr]  # a function is given them
        give = extras(self.signature, spec, inputs, self.mask_form, self.padding_form)
        new = newest(inputs)
        tensors: dict[str, Any] = {"query": new.query, "key": new.key, "value": new.value}

        def giver(role: str) -> Any:
            if role in handed:
                return handed[role]
            return to_layout(tensors[role], self.layout) if role in tensors else give(role)

        return self.signature.bound(giver)

    def room(self, inputs: Inputs) -> Room:
        """How large its cache has to be for these inputs."""
        key, value = inputs.key, inputs.value
        assert key is not None
        assert value is not None
        laid_out = partial(to_layout, layout=self.layout)
        return Room(inputs.batch, key.shape[1], ROOM, key.shape[-1], value.shape[-1], laid_out=laid_out)

    def shaped(self, inputs: Inputs) -> tuple[Callable[[Array], Array | None], str]:
        """What turns an array of the output's own shape into ``(batch, query, width)``, and that shape in words."""
        sizes = (inputs.batch, self.spec.num_heads, inputs.lengths[0], inputs.value.shape[-1])  # type: ignore[union-attr]
        wanted = {"B": sizes[0], "H": sizes[1], "T": sizes[2], "D": sizes[3]}
        words = f"{tuple(wanted[axis] for axis in self.layout)} ({_spelled(self.layout)})"
        return lambda array: merged_output(array, self.layout, sizes), words

    def gradients(self, inputs: Inputs, cotangent: Array, memory: Memory, *, seed: int = 0) -> Gradients:
        """What its backward pass gives for these inputs and this cotangent, ``(batch, query, width)``.

        Raises:
            CandidateError: its backward pass fails.
        """
        return gradients(self, inputs, cotangent, memory, None, seed)

    def named(self, of: Mapping[str, Array]) -> Mapping[str, Array]:
        """The oracle's gradients as this candidate has them: the same."""
        return of


def function_readings(
    caller: Caller,
    facts: Facts,
    spec: AttentionSpec,
    *,
    layout: Layout | None,
    mask_meaning: MaskMeaning | None,
    extra: dict[str, Any],
    heads_said: bool,
    width_said: bool = True,
    step: int = 1,
) -> Iterator[FunctionReading]:
    """Every way of reading the function, the likeliest first. Without ``heads_said`` it may have no axis for heads."""
    signature = qkv_signature(facts, extra)
    caching = Caching.of(signature, facts)
    for said in [layout] if layout else _layouts(facts, spec, heads_said):
        own = spec.but(num_heads=1, num_kv_heads=1) if said in HEADLESS and spec.num_heads > 1 and not layout else spec
        if said in HEADLESS and own.num_heads != 1:
            raise CandidateError(
                f"layout {said} has no axis for heads, and the spec has {own.num_heads}",
                hint="--heads 1, or a layout with an H",
            )
        for form in mask_forms(
            signature, mask_meaning or documented(facts, signature, "mask"), source_meaning(facts.source, signature)
        ):
            for padding, way in product(padding_forms(facts, signature, mask_meaning), signature.in_ways()):
                if _broadcasts(form, said):
                    yield FunctionReading(
                        caller,
                        facts,
                        own,
                        way,
                        said,
                        form,
                        padding,
                        caching=caching,
                        free_width=not width_said,
                        step=step,
                    )


def qkv_signature(facts: Facts, extra: dict[str, Any]) -> Signature:
    """The signature of a function of query, key and value; by place where the names don't say it."""
    signature = Signature.of(facts.call, extra)
    if signature.has(*_CORE):
        return signature
    required = [argument for argument in facts.call if argument.required and argument.kind in ("positional", "either")]
    if len(required) < 3:
        raise CandidateError(
            f"{facts.name} takes {', '.join(argument.name for argument in facts.call) or 'nothing'}; "
            "expected query, key and value, or x and its weights",
            hint="name the arguments query, key, value (or q, k, v), or x with w_q, w_k, w_v",
        )
    roles = {role: argument for role, argument in signature.roles.items() if argument not in required[:3]}
    roles |= dict(zip(_CORE, required, strict=False))
    return replace(signature, roles=roles)


def _layouts(facts: Facts, spec: AttentionSpec, heads_said: bool) -> list[Layout]:
    annotations = " ".join(argument.annotation for argument in facts.call)
    said = layouts_said(f"{facts.doc}\n{annotations}\n{facts.source}")
    usual: list[Layout] = ["BHTD", "BTHD", "HTD", "THD", "BTD", "TD"]
    signature = Signature.of(facts.call)
    if signature.has("lengths") or signature.has("padding"):
        usual = [layout for layout in usual if layout not in BATCHLESS]
    if signature.has("cu_seqlens"):  # the order of those who pack
        usual = ["THD", "HTD", "TD", "BTHD", "BHTD"]
    ordered = [*said, *(layout for layout in usual if layout not in said)]
    headless = spec.num_heads == 1 or not heads_said
    if spec.mask.varies[1]:
        return [layout for layout in ordered if layout not in HEADLESS]
    return [layout for layout in ordered if layout not in HEADLESS or headless or layout in said]


def _broadcasts(form: MaskForm, layout: Layout) -> bool:
    """Whether a mask of this form can be added to the scores of this layout."""
    needs: dict[int, str] = {1: "B", 2: "", 3: "B", 4: "BH"}
    fits = all(axis in layout for axis in needs[form.axes])
    return fits and (form.axes != 3 or layout == "BTD")


def documented(facts: Facts, signature: Signature, role: str) -> MaskMeaning | None:
    """What True means in the argument of this role, as its documentation says; None where there is no word of it."""
    return polarity_said(facts, signature.roles[role].name) if signature.has(role) else None


def padding_forms(facts: Facts, signature: Signature, meaning: MaskMeaning | None) -> list[MaskForm]:
    """Forms of a padding argument, as documented; torch's names (``key_padding_mask``) hide, others keep."""
    if not signature.has("padding"):
        return [MaskForm()]
    said = documented(facts, signature, "padding")
    hides = "padding" in signature.roles["padding"].name.lower() or "pad" in signature.roles["padding"].name.lower()
    likely, other = (MaskForm("hide"), MaskForm("keep")) if hides else (MaskForm("keep"), MaskForm("hide"))
    if meaning in ("keep", "hide") and not signature.has("mask"):
        return [MaskForm(meaning)]
    return [likely, other] if said is None else [MaskForm(said)]


_MEANINGS: Mapping[MaskMeaning, str] = {
    "keep": r"\b1(\.0?)?\s*-\s*{mask}|masked_fill_?\(\s*(~\s*{mask}|{mask}(\[[^\]]*\])?\s*==\s*(0|False))|"
    r"logical_not\(\s*{mask}|where\(\s*{mask}(\.bool\(\)|\[[^\]]*\])?\s*,\s*\w*(score|att|logit|sim|w)\w*",
    "hide": r"masked_fill_?\(\s*{mask}(\.bool\(\)|\[[^\]]*\])?\s*,",
    "additive": r"\+=?\s*{mask}|{mask}\s*\+\s*\w*(score|att|logit)\w*",
}
"""How code looks that takes a mask to mean this."""


def source_meaning(source: str, signature: Signature) -> MaskMeaning | None:
    """What the source does with its mask argument, by the argument's own name; None where that can't be seen."""
    if not signature.has("mask"):
        return None
    name = rf"\b{re.escape(signature.roles['mask'].name)}\b"
    for meaning, pattern in _MEANINGS.items():
        if re.search(pattern.replace("{mask}", name), source):
            return meaning
    return None


def _spelled(layout: Layout) -> str:
    return ", ".join({"B": "batch", "H": "head", "T": "token", "D": "dim"}[axis] for axis in layout)
