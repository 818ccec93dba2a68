"""The history of a training."""

from dataclasses import dataclass, field

import numpy as np

from mha_numpy.dtypes import Array


@dataclass
class History:
    """Loss and gradient norm of every step, and the measurements in between.

    Examples
    --------
    >>> history = History(measures=[{"step": 0, "right": 0.25}, {"step": 100, "right": 0.75}])
    >>> history.curve("right")
    (array([  0, 100]), array([0.25, 0.75]))
    >>> History([4.17, 1.02], [0.5, 0.5])
    History(2 steps, loss 4.17 -> 1.02)
    """

    losses: list[float] = field(default_factory=list)  # of step 1, 2, ..., in nats
    norms: list[float] = field(default_factory=list)  # of the gradient, before clipping
    measures: list[dict[str, float]] = field(default_factory=list)  # each with its "step"

    def __repr__(self) -> str:
        parts = [f"{self.step} step{'s' * (self.step != 1)}"]
        if self.losses:
            ends = dict.fromkeys(f"{loss:.2f}" for loss in (self.losses[0], self.losses[-1]))
            parts.append(f"loss {' -> '.join(ends)}")
        if self.measures:
            parts.append(f"{len(self.measures)} measure{'s' * (len(self.measures) != 1)}")
        return f"History({', '.join(parts)})"

    @property
    def step(self) -> int:
        """Number of steps taken."""
        return len(self.losses)

    def curve(self, name: str) -> tuple[Array, Array]:
        """Return the steps in which a number was measured, and the number in each."""
        found = [measure for measure in self.measures if name in measure]
        return np.array([m["step"] for m in found]), np.array([m[name] for m in found])
