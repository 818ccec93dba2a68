"""Frequencies and attention factors of every rotation that transformers knows."""

import json
from copy import deepcopy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from mha_numpy.core import rope_frequencies  # noqa: E402
from mha_numpy.models import rope_from_config  # noqa: E402

theirs = pytest.importorskip("transformers.modeling_rope_utils")

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers has its own


def maybe(rng, **values):
    """Return each of the values, or not."""
    return {name: value for name, value in values.items() if rng.random() < 0.5}


def draw_parameters(rng, kind, pairs):
    """Return random parameters of a rotation of some type, some left out where they may be."""
    factor = float(rng.uniform(1, 40))
    original = {"original_max_position_embeddings": int(rng.integers(100, 10000))}
    if kind == "yarn":
        return (
            {"factor": factor if rng.random() < 0.8 else None} | maybe(rng, **original)
            | maybe(rng, beta_fast=float(rng.uniform(8, 64)), beta_slow=float(rng.uniform(0.5, 6)))
            | maybe(rng, attention_factor=1.25, truncate=False)
            | maybe(rng, mscale=float(rng.uniform(0, 2)), mscale_all_dim=float(rng.uniform(0, 2)))
        )  # fmt: skip
    if kind == "longrope":
        short, long = (list(map(float, rng.uniform(1, 60, size=pairs))) for _ in range(2))
        return (
            {"short_factor": short, "long_factor": long} | original
            | maybe(rng, factor=factor, attention_factor=1.25)
        )  # fmt: skip
    if kind == "llama3":
        low = float(rng.uniform(0.5, 2))
        return {
            "factor": factor, "low_freq_factor": low, **original,
            "high_freq_factor": low + float(rng.uniform(0.5, 6)),
        }  # fmt: skip
    return {"factor": factor}


def draw_config(rng, kind):
    """Return what is in a config.json, in an older or the new spelling."""
    head_dim, share = 2 * int(rng.integers(8, 65)), rng.choice([0.25, 0.5, 0.75, 1.0])
    while int(head_dim * share) % 2:
        head_dim += 2
    theta = {"rope_theta": float(10 ** rng.uniform(2, 7))}
    partial = {"partial_rotary_factor": float(share)} if share != 1 or rng.random() < 0.5 else {}
    parameters = draw_parameters(rng, kind, int(head_dim * share) // 2)
    config = {"max_position_embeddings": int(rng.integers(10000, 200000))}
    config |= {"head_dim": head_dim} if rng.random() < 0.5 else {"head_dim": None}
    config |= {"hidden_size": 3 * head_dim, "num_attention_heads": 3}
    if rng.random() < 0.5:
        return config | {"rope_parameters": {"rope_type": kind, **theta, **partial, **parameters}}
    if "original_max_position_embeddings" in parameters and rng.random() < 0.5:
        name = "original_max_position_embeddings"  # Phi-3 has it beside them
        config[name] = parameters[name] // 2
    name = rng.choice(["type", "rope_type"])
    return config | theta | partial | {"rope_scaling": {name: kind, **parameters}}


@pytest.fixture
def in_float64(monkeypatch):
    """Let their functions, which ask for float32, compute in float64."""
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


@pytest.mark.parametrize("kind", theirs.ROPE_INIT_FUNCTIONS)
def test_frequencies_and_attention_factors_are_theirs(kind, in_float64):
    for seed in range(100):
        rng = np.random.default_rng(seed)
        config = draw_config(rng, kind)
        ours = rope_from_config(json.loads(json.dumps(config)))
        of_llama = transformers.LlamaConfig(**deepcopy(config))
        width = ours.rotary_dim or of_llama.head_dim
        at = config["max_position_embeddings"]
        for length in (None, 10, at // 20, at, at + 1, 7 * at):
            expected, factor = theirs.ROPE_INIT_FUNCTIONS[kind](of_llama, "cpu", seq_len=length)
            found, found_factor = rope_frequencies(
                width, base=ours.base, scaling=ours.scaling, length=length
            )
            assert expected.dtype == torch.float64
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12, err_msg=str(config))
            assert found_factor == pytest.approx(factor, rel=1e-12), config


def test_their_types_are_all_here():
    for kind in theirs.ROPE_INIT_FUNCTIONS:
        assert rope_from_config(draw_config(np.random.default_rng(0), kind)).scaling
