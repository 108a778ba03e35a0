"""Faults of texts that are packed into one sequence, beyond what their mask hides."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from qkv.faults.fault import Ways, fault
from qkv.masks import Documents
from qkv.oracle import Array, Run
from qkv.oracle.stages import mix
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "documents-left-out",
    Stage.MIX,
    title="a packed document is never computed",
    explanation=(
        "The loop goes over the borders between documents, of which there is one more than documents. One border too "
        "few at its end or its beginning, and a document's rows stay zeros. All others are right; a single document "
        "gives nothing at all."
    ),
    repair="for begin, end in zip(cu_seqlens[:-1], cu_seqlens[1:]):  # n + 1 borders, n documents",
    commonness=1,
)
def documents_left_out(spec: AttentionSpec) -> Ways:
    """Zeros for the context of the last document, of the first, or of all but the first."""
    if spec.masks(Documents):
        yield (
            "the last one",
            {Stage.MIX: _leaving_out(lambda xp, number: number == xp.max(number, axis=1, keepdims=True))},
        )
        yield "the first one", {Stage.MIX: _leaving_out(lambda xp, number: number == number[:, :1])}
        yield "all but the first one", {Stage.MIX: _leaving_out(lambda xp, number: number != number[:, :1])}


def _leaving_out(chosen: Callable[[ModuleType, Array], Array]) -> Callable[[Run], Run]:
    """Mixing without the rows of some documents, by the number of each token's; one alone is the first and the last."""

    def left_out(run: Run) -> Run:
        done, xp = mix(run), run.xp
        query_len, key_len = run.inputs.lengths
        document = run.inputs.document
        number = xp.zeros((run.scores.shape[0], key_len)) if document is None else document
        out = chosen(xp, number)[:, key_len - query_len :]  # batch query
        return done.but(context=xp.where(out[:, None, :, None], xp.zeros_like(done.context), done.context))

    return left_out
