"""What calls of a function change besides what they return, put back when all is done."""

import os
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np

from mha_numpy.identifying.calling.arrays import (
    globals_of,
    holders,
    inner_function,
    is_keras,
    owner_of,
)
from mha_numpy.identifying.calling.asked import Drawn


@contextmanager
def undone(*functions: Any) -> Iterator[None]:
    """Let functions change themselves and what is global; put both back in the end.

    Meanwhile frameworks compile and start threads as little as they can: arrays are small.
    """
    with ExitStack() as stack:
        _keep_globals(stack)
        for function in functions:
            stack.callback(State(function).put_back)
        yield


class State:
    """What an object, a closure and globals keep from call to call, to be put back."""

    def __init__(self, function: Any) -> None:
        self._back: list[tuple[Any, ...]] = []  # what to call, with its arguments
        with suppress(Exception):  # an object that nobody may look into
            for own in _changeable(function):
                self._keep(own)

    def put_back(self) -> None:
        """Put everything back."""
        for change, *arguments in self._back:
            change(*arguments)

    def _keep(self, own: dict[str, Any]) -> None:
        """Keep a dict, and the arrays and lists in it; what was drawn stays drawn."""
        if isinstance(own, Drawn):
            return
        self._back += [(dict.clear, own), (dict.update, own, dict(own))]
        for value in own.values():
            if isinstance(value, np.ndarray) and value.flags.writeable:
                self._back.append((np.copyto, value, value.copy()))
            elif isinstance(value, list):
                self._back.append((list.__setitem__, value, slice(None), [*value]))
            elif is_buffer(value):
                self._back.append((_restore, value, value.clone()))


def _restore(buffer: Any, values: Any) -> None:
    """Put values back into a tensor of PyTorch, without the graph of calls that wrote into it."""
    if buffer.grad_fn is not None:
        buffer.detach_()
    buffer.copy_(values)


def is_buffer(value: Any) -> bool:
    """Return whether something is a tensor of PyTorch that calls may fill, and no param."""
    torch: Any = sys.modules.get("torch")
    return bool(torch) and type(value) is torch.Tensor and value.is_leaf and not value.requires_grad


def _changeable(function: Any) -> Iterator[dict[str, Any]]:
    """Yield what a function may keep results in: attributes, closures and globals."""
    inner = inner_function(function)
    for holder in (owner_of(function), inner):
        if not is_keras(holder):  # Keras adds to lists that lie deeper
            yield from (own for _, own in holders(holder))
    yield globals_of(inner)


def _keep_globals(stack: ExitStack) -> None:
    """Put back the state of what all code of a process shares."""
    stack.callback(random.setstate, random.getstate())
    stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
    with suppress(OSError):
        stack.callback(os.chdir, os.getcwd())
    torch: Any = sys.modules.get("torch")
    if torch:
        stack.callback(torch.set_rng_state, torch.get_rng_state())
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
    jax: Any = sys.modules.get("jax")
    if jax:
        config = jax.config
        fast = {"jax_disable_most_optimizations": True, "jax_traceback_filtering": "off"}
        for name in ("jax_enable_x64", *fast):
            stack.callback(config.update, name, config.values[name])
        for name, value in fast.items():
            config.update(name, value)
    stack.callback(_close_figures, _figures())
    plt: Any = sys.modules.get("matplotlib.pyplot")
    if plt:  # a window would wait for somebody to close it
        stack.callback(setattr, plt, "show", plt.show)
        plt.show = lambda *_, **__: None


def _figures() -> list[int]:
    plt: Any = sys.modules.get("matplotlib.pyplot")
    return list(plt.get_fignums()) if plt else []


def _close_figures(kept: list[int]) -> None:
    for number in _figures():
        if number not in kept:
            sys.modules["matplotlib.pyplot"].close(number)
