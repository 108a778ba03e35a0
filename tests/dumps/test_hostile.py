"""Dumps that can't be judged end in a sentence that says why and what to do: quickly, and within memory."""

from __future__ import annotations

import io
import json
import pickle
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dumped import FIELDS, run_of, tensors_of, write
from qkv.debugger import check
from qkv.errors import SpecError
from qkv.report import Report

TENSORS = tensors_of(run_of())


class Bomb:
    """What must never be unpickled."""

    def __reduce__(self) -> Any:
        return (open, ("unpickled", "w"))


def failed(path: Path, **more: Any) -> Report:
    started = time.perf_counter()
    report = check(path, FIELDS, **more)
    assert time.perf_counter() - started < 30
    assert report.verdict == "failed", report.why
    assert report.hint
    return report


# --- files ------------------------------------------------------------------------------------------------------------


def no_file(folder: Path) -> Path:
    write(folder / "dumps.npz", TENSORS)
    return folder / "dump.npz"


def empty_file(folder: Path) -> Path:
    (folder / "dump.safetensors").touch()
    return folder / "dump.safetensors"


def empty_folder(folder: Path) -> Path:
    (folder / "dump").mkdir()
    return folder / "dump"


def one_array(folder: Path) -> Path:
    np.save(folder / "q.npy", TENSORS["q"])
    return folder / "q.npy"


def cut(suffix: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        path = write(folder / f"dump{suffix}", TENSORS)
        path.write_bytes(path.read_bytes()[:-500])
        return path

    return made


def cut_array(folder: Path) -> Path:
    path = write(folder / "dump", TENSORS)
    file = path / "v.npy"
    file.write_bytes(file.read_bytes()[:-8])
    return path


def huge_shape(folder: Path) -> Path:
    path = write(folder / "dump", TENSORS)
    header = io.BytesIO()
    huge = {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6, 64, 64)}
    np.lib.format.write_array_header_1_0(header, huge)
    (path / "q.npy").write_bytes(header.getvalue() + bytes(64))
    return path


def huge_safetensors(folder: Path) -> Path:
    header = json.dumps({"q": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 64]}}).encode()
    path = folder / "dump.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    return path


def zip_bomb(folder: Path) -> Path:
    """Half a megabyte that unpacks to 640 MiB of zeros, 5 GiB in float64, all of it declared."""
    path = folder / "dump.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("k", "v", "out"):
            buffer = io.BytesIO()
            np.save(buffer, TENSORS[name])
            archive.writestr(f"{name}.npy", buffer.getvalue())
        header = io.BytesIO()
        shape = (10, 64, 1024, 1024)
        np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
        with archive.open("q.npy", "w", force_zip64=True) as stream:
            stream.write(header.getvalue())
            for _ in range(10 * 64):
                stream.write(bytes(1024 * 1024))
    return path


def pickled_array(folder: Path) -> Path:
    path = write(folder / "dump", TENSORS)
    np.save(path / "q.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    return path


def pickled_in_zip(folder: Path) -> Path:
    np.savez(folder / "dump.npz", **{**TENSORS, "q": np.array([Bomb()], dtype=object)})
    return folder / "dump.npz"


def pickled_torch(folder: Path) -> Path:
    torch.save({"q": Bomb()}, folder / "dump.pt")
    return folder / "dump.pt"


def plain_pickle(folder: Path) -> Path:
    (folder / "dump.pt").write_bytes(pickle.dumps({"q": Bomb()}))
    return folder / "dump.pt"


def no_tensor(folder: Path) -> Path:
    torch.save({"epoch": 3}, folder / "dump.pt")
    return folder / "dump.pt"


FILES = [
    (no_file, r"no such file.*did you mean 'dumps.npz'"),
    (empty_file, r"dump.safetensors is empty"),
    (empty_folder, r"holds no .npy file.*it is empty; save q.npy"),
    (one_array, r"q.npy is one array alone.*name the folder"),
    (cut(".safetensors"), r"no safetensors file that could be read.*cut short"),
    (cut(".npz"), r"can't be read: File is not a zip file.*numpy.savez"),
    (cut(".pt"), r"can't be loaded with weights_only=True.*torch.save"),
    (cut_array, r"v.npy is said to have shape \(2, 2, 7, 10\) of float32, 1120 bytes, and holds 1112"),
    (huge_shape, r"q.npy is said to have shape .*, and holds 64.*cut short"),
    (huge_safetensors, r"no safetensors file that could be read"),
    (zip_bomb, r"take 5.0 GiB in float64, more than the memory limit.*--memory-limit 16G"),
    (pickled_array, r"holds pickled Python objects, which are never loaded.*dtype=float"),
    (pickled_in_zip, r"holds pickled Python objects, which are never loaded"),
    (pickled_torch, r"can't be loaded with weights_only=True.*save a plain dict of tensors"),
    (plain_pickle, r"can't be loaded with weights_only=True"),
    (no_tensor, r"holds no tensor.*query, key, value and output"),
]


@pytest.mark.parametrize(("made", "said"), FILES, ids=[said[:24] for _, said in FILES])
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], Path], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    report = failed(made(tmp_path))
    assert re.search(said, f"{report.why}\n{report.hint}", re.DOTALL), (report.why, report.hint)
    assert not Path("unpickled").exists()


# --- what is in them --------------------------------------------------------------------------------------------------

NAMED = {name: array for name, array in TENSORS.items() if name != "v"}
CONTENTS: list[tuple[dict[str, Any], str]] = [
    ({**NAMED, "foo": TENSORS["v"]}, r"no tensor that is called like value; it holds .*--tensor value=foo"),
    ({**TENSORS, "query": TENSORS["q"]}, r"several tensors that could be the query: q, query.*--tensor query=q"),
    ({**TENSORS, "q": (10 * TENSORS["q"]).astype(np.int64)}, r"q, the query, holds whole numbers \(int64\).*cast it"),
    ({**TENSORS, "k": TENSORS["k"].astype(np.complex64)}, r"k, the key, holds complex.*float32 will do"),
    ({**TENSORS, "q": TENSORS["q"][:, :, :0]}, r"q has shape \(2, 6, 0, 8\): there are no numbers in it"),
    ({**TENSORS, "k": TENSORS["k"][:, :, :5]}, r"there are 5 keys and 7 values"),
    ({**TENSORS, "k": TENSORS["k"][:1], "v": TENSORS["v"][:1]}, r"query holds 2 sequences and key 1"),
    ({**TENSORS, "k": TENSORS["k"][..., :6]}, r"a query has 8 channels and a key 6"),
    ({**TENSORS, "q": TENSORS["q"][:, :5], "out": TENSORS["out"][:, :5]}, r"num_heads is 6 in the spec and 5 here"),
    ({**TENSORS, "q": TENSORS["q"][0, 0, 0]}, r"q has one axis, shape \(8,\).*--layout BHTD"),
    ({**TENSORS, "out": TENSORS["out"][:, :, :5]}, r"the output should be of 2 sequences, 6 heads, 7 queries"),
    ({**TENSORS, "mask": np.ones((3, 9), dtype=bool)}, r"mask, the mask, has shape \(3, 9\), which does not broadcast"),
    ({**TENSORS, "q": TENSORS["q"] * np.nan}, r"no row is left to judge: q holds 672 entries that are NaN"),
]  # fmt: skip


@pytest.mark.parametrize(("tensors", "said"), CONTENTS, ids=[said[:24] for _, said in CONTENTS])
def test_contents(tmp_path: Path, tensors: dict[str, Any], said: str) -> None:
    report = failed(write(tmp_path / "dump.npz", tensors))
    assert re.search(said, f"{report.why}\n{report.hint}", re.DOTALL), (report.why, report.hint)


def test_heads_that_can_not_be_shared(tmp_path: Path) -> None:
    tensors = {**TENSORS, "k": TENSORS["k"].repeat(2, 1), "v": TENSORS["v"].repeat(2, 1)}
    report = check(write(tmp_path / "dump.npz", tensors), {"causal": True}, layout="BHTD")
    assert "6 query heads can't share 4 key/value heads evenly" in report.why


def test_too_many_weights(tmp_path: Path) -> None:
    large = {name: np.zeros((1, 6, 4096, 8), np.float16) for name in TENSORS}
    report = check(write(tmp_path / "dump.safetensors", large), {"num_heads": 6, "causal": True})
    assert report.verdict == "failed"
    assert "has 101 million attention weights" in report.why


@pytest.mark.slow
def test_a_nan_in_an_input_leaves_the_rows_it_reaches_unjudged(tmp_path: Path) -> None:
    tensors = tensors_of(run_of())
    tensors["v"][0, 1, 4] = np.nan
    tensors["out"][0, 3:, 4:] = np.nan
    report = check(write(tmp_path / "right.npz", tensors), FIELDS)
    assert report.verdict == "right", report.why
    assert any(sentence.startswith("v holds 10 entries that are NaN") for sentence in report.assumptions)
    tensors["out"][0, 3, 3] += 1
    report = check(write(tmp_path / "wrong.npz", tensors), FIELDS)
    assert (report.verdict, report.first_disagreement.query) == ("wrong", 3)


def test_a_nan_in_the_output_is_wrong_and_named(tmp_path: Path) -> None:
    tensors = tensors_of(run_of())
    tensors["out"][1, 2, 3, 4] = np.nan
    report = check(write(tmp_path / "dump.npz", tensors), FIELDS)
    assert report.verdict == "wrong"
    assert any("out holds 1 entry that is NaN or infinite, at [1, 2, 3, 4]" in a for a in report.assumptions)
    assert (report.first_disagreement.batch, report.first_disagreement.head) == (1, 2)


def test_bad_usage(tmp_path: Path) -> None:
    path = write(tmp_path / "dump.npz", TENSORS)
    with pytest.raises(SpecError, match="'quary', which is no role: did you mean 'query'"):
        check(path, FIELDS, tensors={"quary": "q"})
    assert "holds no tensor 'qq'" in failed(path, tensors={"query": "qq"}).why
    assert "holds no layer 'x'" in failed(path, tensors={"prefix": "x"}).why
    with pytest.raises(SpecError, match="Leave --tensor out"):
        check("right.py", FIELDS, tensors={"query": "q"})
    without = check(path, {**FIELDS, "sinks": True})
    assert (without.verdict, without.why) == ("failed", "the spec has sinks, and the dump holds none")
