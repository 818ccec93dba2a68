"""Find where numbers stop being finite."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mha_numpy.errors import TrainingError
from mha_numpy.layers import Layer

ADVICE = "a smaller learning_rate, a warm-up or max_norm may help"


def where_it_began(model: Layer, run: Callable[[], object]) -> str:
    """Return the first layer that computes a number that is not finite while `run` uses the model.

    For example "the forward of norm, whose gain is not finite". Inner layers end before outer ones.
    """
    found: list[str] = []

    def watch(name: str, layer: Layer, direction: str) -> None:
        pass_of_layer = getattr(layer, direction)

        def run_and_look(*inputs: Any, **options: Any) -> Any:
            result = pass_of_layer(*inputs, **options)
            made = (result, list(layer.grads.values()) if direction == "backward" else None)
            if not is_finite(made):
                bad = [param for param, array in layer.params.items() if not is_finite(array)]
                reason = f", whose {bad[0]} is not finite" if bad else ""
                found.append(f"the {direction} of {name or type(layer).__name__}{reason}")
            return result

        setattr(layer, direction, run_and_look)

    parts = list(model.named_layers())
    for name, layer in parts:
        watch(name, layer, "forward")
        watch(name, layer, "backward")
    try:
        run()
    finally:
        for _, layer in parts:
            del layer.forward, layer.backward  # the class has its own
    return found[0] if found else "the loss itself"


def is_finite(result: Any) -> bool:
    """Return whether an array, or each array in a tuple or list, has only finite numbers."""
    if isinstance(result, (tuple, list)):
        return all(is_finite(part) for part in result)
    # the sum of squares is finite only if each number is, and the quickest to compute
    return result is None or np.isfinite(np.vdot(result, result)) or np.isfinite(result).all()


def check_finite(named: Iterable[tuple[str, Any]], when: str) -> None:
    """Raise a TrainingError that names the first param with a number that is not finite."""
    for name, array in named:
        if not is_finite(array):
            raise TrainingError(f"{name}: expected finite numbers {when}; got nan or inf")
