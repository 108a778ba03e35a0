"""A language model of attention and nothing else."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from qkv.layers import Attention
from qkv.model.storage import vocabulary, weights
from qkv.model.vocabulary import Vocabulary


class LanguageModel(nn.Module):
    """Says which word comes next: causal attentions with rope and shared keys, each added to what it read.

    There are no layers between the attentions, so that all it knows of earlier words it knows by attending to them.
    Source of the form: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".

    Args:
        vocabulary: the words it knows.
        layers: attentions, one after the other.
        embed_dim: numbers in the vector of a token.
        num_heads: query heads of an attention.
        num_kv_heads: its key and value heads.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        layers: int = 2,
        embed_dim: int = 64,
        num_heads: int = 4,
        num_kv_heads: int = 2,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(len(vocabulary), embed_dim)
        self.norms = nn.ModuleList(nn.RMSNorm(embed_dim, eps=1e-6) for _ in range(layers))
        self.attentions = nn.ModuleList(
            Attention(embed_dim, num_heads, num_kv_heads=num_kv_heads, causal=True, rope="halves")
            for _ in range(layers)
        )
        self.last_norm = nn.RMSNorm(embed_dim, eps=1e-6)
        self.readout = nn.Linear(embed_dim, len(vocabulary), bias=False)

    def forward(self, tokens: Int[Tensor, "*batch token"]) -> Float[Tensor, "*batch token word"]:
        """How strongly each word is expected to come after each token; a softmax makes shares of it."""
        hidden = self.embedding(tokens)  # batch token embed_dim
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            hidden = hidden + attention(norm(hidden))  # batch token embed_dim
        return self.readout(self.last_norm(hidden))  # batch token word

    def attention_weights(self, tokens: Int[Tensor, "*batch token"]) -> Float[Tensor, "layer *batch head token token"]:
        """How much each token (row) attends to each token (column), in each head of each layer."""
        hidden, seen = self.embedding(tokens), []  # batch token embed_dim
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            added, attn_weights = attention(norm(hidden), need_weights=True)
            hidden = hidden + added  # batch token embed_dim
            seen.append(attn_weights)  # batch head query key
        return torch.stack(seen)

    def tokens(self, text: str) -> Int[Tensor, " token"]:
        """The number of each word of the text, see `Vocabulary.tokens`."""
        return torch.tensor(self.vocabulary.tokens(text), device=self.readout.weight.device)

    @torch.no_grad()
    def generate(self, text: str, words: int = 10) -> str:
        """The text, and the words that are expected most after it, one after the other."""
        tokens = self.tokens(text)
        for _ in range(words):
            tokens = torch.cat([tokens, self(tokens)[-1:].argmax(-1)])
        return self.vocabulary.text(tokens.tolist())


def load() -> LanguageModel:
    """The embedded model, ready to be used, in float32."""
    model = LanguageModel(vocabulary())
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights().items()})
    return model.eval()
