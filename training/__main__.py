"""Trains the embedded model and two that lack something, says what each has learnt, and writes the first.

Run `nice python -m training` in the repository: some three minutes of one core. The same torch on the same processor
writes the same file.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save

from qkv.model import induction, previous_token, tiny
from qkv.model.language_model import LanguageModel
from qkv.model.storage import WEIGHTS, WORDS
from training.grammar import said_twice
from training.loop import new_model, skill, train

SEED, STEPS = 1, 2400
"""All of the first three seeds recall alike; of these, this one's previous-token head is the clearest."""
MODELS = {
    "two attentions": (2, False),
    "one attention": (1, False),
    "two, every earlier token weighs the same": (2, True),
}
"""Number of attentions of each model, and whether their weights are the mean. The first one is kept."""


def main() -> None:
    """Trains the models one after the other, and writes the first as soon as it is there."""
    torch.set_num_threads(1)
    print(f"seed {SEED}, {STEPS} steps, torch {torch.__version__}, one thread\n")
    rows: list[str] = []
    for name, (layers, mean) in MODELS.items():
        model, start = new_model(layers, mean=mean, seed=SEED), time.process_time()
        losses = train(model, STEPS, SEED)
        means = "  ".join(f"{np.mean(part):.3f}" for part in np.array_split(losses, 10))
        print(f"{name}: {time.process_time() - start:.0f} s of CPU\n  loss, tenth by tenth  {means}")
        if not rows:
            write(model)
            model = tiny()
        learnt = skill(model)
        rows.append(f"{name:42} {learnt.loss:9.3f} {learnt.recall_loss:13.3f} {learnt.recalled:9.3f}")
    print(f"\n{'on new stories':42} {'loss':>9} {'recall loss':>13} {'recalled':>9}", *rows, sep="\n")
    print("\nheads of the embedded model, on random words said twice")
    for name, scores in head_scores(tiny()).items():
        print(*(f"  {name:15} layer {layer}  {row.round(2)}" for layer, row in enumerate(scores)), sep="\n")


def write(model: LanguageModel) -> None:
    """Puts the words and the weights, in half precision, where the package reads them."""
    WORDS.write_text("\n".join(model.vocabulary.words) + "\n", encoding="utf-8")
    WEIGHTS.write_bytes(save({name: array.half() for name, array in model.state_dict().items()}))
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"  {count:,} parameters, {len(model.vocabulary)} words, {WEIGHTS.stat().st_size:,} bytes")


@torch.no_grad()
def head_scores(model: LanguageModel, sequences: int = 50, length: int = 20) -> dict[str, NDArray[np.float64]]:
    """Each head's scores, (layer, head), the mean over sequences of random words that are said twice."""
    scores: dict[str, list[NDArray[np.float64]]] = {"previous token": [], "induction": []}
    for seed in range(sequences):
        tokens = model.tokens(" ".join(said_twice(seed, length)))
        attn_weights = model.attention_weights(tokens)  # layer head query key
        scores["previous token"].append(previous_token(attn_weights))
        scores["induction"].append(induction(attn_weights, tokens))
    return {name: np.mean(each, axis=0) for name, each in scores.items()}


if __name__ == "__main__":
    main()
