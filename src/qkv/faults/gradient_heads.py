"""Faults of the backward pass in heads, positions and projections: which numbers are summed, turned, or cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qkv.faults.gradient import ROLES, BackwardWays, after, before, each, gradient_fault, times
from qkv.faults.needs import PROJECTIONS, ROPE, SEVERAL_SEQUENCES, SHARED_HEADS
from qkv.faults.replacing import fitting, impossible
from qkv.oracle import Array, Backward, BackwardReplacements, Run
from qkv.oracle.backward import project
from qkv.positions import rotate
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

# --- heads ------------------------------------------------------------------------------------------------------------


@gradient_fault(
    "gradient-group-not-summed",
    Stage.HEADS,
    title="dk and dv are not summed over the query heads that share a key/value head",
    explanation=(
        "Several query heads read one key/value head, so its gradient is the sum over all of them. A kernel that runs "
        "one program for each query head and stores into the shared dk and dv keeps only the one that came last; one "
        "that lines the heads up otherwise sums those of other groups. dq is right."
    ),
    repair="dk = dk.view(batch, num_kv_heads, group_size, length, dim).sum(2)  # and dv",
    needs=[SHARED_HEADS],
    commonness=3,
)
def gradient_group_not_summed(spec: AttentionSpec) -> BackwardWays:
    """The last or first of the group, their mean, or the sum over the heads of other groups."""
    if spec.group_size == 1:
        return
    group, kv_heads = spec.group_size, spec.kv_heads
    picks: dict[str, Callable[[Run, Array], Array]] = {
        "only the last head of the group": lambda run, x: _heads_kept(run, x, group - 1),
        "only the first head of the group": lambda run, x: _heads_kept(run, x, 0),
        "the mean over the group": lambda run, x: x / group,
    }
    if kv_heads > 1:
        order = [head for kv in range(kv_heads) for head in range(kv, spec.num_heads, kv_heads)]
        picks["summed over the heads h with the same h % num_kv_heads"] = lambda run, x: run.xp.take(
            x, run.xp.asarray(order), axis=1
        )
        picks["summed over all heads"] = lambda run, x: (
            run.xp.zeros_like(x) + run.xp.sum(x, axis=1, keepdims=True) / group
        )
    for note, pick in picks.items():
        for words in ("dk and dv", "dk", "dv"):
            yield f"{words}: {note}", before(Stage.HEADS, each(pick, *ROLES[words]))


def _heads_kept(run: Run, gradient: Array, place: int) -> Array:
    """Zero but for the heads at one place of each group."""
    heads = run.xp.arange(gradient.shape[1]) % run.spec.group_size == place
    return gradient * run.xp.astype(heads, gradient.dtype)[None, :, None, None]


# --- positions --------------------------------------------------------------------------------------------------------


@gradient_fault(
    "gradient-rope-not-undone",
    Stage.POSITION,
    title="the gradients of query and key are not turned back",
    explanation=(
        "Rope turns query and key by an angle; their gradients must be turned by the same angle the other way. Left as "
        "they are, or turned forward once more, dq and dk have the right length and the wrong direction at every "
        "position but 0; dv is right."
    ),
    repair="dq = rotate(dq, -positions)  # the same cosines, the sines with the other sign",
    needs=[ROPE],
)
def gradient_rope_not_undone(spec: AttentionSpec) -> BackwardWays:
    """Not turned, turned forward, or without yarn's factor."""
    rope = spec.rope
    if rope is None:
        return

    def turned(times_forward: int, names: Sequence[str], factor: float = 1.0) -> BackwardReplacements:
        """The right gradients turned forward again so many times, and divided by the factor."""

        def change(back: Backward) -> Backward:
            run = back.run
            frequencies = run.array(rope.frequencies(run.query.shape[-1]))
            at = dict(
                zip(("query", "key"), (times_forward * run.array(one) for one in run.token_positions()), strict=True)
            )
            return back.but(**{
                name: rotate(getattr(back, name), at[name], frequencies, rope.pairing, 1 / factor) for name in names
            })  # fmt: skip

        return after(Stage.POSITION, change)

    for words in ("dq and dk", "dq", "dk"):
        yield f"{words}: not turned at all", turned(1, ROLES[words], rope.attention_factor)
        yield f"{words}: turned forward once more", turned(2, ROLES[words])
        if rope.attention_factor != 1.0:
            yield f"{words}: turned forward, without yarn's factor", turned(2, ROLES[words], rope.attention_factor)
            yield f"{words}: not turned, yet with yarn's factor", turned(1, ROLES[words])
            yield f"{words}: turned back without yarn's factor", turned(0, ROLES[words], rope.attention_factor)


# --- what goes where --------------------------------------------------------------------------------------------------


@gradient_fault(
    "gradient-detached",
    Stage.SCORES,
    title="no gradient flows back through one of query, key, value or the weights",
    explanation=(
        "detach(), .data, torch.no_grad(), a round trip through NumPy or a None from a backward() of one's own cuts "
        "the graph: the output is right and whatever stands before the cut never learns. Detached weights leave only "
        "dv; a detached value leaves only dq and dk."
    ),
    repair="attn_weights = torch.softmax(attn_scores, dim=-1)  # without detach() or no_grad() around it",
    commonness=3,
)
def gradient_detached(spec: AttentionSpec) -> BackwardWays:
    """Zero, or nothing, for some of the gradients."""
    cuts = {
        "the weights are detached: only the value gets a gradient": ("query", "key"),
        "the query is detached": ("query",),
        "the key is detached": ("key",),
        "the value is detached": ("value",),
        "key and value are detached": ("key", "value"),
        "query and value are detached": ("query", "value"),
        "nothing comes back at all": ("query", "key", "value"),
    }
    for note, names in cuts.items():
        yield note, {**after(Stage.SCORES, times(0, *(n for n in names if n != "value"))), **_value_cut(names)}
    for note, names in cuts.items():
        yield f"{note}, before its projection", {Stage.PROJECT: _tokens_cut(names)}


def _value_cut(names: Sequence[str]) -> BackwardReplacements:
    return after(Stage.MIX, times(0, "value")) if "value" in names else {}


def _tokens_cut(names: Sequence[str]) -> Callable[[Backward], Backward]:
    """The projections learn, and the tokens in front of them get no gradient through these."""

    def cut(back: Backward) -> Backward:
        if back.run.inputs.query is not None:
            raise impossible("there are no projections")
        whole, rest = project(back), project(times(0, *names)(back))
        tokens = {name: rest.of[name] for name in ("x", "source", "value_source") if name in rest.of}
        return whole.but(of={**whole.of, **tokens})

    return cut


@gradient_fault(
    "gradients-swapped",
    Stage.PROJECT,
    title="two gradients are returned in each other's place",
    explanation=(
        "A backward() returns one gradient for each argument of forward(), in the order of the arguments. If two of "
        "one shape stand in each other's place, nothing raises: the key learns what the value should."
    ),
    repair="return dq, dk, dv  # in the order of forward's arguments",
)
def gradients_swapped(spec: AttentionSpec) -> BackwardWays:
    """``dk`` for ``dv``, and the like."""
    for note, (one, other) in {
        "dk and dv": ("key", "value"), "dq and dk": ("query", "key"), "dq and dv": ("query", "value")
    }.items():  # fmt: skip
        yield note, before(Stage.PROJECT, _swapped(one, other))


def _swapped(one: str, other: str) -> Callable[[Backward], Backward]:
    def swapped(back: Backward) -> Backward:
        first, second = getattr(back, one), getattr(back, other)
        return back.but(**{one: fitting(first, second), other: fitting(second, first)})

    return swapped


@gradient_fault(
    "gradient-batch",
    Stage.PROJECT,
    title="the gradients of several sequences are mixed up or summed",
    explanation=(
        "Each sequence has inputs of its own, and so gradients of its own. A buffer without a batch axis, or an index "
        "that forgets it, gives each sequence the sum, or that of another one. With one sequence all is right."
    ),
    repair="dk = torch.zeros_like(key)  # with its batch axis; offset every pointer by the sequence",
    needs=[SEVERAL_SEQUENCES],
)
def gradient_batch(spec: AttentionSpec) -> BackwardWays:
    """The sum over the batch, its mean, or the first or last sequence's, for each."""
    ways: dict[str, Callable[[Run, Array], Array]] = {
        "each gets the sum": lambda run, x: run.xp.zeros_like(x) + run.xp.sum(x, axis=0, keepdims=True),
        "each gets the mean": lambda run, x: run.xp.zeros_like(x) + run.xp.mean(x, axis=0, keepdims=True),
        "each gets the first one's": lambda run, x: run.xp.zeros_like(x) + x[:1],
        "each gets the last one's": lambda run, x: run.xp.zeros_like(x) + x[-1:],
        "only the first gets any": lambda run, x: run.xp.concat([x[:1], run.xp.zeros_like(x[1:])], axis=0),
        "only the last gets any": lambda run, x: run.xp.concat([run.xp.zeros_like(x[:-1]), x[-1:]], axis=0),
        "the first one's stands for the last": lambda run, x: run.xp.concat([x[:-1], x[:1]], axis=0),
    }
    for note, way in ways.items():
        for words, names in ROLES.items():
            yield f"{words}: {note}", before(Stage.PROJECT, each(way, *names))


@gradient_fault(
    "gradient-projection",
    Stage.PROJECT,
    title="the tokens get only a part of the gradient that they should",
    explanation=(
        "x makes query, key and value, so its gradient is the sum over the three. Assigned instead of added, only the "
        "last one is left. The gradients of the projections' weights are right."
    ),
    repair="dx = dq @ w_q + dk @ w_k + dv @ w_v",
    needs=[PROJECTIONS],
)
def gradient_projection(spec: AttentionSpec) -> BackwardWays:
    """Each two of the three left out are named by ``gradient-detached``; here they count double."""
    for words in ("dq", "dk", "dv"):
        yield f"the part of {words} is added twice", {Stage.PROJECT: _tokens_doubled(ROLES[words])}


def _tokens_doubled(names: Sequence[str]) -> Callable[[Backward], Backward]:
    def doubled(back: Backward) -> Backward:
        if back.run.inputs.query is not None:
            raise impossible("there are no projections")
        whole, twice = project(back), project(times(2, *names)(back))
        tokens = {name: twice.of[name] for name in ("x", "source", "value_source") if name in twice.of}
        return whole.but(of={**whole.of, **tokens})

    return doubled
