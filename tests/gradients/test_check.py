"""check(gradients=True): candidates with a backward pass of their own, as somebody would write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qkv.debugger import check
from qkv.report import Report, to_mapping
from qkv.report.terminal import as_text

GROUPED = {"num_heads": 4, "num_kv_heads": 2, "causal": True}
FLAWS: dict[str, tuple[str, str]] = {
    # flaw: the fault that names it, and the first gradient that it makes wrong
    "last head of the group": ("gradient-group-not-summed", "dk"),
    "no scale in dk": ("gradient-scale", "dk"),
    "no mask": ("gradient-mask-missing", "dq"),
    "no delta": ("gradient-softmax-delta-missing", "dq"),
    "delta over the wrong axis": ("gradient-softmax-delta-wrong", "dq"),
    "first block of keys": ("gradient-block", "dq"),
    "swapped": ("gradients-swapped", "dk"),
    "no gradient of the key": ("gradient-detached", "dk"),
    "batch summed": ("gradient-batch", "dv"),
    "last queries of blocks of 64": ("gradient-block", "dq"),
    "a fault without a name": ("gradient-only", "dv"),
}


def attention_with(flaw: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A grouped causal attention whose backward pass is written by hand, with one flaw in it."""

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            group = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
            scores = query @ key.mT * query.shape[-1] ** -0.5
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(scores.shape[-1] - scores.shape[-2] + 1)
            scores = scores.masked_fill(hidden, -torch.inf)
            output = scores.softmax(-1) @ value
            ctx.save_for_backward(query, key, value, output, scores.logsumexp(-1, keepdim=True), hidden)
            ctx.group = group
            return output

        @staticmethod
        def backward(ctx: Any, d_out: Tensor) -> Any:  # type: ignore[override]
            query, key, value, output, lse, hidden = ctx.saved_tensors
            scale = query.shape[-1] ** -0.5
            p = torch.exp(query @ key.mT * scale - lse)
            p = p if flaw == "no mask" else p.masked_fill(hidden, 0.0)
            dp, rows = d_out @ value.mT, -2 if flaw == "delta over the wrong axis" else -1
            delta = 0.0 if flaw == "no delta" else (p * dp).sum(rows, keepdim=True)
            if flaw == "last queries of blocks of 64":
                full = max(query.shape[-2] // 64 * 64, min(64, query.shape[-2]))
                p, delta = p.clone(), delta * (torch.arange(query.shape[-2]) < full)[:, None]
                p[..., full:, :] = 0.0
            ds = p * (dp - delta)
            if flaw == "no mask":
                ds = p * (dp - (d_out * output).sum(-1, keepdim=True))
            keys = 2 if flaw == "first block of keys" else key.shape[-2]
            dq = scale * ds[..., :keys] @ key[..., :keys, :]
            dk = ds.mT @ query * (1.0 if flaw == "no scale in dk" else scale)
            dv = p.mT @ d_out
            dk, dv = (x.unflatten(1, (-1, ctx.group)) for x in (dk, dv))
            dk = dk[:, :, -1] if flaw == "last head of the group" else dk.sum(2)
            dv = dv.sum(2)
            if flaw == "batch summed":
                dv = dv.sum(0, keepdim=True).expand(dv.shape)
            if flaw == "a fault without a name":
                dv = dv + 0.1 * dv.flip(-1)
            if flaw == "swapped":
                return dq, dv, dk
            return dq, None if flaw == "no gradient of the key" else dk, dv

    return lambda query, key, value: Attention.apply(query, key, value)  # type: ignore[no-any-return]


def of(flaw: str, **spec: Any) -> Report:
    attend = attention_with(flaw)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value)

    return check(attention, {**GROUPED, **spec}, gradients=True)


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_of_the_backward_pass_is_named(flaw: str) -> None:
    report = of(flaw)
    assert (report.verdict, [fault.id for fault in report.faults]) == ("wrong", [FLAWS[flaw][0]])
    # What it is a kind of is said too, and no other fault.
    assert {fault.id for fault in report.alternatives} <= {"gradient-only"}
    first = report.first_disagreement
    assert first is not None
    assert first.tensor == FLAWS[flaw][1]
    assert to_mapping(report)["first_disagreement"]["tensor"] == first.tensor


def test_the_report_says_which_gradient_is_wrong_and_where() -> None:
    text = " ".join(as_text(of("no scale in dk")).split())
    assert "gradient of key is wrong first at token 0 of sequence 0, head 0, channel 0" in text
    assert "dk wrong, dq, dv right" in text
    assert "the scale is missing in dk" in text


def test_a_right_backward_pass_is_right_and_every_gradient_is_listed() -> None:
    report = of("none")
    assert report.verdict == "right"
    names = [probe.name for probe in report.probes if probe.name.startswith("gradient")]
    assert {"gradient dq grouped", "gradient dk grouped", "gradient dv head-dim 256", "gradient dk summed"} <= {*names}
    assert report.strength is not None
    plain = check(lambda query, key, value: attention_with("none")(query, key, value), GROUPED).strength
    assert plain is not None
    assert report.strength.would_catch > plain.would_catch


def test_scores_near_a_low_cap_have_a_slope_of_few_digits_and_are_right() -> None:
    """One less the square of a tanh that is nearly one: what libraries compute, in the precision they are asked for."""

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = 3 * torch.tanh(query @ key.mT * query.shape[-1] ** -0.5 / 3)
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(scores.shape[-1] - scores.shape[-2] + 1)
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value

    spec: dict[str, Any] = {"num_heads": 4, "causal": True, "head_dim": 8, "softcap": 3.0}
    for seed in range(4):
        assert check(attention, spec, gradients=True, dtype="float32", seed=seed).verdict == "right"


def test_without_being_asked_for_gradients_are_not_judged() -> None:
    attend = attention_with("no delta")
    report = check(lambda query, key, value: attend(query, key, value), GROUPED)
    assert report.verdict == "right"
    assert not [probe for probe in report.probes if probe.name.startswith("gradient")]


# --- what is no matter of numbers -------------------------------------------------------------------------------------


def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(query, key, value)


def detached(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return plain(query.detach(), key.detach(), value.detach())


def weights_detached(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1).detach() @ value


def changed_in_place(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = torch.exp(query @ key.mT * query.shape[-1] ** -0.5)
    return weights.div_(weights.sum(-1, keepdim=True)) @ value


class RandomBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * (torch.rand_like(gradient) > 0.3)


def random_backward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return plain(query, key, RandomBackward.apply(value))


class NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return plain(query, key, value)


def no_backward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return NoBackward.apply(query, key, value)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("candidate", "fault", "told"),
    [
        (detached, "gradient-detached", "nothing comes back at all"),
        (weights_detached, "gradient-detached", "only the value gets a gradient"),
        (changed_in_place, "gradient-fails", "modified by an inplace operation"),
        (no_backward, "gradient-fails", "backward"),
        (random_backward, "gradient-random", "asked twice"),
    ],
)
def test_what_fails_is_a_finding(candidate: Callable[..., Tensor], fault: str, told: str) -> None:
    report = check(candidate, {"num_heads": 4}, gradients=True)
    assert (report.verdict, [one.id for one in report.faults]) == ("wrong", [fault])
    assert told in report.faults[0].note


def test_a_wrong_output_comes_first() -> None:
    report = check(lambda query, key, value: plain(2 * query, key, value), {"num_heads": 4}, gradients=True)
    assert report.verdict == "wrong"
    assert report.first_disagreement is not None
    assert report.first_disagreement.tensor == "output"
    assert "gradients were not judged" in report.assumptions[-1]


def test_numpy_has_no_backward_pass() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ value

    report = check(attention, {"num_heads": 4}, gradients=True)
    assert (report.verdict, report.hint) == ("undecided", "leave --gradients out")
    assert "NumPy" in report.why


# --- modules ----------------------------------------------------------------------------------------------------------


class FusedAttention(nn.Module):
    flaw = ""

    def __init__(self, embed_dim: int = 32, num_heads: int = 4) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        if self.flaw == "key detached":
            key = key.detach()
        return self.proj(plain(query, key, value).transpose(1, 2).flatten(2))


class DetachedKey(FusedAttention):
    flaw = "key detached"


class FrozenTokens(FusedAttention):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.detach())


def test_the_gradients_of_a_module_s_own_arrays_are_judged_by_their_names() -> None:
    report = check(FusedAttention, gradients=True)
    assert report.verdict == "right"
    judged = {probe.name.split()[1] for probe in report.probes if probe.name.startswith("gradient")}
    assert judged == {"dx", "dqkv.weight", "dqkv.bias", "dproj.weight", "dproj.bias"}


@pytest.mark.parametrize(("candidate", "note"), [(DetachedKey, "the key is detached"), (FrozenTokens, "nothing comes")])
def test_a_cut_graph_in_a_module_is_named(candidate: type[nn.Module], note: str) -> None:
    report = check(candidate, gradients=True)
    assert [fault.id for fault in report.faults] == ["gradient-detached"]
    assert report.faults[0].note.startswith(note)


def test_a_file_is_differentiated_in_its_own_process(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n\n\ndef attention(query, key, value):\n"
        "    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)\n"
        "    return weights.detach() @ value\n"
    )
    report = check(file, {"num_heads": 4}, gradients=True)
    assert [fault.id for fault in report.faults] == ["gradient-detached"]
