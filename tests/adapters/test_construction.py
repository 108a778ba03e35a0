"""Constructors filled by the names of their arguments."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from qkv.adapters.construction import Sizes, alternatives, arguments_for, default_sizes
from qkv.adapters.messages import Argument, Config
from qkv.errors import CandidateError
from qkv.masks import Causal, SlidingWindow
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
    assert values["sliding_window"] is None
    assert construction.kwargs.get("layer_idx", 0) == 0
    assert "n_embd=48" in construction.assumptions[-1]


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
