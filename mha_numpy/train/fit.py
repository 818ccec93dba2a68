"""Training: batch after batch, the params follow the gradient of the loss."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from mha_numpy.blocks import cross_entropy_backward, cross_entropy_forward
from mha_numpy.checks import check_count, check_type
from mha_numpy.errors import ConfigError, TrainingError
from mha_numpy.nn import Layer
from mha_numpy.nn.layer import make_rng
from mha_numpy.nn.params_file import PathLike
from mha_numpy.progress import progress as show_progress
from mha_numpy.train.batch import IGNORED, Batch
from mha_numpy.train.checkpoint import (
    generators_of,
    load_checkpoint,
    save_checkpoint,
    set_states,
    states_of,
)
from mha_numpy.train.clipping import clip_gradients, gradient_norm
from mha_numpy.train.finite import where_it_began
from mha_numpy.train.history import History
from mha_numpy.train.optimizers import Optimizer
from mha_numpy.train.schedules import Schedule, constant


def loss_and_gradients(model: Layer, batch: Batch, *, label_smoothing: float = 0.0) -> float:
    """Run a model forward and backward: return its loss and leave the gradients in its layers.

    Parameters
    ----------
    model : Layer
        ``model(*batch.inputs)`` returns logits; ``model.backward(d_logits)`` follows.
    batch : Batch
    label_smoothing : float
        As `cross_entropy_forward` explains it.

    Returns
    -------
    float
        The mean over all tokens whose target is not IGNORED, in nats.

    Examples
    --------
    >>> from mha_numpy.models import AttentionOnlyLM
    >>> model = AttentionOnlyLM(vocab_size=8, max_tokens=4, rng=0)
    >>> ids = np.array([[1, 2, 3, 4]])
    >>> round(loss_and_gradients(model, Batch((ids,), ids)), 1)  # to guess would cost log(8) = 2.1
    3.0
    """
    # 1. forward
    model.zero_grads()
    logits = model(*batch.inputs)
    loss, cache = cross_entropy_forward(
        logits, batch.targets, ignore_index=IGNORED, label_smoothing=label_smoothing,
        backend=model.backend,
    )  # fmt: skip

    # 2. backward
    d_logits = cross_entropy_backward(np.ones_like(loss), cache).d_logits
    model.backward(d_logits)
    return float(loss)


def fit(
    model: Layer,
    draw_batch: Callable[[np.random.Generator], Batch],
    *,
    steps: int,
    optimizer: Optimizer,
    schedule: Schedule = constant,
    max_norm: float | None = None,
    label_smoothing: float = 0.0,
    rng: int | np.random.Generator = 0,
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
        It returns logits; when training ends, whichever way, it is in `eval` mode.
    draw_batch : function of a numpy Generator that returns a Batch
        All that it draws comes from the generator, and it remembers nothing.
    steps : int
        Of the whole training.
    optimizer : Optimizer
        Of this model.
    schedule : function of the step's number, from 1
        It returns the factor of the learning rate.
    max_norm : float, optional
        Clip gradients that are longer, as `clip_gradients` does.
    label_smoothing : float
        As `cross_entropy_forward` explains it.
    rng : int or numpy Generator
        Draws the batches.
    measure : function of model and step that returns numbers by name, optional
        It runs before the first step, after every `measure_every` steps, and at the end, with the
        model in `eval` mode. What it draws must come from a generator of its own.
    measure_every : int
    stop : function of the History so far, optional
        It runs before each step; True ends the training.
    checkpoint : str or path, optional
        A .npz file. If it is there, the training goes on from it, to the same params, byte for
        byte, as one that never stopped; the other arguments must be the same. It is written after
        every `checkpoint_every` steps and at the end.
    checkpoint_every : int
    progress : bool
        Whether a terminal shows a bar with loss, tokens per second and time left.

    Returns
    -------
    History

    Raises
    ------
    TrainingError
        A loss or gradient is not finite. The message names the step and the layer where it began;
        the params are those before this step.
    FileError
        The checkpoint cannot be read or written, or is of another model. The file and the model
        stay as they were.
    KeyboardInterrupt
        Ctrl-C came. The step is finished and, with `checkpoint`, a checkpoint written first; a
        second Ctrl-C does not wait.
    ConfigError
        An argument has an impossible value; the message names it.

    Examples
    --------
    >>> from mha_numpy.models import AttentionOnlyLM
    >>> from mha_numpy.train import AdamW, Batch, fit
    >>> def count_up(rng):
    ...     ids = rng.integers(8, size=(16, 1)) + np.arange(5)
    ...     return Batch((ids[:, :-1] % 8,), ids[:, 1:] % 8)
    >>> model = AttentionOnlyLM(vocab_size=8, max_tokens=4, embed_dim=16, num_layers=1, rng=0)
    >>> history = fit(model, count_up, steps=60, optimizer=AdamW(model, 1e-2))
    >>> history.losses[0] > 2, history.losses[-1] < 0.1
    (True, True)
    """
    steps = check_count("steps", steps, least=0)
    check_count("measure_every", measure_every)
    check_count("checkpoint_every", checkpoint_every)
    if optimizer.layer is not model:
        raise ConfigError(
            f"optimizer: expected one of this model; got one of another {type(model).__name__}"
        )
    rng = make_rng(rng)
    generators = generators_of(model, rng)
    history = History()
    if checkpoint is not None and os.path.exists(checkpoint):
        history = load_checkpoint(checkpoint, optimizer, rng)

    def take_step(step: int) -> int:
        """Move the params once; return the number of tokens."""
        batch = draw_batch(rng)
        check_type("draw_batch", batch, Batch, "mha_numpy.train")
        states = states_of(generators)  # to run the same again

        def run() -> float:
            return loss_and_gradients(model, batch, label_smoothing=label_smoothing)

        with np.errstate(all="ignore"):  # what is not finite is told below
            loss = run()
            norm = gradient_norm(model) if max_norm is None else clip_gradients(model, max_norm)
            if not math.isfinite(loss + norm):
                set_states(generators, states)
                raise TrainingError(_not_finite(step, loss, norm, where_it_began(model, run)))
            optimizer.step(schedule(step))
        history.losses.append(loss)
        history.norms.append(norm)
        return batch.targets.size

    def measure_now() -> None:
        """Measure, unless this step has been measured."""
        measured = history.measures[-1]["step"] if history.measures else None
        if measure is not None and measured != history.step:
            numbers = measure(model.eval(), history.step)
            named = {name: float(number) for name, number in numbers.items()}
            history.measures.append({"step": history.step, **named})
            model.train()

    def save_now() -> None:
        """Write a checkpoint, if one is wanted."""
        if checkpoint is not None:
            save_checkpoint(checkpoint, optimizer, rng, history)

    tokens, start = 0, time.monotonic()

    def note() -> str:
        """Return what the bar shows beside the time left."""
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
    """Let a first Ctrl-C wait: what is yielded tells whether it came; a second one interrupts.

    A thread that is not the main one gets no Ctrl-C, and a handler of somebody else stays.
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


def _not_finite(step: int, loss: float, norm: float, origin: str) -> str:
    """Say that a step failed, why, and what may help."""
    what = f"loss {loss}" if not math.isfinite(loss) else f"a gradient of norm {norm}"
    return (
        f"step {step}: expected a finite loss and gradient; got {what}, which began in {origin}; "
        "a smaller learning_rate, a warm-up or max_norm may help"
    )
