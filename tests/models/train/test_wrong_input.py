"""What a user may get wrong in training and writing: every argument, every odd value."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from mha_numpy.errors import MhaError
from mha_numpy.layers import LayerNorm
from mha_numpy.models import TransformerLM, Translator, choose, generate, train, translate
from mha_numpy.models.train import SGD, AdamW, Batch, History, ParamGroup

ODD = {
    "None": None,
    "text": "x",
    "a list": [1, "x"],
    "an empty list": [],
    "NaN": np.nan,
    "-1": -1,
    "huge": 10**400,
    "True": True,
    "a dict": {"x": 1},
    "an object": SimpleNamespace(shape=3),
    "floats": np.full((2, 3), np.nan),
    "ints": np.arange(4),
    "objects": np.array([None, "x"]),
}
ONES, IDS = np.ones(2), np.array([[1, 2, 3]])
STEP = {"param": ONES, "gradient": ONES, "learning_rate": 0.1}


def optimizer(folder):
    return {"layer": LayerNorm(2), "learning_rate": 0.1}


def fit_arguments(folder):
    model = TransformerLM(7, 4, embed_dim=6, num_heads=2, num_layers=1)
    return {
        "model": model, "draw_batch": lambda rng: Batch((IDS,), IDS), "steps": 2,
        "optimizer": AdamW(model), "measure": lambda model, step: {"one": 1.0}, "measure_every": 1,
        "checkpoint": folder / "run.npz", "progress": False,
    }  # fmt: skip


def checkpoint_arguments(folder):
    arguments = {
        "path": folder / "run.npz", "optimizer": SGD(LayerNorm(2), 0.1),
        "rng": np.random.default_rng(0), "history": History([2.5], [0.5]),
    }  # fmt: skip
    train.save_checkpoint(**arguments)
    return arguments


def load_arguments(folder):
    arguments = checkpoint_arguments(folder)
    del arguments["history"]
    return arguments


def recipe_arguments(folder):
    return {
        "name": "reverse", "steps": 1, "backend": "numpy", "checkpoint": folder / "run.npz",
        "progress": False,
    }  # fmt: skip


# every public function and class, with right arguments besides its defaults
RIGHT = {
    train.SGD: optimizer,
    train.Adam: optimizer,
    train.AdamW: optimizer,
    train.Optimizer: optimizer,
    train.ParamGroup: lambda folder: {"names": "gain"},
    train.sgd_step: lambda folder: {**STEP, "velocity": ONES},
    train.adam_step: lambda folder: {**STEP, "mean": ONES, "square": ONES, "t": 1},
    train.clip_gradients: lambda folder: {"layer": LayerNorm(2), "max_norm": 1.0},
    train.gradient_norm: lambda folder: {"layer": LayerNorm(2)},
    train.constant: lambda folder: {"step": 1},
    train.warm_up_cosine: lambda folder: {"steps": 9},
    train.fit: fit_arguments,
    train.loss_and_gradients: lambda folder: {
        "model": fit_arguments(folder)["model"],
        "batch": Batch((IDS,), IDS),
    },
    train.save_checkpoint: checkpoint_arguments,
    train.load_checkpoint: load_arguments,
    train.train_recipe: recipe_arguments,
    train.load_trained: lambda folder: {"name": "reverse"},
    train.share_right: lambda folder: {"logits": np.ones((2, 3)), "targets": np.ones(2, int)},
    train.History: lambda folder: {},
    train.Batch: lambda folder: {"inputs": (IDS,), "targets": IDS},
    train.Trained: lambda folder: dict.fromkeys(train.Trained._fields),
    train.Recipe: lambda folder: vars(train.RECIPES["reverse"]),
    generate: lambda folder: {"model": fit_arguments(folder)["model"], "ids": IDS, "steps": 2},
    choose: lambda folder: {"logits": np.ones((2, 3))},
    translate: lambda folder: {"model": Translator(7, 7, 4, embed_dim=6), "source": IDS},
}


def run(function, arguments):
    """Call it; an optimizer, and a schedule, are used as well."""
    made = function(**arguments)
    if isinstance(made, train.Optimizer) and type(made) is not train.Optimizer:
        made.step()
    if function is train.warm_up_cosine:
        made(1)


def test_every_public_function_is_walked():
    public = {value for name in train.__all__ if callable(value := getattr(train, name))}
    assert public <= set(RIGHT)


RECORDS = (train.History, train.Batch, train.Trained, train.Recipe)  # take whatever comes


def is_named(what, function, *inputs, **options):
    """Return whether a call raises an error of ours, in one short line; no other may come."""
    error = None
    try:
        function(*inputs, **options)
    except Exception as raised:
        error = raised
    assert error is None or isinstance(error, MhaError), f"{what}: {error!r}"
    assert "\n" not in str(error), what
    assert len(str(error)) < 400, what
    return error is not None


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_an_odd_argument_works_or_is_named(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, named = RIGHT[function], 0
    run(function, make(tmp_path))
    for name, parameter in inspect.signature(function).parameters.items():
        for odd, value in ODD.items() if parameter.kind is not parameter.VAR_KEYWORD else ():
            (tmp_path / "run.npz").unlink(missing_ok=True)
            arguments = {**make(tmp_path), name: value}
            named += is_named(f"{name} as {odd}", run, function, arguments)
    assert named or function in (*RECORDS, train.constant)


RETURNS = {
    "draw_batch": lambda value: {"draw_batch": lambda rng: value},
    "a batch's inputs": lambda value: {"draw_batch": lambda rng: Batch(value, IDS)},
    "a batch's input": lambda value: {"draw_batch": lambda rng: Batch((value,), IDS)},
    "two inputs": lambda value: {"draw_batch": lambda rng: Batch((IDS, value), IDS)},
    "a batch's targets": lambda value: {"draw_batch": lambda rng: Batch((IDS,), value)},
    "schedule": lambda value: {"schedule": lambda step: value},
    "measure": lambda value: {"measure": lambda model, step: value},
    "a number of measure": lambda value: {"measure": lambda model, step: {"one": value}},
    "stop": lambda value: {"stop": lambda history: value is None},
    "a function of nothing": lambda value: {"stop": lambda: value},
}


@pytest.mark.parametrize("name", RETURNS)
def test_an_odd_answer_works_or_is_named(name, tmp_path):
    named = 0
    for odd, value in ODD.items():
        (tmp_path / "run.npz").unlink(missing_ok=True)
        arguments = {**fit_arguments(tmp_path), **RETURNS[name](value)}
        named += is_named(odd, train.fit, **arguments)
    assert named or name == "stop"


def step_in_group(**options):
    AdamW(LayerNorm(2), groups=[ParamGroup("gain", **options)]).step()


@pytest.mark.parametrize(
    "option", ["betas", "eps", "learning_rate", "weight_decay", "backend", "momentum", "lr"]
)
def test_an_odd_option_of_a_group_works_or_is_named(option):
    assert sum(is_named(odd, step_in_group, **{option: value}) for odd, value in ODD.items())


@pytest.mark.parametrize("field", ["losses", "norms", "measures"])
def test_an_odd_history_is_not_saved(field, tmp_path):
    for odd, value in ODD.items():
        for held in (value, [value]):
            arguments = checkpoint_arguments(tmp_path)
            (tmp_path / "run.npz").unlink()
            setattr(arguments["history"], field, held)
            if is_named(odd, train.save_checkpoint, **arguments):
                assert not (tmp_path / "run.npz").exists()
