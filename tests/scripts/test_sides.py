"""What makes query, key and value: a matrix that is used twice beside a spare one, and rope on some of the three."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qkv.report import Report, Verdict

PLAIN = """\
import numpy as np
rng = np.random.default_rng(5)
x = rng.normal(size=(5, 6))
A = rng.normal(size=(6, 4))
B = rng.normal(size=(6, 4))
C = rng.normal(size=(6, 4))
a, b, c = x @ A, x @ B, x @ C
s = a @ b.T / 2
w = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
z = w @ c
"""

LAYERS = """\
import torch
from torch import nn
class Uwaga(nn.Module):
    def __init__(self):
        super().__init__()
        self.pytanie = nn.Linear(6, 4)
        self.klucz = nn.Linear(6, 4)
        self.wartosc = nn.Linear(6, 4)
    def forward(self, x):
        p, q, r = self.pytanie(x), self.klucz(x), self.wartosc(x)
        return (p @ q.mT / 2).softmax(-1) @ r
torch.manual_seed(5)
Uwaga()(torch.randn(2, 5, 6))
"""

ROPE = """\
import torch
torch.manual_seed(5)
q, k, v = torch.randn(3, 5, 4).unbind(0)
def rope(x):
    angles = torch.arange(5)[:, None] * torch.tensor([1.0, 0.1]).repeat(2)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()
q = rope(q)
k = rope(k)
context = torch.softmax(q @ k.T / 2, dim=-1) @ v
"""

NORMED = ROPE.replace("k = rope(k)\n", "k = k / k.norm(dim=-1, keepdim=True)\n").replace("q = rope(q)\n", "")

SPANISH = """\
import numpy as np
x = np.random.default_rng(5).normal(size=(4, 3))
peso_consulta, peso_clave, peso_valor = np.random.default_rng(6).normal(size=(3, 3, 2))
consulta, clave, valor = x @ peso_consulta, x @ peso_clave, x @ peso_valor
puntos = consulta @ clave.T / np.sqrt(2)
pesos = np.exp(puntos) / np.exp(puntos).sum(-1, keepdims=True)
salida = pesos @ valor
"""

WORDS = """\
import numpy as np
zufall = np.random.default_rng(5)
eingabe = zufall.normal(size=(2, 5, 12))
gewicht_q, gewicht_k, gewicht_v = zufall.normal(size=(3, 12, 3, 4))
anfragen = np.einsum("btd,dhe->bhte", eingabe, gewicht_q)
schluessel = np.einsum("btd,dhe->bhte", eingabe, gewicht_k)
werte = np.einsum("btd,dhe->bhte", eingabe, gewicht_v)
punkte = np.einsum("bhqe,bhke->bhqk", anfragen, schluessel) / 4**0.5
punkte -= punkte.max(-1, keepdims=True)
anteile = np.exp(punkte)
anteile /= anteile.sum(-1, keepdims=True)
ergebnis = np.einsum("bhqk,bhke->bqhe", anteile, werte)
"""

ADDITIVE = """\
import torch
torch.manual_seed(0)
encoder, decoder = torch.randn(7, 10), torch.randn(10)
W1, W2, v = torch.randn(10, 6), torch.randn(10, 6), torch.randn(6)
energy = torch.tanh(encoder @ W1 + decoder @ W2) @ v
alpha = torch.softmax(energy, dim=0)
context = alpha @ encoder
"""

TEMPERATURE = """\
import numpy as np
x = np.random.default_rng(7).normal(size=(6, 4))
for temperature in (0.5, 1.0):
    scores = x @ x.T / temperature
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    context = weights @ x
"""

SLIPS = {
    "a matrix of the same words": (PLAIN, "x @ C", "x @ B", "projection-reused", "a, b, c = x @ A, x @ B, x @ C"),
    "a layer in another language": (
        LAYERS, "self.klucz(x)", "self.pytanie(x)", "projection-reused",
        "p, q, r = self.pytanie(x), self.klucz(x), self.wartosc(x)",
    ),
    "rope on the query alone": (
        ROPE, "k = rope(k)\n", "", "rope-one-sided", "context = torch.softmax(q @ rope(k).T / 2, dim=-1) @ v",
    ),
    "rope on the key alone": (
        ROPE, "q = rope(q)\n", "", "rope-one-sided", "context = torch.softmax(rope(q) @ k.T / 2, dim=-1) @ v",
    ),
    "rope on the value": (ROPE, "k = rope(k)\n", "k = rope(k)\nv = rope(v)\n", "value-after-rope", ""),
    "a row of weights that is divided by the scores": (
        ADDITIVE, "torch.softmax(energy, dim=0)", "torch.exp(energy) / torch.sum(energy)", "rows-not-one",
        "alpha = torch.softmax(energy, dim=-1)",
    ),
    "keys that are mixed": (SPANISH, "@ valor\n", "@ clave\n", "weights-times-key", "salida = pesos @ valor"),
    "a scale that is missing behind einsum": (
        WORDS, " / 4**0.5", "", "scale-missing",
        'punkte = np.einsum("bhqe,bhke->bhqk", anfragen, schluessel) / schluessel.shape[-1] ** 0.5',
    ),
}  # fmt: skip

HELPER = """\
import torch
torch.manual_seed(5)
def attend(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v
q, k, v = torch.randn(5, 4), torch.randn(5, 4), torch.randn(5, 4)
mask = torch.tril(torch.ones(5, 5))
first = attend(q, k, v)
second = attend(q, k, v, mask)
"""


RIGHT = {"matrices": PLAIN, "layers": LAYERS, "rope": ROPE, "norms": NORMED, "Spanish": SPANISH, "German": WORDS,
         "additive": ADDITIVE, "temperature": TEMPERATURE}  # fmt: skip


@pytest.mark.parametrize(("right", "old", "new", "fault", "after"), SLIPS.values(), ids=list(SLIPS))
def test_a_side_that_is_made_of_another_is_mended(
    right: str, old: str, new: str, fault: str, after: str, report_on: Callable[[str], Report]
) -> None:
    report = report_on(right.replace(old, new))
    assert (report.verdict, [one.id for one in report.faults]) == (Verdict.WRONG, [fault])
    assert report.patch is not None
    assert report.patch.after.strip() == after
    assert report.line is not None
    assert report.line.line == report.patch.line


@pytest.mark.parametrize("source", RIGHT.values(), ids=list(RIGHT))
def test_what_these_were_made_of_is_right(source: str, report_on: Callable[[str], Report]) -> None:
    report = report_on(source)
    assert (report.verdict, report.why) == (Verdict.RIGHT, "")


def test_what_a_helper_is_handed_is_mended_where_it_is_called(report_on: Callable[[str], Report]) -> None:
    for old, new, after in (
        ("second = attend(q, k, v, mask)", "second = attend(q, v, k, mask)", "second = attend(q, k, v, mask)"),
        ("second = attend(q, k, v, mask)", "second = attend(q, k, v)", "second = attend(q, k, v, mask=mask)"),
    ):
        report = report_on(HELPER.replace(old, new))
        assert report.patch is not None
        assert (report.patch.line, report.patch.after) == (11, after)
        assert len(report.patch.diff.splitlines()) == 8


def test_a_comparison_of_its_own_that_is_false_is_told(report_on: Callable[[str], Report]) -> None:
    source = HELPER + "same = torch.allclose(first, second)\nalike = torch.allclose(first, attend(q, k, v))\n"
    report = report_on(source)
    assert report.verdict is Verdict.RIGHT
    assert [one for one in report.assumptions if "False" in one] == ["torch.allclose(first, second) is False"]
