"""Faults of the scores: the wrong vectors are multiplied, or in the wrong order."""

from __future__ import annotations

from qkv.faults.as_if import unless
from qkv.faults.fault import Ways, fault
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import linear
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _products(run: Run, rows: Array, columns: Array) -> Run:
    query_len, key_len = run.inputs.lengths
    unless(query_len != key_len, f"{query_len} queries and {key_len} keys can't change places")
    return run.but(scores=run.xp.matmul(rows, run.xp.matrix_transpose(columns)))


def _projected_again(name: str, by: str) -> Replacements:
    """Query or key made with the other one's projection; norms and rope stay those of its own name."""

    def project(run: Run) -> Run:
        inputs, parameters = run.inputs, run.inputs.parameters
        unless(parameters is None, "query and key came without projections")
        assert parameters is not None
        unless(run.spec.group_size > 1, "with shared key heads the projections of query and key differ in width")
        source = inputs.x if inputs.source is None else inputs.source
        projections = {"query": parameters.q_proj, "key": parameters.k_proj}
        value_source = source if inputs.value_source is None else inputs.value_source
        made = {
            "query": linear(run, inputs.x, parameters.q_proj),
            "key": linear(run, source, parameters.k_proj),
            "value": linear(run, value_source, parameters.v_proj),
        }
        made[name] = linear(run, inputs.x if name == "query" else source, projections[by])
        return run.but(**made)

    return {Stage.PROJECT: project}


@fault(
    "scores-transposed",
    Stage.SCORES,
    title="query and key have changed places in the scores",
    explanation=(
        "Row i of the scores belongs to query i: how well each key answers it. With key @ query^T row i holds how "
        "well key i answers each query, so every token asks with its key and is asked by its query. Rows with a "
        "single visible key are right, all others have the weights of other questions."
    ),
    repair="attn_scores = query @ key.transpose(-2, -1)  # rows are queries, columns are keys",
    commonness=3,
)
def scores_transposed(spec: AttentionSpec) -> Ways:
    """``s_ij = k_i . q_j``, which is also what comes out when query and key are swapped by name."""
    yield "key @ query^T", {Stage.SCORES: lambda run: _products(run, run.key, run.query)}
    if spec.qk_norm is not None or spec.rope is not None:
        yield "the projections of query and key are swapped", {Stage.PROJECT: _swapped}


def _swapped(run: Run) -> Run:
    query = _projected_again("query", by="key")[Stage.PROJECT](run).query
    return _projected_again("key", by="query")[Stage.PROJECT](run).but(query=query)


@fault(
    "key-is-query",
    Stage.SCORES,
    title="the query stands in for the key",
    explanation=(
        "query @ query^T compares questions with questions: the key that a token offers is never looked at, and "
        "every token likes itself best. All rows with more than one visible key are wrong."
    ),
    repair="attn_scores = query @ key.transpose(-2, -1)",
    commonness=2,
)
def key_is_query(spec: AttentionSpec) -> Ways:
    """``s_ij = q_i . q_j``."""
    yield "query @ query^T", {Stage.SCORES: lambda run: _products(run, run.query, run.query)}
    yield "the key is made with q_proj", _projected_again("key", by="query")


@fault(
    "query-is-key",
    Stage.SCORES,
    title="the key stands in for the query",
    explanation=(
        "key @ key^T compares what tokens offer with what tokens offer: the query, what a token looks for, is never "
        "used, and every token likes itself best. All rows with more than one visible key are wrong."
    ),
    repair="attn_scores = query @ key.transpose(-2, -1)",
    commonness=1,
)
def query_is_key(spec: AttentionSpec) -> Ways:
    """``s_ij = k_i . k_j``."""
    yield "key @ key^T", {Stage.SCORES: lambda run: _products(run, run.key, run.key)}
    yield "the query is made with k_proj", _projected_again("query", by="key")
