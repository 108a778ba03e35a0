"""Messages as bytes and back: everything that is said arrives as it was, and no bytes can do harm."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.adapters import encoding
from qkv.adapters.encoding import Unframed, decode, encode, read_frame, write_frame
from qkv.adapters.messages import Argument, ArrayFacts, Call, Config, Facts, Fresh, Handed, Reply, Returned
from qkv.errors import CandidateError

FACTS = Facts(
    name="Attention",
    what="class",
    framework="torch",
    is_module=True,
    class_name="Attention",
    doc="é \ud800",
    init=(Argument("d_in"), Argument("bias", kind="keyword", required=False, default=False)),
    attributes={"scale": math.inf, "config.n_head": 4, "name": None},
    arrays={"q.weight": ArrayFacts((4, 6), "Linear", learned=True, dtype="float32")},
    members=["Head"],
)


def alike(left: Any, right: Any) -> bool:
    """Whether two messages are the same in every value and type."""
    if isinstance(left, np.ndarray):
        same = isinstance(right, np.ndarray) and left.dtype == right.dtype and left.shape == right.shape
        return same and left.tobytes() == right.tobytes()
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, Sequence) and not isinstance(left, str):
        return len(left) == len(right) and all(map(alike, left, right))
    if hasattr(left, "__dataclass_fields__"):
        return alike(vars(left), vars(right))
    return repr(left) == repr(right)


ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.array(3.0),
    np.zeros((0, 4)),
    np.array([math.nan, math.inf, -0.0]),
    np.array([True, False]),
    np.arange(4, dtype=np.int32),
    np.arange(4, dtype=np.uint8),
    np.ones(3, dtype=np.float16),
    np.array([1.5 - 2j]),
]


@pytest.mark.parametrize(
    "message",
    [
        None,
        True,
        -3,
        2**70,
        0.1,
        math.nan,
        -math.inf,
        "text",
        [],
        (),
        {},
        [1, (2.0, [None]), {"a": ("b",), 3: [4]}],
        *ARRAYS,
        FACTS,
        Config({"n_head": 2, "bias": None}, "GPTConfig"),
        Call([ARRAYS[0], [1, (2.5, math.nan)]], {"mask": ARRAYS[4]}, dtype="bfloat16", strided=True, framework="numpy"),
        Reply([Returned("0", ARRAYS[0], "bfloat16")], ["mask"], 0.25, "printed", "tuple of None"),
        Call((Handed("cache", Fresh("KVCache", {"max_batch": 2})),), then=[Call((ARRAYS[0],), anew="emptied")]),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_said_arrives_as_it_was(message: Any) -> None:
    assert alike(decode(encode(message)), message)


def test_arrays_in_any_order_of_memory_arrive() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    for one in (array.transpose(2, 0, 1), array[:, ::2], array.astype(">f8"), np.broadcast_to(array[:1], (5, 3, 4))):
        arrived = decode(encode(one))
        np.testing.assert_array_equal(arrived, one)
        assert arrived.flags.writeable
        assert arrived.dtype == np.float64


def test_numpy_scalars_arrive_as_plain_ones() -> None:
    assert decode(encode([np.float32(0.5), np.int64(3), np.True_])) == [0.5, 3, True]


def test_an_array_said_twice_arrives_once() -> None:
    x = np.ones(3)
    call = decode(encode(Call([x, x, x.copy()])))
    assert call.args[0] is call.args[1]
    assert call.args[0] is not call.args[2]


def test_an_error_arrives_with_its_parts() -> None:
    error = decode(encode(CandidateError("what", hint="how", detail="where")))
    assert isinstance(error, CandidateError)
    assert (error.message, error.hint, error.detail, error.fatal) == ("what", "how", "where", False)
    assert decode(encode(CandidateError("what", fatal=True))).fatal


@pytest.mark.parametrize(
    "message",
    [object(), {1, 2}, 1j, np.array([object()]), np.array(["a"])],
    ids=["an object", "a set", "complex", "an array of objects", "an array of text"],
)
def test_what_can_not_be_said_is_refused(message: Any) -> None:
    with pytest.raises(CandidateError, match="can't be passed"):
        encode(message)


def test_a_message_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "LARGEST_MESSAGE", 100)
    with pytest.raises(CandidateError, match="more than can be passed at once"):
        encode(np.ones(20))


def frame_of(text: str, arrays: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text.encode() + arrays


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\xff" * 40,
        frame_of(""),
        frame_of("[1"),
        frame_of("[1]"),
        frame_of('[["array", 0], []]'),
        frame_of('[["array", 0], [["float64", [2]]]]', b"12345678"),
        frame_of('[1, [["float64", [-1]]]]'),
        frame_of('[1, [["object", [1]]]]', b"12345678"),
        frame_of('[1, [["float64", [99999999999, 99999999999]]]]'),
        frame_of('[["Popen", "ls"], []]'),
        frame_of('[["Reply", 1], []]'),
        frame_of('[["Argument", 1, "either", true, null, ""], []]'),
        frame_of('[["dict", [["list"], 1]], []]'),
        frame_of("[" * 100_000),
        frame_of("[1, []]", b"more"),
    ],
)
def test_bytes_that_are_no_message_are_an_error_of_the_candidate(body: bytes) -> None:
    with pytest.raises(CandidateError, match="is no message"):
        decode(body)


def test_no_damaged_message_does_harm() -> None:
    draw = random.Random(0)
    whole = encode((FACTS, Call([ARRAYS[0], [1, 2.5]], {"m": ARRAYS[4]}), Config({"a": 1})))
    for _ in range(2000):
        body = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        try:
            decode(bytes(body[: draw.choice((len(body), draw.randrange(len(body))))]))
        except CandidateError:
            continue


def test_frames_follow_one_another_to_the_end(tmp_path: Path) -> None:
    with (tmp_path / "frames").open("w+b") as stream:
        for body in (b"one", b"", b"three"):
            write_frame(stream, body)
        stream.seek(0)
        assert [read_frame(stream) for _ in range(4)] == [b"one", b"", b"three", None]


def test_a_frame_that_is_cut_short_is_an_end(tmp_path: Path) -> None:
    with (tmp_path / "frames").open("w+b") as stream:
        write_frame(stream, b"one")
        stream.truncate(stream.tell() - 1)
        stream.seek(0)
        assert read_frame(stream) is None


@pytest.mark.parametrize("start", [b"Fatal Python error: Segmentation fault\n", b"short", b"\x93QKV" + b"\xff" * 8])
def test_what_is_no_frame_is_handed_on(start: bytes, tmp_path: Path) -> None:
    file = tmp_path / "frames"
    file.write_bytes(start)
    with file.open("rb") as stream, pytest.raises(Unframed):
        read_frame(stream)
