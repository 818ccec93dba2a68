from fractions import Fraction

import numpy as np
import pytest

from mha_numpy.bench.problems import (
    SHAPES,
    Case,
    LayerProblem,
    Problem,
    TrainingProblem,
    parse,
)
from mha_numpy.errors import ConfigError
from mha_numpy.models.cost import ModelConfig, count_flops


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("4,12,128,64", Problem(4, 12, 12, 128, 128, 64)),
        ("1,32/8,1024,128", Problem(1, 32, 8, 1024, 1024, 128)),
        ("4,8,128,512,64", Problem(4, 8, 8, 128, 512, 64)),
        ("8,32/8,1,4096,128", Problem(8, 32, 8, 1, 4096, 128)),
        ("layer 1,1024,768,12", LayerProblem(1, 1024, 768, 12)),
        ("TransformerLM 8,4,6,2,1,9", TrainingProblem("TransformerLM", 8, 4, 6, 2, 1, 9)),
    ],
)
def test_parse(name, expected):
    assert parse(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "", "4", "1,2,3", "1,2,3,4,5,6", "1,6/4,8,8", "0,2,3,4", "1, 2,3,4", "-1,2,3,4",
        "layer 1,2,10,3", "TransformerLM 8,4,6,4,1,9", "GPT 8,4,6,2,1,9",
    ],
)  # fmt: skip
def test_what_is_no_shape(name):
    with pytest.raises(ConfigError, match=r"shape: expected B,H\[/H_kv\],T_q\[,T_k\],d or layer"):
        parse(name)


def names(shape, masks):
    return [case.name for case in parse(shape).cases(masks=masks)]


def test_cases():
    assert names("4,12,128,64", False) == ["fwd", "fwd causal", "fwd+bwd", "fwd+bwd causal"]
    assert names("4,12,128,64", True)[:4] == ["fwd", "fwd causal", "fwd padding", "fwd mask"]
    assert names("4,8,128,512,64", True) == [
        "fwd", "fwd padding", "fwd mask", "fwd+bwd", "fwd+bwd padding", "fwd+bwd mask",
    ]  # fmt: skip
    assert names("8,32/8,1,4096,128", True) == ["fwd", "fwd padding"]
    assert names("layer 4,128,768,12", True) == ["fwd", "fwd+bwd"]
    assert names("TransformerLM 8,4,6,2,1,9", True) == ["training step"]


def test_drawn_arrays():
    problem = Problem(4, 6, 3, 5, 7, 11)
    drawn, again, other = (problem.draw(Case(), seed=seed) for seed in (0, 0, 1))
    shapes = [(4, 6, 5, 11), (4, 3, 7, 11), (4, 3, 7, 11), (4, 6, 5, 11)]
    assert [x.shape for x in drawn[:4]] == shapes
    assert drawn.mask is None
    assert {x.dtype for x in drawn[:4]} == {np.dtype("float32")}
    assert np.array_equal(drawn.k, again.k)
    assert not np.array_equal(drawn.k, other.k)
    of_layer = LayerProblem(2, 5, 12, 3).draw(Case())
    assert of_layer.x.shape == of_layer.d_out.shape == (2, 5, 12)
    assert of_layer.num_heads == 3
    assert {name: (x.shape, x.dtype, x.any()) for name, x in of_layer.params.items()} == {
        f"{kind}_{letter}": ((12, 12) if kind == "w" else (12,), np.float32, True)
        for letter in "qkvo" for kind in "wb"
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "shape"), [("padding", (4, 1, 1, 7)), ("full", (4, 1, 5, 7))])
def test_masks_hide_something_and_leave_something_to_every_query(kind, shape):
    for seed in range(20):
        mask = Problem(4, 6, 3, 5, 7, 11).draw(Case(mask=kind), seed=seed).mask
        assert mask.shape == shape
        assert mask.dtype == bool
        assert mask.any(axis=-1).all()
        if kind == "padding":
            assert np.array_equal(mask, np.sort(mask)[..., ::-1])
    assert not mask.all()


FWD, BOTH, CAUSAL = Case(), Case(backward=True), Case(is_causal=True)


@pytest.mark.parametrize(
    ("shape", "case", "operations"),
    [
        # 2 a multiply-add, 2 or 7 products, B H, visible cells, d
        ("4,6/3,5,7,11", FWD, 2 * 2 * 24 * (5 * 7) * 11),
        ("4,6/3,5,7,11", BOTH, 2 * 7 * 24 * (5 * 7) * 11),
        ("4,6/3,5,11", CAUSAL, 2 * 2 * 24 * (1 + 2 + 3 + 4 + 5) * 11),
        ("4,6/3,2,7,11", CAUSAL, 2 * 2 * 24 * (1 + 2) * 11),
        # four maps of 17 by 17 besides, of 4 x 5 tokens
        ("layer 4,5,17,1", FWD, 2 * 20 * 4 * 17 * 17 + 2 * 2 * 4 * 25 * 17),
        ("layer 4,5,17,1", BOTH, 2 * 3 * 20 * 4 * 17 * 17 + 2 * 7 * 4 * 25 * 17),
    ],
)
def test_operations(shape, case, operations):
    assert parse(shape).operations(case) == operations


@pytest.mark.parametrize("kind", ["padding", "full"])
def test_operations_of_hidden_cells_do_not_count(kind):
    problem, case = Problem(4, 6, 3, 5, 7, 11), Case(mask=kind)
    mask = np.broadcast_to(problem.draw(case).mask, (4, 6, 5, 7))
    assert problem.operations(case) == 2 * 2 * mask.sum() * 11 < problem.operations(FWD)


@pytest.mark.parametrize(
    ("model", "has_feed_forward"), [("TransformerLM", 1), ("AttentionOnlyLM", 0)]
)
def test_operations_of_a_training_step(model, has_feed_forward):
    """`cost` counts hidden cells, and not the scores that backward computes once more."""
    B, T, D, H, L, V = 4, 5, 12, 3, 2, 7
    sizes = ModelConfig("", D, L, H, H, D // H, feed_forward=4 * D, vocabulary=V, context=T)
    flops = count_flops(sizes, T, batch=B)
    linear = flops.projections + has_feed_forward * flops.feed_forward + flops.output
    all_cells = Fraction(7, 2) * (flops.scores + flops.mix)
    problem = parse(f"{model} {B},{T},{D},{H},{L},{V}")
    assert problem.operations(*problem.cases()) == 3 * linear + all_cells * Fraction(15, 25)


def test_the_shapes_that_are_measured_are_written_well():
    assert len({parse(shape) for shape in SHAPES}) == len(SHAPES) == 11
