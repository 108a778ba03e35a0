"""Faults of the projections' weights: transposed, shared, chained, without their bias, or never loaded."""

from __future__ import annotations

from qkv.faults.fault import Ways, fault
from qkv.faults.needs import BIASES, PROJECTIONS, SEVERAL_HEADS
from qkv.faults.replacing import changed, fitting, impossible, parameters, with_parameters
from qkv.oracle import Array, Linear, Parameters, Replacements, Run
from qkv.oracle.stages import linear, merge, output, project
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

_NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


def _transposed(*names: str, with_bias: bool = True) -> Replacements:
    """``x @ W`` in place of ``x @ W.T`` for some projections, with their bias or without."""

    def turned(run: Run, right: Parameters) -> Parameters:
        changes = {}
        for name in names:
            projection: Linear | None = getattr(right, name)
            if projection is None:
                raise impossible(f"there is no {name}")
            weight = run.xp.permute_dims(projection.weight, (1, 0))
            if not with_bias and projection.bias is None:
                raise impossible(f"{name} has no bias to be left out")
            changes[name] = Linear(fitting(projection.weight, weight), projection.bias if with_bias else None)
        return changed(right, **changes)

    replacements = {}
    if set(names) - {"out_proj"}:
        replacements[Stage.PROJECT] = with_parameters(project, turned)
    if "out_proj" in names:
        replacements[Stage.OUTPUT] = with_parameters(output, turned)
    return replacements


@fault(
    "projection-transposed",
    Stage.PROJECT,
    title="a weight matrix is used the wrong way round",
    explanation=(
        "torch.nn.Linear keeps its weight as (out, in) and computes x @ weight.T; other libraries keep (in, out) and "
        "compute x @ weight. A square matrix taken the wrong way raises no error, and gives other numbers everywhere. "
        "A transposed out_proj leaves the context right and every output row wrong; a transposed v_proj makes every "
        "row wrong, a transposed q_proj or k_proj every row with more than one visible key."
    ),
    repair="linear.weight.copy_(weight.T)  # weights that come as (in, out)",
    needs=[PROJECTIONS],
    commonness=3,
)
def projection_transposed(spec: AttentionSpec) -> Ways:
    """``x W`` for ``x W^T``: one projection, q, k and v together, or all four; only square ones go unnoticed."""
    for name in _NAMES:
        yield name, _transposed(name)
        yield f"{name}, and its bias is left out", _transposed(name, with_bias=False)
    yield "q_proj, k_proj and v_proj", _transposed("q_proj", "k_proj", "v_proj")
    yield "all four projections", _transposed(*_NAMES)


def _one_head_for_all(number: int) -> Replacements:
    def replaced(run: Run) -> Run:
        made = project(run)

        def repeated(x: Array, count: int) -> Array:
            if x.ndim == 4:
                return run.xp.concat([_chosen(x, number, 1)] * count, axis=1)
            dim = x.shape[-1] // count
            return run.xp.concat([_chosen(x, number, 2, dim)] * count, axis=-1)

        heads, kv_heads = run.spec.num_heads, run.spec.kv_heads
        return made.but(
            query=repeated(made.query, heads), key=repeated(made.key, kv_heads), value=repeated(made.value, kv_heads)
        )

    return {Stage.PROJECT: replaced}


def _chosen(x: Array, number: int, axis: int, width: int = 1) -> Array:
    """Piece ``number`` of those that ``width`` entries of an axis make; -1 is the last one."""
    pieces = x.shape[axis] // width
    first = number % pieces * width
    return x[(slice(None),) * axis + (slice(first, first + width), ...)]


@fault(
    "projection-shared-by-heads",
    Stage.PROJECT,
    title="all heads use one head's projections",
    explanation=(
        "Every head asks the same question and gives the same answer: num_heads copies of one head. That head is "
        "right, all others are wrong in every row. It comes from a list that repeats one module ([head] * num_heads), "
        "or from an index that does not move in the loop over heads."
    ),
    repair="self.heads = nn.ModuleList([Head() for _ in range(num_heads)])  # not [Head()] * num_heads",
    needs=[SEVERAL_HEADS],
)
def projection_shared_by_heads(spec: AttentionSpec) -> Ways:
    """``q^(h) = Wq_0 x``, and so on, for every head."""
    yield "the first head's", _one_head_for_all(0)
    yield "the last head's", _one_head_for_all(-1)


def _head_after_head(run: Run) -> Run:
    """``q^(h) = Wq_h q^(h-1)``; likewise key and value."""
    right = parameters(run)
    made = project(run)

    def chained(x: Array, projection: Linear, count: int) -> Array:
        rows = projection.weight.shape[0] // count
        parts = []
        for head in range(count):
            weight = projection.weight[head * rows : (head + 1) * rows, :]
            if weight.shape[1] != x.shape[-1]:
                raise impossible(f"a head's projection takes {weight.shape[1]} channels and gives {rows}")
            x = run.xp.matmul(x, run.xp.permute_dims(weight, (1, 0)))
            if projection.bias is not None:
                x = x + projection.bias[head * rows : (head + 1) * rows]
            parts.append(x)
        return run.xp.concat(parts, axis=-1)

    x, source = run.inputs.x, run.inputs.x if run.inputs.source is None else run.inputs.source
    if x is None:
        raise impossible("query, key and value came ready made")
    value_source = source if run.inputs.value_source is None else run.inputs.value_source
    return made.but(
        query=chained(x, right.q_proj, run.spec.num_heads),
        key=chained(source, right.k_proj, run.spec.kv_heads),
        value=chained(value_source, right.v_proj, run.spec.kv_heads),
    )


def _value_from_key(run: Run) -> Run:
    """The value made by its projection from the projected key: ``v = v_proj(k)``."""
    right, made = parameters(run), project(run)
    if run.inputs.query is not None or made.key.shape[-1] != right.v_proj.weight.shape[1]:
        raise impossible("the key has another width than the tokens")
    return made.but(value=linear(run, made.key, right.v_proj))


def _overwritten(*, value_from: str) -> Replacements:
    """Key and value made from the query, whose name was that of the tokens: ``x = q_proj(x)``."""

    def replaced(run: Run) -> Run:
        if run.inputs.source is not None or run.inputs.value_source is not None:
            raise impossible("key and value are not made from x")
        right, made = parameters(run), project(run)
        fitting(run.inputs.x, made.query)
        after_query = run.but(inputs=run.inputs.but(x=made.query))
        key = project(after_query).key
        if value_from == "key":
            after_query = run.but(inputs=run.inputs.but(x=fitting(made.query, key), parameters=right))
        return made.but(key=key, value=project(after_query).value)

    return {Stage.PROJECT: replaced}


@fault(
    "projections-chained",
    Stage.PROJECT,
    title="a projection is applied to what another one gave",
    explanation=(
        "The name of the tokens was reused for a projection's result, so the next projection gets that in place of "
        "the tokens. Chained from head to head, only the first head is right; with x = q_proj(x), only the query is, "
        "and every row comes out wrong."
    ),
    repair="query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)  # all three from x",
    needs=[PROJECTIONS],
)
def projections_chained(spec: AttentionSpec) -> Ways:
    """``q^(h) = Wq_h q^(h-1)``; or ``k = Wk q``, ``v = Wv q`` or ``v = Wv k``."""
    if spec.num_heads > 1:
        yield "each head projects what the head before it gave", {Stage.PROJECT: _head_after_head}
    yield "the value is made from the projected key", {Stage.PROJECT: _value_from_key}
    yield "key and value are made from the query", _overwritten(value_from="query")
    yield "the key is made from the query, and the value from the key", _overwritten(value_from="key")


@fault(
    "weights-not-loaded",
    Stage.PROJECT,
    title="the weights were never loaded: the output is zero",
    explanation=(
        "Every number of the output is zero, or the bias of the output projection: what a layer gives whose weights "
        "are still the zeros they were made with, or whose result was never written to the output."
    ),
    repair="print(model.load_state_dict(state, strict=True))  # names the weights that were not found",
    commonness=1,
)
def weights_not_loaded(spec: AttentionSpec) -> Ways:
    """``o = 0``, or ``o`` = the bias of ``out_proj``."""

    def nothing(run: Run) -> Run:
        merged = merge(run)
        return merged.but(context=run.xp.zeros_like(merged.context))

    def zero(run: Run) -> Run:
        done = output(run)
        return done.but(output=run.xp.zeros_like(done.output))

    yield "the output is zero", {Stage.OUTPUT: zero}
    yield "only the bias of out_proj is left", {Stage.MERGE: nothing, Stage.OUTPUT: _needs_bias}


def _needs_bias(run: Run) -> Run:
    out_proj = parameters(run).out_proj
    if out_proj is None or out_proj.bias is None:
        raise impossible("out_proj has no bias")
    return output(run)


def _biased(times: int, *names: str) -> Replacements:
    """Some projections with their bias added ``times`` times."""

    def rebiased(run: Run, right: Parameters) -> Parameters:
        changes = {}
        for name in names:
            projection: Linear | None = getattr(right, name)
            if projection is not None and projection.bias is not None:
                changes[name] = Linear(projection.weight, projection.bias * times if times else None)
        if not changes:
            raise impossible(f"{' and '.join(names)} has no bias")
        return changed(right, **changes)

    inner = tuple(name for name in names if name != "out_proj")
    replacements = {}
    if inner:
        replacements[Stage.PROJECT] = with_parameters(project, rebiased)
    if "out_proj" in names:
        replacements[Stage.OUTPUT] = with_parameters(output, rebiased)
    return replacements


@fault(
    "bias-term",
    Stage.PROJECT,
    title="a projection's bias is missing, or added twice",
    explanation=(
        "Each projection adds its bias once. Without the bias of out_proj or v_proj every row is off by the same "
        "vector, the projection's bias or its image under out_proj. The bias of the query changes all rows with more "
        "than one visible key. The bias of the key adds one number to a query's whole row of scores, which softmax "
        "takes out again: it shows only where rope, a norm or a softcap stands between."
    ),
    repair="key = x @ k_proj.weight.T + k_proj.bias",
    needs=[BIASES],
)
def bias_term(spec: AttentionSpec) -> Ways:
    """``x W^T`` or ``x W^T + 2 b`` for ``x W^T + b``."""
    for name in _NAMES:
        yield f"the bias of {name} is missing", _biased(0, name)
    yield "the biases of q_proj, k_proj and v_proj are missing", _biased(0, *_NAMES[:3])
    yield "all biases are missing", _biased(0, *_NAMES)
    for name in _NAMES:
        yield f"the bias of {name} is added twice", _biased(2, name)
