"""Faults of the projections: query, key or value is made from the wrong thing."""

from __future__ import annotations

from qkv.faults.fault import Ways, fault
from qkv.faults.needs import PROJECTIONS, SOURCE
from qkv.faults.replacing import changed, fitting, given, impossible, parameters, with_parameters
from qkv.oracle import Inputs, Parameters, Replacements, Run
from qkv.oracle.stages import project, share_heads
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

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
    commonness=3,
)
def key_value_swapped(spec: AttentionSpec) -> Ways:
    """``w from q_i . v_j``, ``o_i = sum_j w_ij k_j``."""
    yield _made_as(key="value", value="key")


def _unprojected(*roles: str, cut: bool = False) -> Replacements:
    """Some of query, key and value are the tokens themselves, or their first channels."""

    def replaced(run: Run) -> Run:
        parameters(run)
        if run.inputs.x is None:
            raise impossible("query, key and value came ready made")
        made = project(run)
        source = run.inputs.x if run.inputs.source is None else run.inputs.source
        value_source = source if run.inputs.value_source is None else run.inputs.value_source
        raw = {"query": run.inputs.x, "key": source, "value": value_source}
        if cut:
            raw = {role: raw[role][..., : getattr(made, role).shape[-1]] for role in roles}
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
    yield "the first channels of the tokens", _unprojected("value", cut=True)


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
