import numpy as np
import pytest

from mha_numpy import (
    BlockPool,
    KVCache,
    PagedKVCache,
    RopeOptions,
    attention_forward,
    multi_head_attention_decode,
    multi_head_attention_forward,
    rope_forward,
    tree_mask,
    tree_positions,
)
from mha_numpy.core import accepted_path
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.models import TransformerLM, generate
from tests.compare import assert_close
from tests.core.test_multihead import square_params
from tests.gradients import randomize

PARENTS = [-1, 0, 0, 1, 2, 1, -1, 6]


def path_to(token):
    return [*path_to(PARENTS[token]), token] if token >= 0 else []


@pytest.mark.usefixtures("backend")
def test_each_path_equals_itself_alone(rng):
    past, T = 3, len(PARENTS)
    q, k, v = rng.normal(size=(2, 4, T, 6)), *rng.normal(size=(2, 2, 2, past + T, 6))
    places = tree_positions(PARENTS, past)
    k_places = np.concatenate([np.arange(past), places])
    out, _ = attention_forward(
        rope_forward(q, positions=places)[0],
        rope_forward(k, positions=k_places)[0],
        v,
        mask=tree_mask(PARENTS, past),
    )
    for token in range(T):
        path = path_to(token)
        seen = [*range(past), *(past + i for i in path)]
        expected, _ = attention_forward(
            rope_forward(q[:, :, path], positions=past + np.arange(len(path)))[0],
            rope_forward(k[:, :, seen])[0],
            v[:, :, seen],
            is_causal=True,
            q_offset=past,
        )
        assert_close(out[:, :, path], expected)


@pytest.mark.parametrize("kind", [KVCache, lambda: PagedKVCache(BlockPool(30, 2))])
def test_a_pruned_tree_leaves_what_its_path_would_have(rng, kind):
    options = {"params": square_params(rng, 16, 8), "num_heads": 4, "num_kv_heads": 2}
    options |= {"rope": RopeOptions(base=5.0)}
    text, tree, last = (rng.normal(size=(2, T, 16)) for T in (3, len(PARENTS), 1))
    whole, path = np.concatenate([text, tree[:, path_to(4)], last], axis=1), path_to(4)
    expected, _ = multi_head_attention_forward(whole, is_causal=True, **options)
    kv_cache = kind()
    multi_head_attention_decode(text, kv_cache=kv_cache, is_causal=True, **options)
    out, _ = multi_head_attention_decode(
        tree, kv_cache=kv_cache, mask=tree_mask(PARENTS, 3), positions=tree_positions(PARENTS, 3),
        **options,
    )  # fmt: skip
    assert_close(out[:, path], expected[:, 3:-1])
    kv_cache.keep([0, 1, 2, *(3 + i for i in path)])
    out, _ = multi_head_attention_decode(last, kv_cache=kv_cache, **options)
    assert_close(out, expected[:, -1:])


def test_an_empty_tree_and_a_chain():
    assert tree_mask([], past=2).shape == (0, 2)
    assert tree_positions(np.zeros(0, int)).shape == (0,)
    assert_close(tree_mask([-1, 0, 1]), np.tri(3), "exact")


def test_the_path_is_the_one_that_the_model_writes():
    ids, chosen = [9, 1, 2, 3, 4, 5], [2, 0, 4, 0, 7, 0]
    parents = [-1, 0, 0, 1, 2, 2]
    assert accepted_path(parents, ids, chosen).tolist() == [0, 2, 4]
    assert accepted_path(parents, ids, [8] * 6).tolist() == [0]
    assert accepted_path([-1, 0, 0, 1], [9, 2, 2, 2], [2, 2, 0, 0]).tolist() == [0, 1, 3]  # twins


def test_a_text_with_drafts_is_the_text_without(rng):
    """A model that sees order by its causal mask only: nothing depends on positions."""
    model = TransformerLM(
        7, 40, embed_dim=16, num_heads=4, num_kv_heads=2, rope=RopeOptions(rotary_dim=0), rng=0
    )
    randomize(model, rng).eval()
    text = np.array([[3, 1, 4]])
    expected = generate(model, text, 20, temperature=0)
    kv_caches, forwards = model.new_kv_caches(), 0
    model(text[:, :-1], kv_caches=kv_caches)
    parents = np.array([-1, 0, 0, 0, 1, 1, 2, 3])
    while text.shape[1] < expected.shape[1]:
        past = kv_caches[0].length
        drafts = rng.integers(7, size=len(parents))
        drafts[0] = text[0, -1]
        drafts[[2, 6]] = np.pad(expected[0], (0, 2))[past + 1 : past + 3]  # a good guess, mostly
        drafts[6] = rng.choice([drafts[6], 0])
        mask = tree_mask(parents, past)[None, None]
        chosen = model(drafts[None], mask=mask, kv_caches=kv_caches)[0].argmax(axis=-1)
        path = accepted_path(parents, drafts, chosen)
        for kv_cache in kv_caches:
            kv_cache.keep([*range(past), *(past + path)])
        text = np.concatenate([text, chosen[None, path]], axis=1)
        forwards += 1
    assert_close(text[:, : expected.shape[1]], expected, "exact")
    assert len(set(expected[0])) > 1
    assert forwards < 12  # of 20 tokens


def test_wrong_input():
    for call, error, message in (
        (
            lambda: tree_mask([0]),
            ConfigError,
            "parents: expected an earlier token.* got 0 for token 0",
        ),
        (lambda: tree_mask([-1, -2]), ConfigError, "parents: expected .*; got -2 for token 1"),
        (lambda: tree_mask([[-1]]), ShapeError, r"parents: expected \(T,\); got \(1, 1\)"),
        (lambda: tree_mask([-1.0]), ConfigError, "parents: expected a"),
        (lambda: tree_positions([-1], past=-1), ConfigError, "past: expected an integer >= 0"),
        (lambda: accepted_path([-1, 0], [1], [1, 2]), ShapeError, r"ids: expected \(T=2,\)"),
        (lambda: accepted_path([-1, -1], [1, 2], [1, 2]), ConfigError, "parents: .*got 2 roots"),
        (lambda: accepted_path([], [], []), ConfigError, "parents: expected"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            call()
    with pytest.raises(ConfigError, match="^tokens: expected integers from 0 to -1; got"):
        KVCache().keep([0])
