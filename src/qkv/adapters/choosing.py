"""Which of the things that a file defines is the attention, when the user names none."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from shlex import quote
from types import ModuleType
from typing import Any

from qkv.adapters.parts import is_module
from qkv.errors import CandidateError

_ATTENTION = {"att", "attn", "attention", "attentions", "attend", "mha", "gqa", "mqa", "mla", "sdpa", "sdp"}
_CONTEXT = {"context", "contexts"}
_CONTAINERS = {"block", "blocks", "transformer", "encoder", "decoder", "lm", "gpt", "llm", "bert", "llama"}
_MODELS = {"model", "net", "network", "wrapper"}
_PARTS = {"mask", "masks", "bias", "weights", "weight", "scores", "score", "probs", "config", "args", "cache", "flops"}
_OTHERS = {
    *("softmax", "norm", "layernorm", "rmsnorm", "rope", "rotary", "gelu", "silu", "swiglu", "mlp", "feed", "ffn"),
    *("embedding", "embeddings", "dropout", "dataset", "tokenizer", "loss", "mask", "masks"),
}
_ACTIONS = {
    *("plot", "visualize", "visualise", "show", "draw", "print", "test", "check", "compare", "benchmark", "bench"),
    *("time", "demo", "main", "train", "evaluate", "count", "init", "prepare", "apply", "repeat", "rotate"),
    *("precompute", "register", "assert", "verify", "save", "log"),
}
_FACTORIES = {"make", "build", "create", "get", "load", "new"}
_MADE = {"model", "module", "layer", "candidate", "build", "make", "create"}
_STANDARDS = {"reference", "ref", "golden", "expected"}
_QUERY = {"q", "query", "queries", "xq", "qs"}
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPUTING_NOTHING = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_LISTED = 12
_UNLIKELY = 6
"""From this rank on nothing but being alone speaks for a definition."""


@dataclass(frozen=True)
class _Definition:
    """One thing a file defines. `uses` are the other names of the file that its source mentions."""

    name: str
    value: Any
    words: frozenset[str]
    last: str
    first: str
    uses: frozenset[str]


def candidates(module: ModuleType, tree: ast.Module | None) -> list[str]:
    """Names of everything in the file that could be meant as an attention, in the file's order."""
    return [one.name for one in _definitions(module, tree) if _rank(one) is not None]


def beside(module: ModuleType, tree: ast.Module | None, name: str) -> list[str]:
    """Names of what else in the file is likely an attention, where neither it nor the named one uses the other."""
    uses = {one.name: one.uses for one in _definitions(module, tree) if (_rank(one) or 0) < _UNLIKELY}
    others = [one for one in candidates(module, tree) if one in uses and not one.startswith("_")]
    return [one for one in others if one != name and name not in uses[one] and one not in uses.get(name, ())]


def choose(module: ModuleType, tree: ast.Module | None, shown: str) -> str:
    """The name of the one attention that a file defines.

    Names that speak of attention go before others, the outer of two before its part, an attention before the block or
    model that uses it, and what is defined in the file before what is made of it there.

    Args:
        module: the loaded file.
        tree: its syntax tree, where there is source.
        shown: the file as the user gave it, for messages.

    Raises:
        CandidateError: there is none, or more than one.
    """
    definitions = _definitions(module, tree)
    ranked = {one.name: rank for one in definitions if (rank := _rank(one)) is not None}
    if not ranked:
        raise CandidateError(
            f"no attention in {shown}: {_contents(definitions)}", hint=_advice(module, definitions, shown)
        )
    best = min(ranked.values())
    names = [name for name, rank in ranked.items() if rank == best]
    outer = _outermost(names, definitions)
    if len(outer) == 1:
        return outer[0]
    listed = "\n".join(f"  qkv check {quote(f'{shown}:{name}')}" for name in outer[:_LISTED])
    more = f" and {len(outer) - _LISTED} more" if len(outer) > _LISTED else ""
    message = f"{shown} has {len(outer)} attentions: {', '.join(outer[:_LISTED])}{more}"
    if best >= _UNLIKELY:
        message = f"no name in {shown} speaks of attention: {_contents(definitions)}"
    raise CandidateError(message, hint=f"say which one is meant:\n{listed}")


def words_of(name: str) -> list[str]:
    """The words of a name in lower case: ``MultiHeadAttentionV2`` gives multi, head, attention, v2."""
    parts = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+", name)
    return [word.lower() for word in parts]


def speaks_of_attention(name: str) -> bool:
    """Whether a name is that of an attention: ``CausalSelfAttention``, ``mha``, ``flash_attn``."""
    lowered = name.lower()
    return bool(_ATTENTION & set(words_of(name))) or "attention" in lowered or "attn" in lowered


def _rank(one: _Definition) -> int | None:
    """0 for the likeliest, larger for less likely, None for what can't be an attention."""
    rank = _rank_of_kind(one)
    # A leading underscore: a helper of something else.
    return rank + 3 if rank is not None and rank < _UNLIKELY and one.name.startswith("_") else rank


def _rank_of_kind(one: _Definition) -> int | None:
    if any(kind(one.value) for kind in _COMPUTING_NOTHING):
        return _UNLIKELY + 1
    if isinstance(one.value, type):
        return _rank_of_name(one) if _is_callable_class(one.value) else None
    if _is_object(one.value):
        return 2 if speaks_of_attention(one.name) or speaks_of_attention(type(one.value).__name__) else 5
    names = _required(one.value)
    if names is None or one.first in _ACTIONS:
        return None
    if not names:
        makes = one.first in _FACTORIES and one.last in _MADE
        return 4 if makes or (speaks_of_attention(one.name) and one.last not in _PARTS) else None
    if one.first in _FACTORIES:
        return None
    rank = _rank_of_name(one)
    return 1 if names[0].lower() in _QUERY and len(names) > 1 and (rank is None or rank >= 5) else rank


def _rank_of_name(one: _Definition) -> int | None:
    if one.words & _CONTAINERS and (one.last in _CONTAINERS or not speaks_of_attention(one.name)):
        return None
    if not speaks_of_attention(one.name):
        return None if one.words & _OTHERS else 3 if one.words & _CONTEXT else _UNLIKELY
    if one.last in {"mask", "masks", "bias", "flops", "config", "args", "cache"}:
        return None
    if one.last in _PARTS or one.words & _STANDARDS:
        return 3
    return 5 if one.last in _MODELS and one.last != "wrapper" else 0


def _is_callable_class(cls: type) -> bool:
    return any(name in vars(base) for base in cls.__mro__[:-1] for name in ("forward", "__call__"))


def _is_object(value: Any) -> bool:
    """Whether a value is an instance that can be called, not a class or something that stands for a function."""
    if isinstance(value, type) or inspect.isroutine(value) or hasattr(value, "__wrapped__"):
        return False
    if is_module(value) or hasattr(type(value), "forward"):
        return True
    home = type(value).__module__.partition(".")[0]
    return callable(value) and home not in ("functools", "torch", "triton", "numba", "jax", "jaxlib", "builtins")


def _required(value: Callable[..., Any]) -> list[str] | None:
    """Names of the arguments that a function must be given; None for what is no function."""
    if not callable(value):
        return None
    try:
        given = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    starred = [one.name for one in given if one.kind is inspect.Parameter.VAR_POSITIONAL]
    return [one.name for one in given if one.kind in kinds and one.default is one.empty] or starred


def _outermost(names: list[str], definitions: Iterable[_Definition]) -> list[str]:
    """The names that no other one of them uses; all of them where they use each other in a ring."""
    uses = {one.name: one.uses for one in definitions}
    outer = [name for name in names if not any(name in uses[other] for other in names if other != name)]
    return outer or names


def _definitions(module: ModuleType, tree: ast.Module | None) -> list[_Definition]:
    nodes = _bound(tree.body) if tree is not None else {}
    mentioned = {
        name: {one.id for node in bound for one in ast.walk(node) if isinstance(one, ast.Name)}
        for name, bound in nodes.items()
    }
    found = []
    for name, value in vars(module).items():
        if name.startswith("__") or not _defined_here(name, value, module, nodes):
            continue
        words = words_of(name)
        ends = (words[-1], words[0]) if words else ("", "")
        found.append(_Definition(name, value, frozenset(words), *ends, _reached(name, mentioned)))
    return found


def _reached(name: str, mentioned: dict[str, set[str]]) -> frozenset[str]:
    """Every name that a definition uses, directly or through others of the file."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        new = mentioned.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return frozenset(reached - {name})


def _bound(body: Iterable[ast.stmt]) -> dict[str, list[ast.AST]]:
    """What each name that the file binds at top level may stand for, inside `if`, `try` and `with` too."""
    bound: dict[str, list[ast.AST]] = {}
    for name, node in _bindings(body):
        bound.setdefault(name, []).append(node)
    return bound


def _bindings(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _bindings(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _bindings(handler.body)


def _defined_here(name: str, value: Any, module: ModuleType, nodes: dict[str, list[ast.AST]]) -> bool:
    if (not callable(value) and not _is_object(value)) or type(value).__module__ in ("types", "typing"):
        return False
    if any(isinstance(node, _DEFINING) for node in nodes.get(name, ())):
        return True
    if isinstance(value, type) or inspect.isroutine(value):
        return not nodes and getattr(value, "__module__", None) == module.__name__
    return name in nodes or not nodes


def _contents(definitions: list[_Definition]) -> str:
    classes = [one.name for one in definitions if isinstance(one.value, type)]
    functions = [one.name for one in definitions if not isinstance(one.value, type)]
    if not classes and not functions:
        return "it defines no class and no function"
    kinds = [("class", "classes", classes), ("function", "functions", functions)]
    return "it has the " + " and the ".join(
        f"{one if len(names) == 1 else many} {', '.join(names[:_LISTED])}" for one, many, names in kinds if names
    )


def _advice(module: ModuleType, definitions: Iterable[_Definition], shown: str) -> str:
    own = {one.name: one.value for one in definitions}
    lacking = [name for name, one in own.items() if isinstance(one, type) and speaks_of_attention(name)]
    if lacking:
        return f"give {lacking[0]} a method forward(self, x): nothing else in it is called"
    imported = [
        name for name, one in vars(module).items() if callable(one) and speaks_of_attention(name) and name not in own
    ]
    if imported:
        lines = "\n".join(f"  qkv check {quote(f'{shown}:{name}')}" for name in imported)
        return f"it imports what may be meant:\n{lines}"
    return (
        "put the attention in a function or a class of this file, such as `def attention(query, key, value): ...`, "
        f"or name what is meant: qkv check {quote(f'{shown}:NAME')}"
    )
