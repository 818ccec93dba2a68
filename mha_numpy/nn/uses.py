"""How often a layer ran: it keeps what its last forward left, and nothing of those before."""

import functools
from collections.abc import Callable
from typing import Any

from mha_numpy.errors import MhaError


def counted(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer's forward or backward that refuses a second backward after two forwards.

    ``layer.uses`` is the number of forwards in a row, negative once a backward has followed them.
    """
    name = method.__name__

    @functools.wraps(method)
    def run(layer: Any, *inputs: Any, **options: Any) -> Any:
        if getattr(type(layer), name) is not run:  # a part of the layer's own, by super()
            return method(layer, *inputs, **options)
        if name == "forward":
            out = method(layer, *inputs, **options)
            vars(layer)["uses"] = max(layer.uses, 0) + 1
            return out
        if layer.uses < -1 and not layer.is_alike_in_each_use:
            raise MhaError(
                f"backward: expected one forward and one backward for each use of this "
                f"{type(layer).__name__}; it ran forward {-layer.uses} times and keeps only the "
                "last; make a layer for each use, or run forward again before each backward"
            )
        out = method(layer, *inputs, **options)
        vars(layer)["uses"] = -abs(layer.uses)
        return out

    return run
