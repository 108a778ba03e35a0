"""Trains a small causal model to recall an earlier token, and shows that its attention weights found it.

A sequence pairs letters with digits, and then gives the letters again in another order::

    d 7 q 3 a 9 x 0 k 7 b 5 | a 9 b 5 d 7 x 0 q 3 k 7

After each letter of the second half the model says which digit follows. That digit stands once in the first half, after
the same letter, and is drawn anew for every sequence: nothing can be learnt by heart, so when the loss falls to zero
the model must look. It takes two attentions. The first lets a digit know which letter stands before it, by position;
the second goes from a letter to the digit that stood after the same letter.

Run `python examples/recall.py`. It takes a few seconds.
"""

from __future__ import annotations

from string import ascii_lowercase, digits

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from qkv.layers import MultiHeadAttention

VOCABULARY = ascii_lowercase + digits
FIRST_DIGIT = len(ascii_lowercase)
PAIRS = 6
HALF = 2 * PAIRS


class Recall(nn.Module):
    """Two causal attentions, one after the other, each added to what it read."""

    def __init__(self, embed_dim: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(VOCABULARY), embed_dim)
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dim) for _ in range(2))
        self.by_position = MultiHeadAttention(embed_dim, num_heads=2, causal=True, rope="halves")
        self.by_content = MultiHeadAttention(embed_dim, num_heads=1, causal=True)
        self.readout = nn.Linear(embed_dim, len(digits))

    def forward(
        self, tokens: Int[Tensor, "batch token"]
    ) -> tuple[Float[Tensor, "batch token digit"], Float[Tensor, "batch token token"]]:
        """How strongly the model expects each digit to come next, and the weights of the second attention."""
        hidden = self.embedding(tokens)  # batch token embed_dim
        hidden = hidden + self.by_position(self.norms[0](hidden))  # batch token embed_dim
        normed = self.norms[1](hidden)  # batch token embed_dim
        expected = self.readout(hidden + self.by_content(normed))  # batch token digit
        return expected, self.by_content.attention_weights(normed)[:, 0]  # batch query key


def draw(batch: int) -> tuple[Int[Tensor, "batch token"], Int[Tensor, "batch question"]]:
    """New sequences, and the token that holds the answer to each letter of the second half."""
    letter = torch.rand(batch, len(ascii_lowercase)).argsort(-1)[:, :PAIRS]  # batch pair
    digit = FIRST_DIGIT + torch.randint(len(digits), (batch, PAIRS))  # batch pair
    order = torch.rand(batch, PAIRS).argsort(-1)  # batch question
    first = torch.stack([letter, digit], dim=-1).flatten(1)  # batch 2*pair
    second = torch.stack([letter.gather(1, order), digit.gather(1, order)], dim=-1).flatten(1)  # batch 2*question
    return torch.cat([first, second], dim=1), 2 * order + 1


def ask(model: Recall, tokens: Int[Tensor, "batch token"]) -> tuple[Tensor, Float[Tensor, "batch question token"]]:
    """The loss over the questions, ln 10 = 2.3 for a guess, and the row of weights of each question."""
    expected, attn_weights = model(tokens)
    answers = tokens[:, HALF + 1 :: 2] - FIRST_DIGIT  # batch question
    loss = F.cross_entropy(expected[:, HALF::2].flatten(0, 1), answers.flatten())
    return loss, attn_weights[:, HALF::2]


def train(model: Recall, steps: int = 400) -> None:
    """Lowers the loss on sequences that are new at every step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps + 1):
        tokens, _ = draw(batch=64)
        loss, _ = ask(model, tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:3}  loss {loss.item():.4f}")


def picture(tokens: Int[Tensor, " token"], row: Float[Tensor, " token"], question: int, answer: int) -> str:
    """One row of weights: each token before the question, how much it is attended to, and where the answer stands."""
    asked = HALF + 2 * question
    lines = [f"after the {VOCABULARY[tokens[asked]]!r} of token {asked}, the model attends to:"]
    for place in range(asked + 1):
        weight = row[place].item()
        found = "  <- the answer" if place == answer else ""
        lines.append(f"  {VOCABULARY[tokens[place]]}  {weight:.2f} {'#' * round(40 * weight)}{found}".rstrip())
    return "\n".join(lines)


def main() -> None:
    """Trains, then asks about sequences that were never seen."""
    torch.manual_seed(0)
    model = Recall()
    train(model)
    tokens, answers = draw(batch=500)
    with torch.no_grad():
        loss, rows = ask(model, tokens)
    print(f"\n{picture(tokens[0], rows[0, 0], question=0, answer=int(answers[0, 0]))}\n")
    found = rows.gather(2, answers[:, :, None]).mean()
    print(f"on 500 new sequences: loss {loss:.4f}, weight on the token to recall {found:.3f}")


if __name__ == "__main__":
    main()
