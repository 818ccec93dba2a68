"""Counts against published totals, against real layers, and against an instrumented run."""

from dataclasses import replace

import pytest

from mha_numpy import cli
from mha_numpy.core import KVCache, attention, linear, multi_head_attention_backward
from mha_numpy.core.multihead import multi_head_attention_forward
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models.cost import (
    CONFIGURATIONS,
    ModelConfig,
    count_flops,
    count_parameters,
    find_configuration,
    kv_cache_bytes,
)
from tests.core.test_multihead import square_params

SMALL = ModelConfig("small", 12, 1, 6, 3, 2, 20, 30, 7)


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


def test_by_hand():
    D, F, V = 12, 20, 30
    config = replace(
        SMALL, num_layers=2, feed_forward_maps=3, biases=True, norm_params=2,
        learned_positions=True, tied=False, others=11,
    )  # fmt: skip
    params = count_parameters(config)
    assert params.embedding == (V + 7) * D
    assert params.attention == 2 * (12 * 12 + 2 * 12 * 6 + 12 * 12 + 12 + 6 + 6 + 12)
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

    def test_all(self, capsys):
        assert cli.main(["cost"]) == 0
        said = capsys.readouterr().out
        assert all(name in said for name in CONFIGURATIONS)

    @pytest.mark.parametrize(
        ("rest", "message"),
        [
            (["--model", "gpt4"], "model: expected a name such as gpt-3, gpt-2; got 'gpt4'"),
            (["--model", "gpt-2", "--context", "0"], "context: expected an integer >= 1; got 0"),
            (["--model", "gpt-2", "--batch", "0"], "batch: expected an integer >= 1; got 0"),
        ],
    )
    def test_wrong_use_is_one_line(self, capsys, rest, message):
        assert cli.main(["cost", *rest]) == 2
        assert message in capsys.readouterr().err


def test_numbers_are_python_s_own():
    assert type(count_flops(SMALL, 5).total) is type(count_parameters(SMALL).total) is int
