from __future__ import annotations

from itertools import islice

import torch
from training.grammar import CONTENT, WORDS, said_twice, stories
from training.loop import LENGTH, new_model, skill, train


def test_words_are_words_once() -> None:
    assert len(set(WORDS)) == len(WORDS)


def test_what_is_called_settled_follows_from_the_words_before_it() -> None:
    """A settled word came before, right after the word that stands before it now, and nothing else came after that."""
    settled = 0
    for story in islice(stories(seed=3, length=LENGTH), 200):
        assert len(story.words) == LENGTH
        assert set(story.words) <= set(WORDS)
        for place in story.recalled:
            before, word = story.words[place - 1 : place + 1]
            followers = {story.words[i + 1] for i in range(place - 1) if story.words[i] == before}
            assert word in followers, story.words
            settled += 1
    assert settled > 200


def test_the_same_seed_tells_the_same_stories() -> None:
    told = [[story.words for story in islice(stories(seed, LENGTH), 5)] for seed in (1, 1, 2)]
    assert told[0] == told[1] != told[2]


def test_words_said_twice_are_drawn_once_each() -> None:
    words = said_twice(seed=0, length=20)
    assert words[:20] == words[20:]
    assert len(set(words)) == 20
    assert set(words) <= set(CONTENT)


def test_training_is_the_same_each_time_and_learns() -> None:
    models = [new_model(2, mean=False, seed=0) for _ in range(2)]
    losses = [train(model, steps=8, seed=0) for model in models]
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]
    for first, second in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(first, second)


def test_in_the_model_of_means_every_earlier_token_weighs_the_same() -> None:
    model = new_model(2, mean=True, seed=0)
    train(model, steps=2, seed=0)
    attn_weights = model.attention_weights(model.tokens("anna wood has a kite"))  # layer head query key
    means = torch.ones(5, 5).tril() / torch.arange(1, 6)[:, None]
    torch.testing.assert_close(attn_weights, means.expand(2, 4, 5, 5))
    assert skill(model, count=5).recalled < 0.2
