"""The arrays of real modules, read as projections: each reading must give what the module itself projects."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from qkv.adapters.host import Host
from qkv.adapters.messages import ArrayFacts, Facts
from qkv.adapters.projections import ProjectionReading, channels_in, possible_heads, randomised, readings_of
from qkv.errors import CandidateError
from qkv.oracle.inputs import Linear
from qkv.spec import AttentionSpec

E, H, G, D = 20, 6, 2, 4
W, KV = H * D, G * D
MHA = AttentionSpec(num_heads=H)
GQA = AttentionSpec(num_heads=H, num_kv_heads=G)


class Named(nn.Module):
    """A module with whatever arrays it is given."""


# A class without a file: the host need not look for its source, which takes longer than everything else here.
Named.__module__ = "nowhere"


def named(**arrays):
    """A module with these attributes; a tuple stands for a Linear (in, out)."""
    module = Named()
    for name, value in arrays.items():
        setattr(module, name, nn.Linear(*value) if isinstance(value, tuple) else value)
    return module


def raw(*shape):
    return nn.Parameter(torch.randn(*shape))


def opened(module, spec=MHA, given=None):
    """Facts, state with random values, and the readings."""
    host = Host()
    facts = host.open(module)
    readings = readings_of(facts, spec, given)
    arrays = dict(module.named_parameters())
    for reading in readings[:1]:
        for name, array in randomised(facts, reading.names, host.state(), np.random.default_rng(0)).items():
            arrays[name].data = torch.from_numpy(array)
    return host.state(), readings


def applied(linear: Linear, x):
    y = x @ np.asarray(linear.weight, dtype=np.float64).T
    return y if linear.bias is None else y + linear.bias


def agreeing(module, project, spec=MHA, given=None, dims=E):
    """The readings, and the places of those that give the same q, k, v as the module's own code."""
    state, readings = opened(module, spec, given)
    module.double()
    x = torch.randn(2, 5, dims, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = [one.reshape(2, 5, -1).numpy() for one in project(x)]
    places = []
    for place, reading in enumerate(readings):
        parameters = reading.parameters(state)
        got = [applied(one, x.numpy()) for one in (parameters.q_proj, parameters.k_proj, parameters.v_proj)]
        if all(
            one.shape == two.shape and np.allclose(one, two, atol=1e-5) for one, two in zip(got, wanted, strict=True)
        ):
            places.append(place)
    return readings, places


SEPARATE = [
    ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("W_query", "W_key", "W_value", "out_proj"),
    ("wq", "wk", "wv", "wo"),
    ("Wq", "Wk", "Wv", "Wo"),
    ("W_q", "W_k", "W_v", "W_o"),
    ("query", "key", "value", "proj"),
    ("queries", "keys", "values", "fc_out"),
    ("to_q", "to_k", "to_v", "to_out"),
    ("toqueries", "tokeys", "tovalues", "unifyheads"),
    ("q_lin", "k_lin", "v_lin", "out_lin"),
    ("q_linear", "k_linear", "v_linear", "out"),
    ("query_projection", "key_projection", "value_projection", "out_projection"),
    ("linear_q", "linear_k", "linear_v", "linear_out"),
    ("w_qs", "w_ks", "w_vs", "fc"),
    ("q", "k", "v", "o"),
    ("query_layer", "key_layer", "value_layer", "dense"),
    ("fc_q", "fc_k", "fc_v", "fc_o"),
    ("proj_q", "proj_k", "proj_v", "c_proj"),
    ("q_net", "k_net", "v_net", "o_net"),
]


@pytest.mark.parametrize("names", SEPARATE, ids="-".join)
def test_separate_projections_are_certain(names):
    q, k, v, out = names
    inner = named(**{q: (E, W), k: (E, KV), v: (E, KV), out: (W, E)})
    # Every other one inside a larger module.
    nested = SEPARATE.index(names) % 2
    module = named(attn=inner, norm=nn.LayerNorm(E), head=nn.Linear(E, 3)) if nested else inner
    readings, places = agreeing(module, lambda x: [getattr(inner, name)(x) for name in (q, k, v)], GQA)
    assert places == [0]
    (reading,) = readings
    assert reading.certain
    assert reading.widths == (W, KV, KV)
    assert reading.embed_dim == E
    assert reading.out is not None
    assert reading.out.size == (E, W)
    assert q in reading.words
    assert out in reading.words


def test_output_in_a_sequential_and_key_value_together():
    module = named(to_q=(E, W), to_kv=(E, 2 * W), to_out=nn.Sequential(nn.Linear(W, E), nn.Dropout()))
    readings, places = agreeing(module, lambda x: [module.to_q(x), *module.to_kv(x).chunk(2, dim=-1)])
    assert places == [0]
    assert not readings[0].certain
    assert readings[0].out is not None
    assert readings[0].out.weights == ("to_out.0.weight",)


def test_key_value_head_by_head():
    module = named(to_q=(E, W), kv_proj=(E, 2 * KV))

    def project(x):
        key, value = module.kv_proj(x).view(2, 5, G, 2, D).unbind(3)
        return [module.to_q(x), key, value]

    readings, places = agreeing(module, project, GQA)
    assert len(places) == 1
    assert "head by head" in readings[places[0]].words


def test_list_of_four():
    module = named(linears=nn.ModuleList(nn.Linear(W, W) for _ in range(4)))
    readings, places = agreeing(module, lambda x: [module.linears[place](x) for place in range(3)], dims=W)
    assert (places, len(readings), readings[0].certain) == ([0], 1, True)
    assert readings[0].out is not None
    assert readings[0].out.weights == ("linears.3.weight",)


@pytest.mark.parametrize("out", [None, "out_proj"])
def test_wrapper_of_single_heads(out):
    heads = nn.ModuleList(named(W_query=(E, D), W_key=(E, D), W_value=(E, D)) for _ in range(12))
    module = named(heads=heads, **({out: (12 * D, E)} if out else {}))

    def project(x):
        return [
            torch.cat([getattr(head, name)(x) for head in heads], dim=-1) for name in ("W_query", "W_key", "W_value")
        ]

    readings, places = agreeing(module, project, AttentionSpec(num_heads=12))
    assert places == [0]
    assert readings[0].num_heads == 12
    assert "heads.*.W_query" in readings[0].words
    assert "12 heads side by side" in readings[0].words
    assert readings[0].certain
    assert (readings[0].out is not None) is bool(out)


def test_wrapper_of_fused_heads():
    heads = nn.ModuleList(named(qkv=(E, 3 * D)) for _ in range(H))
    module = named(heads=heads)

    def project(x):
        return [torch.cat(parts, -1) for parts in zip(*(head.qkv(x).chunk(3, -1) for head in heads), strict=True)]

    assert agreeing(module, project)[1] == [0]


def test_lists_of_heads():
    lists = {name: nn.ModuleList(nn.Linear(E, D) for _ in range(H)) for name in ("queries", "keys", "values")}
    module = named(**lists, out_proj=(W, E))
    readings, places = agreeing(
        module, lambda x: [torch.cat([one(x) for one in lists[name]], -1) for name in ("queries", "keys", "values")]
    )
    assert (places, len(readings)) == ([0], 1)


# --- fused ------------------------------------------------------------------------------------------------------------


def cut_by(order):
    """q, k and v of a fused result whose channels stand in this order."""

    def cut(fused):
        sizes = {"c": 3, "h": H, "d": D}
        grid = fused.reshape(2, 5, *(sizes[letter] for letter in order))
        return grid.permute(2 + order.index("c"), 0, 1, 2 + order.index("h"), 2 + order.index("d")).unbind(0)

    return cut


ORDERS = ("chd", "hcd", "hdc", "cdh", "dch", "dhc")
FUSED_NAMES = ("qkv", "to_qkv", "Wqkv", "qkv_proj", "c_qkv", "qkv_lin")


@pytest.mark.parametrize(
    ("name", "order"), [(name, "hcd") for name in FUSED_NAMES] + [("attn_qkv", order) for order in ORDERS]
)
def test_fused_layouts_are_all_readings_thirds_first(name, order):
    module = named(**{name: (E, 3 * W), "proj": (W, E)})
    readings, places = agreeing(module, lambda x: cut_by(order)(getattr(module, name)(x)))
    assert places == [ORDERS.index(order)]
    assert not any(reading.certain for reading in readings)
    fused = readings[0].fused
    assert fused is not None
    assert fused.size == (3 * W, E)


@pytest.mark.parametrize(("name", "order"), [("query_key_value", "hcd"), ("in_proj", "chd"), ("c_attn", "chd")])
def test_names_that_stand_for_one_layout(name, order):
    module = named(**{name: (E, 3 * W), "proj": (W, E)})
    readings, places = agreeing(module, lambda x: cut_by(order)(getattr(module, name)(x)))
    assert (places, len(readings)) == ([0], 1)


def test_heads_that_the_class_was_built_with_cut_a_fused_array():
    module = named(qkv=(E, 3 * W))
    host = Host()
    facts = host.open(module)
    readings = readings_of(facts, AttentionSpec(), num_heads=H)
    state = host.state()
    query = state["qkv.weight"].reshape(H, 3, D, E)[:, 0].reshape(W, E)
    assert any(np.array_equal(reading.parameters(state).q_proj.weight, query) for reading in readings)
    assert not any(
        np.array_equal(reading.parameters(state).q_proj.weight, query)
        for reading in readings_of(facts, AttentionSpec())
    )


@pytest.mark.parametrize("nested", [False, True])
def test_heads_are_counted_by_the_candidate_where_the_spec_leaves_them_open(nested):
    inner = named(qkv=(E, 3 * W), n_head=H)
    module = named(attn=inner) if nested else inner
    _, places = agreeing(module, lambda x: cut_by("hcd")(inner.qkv(x)), AttentionSpec())
    assert places == [1]


def test_fused_with_one_head_leaves_no_doubt_between_thirds_and_heads():
    module = named(qkv=(E, 3 * D))
    readings, places = agreeing(module, lambda x: module.qkv(x).chunk(3, dim=-1), AttentionSpec(num_heads=1))
    assert places[0] == 0
    assert len(readings) == 2


def test_the_name_gives_the_order():
    module = named(kqv=(E, 3 * W))

    def project(x):
        key, query, value = module.kqv(x).chunk(3, -1)
        return query, key, value

    assert agreeing(module, project)[1] == [0]


@pytest.mark.parametrize("spec", [GQA, MHA], ids=["kv heads known", "kv heads from the output"])
def test_fused_and_grouped(spec):
    module = named(qkv_proj=(E, W + 2 * KV), o_proj=(W, E))
    blocks, places = agreeing(module, lambda x: module.qkv_proj(x).split([W, KV, KV], -1), spec)
    assert places == [0]
    assert f"the first {W}, next {KV} and last {KV} rows" in blocks[0].words

    def by_group(x):
        grid = module.qkv_proj(x).reshape(2, 5, G, H // G + 2, D)
        return grid[..., :-2, :], grid[..., -2, :], grid[..., -1, :]

    _, places = agreeing(module, by_group, spec)
    assert places == [1]


def test_fused_without_key_bias():
    module = named(qkv=nn.Linear(E, 3 * W, bias=False), q_bias=raw(W), v_bias=raw(W))

    def project(x):
        q, k, v = module.qkv(x).chunk(3, -1)
        return q + module.q_bias, k, v + module.v_bias

    assert agreeing(module, project)[1] == [0]


# --- raw parameters ---------------------------------------------------------------------------------------------------


def test_raw_matrices_used_as_x_at_w():
    module = named(W_q=raw(E, W), W_k=raw(E, KV), W_v=raw(E, KV), W_o=raw(W, E), b_q=raw(W))
    readings, places = agreeing(module, lambda x: [x @ module.W_q + module.b_q, x @ module.W_k, x @ module.W_v], GQA)
    assert (places, len(readings)) == ([0], 1)
    assert readings[0].certain
    assert "x @ W" in readings[0].words
    assert readings[0].out is not None
    assert readings[0].out.size == (E, W)


def test_raw_matrices_used_as_linear_weights():
    module = named(q_weight=raw(W, E), k_weight=raw(KV, E), v_weight=raw(KV, E))
    readings, places = agreeing(
        module, lambda x: [F.linear(x, one) for one in (module.q_weight, module.k_weight, module.v_weight)], GQA
    )
    assert (places, len(readings)) == ([0], 1)


@pytest.mark.parametrize("turned", [False, True])
def test_square_raw_matrices_can_be_read_either_way(turned):
    module = named(W_q=raw(W, W), W_k=raw(W, W), W_v=raw(W, W))
    readings, places = agreeing(
        module, lambda x: [x @ (w.T if turned else w) for w in (module.W_q, module.W_k, module.W_v)], dims=W
    )
    assert (places, len(readings)) == ([int(turned)], 2)
    assert not readings[0].certain


def test_raw_matrices_with_an_axis_for_the_heads():
    module = named(W_Q=raw(H, E, D), W_K=raw(G, E, D), W_V=raw(G, E, D), W_O=raw(H, D, E), b_Q=raw(H, D), b_O=raw(E))

    def project(x):
        return [
            torch.einsum("bte,hed->bthd", x, module.W_Q) + module.b_Q,
            *(torch.einsum("bte,hed->bthd", x, one) for one in (module.W_K, module.W_V)),
        ]

    readings, places = agreeing(module, project, GQA)
    assert (places, len(readings)) == ([0], 1)
    state, _ = opened(module, GQA)
    out = readings[0].parameters(state).out_proj
    assert out is not None
    context = np.random.default_rng(0).standard_normal((5, H, D))
    wanted = np.einsum("thd,hde->te", context, state["W_O"]) + state["b_O"]
    assert np.allclose(applied(out, context.reshape(5, W)), wanted)


def test_heads_in_the_middle_axis():
    module = named(wq=raw(E, H, D), wk=raw(E, H, D), wv=raw(E, H, D))
    _readings, places = agreeing(
        module, lambda x: [torch.einsum("bte,ehd->bthd", x, one) for one in (module.wq, module.wk, module.wv)]
    )
    assert places == [0]


def test_raw_fused_with_an_axis_for_q_k_v():
    module = named(w_qkv=raw(3, E, W))
    assert agreeing(module, lambda x: [x @ one for one in module.w_qkv])[1] == [0]
    deep = named(w_qkv=raw(E, 3, H, D))
    spec = AttentionSpec(num_heads=H, head_dim=D, embed_dim=E)
    assert agreeing(deep, lambda x: torch.einsum("bte,echd->cbthd", x, deep.w_qkv), spec)[1] == [0]


def test_point_convolutions():
    module = named(q_proj=nn.Conv1d(E, W, 1), k_proj=nn.Conv1d(E, W, 1), v_proj=nn.Conv1d(E, W, 1))
    one = lambda layer, x: layer(x.mT).mT  # noqa: E731
    assert agreeing(module, lambda x: [one(module.q_proj, x), one(module.k_proj, x), one(module.v_proj, x)])[1] == [0]


class OwnLinear(nn.Module):
    """A layer as exercises have it: the weight under a name of its own, (in, out) or not."""

    def __init__(self, rows, columns):
        super().__init__()
        self.W = nn.Parameter(torch.randn(rows, columns))
        self.b = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return x @ self.W + self.b


def test_layers_of_ones_own():
    module = named(q_proj=OwnLinear(E, W), k_proj=OwnLinear(E, KV), v_proj=OwnLinear(E, KV))
    spec = AttentionSpec(num_heads=H, num_kv_heads=G, embed_dim=E)
    readings, places = agreeing(module, lambda x: [module.q_proj(x), module.k_proj(x), module.v_proj(x)], spec)
    assert (places, len(readings)) == ([0], 1)


def test_a_plain_class_with_arrays():
    class Plain:
        def __init__(self):
            rng = np.random.default_rng(0)
            self.Wq, self.Wk, self.Wv = (rng.standard_normal((E, W)) for _ in range(3))

        def __call__(self, x):
            return x @ self.Wq

    host = Host()
    facts = host.open(Plain())
    (reading,) = readings_of(facts, AttentionSpec(num_heads=H, embed_dim=E))
    assert np.array_equal(reading.parameters(host.state()).q_proj.weight, host.state()["Wq"].T)


# --- names that say nothing -------------------------------------------------------------------------------------------


def outs(module, spec=MHA):
    return [reading.out.weights[0] if reading.out else None for reading in opened(module, spec)[1]]


@pytest.mark.parametrize("name", ["w_concat", "fc1", "mixer", "ausgabe"])
def test_the_layer_that_takes_what_the_heads_give_is_the_outputs(name):
    module = named(q_proj=(E, W), k_proj=(E, KV), v_proj=(E, KV), **{name: (W, E)})
    (reading,) = opened(module, GQA)[1]
    assert reading.out is not None
    assert reading.out.weights == (f"{name}.weight",)
    assert reading.out.biases == (f"{name}.bias",)
    assert name in reading.words
    assert reading.unassigned == ()
    assert reading.certain


def test_the_output_of_a_fused_array_with_fewer_keys_is_known_by_its_size():
    assert outs(named(qkv=(E, W + 2 * KV), gate=(E, 5), mixer=(W, E)), GQA)[0] == "mixer.weight"
    assert outs(named(qkv=(E, 3 * W), mixer=(W, E)))[0] == "mixer.weight"


def test_two_layers_that_could_be_the_outputs_are_two_readings():
    module = named(q_proj=(E, W), k_proj=(E, W), v_proj=(E, W), gate=(W, 5), mixer=(W, E))
    readings = opened(module)[1]
    assert [reading.out.weights[0] for reading in readings if reading.out] == ["mixer.weight", "gate.weight"]
    assert not any(reading.certain for reading in readings)
    assert [reading.unassigned for reading in readings] == [("gate.weight",), ("mixer.weight",)]


def test_layers_that_do_not_fit_are_no_output_and_are_reported():
    qkv = {"q_proj": (E, W), "k_proj": (E, W), "v_proj": (E, W)}
    module = named(**qkv, fc=(E, 3), gate=(E, 5), net=nn.Sequential(nn.Linear(W, W), nn.ReLU(), nn.Linear(W, W)))
    (reading,) = opened(module)[1]
    assert reading.out is None
    assert reading.unassigned == ("fc.weight", "gate.weight", "net.0.weight", "net.2.weight")
    # What stands outside of the attention is no part of it.
    (reading,) = opened(named(attn=named(**qkv), head=(W, E)))[1]
    assert (reading.out, reading.unassigned) == (None, ())


PERMUTED = ["qkv", "qvk", "kqv", "kvq", "vqk", "vkq"]


@pytest.mark.parametrize("order", PERMUTED)
@pytest.mark.parametrize("out", [False, True])
def test_names_that_say_nothing_are_read_in_every_order_that_of_definition_first(order, out):
    module = named(eins=(E, W), zwei=(E, W), drei=(E, W), **({"vier": (W, E)} if out else {}))

    def project(x):
        made = dict(zip(order, (module.eins(x), module.zwei(x), module.drei(x)), strict=True))
        return [made[letter] for letter in "qkv"]

    readings, places = agreeing(module, project)
    assert (len(places), len(readings)) == (1, 6)
    assert (places == [0]) is (order == "qkv")
    assert not any(reading.certain for reading in readings)
    assert "in the order they are defined in" in readings[0].words
    assert all((reading.out is not None) is out for reading in readings)
    if out:
        assert readings[0].out.biases == ("vier.bias",)


def test_sizes_rule_orders_out():
    module = named(a=(E, W), b=(E, KV), c=(E, KV), d=(W, E))
    readings, places = agreeing(module, lambda x: [module.a(x), module.b(x), module.c(x)], GQA)
    assert (places, len(readings)) == ([0], 4)
    # The output's is the odd one, wherever it stands.
    module = named(a=(W, E), b=(E, W), c=(E, W), d=(E, W))
    assert outs(module) == ["a.weight"] * 6


def test_names_that_say_something_are_believed_beside_those_that_do_not():
    module = named(eins=(E, W), key=(E, W), drei=(E, W), fc=(W, E))
    readings, places = agreeing(module, lambda x: [module.eins(x), module.key(x), module.drei(x)])
    assert (places, len(readings)) == ([0], 2)
    assert all(reading.k.weights == ("key.weight",) for reading in readings)
    assert outs(module) == ["fc.weight"] * 2
    given = {"v_proj": "eins.weight"}
    assert [reading.v.weights for reading in opened(module, given=given)[1]] == [("eins.weight",)]


def test_lists_and_matrices_without_a_name_of_the_field():
    module = named(ws=nn.ModuleList(nn.Linear(W, W) for _ in range(4)))
    assert agreeing(module, lambda x: [module.ws[place](x) for place in range(3)], dims=W)[1] == [0]
    module = named(A=raw(E, W), B=raw(E, W), C=raw(E, W))
    spec = AttentionSpec(num_heads=H, embed_dim=E)
    assert agreeing(module, lambda x: [x @ module.A, x @ module.B, x @ module.C], spec)[1] == [0]
    heads = nn.ModuleList(named(a=(E, D), b=(E, D), c=(E, D)) for _ in range(H))
    module = named(teile=heads, ende=(W, E))
    readings, places = agreeing(
        module, lambda x: [torch.cat([getattr(head, name)(x) for head in heads], -1) for name in "abc"]
    )
    assert places == [0]
    assert readings[0].num_heads == H
    assert readings[0].out.weights == ("ende.weight",)


def test_one_layer_for_all_three_is_known_by_its_size():
    module = named(alles=(E, 3 * W), ende=(W, E))
    readings, places = agreeing(module, lambda x: module.alles(x).chunk(3, -1))
    assert places == [0]
    assert readings[0].out.weights == ("ende.weight",)


def test_one_layer_with_fewer_keys_and_values_is_known_by_its_size():
    module = named(alles=(E, W + 2 * KV), ende=(W, E))
    readings, places = agreeing(module, lambda x: module.alles(x).split([W, KV, KV], -1), GQA)
    assert places == [0]
    assert readings[0].out.weights == ("ende.weight",)


@pytest.mark.parametrize("count", [2, 5])
def test_too_few_or_too_many_layers_are_not_guessed_at(count):
    module = named(**{f"layer{place}x": (E, W) for place in range(count)})
    with pytest.raises(CandidateError, match="no projections of query and key are recognised"):
        opened(module)


def test_two_parts_without_names_are_not_guessed_at():
    part = {"a": (E, W), "b": (E, W), "c": (E, W)}
    with pytest.raises(CandidateError, match="no projections"):
        opened(named(one=named(**part), two=named(**part)))


@pytest.mark.parametrize(
    "names", ["{}_layers", "{}_projs", "{}_linears", "P_{}", "{}_heads", "linears_{}", "to_{}s", "{}s"]
)
def test_lists_of_heads_with_names_in_the_plural(names):
    lists = {names.format(letter): nn.ModuleList(nn.Linear(E, D) for _ in range(H)) for letter in "qkv"}
    module = named(**lists)
    readings, places = agreeing(
        module, lambda x: [torch.cat([one(x) for one in layers], -1) for layers in lists.values()]
    )
    assert (places, readings[0].num_heads) == ([0], H)


@pytest.mark.parametrize("kv_heads", [H, 1])
def test_shazeers_arrays(kv_heads):
    """Fast Transformer Decoding: one array for each head, in multi-query attention one for all of k and of v."""
    shape = (H,) if kv_heads == H else ()
    module = named(P_q=raw(H, E, D), P_k=raw(*shape, E, D), P_v=raw(*shape, E, D), P_o=raw(H, E, D), k=D)
    h = "h" if shape else ""

    def project(x):
        key, value = (torch.einsum(f"bte,{h}ed->bt{h}d", x, one) for one in (module.P_k, module.P_v))
        return torch.einsum("bte,hed->bthd", x, module.P_q), key, value

    readings, places = agreeing(module, project, AttentionSpec())
    assert (places, len(readings), readings[0].num_heads) == ([0], 1, H)
    state, _ = opened(module, AttentionSpec())
    context = np.random.default_rng(0).standard_normal((5, H, D))
    wanted = np.einsum("thd,hed->te", context, state["P_o"])
    assert np.allclose(applied(readings[0].parameters(state).out_proj, context.reshape(5, W)), wanted)


def test_heads_as_wide_as_a_token_leave_a_choice_for_the_output():
    module = named(P_q=raw(H, E, E), P_k=raw(H, E, E), P_v=raw(H, E, E), P_o=raw(H, E, E))
    readings = opened(module, AttentionSpec())[1]
    assert [reading.out.axes for reading in readings if reading.out] == ["hdo", "hod"]


# --- the number of heads where no known name says it ------------------------------------------------------------------


def test_possible_heads_are_numbers_of_unknown_names_that_divide_the_width():
    module = named(qkv=(E, 3 * W), parts=4, 头数=6, steps=7, wide=True, drop=nn.Dropout(0.1))
    module.inner = named(pieces=3, rows=4)
    host = Host()
    facts = host.open(module)
    assert possible_heads(facts, W) == [("parts", 4), ("头数", 6), ("inner.pieces", 3)]
    (reading, *_) = readings_of(facts, AttentionSpec())
    assert possible_heads(facts, reading) == possible_heads(facts, W)
    assert possible_heads(facts, W, {"splits": 12, "d_in": 8})[0] == ("splits", 12)


def test_a_known_size_of_one_head_counts_them():
    facts = Host().open(named(qkv=(E, 3 * W), n=12, d_k=D))
    assert possible_heads(facts, W) == [("24 / d_k", 6), ("n", 12)]


# --- torch and transformers -------------------------------------------------------------------------------------------


def test_torch_multihead_attention():
    module = nn.MultiheadAttention(W, H, batch_first=True)
    readings, places = agreeing(
        module, lambda x: F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1), dims=W
    )
    assert (places, len(readings), readings[0].certain) == ([0], 1, True)
    assert readings[0].out is not None
    assert readings[0].out.biases == ("out_proj.bias",)


def test_torch_multihead_attention_with_other_sizes_for_key_and_value():
    module = nn.MultiheadAttention(W, H, kdim=10, vdim=14)
    state, (reading,) = opened(module)
    parameters = reading.parameters(state)
    assert [one.weight.shape for one in (parameters.q_proj, parameters.k_proj, parameters.v_proj)] == [
        (W, W), (W, 10), (W, 14),
    ]  # fmt: skip
    biases = np.concatenate([parameters.q_proj.bias, parameters.k_proj.bias, parameters.v_proj.bias])
    assert np.array_equal(biases, state["in_proj_bias"])
    assert reading.certain


def heads_of(x, heads):
    return x.reshape(2, 5, heads, -1)


def gpt2():
    from transformers.models.gpt2 import modeling_gpt2 as m

    config = m.GPT2Config(n_embd=W, n_head=H)
    module = m.GPT2Attention(config, layer_idx=0)
    return module, lambda x: module.c_attn(x).split(W, 2)


def neox():
    from transformers.models.gpt_neox import modeling_gpt_neox as m

    module = m.GPTNeoXAttention(m.GPTNeoXConfig(hidden_size=W, num_attention_heads=H), layer_idx=0)
    return module, lambda x: heads_of(module.query_key_value(x), H).chunk(3, -1)


def bert():
    from transformers.models.bert import modeling_bert as m

    config = m.BertConfig(hidden_size=W, num_attention_heads=H)
    config._attn_implementation = "eager"
    module = m.BertSelfAttention(config)
    return module, lambda x: [module.query(x), module.key(x), module.value(x)]


def bert_with_output():
    from transformers.models.bert import modeling_bert as m

    config = m.BertConfig(hidden_size=W, num_attention_heads=H)
    config._attn_implementation = "eager"
    module = m.BertAttention(config)
    return module, lambda x: [module.self.query(x), module.self.key(x), module.self.value(x)]


def llama_like(family, **more):
    def build():
        from importlib import import_module

        lower = family.lower()
        lower = {"gptoss": "gpt_oss"}.get(lower, lower)
        m = import_module(f"transformers.models.{lower}.modeling_{lower}")
        config = getattr(m, f"{family}Config")(
            hidden_size=W, num_attention_heads=H, num_key_value_heads=G, head_dim=D, num_hidden_layers=2, **more
        )
        module = getattr(m, f"{family}Attention")(config, layer_idx=0)
        return module, lambda x: [module.q_proj(x), module.k_proj(x), module.v_proj(x)]

    return build


def phi3():
    from transformers.models.phi3 import modeling_phi3 as m

    config = m.Phi3Config(hidden_size=W, num_attention_heads=H, num_key_value_heads=G, pad_token_id=0)
    module = m.Phi3Attention(config, layer_idx=0)
    return module, lambda x: module.qkv_proj(x).split([W, KV, KV], -1)


def falcon(**more):
    def build():
        from transformers.models.falcon import modeling_falcon as m

        config = m.FalconConfig(hidden_size=W, num_attention_heads=H, num_hidden_layers=1, **more)
        module = m.FalconAttention(config, layer_idx=0)
        return module, lambda x: module._split_heads(module.query_key_value(x))

    return build


def codegen():
    from transformers.models.codegen import modeling_codegen as m

    config = m.CodeGenConfig(n_embd=48, n_head=4, rotary_dim=4)
    module = m.CodeGenAttention(config, layer_idx=0)

    def project(x):
        query, value, key = module.qkv_proj(x).reshape(2, 5, 4, -1).split(12, -1)
        return query, key, value

    return module, project


FALCON_GROUPS = falcon(new_decoder_architecture=True, num_kv_heads=G)
CODEGEN = AttentionSpec(num_heads=4)
MQA = AttentionSpec(num_heads=H, num_kv_heads=1)
REAL = {
    "gpt2": (gpt2, MHA, W),
    "gpt_neox": (neox, MHA, W),
    "bert": (bert, MHA, W),
    "bert_with_output": (bert_with_output, MHA, W),
    "llama": (llama_like("Llama"), GQA, W),
    "mistral": (llama_like("Mistral"), GQA, W),
    "qwen3": (llama_like("Qwen3"), GQA, W),
    "gemma2": (llama_like("Gemma2"), GQA, W),
    "gpt_oss": (llama_like("GptOss"), GQA, W),
    "phi3": (phi3, GQA, W),
    "falcon_mqa": (falcon(multi_query=True), MQA, W),
    "falcon_mha": (falcon(multi_query=False), MHA, W),
    "codegen": (codegen, CODEGEN, 48),
}


@pytest.mark.parametrize("name", REAL)
def test_models_of_transformers(name):
    build, spec, dims = REAL[name]
    module, project = build()
    readings, places = agreeing(module, project, spec, dims=dims)
    assert (places, len(readings)) == ([0], 1)
    assert readings[0].certain
    assert (readings[0].out is None) is (name == "bert")


def test_falcon_groups():
    module, _ = FALCON_GROUPS()

    def project(x):
        grid = module.query_key_value(x).view(2, 5, G, H // G + 2, D)
        return grid[..., :-2, :], grid[..., -2, :], grid[..., -1, :]

    readings, places = agreeing(module, project, GQA, dims=W)
    assert (places, len(readings)) == ([0], 1)


def test_sinks_of_gpt_oss():
    module, _ = llama_like("GptOss")()
    state, (reading,) = opened(module, GQA)
    sinks = reading.sinks(state)
    assert sinks is not None
    assert np.array_equal(sinks, state["sinks"])
    assert sinks.std() > 0.1


# --- norms ------------------------------------------------------------------------------------------------------------


def with_norms(q_norm, k_norm, **more):
    return named(q_proj=(E, W), k_proj=(E, KV), v_proj=(E, KV), q_norm=q_norm, k_norm=k_norm, **more)


@pytest.mark.parametrize(
    ("norm", "kind", "over"),
    [
        (lambda width: nn.RMSNorm(D, eps=1e-3), "rms", "head"),
        (lambda width: nn.RMSNorm(width, eps=1e-3), "rms", "width"),
        (lambda width: nn.LayerNorm(D, eps=1e-3), "layer", "head"),
    ],
)
def test_norms_of_query_and_key(norm, kind, over):
    module = with_norms(norm(W), norm(KV))
    state, (reading,) = opened(module, GQA)
    parameters = reading.parameters(state)
    assert reading.qk_norm == over
    for one, layer in ((parameters.q_norm, module.q_norm), (parameters.k_norm, module.k_norm)):
        assert one is not None
        assert (one.kind, one.eps) == (kind, 1e-3)
        assert np.allclose(one.weight, layer.weight.detach())
        assert one.weight.std() > 0.01
        assert (one.bias is not None) is (kind == "layer")


def test_norms_of_real_models():
    state, (reading,) = opened(llama_like("Qwen3", rms_norm_eps=1e-4)()[0], GQA)
    norm = reading.parameters(state).q_norm
    assert norm is not None
    assert (norm.kind, norm.eps, norm.plus_one, reading.qk_norm) == ("rms", 1e-4, False, "head")
    from transformers.models.gemma3 import modeling_gemma3 as m

    config = m.Gemma3TextConfig(
        hidden_size=W, num_attention_heads=H, num_key_value_heads=G, head_dim=D, num_hidden_layers=1
    )
    state, (reading,) = opened(m.Gemma3Attention(config, layer_idx=0), GQA)
    norm = reading.parameters(state).k_norm
    assert norm is not None
    assert norm.plus_one
    assert abs(norm.weight.mean()) < 0.7


def test_norms_whose_weight_is_called_scale():
    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.eps = 1e-5
            self.scale = nn.Parameter(torch.ones(D))
            self.shift = nn.Parameter(torch.zeros(D))

    state, (reading,) = opened(with_norms(RMSNorm(), RMSNorm()), GQA)
    norm = reading.parameters(state).q_norm
    assert norm is not None
    assert (norm.kind, norm.eps, reading.qk_norm) == ("rms", 1e-5, "head")
    assert np.array_equal(norm.weight, state["q_norm.scale"])
    assert np.array_equal(norm.bias, state["q_norm.shift"])


def test_norms_without_weights_and_a_shared_one():
    class L2Norm(nn.Module):
        def forward(self, x):
            return F.normalize(x, dim=-1)

    _, (reading,) = opened(with_norms(L2Norm(), L2Norm()), GQA)
    assert reading.q_norm is not None
    assert (reading.q_norm.kind, reading.q_norm.weight) == ("l2", None)
    module = named(q_proj=(E, W), k_proj=(E, KV), v_proj=(E, KV), qk_norm=nn.RMSNorm(D))
    _, (reading,) = opened(module, GQA)
    assert reading.q_norm == reading.k_norm
    assert reading.k_norm is not None
    assert reading.k_norm.eps == np.finfo(np.float64).eps


# --- what the user says -----------------------------------------------------------------------------------------------


def test_arrays_named_by_the_user():
    module = named(alpha=(E, W), beta=(E, 2 * W), gamma=raw(W, E), delta=raw(W))
    given = {
        "q_proj": "alpha.weight",
        "k_proj": "beta.weight[0:24]",
        "v_proj": "beta.weight[24:]",
        "out_proj": "gamma.T",
        "out_proj.bias": "delta",
    }
    with pytest.raises(CandidateError, match=r"arrays of Named: .*alpha\.weight \(24, 20\)") as error:
        opened(module)
    assert "--weights q_proj=NAME" in error.value.hint
    _readings, places = agreeing(
        module,
        lambda x: [module.alpha(x), *module.beta(x).chunk(2, -1)],
        given={k: given[k] for k in given if k[0] != "o"},
    )
    assert places == [0]
    state, (reading,) = opened(module, given=given)
    out = reading.parameters(state).out_proj
    assert out is not None
    assert np.array_equal(out.weight, state["gamma"].T)
    assert np.array_equal(out.bias, state["delta"])


def test_one_array_named_by_the_user_stands_beside_those_found():
    module = named(q_proj=(E, W), k_proj=(E, W), v_proj=(E, W), mix=(W, E), o_proj=(W, E))
    assert opened(module)[1][0].out.weights == ("o_proj.weight",)
    (reading,) = opened(module, given={"out_proj": "mix.weight"})[1]
    assert reading.out is not None
    assert reading.out.biases == ("mix.bias",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"q_proj": "q_proj.wieght"}, r"no such array; did you mean 'q_proj\.weight'"),
        ({"q_prj": "q_proj.weight"}, r"'q_prj', which is no projection; did you mean 'q_proj'"),
        ({"q_proj": "q_proj.weight[a:b]"}, r"'a:b' in .* is no slice"),
    ],
)
def test_wrong_names_are_told_the_right_ones(given, message):
    module = named(q_proj=(E, W), k_proj=(E, W), v_proj=(E, W))
    with pytest.raises(CandidateError, match=message) as error:
        opened(module, given=given)
    assert error.value.hint.startswith("--weights ")


def two_attentions():
    one = {"q_proj": (E, W), "k_proj": (E, W), "v_proj": (E, W), "out_proj": (W, E)}
    return named(self_attn=named(**one), cross_attn=named(**one, q_norm=nn.RMSNorm(D)))


def test_one_of_two_attentions_can_be_named():
    given = {f"{letter}_proj": f"cross_attn.{letter}_proj.weight" for letter in "qkv"}
    (reading,) = opened(two_attentions(), given=given)[1]
    assert all(name.startswith("cross_attn.") for name in reading.names)
    assert reading.out is not None
    assert reading.q_norm is not None
    (reading,) = opened(two_attentions(), given={**given, "out_proj": "none"})[1]
    assert reading.out is None


def test_two_attentions_are_named():
    module = two_attentions()
    with pytest.raises(CandidateError, match="holds 2 attentions: self_attn, cross_attn") as error:
        opened(module)
    assert "--weights" in error.value.hint


def test_nothing_learned_gives_no_reading():
    facts = Facts("f", "object", "torch", is_module=True, class_name="Plain")
    assert readings_of(facts, MHA) == []


def test_missing_value_is_read_as_the_key():
    (reading,) = opened(named(q_proj=(E, W), k_proj=(E, W)))[1]
    assert reading.v is reading.k
    assert not reading.certain
    assert "no projection of the value" in reading.words


def test_randomised_values_hide_nothing():
    module = nn.MultiheadAttention(W, H)
    host = Host()
    facts = host.open(module)
    (reading,) = readings_of(facts, MHA)
    assert isinstance(reading, ProjectionReading)
    before = host.state()
    new = randomised(facts, reading.names, before, np.random.default_rng(3))
    assert set(new) == {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}
    assert all(new[name].shape == before[name].shape for name in new)
    assert 0.2 < new["in_proj_bias"].std() < 0.9
    assert new["out_proj.weight"].std() == pytest.approx(1.5 / np.sqrt(W), rel=0.2)


def test_facts_alone_are_enough():
    shape = ArrayFacts((W, E), "Linear", learned=True, dtype="float32")
    arrays = {f"{name}.weight": shape for name in ("q_proj", "k_proj", "v_proj")}
    facts = Facts("f", "object", "torch", is_module=True, class_name="Plain", arrays=arrays)
    (reading,) = readings_of(facts, MHA)
    assert reading.names == ("q_proj.weight", "k_proj.weight", "v_proj.weight")


def test_lazy_layers_must_be_called_once():
    module = named(
        q_proj=nn.LazyLinear(W), k_proj=nn.LazyLinear(W), v_proj=nn.LazyLinear(W), factor=nn.Parameter(torch.ones(()))
    )
    with pytest.raises(CandidateError, match=r"q_proj\.weight of Named has no shape before the first call") as error:
        opened(module)
    assert "LazyLinear" in error.value.hint
    for layer in (module.q_proj, module.k_proj, module.v_proj):
        layer(torch.zeros(1, E))
    (reading,) = opened(module)[1]
    assert reading.embed_dim == E


def test_channels_in_of_what_could_not_be_called():
    facts = Host().open(named(qkv=(E, 3 * W), proj=(W + 4, E)))
    assert channels_in(facts) == {"q": E, "k": E, "v": E, "out": W + 4}
