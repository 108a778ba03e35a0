"""The taste of a kernel author's reference: `(batch, seqlen, heads, d)`, bottom-right causal, window, softcap, GQA."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, normal, pairs

SOURCE = '''"""Reference for our attention kernel."""
import torch


def flash_attention_ref(q, k, v, causal=False, window=None, softcap=0.0, softmax_scale=None):
    """Attention in the layout of the kernel.

    Arguments:
        q: (batch, seqlen_q, nheads, headdim)
        k: (batch, seqlen_k, nheads_k, headdim), nheads_k divides nheads
        v: (batch, seqlen_k, nheads_k, headdim_v)
        causal: aligned to the bottom right corner, the last query sees the last key
        window: how many keys a query sees, the one at its own position included
        softcap: scores become softcap * tanh(scores / softcap)
        softmax_scale: 1 / sqrt(headdim) if None
    Output:
        (batch, seqlen_q, nheads, headdim_v); a query that sees no key gives zeros
    """
    seqlen_q, seqlen_k = q.shape[1], k.shape[1]
    softmax_scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    group = q.shape[2] // k.shape[2]
    k = k.repeat_interleave(group, dim=2)
    v = v.repeat_interleave(group, dim=2)

    scores = torch.einsum("bthd,bshd->bhts", q, k)
    scores = scores * softmax_scale
    if softcap > 0.0:
        scores = softcap * torch.tanh(scores / softcap)

    row = torch.arange(seqlen_q, device=q.device)[:, None] + seqlen_k - seqlen_q
    col = torch.arange(seqlen_k, device=q.device)[None, :]
    hidden = torch.zeros(seqlen_q, seqlen_k, dtype=torch.bool, device=q.device)
    if causal:
        hidden = hidden | (col > row)
    if window is not None:
        hidden = hidden | (col <= row - window)
    scores = scores.masked_fill(hidden, float("-inf"))

    attn = torch.softmax(scores, dim=-1)
    attn = attn.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)
    return torch.einsum("bhts,bshd->bthd", attn, v)
'''

NAME: str | None = None
OPTIONS: list[str] = [
    "--layout", "BTHD", "--heads", "6", "--kv-heads", "2", "--causal", "--window", "5", "--softcap", "5",
]  # fmt: skip
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "num_kv_heads": 2,
    "causal": True,
    "window": 5,
    "softcap": 5.0,
    "out_proj": False,
    "empty_row": "zero",
}

SCORES = 'scores = torch.einsum("bthd,bshd->bhts", q, k)'
SCALE = "    scores = scores * softmax_scale\n"
CAP = "    if softcap > 0.0:\n        scores = softcap * torch.tanh(scores / softcap)\n"
FILL = '    scores = scores.masked_fill(hidden, float("-inf"))\n'
SOFTMAX = "attn = torch.softmax(scores, dim=-1)"
EMPTY = "    attn = attn.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)\n"
MIX = 'torch.einsum("bhts,bshd->bthd", attn, v)'
K_REPEAT = "k = k.repeat_interleave(group, dim=2)"
V_REPEAT = "v = v.repeat_interleave(group, dim=2)"
READ_FLAT = """def packed(t):
    b, n, h, d = t.shape
    return torch.as_strided(t, (b, n, h, d), (n * h * d, h * d, d, 1))


def flash_attention_ref("""

FAULTS: dict[str, Edits] = {
    "weights-times-key": [(MIX, 'torch.einsum("bhts,bshd->bthd", attn, k)')],
    "kv-heads-tiled": [(K_REPEAT, "k = k.repeat(1, 1, group, 1)"), (V_REPEAT, "v = v.repeat(1, 1, group, 1)")],
    "kv-head-divisor": [
        (K_REPEAT, "k = k[:, :, [0] * (group * k.shape[2])]"),
        (V_REPEAT, "v = v[:, :, [0] * (group * v.shape[2])]"),
    ],
    "strided-read-as-contiguous": [
        ("def flash_attention_ref(", READ_FLAT),
        ("    group = q.shape[2]", "    q, k, v = packed(q), packed(k), packed(v)\n    group = q.shape[2]"),
    ],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [("q.shape[-1] ** -0.5", "(q.shape[-1] * q.shape[-2]) ** -0.5")],
    "scale-inverted": [("q.shape[-1] ** -0.5", "q.shape[-1] ** 0.5")],
    "scale-twice": [(SCORES, 'scores = torch.einsum("bthd,bshd->bhts", q * softmax_scale, k)')],
    "scale-after-softmax": [(SCALE, ""), (SOFTMAX, "attn = torch.softmax(scores, dim=-1) * softmax_scale")],
    "scale-other-constant": [("q.shape[-1] ** -0.5", "v.shape[-1] ** -0.5")],
    "softcap-missing": [(CAP, "")],
    "softcap-before-scale": [(SCALE, ""), (CAP, CAP + SCALE)],
    "softcap-after-mask": [(CAP, ""), (FILL, FILL + CAP)],
    "causal-missing": [("hidden = hidden | (col > row)", "pass")],
    "causal-strict": [("col > row", "col >= row")],
    "causal-one-ahead": [("col > row", "col > row + 1")],
    "causal-corner": [(" + seqlen_k - seqlen_q", "")],
    "mask-added-as-number": [(FILL, "    scores = scores + (~hidden).to(scores.dtype)\n")],
    "masked-scores-zeroed": [('float("-inf")', "0.0")],
    "mask-after-softmax": [(FILL, ""), (EMPTY, "    attn = attn.masked_fill(hidden, 0.0)\n")],
    "mask-fill-too-small": [('float("-inf")', "-7.0")],
    "window-off-by-one": [("col <= row - window", "col < row - window")],
    "window-missing": [("hidden = hidden | (col <= row - window)", "pass")],
    "empty-row": [(EMPTY, "")],
    "softmax-over-queries": [("torch.softmax(scores, dim=-1)", "torch.softmax(scores, dim=-2).nan_to_num()")],
    "softmax-over-heads-or-batch": [("dim=-1)\n    attn = attn", "dim=1).nan_to_num()\n    attn = attn")],
    "softmax-low-precision": [(SOFTMAX, "attn = torch.softmax(scores.half(), dim=-1).to(q.dtype)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "window-off-by-one: one too few": [("col <= row - window", "col <= row - window + 1")],
    "kv-heads-tiled: repeated on the token axis, then viewed": [
        (K_REPEAT, "k = k.repeat_interleave(group, dim=1).reshape(k.shape[0], seqlen_k, -1, k.shape[-1])"),
        (V_REPEAT, "v = v.repeat_interleave(group, dim=1).reshape(v.shape[0], seqlen_k, -1, v.shape[-1])"),
    ],
    "empty-row: uniform": [('float("-inf")', "-1e30"), (EMPTY, "")],
    "strided-read-as-contiguous: value": [
        ("def flash_attention_ref(", READ_FLAT),
        ("    group = q.shape[2]", "    v = packed(v)\n    group = q.shape[2]"),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("kv-heads-tiled", "softcap-missing"),
    ("window-off-by-one", "scale-twice"),
    ("causal-corner", "kv-head-divisor"),
    ("causal-one-ahead", "softcap-before-scale"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "scale on the query": [("q, k)", "q * softmax_scale, k)"), (SCALE, "")],
    "grouped heads without copies": [
        ("    " + K_REPEAT + "\n    " + V_REPEAT + "\n", ""),
        (SCORES, 'scores = torch.einsum("btkgd,bskd->bkgts", q.unflatten(2, (-1, group)), k).flatten(1, 2)'),
        (MIX, 'torch.einsum("bkgts,bskd->btkgd", attn.unflatten(1, (-1, group)), v).flatten(2, 3)'),
    ],
    "finite fill": [('float("-inf")', "-1e4")],
    "where": [('scores.masked_fill(hidden, float("-inf"))', 'torch.where(hidden, float("-inf"), scores)')],
    "float32 softmax": [(SOFTMAX, "attn = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)")],
    "mask after softmax, renormalised": [
        (FILL, ""),
        (
            EMPTY,
            "    attn = attn.masked_fill(hidden, 0.0)\n"
            "    attn = attn / attn.sum(dim=-1, keepdim=True).clamp(min=1e-300)\n",
        ),
    ],
    "contiguous copies": [
        (
            "    group = q.shape[2]",
            "    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()\n    group = q.shape[2]",
        )
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs with short, equal and over-long queries, larger scores, and inputs that are not contiguous."""
    attention = namespace["flash_attention_ref"]
    outputs = []
    for query_len, key_len, size in ((13, 13, 1.0), (3, 13, 1.0), (1, 9, 1.0), (9, 7, 1.0), (13, 13, 3.0)):
        q = normal(2, query_len, 6, 8, seed=1, size=size)
        k = normal(2, key_len, 2, 8, seed=2, size=size)
        v = normal(2, key_len, 2, 8, seed=3)
        outputs.append(attention(q, k, v, causal=True, window=5, softcap=5.0))
    q, k, v = (normal(2, heads, 9, d, seed=heads + d).transpose(1, 2) for heads, d in ((6, 8), (2, 8), (2, 10)))
    outputs.append(attention(q, k, v, causal=True, window=5, softcap=5.0))
    return outputs
