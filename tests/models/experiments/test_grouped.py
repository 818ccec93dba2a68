import numpy as np
import pytest

from mha_numpy.models.experiments import grouped
from mha_numpy.models.experiments.grouped import (
    ARMS,
    STEPS,
    VOCABULARY,
    D,
    T,
    kept,
    longer,
    make_model,
    worse,
)
from mha_numpy.models.experiments.result import Result
from mha_numpy.models.train import RECIPES


def test_the_recipe_has_the_vocabulary_that_is_claimed():
    assert len(RECIPES["text"].make_task().vocabulary) == VOCABULARY


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm.endswith("wider")])
def test_wider_models_have_as_many_params_to_within_half_a_hidden_unit(arm):
    multi_head = make_model("H_kv = 8", 0).num_parameters
    assert abs(make_model(arm, 0).num_parameters - multi_head) <= (2 * D + 1) / 2


@pytest.mark.parametrize("arm", ARMS)
def test_a_token_costs_the_bytes_that_are_claimed(arm):
    model = make_model(arm, 0)
    kv_caches = model.new_kv_caches()
    model(np.zeros((1, T), int), kv_caches=kv_caches)
    assert kv_caches[0].nbytes == T * kept(ARMS[arm][1])


@pytest.mark.parametrize("arm", ["H_kv = 2", "H_kv = 2, longer", "H_kv = 1, longer"])
def test_an_arm_trains_for_its_steps_and_is_timed_with_its_heads(arm, monkeypatch):
    asked = []
    monkeypatch.setattr(grouped, "train", lambda model, draw, steps, *_, **__: asked.append(steps))
    monkeypatch.setattr(grouped, "_tokens_a_second", lambda *heads: asked.append(heads))
    grouped._run(arm, 0)
    num_kv_heads = int(arm[7])
    assert asked == [longer(num_kv_heads) if "longer" in arm else STEPS, (8, num_kv_heads, 0)]


def test_losses_are_compared_seed_by_seed():
    runs = {"a": {"loss": [1.5, 2.5, 9.5]}, "b": {"loss": [1.0, 2.0, 9.0]}}
    assert worse(Result("grouped", (0, 1, 2), runs, 1), "a", "b") == (0.5, 0.5, 0.5)
