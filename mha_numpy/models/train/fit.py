"""Training: batch after batch, the params follow the gradient of the loss."""

import inspect
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np

from mha_numpy.backends import backend
from mha_numpy.calls import explained
from mha_numpy.checks import check_count, check_flag, check_function, check_number
from mha_numpy.errors import ConfigError, FileError, TrainingError, describe
from mha_numpy.layers import Layer, cross_entropy_backward, cross_entropy_forward
from mha_numpy.layers.layer import check_layer, make_rng
from mha_numpy.layers.params_file import PathLike, as_path
from mha_numpy.models.train.batch import IGNORED, Batch, check_batch
from mha_numpy.models.train.checkpoint import (
    generators_of,
    load_checkpoint,
    save_checkpoint,
    set_states,
    states_of,
)
from mha_numpy.models.train.finite import ADVICE, check_finite, where_it_began
from mha_numpy.models.train.gradients import clip_gradients, gradient_norm
from mha_numpy.models.train.history import History
from mha_numpy.models.train.optimizers import Optimizer
from mha_numpy.models.train.schedules import Schedule, constant
from mha_numpy.progress import progress as show_progress

# forward of outputs and targets that returns (loss, cache), and backward of (d_loss, cache)
Loss = tuple[Callable[..., Any], Callable[..., Any]]


@explained
def loss_and_gradients(
    model: Layer, batch: Batch, *, label_smoothing: float = 0.0, loss: Loss | None = None
) -> float:
    """Run a model forward and backward: return its loss and leave the gradients in its layers.

    Gradients that were there before are forgotten, so those of several batches do not add up.

    Parameters
    ----------
    model : Layer
        ``model(*batch.inputs)`` returns logits; ``model.backward(d_logits)`` follows.
    batch : Batch
    label_smoothing : float
        As `cross_entropy_forward` explains it.
    loss : pair of functions, optional
        A loss other than cross-entropy, ``(forward, backward)``: ``forward(out, targets)`` returns
        the loss and a cache, ``backward(d_loss, cache)`` the gradient of `out`, by itself or first
        in a tuple.

    Returns
    -------
    float
        The mean over all tokens whose target is not IGNORED, in nats; or what `loss` returns.

    Examples
    --------
    >>> from mha_numpy.models import AttentionOnlyLM
    >>> model = AttentionOnlyLM(vocab_size=8, max_tokens=4, rng=0)
    >>> ids = np.array([[1, 2, 3, 4]])
    >>> round(loss_and_gradients(model, Batch((ids,), ids)), 1)  # guessing would cost log(8) = 2.1
    3.0

    Half the squared difference, summed, for a layer that predicts numbers:

    >>> from mha_numpy.layers import Linear
    >>> def forward(out, targets):
    ...     return ((out - targets) ** 2).sum() / 2, out - targets
    >>> def backward(d_loss, difference):
    ...     return d_loss * difference
    >>> batch = Batch((np.ones((4, 3)),), np.zeros((4, 2)))
    >>> loss_and_gradients(Linear(3, 2, rng=0), batch, loss=(forward, backward)) > 0
    True
    """
    check_layer("model", model)
    check_batch("batch", batch)
    loss_forward, loss_backward = _loss_of(model, label_smoothing, loss)
    try:
        inspect.signature(model.forward).bind(*batch.inputs)
    except TypeError as reason:
        raise ConfigError(
            f"batch: expected the inputs that {type(model).__name__} takes; "
            f"got {len(batch.inputs)}: {reason}"
        ) from reason

    # 1. forward
    model.zero_grads()
    out = model(*batch.inputs)
    with backend(model.backend):
        value, cache = loss_forward(out, batch.targets)

    # 2. backward
    d_out = loss_backward(np.ones_like(value), cache)
    model.backward(d_out[0] if isinstance(d_out, tuple) else d_out)
    return float(value)


def _loss_of(model: Layer, label_smoothing: float, loss: Loss | None) -> Loss:
    if loss is None:
        forward = partial(
            cross_entropy_forward,
            ignore_index=IGNORED, label_smoothing=label_smoothing,
        )  # fmt: skip
        return forward, cross_entropy_backward
    is_pair = isinstance(loss, (tuple, list)) and len(loss) == 2
    if not is_pair or not all(map(callable, loss)):
        raise ConfigError(
            f"loss: expected a pair of functions, (forward, backward); got {describe(loss)}"
        )
    if label_smoothing:
        raise ConfigError(f"label_smoothing: expected 0 with your own loss; got {label_smoothing}")
    return loss


@explained
def fit(
    model: Layer,
    draw_batch: Callable[[np.random.Generator], Batch],
    *,
    steps: int,
    optimizer: Optimizer,
    schedule: Schedule = constant,
    max_norm: float | None = None,
    label_smoothing: float = 0.0,
    loss: Loss | None = None,
    rng: int | np.random.Generator | None = None,
    measure: Callable[[Any, int], Mapping[str, float]] | None = None,
    measure_every: int = 100,
    stop: Callable[[History], bool] | None = None,
    checkpoint: PathLike | None = None,
    checkpoint_every: int = 100,
    progress: bool = True,
) -> History:
    """Train a model: in each step the params move against the gradient of one batch's loss.

    Parameters
    ----------
    model : Layer
        It returns logits. However training ends, it is in `eval` mode afterwards.
    draw_batch : function of a numpy Generator that returns a Batch
        It draws everything from the generator, and keeps no state.
    steps : int
        Number of steps of the whole training.
    optimizer : Optimizer
        Of this model.
    schedule : function of the step's number, from 1
        It returns the factor of the learning rate, at least 0.
    max_norm : float, optional
        Clip longer gradients, as `clip_gradients` does.
    label_smoothing : float
        As `cross_entropy_forward` explains it.
    loss : pair of functions, optional
        A loss other than cross-entropy, as `loss_and_gradients` explains it.
    rng : int or numpy Generator, optional
        Draws the batches; the same seed draws the same. Default: fresh randomness.
    measure : function of model and step that returns numbers by name, optional
        It runs before the first step, after every `measure_every` steps, and at the end, with the
        model in `eval` mode. It must draw from its own generator.
    measure_every : int
    stop : function of the History so far, optional
        It runs before each step; True ends the training.
    checkpoint : str or path, optional
        A .npz file. If it exists, the training continues from it, to the same params, byte for
        byte, as one that never stopped; with all `steps` in it, there is nothing left to train.
        The other arguments must be the same, which is checked for the options of model and
        optimizer. The file is written after every `checkpoint_every` steps and at the end.
    checkpoint_every : int
    progress : bool
        Whether a terminal shows a bar with loss, tokens per second and time left, and a line if a
        checkpoint leaves nothing to train.

    Returns
    -------
    History
        The params are finite then, and so are those of every checkpoint that was written.

    Raises
    ------
    TrainingError
        If a loss or gradient is not finite, or a param or the optimizer's memory would no longer
        be. The message names the step and the culprit: batch, layer, param or schedule. Params and
        optimizer are those before this step.
    FileError
        If the checkpoint cannot be read or written, is of a different model, or has more steps. The
        file and the model stay as they were.
    KeyboardInterrupt
        On Ctrl-C. The step is finished first and, with `checkpoint`, a checkpoint is written; a
        second Ctrl-C does not wait.

    Examples
    --------
    >>> from mha_numpy.models import AttentionOnlyLM
    >>> from mha_numpy.models.train import AdamW, Batch, fit
    >>> def count_up(rng):
    ...     ids = rng.integers(8, size=(16, 1)) + np.arange(5)
    ...     return Batch((ids[:, :-1] % 8,), ids[:, 1:] % 8)
    >>> model = AttentionOnlyLM(vocab_size=8, max_tokens=4, embed_dim=16, num_layers=1, rng=0)
    >>> history = fit(model, count_up, steps=60, optimizer=AdamW(model, 1e-2), rng=0)
    >>> history.losses[0] > 2, history.losses[-1] < 0.1
    (True, True)
    """
    check_layer("model", model)
    check_function("draw_batch", draw_batch, "rng")
    steps = check_count("steps", steps, least=0)
    if not isinstance(optimizer, Optimizer) or optimizer.layer is not model:
        other = " of a different model" if isinstance(optimizer, Optimizer) else ""
        raise ConfigError(
            "optimizer: expected one of this model, such as AdamW(model, 1e-3); "
            f"got {describe(optimizer)}{other}"
        )
    _loss_of(model, label_smoothing, loss)
    check_function("schedule", schedule, "step")
    if max_norm is not None:
        check_number("max_norm", max_norm, positive=True)
    if measure is not None:
        check_function("measure", measure, "model", "step")
    check_count("measure_every", measure_every)
    if stop is not None:
        check_function("stop", stop, "history")
    check_count("checkpoint_every", checkpoint_every)
    check_flag("progress", progress)
    rng = make_rng(rng)
    generators = generators_of(model, rng)
    history = History()
    if checkpoint is not None:
        checkpoint = as_path("checkpoint", checkpoint)
        if not checkpoint.parent.is_dir():
            raise FileError(f"checkpoint: expected an existing folder; got {checkpoint.parent}")
        if checkpoint.exists():
            history = load_checkpoint(checkpoint, optimizer, rng, steps=steps)
            if progress and history.step == steps:
                print(f"training: {checkpoint} has all {steps} steps already", file=sys.stderr)
    check_finite(model.named_params(), "before training")
    largest = (1.0, "")  # factor of the schedule, and what an error says of it

    def take_step(step: int) -> int:
        """Move the params once; return the number of tokens."""
        nonlocal largest
        factor = _factor(schedule, step)
        if factor > largest[0]:
            largest = factor, f"; the largest factor so far was schedule({step}) = {factor:g}"
        batch = draw_batch(rng)
        check_batch("draw_batch", batch)
        states = states_of(generators)  # to run the same again

        def run() -> float:
            return loss_and_gradients(model, batch, label_smoothing=label_smoothing, loss=loss)

        with np.errstate(all="ignore"):  # numbers that are not finite are reported below
            value = run()
            norm = gradient_norm(model) if max_norm is None else clip_gradients(model, max_norm)
            if not math.isfinite(value + norm):
                set_states(generators, states)
                _check_inputs(step, batch)
                got = f"a gradient of norm {norm}" if math.isfinite(value) else f"loss {value}"
                raise TrainingError(
                    f"step {step}: expected a finite loss and gradient; got {got}, which began in "
                    f"{where_it_began(model, run)}; {ADVICE}{largest[1]}"
                )
            try:
                optimizer.step(factor)
            except TrainingError as reason:
                raise TrainingError(f"step {step}: {reason}{largest[1]}") from reason
        history.losses.append(value)
        history.norms.append(norm)
        return np.asarray(batch.targets).size

    def measure_now() -> None:
        """Measure, unless this step has been measured."""
        measured = history.measures[-1]["step"] if history.measures else None
        if measure is not None and measured != history.step:
            numbers = measure(model.eval(), history.step)
            history.measures.append({"step": history.step, **_as_numbers(numbers)})
            model.train()

    def save_now() -> None:
        """Write a checkpoint, if one is wanted."""
        if checkpoint is not None:
            save_checkpoint(checkpoint, optimizer, rng, history)

    tokens, start = 0, time.monotonic()

    def note() -> str:
        """Return the text next to the time left in the bar."""
        speed = tokens / (time.monotonic() - start)
        return f"loss {np.mean(history.losses[-20:]):.3f}, {speed:,.0f} tokens/s"

    todo = range(history.step + 1, steps + 1)
    bar = show_progress(todo, len(todo), "training", note) if progress else (s for s in todo)
    model.train()
    try:
        with closing(bar), held_interrupt() as is_interrupted:
            if history.step == 0:
                measure_now()
            for step in bar:
                if stop is not None and stop(history):
                    break
                tokens += take_step(step)
                if step % measure_every == 0:
                    measure_now()
                if is_interrupted():
                    save_now()
                    raise KeyboardInterrupt(f"stopped after step {step} of {steps}")
                if step % checkpoint_every == 0:
                    save_now()
            measure_now()
            save_now()
    finally:
        model.eval()
    return history


@contextmanager
def held_interrupt() -> Iterator[Callable[[], bool]]:
    """Let a first Ctrl-C wait, and yield a function that says whether it came; a second interrupts.

    Only the main thread gets Ctrl-C, and a handler that is already installed stays.
    """
    pressed: list[int] = []

    def note(signal_number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(signal_number)

    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _factor(schedule: Schedule, step: int) -> float:
    factor = schedule(step)
    factor = factor[()] if isinstance(factor, np.ndarray) else factor  # np.where returns rank 0
    if isinstance(factor, (float, np.floating)) and not math.isfinite(factor):
        raise TrainingError(f"step {step}: expected a finite factor of the schedule; got {factor}")
    return check_number(f"schedule({step})", factor, least=0)


def _as_numbers(measured: Any) -> dict[str, float]:
    try:
        numbers = {name: float(number) for name, number in measured.items()}
    except (AttributeError, TypeError, ValueError, OverflowError) as reason:
        raise ConfigError(
            f"measure: expected a dict of numbers by their names; got {describe(measured)}"
        ) from reason
    if wrong := [name for name in numbers if not isinstance(name, str) or name == "step"]:
        raise ConfigError(f"measure: expected names other than 'step'; got {describe(wrong[0])}")
    return numbers


def _check_inputs(step: int, batch: Batch) -> None:
    """Raise a TrainingError if the batch is to blame; a bias may contain -inf."""
    named = {f"inputs[{i}]": array for i, array in enumerate(batch.inputs)}
    for name, array in {**named, "targets": batch.targets}.items():
        array = np.asarray(array)
        if array.dtype.kind == "f" and not (array < np.inf).all():
            raise TrainingError(
                f"step {step}: expected finite numbers in the batch; "
                f"got NaN or inf in {name}, {describe(array)}"
            )
