"""Functions that behave in the ways that functions do."""

import random
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import torch

NUM_HEADS = 4
Pair = namedtuple("Pair", "context weights")


@dataclass
class Output:
    last_hidden_state: torch.Tensor
    attentions: tuple = ()


def seen(x: torch.Tensor, mask=None, lengths=None):
    return {"dtype": str(x.dtype), "contiguous": x.is_contiguous(), "x": x, "mask": mask, "lengths": lengths}


def heads(q: "torch.Tensor", /, k, *rest, causal: bool = False, scale=None, **more):
    return q * NUM_HEADS


def returns(x, kind):
    return {
        "tensor": x,
        "tuple": (x, None, x + 1),
        "named": Pair(x, x),
        "dataclass": Output(x, (x,)),
        "mapping": OrderedDict(context=x, other={"deep": [x]}),
        "none": None,
        "numbers": [[1.0, 2.0], [3, 4]],
        "numpy": x.numpy(),
        "integers": x.to(torch.int32),
        "boolean": x > 0,
        "sparse": x.to_sparse(),
        "grad": x.clone().requires_grad_() * 2,
        "complex": torch.complex(x, x),
        "objects": np.array([object()]),
        "text": "done",
        "generator": (one for one in [x]),
    }[kind]


def changes(x, mask, lengths):
    x[0] = 7
    lengths[1].mul_(2)
    return x


def fills(x):
    x.masked_fill_(torch.isnan(x), float("nan"))
    return x


def draws(x):
    return torch.rand(3) + torch.from_numpy(np.random.rand(3)) + random.random()  # noqa: NPY002


def default_dtype(x):
    return torch.ones(2), torch.zeros(2, dtype=torch.float32)


def threads(x):
    return torch.tensor([float(torch.get_num_threads())])


def same_object(q, k, v):
    return torch.tensor([q is k, k is v])


def prints(x):
    print("a" * 5000 + "the end")
    return x


def numpy_one(x: np.ndarray):
    return x @ np.eye(x.shape[-1])


def by_helper(x):
    return _softmax(x)


def _softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def only_operators(q, k):
    return q @ k


def numpys_root(q, k):
    return (q @ k / np.sqrt(q.shape[-1])).softmax(-1)


def deep(x):
    return deep(x)


def wrong_shape(x):
    return x @ torch.ones(3, 3)


@torch.jit.script
def scripted(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k
