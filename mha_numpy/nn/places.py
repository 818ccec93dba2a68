"""Where a layer is in the model that runs: its steps are called "blocks.0.attention.scores"."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from mha_numpy.core.steps import WATCHER, Scope, Watcher, watching


class Place(Scope):
    """Hands on what a layer records, under the layer's name in the model that runs.

    Parameters
    ----------
    recorder : Watcher
        Of the whole model.
    places : mapping of ints to strings
        The name of each of the model's layers, by its ``id``.
    layer : Layer, optional
        The one that runs.
    name : str
        Of the layer that runs.
    """

    def __init__(
        self, recorder: Watcher, places: Mapping[int, str], layer: Any = None, name: str = ""
    ) -> None:
        super().__init__(recorder, name)
        self.recorder, self.places, self.layer = recorder, places, layer


def placed(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer's method that records under the layer's place in the model that runs."""
    is_backward = method.__name__ == "backward"

    @functools.wraps(method)
    def run(layer: Any, *inputs: Any, **options: Any) -> Any:
        active = WATCHER.get()
        if active is None:
            return method(layer, *inputs, **options)
        if not isinstance(active, Place) or id(layer) not in active.places:
            active = _begin(layer, active, is_backward=is_backward)
        elif active.layer is layer:  # by super(), or one of its methods from another
            return method(layer, *inputs, **options)
        name = _name_of_run(layer, active.places[id(layer)], is_backward=is_backward)
        with watching(Place(active.recorder, active.places, layer, name)):
            return method(layer, *inputs, **options)

    return run


def _begin(model: Any, recorder: Watcher, *, is_backward: bool) -> Place:
    """Name all layers of a model that begins to run."""
    parts = list(model.named_layers())
    if not is_backward:
        for _, part in parts:
            part.runs = 0
    inner = [f"{name}.{part.at_its_place}" for name, part in parts if _shares_its_place(part)]
    return Place(recorder, {id(part): _name_of_place(name, inner) for name, part in parts})


def _shares_its_place(layer: Any) -> bool:
    """Return whether a child records under the layer's own name: one that shares none itself."""
    child = getattr(layer, layer.at_its_place, None) if layer.at_its_place else None
    return child is not None and not child.at_its_place


def _name_of_place(name: str, inner: list[str]) -> str:
    """Return the name of a layer; one that is at its parent's place has the parent's."""
    for each in sorted(inner, reverse=True):  # the longest first
        each = each.lstrip(".")
        if name == each or name.startswith(f"{each}."):
            outer = each.rpartition(".")[0]
            name = (outer + name.removeprefix(each)).lstrip(".")
    return name


def _name_of_run(layer: Any, name: str, *, is_backward: bool) -> str:
    """Return the layer's name, "positions_2" where it runs for the second time.

    Backward runs as often as forward did, the last first.
    """
    run = layer.runs if is_backward else layer.runs + 1
    layer.runs += -1 if is_backward else 1
    return f"{name}_{run}" if name and run > 1 else name
