"""What is recorded of NumPy candidates, which must not notice it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from qkv.adapters.host import Host
from qkv.adapters.messages import Call

Watch = Callable[..., Any]

X = np.random.default_rng(0).normal(size=(3, 4))


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("x @ x.T", "matmul"),
        ("np.matmul(x, x.T)", "matmul"),
        ("np.dot(x, x.T)", "dot"),
        ("np.einsum('id,jd->ij', x, x)", "einsum"),
        ("x * 2", "mul"),
        ("np.multiply(2, x)", "mul"),
        ("x / np.sqrt(4)", "div"),
        ("np.maximum(x, 0)", "maximum"),
        ("x.sum(-1)", "sum"),
        ("np.sum(x, axis=-1)", "sum"),
        ("np.add.reduce(x, axis=-1)", "sum"),
        ("x.max(axis=1, keepdims=True)", "max"),
        ("np.max(x)", "max"),
        ("x.reshape(2, 6)", "reshape"),
        ("np.swapaxes(x, 0, 1)", "transpose"),
        ("np.concatenate([x, x], axis=0)", "cat"),
        ("np.stack([row for row in x])", "stack"),
        ("np.where(x > 0, x, -np.inf)", "where"),
        ("x[:, None]", "getitem"),
        ("np.exp(x, where=x > 0, out=np.zeros((3, 4)))", "exp"),
        ("np.linalg.norm(x, axis=-1)", "norm"),
        ("np.asarray([1.0, 2.0])", "asarray"),
        ("zeros((2, 2))", "zeros"),
        ("np.random.default_rng(0).normal(size=3)", "normal"),
        ("np.random.RandomState(0).rand(2) + x[:2, :2]", "add"),
    ],
)
def test_one_name_for_all_spellings(watch: Watch, expression: str, name: str) -> None:
    seen = watch(
        f"""
        import numpy as np
        from numpy import zeros

        def attention(x):
            return {expression}
        """,
        X,
    )
    assert seen.names()[-1] == name
    assert seen.codes()[-1] == expression


def test_rows_of_a_loop_are_taken_down(watch: Watch) -> None:
    seen = watch(
        """
        import numpy as np

        def attention(x):
            out = np.empty_like(x)
            for i, row in enumerate(x):
                out[i] = row * 2
            return out
        """,
        X,
    )
    assert seen.names() == ["empty_like", *["getitem", "mul", "setitem"] * 3]
    for step, (took, doubled) in enumerate(zip(seen.operations("getitem"), seen.operations("mul"), strict=True)):
        assert doubled.arguments[0].value in took.results
        np.testing.assert_array_equal(seen.array(took.results[0]), X[step])
    last = seen.operations("setitem")[-1]
    assert last.in_place
    assert last.results == [*seen.recording.returned]
    assert seen.place(last).code == "out[i] = row * 2"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("scores += 1", "add"),
        ("scores[:, 1:] = 5", "setitem"),
        ("scores[scores > 0] *= -1", "setitem"),
        ("np.exp(scores, out=scores)", "exp"),
        ("np.add.at(scores, 0, 1.0)", "add.at"),
        ("np.copyto(scores, 3.0)", "copyto"),
        ("np.fill_diagonal(scores, -9.0)", "fill_diagonal"),
        ("scores.fill(0)", "fill"),
        ("scores.sort()", "sort"),
        ("scores[0] = scores[1]", "setitem"),
        ("row = scores[2]; row -= 1", "sub"),
        ("scores.T[0] = 1", "setitem"),
        ("flat = scores.reshape(-1); flat[3:] = 0", "setitem"),
    ],
)
def test_what_is_changed_in_place_is_a_result_of_the_change(watch: Watch, change: str, name: str) -> None:
    seen = watch(
        f"""
        import numpy as np

        def attention(x):
            scores = x * 1
            {change}
            return scores - 1
        """,
        X,
    )
    changed, used = seen.operations(name)[0], seen.recording.operations[-1]
    assert changed.in_place
    assert used.arguments[0].value in changed.results
    np.testing.assert_array_equal(seen.array(seen.operations("mul")[0].results[0]), X)
    np.testing.assert_array_equal(seen.array(used.arguments[0]) - 1, seen.watched.returned[0].array)


def test_numbers_taken_out_of_an_array_are_followed(watch: Watch) -> None:
    seen = watch(
        """
        import numpy as np

        def attention(x):
            scores = np.zeros((3, 3))
            for i in range(3):
                for j in range(3):
                    scores[i, j] = x[i] @ x[j]
            return scores / np.sqrt(x.shape[-1])
        """,
        X,
    )
    for product, stored in zip(seen.operations("matmul"), seen.operations("setitem"), strict=True):
        assert stored.arguments[2].value in product.results
    assert seen.operation("div").arguments[1] == 2.0


CLASS = """
import numpy as np
from numpy import tri

SLOPES = np.arange(3.0)
made_before = np.zeros


class Attention:
    def __init__(self):
        self.W = {"q": np.eye(4)}
        self.b = np.full(4, 0.5)
        self.seen = None

    def __call__(self, x, y):
        assert x is y and isinstance(x, np.ndarray) and type(x).__name__ == "ndarray"
        self.seen = np.array(x)
        return (x @ self.W["q"] + self.b) * SLOPES[:, None] + tri(3) @ y
"""


def test_a_class_with_weights(watch: Watch) -> None:
    x = X.copy()
    seen = watch(CLASS, x, x, init={})
    assert {"x", "SLOPES"} <= seen.sources()
    assert [one.name for one in seen.recording.operations if one.during == "build"] == ["eye", "full"]
    assert seen.operations("add")[0].arguments[1].value in seen.operation("full").results
    assert seen.operations("matmul")[0].arguments[1].value in seen.operation("eye").results


def test_nothing_of_the_candidate_is_changed(write: Callable[[str], str]) -> None:
    makers = dict(vars(np)), dict(vars(np.random))
    host, path = Host(), write(CLASS)
    host.open(f"{path}:Attention")
    host.build({})
    module = next(one for one in sys.modules.values() if getattr(one, "__file__", "") == path)
    before = dict(vars(module))
    reply = host.call(Call([X, X], watched=True))
    assert reply.recording is not None
    assert (dict(vars(np)), dict(vars(np.random))) == makers
    assert all(vars(module)[name] is value for name, value in before.items())
    assert type(module.SLOPES) is np.ndarray


@pytest.mark.parametrize("strided", [False, True])
def test_the_arrays_given_keep_their_memory(watch: Watch, strided: bool) -> None:
    seen = watch(
        """
        import numpy as np

        def attention(x):
            x[0] = 0
            return np.ravel(x, order="K") + x.strides[0] * x.flags.c_contiguous
        """,
        np.ones((2, 3, 4)), strided=strided,
    )  # fmt: skip
    assert list(seen.watched.changed) == list(seen.unwatched.changed) == ["0"]


def test_words_and_objects_stay_as_they_are(watch: Watch) -> None:
    seen = watch(
        """
        import numpy as np

        def attention(x):
            names = np.array(["a", "b"])
            anything = np.array([None, {}], dtype=object)
            assert type(names) is type(anything) is np.ndarray
            return x + len(names[names == "a"])
        """,
        X,
    )
    assert seen.names() == ["add"]


def test_a_candidate_that_can_not_be_watched_runs_unwatched(write: Callable[[str], str]) -> None:
    host = Host()
    path = write("def attention(x):\n    assert type(x).__mro__[1] is object\n    return x + x")
    host.open(f"{path}:attention")
    reply = host.call(Call([X], watched=True))
    assert reply.recording is None
    np.testing.assert_array_equal(reply.returned[0].array, X + X)


def test_torch_is_not_imported(write: Callable[[str], str]) -> None:
    path = write("import numpy as np\ndef attention(x):\n    return x @ x.T")
    code = f"""
import sys
import numpy as np
from qkv.adapters.host import Host
from qkv.adapters.messages import Call

host = Host()
host.open("{path}:attention")
recording = host.call(Call([np.ones((3, 4))], watched=True)).recording
assert [one.name for one in recording.operations] == ["T", "matmul"]
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
