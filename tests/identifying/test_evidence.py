"""What source and docstring say of arguments, before anything is called."""

import numpy as np
import pytest

from mha_numpy import identify
from mha_numpy.identifying.blaming.blame import find_use
from mha_numpy.identifying.calling.evidence import Evidence
from mha_numpy.identifying.calling.subject import Subject


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def conv(w, image):
    return np.einsum("oc,bchw->bohw", w, image)


def of_images(feat, theta, phi, g, w_z):
    B, _, H, W = feat.shape
    q, k, v = (conv(w, feat).reshape(B, -1, H * W) for w in (theta, phi, g))
    weights = softmax(q.swapaxes(1, 2) @ k)
    return feat + conv(w_z, (v @ weights.swapaxes(1, 2)).reshape(B, -1, H, W))


def as_in_c(out, q, k, v, T, H, hs):
    for h in range(H):
        for t in range(T):
            at = [(s * H + h) * hs for s in range(T)]
            row = np.array([sum(q[at[t] + i] * k[j + i] for i in range(hs)) for j in at])
            weights = softmax(row / hs**0.5)
            for i in range(hs):
                out[at[t] + i] = sum(w * v[j + i] for w, j in zip(weights, at, strict=True))


def of_three(inputs):
    query, value, key = inputs
    return softmax(query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])) @ value


def in_tiles(q, k, v):
    T, d = q.shape
    if T % 16 or d not in (32, 64) or k.shape != q.shape or v.shape != q.shape:
        raise NotImplementedError("whole tiles of 16")
    return softmax(q @ k.T / np.sqrt(d)) @ v


def into_a_store(ctx, q, k, v):
    ctx["weights"] = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return ctx["weights"] @ v


def by_docstring(x, y, z):
    """Let x queries (B, T, d), y keys (B, T, d) and z values (B, T, e) meet."""
    return softmax(x @ y.swapaxes(-1, -2) / np.sqrt(x.shape[-1])) @ z


def of_one_key_head(x, params, n_head):
    """x (B, T, D); params: wq (D, n_head*d), wk (D, d), wv (D, d), wo (n_head*d, D)"""
    B, T, _ = x.shape
    q = (x @ params["wq"]).reshape(B, T, n_head, -1)
    k, v = x @ params["wk"], x @ params["wv"]
    weights = softmax(np.einsum("bqhd,bkd->bhqk", q, k) * k.shape[-1] ** -0.5)
    return np.einsum("bhqk,bkd->bqhd", weights, v).reshape(B, T, -1) @ params["wo"]


class OfImages:
    def __init__(self, w_f, w_g, w_h):
        self.w_f = w_f  # keys
        self.w_g = w_g  # queries
        self.w_h = w_h  # values

    def __call__(self, x):
        b, c, h, w = x.shape
        k, q, v = (each @ x.reshape(b, c, h * w) for each in (self.w_f, self.w_g, self.w_h))
        return (v @ softmax(q.swapaxes(1, 2) @ k).swapaxes(1, 2)).reshape(b, -1, h, w)


@pytest.mark.parametrize(
    "function",
    [of_images, as_in_c, of_three, in_tiles, into_a_store, by_docstring, of_one_key_head, OfImages],
)
def test_signatures_are_understood_and_nothing_is_called_a_mistake(function):
    sheet = identify(function)
    assert sheet.is_found, sheet.saw
    assert not sheet.mistakes


def test_the_source_tells_arrays_from_numbers():
    known = Subject(as_in_c).evidence
    assert {name: known[name].kind for name in ("q", "T", "hs")} == {
        "q": "flat", "T": "number", "hs": "number",
    }  # fmt: skip


def test_a_function_that_is_called_tells_the_rank():
    known = Subject(of_images).evidence
    assert [known[name].rank for name in ("feat", "theta", "w_z")] == [4, 2, 2]


def test_an_array_that_is_changed_first_has_any_rank():
    def attend(x):
        x = x[None]
        B, T, D = x.shape
        return x.reshape(B, T, D)

    assert Subject(attend).evidence["x"] == Evidence("array")


def test_one_map_for_all_heads_of_pytorch():
    torch = pytest.importorskip("torch")

    class Layer(torch.nn.Module):
        def __init__(self, embed_size=32, heads=4):
            super().__init__()
            self.heads, self.width = heads, embed_size // heads
            maps = (torch.nn.Linear(self.width, self.width, bias=False) for _ in range(3))
            self.values, self.keys, self.queries = maps
            self.fc_out = torch.nn.Linear(embed_size, embed_size)

        def forward(self, values, keys, query, mask):
            split = (x.reshape(*x.shape[:2], self.heads, self.width) for x in (values, keys, query))
            maps = (self.values, self.keys, self.queries)
            v, k, q = (own(x) for own, x in zip(maps, split, strict=True))
            energy = torch.einsum("nqhd,nkhd->nhqk", q, k)
            energy = energy.masked_fill(mask == 0, float("-1e20"))
            weights = torch.softmax(energy / self.width**0.5, dim=3)
            return self.fc_out(torch.einsum("nhql,nlhd->nqhd", weights, v).flatten(2))

    sheet = identify(Layer)
    assert sheet.is_found, sheet.saw
    assert not sheet.mistakes
    assert {each.name: each.axes for each in sheet.arguments}["keys.weight"] == "(d_k, d_k)"


def test_a_dict_that_is_asked_by_a_sum_of_texts_is_no_buffer():
    def attend(x, weights, name):
        return x @ weights[name + "_q"], x[name + 1]

    known = Subject(attend).evidence
    assert (known["weights"].kind, known["x"].kind) == ("", "array")


def test_words_after_the_name_of_an_array():
    def attend(query_seq, doc_seq):
        weights = softmax(query_seq @ doc_seq.swapaxes(-1, -2) / np.sqrt(query_seq.shape[-1]))
        return weights @ doc_seq

    assert [each.what for each in identify(attend).arguments][1] == "tokens of keys and values"


def test_heads_with_an_axis_of_their_group():
    def attend(Q, K, V, S):
        """Q (T, H_kv, group, d), S: learned sinks (H,)"""
        scores = np.einsum("tgrd,sgd->grts", Q, K) / np.sqrt(Q.shape[-1])
        extra = np.broadcast_to(S.reshape(*scores.shape[:2], 1, 1), (*scores.shape[:3], 1))
        weights = softmax(np.concatenate([scores, extra], -1))[..., :-1]
        return np.einsum("grts,sgd->tgrd", weights, V).reshape(len(Q), -1)

    sheet = identify(attend)
    assert [each.axes for each in sheet.arguments] == [
        "(T_q, H_kv, H/H_kv, d_k)", "(T_k, H_kv, d_k)", "(T_k, H_kv, d_v)", "(H,)",
    ]  # fmt: skip
    assert not sheet.mistakes


def test_keys_and_values_in_one_tuple():
    def attend(q, kv):
        k, v = kv
        return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v

    assert [each.name for each in identify(attend).arguments] == ["q", "kv[0]", "kv[1]"]


def test_packed_numbers_as_in_c():
    def attend(inp, B, T, C, NH):
        out, width = np.zeros(B * T * C, inp.dtype), C // NH
        for b in range(B):
            for h in range(NH):
                starts = [(b * T + t) * 3 * C + h * width for t in range(T)]
                part = [
                    [[inp[at + i + n] for n in range(width)] for at in starts]
                    for i in (0, C, 2 * C)
                ]
                q, k, v = np.array(part)
                heads = softmax(q @ k.T / np.sqrt(width)) @ v
                for t in range(T):
                    for n in range(width):
                        out[(b * T + t) * C + h * width + n] = heads[t, n]
        return out

    sheet = identify(attend)
    assert sheet.is_found, sheet.saw
    assert not sheet.mistakes


def test_names_of_params_with_a_path():
    def attend(params, x, num_heads):
        def project(name):
            y = x @ params[name + "/w"] + params[name + "/b"]
            return y.reshape(len(x), num_heads, -1).swapaxes(0, 1)

        q, k, v = map(project, ("query", "key", "value"))
        heads = softmax(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v
        return heads.swapaxes(0, 1).reshape(len(x), -1) @ params["linear/w"]

    assert identify(attend).is_found


def test_nothing_has_no_line():
    assert find_use(Subject(of_three), "") is None


def test_an_einsum_that_is_given_by_names_is_read_over():
    def attend(q, k):
        return np.einsum(subscripts="td,sd->ts", operands=(q, k)) @ np.einsum()

    assert Subject(attend).evidence["q"] == Evidence()
