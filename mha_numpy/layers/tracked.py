"""Bookkeeping for every run of a layer: its backend, its place in the model, and its forward."""

import functools
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from mha_numpy.backends import backend, chosen_backend
from mha_numpy.errors import MhaError
from mha_numpy.steps import WATCHER, Relay, Watcher, watching

UNCHANGED = nullcontext()


class Place(Relay):
    """Passes on a layer's records, under its name in the model: "blocks.0.attention.scores".

    Equations stay as they are, because their names belong to the same place. `recorder` is that of
    the whole model, `places` maps the ``id`` of each layer to its name, and `layer` runs under the
    name `name`.
    """

    def __init__(
        self, recorder: Watcher, places: Mapping[int, str], layer: Any = None, name: str = ""
    ) -> None:
        super().__init__(recorder, prefix=f"{name}." if name else "")
        self.recorder, self.places, self.layer = recorder, places, layer


def tracked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer's method, run by the layer's backend and recorded under its place.

    A backward has to fit the last forward, and uses its backend if the layer has none.

    ``layer.uses`` is the number of forwards in a row in each mode, the last mode at the end; a
    number is negative once a backward has followed.
    """
    name = method.__name__
    is_forward, is_backward = name == "forward", name == "backward"

    @functools.wraps(method)
    def run(layer: Any, *inputs: Any, **options: Any) -> Any:
        if getattr(type(layer), name) is not run:  # by super()
            return method(layer, *inputs, **options)
        uses = layer.uses
        if is_backward:
            mode = _check_mode_and_uses(layer)
        around = chosen_backend()
        chosen = layer.backend or (layer.computed_by if is_backward else around)
        with UNCHANGED if chosen == around else backend(chosen):
            active = WATCHER.get()
            if active is None:
                out = method(layer, *inputs, **options)
            else:
                with watching(_place_of(layer, active, is_backward=is_backward)):
                    out = method(layer, *inputs, **options)
        if is_forward:
            vars(layer)["computed_by"] = chosen
            uses[layer.training] = max(uses.pop(layer.training, 0), 0) + 1
        elif is_backward and uses:
            uses[mode] = -abs(uses[mode])
        return out

    return run


def _check_mode_and_uses(layer: Any) -> bool:
    """Return the mode of the last forward, or raise if a backward now does not fit it."""
    uses, kind = layer.uses, type(layer).__name__
    mode: bool = next(reversed(uses), layer.training)
    if layer.training and not mode:
        raise MhaError(
            f"backward: expected the last forward of this {kind} in training mode, its mode now; "
            "it ran in eval mode, and only the last forward is kept; run forward again, or "
            "validate after backward"
        )
    if uses.get(mode, 0) < -1 and not layer.is_alike_in_each_use:
        raise MhaError(
            f"backward: expected one forward and one backward for each use of this {kind}; it ran "
            f"forward {-uses[mode]} times and keeps only the last; make a layer for each use, or "
            "run forward again before each backward"
        )
    return mode


def _place_of(layer: Any, active: Watcher, *, is_backward: bool) -> Place:
    """Return the place of a layer that starts to run: in the running model, or a new one."""
    if not isinstance(active, Place) or id(layer) not in active.places:
        active = _begin(layer, active, is_backward=is_backward)
    elif active.layer is layer:  # one of its methods calls another
        return active
    name = _name_of_run(layer, active.places[id(layer)], is_backward=is_backward)
    return Place(active.recorder, active.places, layer, name)


def _begin(model: Any, recorder: Watcher, *, is_backward: bool) -> Place:
    """Name all layers of a model that starts to run."""
    if not is_backward:
        for part in model.layers():
            part.runs = 0
    places: dict[int, str] = {}
    _name_places(model, "", places)
    return Place(recorder, places)


def _name_places(layer: Any, name: str, places: dict[int, str]) -> None:
    """Name a layer and all below it; a child in its parent's place has the parent's name.

    A layer that two share has the name of its first place.
    """
    if id(layer) in places:
        return
    places[id(layer)] = name
    for part, child in layer.children().items():
        is_at_its_place = part == layer.at_its_place and not child.at_its_place
        _name_places(child, name if is_at_its_place else f"{name}.{part}".lstrip("."), places)


def _name_of_run(layer: Any, name: str, *, is_backward: bool) -> str:
    """Return the layer's name, such as "positions_2" for the second run.

    Backward runs as often as forward did, in reverse order.
    """
    run = layer.runs if is_backward else layer.runs + 1
    layer.runs += -1 if is_backward else 1
    return f"{name}_{run}" if name and run > 1 else name
