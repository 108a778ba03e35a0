"""How a model learns the stories, and how well it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.model import Vocabulary
from qkv.model.language_model import LanguageModel
from training.grammar import WORDS, Story, stories

LENGTH, BATCH, RATE = 64, 32, 1e-2
UNSEEN = 20_000
"""Seed of the stories that no model is trained on."""


@dataclass(frozen=True)
class Skill:
    """How well a model foretells stories that it has never seen.

    Attributes:
        loss: over all words, in nats.
        recall_loss: over the words that earlier ones settle.
        recalled: share of these that it expects most.
    """

    loss: float
    recall_loss: float
    recalled: float


def new_model(layers: int, *, mean: bool, seed: int) -> LanguageModel:
    """A model that has learnt nothing yet.

    Args:
        layers: how many attentions it has.
        mean: the queries are zero and stay so: every earlier token then weighs the same, whatever it is.
        seed: of its first weights.
    """
    torch.manual_seed(seed)
    model = LanguageModel(Vocabulary(WORDS), layers)
    # Small, so that what attention adds counts from the start.
    torch.nn.init.normal_(model.embedding.weight, std=0.2)
    if mean:
        for name, parameter in model.named_parameters():
            if name.endswith("q_proj.weight"):
                torch.nn.init.zeros_(parameter).requires_grad_(False)
    return model


def train(model: LanguageModel, steps: int, seed: int) -> list[float]:
    """The loss of each step, in which the model learns from stories that are new to it."""
    source, losses = stories(seed, LENGTH), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        tokens, _ = draw(model, source, BATCH)
        loss = losses_of(model, tokens).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def draw(model: LanguageModel, source: Iterator[Story], batch: int) -> tuple[Tensor, Tensor]:
    """Tokens of the next stories, and True where earlier words settle one; both (batch, token)."""
    told = list(islice(source, batch))
    tokens = torch.stack([model.tokens(" ".join(story.words)) for story in told])
    recalled = torch.zeros_like(tokens, dtype=torch.bool)
    for row, story in zip(recalled, told, strict=True):
        row[story.recalled] = True
    return tokens, recalled


def losses_of(model: LanguageModel, tokens: Tensor) -> Tensor:
    """The loss of every token but the first, (batch, token - 1)."""
    return F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:], reduction="none")


@torch.no_grad()
def skill(model: LanguageModel, count: int = 300) -> Skill:
    """How well the model foretells `count` new stories."""
    tokens, recalled = draw(model, stories(UNSEEN, LENGTH), count)
    losses, settled = losses_of(model, tokens), recalled[:, 1:]
    right = model(tokens[:, :-1]).argmax(-1) == tokens[:, 1:]
    return Skill(losses.mean().item(), losses[settled].mean().item(), right[settled].double().mean().item())
