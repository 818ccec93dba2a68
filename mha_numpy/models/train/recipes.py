"""Five recipes, each a task, a model and its training; and the trained params."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.calls import explained
from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array, as_float_array, as_integer_array
from mha_numpy.errors import ConfigError, ShapeError, describe
from mha_numpy.layers import Layer, cross_entropy_forward
from mha_numpy.layers.params_file import PathLike
from mha_numpy.models import AttentionOnlyLM, Captioner, TransformerLM, Translator
from mha_numpy.models.analysis.patterns import pattern_score, token_patterns
from mha_numpy.models.train.batch import IGNORED
from mha_numpy.models.train.fit import fit
from mha_numpy.models.train.history import History
from mha_numpy.models.train.optimizers import AdamW
from mha_numpy.models.train.schedules import warm_up_cosine
from mha_numpy.models.train.tasks import Induction, Numbers, Reverse, Scenes, Text
from mha_numpy.models.train.tasks.scenes import PATCH, SIDE

HELD_OUT_SEED = 1  # draws what is measured on


@dataclass(frozen=True)
class Recipe:
    """The recipe for one model: everything except the seed.

    The batches are drawn by ``task.draw_batch(rng, batch_size)``. AdamW clips gradients at norm 1;
    its learning rate rises for `warm_up` of the steps and falls to 0 as a cosine.
    """

    make_task: Callable[..., Any]
    make_model: Callable[..., Any]  # of task, backend and rng
    measure: Callable[[Any, Any], dict[str, float]]  # of model and task
    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.01
    warm_up: float = 0.1


class Trained(NamedTuple):
    """A model that has learned its task."""

    name: str
    task: Any
    model: Any
    history: History  # empty where the params were loaded
    origin: str  # the command that trained it, or the file of its params


def _make_reverse(task: Reverse, **options: Any) -> AttentionOnlyLM:
    return AttentionOnlyLM(
        task.vocab_size, task.num_tokens,
        embed_dim=32, num_heads=1, num_layers=1, is_causal=False, **options,
    )  # fmt: skip


def _measure_reverse(model: AttentionOnlyLM, task: Reverse) -> dict[str, float]:
    (ids,), targets = task.draw_batch(np.random.default_rng(HELD_OUT_SEED), 256)
    right = share_right(model(ids), targets)
    weights = model.attentions[0].weights[:, 0]  # (B, T, T)
    antidiagonal = weights[:, :, ::-1].diagonal(axis1=1, axis2=2)
    return {"right": right, "antidiagonal": float(antidiagonal.mean())}


def _make_induction(task: Induction, **options: Any) -> AttentionOnlyLM:
    return AttentionOnlyLM(
        task.vocab_size, task.num_tokens, embed_dim=64, num_heads=4, num_layers=2, **options
    )


def _measure_induction(model: AttentionOnlyLM, task: Induction) -> dict[str, float]:
    (ids,), targets = task.draw_batch(np.random.default_rng(HELD_OUT_SEED), 256)
    measured = {"right": share_right(model(ids), targets)}
    where = token_patterns(ids)
    for i, attention in enumerate(model.attentions):
        before = pattern_score(attention.weights, where["previous"])
        copying = pattern_score(attention.weights, where["induction"], targets != IGNORED)
        measured |= {f"previous token {i}.{h}": float(score) for h, score in enumerate(before)}
        measured |= {f"induction {i}.{h}": float(score) for h, score in enumerate(copying)}
    return measured


def _make_numbers(task: Numbers, **options: Any) -> Translator:
    return Translator(
        task.source_vocab_size, task.target_vocab_size, task.max_tokens,
        embed_dim=32, num_heads=2, hidden_dim=64, activation="relu", dropout_p=0.02, **options,
    )  # fmt: skip


def _measure_numbers(model: Translator, task: Numbers) -> dict[str, float]:
    """Return the share of held-out numbers that are translated without a mistake."""
    numbers = task.draw_held_out(np.random.default_rng(HELD_OUT_SEED), 2000)
    (source, target), targets = task.batch_of(numbers)
    said = model(source, target).argmax(axis=-1)  # given what is right so far: as when it writes
    weights = model.decoder[0].cross_attention.layer.weights
    units, tens = task.crossing(weights, numbers)
    right = float(((said == targets) | (targets == IGNORED)).all(axis=1).mean())
    return {"right": right, "units look at units": units, "tens look at tens": tens}


def make_captioner(task: Scenes, **options: Any) -> Captioner:
    """Return a small captioner; its options are those of `Captioner`."""
    small: dict[str, Any] = {
        "embed_dim": 32,
        "num_heads": 4,
        "hidden_dim": 64,
        "activation": "relu",
    }
    return Captioner(task.vocab_size, SIDE, PATCH, **small | options)


def _measure_captions(model: Captioner, task: Scenes) -> dict[str, float]:
    """Return the share of new scenes whose words are all right."""
    batch = task.draw_batch(np.random.default_rng(HELD_OUT_SEED), 512)
    right = model(*batch.inputs).argmax(axis=-1) == batch.targets
    return {"right": float(right.all(axis=1).mean())}


def _make_text(task: Text, **options: Any) -> TransformerLM:
    return TransformerLM(
        len(task.vocabulary), task.num_tokens,
        embed_dim=64, num_heads=4, num_layers=2, activation="gelu_tanh", **options,
    )  # fmt: skip


def _measure_text(model: TransformerLM, task: Text) -> dict[str, float]:
    """Return the mean loss on held-out text, in nats per character."""
    (ids,), targets = task.draw_held_out(np.random.default_rng(HELD_OUT_SEED), 64)
    loss, _ = cross_entropy_forward(model(ids), targets)
    return {"held-out loss": float(loss)}


def _read_text(text: str | None = None) -> Text:
    if text is None:
        file = resources.files("mha_numpy.models") / "train" / "data" / "moby-dick.txt"
        text = file.read_text(encoding="utf-8")
    return Text(text)


RECIPES = {
    "reverse": Recipe(Reverse, _make_reverse, _measure_reverse, 150, 64, 1e-2),
    "induction": Recipe(Induction, _make_induction, _measure_induction, 500, 64, 1e-2),
    "numbers": Recipe(
        Numbers, _make_numbers, _measure_numbers, 750, 128, 4e-3, weight_decay=0.1, warm_up=0.3
    ),
    "captions": Recipe(Scenes, make_captioner, _measure_captions, 1000, 64, 1e-2),
    "text": Recipe(_read_text, _make_text, _measure_text, 1500, 32, 1e-2, weight_decay=0.1),
}


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name, or raise a ConfigError that lists all."""
    if not isinstance(name, str) or name not in RECIPES:
        known = ", ".join(RECIPES)
        raise ConfigError(f"model: expected one of {known}; got {describe(name)}")
    return RECIPES[name]


@explained
def train_recipe(
    name: str,
    *,
    text: str | None = None,
    seed: int = 0,
    steps: int | None = None,
    backend: str = "numba",
    measure_every: int = 25,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Trained:
    """Train one of the five models.

    Parameters
    ----------
    name : {"reverse", "induction", "numbers", "captions", "text"}
    text : str, optional
        For "text": the text to learn from; default pieces of *Moby-Dick*.
    seed : int
        Seed of params, dropout and batches.
    steps : int, optional
        Default: the number of the recipe.
    backend : {"numpy", "loops", "numba"}
    measure_every, checkpoint, progress
        As for `fit`.

    Returns
    -------
    Trained
        Model in float32, and history.

    Examples
    --------
    >>> trained = train_recipe("reverse", steps=75, backend="numpy")
    >>> trained.history.measures[-1]["right"] > 0.99
    True
    """
    recipe = find_recipe(name)
    if text is not None and name != "text":
        raise ConfigError(f"text: expected none with {name!r}; got {describe(text)}")
    steps = recipe.steps if steps is None else check_count("steps", steps)
    task = recipe.make_task() if text is None else recipe.make_task(text)
    model: Layer = recipe.make_model(task, backend=backend, rng=seed).astype(np.float32)
    history = fit(
        model,
        lambda rng: task.draw_batch(rng, recipe.batch_size),
        steps=steps,
        optimizer=AdamW(
            model, recipe.learning_rate, weight_decay=recipe.weight_decay, backend=backend
        ),
        schedule=warm_up_cosine(steps, int(recipe.warm_up * steps)),
        max_norm=1.0,
        rng=seed,
        measure=lambda model, step: recipe.measure(model, task),
        measure_every=measure_every,
        checkpoint=checkpoint,
        progress=progress,
    )
    return Trained(name, task, model, history, f"mha-numpy train {name}, seed {seed}")


def load_trained(name: str, *, params: PathLike | None = None, backend: str = "numpy") -> Trained:
    """Return a trained model, with the params that are shipped or with your own.

    The command ``mha-numpy train NAME`` makes the shipped ones.

    Parameters
    ----------
    name : {"reverse", "induction", "numbers", "captions", "text"}
    params : path, optional
        A file written by ``mha-numpy train NAME --save DIR`` or ``model.save``. A model of text
        reads and writes the characters of the shipped text.
    backend : {"numpy", "loops", "numba"}

    Returns
    -------
    Trained
        Model in float64, in `eval` mode; the params were rounded to float16.

    Examples
    --------
    >>> trained = load_trained("reverse")
    >>> trained.model(np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])).argmax(axis=-1)
    array([[8, 5, 3, 5, 6, 2, 9, 5, 1, 4, 1, 3]])
    """
    recipe = find_recipe(name)
    task = recipe.make_task()
    model: Layer = recipe.make_model(task, backend=backend, rng=0)
    origin = f"mha-numpy train {name}, seed 0"
    if params is None:
        with resources.as_file(params_file(name)) as path:
            model.load(path)
    else:
        model.load(params)
        origin = f"params of {Path(params).name}"
    return Trained(name, task, model.eval(), History(), origin)


def params_file(name: str) -> Any:
    """Return the path of a recipe's shipped params."""
    return resources.files("mha_numpy") / "models" / "trained" / f"{name}.npz"


def share_right(logits: Array, targets: Array) -> float:
    """Return the share of asked tokens, from 0 to 1, whose likeliest answer is right.

    Parameters
    ----------
    logits : (..., V) float array
    targets : (...,) int array
        IGNORED where nothing is asked.

    Examples
    --------
    >>> share_right(np.array([[0.1, 0.9], [0.7, 0.3], [0.2, 0.8]]), np.array([1, 1, IGNORED]))
    0.5
    """
    logits, targets = as_float_array("logits", logits), as_integer_array("targets", targets, "ids")
    if logits.shape[:-1] != targets.shape or 0 in logits.shape or logits.ndim == 0:
        raise ShapeError(
            f"targets: expected the shape of logits {logits.shape} without V, none of it 0; "
            f"got {targets.shape}"
        )
    asked = targets != IGNORED
    if not asked.any():
        raise ConfigError("targets: expected one that is not IGNORED; got none")
    return float((logits.argmax(axis=-1) == targets)[asked].mean())
