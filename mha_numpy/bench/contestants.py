"""Who takes part, what they need, and who is here."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from mha_numpy.bench.adapters import (
    Ready,
    jax_attention,
    onnx_attention,
    our_attention,
    our_layer,
    torch_attention,
    torch_layer,
)
from mha_numpy.bench.problems import AnyProblem, LayerProblem, Problem
from mha_numpy.bench.training import our_training, torch_training

Adapter = Callable[..., Ready]  # of (drawn, case, threads)


class Contestant(NamedTuple):
    """A way to compute attention."""

    label: str
    packages: tuple[str, ...]  # what must be installed
    install: str  # how
    attention: Adapter
    layer: Adapter | None = None
    training: Adapter | None = None
    has_backward: bool = True

    def adapter(self, problem: AnyProblem) -> Adapter | None:
        """Return what makes such a problem ready; None for who has no such thing."""
        if isinstance(problem, Problem):
            return self.attention
        return self.layer if isinstance(problem, LayerProblem) else self.training

    @property
    def is_here(self) -> bool:
        """Whether all its packages are installed."""
        return all(find_spec(package) for package in self.packages)


def _ours(label: str, backend: str, packages: tuple[str, ...] = ()) -> Contestant:
    attention: Any = partial(our_attention, backend)
    layer: Any = partial(our_layer, backend)
    training: Any = partial(our_training, backend)
    return Contestant(label, packages, "pip install numba", attention, layer, training)


CONTESTANTS = {
    "torch": Contestant(
        "PyTorch", ("torch",),
        "pip install torch --index-url https://download.pytorch.org/whl/cpu",
        torch_attention, torch_layer, torch_training,
    ),
    "jax": Contestant("JAX", ("jax",), "pip install jax", jax_attention),
    "onnxruntime": Contestant(
        "ONNX Runtime", ("onnxruntime", "onnx"), "pip install onnxruntime onnx", onnx_attention,
        has_backward=False,
    ),
    "numba": _ours("our tiles", "numba", ("numba",)),
    "loops": _ours("our loops", "loops", ("numba",)),
    "numpy": _ours("our NumPy", "numpy"),
}  # fmt: skip
OURS = ("numba", "loops", "numpy")
