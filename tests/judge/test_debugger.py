"""check(): every kind of candidate gets its verdict, right ones and wrong ones; every misuse a reason and a hint."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import qkv
from qkv.debugger import check
from qkv.errors import SpecError
from qkv.report import Report
from qkv.spec import AttentionSpec, spec_from_mapping

Array = np.ndarray


def attend(query: Array, key: Array, value: Array, scale: float | None = None, ahead: int | None = 0) -> Array:
    scores = query @ key.swapaxes(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    queries, keys = scores.shape[-2:]
    if ahead is not None:
        scores = np.where(np.tri(queries, keys, keys - queries + ahead, dtype=bool), scores, -np.inf)
    with np.errstate(invalid="ignore"):  # more queries than keys leave the first rows no key
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ value


# --- every kind of candidate, with a scale to be right or wrong by ----------------------------------------------------


class CausalAttention(nn.Module):
    scale: float | None = None

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        context = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=self.scale)
        return self.out_proj(context.transpose(1, 2).flatten(2))


class UnscaledCausalAttention(CausalAttention):
    scale = 1.0


def causal_made() -> nn.Module:
    return CausalAttention(24, 3)


def causal_made_unscaled() -> nn.Module:
    return UnscaledCausalAttention(24, 3)


def causal_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    return attend(query, key, value)


def causal_attention_unscaled(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    return attend(query, key, value, 1.0)


def causal_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def causal_torch_unscaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)


class CausalWithCall:
    """Attention without any framework, with weights of its own."""

    scale: float | None = None

    def __init__(self, d_in: int, d_out: int) -> None:
        rng = np.random.default_rng(0)
        self.w_q, self.w_k, self.w_v = (rng.normal(size=(d_in, d_out)) for _ in range(3))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return attend(x @ self.w_q, x @ self.w_k, x @ self.w_v, self.scale)


class UnscaledCausalWithCall(CausalWithCall):
    scale = 1.0


class CausalCore:
    """Only mixes."""

    def __call__(self, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attend(query, key, value)


class UnscaledCausalCore:
    """Only mixes."""

    def __call__(self, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attend(query, key, value, 1.0)


def causal_of_weights(x: np.ndarray, w_q: np.ndarray, w_k: np.ndarray, w_v: np.ndarray) -> np.ndarray:
    return attend(x @ w_q, x @ w_k, x @ w_v)


def causal_of_weights_unscaled(x: np.ndarray, w_q: np.ndarray, w_k: np.ndarray, w_v: np.ndarray) -> np.ndarray:
    return attend(x @ w_q, x @ w_k, x @ w_v, 1.0)


KINDS = [
    (CausalAttention, UnscaledCausalAttention, "module", "torch"),
    (causal_made, causal_made_unscaled, "module", "torch"),
    (causal_attention, causal_attention_unscaled, "function of query, key and value", "numpy"),
    (causal_torch, causal_torch_unscaled, "function of query, key and value", "torch"),
    (CausalWithCall, UnscaledCausalWithCall, "module", "numpy"),
    (CausalCore(), UnscaledCausalCore(), "function of query, key and value", "numpy"),
    (CausalWithCall(5, 4), UnscaledCausalWithCall(5, 4), "module", "numpy"),
    (causal_of_weights, causal_of_weights_unscaled, "function of x and weights", "numpy"),
    (
        functools.partial(attend, scale=None),
        functools.partial(attend, scale=1.0),
        "function of query, key and value",
        "numpy",
    ),
]
NAMES = ["class", "factory", "NumPy function", "torch function", "NumPy class", "core", "NumPy object", "weights",
         "partial"]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "kind", "framework"), KINDS, ids=NAMES)
def test_each_kind_of_candidate(right: Any, wrong: Any, kind: str, framework: str) -> None:
    given = {"causal": True}
    report = check(right, given)
    assert report.verdict == "right", report
    assert report.exit_code == 0
    assert (report.candidate.kind, report.candidate.framework, report.candidate.file) == (kind, framework, "")
    assert report.strength is not None
    assert report.strength.would_catch > 25
    assert all(probe.agrees for probe in report.probes)
    report = check(wrong, given)
    assert report.verdict == "wrong", report
    assert report.exit_code == 1
    assert [fault.id for fault in report.faults] == ["scale-missing"]
    assert report.spread in ("only row 0 is right", "rows from 1 on are wrong")
    assert report.example is not None
    assert report.first_disagreement is not None
    assert report.first_disagreement.query == 1


def test_a_module_is_checked_as_it_stands_and_left_as_it_was() -> None:
    torch.manual_seed(0)
    module = CausalAttention(24, 3).half().train()
    kept = {name: array.clone() for name, array in module.state_dict().items()}
    assert check(module).verdict == "right"
    assert module.training
    for name, array in module.state_dict().items():
        assert array.dtype == torch.float16
        assert torch.equal(array, kept[name]), f"{name} was changed"


def test_an_object_that_holds_arrays_is_left_as_it_was() -> None:
    candidate = CausalWithCall(5, 4)
    kept = candidate.w_q.copy(), candidate.w_v.copy()
    assert check(candidate, {"causal": True}).verdict == "right"
    np.testing.assert_array_equal(candidate.w_q, kept[0])
    np.testing.assert_array_equal(candidate.w_v, kept[1])


def test_a_file_is_checked_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\n\n"
        "def causal_attention(query, key, value):\n"
        "    scores = query @ key.swapaxes(-1, -2)\n"
        "    q, k = scores.shape[-2:]\n"
        "    shares = np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(q, k, k - q)\n"
        "    return shares / shares.sum(-1, keepdims=True) @ value\n"
    )
    report = check(f"{path}:causal_attention", seed=3)
    assert [fault.id for fault in report.faults] == ["scale-missing"]
    assert (report.candidate.name, report.candidate.file) == ("causal_attention", str(path))
    assert report.repeat == f"qkv check {path}:causal_attention --seed 3"


# --- what was given ---------------------------------------------------------------------------------------------------


def test_a_candidate_is_held_to_the_spec_that_was_given() -> None:
    for spec in (
        {"num_heads": 3, "causal": False},
        spec_from_mapping({"num_heads": 3}),
        AttentionSpec(num_heads=3),
    ):
        report = check(causal_attention, spec)
        assert report.verdict == "wrong"
        assert report.faults[0].id == "prefix-block-missing", "no causal mask was meant"
        assert report.spec is not None
        assert report.spec.num_heads == 3


def sdpa(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, dim=-1) @ value  # NaN where a row sees nothing


def test_what_a_row_without_keys_gets_is_judged_only_where_it_was_said() -> None:
    assert check(sdpa, {"num_heads": 3}, mask_argument="keep").verdict == "right"
    assert check(sdpa, {"num_heads": 3, "empty_row": "nan"}, mask_argument="keep").verdict == "right"
    report = check(sdpa, {"num_heads": 3, "empty_row": "zero"}, mask_argument="keep")
    assert [fault.id for fault in report.faults] == ["empty-row"]


def test_a_spec_object_that_does_not_speak_of_empty_rows_leaves_them_open() -> None:
    assert check(sdpa, AttentionSpec(num_heads=3), mask_argument="keep").verdict == "right"


def test_a_spec_that_contradicts_itself_is_the_callers_mistake() -> None:
    with pytest.raises(SpecError, match="num_kv_heads must divide num_heads"):
        check(causal_attention, {"num_heads": 4, "num_kv_heads": 3})
    with pytest.raises(SpecError, match="headz"):
        check(causal_attention, {"headz": 4})


class EightOverTwo(nn.Module):
    """Eight query heads over two, which nothing but its arrays tells."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(64, width) for width in (64, 16, 16, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (-1, 8)).transpose(1, 2).repeat_interleave(times, 1)
            for layer, times in ((self.q, 1), (self.k, 4), (self.v, 4))
        )
        return self.o(nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    k, v = (one.repeat_interleave(q.shape[1] // k.shape[1], 1) for one in (k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize(
    ("candidate", "kv_heads", "heads"),
    [(EightOverTwo(), 2, 8), (EightOverTwo, 2, 8), (grouped, 2, 6), (grouped, 5, 15)],
)
def test_key_value_heads_alone_leave_the_query_heads_to_the_candidate(
    candidate: Any, kv_heads: int, heads: int
) -> None:
    report = check(candidate, {"num_kv_heads": kv_heads, "causal": False})
    assert report.verdict == "right"
    assert (report.spec.num_heads, report.spec.num_kv_heads) == (heads, kv_heads)  # type: ignore[union-attr]


def test_key_value_heads_that_a_module_cannot_have_are_refused_by_their_own_number() -> None:
    report = check(EightOverTwo(), {"num_kv_heads": 3})
    assert "k_proj gives 16 channels, which 3 heads can't share evenly" in report.why


class Listed(nn.Module):
    """Heads of their own in a list, a name of no known role, and no number of heads anywhere."""

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.ModuleDict({p: nn.Linear(15, 5) for p in ("query", "key", "value")}) for _ in "abc"
        )
        self.mix, self.scale = nn.Linear(15, 15), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [[part[name](x) for name in ("query", "key", "value")] for part in self.parts]  # type: ignore[index]
        return self.mix(torch.cat([sdpa_plain(q, k, v, self.scale) for q, k, v in made], dim=-1))


class Stacked(nn.Module):
    """One array for each projection, with an axis of heads."""

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Parameter(torch.randn(3, 15, 5)) for _ in "qkv")
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (torch.einsum("bte,hed->bhtd", x, weight) for weight in (self.query, self.key, self.value))
        return sdpa_plain(q, k, v, scale=self.scale).transpose(1, 2).flatten(2)


def sdpa_plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None = None) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scale)


@pytest.mark.parametrize("module", [Listed, Stacked])
def test_an_instance_has_as_many_heads_as_its_arrays_are_cut_into(module: type[nn.Module]) -> None:
    for causal in (None, {"causal": False}):
        report = check(module(), causal)
        assert (report.verdict, report.spec and report.spec.num_heads) == ("right", 3)
    wrong = check(module(15**-0.5), {"causal": False})
    assert (wrong.verdict, wrong.faults[0].id) == ("wrong", "scale-by-model-width")


def test_the_seed_changes_the_numbers_and_not_the_answer() -> None:
    reports = [check(causal_attention_unscaled, {"causal": True}, seed=seed) for seed in (0, 0, 1, 2)]
    assert {report.faults[0].id for report in reports} == {"scale-missing"}
    got = [report.first_disagreement.got for report in reports if report.first_disagreement]
    assert got[0] == got[1]
    assert len(set(got)) == 3


def test_a_layout_and_a_call_argument_that_were_given_are_used() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, times: float) -> np.ndarray:
        turned = (x.swapaxes(1, 2) for x in (query, key, value))
        return attend(*turned, scale=times * query.shape[-1] ** -0.5).swapaxes(1, 2)

    assert check(attention, {"causal": True}, layout="BTHD", call={"times": 1.0}).verdict == "right"
    report = check(attention, {"causal": True}, layout="BTHD", call={"times": 0.5})
    (fault,) = report.faults
    assert fault.id == "scale-other-constant"
    assert fault.note == "the scale is the right one times 0.5 = 1/2"
    report = check(attention, {"causal": True})
    assert (report.verdict, report.exit_code) == ("failed", 4)
    assert "'times'" in report.why
    assert "--call" in report.hint


class Unnamed(nn.Module):
    """Causal attention whose projections have names that say nothing."""

    def __init__(self, alpha: int, beta: int) -> None:
        super().__init__()
        self.parts = beta
        self.one, self.two, self.three = (nn.Linear(alpha, alpha) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            proj(x).unflatten(-1, (self.parts, -1)).transpose(1, 2) for proj in (self.three, self.one, self.two)
        )
        context = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return context.transpose(1, 2).flatten(2)


def test_constructor_arguments_and_weights_that_were_given_are_used() -> None:
    weights = {"q_proj": "three.weight", "k_proj": "one.weight", "v_proj": "two.weight"}
    init = {"alpha": 12, "beta": 3}
    report = check(Unnamed, {"num_heads": 3, "causal": True}, init=init, weights=weights)
    assert report.verdict == "right", report
    swapped = {"q_proj": "three.weight", "k_proj": "two.weight", "v_proj": "one.weight"}
    report = check(Unnamed, {"num_heads": 3, "causal": True}, init=init, weights=swapped)
    assert [fault.id for fault in report.faults] == ["key-value-swapped"]
    report = check(Unnamed, {"num_heads": 3, "causal": True})
    assert report.verdict == "failed"
    assert "'alpha'" in report.why
    assert "--init" in report.hint


# --- misplaced --------------------------------------------------------------------------------------------------------

MISPLACED = [
    (causal_attention, {"layout": "BTE"}, "--layout BTE is no layout of a function of query, key and value", "BHTD"),
    (CausalAttention, {"layout": "BHTD"}, "--layout BHTD is no layout of a module", "BTE, TBE, TE"),
    (causal_attention, {"weights": {"q_proj": "w"}}, "--weights names arrays of a module", "leave it out"),
    (causal_of_weights, {"weights": {"q_proj": "w"}}, "--weights names arrays of a module", "leave it out"),
    (causal_attention, {"init": {"embed_dim": 8}}, "--init is for a constructor", "--call"),
    (causal_attention, {"call": {"scala": 1.0}}, "--call gives 'scala'", "its arguments: "),
    (CausalAttention, {"call": {"mask": None}}, "--call gives 'mask'", "its arguments: x"),
    (CausalAttention, {"init": {"width": 8}}, "--init gives 'width', which CausalAttention does not take", "--init"),
    (CausalAttention, {"weights": {"q_proj": "nowhere"}}, "nowhere", ""),
]


@pytest.mark.parametrize(("candidate", "given", "why", "hint"), MISPLACED, ids=[why for _, _, why, _ in MISPLACED])
def test_what_has_no_place_fails_with_a_hint(candidate: Any, given: dict[str, Any], why: str, hint: str) -> None:
    report = check(candidate, {"causal": True}, **given)
    assert (report.verdict, report.exit_code) == ("failed", 4)
    assert why in report.why
    assert report.hint
    assert hint in report.hint
    assert (report.faults, report.probes) == ((), ())


# --- that fail --------------------------------------------------------------------------------------------------------


def test_a_candidate_that_always_raises_fails_with_its_own_words() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("my own words")

    report = check(attention)
    assert report.verdict == "failed"
    assert "ZeroDivisionError: my own words" in report.why
    assert "my own words" in report.detail


def test_a_candidate_that_returns_another_shape_fails() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attend(query, key, value)[..., :3]

    report = check(attention, {"num_heads": 3})
    assert report.verdict == "failed"
    assert "expected floating numbers" in report.why
    assert "--layout" in report.hint


def broken_at(tokens: int) -> Any:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        if query.shape[-2] == tokens:
            raise IndexError("off the end")
        return attend(query, key, value)

    return attention


def test_a_candidate_that_crashes_on_a_later_probe_is_not_called_right() -> None:
    report = check(broken_at(1), {"causal": True, "num_heads": 3})
    assert (report.verdict, report.exit_code) == ("undecided", 3)
    assert report.why.startswith("right wherever it ran, but it could not be called with the probe 'one-token'")
    assert "IndexError: off the end" in report.why
    assert [probe.name for probe in report.probes if probe.agrees is None] == ["fewer-queries 1 of 9", "one-token"]
    assert all(probe.agrees is not False for probe in report.probes)


def test_a_candidate_may_refuse_what_is_optional() -> None:
    report = check(broken_at(33), {"causal": True, "num_heads": 3})
    assert report.verdict == "right"
    refused, *sizes = [probe for probe in report.probes if probe.agrees is None]
    assert (refused.name, [probe.name for probe in sizes]) == ("long", ["some sizes"])
    assert "IndexError: off the end" in refused.note


def test_a_candidate_that_crashes_later_and_is_wrong_before_is_wrong() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return broken_at(1)(query * query.shape[-1] ** 0.5, key, value)

    report = check(attention, {"causal": True, "num_heads": 3})
    assert (report.verdict, [fault.id for fault in report.faults]) == ("wrong", ["scale-missing"])


# --- further verdicts -------------------------------------------------------------------------------------------------


def test_inputs_that_are_changed_in_place_are_named() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        query *= query.shape[-1] ** -0.5
        return attend(query, key, value, 1.0)

    report = check(attention, {"causal": True})
    assert report.verdict == "wrong"
    assert [fault.id for fault in report.faults] == ["inputs-changed"]
    assert all(probe.agrees for probe in report.probes)


def test_what_was_changed_is_called_by_its_name() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        output = attend(query, key, value)
        value *= 0
        return output

    (fault,) = check(attention, {"causal": True}).faults
    assert (fault.id, fault.note) == ("inputs-changed", "changed: value")


def test_inputs_that_are_changed_stand_beside_a_fault_of_the_numbers() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        output = attend(query, key, value, 1.0)
        value *= 0
        return output

    report = check(attention, {"causal": True})
    assert [fault.id for fault in report.faults] == ["inputs-changed", "scale-missing"]


@pytest.mark.slow
def test_two_faults_are_named_in_one_report() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attend(query, key, value, 1.0, 1)

    report = check(attention, {"causal": True})
    assert {fault.id for fault in report.faults} == {"scale-missing", "causal-one-ahead"}


@pytest.mark.slow
def test_no_fault_is_named_as_an_alternative_to_itself() -> None:
    # The second fault has two names, and beside either of them the first is the same.
    report = check(lambda query, key, value: attend(query, key, value, 1.0, None), {"causal": True})
    assert [fault.id for fault in report.faults] == ["scale-missing", "causal-missing"]
    assert [fault.id for fault in report.alternatives] == ["mask-not-applied"]


@pytest.mark.slow
def test_what_nobody_can_explain_is_wrong_and_says_so() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attend(np.sin(3 * query), key, value)

    report = check(attention, {"causal": True})
    assert (report.verdict, report.faults) == ("wrong", [])
    assert report.why == "no fault of the catalogue, and no pair of them, gives these numbers"
    assert report.first_disagreement is not None
    assert report.example is not None


def test_what_nobody_can_explain_decides_nothing_where_nothing_was_said() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attend(np.sin(3 * query), key, value)

    report = check(attention)
    assert (report.verdict, report.exit_code) == ("undecided", 3)
    assert report.faults == ()
    assert "--spec" in report.hint


def test_what_is_never_a_number_says_so() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attend(query, key, value) * np.nan

    report = check(attention, {"causal": True, "num_heads": 3})
    assert (report.verdict, report.faults) == ("wrong", [])
    assert "not a number anywhere" in report.why


def test_numbers_that_may_be_read_wrongly_decide_nothing() -> None:
    class Attention(nn.Module):
        """Attention after another layer, which the spec knows nothing of."""

        def __init__(self) -> None:
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(12, 12) for _ in range(4))
            self.strange = nn.Linear(12, 12)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.sin(self.strange(x))
            query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
            return self.out_proj(nn.functional.scaled_dot_product_attention(query, key, value))

    report = check(Attention(), {"causal": False, "num_heads": 1})
    assert (report.verdict, report.exit_code) == ("undecided", 3)
    assert "strange" in report.why
    assert "--weights" in report.hint


def test_what_a_candidate_prints_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        print("scores are", query.shape)
        return attend(query, key, value)

    report = check(attention, {"causal": True, "num_heads": 3})
    assert report.verdict == "right"
    assert "scores are (2, 3, " in report.printed
    assert capsys.readouterr().out == ""


def test_check_is_the_packages_own() -> None:
    assert qkv.check is check
    report = qkv.check(causal_attention)
    assert isinstance(report, Report)
    assert report.verdict is qkv.Verdict.RIGHT


def fused_per_head(x: np.ndarray, w_qkv: np.ndarray, num_heads: int) -> np.ndarray:
    batch, length, _ = x.shape
    query, key, value = np.moveaxis((x @ w_qkv).reshape(batch, length, num_heads, 3, -1), 3, 0)
    context = attend(*(part.swapaxes(1, 2) for part in (query, key, value)), scale=query.shape[-1] ** -0.5)
    return context.swapaxes(1, 2).reshape(batch, length, -1)


@pytest.mark.parametrize("given", [{}, {"num_heads": 4}, {"num_heads": 4, "causal": True}], ids=str)
def test_fused_weights_may_be_kept_head_by_head(given: dict[str, Any]) -> None:
    report = check(fused_per_head, given)
    assert report.verdict == "right"
    assert any("q, k and v of one head together" in line for line in report.assumptions)


@pytest.mark.slow
def test_sizes_alone_say_nothing_of_what_is_meant() -> None:
    def strange(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return np.tanh(query @ key.swapaxes(-1, -2)) @ value

    assert check(strange, {"num_heads": 3}).verdict == "undecided"
    assert check(strange, {"num_heads": 3, "causal": True}).verdict == "wrong"


def restricted(ahead: int) -> Callable[..., np.ndarray]:
    def kernel(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        if query.dtype != np.float32:
            raise TypeError("float32 only")
        if query.shape[-1] not in (64, 128) or query.shape[-2] % 32 or key.shape[-2] % 32:
            raise ValueError("heads of 64 or 128 channels, lengths in multiples of 32")
        return attend(query, key, value, ahead=ahead)

    return kernel


@pytest.mark.parametrize(("ahead", "verdict"), [(0, "right"), pytest.param(1, "wrong", marks=pytest.mark.slow)])
def test_a_kernel_made_for_some_sizes_only_is_judged_at_those(ahead: int, verdict: str) -> None:
    report = check(restricted(ahead), {"causal": True})
    assert (report.verdict, [fault.id for fault in report.faults]) == (verdict, ["causal-one-ahead"][:ahead])
    assert any("multiples of 32 only" in line for line in report.assumptions)
