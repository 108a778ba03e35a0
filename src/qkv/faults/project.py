"""Faults of the projections: query, key or value is made from the wrong thing, or with the wrong weights."""

from __future__ import annotations

from qkv.faults.fault import Ways, fault
from qkv.faults.needs import BIASES, PROJECTIONS, SEVERAL_HEADS, SOURCE
from qkv.faults.replacing import changed, fitting, given, impossible, parameters, with_parameters
from qkv.oracle import Array, Inputs, Linear, Parameters, Replacements, Run
from qkv.oracle.stages import merge, output, project, share_heads
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

_NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")
_PROJECTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}


def _made_as(**roles: str) -> Replacements:
    """Some of query, key and value made the way another of them is: ``value="key"`` projects the value with k_proj."""

    def exchanged(run: Run, right: Parameters) -> Parameters:
        changes = {}
        for role, other in roles.items():
            own, taken = getattr(right, _PROJECTION[role]), getattr(right, _PROJECTION[other])
            fitting(own.weight, taken.weight)
            changes[_PROJECTION[role]] = taken
        return changed(right, **changes)

    def replaced(run: Run) -> Run:
        if run.inputs.query is None:
            return with_parameters(project, exchanged)(run)
        made = project(run)
        changes = {}
        for role, other in roles.items():
            taken = getattr(made, other)
            if role == "query" and run.spec.group_size > 1:
                taken = share_heads(run, taken)
            changes[role] = fitting(getattr(made, role), taken)
        return made.but(**changes)

    return {Stage.PROJECT: replaced}


@fault(
    "value-is-key",
    Stage.PROJECT,
    title="the value is the key",
    explanation=(
        "The weights say whom a token listens to, the values what it hears. Here it hears the keys: every row is "
        "wrong, the first one too, though the weights are right. In a causal attention the first token's context "
        "vector is its own key in place of its own value."
    ),
    repair="value = self.v_proj(x)  # not k_proj",
    commonness=3,
)
def value_is_key(spec: AttentionSpec) -> Ways:
    """``o_i = sum_j w_ij k_j``, the key as it leaves its projection: before any norm or rope."""
    yield _made_as(value="key")


@fault(
    "projection-reused",
    Stage.PROJECT,
    title="a projection is used for something else as well",
    explanation=(
        "Two of query, key and value come out of one projection, as after copying a line and changing only its left "
        "side; the projection that should have been used never is. A wrong value makes every row wrong, a wrong query "
        "or key every row with more than one visible key."
    ),
    repair="query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)",
)
def projection_reused(spec: AttentionSpec) -> Ways:
    """``v = q_proj(x)``, ``q = v_proj(x)`` or ``k = v_proj(x)``."""
    yield "the value is made with q_proj", _made_as(value="query")
    yield "the query is made with v_proj", _made_as(query="value")
    yield "the key is made with v_proj", _made_as(key="value")


@fault(
    "key-value-swapped",
    Stage.PROJECT,
    title="key and value have changed places",
    explanation=(
        "The query is compared with the values and the keys are summed up. Every row of every head is wrong; the "
        "first row of a causal attention is the first key. A model trained like that works, its k_proj and v_proj "
        "have just changed names; weights from elsewhere don't."
    ),
    repair="query, key, value = qkv.chunk(3, dim=-1)  # in the order in which they were packed",
)
def key_value_swapped(spec: AttentionSpec) -> Ways:
    """``w from q_i . v_j``, ``o_i = sum_j w_ij k_j``."""
    yield _made_as(key="value", value="key")


def _unprojected(*roles: str) -> Replacements:
    """Some of query, key and value are the tokens themselves."""

    def replaced(run: Run) -> Run:
        parameters(run)
        if run.inputs.x is None:
            raise impossible("query, key and value came ready made")
        made = project(run)
        source = run.inputs.x if run.inputs.source is None else run.inputs.source
        value_source = source if run.inputs.value_source is None else run.inputs.value_source
        raw = {"query": run.inputs.x, "key": source, "value": value_source}
        return made.but(**{role: fitting(getattr(made, role), raw[role]) for role in roles})

    return {Stage.PROJECT: replaced}


@fault(
    "value-not-projected",
    Stage.PROJECT,
    title="the value is not projected",
    explanation=(
        "The weights are applied to the tokens as they came in, not to v_proj of them. The weights are right, and "
        "every row of every head is wrong; v_proj has no effect and gets no gradient."
    ),
    repair="value = self.v_proj(x)",
    needs=[PROJECTIONS],
)
def value_not_projected(spec: AttentionSpec) -> Ways:
    """``o_i = sum_j w_ij x_j``."""
    yield _unprojected("value")


@fault(
    "query-key-not-projected",
    Stage.PROJECT,
    title="query or key is not projected",
    explanation=(
        "The scores compare the tokens as they came in. Without its projection a token can't ask for anything but "
        "what it resembles. Every row with more than one visible key is wrong; if the value is not projected either, "
        "all are."
    ),
    repair="query, key = self.q_proj(x), self.k_proj(x)",
    needs=[PROJECTIONS],
)
def query_key_not_projected(spec: AttentionSpec) -> Ways:
    """``s_ij = x_i . k_j``, ``q_i . x_j`` or ``x_i . x_j``."""
    yield "the query", _unprojected("query")
    yield "the key", _unprojected("key")
    yield "query and key", _unprojected("query", "key")
    yield "query, key and value", _unprojected("query", "key", "value")


def _transposed(*names: str) -> Replacements:
    """``x @ W`` in place of ``x @ W.T`` for some projections."""

    def turned(run: Run, right: Parameters) -> Parameters:
        changes = {}
        for name in names:
            projection: Linear | None = getattr(right, name)
            if projection is None:
                raise impossible(f"there is no {name}")
            weight = run.xp.permute_dims(projection.weight, (1, 0))
            changes[name] = Linear(fitting(projection.weight, weight), projection.bias)
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
    yield "q_proj, k_proj and v_proj", _transposed("q_proj", "k_proj", "v_proj")
    yield "all four projections", _transposed(*_NAMES)


# --- several heads, one projection ------------------------------------------------------------------------------------


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
    yield "key and value are made from the query", _overwritten(value_from="query")
    yield "the key is made from the query, and the value from the key", _overwritten(value_from="key")


# --- tokens from the wrong place --------------------------------------------------------------------------------------


def _from(**places: str) -> Replacements:
    """Query, key or value made from another of the three places: ``x``, ``source`` or ``value_source``."""

    def moved(run: Run) -> Inputs:
        inputs = run.inputs
        if inputs.x is None:
            raise impossible("query, key and value came ready made")
        source = inputs.x if inputs.source is None else inputs.source
        value_source = source if inputs.value_source is None else inputs.value_source
        right = {"x": inputs.x, "source": source, "value_source": value_source}
        wrong = {place: fitting(right[place], right[other]) for place, other in places.items()}
        if all(wrong[place] is right[place] for place in places):
            raise impossible("these are the same tokens")
        return inputs.but(**{**right, **wrong})

    return {Stage.PROJECT: given(project, moved)}


def _self_attention(run: Run) -> Run:
    """Key and value from x for good: there are as many keys as queries from here on."""
    inputs, right = run.inputs, parameters(run)
    if inputs.x is None or inputs.source is None:
        raise impossible("there is no source")
    if {right.k_proj.weight.shape[1], right.v_proj.weight.shape[1]} != {inputs.x.shape[-1]}:
        raise impossible("the tokens of x and of the source have different widths")
    made_for_keys = (inputs.is_token, inputs.may_attend, inputs.document, inputs.bias)
    if inputs.x.shape[1] != inputs.source.shape[1] and any(array is not None for array in made_for_keys):
        raise impossible("the masks are made for key_len keys, and there are query_len")
    return project(run.but(inputs=inputs.but(source=None, value_source=None)))


@fault(
    "key-value-source-wrong",
    Stage.PROJECT,
    title="key or value is made from the wrong stream",
    explanation=(
        "In cross attention the query comes from one sequence, key and value from another. Made from the query's own "
        "sequence, a token listens to its own text in place of the source. A wrong value makes every row wrong, a "
        "wrong key or query every row with more than one visible key."
    ),
    repair="query, key, value = self.q_proj(x), self.k_proj(source), self.v_proj(source)",
    needs=[SOURCE],
)
def key_value_source_wrong(spec: AttentionSpec) -> Ways:
    """``k = Wk x`` or ``v = Wv x`` where ``source`` is meant; or the two streams swapped; or key's and value's."""
    yield "key and value from the query's tokens", {Stage.PROJECT: _self_attention}
    yield "the value from the query's tokens", _from(value_source="x")
    yield "the key from the query's tokens", _from(source="x")
    yield "the query from the source", _from(x="source")
    yield "query and source have changed places", _from(x="source", source="x", value_source="x")
    yield "the value from the key's tokens", _from(value_source="source")
    yield "the key from the value's tokens", _from(source="value_source")


# --- weights and biases -----------------------------------------------------------------------------------------------


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
