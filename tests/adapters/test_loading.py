"""Finding the candidate: which file, which name in it, and what is said when that fails."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from qkv.adapters.choosing import words_of
from qkv.adapters.loading import Loaded, load
from qkv.adapters.targets import absolute, split_target
from qkv.errors import CandidateError
from qkv.request import Request

Write = Callable[..., str]


@pytest.fixture(autouse=True)
def imports_put_back() -> Iterator[None]:
    path, modules, hooks = list(sys.path), set(sys.modules), list(sys.path_hooks)
    yield
    sys.path[:], sys.path_hooks[:] = path, hooks
    for name in set(sys.modules) - modules:
        if not name.startswith(("torch", "numpy")):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "mine.py") -> str:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")
        return str(file)

    return write


def failure(target: str) -> CandidateError:
    with pytest.raises(CandidateError) as caught:
        load(target)
    return caught.value


# --- the target -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "path", "name"),
    [
        ("attention.py", "attention.py", ""),
        ("attention.py:Head", "attention.py", "Head"),
        ("a/b.py:Model.attn", "a/b.py", "Model.attn"),
        (r"C:\work\x.py:Name", r"C:\work\x.py", "Name"),
        (r"C:\work\x.py", r"C:\work\x.py", ""),
        ("package.module:Name", "package.module", "Name"),
        ("package.module", "package.module", ""),
    ],
)
def test_a_target_is_split_into_file_and_name(target: str, path: str, name: str) -> None:
    assert split_target(target) == (path, name)


def test_the_words_of_a_name() -> None:
    assert words_of("MultiHeadAttentionV2") == ["multi", "head", "attention", "v2"]
    assert words_of("CausalMHA_cached") == ["causal", "mha", "cached"]


def test_a_missing_file_names_the_nearest_one(write: Write, tmp_path: Path) -> None:
    write("x = 1", "attention.py")
    error = failure(str(tmp_path / "atention.py"))
    assert error.message == f"no such file: {tmp_path / 'atention.py'}"
    assert error.hint == "did you mean 'attention.py'?"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert failure(str(tmp_path / "none" / "x.py")).hint == f"there is no folder {tmp_path / 'none'}"


def test_a_directory_names_its_files(write: Write, tmp_path: Path) -> None:
    write("x = 1", "attention.py")
    error = failure(str(tmp_path))
    assert error.message == f"{tmp_path} is a directory"
    assert "attention.py" in error.hint


def test_a_notebook_without_cells_is_told_to_be_saved_again(write: Write) -> None:
    error = failure(write("{}", "lesson.ipynb"))
    assert error.message.endswith("lesson.ipynb is no notebook")
    assert "save it again in Jupyter" in error.hint


def test_what_a_notebook_defines_is_loaded(write: Write) -> None:
    source = ["%matplotlib inline\n", "def attention(query, key, value): return value"]
    notebook = {"cells": [{"cell_type": "code", "source": source}]}
    loaded = load(write(json.dumps(notebook), "lesson.ipynb"))
    assert (loaded.name, loaded.value(1, 2, 3)) == ("attention", 3)


def test_a_file_that_is_not_python(write: Write) -> None:
    assert "ends in .py" in failure(write("hello", "notes.txt")).hint


def test_a_module_that_does_not_exist() -> None:
    assert failure("no_such_package.module:Name").message == "no such file or module: no_such_package.module"


# --- running the file -------------------------------------------------------------------------------------------------

FUNCTION = """
    def attention(q, k, v):
        return v
"""


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing yet\n"])
def test_an_empty_file(write: Write, text: str) -> None:
    assert failure(write(text)).message.endswith("mine.py holds no code")


def test_a_syntax_error_shows_line_and_caret(write: Write) -> None:
    error = failure(write("def attention(q):\n    return (q\n"))
    assert error.message.endswith("mine.py:2 is not Python: '(' was never closed")
    assert error.detail == "    return (q\n           ^"


def test_a_notebook_line_is_explained(write: Write) -> None:
    assert "start with % or !" in failure(write("!pip install torch\n")).hint


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(b"x = '\xff\xfe'\n")
    assert "mine.py" in failure(str(file)).message
    file.write_bytes(b"x = 1\x00\n")
    assert "mine.py" in failure(str(file)).message


@pytest.mark.parametrize(
    "start",
    [b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\r\nname = '\xe9'\r\n", b"# one\r\n"],
    ids=["byte order mark", "coding cookie", "carriage returns"],
)
def test_files_as_editors_write_them(tmp_path: Path, start: bytes) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(start + b"def attention(q, k, v):\r\n    return v\r\n")
    assert load(str(file)).name == "attention"


def test_a_missing_package_says_how_to_install_it(write: Write) -> None:
    error = failure(write("import no_such_package_of_ours\n" + dedent(FUNCTION)))
    assert error.message.endswith("mine.py needs no_such_package_of_ours, which is not installed")
    assert error.hint.startswith("pip install no_such_package_of_ours; or, if it is a file of your own")
    assert error.detail.endswith("line 1, in <module>\n    import no_such_package_of_ours")


def test_a_missing_torch_is_ours_to_install(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    assert failure(write("import torch\n")).hint == "pip install 'qkv[torch]'"


def test_an_exception_shows_only_the_lines_of_the_file(write: Write) -> None:
    path = write(
        """
        import json
        def parse(text):
            return json.loads(text)
        settings = parse("{")
        """
    )
    error = failure(path)
    assert error.message.startswith(f"importing {path} raised JSONDecodeError: Expecting property name")
    assert error.detail.splitlines() == [
        f'File "{path}", line 5, in <module>',
        '    settings = parse("{")',
        f'File "{path}", line 4, in parse',
        "    return json.loads(text)",
    ]


def test_an_exit_at_import(write: Write) -> None:
    error = failure(write("import sys\nsys.exit('done')\n"))
    assert error.message.endswith("mine.py ended the program: sys.exit('done')")


def test_the_main_block_does_not_run(write: Write) -> None:
    assert load(write(dedent(FUNCTION) + "if __name__ == '__main__':\n    raise SystemExit(1)\n")).name == "attention"


def test_nothing_is_left_beside_the_file(write: Write, tmp_path: Path) -> None:
    write("def softmax(x):\n    return x\n", "helpers.py")
    load(write("from helpers import softmax\n" + dedent(FUNCTION)))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["helpers.py", "mine.py"]


def test_a_file_named_like_a_module_in_use(write: Write) -> None:
    loaded = load(write("import json\n" + dedent(FUNCTION), "random.py"))
    assert loaded.value(1, 2, 3) == 3
    assert sys.modules["random"] is not loaded.module


def test_relative_imports_in_a_package(write: Write) -> None:
    write("", "pack/__init__.py")
    write("", "pack/inner/__init__.py")
    write("SCALE = 7\n", "pack/common.py")
    path = write("from ..common import SCALE\ndef attention(q, k, v):\n    return SCALE\n", "pack/inner/mine.py")
    loaded = load(path)
    assert loaded.value(0, 0, 0) == 7
    assert loaded.module.__name__ == "pack.inner.mine"


def test_relative_imports_outside_a_package(write: Write) -> None:
    error = failure(write("from .common import SCALE\n", "loose/mine.py"))
    assert "attempted relative import" in error.message
    assert "put an __init__.py into" in error.hint


def test_a_broken_package_does_not_stop_a_file_that_needs_nothing_of_it(write: Write) -> None:
    write("import no_such_package_of_ours\n", "pack/__init__.py")
    assert load(write(FUNCTION, "pack/mine.py")).name == "attention"


def test_an_import_path(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(FUNCTION, "here/there.py")
    monkeypatch.chdir(tmp_path)
    assert load("here.there:attention").name == "attention"
    assert load("here.there").name == "attention"


def test_dotted_names(write: Write) -> None:
    path = write(
        """
        class Model:
            class Inner:
                def forward(self, x):
                    return x
        """
    )
    assert load(f"{path}:Model.Inner").value.__name__ == "Inner"


def test_an_unknown_name_names_the_nearest(write: Write) -> None:
    path = write(FUNCTION)
    error = failure(f"{path}:atention")
    assert error.message == f"{path} has no 'atention'"
    assert error.hint == "did you mean 'attention'?"


def test_a_class_within_another_is_named_in_full(write: Write) -> None:
    path = write("class Outer:\n    class Attn:\n        def forward(self, x): ...\ndef attend(q, k, v): ...\n")
    assert failure(f"{path}:Attn").hint == "did you mean 'Outer.Attn'?"


def test_a_name_that_is_no_attention(write: Write) -> None:
    path = write("weights = [1, 2]\n" + dedent(FUNCTION))
    error = failure(f"{path}:weights")
    assert error.message == f"weights in {path} is a list, which can't be called"
    assert error.hint == "these can be checked: attention"


# --- which one --------------------------------------------------------------------------------------------------------

HEAD = """
    import torch.nn as nn
    class Head(nn.Module):
        def forward(self, x): return x
"""
MULTI = """
    class MultiHeadAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList([Head() for _ in range(2)])
        def forward(self, x): return x
"""
BLOCK = """
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = MultiHeadAttention()
        def forward(self, x): return self.attn(x)
    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = [Block()]
        def forward(self, x): return x
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (HEAD, "Head"),
        (HEAD + MULTI, "MultiHeadAttention"),
        (HEAD + MULTI + BLOCK, "MultiHeadAttention"),
        (HEAD + MULTI + "    mha = MultiHeadAttention()\n", "MultiHeadAttention"),
        ("from torch.nn import MultiheadAttention\nmine = MultiheadAttention(4, 2)\n", "mine"),
        ("def softmax(x): ...\ndef repeat_kv(x, n): ...\ndef sdpa(q, k, v): return softmax(q)\n", "sdpa"),
        ("def softmax(x): ...\ndef solve(Q, K, V): ...\n", "solve"),
        ("def attention_weights(x): ...\ndef context_vectors(x): return attention_weights(x)\n", "context_vectors"),
        ("def attention(q, k, v): ...\ndef reference_attention(q, k, v): ...\n", "attention"),
        ("def plot_attention(w): ...\ndef causal_mask(n): ...\ndef flash(q, k, v): ...\n", "flash"),
        ("def _attention(q, k, v): ...\ndef attention(q, k, v): return _attention(q, k, v)\n", "attention"),
        ("attention = lambda q, k, v: v\n", "attention"),
        ("class A:\n  def __call__(self, x): ...\nclass LayerNorm:\n  def __call__(self, x): ...\n", "A"),
        ("import torch\ndef make_attention():\n    return torch.nn.MultiheadAttention(4, 2)\n", "make_attention"),
        ("from functools import partial\ndef f(q, k, v, n): ...\nattention = partial(f, n=2)\n", "attention"),
        ("class Model:\n    def forward(self, x): ...\ndef get_inputs(): ...\n", "Model"),
        ("if True:\n    def attention(q, k, v): ...\nelse:\n    attention = None\n", "attention"),
        ("class Att:\n    def __call__(self, x): ...\nclass FastAtt(Att): ...\n", "FastAtt"),
    ],
)
def test_the_one_attention_of_a_file_needs_no_name(write: Write, text: str, name: str) -> None:
    assert load(write(text)).name == name


def test_the_other_candidates_are_told(write: Write) -> None:
    loaded: Loaded = load(write(HEAD + MULTI + BLOCK))
    assert loaded.members == ["Head"]


def test_several_attentions_are_listed(write: Write) -> None:
    path = write(
        """
        class SelfAttention_v1:
            def forward(self, x): ...
        class SelfAttention_v2:
            def forward(self, x): ...
        """
    )
    error = failure(path)
    assert error.message == f"{path} has 2 attentions: SelfAttention_v1, SelfAttention_v2"
    assert error.hint.splitlines() == [
        "say which one is meant:",
        f"  qkv check {path}:SelfAttention_v1",
        f"  qkv check {path}:SelfAttention_v2",
    ]


def test_what_computes_nothing_when_called_is_none_of_several(write: Write) -> None:
    sound = "def attention(q, k, v): return v\n"
    idle = "async def attention_a(q, k, v): ...\ndef attention_b(q, k, v): yield v\n"
    assert load(write(idle + sound)).name == "attention"


def test_attentions_that_are_not_judged_are_told_where_none_was_named(write: Write) -> None:
    helper = "def mixed(q, k, v): ...\ndef flash(q, k, v): ...\ndef generate(x): ...\n"
    path = write(f"{helper}class CausalAttention:\n    def forward(self, x): return mixed(x, x, x)\n")
    assert load(path).name == "CausalAttention"
    assert load(path).beside == ["flash"]
    assert load(f"{path}:CausalAttention").beside == ()


def test_a_missing_file_is_not_taken_for_any_other(write: Write) -> None:
    folder = Path(write("def attention(q, k, v): ...\n")).parent
    (folder / "syntax.py").write_text("")
    assert failure(str(folder / "missing.py")).hint.startswith("known: ")
    assert failure(str(folder / "sintax.py")).hint == "did you mean 'syntax.py'?"
    assert "syntax.py '" in failure(f"{folder / 'syntax.py'} ").message


def test_several_unlikely_ones_are_not_called_attentions(write: Write) -> None:
    error = failure(write("def alpha(x): ...\ndef beta(x): ...\n"))
    assert "speaks of attention: it has the functions alpha, beta" in error.message


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("weights = 3\nprint(weights)\n", "it defines no class and no function"),
        ("class Config:\n    n = 3\ndef main(): ...\n", "it has the class Config and the function main"),
        ("class GPT:\n    def forward(self, x): ...\n", "it has the class GPT"),
        ("import torch\n", "it defines no class and no function"),
    ],
)
def test_no_attention_says_what_there_is(write: Write, text: str, contents: str) -> None:
    error = failure(write(text))
    assert error.message.endswith(f"mine.py: {contents}")
    assert error.message.startswith("no attention in ")
    assert "def attention(query, key, value)" in error.hint


def test_an_imported_attention_is_offered(write: Write) -> None:
    path = write("from torch.nn import MultiheadAttention\n")
    assert failure(path).hint.splitlines() == [
        "it imports what may be meant:",
        f"  qkv check {path}:MultiheadAttention",
    ]
    assert load(f"{path}:MultiheadAttention").name == "MultiheadAttention"


# --- files that are none ----------------------------------------------------------------------------------------------


def test_no_name_at_all() -> None:
    assert failure("").message == "no file is named"


def test_a_tilde_is_the_home(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    write("def attention(q, k, v): ...\n")
    assert load("~/mine.py:attention").file == str(tmp_path / "mine.py")


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes")
def test_what_can_not_be_read_is_told_why(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert re.search("can't be read: .*symbolic links", failure(str(tmp_path / "loop.py")).message)
    assert failure(str(tmp_path / "pipe.py")).message.endswith("is no regular file")
    assert failure(str(tmp_path / "a.py") + "a" * 5000 + ".py").message.endswith("File name too long")


@pytest.mark.parametrize(
    ("content", "said", "detail"),
    [
        ("x = 1\n# é\n".encode("latin-1"), r"py:2 is not Python: b'\xe9' is no character in UTF-8", "# \ufffd"),
        ("# coding: ascii\nx = 'é'\n".encode(), r"py:2 is not Python: b'\xc3' is no character in ASCII", ""),
        (b"# coding: klingon\n", "is not Python: unknown encoding: klingon", ""),
        (b"x = 1\n\0", "py:2 is not Python: there is a null byte", ""),
        ("x = 1\n".encode("utf-16"), "is text in UTF-16, which Python doesn't read", ""),
        (b"x = " + b"-" * 100_000 + b"1", "is too long, or nested too deeply", ""),
    ],
)
def test_text_that_python_does_not_read_is_told_with_its_line(
    tmp_path: Path, content: bytes, said: str, detail: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(content)
    error = failure(str(file))
    assert said in error.message
    assert detail in error.detail
    assert load_written(file, b"# coding: latin-1\ndef attention(q, k, v):\n    '\xe9'\n").name == "attention"


def load_written(file: Path, content: bytes) -> Loaded:
    file.write_bytes(content)
    return load(str(file))


def test_of_a_long_line_the_part_around_the_place_is_shown(write: Write) -> None:
    code, mark = failure(write("x = [" + "1, " * 1000 + "= 2]\n")).detail.splitlines()
    assert len(code) <= 200
    assert code[len(mark) - 1] == "="


@pytest.mark.parametrize(
    ("module", "package"), [("sklearn", "scikit-learn"), ("PIL", "pillow"), ("flash_attn", "flash-attn")]
)
def test_pips_own_name_is_told(write: Write, monkeypatch: pytest.MonkeyPatch, module: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [_NotInstalled(module), *sys.meta_path])
    assert failure(write(f"import {module}\n")).hint == f"pip install {package}"


class _NotInstalled:
    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, *_: object) -> None:
        if name == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_relative_imports_are_told_what_they_need(write: Write, tmp_path: Path) -> None:
    file = write("from .helper import scale\n", "folder/mine.py")
    assert failure(file).hint == (
        f"write `from helper import scale`, or make it a package: put an __init__.py into {tmp_path / 'folder'}"
    )
    file = write("from .. import helper\n", "folder/mine.py")
    assert failure(file).hint.endswith(f"put an __init__.py into {tmp_path / 'folder'} and into {tmp_path}")


def test_a_class_that_can_not_be_called_is_told_what_it_lacks(write: Write) -> None:
    error = failure(write("class Attention:\n    def attend(self, x): ...\n"))
    assert "it has the class Attention" in error.message
    assert error.hint == "give Attention a method forward(self, x): nothing else in it is called"


def test_an_async_function_is_found(write: Write) -> None:
    assert load(write("async def attention(q, k, v): ...\n")).name == "attention"


def test_a_text_stands_in_for_a_file_that_is_named_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.py").write_text("def attention(q, k, v):\n    return v\n")
    request = Request("~/mine.py", instead={absolute("~/mine.py"): b"other"})
    assert absolute("~/mine.py") == str(tmp_path / "mine.py")
    assert request.source == b"other"
