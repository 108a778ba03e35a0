"""Constructors filled by the names of their arguments."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from torch import nn

from qkv.adapters.construction import Sizes, alternatives, arguments_for, default_sizes, fitted_to
from qkv.adapters.host import Host
from qkv.adapters.messages import Argument, Config
from qkv.errors import CandidateError
from qkv.masks import Causal, SlidingWindow
from qkv.positions import Rope
from qkv.spec import AttentionSpec


def signature(text: str) -> list[Argument]:
    """The arguments of a signature such as ``dim, heads=8, *, causal: bool = False``."""
    arguments = ast.parse(f"def f({text}): ...").body[0].args  # type: ignore[attr-defined]
    either = [(argument, "positional") for argument in arguments.posonlyargs]
    either += [(argument, "either") for argument in arguments.args]
    defaults = [None] * (len(either) - len(arguments.defaults)) + arguments.defaults
    keywords = [(argument, "keyword") for argument in arguments.kwonlyargs]
    found = [
        Argument(
            argument.arg,
            kind,
            default is None,
            ast.literal_eval(default) if default else None,
            ast.unparse(argument.annotation) if argument.annotation else "",
        )
        for (argument, kind), default in zip(either + keywords, defaults + arguments.kw_defaults, strict=True)
    ]
    return found + ([Argument(arguments.kwarg.arg, "kwargs", required=False)] if arguments.kwarg else [])


def build(text: str, spec: AttentionSpec | None = None, given: dict[str, Any] | None = None, **more: Any):
    spec = spec or AttentionSpec()
    return arguments_for(signature(text), spec, default_sizes(spec, more.get("stated", ())), given, **more)


PLAIN = {
    "the article's class": (
        "d_in, d_out, context_length, dropout, num_heads, qkv_bias=False",
        {"d_in": 56, "d_out": 48, "context_length": 40, "dropout": 0.2, "num_heads": 6, "qkv_bias": True},
    ),
    "one head, trainable": ("d_in, d_out, qkv_bias=False", {"d_in": 56, "d_out": 8, "qkv_bias": True}),
    "d_out apart for value": ("d_in, d_out_kq, d_out_v", {"d_in": 56, "d_out_kq": 8, "d_out_v": 10}),
    "heads tie the width": ("embed_dim, num_heads", {"embed_dim": 48, "num_heads": 6}),
    "free head_dim": (
        "dim, heads=8, dim_head=64, dropout=0.0",
        {"dim": 56, "heads": 6, "dim_head": 8, "dropout": 0.2},
    ),
    "a head of its own": ("head_size", {"head_size": 8}),
    "a head and its width": ("n_embd, head_size, block_size", {"n_embd": 56, "head_size": 8, "block_size": 40}),
    "width only": ("embed_size", {"embed_size": 56}),
    "grouped": (
        "d_model, n_heads, n_kv_heads",
        {"d_model": 48, "n_heads": 6, "n_kv_heads": 2},
    ),
    "grouped, by gpt-fast": (
        "dim, n_head, n_local_heads",
        {"dim": 48, "n_head": 6, "n_local_heads": 2},
    ),
    "grouped, by one of several ranks": (
        "dim, n_heads, n_local_heads, n_local_kv_heads",
        {"dim": 48, "n_heads": 6, "n_local_heads": 6, "n_local_kv_heads": 2},
    ),
    "grouped by size": ("d_model, n_heads, n_rep", {"d_model": 48, "n_heads": 6, "n_rep": 3}),
    "value apart": (
        "d_model, n_head, d_k, d_v, dropout=0.1",
        {"n_head": 6, "d_model": 56, "d_k": 8, "d_v": 10, "dropout": 0.2},
    ),
    "what comes in and what goes out": (
        "input_dim, embed_dim, num_heads",
        {"input_dim": 56, "embed_dim": 48, "num_heads": 6},
    ),
    "the annotated one": ("h, d_model, dropout=0.1", {"h": 6, "d_model": 48, "dropout": 0.2}),
    "torch's own": (
        "embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, kdim=None, batch_first=False, device=None",
        {"embed_dim": 48, "num_heads": 6, "dropout": 0.2, "bias": True},
    ),
    "sizes by three names": (
        "key_size, query_size, value_size, num_hiddens, num_heads, dropout, bias=False",
        {
            "key_size": 56, "query_size": 56, "value_size": 56, "num_hiddens": 48, "num_heads": 6, "dropout": 0.2,
            "bias": True,
        },
    ),
    "optional causal flag is left to the class": (
        "dim, heads, causal=True, qk_norm=False, window=None, softcap=None, scale=None, layer_idx=None",
        {"dim": 48, "heads": 6},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLAIN)
def test_arguments_are_filled_by_their_names(case):
    text, expected = PLAIN[case]
    construction = build(text)
    assert construction.kwargs == expected
    assert all(f"{name}={value!r}" in construction.assumptions[0] for name, value in expected.items())


def test_the_wrapper_of_single_heads_gets_the_width_of_one_head():
    text = PLAIN["the article's class"][0]
    construction = build(text, class_name="MultiHeadAttentionWrapper")
    assert construction.kwargs["d_out"] == construction.sizes.head_dim == 8


def test_the_spec_is_passed_on():
    spec = AttentionSpec(num_heads=4, mask=Causal() & SlidingWindow(3), softcap=20.0, dropout_p=0.1, scale=0.5)
    construction = build("dim, heads, causal=False, window=None, softcap=0.0, dropout=0.0, scale=None, mask=None", spec)
    assert construction.kwargs == {
        "dim": 32, "heads": 4, "causal": True, "window": 3, "softcap": 20.0, "dropout": 0.1, "scale": 0.5,
    }  # fmt: skip
    assert construction.implied == {}


def test_one_head_said_by_the_user_is_one_head():
    assert build("dim, heads").kwargs["heads"] == 6
    assert build("dim, heads", stated={"num_heads"}).kwargs["heads"] == 1


def test_what_the_spec_leaves_open_and_the_class_needs_is_told():
    construction = build("dim, window_size, softcap")
    assert construction.implied == {
        "window": construction.kwargs["window_size"],
        "softcap": construction.kwargs["softcap"],
    }


def test_given_arguments_win_and_the_others_follow():
    construction = build("d_in, d_out, num_heads, dropout=0.0", given={"d_in": 3, "d_out": 4, "num_heads": 2})
    assert construction.kwargs == {"d_in": 3, "d_out": 4, "num_heads": 2, "dropout": 0.2}
    assert construction.sizes == Sizes(3, 2, 2, 2, 2, 40)


def test_given_embed_dim_ties_the_head():
    construction = build("dim, heads", given={"dim": 30})
    assert (construction.sizes.embed_dim, construction.sizes.head_dim) == (30, 5)


@pytest.mark.parametrize("text", ["config", "cfg, layer_idx", "c: GPTConfig"])
def test_a_config_object_answers_to_every_name(text):
    arguments = signature(text)
    construction = build(text)
    config = construction.kwargs[arguments[0].name]
    assert isinstance(config, Config)
    values = config.values
    assert values["n_embd"] == values["hidden_size"] == values["d_model"] == values["emb_dim"] == 48
    assert values["n_head"] == values["num_attention_heads"] == values["n_heads"] == 6
    assert values["num_key_value_heads"] == 2
    assert values["num_key_value_groups"] == 3
    assert values["head_dim"] == 8
    assert values["drop_rate"] == values["attn_pdrop"] == 0.2
    assert values["qkv_bias"] is values["attention_bias"] is True
    assert config.fallbacks["sliding_window"] is config.fallbacks["softcap"] is None
    assert construction.kwargs.get("layer_idx", 0) == 0
    assert "n_embd=48" in construction.assumptions[-1]


def test_what_the_spec_settles_goes_before_the_default_of_a_config():
    stated = build("config", AttentionSpec(softcap=20.0), stated={"softcap", "window"}).kwargs["config"]
    assert (stated.values["softcap"], stated.values["sliding_window"]) == (20.0, None)
    # The default of a scale goes with other sizes than those that were chosen.
    assert build("config").kwargs["config"].values["softmax_scale"] is None


def test_given_names_that_the_constructor_lacks_go_into_its_config():
    for given in ({"n_head": 3, "colour": "red"}, {"config": {"n_head": 3, "colour": "red"}}):
        construction = build("config", given=given)
        values = construction.kwargs["config"].values
        assert (values["n_head"], values["n_embd"], values["colour"]) == (3, 24, "red")
        assert values["num_heads"] == 3


def test_unknown_required_argument_names_itself_and_the_next_line_to_type():
    with pytest.raises(CandidateError, match=r"Colourful needs 'colour' \(str\)") as error:
        build("colour: str", class_name="Colourful")
    assert error.value.hint == """--init '{"colour": ...}'"""


def test_all_unknown_required_arguments_are_named_at_once():
    with pytest.raises(CandidateError, match=r"needs 'flux' and 'gizmo', and their names do not say") as error:
        build("dim, flux, gizmo", class_name="Odd")
    assert error.value.hint == """--init '{"flux": ..., "gizmo": ...}'"""


def test_arguments_are_told_as_a_user_would_give_them():
    built = build("d_model, n_heads, config")
    assert built.as_given.startswith('--init \'{"d_model": ')
    assert '"config": {...}' in built.as_given


def test_unknown_given_argument_names_the_nearest():
    with pytest.raises(CandidateError, match=r"'num_head'.*did you mean 'num_heads'") as error:
        build("d_in, num_heads", given={"num_head": 2})
    assert error.value.hint.startswith("--init '{")


def test_alternatives_give_up_one_wish_after_the_other():
    spec = AttentionSpec()
    init = signature("dim, heads, num_kv_groups, head_dim, dropout=0.0, max_len=32")
    found = alternatives(init, spec, default_sizes(spec))
    kwargs = [construction.kwargs for construction in found]
    assert kwargs[0]["num_kv_groups"] == 3
    assert any(each["dim"] == each["heads"] * each["head_dim"] for each in kwargs)
    assert any(each["num_kv_groups"] == each["heads"] for each in kwargs)
    assert any("dropout" not in each for each in kwargs)
    assert all(each != arguments_for(init, spec, default_sizes(spec)).kwargs for each in kwargs)


def test_default_sizes_leave_no_two_axes_equal():
    sizes = default_sizes(AttentionSpec())
    assert len({*vars(sizes).values(), sizes.width, sizes.group_size}) == 8
    stated = default_sizes(AttentionSpec(num_heads=4, num_kv_heads=1, head_dim=16, value_dim=16, embed_dim=64))
    assert stated == Sizes(64, 4, 1, 16, 16, 40)


def test_what_the_user_gives_is_as_good_as_an_attribute():
    given = {"win": 3, "sliding_window": 4, "logit_cap": 20.0, "rope_theta": 5e5, "temperature": 4.0, "is_causal": True}
    text = "dim, heads, win, sliding_window, logit_cap, rope_theta, temperature, is_causal"
    assert build(text, given=given).implied == {
        "window": 4, "softcap": 20.0, "rope_base": 5e5, "scale": 0.25, "causal": True,
    }  # fmt: skip
    assert build("config", given={"config": {"sliding_window": 4}}).implied == {"window": 4}
    assert build("dim, heads, window=None", given={"window": None}).implied == {}


def test_key_value_heads_are_told():
    assert build("dim, heads, kv_heads").implied == {"num_kv_heads": 2}
    assert build("dim, heads, n_rep").implied == {"num_kv_heads": 2}
    assert build("dim, heads, kv_heads", given={"kv_heads": 3}).implied == {"num_kv_heads": 3}
    # Where the name can mean either, nothing is told.
    assert build("dim, heads, num_kv_groups").implied == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dim, heads, rotary_pct", {"rotary_pct": 0.5}),
        ("dim, heads, partial_rotary_factor=1.0", {"partial_rotary_factor": 0.5}),
        ("dim, heads, rotary_dim=64", {"rotary_dim": 4}),
    ],
)
def test_rope_turns_half_of_a_head_where_the_class_can_leave_channels_as_they_are(text, expected):
    for spec in (AttentionSpec(), AttentionSpec(rope=Rope("halves"))):
        construction = build(text, spec)
        assert construction.kwargs == {"dim": 48, "heads": 6} | expected
        assert construction.implied == {"rotary_dims": 4}


def test_rope_that_the_user_states_is_kept():
    whole = build("dim, heads, rotary_pct", AttentionSpec(rope=Rope("halves")), stated={"rope"})
    assert (whole.kwargs["rotary_pct"], whole.implied) == (1.0, {})
    part = build("dim, heads, rotary_pct", AttentionSpec(rope=Rope("halves", dims=2)), stated={"rope"})
    assert (part.kwargs["rotary_pct"], part.implied) == (0.25, {})
    given = build("dim, heads, rotary_pct=1.0", given={"rotary_pct": 0.25})
    assert given.implied == {"rotary_dims": 2}
    assert "rotary_dim" not in build("dim, heads, rotary_dim=None").kwargs


def test_temperature_is_the_inverse_of_the_scale():
    assert build("temperature").kwargs == {"temperature": 8**0.5}
    assert build("temperature", AttentionSpec(scale=0.25)).kwargs == {"temperature": 4.0}
    assert build("dim, heads, temperature=1.0").kwargs == {"dim": 48, "heads": 6}
    assert "temperature" not in build("config").kwargs["config"].values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d: int, n: int", {"d": 48, "n": 6}),
        ("d: int, n_h: int", {"d": 48, "n_h": 6}),
        ("hid_dim, n_heads, dropout, device", {"hid_dim": 48, "n_heads": 6, "dropout": 0.2, "device": "cpu"}),
        ("d: int, n: int, k: int, v: int", {"d": 56, "n": 6, "k": 8, "v": 10}),
        ("k, heads=8", {"k": 48, "heads": 6}),
        ("nx, n_head", {"nx": 48, "n_head": 6}),
        ("n_in, n_out, n_heads", {"n_in": 56, "n_out": 48, "n_heads": 6}),
    ],
)
def test_short_names(text, expected):
    assert build(text).kwargs == expected


def test_n_alone_is_not_known_to_be_heads():
    with pytest.raises(CandidateError, match="needs 'n'"):
        build("d, n")


# --- a width from outside ---------------------------------------------------------------------------------------------

N_EMBD = 64


class OneHead(nn.Module):
    def __init__(self, head_size):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(N_EMBD, head_size, bias=False) for _ in range(3))


class ManyHeads(nn.Module):
    def __init__(self, num_heads, head_size):
        super().__init__()
        self.heads = nn.ModuleList([OneHead(head_size) for _ in range(num_heads)])
        self.proj = nn.Linear(N_EMBD, N_EMBD)


class OnlyHeads(ManyHeads):
    def __init__(self, num_heads):
        super().__init__(num_heads, N_EMBD // num_heads)


def built(cls, given=None, **arguments):
    host = Host()
    facts = host.open(cls)
    construction = arguments_for(
        facts.init, AttentionSpec(), default_sizes(AttentionSpec()), given, class_name=cls.__name__
    )
    return host, construction, fitted_to(construction, host.build(construction.kwargs))


@pytest.mark.parametrize(
    ("cls", "kwargs"), [(ManyHeads, {"num_heads": 4, "head_size": 16}), (OnlyHeads, {"num_heads": 4})]
)
def test_heads_fill_a_width_that_is_fixed_outside(cls, kwargs):
    host, first, fitted = built(cls)
    assert first.kwargs != kwargs
    assert fitted is not None
    assert fitted.kwargs == kwargs
    assert (fitted.sizes.num_heads, fitted.sizes.head_dim, fitted.sizes.width) == (4, 16, 64)
    assert "num_heads=4" in fitted.assumptions[-1]
    assert "64 channels" in fitted.assumptions[-1]
    assert fitted_to(fitted, host.build(fitted.kwargs)) is None


def test_what_the_user_gave_is_kept_where_it_fits():
    assert built(ManyHeads, {"num_heads": 2})[2].kwargs == {"num_heads": 2, "head_size": 32}
    assert built(ManyHeads, {"num_heads": 8})[2] is None
    assert built(ManyHeads, {"head_size": 4})[2].kwargs == {"num_heads": 16, "head_size": 4}
    assert built(ManyHeads, {"num_heads": 5})[2] is None
    assert built(ManyHeads, {"num_heads": 4, "head_size": 8})[2] is None


def test_nothing_is_fitted_where_the_number_of_heads_is_no_argument():
    assert built(OneHead)[2] is None
