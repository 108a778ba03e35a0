"""What is recorded of torch candidates: one name an operation, its expression, and each state of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from qkv.adapters.host import Host
from qkv.adapters.messages import Call, Cotangent

Watch = Callable[..., Any]

X = np.random.default_rng(0).normal(size=(3, 4))
Q, K, V = (np.random.default_rng(seed).normal(size=(2, 3, 5, 4)) for seed in (1, 2, 3))


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("x @ x.mT", "matmul"),
        ("torch.matmul(x, x.mT)", "matmul"),
        ("x.matmul(x.mT)", "matmul"),
        ("torch.mm(x, x.T)", "matmul"),
        ("x * 2", "mul"),
        ("2 * x", "mul"),
        ("torch.multiply(x, 2)", "mul"),
        ("x / 2", "div"),
        ("x.div(2)", "div"),
        ("F.softmax(x, dim=-1)", "softmax"),
        ("torch.softmax(x, -1)", "softmax"),
        ("x.softmax(-1)", "softmax"),
        ("nn.Softmax(dim=-1)(x)", "softmax"),
        ("x.masked_fill(x > 0, -1)", "masked_fill"),
        ("x.clone().masked_fill_(x > 0, -1)", "masked_fill"),
        ("~(x > 0)", "bitwise_not"),
        ("torch.cat([x, x])", "cat"),
        ("x.swapaxes(0, 1)", "transpose"),
        ("x[:, None]", "getitem"),
    ],
)
def test_one_name_for_all_spellings(watch: Watch, expression: str, name: str) -> None:
    seen = watch(
        f"""
        import torch
        from torch import nn
        import torch.nn.functional as F

        def attention(x):
            return {expression}
        """,
        X,
    )
    assert seen.names()[-1] == name
    assert seen.codes()[-1] == expression
    assert seen.place(seen.recording.operations[-1]).line == 7


def test_reflected_operators_have_their_arguments_in_order(watch: Watch) -> None:
    seen = watch("import torch\ndef attention(x):\n    return 1 - x, 2 / x", X)
    subtracted, divided = seen.operation("sub"), seen.operation("div")
    assert subtracted.arguments[0] == 1
    assert divided.arguments[0] == 2
    np.testing.assert_array_equal(seen.array(subtracted.arguments[1]), X)


def test_arguments(watch: Watch) -> None:
    seen = watch(
        """
        import torch
        import torch.nn.functional as F

        def attention(query, key, value):
            mask = torch.ones(5, 5, dtype=torch.bool).tril()
            first = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=0.0, scale=0.5)
            return first + torch.einsum("bhqd,bhkd,bhkv->bhqv", query, key, value)[..., 0:4]
        """,
        Q, K, V,
    )  # fmt: skip
    fused = seen.operation("scaled_dot_product_attention")
    for argument, array in zip(fused.arguments, (Q, K, V), strict=True):
        np.testing.assert_array_equal(seen.array(argument), array)
    np.testing.assert_array_equal(seen.array(fused.keywords["attn_mask"]), np.tri(5, dtype=bool))
    assert (fused.keywords["scale"], fused.keywords["dropout_p"]) == (0.5, 0.0)
    assert seen.operation("einsum").arguments[0] == "bhqd,bhkd,bhkv->bhqv"
    assert seen.operation("getitem").arguments[1] == ("Ellipsis", ("slice", 0, 4, None))
    assert seen.operation("ones").keywords == {"dtype": "torch.bool"}


def test_reads_of_form_are_no_operations(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        def attention(x):
            n, d = x.shape
            x.size(0), x.dim(), x.dtype, x.device, x.numel(), x.stride(), x.is_contiguous(), x[0, 0].item(), len(x)
            return x * d
        """,
        X,
    )
    assert seen.names() == ["getitem", "mul"]


def test_places(watch: Watch) -> None:
    seen = watch(
        """
        import torch
        from torch import nn

        def scores(q, k):
            return q @ k.mT

        class Base(nn.Module):
            def weigh(self, s):
                return (
                    s / 2
                ).softmax(-1)

        class Attention(Base):
            def __init__(self, d_in):
                super().__init__()
                self.W_query = nn.Linear(d_in, 6)
                self.heads = nn.ModuleList(nn.Linear(d_in, 3) for _ in range(2))

            def forward(self, x):
                query = self.W_query(x)
                parts = [head(x) for head in self.heads]
                weights = self.weigh(scores(query, torch.cat(parts, dim=-1)))
                weights = weights + 0; out: torch.Tensor = weights @ x
                for row in (half := out / 2):
                    pass
                x += out
                x[0] = 1
                return x
        """,
        X, init={"d_in": 4},
    )  # fmt: skip
    places = [(one.line, one.function, one.code, one.target) for one in map(seen.place, seen.recording.operations)]
    assert places == [
        (21, "Attention.forward", "self.W_query(x)", "query"),
        (22, "Attention.forward", "head(x)", "parts"),
        (22, "Attention.forward", "head(x)", "parts"),
        (23, "Attention.forward", "torch.cat(parts, dim=-1)", "weights"),
        (6, "scores", "k.mT", ""),
        (6, "scores", "q @ k.mT", ""),
        (11, "Base.weigh", "s / 2", ""),
        (10, "Base.weigh", "(\n            s / 2\n        ).softmax(-1)", ""),
        (24, "Attention.forward", "weights + 0", "weights"),
        (24, "Attention.forward", "weights @ x", "out"),
        (25, "Attention.forward", "out / 2", "half"),
        (25, "Attention.forward", "half := out / 2", "half"),
        (27, "Attention.forward", "x += out", "x"),
        (28, "Attention.forward", "x[0] = 1", "x[0]"),
    ]
    assert seen.place(seen.operations("softmax")[0]).end_line == 12


def test_what_the_very_expression_is_assigned_to(watch: Watch) -> None:
    seen = watch(
        """
        def attention(x):
            q, k = x * 1, x * 2
            a, b = (one - 3 for one in (q, k))
            c = [one - 4 for one in (q, k)]
            d = a * 5 if len(c) else b
            e = (
                a * 6
                + b
            )
            e += b * 7
            e[0] = b[0] * 8
            return (f := e / 9)
        """,
        X,
    )  # fmt: skip
    made = [(place.code.split("\n")[0], place.makes) for place in map(seen.place, seen.recording.operations)]
    assert list(dict.fromkeys(made)) == [
        ("x * 1", "q"),
        ("x * 2", "k"),
        ("one - 3", "a, b"),
        ("one - 4", ""),
        ("a * 5", "d"),
        ("a * 6", ""),
        ("a * 6", "e"),
        ("b * 7", ""),
        ("e += b * 7", "e"),
        ("b[0]", ""),
        ("b[0] * 8", "e[0]"),
        ("e[0] = b[0] * 8", "e"),
        ("e / 9", "f"),
    ]


def test_arrays_that_no_operation_made_have_names(watch: Watch) -> None:
    seen = watch(
        """
        import torch
        from torch import nn

        TABLE = torch.ones(4)

        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.proj = nn.ModuleDict({"q": nn.Linear(4, 4)})
                self.plain = torch.full((4,), 2.0)

            def forward(self, x, *more, past, mask=None):
                return self.proj["q"](x) * TABLE + self.plain + more[1] + past[0]["k"] + mask
        """,
        X, X + 1, X + 2, init={}, kwargs={"past": [{"k": X + 3}], "mask": X + 4},
    )  # fmt: skip
    sources = {"x", "more.1", "past.0.k", "mask", "TABLE", "self.proj.q.weight", "self.proj.q.bias"}
    assert seen.sources() == sources  # self.plain was made by an operation while building


def test_what_is_changed_in_place_has_a_new_number(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        def attention(x):
            scores = x * 1
            scores.masked_fill_(x > 0, 7.0)
            return scores + scores
        """,
        X,
    )
    made, filled, added = (seen.operation(name) for name in ("mul", "masked_fill", "add"))
    assert filled.in_place
    assert not made.in_place
    assert filled.arguments[0].value == made.results[0] != filled.results[0]
    assert {one.value for one in added.arguments} == set(filled.results)
    np.testing.assert_array_equal(seen.array(made.results[0]), X)
    np.testing.assert_array_equal(seen.array(filled.results[0]), np.where(X > 0, 7.0, X))


def test_what_is_changed_through_a_view_is_a_result_of_the_change(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        def attention(x):
            out = torch.zeros(3, 4)
            for i in range(3):
                row = out[i]
                row.copy_(x[i])
            torch.exp(x, out=out[0:3].view(12).view(3, 4))
            return out * 1
        """,
        X,
    )
    exponential, used = seen.operation("exp"), seen.operation("mul")
    assert exponential.in_place
    assert used.arguments[0].value in exponential.results
    np.testing.assert_allclose(seen.array(used.arguments[0]), np.exp(X))
    assert all(one.in_place for one in seen.operations("copy"))


def test_what_is_changed_unseen_is_another_value(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        def attention(x):
            scores = torch.mul(x, 1)
            memoryview(scores.numpy()).cast("B")[:8] = bytes(8)
            return scores + 0
        """,
        X,
    )
    made, used = seen.operation("mul"), seen.operation("add")
    assert used.arguments[0].value not in made.results
    assert seen.array(used.arguments[0])[0, 0] == 0


def test_building_is_recorded_and_joined_to_the_call(watch: Watch) -> None:
    seen = watch(
        """
        import torch
        from torch import nn

        class Attention(nn.Module):
            def __init__(self, length):
                super().__init__()
                self.W = nn.Parameter(torch.ones(4, 4) / 2)
                self.proj = nn.Linear(4, 4)
                nn.init.xavier_uniform_(self.proj.weight)
                self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))
                self.hidden = self.mask.bool()

            def forward(self, x):
                return (self.proj(x) @ self.W) @ x.mT + self.mask + self.hidden
        """,
        X, init={"length": 3},
    )  # fmt: skip
    built = [one for one in seen.recording.operations if one.during == "build"]
    assert [one.name for one in built] == ["ones", "div", "ones", "triu", "bool"]
    triangle = seen.operation("triu")
    assert (triangle.keywords, seen.place(triangle).target) == ({"diagonal": 1}, "self.mask")
    assert seen.place(triangle).function == "Attention.__init__"
    used = {one.value for one in seen.operations("add")[0].arguments + seen.operations("add")[1].arguments}
    assert {*triangle.results, *seen.operation("bool").results} <= used
    assert seen.operations("matmul")[0].arguments[1].value == seen.operation("div").results[0]


def test_weights_that_were_assigned_are_no_longer_those_of_building(watch: Watch, write: Callable[[str], str]) -> None:
    source = """
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            return x @ self.W
    """
    host = Host()
    host.open(f"{write(source)}:Attention")
    host.build({})
    host.assign({"W": np.full((4, 4), 3.0)})
    recording = host.call(Call([X], watched=True)).recording
    assert recording is not None
    used = recording.values[recording.operations[-1].arguments[1].value]
    assert (used.name, used.array[0, 0]) == ("self.W", 3.0)


def test_a_factory_is_watched_while_it_makes_the_module(watch: Watch) -> None:
    seen = watch(
        """
        import torch
        from torch import nn

        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mask", torch.ones(4).cumsum(0))

            def forward(self, x):
                return x * self.mask

        def attention():
            return Module()
        """,
        X,
    )
    assert seen.operation("mul").arguments[1].value in seen.operation("cumsum").results


def test_numpy_inside_torch(watch: Watch) -> None:
    seen = watch(
        """
        import numpy as np
        import torch

        def attention(x):
            table = torch.from_numpy(np.tri(3) * 2)
            scores = (x @ x.mT).numpy()
            e = np.exp(scores - scores.max(-1, keepdims=True))
            return table @ (torch.from_numpy(e) @ x)
        """,
        X,
    )
    assert [name for name in seen.names() if name not in ("mT", "numpy", "from_numpy")] == [
        "tri", "mul", "matmul", "max", "sub", "exp", "matmul", "matmul",
    ]  # fmt: skip
    last = seen.operations("matmul")[-1]
    np.testing.assert_array_equal(seen.array(last.arguments[0]), np.tri(3) * 2)
    made = {number for one in seen.recording.operations for number in one.results}
    assert all(number in made or value.name == "x" for number, value in enumerate(seen.recording.values))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_other_precisions(watch: Watch, dtype: str) -> None:
    seen = watch("import torch\ndef attention(x):\n    return x + x", X, dtype=dtype)
    value = seen.recording.values[seen.recording.returned[0]]
    assert value.dtype == dtype
    assert value.array.dtype == np.float64
    np.testing.assert_array_equal(value.array, seen.watched.returned[0].array)


def test_complex_rotation(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        def attention(x):
            turned = torch.view_as_complex(x.reshape(3, 2, 2)) * torch.polar(torch.ones(3, 2), torch.ones(3, 2))
            return torch.view_as_real(turned).flatten(1)
        """,
        X,
    )
    assert seen.array(seen.operation("mul").results[0]).dtype == np.complex128


def test_a_long_loop_is_cut_off_and_the_call_goes_on(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        def attention(x):
            total = torch.zeros(())
            for i in range(25_000):
                total = total + 1
            return x + total
        """,
        X,
    )
    assert not seen.recording.complete
    assert len(seen.recording.operations) == 20_000
    assert seen.watched.returned[0].array[0, 0] == X[0, 0] + 25_000


def test_large_arrays_are_told_by_their_names(watch: Watch) -> None:
    seen = watch(
        """
        import torch
        from torch import nn

        class Attention(nn.Module):
            def __init__(self, length):
                super().__init__()
                self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))

            def forward(self, x):
                return x @ x.mT + self.mask[:3, :3]
        """,
        X, init={"length": 3000},
    )  # fmt: skip
    assert not seen.recording.complete
    assert seen.names() == ["mT", "matmul", "getitem", "add"]
    assert seen.operation("getitem").arguments[0] == "self.mask (3000, 3000)"
    np.testing.assert_array_equal(seen.array(seen.operation("getitem").results[0]), np.triu(np.ones((3, 3)), 1))


def test_building_leaves_room_for_the_call(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        class Attention(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.slopes = torch.zeros(())
                for i in range(12_000):
                    self.slopes = self.slopes + 1

            def forward(self, x):
                return x * self.slopes
        """,
        X, init={},
    )  # fmt: skip
    assert not seen.recording.complete
    assert [one.during for one in seen.recording.operations] == ["build"] * 10_000 + ["call"]
    assert seen.sources() == {"x", "self.slopes"}


def test_many_values_are_cut_off(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        def attention(x):
            return x + sum(torch.full((1000, 1000), 1.0 * i)[0, 0] for i in range(20))
        """,
        X,
    )
    assert not seen.recording.complete
    assert sum(one.array.nbytes for one in seen.recording.values) <= 64 << 20
    np.testing.assert_array_equal(seen.watched.returned[0].array, X + 190)


def test_a_watched_call_can_be_differentiated(watch: Watch) -> None:
    seen = watch("import torch\ndef attention(x):\n    y = x * x\n    y += x\n    return y", X,
                 cotangent=Cotangent("", np.ones((3, 4)), arguments=["0"]))  # fmt: skip
    np.testing.assert_allclose(seen.watched.of_arguments["0"], 2 * X + 1)
    assert seen.names() == ["mul", "add"]


UNUSUAL = {
    "vmap": "torch.vmap(lambda row: row * 2)(x) + 1",
    "vmap over a matrix": "torch.func.vmap(torch.dot, in_dims=(0, None))(x, x[0]) + x.sum(-1)",
    "autograd": "Double.apply(x)",
    "script": "scripted(x) + 1",
    "checkpoint": "torch.utils.checkpoint.checkpoint(lambda y: y.exp(), x, use_reentrant=False)",
    "meta": "x + torch.empty(3, 4, device='meta').shape[0]",
    "sparse": "x.to_sparse().to_dense() * 1",
    "nested": "torch.nested.nested_tensor([x[:1], x[1:]]).to_padded_tensor(0.0).sum(0)[0] + x",
    "grad": "torch.func.grad(lambda y: (y ** 2).sum())(x)",
}


@pytest.mark.parametrize("expression", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_what_can_not_be_followed_is_left_out(watch: Watch, expression: str) -> None:
    seen = watch(
        f"""
        import torch
        import torch.utils.checkpoint

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

        @torch.jit.script
        def scripted(x):
            return x * 3

        def attention(x):
            return {expression}
        """,
        X,
    )
    assert seen.recording.returned


def test_compiled_code_runs_as_it_is_written(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        @torch.compile(backend="eager")
        def scores(x):
            return x @ x.mT

        def attention(x):
            return scores(x) / 2
        """,
        X,
    )
    assert seen.names() == ["mT", "matmul", "div"]
    assert seen.place(seen.operation("matmul")).code == "x @ x.mT"


def test_an_operation_knows_the_calls_that_led_to_it(watch: Watch) -> None:
    seen = watch(
        """
        import torch

        def halves(arrays):
            return list(one / 2 for one in arrays)

        def attention(q, k):
            first, = halves([q])
            return first @ halves([k])[0].mT
        """,
        Q,
        K,
    )
    calls = [[seen.recording.places[call].code for call in one.calls] for one in seen.operations("div")]
    assert calls == [["halves([q])"], ["halves([k])"]]
    assert not seen.operation("matmul").calls
