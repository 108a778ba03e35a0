"""What a candidate says of itself, and what comes of building, setting and calling it in this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.adapters.host import Host
from qkv.adapters.messages import Argument, Array, ArrayFacts, Call, Config, Reply
from qkv.errors import CandidateError

FILES = Path(__file__).parent / "files"
FUNCTIONS = str(FILES / "functions.py")
RETURNING = str(FILES / "returning.py")
PROJECTING = str(FILES / "projecting.py")


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.close()


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def call(name: str, *args: Any, **options: Any) -> Reply:
    host = Host()
    host.open(f"{FUNCTIONS}:{name}")
    return host.call(Call(args, **options))


def the(reply: Reply, path: str = "") -> Array:
    return next(one.array for one in reply.returned if one.path == path)


# --- facts ------------------------------------------------------------------------------------------------------------


def test_facts_of_a_class(host: Host) -> None:
    facts = host.open(f"{PROJECTING}:SelfAttention")
    assert (facts.name, facts.what, facts.framework, facts.is_module) == ("SelfAttention", "class", "torch", True)
    assert facts.class_name == "SelfAttention"
    assert facts.file == PROJECTING
    assert facts.doc == "One head."
    assert facts.source.startswith("class SelfAttention(nn.Module):")
    assert facts.source.splitlines()[0] == Path(PROJECTING).read_text().splitlines()[facts.line - 1]
    assert facts.init == (
        Argument("d_in", annotation="int"),
        Argument("d_out", required=False, default=4),
        Argument("bias", kind="keyword", required=False, default=False, annotation="bool"),
        Argument("dropout", kind="keyword", required=False, default=0.5),
    )
    assert facts.call == (
        Argument("x"),
        Argument("return_weights", kind="keyword", required=False, default=False),
    )
    assert facts.attributes == {"scale_power": -0.5}
    assert "PlainHeads" not in facts.arrays
    assert "NumpyAttention" in facts.members


def test_facts_of_what_a_class_builds(host: Host) -> None:
    host.open(f"{PROJECTING}:SelfAttention")
    facts = host.build({"d_in": 6})
    assert facts.what == "object"
    assert facts.name == "SelfAttention"
    assert list(facts.arrays) == ["mask", "inv_freq", "temperature", "q_proj.weight", "k_proj.weight", "v_proj.weight"]
    assert facts.arrays["q_proj.weight"] == ArrayFacts((4, 6), "Linear", learned=True, dtype="float32")
    assert facts.arrays["mask"] == ArrayFacts((9, 9), "SelfAttention", learned=False, dtype="bool")
    assert facts.attributes["d_out"] == 4
    assert facts.attributes["temperature"] == 1.0
    assert facts.attributes["config.n_head"] == 1
    assert facts.attributes["config.inner.causal"] is False
    assert facts.attributes["dropout.p"] == 0.5
    assert facts.submodules["dropout"] == "Dropout"
    assert "training" not in facts.attributes


def test_facts_of_a_function(host: Host) -> None:
    facts = host.open(f"{FUNCTIONS}:heads")
    assert (facts.what, facts.framework, facts.is_module) == ("function", "torch", False)
    assert [one.kind for one in facts.call] == ["positional", "either", "args", "keyword", "keyword", "kwargs"]
    assert facts.call[0].annotation == "torch.Tensor"
    assert [one.required for one in facts.call] == [True, True, False, False, False, False]
    assert facts.attributes == {"NUM_HEADS": 4}
    assert facts.source.startswith("def heads(")


def test_a_function_without_arguments_is_called_for_what_it_makes(host: Host) -> None:
    facts = host.open(f"{PROJECTING}:make_attention")
    assert (facts.name, facts.what, facts.class_name) == ("make_attention", "object", "SelfAttention")
    assert host.open(f"{PROJECTING}:built").attributes["q_proj.in_features"] == 6


def test_facts_of_torchs_own_attention(host: Host) -> None:
    facts = host.open(torch.nn.MultiheadAttention(6, 2, batch_first=True))
    assert (facts.what, facts.class_name, facts.file) == ("object", "MultiheadAttention", "")
    assert facts.arrays["out_proj.weight"] == ArrayFacts((6, 6), "Linear", learned=True, dtype="float32")
    assert facts.attributes["batch_first"] is True
    assert facts.attributes["num_heads"] == 2
    assert facts.call[0].name == "query"


def test_facts_of_torchs_own_function(host: Host) -> None:
    facts = host.open(torch.nn.functional.scaled_dot_product_attention)
    assert (facts.what, facts.framework) == ("function", "torch")
    # It is written in C: its docstring says what it takes.
    assert [one.name for one in facts.call][:5] == ["query", "key", "value", "attn_mask", "dropout_p"]
    assert facts.call[0].required
    assert facts.call[4] == Argument("dropout_p", required=False, default=0.0)


def test_facts_of_a_compiled_function_are_those_of_its_source(host: Host) -> None:
    facts = host.open(f"{FUNCTIONS}:scripted")
    assert [one.name for one in facts.call] == ["q", "k"]
    assert facts.source.splitlines()[1].startswith("def scripted(q: torch.Tensor")
    assert host.call(Call([array(2, 3), array(3, 2)])).result == "Tensor (2, 2)"


def test_heads_that_torch_never_heard_of_are_seen(host: Host) -> None:
    host.open(f"{PROJECTING}:PlainHeads")
    facts = host.build({"d_in": 6})
    assert facts.arrays["heads.1.q_proj.weight"].shape == (3, 6)
    assert facts.arrays["out"] == ArrayFacts((6, 5), "PlainHeads", learned=False, dtype="float32")
    reply = host.call(Call([array(2, 5, 6)]))
    assert reply.returned[0].dtype == "float64"


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("numpy_one", "numpy"),
        ("by_helper", "numpy"),
        ("heads", "torch"),
        ("draws", "torch"),
        ("only_operators", "torch"),
        ("numpys_root", "torch"),
    ],
)
def test_the_framework_is_what_the_code_speaks_of(host: Host, name: str, framework: str) -> None:
    assert host.open(f"{FUNCTIONS}:{name}").framework == framework


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("def attention(q, k, v):\n    return (q @ k.transpose(-2, -1)).softmax(-1) @ v\n", "torch"),
        ("def attention(q, k, v):\n    return q @ k @ v\n", "numpy"),
        ("def softmax(x): ...\ndef attention(q, k, v):\n    return softmax(q) @ v\n", "numpy"),
        ("def attention(q: 'torch.Tensor', k, v):\n    return q\n", "torch"),
        ("import numpy as np\nclass Att:\n    def __call__(self, x):\n        return np.exp(x)\n", "numpy"),
        ("import torch\nclass Att:\n    def __call__(self, x):\n        return torch.exp(x)\n", "torch"),
    ],
)
def test_the_framework_of_a_file_by_itself(host: Host, tmp_path: Path, text: str, framework: str) -> None:
    file = tmp_path / "alone.py"
    file.write_text(text)
    assert host.open(str(file)).framework == framework


# --- building ---------------------------------------------------------------------------------------------------------


def test_a_config_becomes_the_dataclass_of_the_annotation(host: Host) -> None:
    host.open(f"{PROJECTING}:Configured")
    facts = host.build({"config": Config({"n_embd": 12, "n_heads": 9}, "BlockConfig")})
    assert facts.attributes["kind"] == "BlockConfig"
    assert facts.attributes["config.n_embd"] == 12
    assert facts.attributes["config.n_head"] == 2
    assert facts.attributes["window"] == 3


def test_a_part_of_a_config_is_looked_up_in_the_config(host: Host) -> None:
    host.open(f"{PROJECTING}:Sectioned")
    facts = host.build({"cfg": Config({"width": 12, "heads": 3})})
    assert (facts.attributes["width"], facts.attributes["heads"]) == (12, 3)
    with pytest.raises(CandidateError, match="KeyError: 'zoo'"):
        host.build({"cfg": Config({"width": 12, "heads": 3}), "part": "zoo"})


def test_a_config_that_lacks_what_the_dataclass_needs_answers_by_itself(host: Host) -> None:
    host.open(f"{PROJECTING}:Configured")
    facts = host.build({"config": Config({"n_head": 3, "window": 8}, "BlockConfig")})
    assert facts.attributes["kind"] == "Settings"
    assert facts.attributes["window"] == 8


OWN_DEFAULTS = """
from dataclasses import dataclass

@dataclass
class OwnConfig:
    width: int = 64
    softcap: float | None = 30.0
    window: int = 9
    rope_scaling: float | None = 2.0

class Attention:
    def __init__(self, config%s):
        self.width, self.cap, self.window = config.width, config.softcap, config.window
        self.scaling, self.flash = config.rope_scaling, getattr(config, "flash", None)

    def __call__(self, x):
        return x
"""


@pytest.mark.parametrize(("annotation", "flash"), [(": OwnConfig", None), ("", False)])
def test_what_nothing_settles_is_left_to_the_configs_own_default(
    host: Host, tmp_path: Path, annotation: str, flash: bool | None
) -> None:
    (file := tmp_path / "own.py").write_text(OWN_DEFAULTS % annotation)
    host.open(f"{file}:Attention")
    fallbacks = {"softcap": None, "window": None, "rope_scaling": None, "flash": False}
    own = {"width": 5, "cap": 30.0, "window": 9, "scaling": 2.0, "flash": flash}
    assert host.build({"config": Config({"width": 5}, annotation[2:], fallbacks)}).attributes == own
    # What is settled is given, but never None to what must be a number.
    settled = Config({"width": 5, "softcap": None, "window": None}, "OwnConfig", fallbacks)
    assert host.build({"config": settled}).attributes == own | {"cap": None, "flash": None}


def test_a_config_answers_like_a_dict(host: Host) -> None:
    host.open(f"{PROJECTING}:Loose")
    facts = host.build({"cfg": Config({"emb_dim": 5}, "dict"), "depth": 2})
    assert facts.attributes == {"width": 5, "heads": 7, "same": True, "depth": 2}


def test_a_config_without_annotation_has_the_defaults_of_the_files_config_class(host: Host) -> None:
    host.open(f"{PROJECTING}:Unannotated")
    assert host.build({"config": Config({"n_embd": 4})}).attributes == {"width": 8, "heads": 2}
    assert host.build({"config": Config({"n_embd": 4, "n_head": 3})}).attributes == {"width": 8, "heads": 3}


def test_a_name_that_no_config_has_is_named(host: Host) -> None:
    host.open(f"{PROJECTING}:Loose")
    with pytest.raises(CandidateError, match=r"building Loose raised KeyError: 'emb_dim'") as caught:
        host.build({"cfg": Config({"n_embd": 5}, "dict")})
    assert 'self.width = cfg["emb_dim"]' in caught.value.detail


def test_a_config_of_transformers_own_class() -> None:
    from transformers.models.llama.modeling_llama import LlamaAttention

    host = Host()
    host.open(LlamaAttention)
    names = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "n_embd": 48}
    facts = host.build({"config": Config(names, "LlamaConfig"), "layer_idx": 0})
    assert facts.attributes["config.num_key_value_heads"] == 2
    assert facts.attributes["config.rms_norm_eps"] == 1e-6
    assert facts.arrays["k_proj.weight"].shape == (16, 48)


def test_only_classes_are_built(host: Host) -> None:
    host.open(f"{FUNCTIONS}:heads")
    with pytest.raises(CandidateError, match="heads is no class"):
        host.build({})
    host.open(f"{PROJECTING}:SelfAttention")
    with pytest.raises(CandidateError, match="SelfAttention is a class that has not been built yet"):
        host.call(Call([array(2, 3, 6)]))


def test_building_is_repeatable(host: Host) -> None:
    host.open(f"{PROJECTING}:SelfAttention")
    states = []
    for _ in range(2):
        host.build({"d_in": 6})
        states.append(host.state()["q_proj.weight"])
    np.testing.assert_array_equal(*states)


# --- weights ----------------------------------------------------------------------------------------------------------


def test_weights_are_read_and_assigned_in_float64(host: Host) -> None:
    host.open(f"{PROJECTING}:make_attention")
    state = host.state()
    assert state["q_proj.weight"].dtype == np.float64
    assert state["mask"].dtype == np.bool_
    x, weight = array(2, 5, 6), array(4, 6, seed=1)
    host.assign({"v_proj.weight": weight, "q_proj.weight": 0 * weight})
    np.testing.assert_array_equal(host.state()["v_proj.weight"], weight)
    expected = np.broadcast_to((x @ weight.T).mean(1, keepdims=True), (2, 5, 4))
    np.testing.assert_allclose(the(host.call(Call([x]))), expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("arrays", "message", "hint"),
    [
        ({"q_prj.weight": array(4, 6)}, "the candidate holds no array named 'q_prj.weight'", "'q_proj.weight'"),
        ({"q_proj.weight": array(6, 4)}, r"q_proj.weight has the shape \(4, 6\), and \(6, 4\) was given", ""),
    ],
)
def test_wrong_weights_are_refused(host: Host, arrays: dict[str, Array], message: str, hint: str) -> None:
    host.open(f"{PROJECTING}:make_attention")
    with pytest.raises(CandidateError, match=message) as caught:
        host.assign(arrays)
    assert hint in caught.value.hint


def test_the_users_own_module_is_never_changed(host: Host) -> None:
    module = torch.nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)
    before = {name: one.clone() for name, one in module.state_dict().items()}
    host.open(module)
    host.assign({"in_proj_weight": array(18, 6)})
    x = array(2, 5, 6)
    first, second = (the(host.call(Call([x, x, x])), "0") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert module.training
    assert module.in_proj_weight.dtype == torch.float32
    assert all(torch.equal(before[name], one) for name, one in module.state_dict().items())


@pytest.mark.parametrize("name", ["Caching", "Uncopyable"])
def test_every_call_starts_from_the_same_state(host: Host, name: str) -> None:
    host.open(f"{PROJECTING}:{name}")
    host.build({})
    shapes = [host.call(Call([array(2, 3, 4)])).returned[0].array.shape for _ in range(3)]
    assert shapes == [(2, 3, 4)] * 3


def test_a_module_that_can_not_be_copied_is_put_back(host: Host) -> None:
    class Locked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = torch.nn.Linear(3, 3)
            self.register_buffer("seen", torch.zeros(3))

        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("no")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.proj.weight.mul_(2)
            self.seen += 1
            return self.proj(x)

    module = Locked()
    weight, pointer = module.proj.weight.detach().clone(), module.proj.weight.data_ptr()
    host.open(module)
    outputs = [host.call(Call([array(2, 3)], dtype=dtype)) for dtype in ("float64", "float32", "float64")]
    np.testing.assert_array_equal(the(outputs[0]), the(outputs[2]))
    assert outputs[1].returned[0].dtype == "float32"
    assert torch.equal(module.proj.weight, weight)
    assert module.proj.weight.data_ptr() == pointer
    assert module.training
    assert module.seen.tolist() == [0, 0, 0]


def test_tied_weights_stay_tied(host: Host) -> None:
    module = torch.nn.Module()
    module.one = torch.nn.Linear(3, 3, bias=False)
    module.two = torch.nn.Linear(3, 3, bias=False)
    module.two.weight = module.one.weight
    module.forward = lambda x: module.two(x)
    host.open(module)
    host.assign({"one.weight": 2 * np.eye(3)})
    # The lambda refers to the module itself, so the copy is told apart by what it computes on its own.
    assert set(host.state()) == {"one.weight", "two.weight"}


def test_an_instance_that_is_no_module(host: Host) -> None:
    host.open(f"{PROJECTING}:NumpyAttention")
    facts = host.build({"size": 3})
    assert (facts.what, facts.framework, facts.is_module) == ("object", "numpy", False)
    assert facts.arrays == {
        "W_q": ArrayFacts((3, 3), "NumpyAttention", learned=True, dtype="float64"),
        "tables.k": ArrayFacts((3, 3), "NumpyAttention", learned=True, dtype="float64"),
    }
    host.assign({"W_q": np.eye(3), "tables.k": 2 * np.eye(3)})
    x = array(2, 5, 3)
    for _ in range(2):
        reply = host.call(Call([x]))
        np.testing.assert_array_equal(the(reply, "0"), 2 * x)
        assert reply.result == "tuple of ndarray (2, 5, 3), int 1"


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_floating_arrays_are_cast_and_others_keep_their_kind(dtype: Any) -> None:
    mask, lengths = np.array([True, False]), np.array([3, 2])
    reply = call("seen", array(2, 3), mask, lengths, dtype=dtype)
    assert [(one.path, one.dtype) for one in reply.returned] == [("x", dtype), ("mask", "bool"), ("lengths", "int64")]
    assert the(reply, "x").dtype == np.float64
    assert reply.result.startswith(f"dict of dtype: str 'torch.{dtype}', contiguous: bool True, x: Tensor (2, 3)")


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4)])
def test_strided_arrays_hold_the_same_values(shape: tuple[int, ...]) -> None:
    x = array(*shape)
    reply = call("seen", x, strided=True)
    assert "contiguous: bool False" in reply.result
    np.testing.assert_array_equal(the(reply, "x"), x)


@pytest.mark.parametrize(
    ("kind", "paths", "result"),
    [
        ("tensor", [""], "Tensor (2, 3)"),
        ("tuple", ["0", "2"], "tuple of Tensor (2, 3), None, Tensor (2, 3)"),
        ("named", ["context", "weights"], "Pair of Tensor (2, 3), Tensor (2, 3)"),
        ("dataclass", ["last_hidden_state", "attentions.0"], "Output"),
        ("mapping", ["context", "other.deep.0"], "OrderedDict of context: Tensor (2, 3), other: dict of deep: list"),
        ("none", [], "None"),
        ("numbers", [""], "list of list of float 1.0, float 2.0, list of int 3, int 4"),
        ("numpy", [""], "ndarray (2, 3)"),
        ("integers", [""], "Tensor (2, 3)"),
        ("boolean", [""], "Tensor (2, 3)"),
        ("sparse", [""], "Tensor (2, 3)"),
        ("grad", [""], "Tensor (2, 3)"),
        ("text", [], "str 'done'"),
        ("generator", [], "generator"),
    ],
)
def test_every_array_in_a_result_is_found(kind: str, paths: list[str], result: str) -> None:
    reply = call("returns", array(2, 3), kind)
    assert [one.path for one in reply.returned] == paths
    assert reply.result == result


@pytest.mark.parametrize(("kind", "said"), [("complex", "complex values"), ("objects", "object values")])
def test_what_is_no_number_is_refused(kind: str, said: str) -> None:
    with pytest.raises(CandidateError, match=f"the array that it returned holds {said}"):
        call("returns", array(2, 3), kind)


def test_arguments_changed_in_place_are_named() -> None:
    x, lengths = array(2, 3), [array(2), array(2)]
    reply = call("changes", x, np.array(True), lengths)
    assert reply.changed == ["0", "2.1"]
    assert x[0, 0] != 7
    host = Host()
    host.open(f"{FUNCTIONS}:changes")
    reply = host.call(Call([], {"x": x, "mask": np.array(True), "lengths": lengths}))
    assert reply.changed == ["x", "lengths.1"]


def test_nan_in_its_place_is_no_change() -> None:
    x = array(2, 3)
    x[1, 1] = np.nan
    assert call("fills", x).changed == []


def test_random_numbers_follow_from_the_seed_and_leave_ours_alone() -> None:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = (torch.rand(2).tolist(), np.random.rand())  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    first, again, other = (the(call("draws", array(1), seed=seed)) for seed in (1, 1, 2))
    assert (torch.rand(2).tolist(), np.random.rand()) == expected  # noqa: NPY002
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_what_is_made_without_a_dtype_is_float64_in_a_float64_call() -> None:
    assert [one.dtype for one in call("default_dtype", array(1)).returned] == ["float64", "float32"]
    assert [one.dtype for one in call("default_dtype", array(1), dtype="float16").returned] == ["float32", "float32"]
    assert torch.get_default_dtype() == torch.float32


def test_it_computes_on_as_many_threads_as_it_is_given() -> None:
    ours = torch.get_num_threads()
    assert the(call("threads", array(1))).tolist() == [1]
    assert the(call("threads", array(1), threads=3)).tolist() == [3]
    assert torch.get_num_threads() == ours


def test_one_array_given_thrice_arrives_as_one() -> None:
    x = array(2, 3)
    assert the(call("same_object", x, x, x.copy())).tolist() == [True, False]


def test_what_is_printed_is_kept_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    reply = call("prints", array(1))
    assert 1990 < len(reply.printed) <= 2000
    assert reply.printed.endswith("the end\n")
    assert capsys.readouterr().out == ""


def test_numpy_has_no_bfloat16() -> None:
    with pytest.raises(CandidateError, match="NumPy has no bfloat16"):
        call("numpy_one", array(2, 2), dtype="bfloat16")


def test_a_framework_can_be_chosen() -> None:
    assert call("only_operators", array(2, 2), array(2, 2), framework="numpy").result == "ndarray (2, 2)"
    assert call("only_operators", array(2, 2), array(2, 2)).result == "Tensor (2, 2)"


def test_an_exception_shows_the_candidates_line() -> None:
    with pytest.raises(CandidateError, match="calling wrong_shape raised RuntimeError: mat1 and mat2") as caught:
        call("wrong_shape", array(2, 4))
    assert caught.value.detail.splitlines()[-1] == "    return x @ torch.ones(3, 3)"
    assert "site-packages" not in caught.value.detail
    assert "qkv/adapters/host" not in caught.value.detail


def test_endless_recursion_is_an_exception_like_others() -> None:
    with pytest.raises(CandidateError, match="RecursionError") as caught:
        call("deep", array(1))
    assert len(caught.value.detail.splitlines()) <= 15


def test_nothing_opened() -> None:
    with pytest.raises(CandidateError, match="no candidate has been opened"):
        Host().state()


def test_our_ctrl_c_stays_ours(host: Host) -> None:
    def interrupted(x: Any) -> Any:
        raise KeyboardInterrupt

    host.open(interrupted)
    with pytest.raises(KeyboardInterrupt):
        host.call(Call([array(1)], framework="numpy"))


def test_an_exit_in_the_candidate_does_not_end_us(host: Host) -> None:
    def leaves(x: Any) -> Any:
        raise SystemExit(3)

    host.open(leaves)
    with pytest.raises(CandidateError, match=r"ended the program: sys.exit\(3\)"):
        host.call(Call([array(1)], framework="numpy"))


# --- results of loops, and what is none -------------------------------------------------------------------------------


def returned(name: str, **options: Any) -> Reply:
    host = Host()
    host.open(f"{RETURNING}:{name}")
    return host.call(Call([array(2, 3)], **options))


@pytest.mark.parametrize("name", ["python_numbers", "numpy_numbers", "tensor_numbers"])
def test_numbers_in_lists_are_one_array(name: str) -> None:
    (one,) = returned(name).returned
    assert one.path == ""
    np.testing.assert_array_equal(one.array, array(2, 3))
    if name != "python_numbers":
        assert returned(name, dtype="float32").returned[0].dtype == "float32"


def test_rows_in_a_list_are_one_array_after_all_others() -> None:
    paths = [(one.path, one.array.shape) for one in returned("rows").returned]
    assert paths == [("0", (3,)), ("1", (3,)), ("", (2, 3))]
    assert returned("rows_of_rows").returned[-1].array.shape == (2, 1, 3)
    assert [one.path for one in returned("pair").returned] == ["0", "1"]
    assert [one.path for one in returned("of_other_lengths").returned] == ["0", "1"]


def test_lists_without_an_end_are_not_followed() -> None:
    assert [one.path for one in returned("holds_itself").returned] == ["1"]
    assert returned("deep").returned == []


def test_more_than_can_be_passed_is_refused_before_it_is_copied() -> None:
    with pytest.raises(CandidateError, match="it returned more than 1 GiB of arrays"):
        returned("much")


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("later", "later is an `async def`", "write `def`"),
        ("bit_by_bit", "bit_by_bit holds a `yield`", "write `return`"),
        ("Nothing", "Nothing has no method that could be called: no __call__ and no forward", "it has attend"),
        ("Misnamed", "Misnamed has no method that could be called", "it is named foward"),
        ("Later", "__call__ of Later is an `async def`", "write `def`"),
    ],
)
def test_what_gives_no_result_is_told_before_it_is_called(host: Host, name: str, said: str, hint: str) -> None:
    with pytest.raises(CandidateError, match=re.escape(said)) as caught:
        host.open(f"{RETURNING}:{name}")
    assert hint in caught.value.hint


def test_a_module_without_a_forward_is_told_when_it_is_called(host: Host) -> None:
    host.open(torch.nn.Linear(2, 2).requires_grad_(False).__class__.__mro__[1]())
    with pytest.raises(CandidateError, match="no method that could be called: no forward"):
        host.call(Call([array(2, 3)]))


def test_messages_hold_no_more_than_a_person_can_read() -> None:
    with pytest.raises(CandidateError, match=r"calling raises_escapes raised ValueError: \[2Jred and more$"):
        returned("raises_escapes")
    with pytest.raises(CandidateError, match=r"UnprintableError: \(its message can't be printed\)"):
        returned("raises_unprintable")
    with pytest.raises(CandidateError) as caught:
        returned("raises_much")
    assert len(caught.value.message) < 600


def test_nobody_answers_the_candidate() -> None:
    assert returned("reads").returned


def test_arrays_without_data_are_named(host: Host) -> None:
    host.open(torch.nn.Linear(2, 2, device="meta"))
    with pytest.raises(CandidateError, match="its array weight is on the meta device, which holds no data"):
        host.state()
    for function, said in [
        (lambda x: x.to("meta"), "the array that it returned is on the meta device"),
        (
            lambda x: {"out": torch.nested.nested_tensor([x[0], x[0, :1]], layout=torch.jagged)},
            "returned at 'out' is a nested tensor",
        ),
    ]:
        host.open(function)
        with pytest.raises(CandidateError, match=said):
            host.call(Call([array(2, 3)], framework="torch"))


def test_complex_buffers_are_left_out_of_the_state(host: Host) -> None:
    module = torch.nn.Linear(2, 2)
    module.register_buffer("freqs_cis", torch.ones(3, dtype=torch.complex64))
    host.open(module)
    assert list(host.state()) == ["weight", "bias"]


def test_a_failure_of_ours_shows_none_of_our_lines(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.adapters.results.dtype_name", None)
    host.open(lambda x: x)
    with pytest.raises(CandidateError, match="reading what <lambda> returned raised TypeError") as caught:
        host.call(Call([array(2, 3)], framework="numpy"))
    assert caught.value.detail == ""
