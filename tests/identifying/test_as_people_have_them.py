"""Functions as people have them: letters for names, dicts of dicts, lists of maps."""

import numpy as np
import pytest

from mha_numpy.identifying import identify


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def twice(x):
    return 2 * x


def letters(a, b, c):
    return softmax(a @ c.swapaxes(-1, -2) / np.sqrt(a.shape[-1])) @ b


def linear(x, w, b):
    return x @ w + b


def heads_in_a_loop(x, p, n_head):
    q, k, v = np.split(linear(x, **p["c_attn"]), 3, axis=-1)
    hidden = (1 - np.tri(len(x))) * -1e10
    each = zip(*(np.split(part, n_head, axis=-1) for part in (q, k, v)), strict=True)
    heads = [softmax(a @ b.T / np.sqrt(a.shape[-1]) + hidden) @ c for a, b, c in each]
    return linear(np.hstack(heads), **p["c_proj"])


@pytest.mark.slow
def test_a_function_of_single_tokens_is_no_attention():
    sheet = identify(twice, seconds=2)
    assert not sheet.is_found
    assert "Each token's output depends on that token alone" in sheet.saw


def untransposed(x, w_q, w_k, w_v, heads):
    B, T, D = x.shape
    q, k, v = (np.reshape(x @ w, (B, T, heads, -1)) for w in (w_q, w_k, w_v))
    return np.reshape(softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v, (B, T, D))


def test_tokens_that_never_attend_because_a_transpose_is_missing():
    (row,) = identify(untransposed).mistakes
    assert row.value == "heads within each token"


def test_letters_may_have_any_order():
    sheet = identify(letters)
    assert [each.what for each in sheet.arguments] == ["queries", "values", "keys"]
    assert not sheet.mistakes


def test_what_is_given_leaves_the_rest_to_be_found():
    sheet = identify(letters, given={"value": "b"})
    assert [each.what for each in sheet.arguments] == ["queries", "values", "keys"]


def test_params_in_dicts_of_dicts():
    sheet = identify(heads_in_a_loop)
    assert sheet.is_found
    assert sheet.value("causal") == "past and itself"


def test_a_list_of_maps_and_a_result_that_is_kept():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self, h, d_model):
            super().__init__()
            self.h, self.kept = h, None
            self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])

        def forward(self, query, key, value):
            pairs = zip(self.linears, (query, key, value), strict=False)
            q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f, x in pairs)
            self.kept = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
            return self.linears[-1]((self.kept @ v).transpose(1, 2).flatten(2))

    sheet = identify(Attention)
    assert sheet.is_found
    assert not sheet.mistakes


def weights_first(q, k, v, unused=None):
    weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return weights.astype(np.float32), weights @ v


def test_the_output_may_be_the_second_of_two():
    sheet = identify(weights_first)
    assert not sheet.mistakes
    assert sheet.value("sums") == "float64"


@pytest.mark.slow
def test_the_queries_alone_are_no_attention():
    assert not identify(lambda q, k, v: q, seconds=2).is_found


def exits(q, k, v):
    raise SystemExit(q.shape)


def test_an_exit_is_an_error_of_the_function():
    assert "SystemExit" in identify(exits, seconds=2).saw


class Keeps:
    def __init__(self):
        self.kept = [np.zeros(2), np.zeros((3, 4))]
        self.names = np.array(["q", "k"], object)

    def __call__(self, q, k, v):
        return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def bahdanau(query, keys, W1, W2, v):
    weights = softmax(np.tanh((query @ W1)[:, None] + keys @ W2) @ v)
    return (weights[:, :, None] * keys).sum(1), weights


def test_additive_scores():
    sheet = identify(bahdanau)
    assert (sheet.value("product"), sheet.value("scale")) == ("additive", "added")
    assert [each.what for each in sheet.arguments][1:] == [
        "tokens of keys and values", "params of the queries", "params of the keys",
        "params of additive scores",
    ]  # fmt: skip


def token_mean(x, pad):
    kept = ~pad[..., None]
    return (x * kept).sum(1) / np.maximum(kept.sum(1), 1e-9)


def test_a_mean_is_no_attention():
    assert not identify(token_mean, seconds=1).is_found


def talking_heads(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    mixed = scores + 0.5 * np.roll(scores, 1, axis=1)
    weights = softmax(mixed if mask is None else np.where(mask, -np.inf, mixed))
    return weights @ v, weights


@pytest.mark.slow
def test_what_does_not_hang_on_the_scores_is_told_where_they_are_unknown():
    sheet = identify(talking_heads)
    assert not sheet.is_found
    assert "mixes the values with weights that sum to 1 over the keys" in sheet.saw
    assert "depend on the queries and the keys; up to a term for each query" in sheet.saw
    assert (sheet.value("mask"), sheet.value("blind")) == ("true = blocked", "nan")
    assert (sheet.value("scale"), sheet.mistakes) == (None, ())
    assert [each.what for each in sheet.returns] == ["output", "weights"]
    assert "True or 1 = the query does not see the key" in str(sheet)
    assert sheet.to_dict()["nearest"] is None


def smooth(x):
    distance = abs(np.subtract.outer(np.arange(x.shape[1]), np.arange(x.shape[1])))
    return softmax(-distance / 2) @ x


@pytest.mark.slow
def test_weights_that_are_the_same_for_all_inputs_are_no_attention():
    sheet = identify(smooth)
    assert "the same for all inputs, so nothing attends" in sheet.saw
    assert (sheet.is_found, sheet.rows) == (False, ())


def scaled_by_other_queries(q, k, v):
    scores = q @ k.swapaxes(-1, -2)
    return softmax(scores / np.linalg.norm(scores, axis=-2, keepdims=True)) @ v


@pytest.mark.slow
def test_it_is_said_where_other_tokens_change_a_weight():
    saw = identify(scaled_by_other_queries).saw
    assert "the queries and the keys, and the weight of a key changes with other tokens" in saw
    assert "other tokens" not in identify(talking_heads).saw


def time_first(q, k, v, n_heads):
    T, B, D = q.shape
    split = [x.reshape(B, -1, n_heads, D // n_heads).transpose(0, 2, 1, 3) for x in (q, k, v)]
    scores = split[0] @ split[1].swapaxes(-1, -2) / np.sqrt(D // n_heads)
    return (softmax(scores) @ split[2]).transpose(2, 0, 1, 3).reshape(T, B, D)


def test_a_reshape_that_mixes_sequences():
    assert [row.value for row in identify(time_first).mistakes] == ["batch mixed with tokens"]


def test_an_object_may_keep_anything():
    with np.errstate(all="raise"):
        assert identify(Keeps()).is_found


def rotated_by_squares(q, k, v):
    angles = np.arange(q.shape[-2])[:, None] ** 2 * 100.0 ** -np.arange(2)

    def turn(x):
        a, b, rest = x[..., :2], x[..., 2:4], x[..., 4:]
        c, s = np.cos(angles), np.sin(angles)
        return np.concatenate([a * c - b * s, a * s + b * c, rest], -1)

    return softmax(turn(q) @ turn(k).swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def test_a_single_query_proves_nothing_where_more_of_them_differ():
    assert not identify(rotated_by_squares, seconds=1).is_found


def three_mistakes(query, key, value, n_heads):
    B, _, D = query.shape
    q, k, v = (x.reshape(B, -1, n_heads, D // n_heads).swapaxes(1, 2) for x in (query, key, value))
    weights = softmax((q @ k.swapaxes(-1, -2)).swapaxes(-1, -2)).swapaxes(-1, -2)
    return (weights @ v).reshape(query.shape)


@pytest.mark.slow
def test_three_deviations_are_found():
    sheet = identify(three_mistakes)
    assert [row.value for row in sheet.mistakes] == ["reshape without transpose", "queries"]
    assert sheet.value("scale") == "1"


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def swin(q, k, v, logit_scale, rel_bias, mask=None):
    warmth = np.exp(np.minimum(logit_scale, np.log(100.0)))
    scores = unit(q) @ unit(k).swapaxes(-1, -2) * warmth[:, None, None] + rel_bias
    return softmax(scores if mask is None else scores + mask) @ v


def by_distance(q, k, v, rel):
    most = len(rel) // 2
    distance = np.clip(np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None], -most, most)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(scores + rel[distance + most].transpose(2, 0, 1)) @ v


def in_blocks(q, k, v, block_size=3):
    out = np.zeros((len(q), v.shape[1]))
    for start in range(0, len(q), block_size):
        own = slice(start, start + block_size)
        out[own] = softmax(q[own] @ k[own].T / np.sqrt(q.shape[1])) @ v[own]
    return out


def dilated(q, k, v, dilation=2):
    gap = np.arange(q.shape[-2])[:, None] - np.arange(k.shape[-2])
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where((gap >= 0) & (gap % dilation == 0), scores, -np.inf)) @ v


def of_relu(q, k, v):
    return np.maximum(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), 0) / k.shape[-2] @ v


def tiled(q, k, v):
    k, v = (np.tile(each, (len(q) // len(each), 1, 1)) for each in (k, v))
    return softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])) @ v


def gated(x, w_q, w_k, w_v, w_gate, w_o):
    mixed = softmax((x @ w_q) @ (x @ w_k).swapaxes(-1, -2) / np.sqrt(w_q.shape[1])) @ (x @ w_v)
    return mixed / (1 + np.exp(-(x @ w_gate))) @ w_o


@pytest.mark.parametrize(
    ("function", "setting", "value"),
    [
        (swin, "scale_given", "times exp"),
        (by_distance, "buckets", "j - i"),
        (in_blocks, "blocks", 2),
        (dilated, "stride", 2),
        (of_relu, "normaliser", "relu, 1/T_k"),
        (tiled, "grouping", "tile"),
        (gated, "scale", "1/sqrt(d)"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_forms_that_are_rare(function, setting, value):
    sheet = identify(function)
    assert sheet.value(setting) == value
    assert not sheet.mistakes


def test_a_mask_that_is_added_to_a_bias():
    roles = {each.name: each.what for each in identify(swin).arguments}
    assert roles["mask"] == "another bias, added to the scores"


def test_heads_that_come_first_are_no_batch():
    assert identify(tiled).arguments[1][2] == "(H_kv, T_k, d_k)"


@pytest.mark.slow
def test_a_softmax_over_an_axis_of_length_1():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Additive(nn.Module):
        def __init__(self):
            super().__init__()
            self.W1, self.W2, self.V = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 1)

        def forward(self, query, values):
            score = self.V(torch.tanh(self.W1(query)[:, None] + self.W2(values)))
            return (torch.softmax(score, -1) * values).sum(1)

    (row,) = identify(Additive()).mistakes
    assert row.value == "summed apart"


class OverNodes:
    """Messages along edges; the last map is of an option that is not used."""

    def __init__(self, in_dim, out_dim, heads=1, edge_dim=None, rng=None):
        self.heads, rng = heads, rng or np.random.default_rng(0)
        sizes = [(in_dim, heads * out_dim)] * 3
        self.lin_query, self.lin_key, self.lin_value = (rng.normal(size=size) for size in sizes)
        self.lin_edge = rng.normal(size=(edge_dim, heads * out_dim)) if edge_dim else None

    def __call__(self, x, edge_index, edge_attr=None):
        source, target = edge_index
        shape = len(x), self.heads, -1
        q, k, v = ((x @ w).reshape(shape) for w in (self.lin_query, self.lin_key, self.lin_value))
        k = k[source]
        if self.lin_edge is not None and edge_attr is not None:
            k = k + (edge_attr @ self.lin_edge).reshape(len(k), self.heads, -1)
        e = np.exp((q[target] * k).sum(-1) / np.sqrt(q.shape[-1]))
        total, out = np.zeros(q.shape[:2]), np.zeros_like(q)
        np.add.at(total, target, e)
        np.add.at(out, target, (e / total[target])[..., None] * v[source])
        return out.reshape(len(x), -1)


def test_a_map_of_an_option_is_no_output_projection_that_is_left_out():
    sheet = identify(OverNodes)
    assert sheet.is_found
    assert {"w_o", "orientation"}.isdisjoint(row.setting for row in sheet.mistakes)


def test_a_map_of_an_option_is_found_by_the_name_of_its_module():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class HasBlend(nn.Module):
        def __init__(self):
            super().__init__()
            self.w_q, self.w_k, self.w_v = (nn.Linear(8, 8, bias=False) for _ in range(3))
            self.blend = nn.Linear(8, 8, bias=False)

        def forward(self, x, other=None):
            q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
            out = torch.softmax(q @ k.mT / 8**0.5, -1) @ v
            return out + self.blend(other) if other is not None else out

    sheet = identify(HasBlend())
    assert sheet.is_found
    assert "w_o" not in [row.setting for row in sheet.mistakes]


class ByMethod:
    def __init__(self, method):
        if method not in ["dot", "general"]:
            raise ValueError(method, "is not a method")
        self.method = method

    def __call__(self, hidden, encoder_outputs):
        scores = (hidden * encoder_outputs).sum(2)
        scores -= scores.max(0)
        weights = np.exp(scores) / np.exp(scores).sum(0)
        return (weights[..., None] * encoder_outputs).sum(0)


def test_a_constructor_gets_a_word_that_it_asks_for():
    assert "Built as ByMethod(method='dot')." in identify(ByMethod).notes


def of_values_alone(x, memory, w_q, w_k, w_v, heads):
    B, T, _ = x.shape
    q, k = ((a @ w).reshape(*a.shape[:2], heads, -1) for a, w in ((x, w_q), (memory, w_k)))
    v = (memory @ w_v).reshape(*memory.shape[:2], -1, heads)
    scores = np.einsum("bthd,buhd->bhtu", q, k) / np.sqrt(q.shape[-1])
    return np.einsum("bhtu,budh->bthd", softmax(scores), v).reshape(B, T, -1)


def test_columns_of_the_values_that_alternate():
    (row,) = identify(of_values_alone).mistakes
    assert row.value == "features before heads in v"


@pytest.mark.slow
def test_tensors_that_a_module_keeps_as_they_are_follow_its_dtype():
    torch = pytest.importorskip("torch")

    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = torch.zeros(4, 16, 32)
            self.query = torch.nn.Linear(32, 32)

        def forward(self, x, start_pos: int):
            end = start_pos + x.shape[1]
            self.keys[: len(x), start_pos:end] = x
            keys = self.keys[: len(x), :end]
            scores = self.query(x) @ keys.mT / 32**0.5
            return scores.softmax(-1) @ keys

    assert identify(Keeps()).is_found
