"""Writing: with a cache as without, by the right probabilities, the best that a search finds."""

from itertools import product

import numpy as np
import pytest

from mha_numpy import BlockPool, Int8KVCache, PagedKVCache, RollingKVCache, RopeOptions
from mha_numpy.errors import ConfigError, MhaError
from mha_numpy.layers import DeltaOptions
from mha_numpy.models import AttentionOnlyLM, TransformerLM, Translator, choose, generate, translate
from mha_numpy.models.translator import END, START
from tests.compare import assert_close
from tests.gradients import randomize

V, N = 7, 6
TARGET_V, LONGEST = 5, 3
PROBS = np.array([0.1, 0.5, 0.05, 0.35])


KINDS = {
    "transformer": (TransformerLM, {"num_kv_heads": 1}),
    "attention alone": (AttentionOnlyLM, {}),
}


def language_model(N=N, kind="transformer"):
    model, options = KINDS[kind]
    model = model(V, N, embed_dim=8, num_heads=2, rng=0, **options)
    return randomize(model, np.random.default_rng(4)).eval()


def write_without_cache(model, ids, steps, choose_next):
    """Write by the full forward, over the longest context that has positions."""
    first = max(0, ids.shape[1] - model.max_tokens)
    for _ in range(steps):
        if ids.shape[1] - first > model.max_tokens:
            first = ids.shape[1] - (model.max_tokens + 1) // 2
        new = choose_next(model(ids[:, first:])[:, -1])
        ids = np.concatenate([ids, new[:, None]], axis=1)
    return ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("T", [1, 4, N, N + 3])
def test_greedy_takes_the_likeliest_also_when_positions_are_used_up(T, kind):
    model, ids = language_model(kind=kind), np.random.default_rng(0).integers(V, size=(3, T))
    expected = write_without_cache(model, ids, 3 * N, lambda logits: logits.argmax(axis=-1))
    assert len(np.unique(expected[:, T:])) > 1
    assert np.array_equal(generate(model, ids, 3 * N, temperature=0), expected)


@pytest.mark.parametrize("N", [1, 5])
def test_drawing_with_a_cache_is_drawing_without(N):
    model, ids = language_model(N), np.array([[1, 5, 2, 0]])
    rng, options = np.random.default_rng(8), {"temperature": 2.0, "top_k": 5, "top_p": 0.9}
    expected = write_without_cache(
        model, ids, 20, lambda logits: choose(logits, rng=rng, **options)
    )  # fmt: skip
    assert np.array_equal(generate(model, ids, 20, rng=8, **options), expected)
    assert not np.array_equal(generate(model, ids, 20, rng=9, **options), expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, PROBS),
        ({"temperature": 0.5}, PROBS**2),
        ({"temperature": 1e-3}, [0, 1, 0, 0]),
        ({"temperature": 0}, [0, 1, 0, 0]),
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_k": 3}, [0.1, 0.5, 0, 0.35]),
        ({"top_k": 9, "top_p": 1}, PROBS),
        ({"top_p": 0.49}, [0, 1, 0, 0]),
        ({"top_p": 0.51}, [0, 0.5, 0, 0.35]),
        ({"top_p": 0.86}, [0.1, 0.5, 0, 0.35]),
        ({"top_k": 3, "top_p": 0.6}, [0, 0.5, 0, 0.35]),
        ({"top_k": 2, "top_p": 0.9}, [0, 0.5, 0, 0.35]),
        ({"top_p": 0.9, "temperature": 0.5}, [0, 0.5**2, 0, 0.35**2]),
    ],
)
def test_tokens_are_drawn_by_their_probability(options, expected):
    logits = np.log(PROBS) + 3.0
    drawn = choose(np.tile(logits, (100_000, 1)), rng=1, **options)
    shares = np.bincount(drawn, minlength=len(PROBS)) / len(drawn)
    expected = np.array(expected) / np.sum(expected)
    assert not shares[expected == 0].any()
    np.testing.assert_allclose(shares, expected, atol=0.006)  # 4 standard deviations


def test_each_row_is_drawn_by_itself():
    drawn = choose(np.log(np.tile([[0.9, 0.1], [0.2, 0.8]], (20_000, 1))), rng=2).reshape(-1, 2)
    np.testing.assert_allclose(drawn.mean(axis=0), [0.1, 0.8], atol=0.012)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.03


def test_nothing_is_dropped_while_writing_and_each_layer_keeps_its_mode():
    options = {"embed_dim": 8, "num_heads": 2, "num_layers": 2, "dropout_p": 0.5, "rng": 0}
    for model, write in {
        TransformerLM(V, N, **options): lambda model: generate(model, np.array([[1]]), 20, rng=0),
        Translator(V, V, N, **options): lambda model: translate(model, SOURCE, beams=2),
    }.items():
        randomize(model, np.random.default_rng(1)).eval()
        expected = write(model)
        for part in list(model.layers())[::2]:
            part.training = True
        modes = [part.training for part in model.layers()]
        assert np.array_equal(write(model), expected)
        model.unembedding.params["w"][0, 3] = np.nan
        with pytest.raises(ConfigError, match="^logits: expected finite .*; got nan in row 0"):
            write(model)
        assert [part.training for part in model.layers()] == modes
        assert set(modes) == {True, False}


@pytest.mark.parametrize("stop", [3, [3], [3, 0], np.array([1, 3, 5])])
def test_a_row_ends_with_a_stop_token(stop):
    model, ids = language_model(), np.random.default_rng(0).integers(V, size=(5, 2))
    ids[0] = 3  # in a beginning it ends nothing
    whole = generate(model, ids, 40, rng=3)
    found = generate(model, ids, 40, rng=3, stop=stop)
    lengths = []
    for row, full in zip(found, whole, strict=True):
        length = int(np.flatnonzero(np.isin(full[2:], stop))[0]) + 3
        assert np.array_equal(row[:length], full[:length])
        assert (row[length:] == full[length - 1]).all()
        lengths.append(length)
    assert found.shape[1] == max(lengths) > min(lengths)


class AlmostOne(np.random.Generator):
    """Draw the largest number below 1."""

    def __init__(self):
        super().__init__(np.random.PCG64())

    def random(self, size):
        return np.full(size, np.nextafter(1, 0))


def test_what_is_ruled_out_is_not_chosen_even_by_rounding():
    logits = np.random.default_rng(0).normal(size=(200, 300)).astype(np.float32)
    logits[:, 7] = -np.inf
    assert not (choose(logits, rng=AlmostOne()) == 7).any()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("temperature", [1e-320, 1e-50, 1e300])
def test_any_temperature_is_a_temperature(temperature, dtype):
    logits = np.tile(np.array([1, 3, 2], dtype), (100, 1))
    chosen = set(choose(logits, temperature=temperature, rng=0))
    assert chosen == ({1} if temperature < 1 else {0, 1, 2})


def test_draws_are_fresh_unless_there_is_a_seed():
    even = np.zeros((1, 50))
    assert len({int(choose(even)[0]) for _ in range(20)}) > 5
    assert len({int(choose(even, rng=3)[0]) for _ in range(20)}) == 1
    model, rng = language_model(), np.random.default_rng(0)
    texts = {generate(model, np.array([[1]]), 5, rng=rng).tobytes() for _ in range(20)}
    assert len(texts) > 10


def rotated_model(max_tokens=N, **options):
    options |= {"num_kv_heads": 2, "rope": RopeOptions(base=8.0)}
    model = TransformerLM(V, max_tokens, embed_dim=16, num_heads=4, rng=0, **options)
    return randomize(model, np.random.default_rng(10)).eval()


@pytest.mark.parametrize("T", [2, N + 3])
@pytest.mark.parametrize("kind", ["paged", "int8", "rolling", "rolling for long"])
def test_other_kinds_of_cache_write_the_same_text(T, kind):
    pool, texts = (
        BlockPool(2 * 2 * 4, block_size=2),
        np.random.default_rng(0).integers(V, size=(2, T)),
    )
    expected = generate(rotated_model(), texts, 3 * N, temperature=0)
    new_kv_cache = {
        "paged": lambda: PagedKVCache(pool),  # freed when the text continues from its end
        "int8": Int8KVCache,
        "rolling": lambda: RollingKVCache(window=N, sinks=1),  # is full after the positions are
        "rolling for long": lambda: RollingKVCache(window=4, sinks=0),
    }[kind]
    model = rotated_model()
    if kind == "rolling for long":  # a text that is read through a window, without any end
        expected = generate(
            rotated_model(T + 3 * N, window=(3, 0)), texts[:, -N:], 3 * N, temperature=0
        )
    written = generate(model, texts, 3 * N, temperature=0, new_kv_cache=new_kv_cache)
    assert len(np.unique(expected[:, T:])) > 1
    assert np.array_equal(written[:, -3 * N :], expected[:, -3 * N :])
    assert pool.free_blocks == len(pool.users)


def test_a_block_of_the_delta_rule_keeps_its_state_beside_other_kinds_of_cache():
    ids, model = np.array([[1, 2, 3]]), rotated_model(delta=[DeltaOptions(4), None])
    written = generate(model, ids, N, temperature=0, new_kv_cache=Int8KVCache)
    assert np.array_equal(written, generate(model, ids, N, temperature=0))


def test_a_cache_that_does_not_fit_the_model():
    ids = np.array([[1, 2, 3]])
    rolling = [RollingKVCache(window=2, sinks=1) for _ in range(2)]
    for kind in KINDS:
        with pytest.raises(
            ConfigError, match="^kv_caches: expected none that rolls, because learned"
        ):
            language_model(kind=kind)(ids, kv_caches=rolling)
    with pytest.raises(ConfigError, match="^new_kv_cache: expected a function"):
        generate(language_model(), ids, 2, new_kv_cache=RollingKVCache(3))
    for kind in KINDS:
        pool = BlockPool(3, block_size=2)  # layer 0 needs two blocks, layer 1 too
        kv_caches = [PagedKVCache(pool), PagedKVCache(pool)]
        with pytest.raises(MhaError, match="^pool: expected 2 free blocks"):
            language_model(kind=kind)(ids, kv_caches=kv_caches)
        assert (pool.free_blocks, kv_caches[0].length) == (3, 0)


def translator(seed):
    model = Translator(6, TARGET_V, 4, embed_dim=8, num_heads=2, num_layers=1)
    randomize(model, np.random.default_rng(seed))
    model.unembedding.params["w"] *= 3  # or the shortest target would always be the likeliest
    model.target_positions.params["table"] *= 4  # or all its words would be the same
    return model.eval()


SOURCE = np.array([[3, 5, 4]])
SEEDS = range(14)


def log_prob(model, target):
    """Return the log-probability of a target, by one forward over all of it."""
    logits = model(SOURCE, np.array([[START, *target[:-1]]]))[0]
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return log_probs[np.arange(len(target)), list(target)].sum()


def test_one_beam_is_greedy():
    ends = set()
    padded = np.pad(SOURCE, ((0, 0), (0, 1)))
    for seed in SEEDS:
        model, expected = translator(seed), [START]
        while len(expected) <= LONGEST and END not in expected:
            expected.append(int(model(SOURCE, np.array([expected]))[0, -1].argmax()))
        ends.add(expected[-1] == END)
        assert list(translate(model, SOURCE, max_tokens=LONGEST)) == expected[1:]
        assert_close(translate(model, padded, beams=2), translate(model, SOURCE, beams=2))
    assert ends == {True, False}


def test_a_search_as_wide_as_all_finds_the_likeliest_target():
    others = [token for token in range(TARGET_V) if token != END]
    whole = [
        (*body, END) for length in range(LONGEST) for body in product(others, repeat=length)
    ]  # fmt: skip
    for seed in (1, 8, 12, 13):  # in 8 the likeliest target does not begin as the greedy one
        model = translator(seed)
        best = max(whole, key=lambda target: log_prob(model, target))
        found = translate(model, SOURCE, max_tokens=LONGEST, beams=TARGET_V**LONGEST)
        assert tuple(found) == best
