"""What the names of a script's variables say."""

from __future__ import annotations

import contextlib
import io
import re
import tokenize

from qkv.adapters.choosing import words_of

_ROLES = {
    "query": {"q", "query", "queries", "qs", "wq", "xq",
              "anfrage", "anfragen", "consulta", "consultas", "requete", "requetes", "requête", "запрос", "查询"},
    "key": {"k", "key", "keys", "ks", "wk", "xk",
            "schluessel", "schlüssel", "clave", "claves", "cle", "cles", "clé", "clés", "chiave", "ключ", "键"},
    "value": {"v", "value", "values", "vs", "wv", "xv", "val", "vals",
              "wert", "werte", "valor", "valores", "valeur", "valeurs", "valore", "значение", "值"},
}  # fmt: skip
_OF_A_TOKEN = {
    *("x", "token", "query", "q", "key", "k", "value", "v", "context", "ctx", "vec", "vector", "scores", "score"),
    *("weights", "attn", "attention", "alpha", "omega"),
}
"""Words of names that may end in the number of a token."""

_TOKENS = {"inputs", "input", "x", "embeddings", "embedding", "embeds", "tokens", "token", "batch", "sentence", "emb",
           "embedded", "vectors", "hidden", "words", "data", "seq", "sequence"}  # fmt: skip


def words(name: str) -> list[str]:
    """The words of a name in lower case, numbers among them: ``attn_scores_2`` gives attn, scores, 2."""
    bare = name.removeprefix("self.").removesuffix(".weight")
    return [one for part in re.split(r"[._\W]+", bare) if part for one in (words_of(part) or [part.lower()])]


def role_of(name: str) -> str:
    """``query``, ``key`` or ``value``, where a name says that; else empty."""
    said = set(words(name))
    found = [role for role, known in _ROLES.items() if said & known]
    return found[0] if len(found) == 1 else ""


def is_matrix(name: str) -> bool:
    """Whether a name is that of a projection's weight: ``W_query``, ``w_k``, ``q_proj.weight``."""
    said = set(words(name))
    if re.match(r"(self\.)?[A-WYZ]_[a-z]", name) and role_of(name):
        return True  # U_query, M_key: tokens are called X
    if words(name)[:1] in (["w"], ["wq"], ["wk"], ["wv"], ["wo"]) or said & {"proj", "projection"}:
        return True
    return bool(said & {"weight", "weights", "matrix", "linear"}) and (bool(role_of(name)) or name.endswith(".weight"))


def is_weights(name: str) -> bool:
    """Whether a name is that of attention weights."""
    said = set(words(name))
    return not is_matrix(name) and bool(said & {"weights", "weight", "alpha", "alphas", "probs", "attention", "attn"})


def is_tokens(name: str) -> bool:
    """Whether a name is that of tokens, or of queries, keys and values."""
    return bool(set(words(name)) & _TOKENS) or (bool(role_of(name)) and not is_matrix(name))


def token_number(name: str) -> int | None:
    """The number of the token that a name says it belongs to: 2 in ``context_vec_2`` and ``x2``; None for none."""
    if not set(words(name.rstrip("_0123456789"))) & _OF_A_TOKEN:
        return None
    found = re.search(r"(?:^|[A-Za-z_])(\d+)(?:_tmp|_new|_norm|_scaled|_masked)?$", name)
    return int(found[1]) if found else None


def causal_word(name: str) -> str:
    """The word by which a name says that tokens see none that come later; empty for none."""
    found = re.search(r"causal|autoregressive|look_?ahead", name, re.IGNORECASE)
    return (
        "" if found is None or re.search(r"non_?causal|not_causal|acausal|no_mask", name, re.IGNORECASE) else found[0]
    )


def causal_comment(source: str) -> str:
    """The comment that says that the attention is causal; empty where none does, or one speaks of it in passing."""
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            said = token.string.strip("# \t\"'\n")
            if token.type == tokenize.COMMENT and re.search(r"\bcausal\b", said, re.IGNORECASE):
                return "" if _IN_PASSING.search(said) else said
    return ""


_IN_PASSING = re.compile(
    r"\b(not|non|no|without|later|next|then|will|unlike|instead|vs|versus|before|n't|unmasked|full)\b", re.IGNORECASE
)
