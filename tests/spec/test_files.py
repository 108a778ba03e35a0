"""A spec from a file: both formats, a model's config, and every way a file can be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qkv.errors import SpecError
from qkv.masks import Causal, SlidingWindow
from qkv.positions import Rope, RopeScaling
from qkv.spec import AttentionSpec, read_spec
from qkv.spec.files import read_fields

JSON = '{\n  "num_heads": 6,\n  "causal": true,\n  "rope": {"base": 500.0}\n}\n'
TOML = "num_heads = 6\ncausal = true\n[rope]\nbase = 500.0\n"
EXPECTED = AttentionSpec(num_heads=6, mask=Causal(), rope=Rope(base=500.0))


@pytest.mark.parametrize(("suffix", "text"), [(".json", JSON), (".toml", TOML), (".JSON", JSON)])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_both_formats_in_what_editors_make_of_them(
    tmp_path: Path, suffix: str, text: str, encoding: str, ends: str
) -> None:
    file = tmp_path / f"spec{suffix}"
    file.write_bytes(text.replace("\n", ends).encode(encoding))
    assert read_spec(file) == EXPECTED
    assert read_spec(str(file)) == EXPECTED


def test_toml_nests_rope_and_its_scaling(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('[rope]\npairing = "adjacent"\n[rope.scaling]\nkind = "yarn"\nfactor = 4\n')
    assert read_spec(file).rope == Rope("adjacent", scaling=RopeScaling("yarn", 4.0))


@pytest.mark.parametrize("known_by", ['"model_type": "mistral"', '"architectures": ["MistralForCausalLM"]'])
def test_a_models_config_is_known_by_its_own_keys(tmp_path: Path, known_by: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(f'{{{known_by}, "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 1}}')
    spec = read_spec(file, layer=2)
    assert (spec.num_heads, spec.kv_heads, spec.head_dim) == (3, 1, 8)
    assert spec.mask == Causal() & SlidingWindow(4096)


WRONG = {
    "empty.json": ("  \n", ["empty.json is empty", '{"num_heads": 6, "causal": true}']),
    "comma.json": ('{"num_heads": 6\n "causal": true}', ["comma.json, line 2, column 2", "'\"causal\": true}'"]),
    "cut.json": ('{"num_heads": 6,', ["cut.json, line 1"]),
    "list.json": ("[1]", ["list.json is [1] (a list)"]),
    "number.json": ("6", ["number.json is 6 (a whole number)"]),
    "twice.json": ('{"causal": true, "causal": false}', ["twice.json: causal is given twice"]),
    "deep.json": ("[" * 100_000, ["deep.json"]),
    "digits.json": ('{"num_heads": ' + "9" * 5000 + "}", ["digits.json", "thousands of digits"]),
    "nan.json": ('{"scale": NaN}', ["nan.json: scale is NaN"]),
    "unknown.json": ('{"heads": 6}', ["unknown.json: 'heads' is no field", "'num_heads'"]),
    "equals.toml": ("num_heads 6\n", ["equals.toml", "line 1", "num_heads = 6"]),
    "unknown.toml": ("[ropes]\nbase = 1\n", ["unknown.toml: 'ropes' is no field", "'rope'"]),
    "spec.yaml": ("num_heads: 6", ["spec.yaml ends in '.yaml'", ".json or .toml"]),
    "spec": ("{}", ["spec has no ending", ".json or .toml"]),
    "model.json": ('{"model_type": "lama"}', ["model.json", "'lama'", "did you mean 'llama'? Or describe", "--heads"]),
    "layer.json": ('{"model_type": "llama", "num_hidden_layers": 2}', ["layer.json", "no layer 7", "layers 0 to 1"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_told_where_and_what_to_write(tmp_path: Path, name: str) -> None:
    text, says = WRONG[name]
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_spec(file, layer=7 if name == "layer.json" else 0)
    for part in says:
        assert part in str(caught.value)


def test_bytes_that_are_no_text_are_told_their_line(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_bytes(b'{\n"num_heads": \xff}')
    with pytest.raises(SpecError, match=r"spec\.json, line 2: .* UTF-8"):
        read_spec(file)


def test_a_missing_file_names_the_one_beside_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no file"):
        read_spec(tmp_path / "spec.json")
    (tmp_path / "my_spec.json").write_text("{}")
    with pytest.raises(SpecError, match=r"did you mean 'my_spec\.json'\?"):
        read_spec(tmp_path / "myspec.json")
    with pytest.raises(SpecError, match="it is a folder"):
        read_spec(tmp_path)


@pytest.mark.parametrize("suffix", [".json", ".TOML"])
@pytest.mark.parametrize("ends", ["\n", "\r"])
def test_the_fields_that_a_file_gives_are_read_as_the_spec_is(tmp_path: Path, suffix: str, ends: str) -> None:
    file = tmp_path / f"spec{suffix}"
    file.write_bytes((TOML if suffix == ".TOML" else JSON).replace("\n", ends).encode("utf-16"))
    assert read_fields(file) == ({"num_heads": 6, "causal": True, "rope": {"base": 500.0}}, False)
    assert read_spec(file) == EXPECTED


def test_a_config_gives_every_field(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "mistral", "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 1}')
    fields, is_config = read_fields(file)
    assert is_config
    assert (fields["num_heads"], fields["softcap"], fields["window"]) == (3, None, 4096)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "spec.json")
    with pytest.raises(SpecError, match="it is no regular file"):
        read_spec(tmp_path / "spec.json")


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "spec.json").write_text(JSON)
    assert read_spec("~/spec.json") == EXPECTED
