"""Whole candidates under watch: in the styles that people write, in a child process, with caches, of a library."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.styles import style_name, styles

from qkv.adapters.host import Host
from qkv.adapters.messages import Call, Handed, Hosting
from qkv.adapters.process import HostProcess
from qkv.adapters.recording import Recording, Ref
from qkv.adapters.watching import watching

STYLES = {style_name(style): style for style in styles()}
CAUSAL = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_in, length):
        super().__init__()
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_in) for _ in range(3))
        self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))

    def forward(self, x):
        attn_scores = self.W_query(x) @ self.W_key(x).transpose(1, 2)
        attn_scores.masked_fill_(self.mask.bool()[: x.shape[1], : x.shape[1]], -torch.inf)
        return torch.softmax(attn_scores / x.shape[-1] ** 0.5, dim=-1) @ self.W_value(x)
"""
X = np.random.default_rng(0).normal(size=(2, 5, 6))


@pytest.fixture(params=[Host, HostProcess], ids=["here", "in a child"])
def host(request: pytest.FixtureRequest) -> Iterator[Hosting]:
    host = request.param()
    yield host
    host.close()


def loaded(path: Path, source: str) -> ModuleType:
    path.write_text(source)
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refs(value: Any) -> Iterator[int]:
    if isinstance(value, Ref):
        yield value.value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from refs(one)


def assert_sound(recording: Recording) -> None:
    """Every number that is spoken of exists, and is made, or named, before it is used."""
    made = {number for one in recording.operations for number in one.results}
    known = set(range(len(recording.values)))
    assert made <= known
    assert set(recording.returned) <= made
    for one in recording.operations:
        assert one.results
        assert one.place is not None
        used = set(refs([*one.arguments, *one.keywords.values()]))
        assert used <= known
        assert not used & set(one.results)


@pytest.mark.parametrize("name", STYLES)
def test_the_numbers_are_those_of_an_unwatched_run(name: str, tmp_path: Path) -> None:
    style: Any = STYLES[name]
    module = loaded(tmp_path / f"style_{name}.py", style.SOURCE)
    torch.manual_seed(0)
    expected = style.example(vars(module))
    torch.manual_seed(0)
    with watching() as watch:
        outputs = style.example(vars(module))
    recording = watch.recording(outputs)
    del sys.modules[module.__name__]
    for output, right in zip(outputs, expected, strict=True):
        assert torch.is_tensor(output) == torch.is_tensor(right)
        arrays = [one.detach().numpy() if torch.is_tensor(one) else one for one in (output, right)]
        np.testing.assert_array_equal(*arrays)
    assert recording.complete
    assert len(recording.returned) == len(outputs)
    assert_sound(recording)
    own = [place for place in recording.places if place.file == module.__file__]
    lines = style.SOURCE.splitlines()
    for place in own:
        assert "\n".join(lines[place.line - 1 : place.end_line])[place.column :].startswith(place.code)


def test_in_a_child_too(host: Hosting, write: Callable[[str], str]) -> None:
    host.open(f"{write(CAUSAL)}:Attention")
    host.build({"d_in": 6, "length": 8})
    recording = host.call(Call([X], watched=True)).recording
    assert recording is not None
    assert [one.name for one in recording.operations] == [
        *("ones", "triu", "linear", "linear", "transpose", "matmul", "bool", "getitem", "masked_fill", "div"),
        *("softmax", "linear", "matmul"),
    ]
    assert_sound(recording)


def test_a_call_that_is_not_watched_has_no_recording(host: Hosting, write: Callable[[str], str]) -> None:
    host.open(f"{write(CAUSAL)}:Attention")
    host.build({"d_in": 6, "length": 8})
    assert host.call(Call([X])).recording is None


def test_the_candidate_holds_nothing_of_it_afterwards(write: Callable[[str], str]) -> None:
    host = Host()
    host.open(f"{write(CAUSAL)}:Attention")
    host.build({"d_in": 6, "length": 8})
    before = host.call(Call([X]))
    random = torch.get_rng_state()
    first, second = (host.call(Call([X], watched=True)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), random)
    assert first.recording is not None
    assert second.recording is not None
    assert [one.name for one in first.recording.operations] == [one.name for one in second.recording.operations]
    after = host.call(Call([X]))
    for reply in (first, second, after):
        np.testing.assert_array_equal(reply.returned[0].array, before.returned[0].array)


def test_calls_that_follow_each_other_are_one_recording(write: Callable[[str], str]) -> None:
    source = """
    import torch

    def attention(x, past):
        past.append(x)
        keys = torch.cat(past, dim=1)
        return torch.softmax(x @ keys.mT, -1) @ keys
    """
    host = Host()
    host.open(f"{write(source)}:attention")
    past = {"past": Handed("past", [])}
    reply = host.call(Call([X], past, watched=True, then=[Call([X[:, :1]], past)]))
    recording = reply.recording
    assert recording is not None
    assert reply.then[0].recording is None
    assert [one.name for one in recording.operations] == 2 * ["cat", "mT", "matmul", "softmax", "matmul"]
    first, second = (list(refs(recording.operations[place].arguments)) for place in (0, 5))
    assert first == second[:1]  # what the first call has put there is the same value in the second
    assert len(second) == 2
    assert {one.name for one in recording.values} == {"x", ""}
    assert len(recording.returned) == 2


def test_what_fails_fails_as_it_does_unwatched(host: Hosting, write: Callable[[str], str]) -> None:
    path = write("import torch\ndef attention(x):\n    return torch.cat([x, x[0]])")
    host.open(f"{path}:attention")
    with pytest.raises(Exception, match="calling attention raised RuntimeError"):
        host.call(Call([X], watched=True))


def test_the_code_of_a_library_is_the_users_where_it_is_the_candidate(write: Callable[[str], str]) -> None:
    source = """
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    def attention():
        return LlamaMLP(LlamaConfig(hidden_size=6, intermediate_size=10, num_attention_heads=2))
    """
    host = Host()
    host.open(f"{write(source)}:attention")
    recording = host.call(Call([X], watched=True)).recording
    assert recording is not None
    code = [recording.places[one.place or 0].code for one in recording.operations if one.during == "call"]
    assert code == [
        "self.gate_proj(x)",
        "nn.functional.silu(input)",
        "self.up_proj(x)",
        "self.act_fn(self.gate_proj(x)) * self.up_proj(x)",
        "self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))",
    ]


def test_a_method_inherited_from_a_library_is_the_users(write: Callable[[str], str]) -> None:
    source = """
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    class Attention(LlamaMLP):
        def __init__(self):
            super().__init__(LlamaConfig(hidden_size=6, intermediate_size=10, num_attention_heads=2))
    """
    host = Host()
    host.open(f"{write(source)}:Attention")
    host.build({})
    recording = host.call(Call([X], watched=True)).recording
    assert recording is not None
    assert {place.function for place in recording.places} == {"LlamaMLP.forward", "SiLUActivation.forward"}


def test_where_no_code_is_the_users_there_is_no_place() -> None:
    host = Host()
    host.open(torch.nn.Linear(6, 6))
    recording = host.call(Call([X], watched=True)).recording
    assert recording is not None
    assert [(one.name, one.place) for one in recording.operations] == [("linear", None)]


def test_a_fused_attention_of_torch_is_one_operation(write: Callable[[str], str]) -> None:
    source = """
    from torch import nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(6, 2, batch_first=True)

        def forward(self, x):
            return self.inner(x, x, x)[0]
    """
    host = Host()
    host.open(f"{write(source)}:Attention")
    host.build({})
    reply = host.call(Call([X], watched=True))
    assert reply.recording is not None
    (fused,) = [one for one in reply.recording.operations if one.name == "multi_head_attention_forward"]
    assert reply.recording.places[fused.place or 0].code == "self.inner(x, x, x)"
    # Unwatched it may take its fast path, which rounds in another way.
    np.testing.assert_allclose(reply.returned[0].array, host.call(Call([X])).returned[0].array, atol=1e-6)


def test_a_watched_call_of_a_small_module_is_quick(write: Callable[[str], str]) -> None:
    host = Host()
    host.open(f"{write(CAUSAL)}:Attention")
    host.build({"d_in": 6, "length": 8})
    times = []
    for _ in range(5):
        started = time.perf_counter()
        host.call(Call([X], watched=True))
        times.append(time.perf_counter() - started)
    assert min(times) < 0.2, "a bound with room for a busy machine; it takes some 10 ms"


def test_places_are_in_the_text_that_a_file_is_judged_by(write: Callable[[str], str]) -> None:
    path = write("import torch\ndef attention(x):\n    return x + x\n")
    host = Host()
    host.open(f"{path}:attention", {str(path): b"import torch\n\n\ndef attention(x):\n    return torch.exp(x) - x\n"})
    recording = host.call(Call([X], watched=True)).recording
    assert recording is not None
    assert [(one.line, one.code) for one in recording.places] == [(5, "torch.exp(x)"), (5, "torch.exp(x) - x")]
