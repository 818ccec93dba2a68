"""Counts against published totals, against real layers, and against an instrumented run."""

from dataclasses import replace

import pytest

from mha_numpy import cli
from mha_numpy.core import (
    KVCache,
    RollingKVCache,
    attention,
    linear,
    multi_head_attention_backward,
)
from mha_numpy.core.multihead import multi_head_attention_forward
from mha_numpy.errors import ConfigError
from mha_numpy.layers import DeltaState, GatedDeltaNet, LatentAttention, MultiHeadAttention
from mha_numpy.models.cost import (
    CONFIGURATIONS,
    Delta,
    Latent,
    ModelConfig,
    count_flops,
    count_parameters,
    find_configuration,
    kv_cache_bytes,
)
from mha_numpy.variants import latent
from tests.core.test_multihead import square_params

SMALL = ModelConfig("small", 12, 1, 6, 3, 2, 20, 30, 7)
LATENT = replace(SMALL, latent=Latent(queries=9, keys=5, rope=4), attention_others=9 + 5)
GIB, MIB = 2**30, 2**20


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_totals_are_the_published_ones(name):
    config = CONFIGURATIONS[name]
    total = count_parameters(config).total
    if config.published % 1000:  # a checkpoint's own count
        assert total == config.published
    else:  # rounded by the paper
        assert total == pytest.approx(config.published, rel=2.5e-3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kv_heads", [6, 3, 1])
def test_attention_s_params_are_those_of_a_layer(bias, kv_heads):
    layer = MultiHeadAttention(12, 6, kv_heads, head_dim=2, bias=bias)
    config = replace(SMALL, num_layers=5, num_kv_heads=kv_heads, biases=bias)
    assert count_parameters(config).attention == 5 * layer.num_parameters


def latent_layer():
    return LatentAttention(
        12, 6, query_latent_dim=9, latent_dim=5, rope_dim=4, nope_dim=2, value_dim=2, rng=0
    )


def test_latent_attention_s_params_are_those_of_a_layer_and_by_hand():
    params = count_parameters(replace(LATENT, num_layers=3)).attention
    assert params == 3 * latent_layer().num_parameters
    queries, keys = 12 * 9 + 9 + 9 * 6 * (2 + 4), 12 * (5 + 4) + 5 + 5 * 6 * (2 + 2)
    assert params == 3 * (queries + keys + 6 * 2 * 12)


@pytest.mark.parametrize("key_heads", [2, 6])
def test_params_operations_and_state_of_the_delta_rule_are_those_of_a_layer(
    rng, counted, key_heads
):
    layer = GatedDeltaNet(12, 6, key_heads, head_dim=5, kernel_size=3, rng=0).eval()
    others = replace(SMALL, num_layers=2)
    config = replace(others, num_layers=6, delta=Delta(4, key_heads, 6, 5, 3))
    attention = count_parameters(config).attention - count_parameters(others).attention
    assert attention == 4 * layer.num_parameters
    state = DeltaState()
    layer(rng.normal(size=(3, 7, 12)), state=state)
    more = count_flops(config, 7, batch=3).attention - count_flops(others, 7, batch=3).attention
    assert more == 4 * (sum(counted) + 2 * 3 * 7 * 6 * 3 * 5 * 5)  # reads, writes and reads
    for tokens in (7, 8):
        cache, held = (kv_cache_bytes(c, tokens, batch=3, itemsize=8) for c in (config, others))
        assert cache - held == 4 * state.nbytes
        layer(rng.normal(size=(3, 1, 12)), state=state)


def test_by_hand():
    D, F, V = 12, 20, 30
    config = replace(
        SMALL, num_layers=2, feed_forward_maps=3, biases=True, norm_params=2,
        learned_positions=True, tied=False, others=11, attention_others=13, gated=True,
    )  # fmt: skip
    params = count_parameters(config)
    assert params.embedding == (V + 7) * D
    assert params.attention == 2 * (3 * 12 * 12 + 2 * 12 * 6 + 12 + 6 + 6 + 12 + 12 + 13)
    assert params.feed_forward == 2 * (3 * D * F + 2 * F + D)
    assert params.norms == 5 * 2 * D
    assert params.output == V * D
    assert params.total == sum(params[:5]) + 11


@pytest.fixture
def counted(monkeypatch):
    """A list to which every product of the core adds its operations."""
    counted = []

    def counting(product):
        def wrapped(a, b, *rest):
            counted.append(2 * a.size * b.shape[-1])
            return product(a, b, *rest)

        return wrapped

    for name in ("shared_matmul", "summed_matmul"):
        monkeypatch.setattr(attention, name, counting(getattr(attention, name)))
    monkeypatch.setattr(latent, "_map_heads", counting(latent._map_heads))
    monkeypatch.setattr(linear.LINEAR, "steps", counting(linear.linear_steps))

    def two_products(d_out, x, w, has_bias):
        counted.extend([2 * d_out.size * w.shape[0], 2 * x.size * w.shape[1]])
        return linear.linear_steps_backward(d_out, x, w, has_bias)

    monkeypatch.setattr(linear.LINEAR, "steps_backward", two_products)
    return counted


@pytest.mark.parametrize("kv_heads", [6, 3, 1])
def test_flops_are_those_of_an_instrumented_run(rng, counted, kv_heads):
    B, T, D, H = 4, 5, 12, 6
    w_k, w_v = rng.normal(size=(2, D, kv_heads * 2))
    params = square_params(rng, D, D)._replace(w_k=w_k, w_v=w_v, b_k=None, b_v=None)
    out, cache = multi_head_attention_forward(
        rng.normal(size=(B, T, D)), params=params, num_heads=H, num_kv_heads=kv_heads
    )
    config = replace(SMALL, num_kv_heads=kv_heads)
    assert sum(counted) == count_flops(config, T, batch=B).attention > 0
    counted.clear()
    multi_head_attention_backward(out, cache)
    assert sum(counted) == count_flops(config, T, batch=B, backward=True).attention


def test_flops_of_latent_attention_are_those_of_an_instrumented_run(rng, counted):
    """A text is read with keys and values of all heads, and continued from the latents."""
    B, T, past, layer, kv_cache = 4, 3, 7, latent_layer(), KVCache()
    out = layer(rng.normal(size=(B, past, 12)))
    assert sum(counted) == count_flops(LATENT, past, batch=B).attention > 0
    counted.clear()
    layer.backward(out)
    assert sum(counted) == count_flops(LATENT, past, batch=B, backward=True).attention
    layer.eval()
    layer(rng.normal(size=(B, past, 12)), kv_cache=kv_cache)
    counted.clear()
    layer(rng.normal(size=(B, T, 12)), kv_cache=kv_cache)
    assert sum(counted) == count_flops(LATENT, T, past=past, batch=B).attention
    assert kv_cache_bytes(LATENT, past + T, batch=B, itemsize=8) == kv_cache.nbytes


def test_one_token_after_another_is_the_lower_triangle():
    steps = [count_flops(SMALL, 1, past=past) for past in range(7)]
    whole = count_flops(SMALL, 7)
    assert sum(step.projections for step in steps) == whole.projections
    assert sum(step.scores for step in steps) == whole.scores * (7 + 1) / (2 * 7)


def test_flops_by_hand():
    flops = count_flops(replace(SMALL, num_layers=3, feed_forward_maps=3), 5, past=2, batch=4)
    assert flops.projections == 2 * 3 * 4 * 5 * (12 * 12 + 2 * 12 * 6 + 12 * 12)
    assert flops.scores == flops.mix == 2 * 3 * 4 * 6 * 5 * 7 * 2
    assert flops.feed_forward == 2 * 3 * 4 * 5 * 3 * 12 * 20
    assert flops.output == 2 * 4 * 5 * 12 * 30
    assert flops.total == flops.attention + flops.feed_forward + flops.output


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_model_takes_about_two_operations_a_param_and_token(name):
    """The rule of Kaplan et al., for a token with no context and without the embeddings."""
    config = CONFIGURATIONS[name]
    flops, params = count_flops(config, 1), count_parameters(config)
    inner = params.attention + params.feed_forward
    assert flops.projections + flops.feed_forward == pytest.approx(2 * inner, rel=2e-3)


def test_kv_cache_bytes_are_those_of_a_cache_and_fewer_by_grouping(rng):
    k, v = KVCache().append(rng.normal(size=(4, 3, 5, 2)), rng.normal(size=(4, 3, 5, 2)))
    assert kv_cache_bytes(SMALL, 5, batch=4, itemsize=8) == k.nbytes + v.nbytes
    eight = replace(CONFIGURATIONS["llama-3-8b"], num_kv_heads=4)
    assert kv_cache_bytes(replace(eight, num_kv_heads=32), 9) == 8 * kv_cache_bytes(eight, 9)


def test_a_window_keeps_what_a_rolling_cache_keeps(rng):
    local, rolling = replace(SMALL, local_layers=1, window=4), RollingKVCache(window=4, sinks=0)
    for T in range(1, 7):
        k, _ = rolling.append(*rng.normal(size=(2, 5, 3, 1, 2)))
        assert kv_cache_bytes(local, T, batch=5, itemsize=8) == rolling.nbytes
        scores = count_flops(local, 1, past=T - 1, batch=5).scores
        assert scores == 2 * 5 * 6 * k.shape[2] * 2


def test_windows_by_hand():
    mixed = replace(SMALL, num_layers=5, local_layers=3, window=4)
    assert kv_cache_bytes(mixed, 9, itemsize=1) == 2 * 3 * 2 * (2 * 9 + 3 * 4)
    assert kv_cache_bytes(mixed, 4) == kv_cache_bytes(replace(mixed, local_layers=0), 4)
    flops = count_flops(mixed, 2, past=7)  # of two tokens, each sees 4 keys: 5 in all
    assert flops.scores == flops.mix == 2 * 6 * 2 * (2 * 9 + 3 * 5) * 2
    assert count_flops(mixed, 9) == count_flops(replace(mixed, local_layers=0), 9)


@pytest.mark.parametrize(
    ("name", "tokens", "size"),
    [
        ("gemma-2-9b", 8192, (21 * 8192 + 21 * 4096) * 2 * 8 * 256 * 2),
        ("gemma-3-1b", 32768, (4 * 32768 + 22 * 512) * 2 * 256 * 2),
        ("gemma-3-4b", 131072, (5 * 131072 + 29 * 1024) * 2 * 4 * 256 * 2),
        ("gpt-oss-20b", 131072, 3 * GIB + 3 * MIB),  # 12 layers, 2 KiB for each token and layer
        ("deepseek-v3", 1, 70_272),  # 70.272 kB per token, as its authors say
        ("mistral-7b", 32768, 512 * MIB),  # no more than at 4096
        # 36 states of 32 heads with the last 3 tokens before their convolutions, 12 layers of keys
        ("qwen3-next-80b-a3b", 262144, 36 * (32 * 128 * 128 + 3 * 8192) * 2 + 6 * GIB),
    ],
)
def test_caches_of_known_models_by_hand(name, tokens, size):
    assert kv_cache_bytes(CONFIGURATIONS[name], tokens) == size


@pytest.mark.parametrize(
    ("name", "digits", "used"),  # params that a token passes through, as the sources round them
    [("gpt-oss-20b", -7, 3.61e9), ("deepseek-v3", -9, 37e9)],
)
def test_a_token_passes_through_few_experts(name, digits, used):
    params = count_parameters(CONFIGURATIONS[name])
    assert round(params.total - params.others - params.embedding, digits) == used


def test_heads_share_keys_in_four_ways():
    found = {CONFIGURATIONS[name].variant for name in ("deepseek-v3", "olmo-2-7b", "gemma-3-1b")}
    assert found == {"latent", "multi-head", "multi-query"}
    assert CONFIGURATIONS["qwen3-8b"].variant == "grouped-query"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"local_layers": 2}, "local_layers: expected at most 1 of num_layers=1; got 2"),
        (
            {"delta": Delta(2, 1, 1, 4, 4)},
            "delta.layers: expected at most 1 of num_layers=1; got 2",
        ),
        (
            {"delta": Delta(1, 1, 1, 4, 4), "local_layers": 1, "window": 2},
            "local_layers: expected at most 0 of num_layers=1; got 1",
        ),
        ({"delta": Delta(1, 0, 1, 4, 4)}, "delta.key_heads: expected an integer >= 1; got 0"),
        ({"local_layers": -1}, "local_layers: expected an integer >= 0; got -1"),
        ({"local_layers": 1}, "window: expected an integer >= 1; got 0"),
        ({"window": -1}, "window: expected an integer >= 0; got -1"),
        ({"latent": Latent(9, 0, 4)}, "latent.keys: expected an integer >= 1; got 0"),
    ],
)
def test_wrong_sizes(changed, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        replace(SMALL, **changed)


def test_names_are_known_in_any_spelling():
    known = {"gpt2": "gpt-2", "GPT_2": "gpt-2", "Llama3 70B": "llama-3-70b"}
    for spelled, name in {**known, "PaLM 540B": "palm-540b"}.items():
        assert find_configuration(spelled) is CONFIGURATIONS[name]


class TestCommand:
    def test_a_model(self, capsys):
        assert cli.main(["cost", "--model", "llama-3-70b", "--context", "8192"]) == 0
        said = capsys.readouterr().out
        assert "Params: 70,553,706,496; published: 70,553,706,496" in said
        assert "scores        88 T          6.7%   10.7 G         6.7%" in said
        assert "as it is     8     2.5 GiB" in said
        assert "multi-head   64    20 GiB" in said

    @pytest.mark.parametrize(
        ("name", "lines"),
        [
            (
                "gemma-3-1b",
                ["V=262144, local_layers=22, window=512", "without windows  1     832 MiB"],
            ),
            (
                "deepseek-v3",
                [
                    "latent, D=7168",
                    ", latent.keys=512,",
                    "multi-head   128     488 GiB",
                    "as it is     latent  8.58 GiB",
                ],
            ),
            (
                "qwen3-next-80b-a3b",
                [
                    "delta.layers=36,",
                    "state",
                    "as it is                      2     6.04 GiB",
                    "with attention in all layers  2     24 GiB",
                ],
            ),
        ],
    )
    def test_what_is_special_of_a_model(self, capsys, name, lines):
        assert cli.main(["cost", "--model", name]) == 0
        said = capsys.readouterr().out
        assert [line for line in lines if line not in said] == []
        assert ("without windows" in said) == (name == "gemma-3-1b")

    def test_all(self, capsys):
        assert cli.main(["cost"]) == 0
        said = capsys.readouterr().out
        assert all(name in said for name in CONFIGURATIONS)

    @pytest.mark.parametrize(
        ("rest", "message"),
        [
            (
                ["--model", "gpt4"],
                "model: expected a name such as gpt-3, gpt-2, gpt-oss-20b; got 'g",
            ),
            (["--model", "gpt-2", "--context", "0"], "context: expected an integer >= 1; got 0"),
            (["--model", "gpt-2", "--batch", "0"], "batch: expected an integer >= 1; got 0"),
        ],
    )
    def test_wrong_use_is_one_line(self, capsys, rest, message):
        assert cli.main(["cost", *rest]) == 2
        assert message in capsys.readouterr().err


def test_numbers_are_python_s_own():
    assert type(count_flops(SMALL, 5).total) is type(count_parameters(SMALL).total) is int
