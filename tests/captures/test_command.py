"""``qkv show`` as a user types it: what it prints, where the page goes, and what it says to bad input."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from command_line import COMMAND, RIGHT, environment
from dumped import run_of, tensors_of, write
from qkv.cli.commands import group


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def show(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(group, ["show", *arguments])
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def said(done: Result) -> str:
    return re.sub(r"\s+", " ", done.output)


def test_without_arguments_the_embedded_model_is_shown(folder: Path) -> None:
    words = said(show())
    assert "qkv.model.tiny() 2 layers, 4 heads, 12 queries, 12 keys" in words
    assert re.search(r"previous token layer 0 head 0 \(0\.\d\d\)", words)
    assert re.search(r"induction layer 1 head 3 \(0\.\d\d\), layer 1 head 2 \(0\.\d\d\)", words)
    assert "weights layer 1, head 3: induction 0." in words, "it begins with the head that the page begins with"
    assert words.endswith("page show.html ")
    page = (folder / "show.html").read_text("utf-8")
    assert "winter" in page
    assert "head 3: induction 0." in page
    assert '"focus":{"head":"1.3"' in page, "it opens on the clearest induction head"


def test_it_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom qkv.cli.commands import group\n"
        "done = CliRunner().invoke(group, ['show'])\nprint(done.exit_code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.split() == ["0", "False"]


def test_a_sentence_of_its_words_and_one_that_it_does_not_know(folder: Path) -> None:
    assert "5 queries" in said(show("--text", "anna has a red kite"))
    assert "did you mean 'coat'?" in said(show("--text", "the cat", code=2))


def test_a_dump_with_flags_tokens_and_a_layer(folder: Path) -> None:
    tensors = {
        f"layers.{n}.{role}": array for n in (0, 3) for role, array in tensors_of(run_of()).items() if role in "qk"
    }
    write(folder / "dump.npz", tensors)
    done = show("dump.npz", "--causal", "--tokens", "a b c d e f <script>", "--layer", "3", "--output", "other.html")
    assert "attention weights in dump.npz 1 layer, 6 heads, 7 queries, 7 keys" in said(done)
    assert "causal" in said(done)
    page = (folder / "other.html").read_text("utf-8")
    assert "\\u003cscript\\u003e" in page
    assert not (folder / "show.html").exists()
    assert "holds no layer 1" in said(show("dump.npz", "--layer", "1", code=4))


def test_tokens_from_a_file(folder: Path) -> None:
    np.save("weights.npy", np.eye(3))
    Path("tokens.txt").write_text("one two\nthree\nfour\n")
    show("weights.npy", "--tokens", "tokens.txt")
    assert "one two" in (folder / "show.html").read_text("utf-8")
    Path("tokens.json").write_text('\ufeff["one", "two three", 4]', "utf-8")
    show("weights.npy", "--tokens", "tokens.json")
    assert '"key_tokens":["one","two three","4"]' in (folder / "show.html").read_text("utf-8")
    for missing in ("missing.txt", "no/where"):
        assert f"--tokens: no such file: {missing}" in said(show("weights.npy", "--tokens", missing, code=2))
    assert "there are 2 tokens for 3" in said(show("weights.npy", "--tokens", "a b", code=4))
    assert "--tokens is empty" in said(show("weights.npy", "--tokens", " ", code=2))


def test_a_wrong_function_is_shown_beside_the_right_one(folder: Path) -> None:
    Path("wrong.py").write_text(RIGHT.replace(" / np.sqrt(query.shape[-1])", ""))
    words = said(show("wrong.py:attention"))
    assert "beside All 6 heads differ from what they should be. The first difference is in head 0: query" in words
    assert "1 layer, 6 heads and what they should be, 7 queries, 7 keys" in words
    assert "looks at" not in words, "what it is tried on is random"
    assert "weights head 0; query down, key across right 0 1 2 3" in words
    assert "attention \u2212 right" in words
    first = re.search(r"query (\d) gives [\d.]+ to key (\d)", words).groups()  # type: ignore[union-attr]
    assert "first wrong: query {}, key {}".format(*first) in words
    assert "; qkv check wrong.py:attention tells why" in words
    page = (folder / "show.html").read_text("utf-8")
    assert '"against":"1.0"' in page
    assert "; qkv check wrong.py:attention tells why" in page
    Path("right.py").write_text(RIGHT)
    words = said(show("right.py"))
    assert "beside The weights are those that they should be" in words
    assert "\u2212" not in words, "there is no difference to see"
    assert "tells why" not in words


def test_a_head_of_many_weights_is_left_to_the_page(folder: Path) -> None:
    np.save("long.npy", np.full((1, 1025, 1024), 1 / 1024, np.float32))
    words = said(show("long.npy"))
    assert "1 layer, 1 head, 1,025 queries, 1,024 keys" in words
    assert "query down" not in words
    np.save("short.npy", np.full((1, 1024), 1 / 1024, np.float32))
    assert "1 layer, 1 head, 1 query, 1,024 keys weights attention, head 0; query down" in said(show("short.npy"))


def test_only_some_heads_are_wrong_and_the_page_opens_on_the_first_of_them(folder: Path) -> None:
    """Tiled key/value heads in the place of repeated ones: two heads get the wrong ones."""
    Path("tiled.py").write_text(
        "import numpy as np\n\n\ndef grouped_attention(query, key, value):\n"
        "    times = query.shape[1] // key.shape[1]\n"
        "    key, value = (np.tile(one, (1, times, 1, 1)) for one in (key, value))\n"
        "    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])\n"
        "    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)\n"
        "    return weights @ value\n"
    )
    words = said(show("tiled.py", "--heads", "6", "--kv-heads", "2"))
    assert "beside 2 of 6 heads differ from what they should be. The first difference is in head 1: query 0" in words
    page = (folder / "show.html").read_text("utf-8")
    assert '"focus":{"head":"0.1","cell":[0,0],"said":"2 of 6 heads differ' in page


def test_other_sequences_of_a_batch_are_said_to_be_there(folder: Path) -> None:
    np.save("weights.npy", np.full((2, 1, 3, 3), 1 / 3))
    assert "Sequence 0 of 2, counted from 0; --sequence 1 shows the other" in said(show("weights.npy"))
    write(folder / "dump.npz", {role: array for role, array in tensors_of(run_of()).items() if role in "qk"})
    assert "Sequence 1 of 2, counted from 0; --sequence 0 shows the other" in said(show("dump.npz", "--sequence", "1"))
    np.save("one.npy", np.full((1, 1, 3, 3), 1 / 3))
    assert "Sequence" not in said(show("one.npy"))


def test_what_is_odd_in_weights_is_said(folder: Path) -> None:
    np.save("weights.npy", np.full((3, 3), 0.5))
    assert "3 rows" in said(show("weights.npy"))


def test_an_older_page_is_replaced_and_no_other_file(folder: Path) -> None:
    show()
    show()
    Path("mine.html").write_text("<p>mine")
    assert "no page of qkv" in said(show("--output", "mine.html", code=2))
    assert Path("mine.html").read_text() == "<p>mine"
    show("--output", "mine.html", "--force")
    assert "winter" in Path("mine.html").read_text("utf-8")


def test_a_place_where_nothing_can_be_written_is_said_before_the_work(folder: Path) -> None:
    for place in ("missing/show.html", str(folder), "-"):
        assert "--output is" in said(show("never_read.npz", "--output", place, code=2))


def test_what_can_not_be_shown_leaves_no_page(folder: Path) -> None:
    np.savez("dump.npz", foo=np.zeros((2, 2)), bar=np.zeros(3))
    words = said(show("dump.npz", code=4))
    assert "holds no attention weights" in words
    assert "Try: say what they are called: --tensor weights=NAME" in words
    assert [file.name for file in folder.iterdir()] == ["dump.npz"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "gpt2"], "a model is shown with a text"),
        (["dump.npz", "--model", "gpt2", "--text", "a"], "a model is shown with a text"),
        (["dump.npz", "--text", "a"], "a text is for a language model"),
        (["missing.npz"], "no such file"),
        (["missing.py"], "no such file"),
        (["missing.txt"], "no such file"),
        (["the cat sat"], "Did you mean --text? Write: qkv show --text 'the cat sat'"),
        (["dump.npz", "--heads", "0"], "--heads"),
    ],
)
def test_bad_usage_says_what_to_write(folder: Path, arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(group, ["show", *arguments])
    assert done.exit_code in (2, 4)
    assert words in said(done)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_leaves_no_half_page(folder: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        "long.npz", q=rng.normal(size=(1, 16, 6000, 16)).astype("f4"), k=rng.normal(size=(1, 16, 6000, 16)).astype("f4")
    )
    process = subprocess.Popen([*COMMAND, "show", "long.npz", "--causal"], cwd=folder, env=environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert [file.name for file in folder.iterdir()] == ["long.npz"]


def in_a_terminal(folder: Path, *arguments: str) -> str:
    """What the command writes to a real terminal of 256 colours, 80 columns and 50 lines."""
    reading, writing = pty.openpty()
    variables = environment(TERM="xterm-256color", COLUMNS="80", LINES="50")
    with subprocess.Popen([*COMMAND, *arguments], cwd=folder, env=variables, stdout=writing):
        os.close(writing)
        written = bytearray()
        with suppress(OSError):  # the other end is closed
            while True:
                written += os.read(reading, 2**16)
    os.close(reading)
    return written.decode()


def test_cells_at_the_end_of_a_line_are_painted_in_a_terminal(folder: Path) -> None:
    np.save("weights.npy", np.random.default_rng(0).dirichlet(np.ones(20), size=20))
    written = in_a_terminal(folder, "show", "weights.npy")
    cells = [re.findall(r"\x1b\[[0-9;]*48;5;\d+m( +)", line) for line in written.splitlines()]
    assert cells.count(["  "] * 20) == 20, "20 rows of 20 cells, two spaces each"
