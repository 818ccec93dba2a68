"""Problems to measure: sizes, cases, and the random arrays of one call."""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe

SHAPES = (
    "2,4,16,16", "4,12,128,64", "1,12,1024,64", "1,8,4096,64", "1,32/8,1024,128",
    "4,8,128,512,64", "8,32/8,1,4096,128", "layer 4,128,768,12", "layer 1,1024,768,12",
    "TransformerLM 8,256,256,8,4,96", "AttentionOnlyLM 64,48,64,4,2,32",
)  # fmt: skip
SHORT = 10**9  # fewer operations take milliseconds, even in plain NumPy

Mask = Literal["padding", "full", "bias"]


class Case(NamedTuple):
    """The kind of call: forward or both, causal, masked, with a window, in float64.

    Examples
    --------
    >>> Case().name, Case(backward=True, is_causal=True).name, Case(mask="padding").name
    ('fwd', 'fwd+bwd causal', 'fwd padding')
    >>> Case(is_causal=True, window=256, is_double=True).name
    'fwd causal window 256 float64'
    >>> Case(backward=True, updates=True).name
    'training step'
    """

    backward: bool = False
    is_causal: bool = False
    # "padding" (B, 1, 1, T_k) and "full" (B, 1, T_q, T_k) are bool, "bias" (1, H, T_q, T_k) floats
    mask: Mask | None = None
    updates: bool = False  # a loss comes between, and an optimizer after
    window: int = 0  # how many keys a query sees at most, up to its own; 0: all
    is_double: bool = False  # float64

    @property
    def name(self) -> str:
        """The heading of this case's column."""
        if self.updates:
            return "training step"
        words = ["fwd+bwd" if self.backward else "fwd"]
        if self.is_causal:
            words.append("causal")
        if self.mask:
            words.append("mask" if self.mask == "full" else self.mask)
        if self.window:
            words.append(f"window {self.window}")
        if self.is_double:
            words.append("float64")
        return " ".join(words)


class Drawn(NamedTuple):
    """The arrays of one attention call, and the gradient of its output."""

    q: Array  # (B, H, T_q, d)
    k: Array  # (B, H_kv, T_k, d)
    v: Array  # (B, H_kv, T_k, d)
    d_out: Array  # (B, H, T_q, d)
    mask: Array | None = None  # bool, True = may attend
    bias: Array | None = None  # (1, H, T_q, T_k), added to the scores


class LayerDrawn(NamedTuple):
    """The float32 arrays of one call of a whole layer."""

    x: Array  # (B, T, D)
    params: dict[str, Array]  # w_q (D, D), b_q (D,), and so on
    d_out: Array  # (B, T, D)
    num_heads: int


class TrainingDrawn(NamedTuple):
    """The tokens of one batch."""

    problem: "TrainingProblem"
    ids: Array  # (B, T)
    targets: Array  # (B, T)


class Ready(NamedTuple):
    """A contestant ready to start: one problem in its own layout, with its own API."""

    call: Callable[[], Any]
    read: Callable[[Any], list[Array]]  # out, then the gradients, in our layout


class Problem(NamedTuple):
    """Sizes of attention, written ``B,H[/H_kv],T_q[,T_k],d``."""

    B: int
    H: int
    H_kv: int
    T_q: int
    T_k: int
    d: int

    def operations(self, case: Case) -> int:
        """Count those of the products of visible cells, two for each multiply-add.

        Forward has two products: q k^T, and weights v. Backward has five: the scores once more,
        d_v, d_dropped, d_q and d_k.
        """
        products = 7 if case.backward else 2
        return 2 * products * self.H * self.d * self._count_visible(case)

    def _count_visible(self, case: Case) -> int:
        """Return how many cells a head sees, in all sequences together."""
        mask = self._draw_mask(case)
        if case.mask == "full":
            visible = joint_mask(self.T_q, self.T_k, case, mask)
            assert visible is not None
            return int(visible.sum())
        lengths = np.full((self.B, 1), self.T_k) if mask is None else mask.sum(axis=-1)[:, 0]
        if not case.is_causal:
            return self.T_q * int(lengths.sum())
        i = np.arange(self.T_q)
        last = np.minimum(i + 1, lengths)  # keys up to a query's own: (B, T_q)
        return int((last - np.clip(i + 1 - (case.window or self.T_q), 0, last)).sum())

    def cases(self, *, masks: bool = False) -> list[Case]:
        """Return the cases worth measuring: one query has no future, decoding no backward."""
        is_decode, is_square = self.T_q == 1, self.T_q == self.T_k
        kinds = [Case(), *[Case(is_causal=True)] * is_square]
        if masks:
            kinds += [Case(mask="padding"), *[Case(mask="full")] * (not is_decode)]
        passes = [False] if is_decode else [False, True]
        return [kind._replace(backward=backward) for backward in passes for kind in kinds]

    def draw(self, case: Case, *, seed: int = 0) -> Drawn:
        """Return random arrays; every query may attend to something."""
        B, H, H_kv, T_q, T_k, d = self
        rng = np.random.default_rng(seed)
        dtype = np.float64 if case.is_double else np.float32
        q, d_out = (_normal(rng, B, H, T_q, d).astype(dtype, copy=False) for _ in range(2))
        k, v = (_normal(rng, B, H_kv, T_k, d).astype(dtype, copy=False) for _ in range(2))
        bias = None
        if case.mask == "bias":
            bias = _normal(rng, 1, H, T_q, T_k).astype(dtype, copy=False)
        return Drawn(q, k, v, d_out, self._draw_mask(case, seed=seed), bias)

    def _draw_mask(self, case: Case, *, seed: int = 0) -> Array | None:
        """Return a mask of sequences of several lengths, or of random cells, by itself."""
        rng = np.random.default_rng([seed, 1])
        if case.mask == "padding":
            lengths = rng.integers((self.T_k + 1) // 2, self.T_k + 1, size=(self.B, 1, 1, 1))
            return np.arange(self.T_k) < lengths
        if case.mask == "full":
            mask = rng.random((self.B, 1, self.T_q, self.T_k)) < 0.7
            mask[..., 0] = True
            return mask
        return None


def joint_mask(T_q: int, T_k: int, case: Case, mask: Array | None) -> Array | None:
    """Return a mask together with what causality and a window hide."""
    if not case.is_causal:
        return mask
    i, j = np.ogrid[:T_q, :T_k]
    seen = j <= i
    if case.window:
        seen &= j > i - case.window
    return seen if mask is None else seen & mask


class LayerProblem(NamedTuple):
    """Sizes of a whole self-attention layer, written ``layer B,T,D,H``."""

    B: int
    T: int
    D: int
    H: int

    def operations(self, case: Case) -> int:
        """Count those of attention and of four linear maps: a product forward, two backward."""
        B, T, D, H = self
        products = 3 if case.backward else 1
        attention = Problem(B, H, H, T, T, D // H).operations(case)
        return attention + 2 * products * B * T * 4 * D * D

    def cases(self, *, masks: bool = False) -> list[Case]:
        """Return forward, and forward with backward; masks are measured with attention."""
        return [Case(), Case(backward=True)]

    def draw(self, case: Case, *, seed: int = 0) -> LayerDrawn:
        """Return random arrays, the biases random too."""
        B, T, D, H = self
        rng = np.random.default_rng(seed)
        params = {}
        for letter in "qkvo":
            params[f"w_{letter}"] = _normal(rng, D, D) / np.float32(np.sqrt(D))
            params[f"b_{letter}"] = _normal(rng, D)
        return LayerDrawn(_normal(rng, B, T, D), params, _normal(rng, B, T, D), H)


class TrainingProblem(NamedTuple):
    """A model of `mha_numpy.models` and its sizes, written ``NAME B,T,D,H,L,V``."""

    model: str
    B: int
    T: int
    D: int
    H: int
    L: int
    V: int

    def operations(self, case: Case) -> int:
        """Count those of causal layers, of their feed-forward, and of the map to the vocabulary."""
        model, B, T, D, H, L, V = self
        layer = LayerProblem(B, T, D, H).operations(case._replace(is_causal=True))
        feed_forward = 8 * D * D if model == "TransformerLM" else 0  # D by 4 D, and back
        return L * layer + 2 * 3 * B * T * (L * feed_forward + D * V)

    def cases(self, *, masks: bool = False) -> list[Case]:
        """Return the only case."""
        return [Case(backward=True, updates=True)]

    def draw(self, case: Case, *, seed: int = 0) -> TrainingDrawn:
        """Return random tokens."""
        tokens = np.random.default_rng(seed).integers(self.V, size=(2, self.B, self.T))
        return TrainingDrawn(self, *tokens)


AnyProblem: TypeAlias = Problem | LayerProblem | TrainingProblem


def parse(name: str) -> AnyProblem:
    """Read sizes as they are written in tables.

    Parameters
    ----------
    name : str
        ``B,H[/H_kv],T_q[,T_k],d`` for attention, ``layer B,T,D,H`` for a whole layer,
        ``TransformerLM B,T,D,H,L,V`` or ``AttentionOnlyLM B,T,D,H,L,V`` for a training step.

    Returns
    -------
    Problem, LayerProblem or TrainingProblem

    Examples
    --------
    >>> parse("8,32/8,1,4096,128")
    Problem(B=8, H=32, H_kv=8, T_q=1, T_k=4096, d=128)
    >>> parse("layer 4,128,768,12")
    LayerProblem(B=4, T=128, D=768, H=12)
    """
    n = r"([1-9]\d*)"
    if found := re.fullmatch(f"layer {n},{n},{n},{n}", name):
        layer = LayerProblem(*map(int, found.groups()))
        if layer.D % layer.H == 0:
            return layer
    if found := re.fullmatch(f"(TransformerLM|AttentionOnlyLM) {','.join([n] * 6)}", name):
        training = TrainingProblem(found[1], *map(int, found.groups()[1:]))
        if training.D % training.H == 0:
            return training
    if found := re.fullmatch(f"{n},{n}(?:/{n})?,{n}(?:,{n})?,{n}", name):
        B, H, H_kv, T_q, T_k, d = found.groups()
        problem = Problem(int(B), int(H), int(H_kv or H), int(T_q), int(T_k or T_q), int(d))
        if problem.H % problem.H_kv == 0:
            return problem
    raise ConfigError(
        "shape: expected B,H[/H_kv],T_q[,T_k],d or layer B,T,D,H or MODEL B,T,D,H,L,V; "
        f"got {describe(name)}"
    )


def written(problem: AnyProblem) -> str:
    """Write sizes as `parse` reads them.

    Examples
    --------
    >>> written(Problem(8, 32, 8, 1, 4096, 128)), written(LayerProblem(4, 128, 768, 12))
    ('8,32/8,1,4096,128', 'layer 4,128,768,12')
    """
    if isinstance(problem, Problem):
        B, H, H_kv, T_q, T_k, d = problem
        heads = str(H) if H_kv == H else f"{H}/{H_kv}"
        lengths = str(T_q) if T_q == T_k else f"{T_q},{T_k}"
        return f"{B},{heads},{lengths},{d}"
    name = "layer" if isinstance(problem, LayerProblem) else problem[0]
    sizes = [n for n in problem if not isinstance(n, str)]
    return f"{name} {','.join(map(str, sizes))}"


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, dtype=np.float32)
