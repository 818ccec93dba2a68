"""A mixture of experts in place of the feed-forward network; three ways through it."""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_number
from mha_numpy.core.linear import linear_steps, linear_steps_backward, linear_steps_jvp
from mha_numpy.core.pair import Pair, Records, Values, record, sum_equation
from mha_numpy.core.softmax import softmax_steps, softmax_steps_backward, softmax_steps_jvp
from mha_numpy.core.tangents import Shapes
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.layers.layer import Layer, make_rng
from mha_numpy.steps import is_watched

LIMIT, ALPHA = 7.0, 1.702  # of gpt-oss


def mixture_of_experts_steps(
    x: Array, w_router: Array, b_router: Array, w_gate: Array, b_gate: Array, w_in: Array,
    b_in: Array, w_out: Array, b_out: Array, num_chosen: int, limit: float, alpha: float,
) -> tuple[Array, ...]:  # fmt: skip
    """Let each token (..., D) choose C of E experts, and mix what these return."""
    # 1. route: how well does each expert fit each token?
    router_logits = x @ w_router + b_router  # (..., E)

    # 2. choose the C best; of equal ones the earlier comes first, and NaN last
    chosen = np.argsort(-router_logits.real, axis=-1, kind="stable")[..., :num_chosen]
    chosen_logits = np.take_along_axis(router_logits, chosen, axis=-1)  # (..., C)

    # 3. share out among the chosen
    _, _, shares = softmax_steps(chosen_logits, None)  # (..., C)

    # 4. each of them widens the token
    tokens = np.broadcast_to(x[..., None, :], (*chosen.shape, x.shape[-1]))  # (..., C, D)
    gate = map_by_expert(tokens, w_gate, b_gate, chosen)  # (..., C, F)
    hidden = map_by_expert(tokens, w_in, b_in, chosen)

    # 5. and activates: the gate is clipped above, what it gates on both sides
    gate_clipped = np.where(gate.real > limit, limit, gate)
    hidden_clipped = np.where(abs(hidden.real) > limit, limit * np.sign(hidden.real), hidden)
    sigmoid = (1 + np.tanh(alpha * gate_clipped / 2)) / 2
    activated = (hidden_clipped + 1) * gate_clipped * sigmoid

    # 6. and narrows it again
    each_out = map_by_expert(activated, w_out, b_out, chosen)  # (..., C, D)

    # 7. mix
    out = (shares[..., None] * each_out).sum(axis=-2)  # (..., D)
    return (router_logits, chosen, chosen_logits, shares, tokens, gate, hidden, gate_clipped,
            hidden_clipped, sigmoid, activated, each_out, out)  # fmt: skip


def mixture_of_experts_steps_backward(
    d_out: Array, x: Array, w_router: Array, w_gate: Array, w_in: Array, w_out: Array,
    chosen: Array, shares: Array, tokens: Array, gate: Array, hidden: Array, gate_clipped: Array,
    hidden_clipped: Array, sigmoid: Array, activated: Array, each_out: Array, limit: float,
    alpha: float,
) -> tuple[Array | None, ...]:  # fmt: skip
    """Pull the gradient (..., D) back to the tokens, the router and the experts."""
    # 7. out = sum over the chosen of shares * each_out
    d_shares = (d_out[..., None, :] * each_out).sum(axis=-1)  # (..., C)
    d_each_out = shares[..., None] * d_out[..., None, :]  # (..., C, D)

    # 6. each_out = activated @ w_out[chosen] + b_out[chosen]
    d_activated, d_w_out, d_b_out = map_by_expert_backward(d_each_out, activated, w_out, chosen)

    # 5. activated = (hidden_clipped + 1) * gate_clipped * sigmoid; what is clipped has no gradient
    d_hidden = np.where(abs(hidden) > limit, 0, d_activated * gate_clipped * sigmoid)
    slope = sigmoid + alpha * gate_clipped * sigmoid * (1 - sigmoid)
    d_gate = np.where(gate > limit, 0, d_activated * (hidden_clipped + 1) * slope)

    # 4. gate = tokens @ w_gate[chosen] + b_gate[chosen], and hidden likewise
    d_tokens_gate, d_w_gate, d_b_gate = map_by_expert_backward(d_gate, tokens, w_gate, chosen)
    d_tokens_in, d_w_in, d_b_in = map_by_expert_backward(d_hidden, tokens, w_in, chosen)

    # 3. shares = softmax(chosen_logits)
    d_chosen_logits = softmax_steps_backward(d_shares, shares, None)

    # 2. the choice has no gradient, and the logits of the others have none
    d_router_logits = np.zeros((*x.shape[:-1], w_router.shape[1]), d_chosen_logits.dtype)
    np.put_along_axis(d_router_logits, chosen, d_chosen_logits, axis=-1)

    # 1. router_logits = x @ w_router + b_router
    d_x_router, d_w_router, d_b_router = linear_steps_backward(d_router_logits, x, w_router, True)
    d_x = d_x_router + (d_tokens_gate + d_tokens_in).sum(axis=-2)
    if is_watched():
        record(dict(locals()), _records_backward)
    return (d_x, d_w_router, d_b_router, d_w_gate, d_b_gate, d_w_in, d_b_in, d_w_out,
            d_b_out)  # fmt: skip


def mixture_of_experts_steps_jvp(
    x_dot: Array, w_router_dot: Array, b_router_dot: Array, w_gate_dot: Array, b_gate_dot: Array,
    w_in_dot: Array, b_in_dot: Array, w_out_dot: Array, b_out_dot: Array, x: Array,
    w_router: Array, w_gate: Array, w_in: Array, w_out: Array, chosen: Array, shares: Array,
    tokens: Array, gate: Array, hidden: Array, gate_clipped: Array, hidden_clipped: Array,
    sigmoid: Array, activated: Array, each_out: Array, limit: float, alpha: float,
) -> Array:  # fmt: skip
    """Push the tangents of the tokens, the router and the experts forward (..., D)."""
    # 1. router_logits = x @ w_router + b_router
    router_logits_dot = linear_steps_jvp(x_dot, w_router_dot, b_router_dot, x, w_router)

    # 2. the choice stands still
    chosen_logits_dot = np.take_along_axis(router_logits_dot, chosen, axis=-1)

    # 3. shares = softmax(chosen_logits)
    shares_dot, _ = softmax_steps_jvp(chosen_logits_dot, shares, None)

    # 4. gate = tokens @ w_gate[chosen] + b_gate[chosen], and hidden likewise
    tokens_dot = np.broadcast_to(x_dot[..., None, :], tokens.shape)
    gate_dot = map_by_expert_jvp(tokens_dot, w_gate_dot, b_gate_dot, tokens, w_gate, chosen)
    hidden_dot = map_by_expert_jvp(tokens_dot, w_in_dot, b_in_dot, tokens, w_in, chosen)

    # 5. activated = (hidden_clipped + 1) * gate_clipped * sigmoid; what is clipped stands still
    slope = sigmoid + alpha * gate_clipped * sigmoid * (1 - sigmoid)
    by_hidden = np.where(abs(hidden) > limit, 0, hidden_dot * gate_clipped * sigmoid)
    by_gate = np.where(gate > limit, 0, gate_dot * (hidden_clipped + 1) * slope)
    activated_dot = by_hidden + by_gate

    # 6. each_out = activated @ w_out[chosen] + b_out[chosen]
    each_out_dot = map_by_expert_jvp(activated_dot, w_out_dot, b_out_dot, activated, w_out, chosen)

    # 7. out = sum over the chosen of shares * each_out
    moved = shares_dot[..., None] * each_out + shares[..., None] * each_out_dot
    return moved.sum(axis=-2)


def map_by_expert(x: Array, w: Array, b: Array, chosen: Array) -> Array:
    """Map (..., C, I) to (..., C, O), each vector by its expert: ``x @ w[chosen] + b[chosen]``."""
    out = np.zeros((*chosen.shape, w.shape[-1]), x.dtype)
    for e in np.unique(chosen):  # an expert that no token chose costs nothing
        out[chosen == e] = linear_steps(x[chosen == e], w[e], b[e])
    return out


def map_by_expert_backward(
    d_out: Array, x: Array, w: Array, chosen: Array
) -> tuple[Array, Array, Array]:
    """Pull the gradient (..., C, O) back to x, w and b; an expert serves those who chose it."""
    d_x = np.zeros(x.shape, d_out.dtype)
    d_w, d_b = np.zeros(w.shape, d_out.dtype), np.zeros(w.shape[::2], d_out.dtype)
    for e in np.unique(chosen):
        mine = chosen == e
        d_x[mine], d_w[e], d_b[e] = linear_steps_backward(d_out[mine], x[mine], w[e], True)
    return d_x, d_w, d_b


def map_by_expert_jvp(
    x_dot: Array, w_dot: Array, b_dot: Array, x: Array, w: Array, chosen: Array
) -> Array:
    """Push the tangents of (..., C, I) and of the experts forward to (..., C, O)."""
    return map_by_expert(x_dot, w, b_dot, chosen) + map_by_expert(x, w_dot, 0 * b_dot, chosen)


class MixtureOfExpertsCache(NamedTuple):
    """What `mixture_of_experts_backward` needs; `chosen` says which experts each token has."""

    x: Array  # (..., D)
    w_router: Array  # (D, E)
    w_gate: Array  # (E, D, F)
    w_in: Array  # (E, D, F)
    w_out: Array  # (E, F, D)
    chosen: Array  # (..., C), integers, the best first
    shares: Array  # (..., C), which sum to 1
    tokens: Array  # (..., C, D)
    gate: Array  # (..., C, F), and so are those up to activated
    hidden: Array
    gate_clipped: Array
    hidden_clipped: Array
    sigmoid: Array
    activated: Array
    each_out: Array  # (..., C, D)
    limit: float
    alpha: float
    dtype: np.dtype[Any]


class MixtureOfExpertsGrads(NamedTuple):
    """Gradients, in the order of the inputs; 0 for experts that no token chose."""

    d_x: Array
    d_w_router: Array
    d_b_router: Array
    d_w_gate: Array
    d_b_gate: Array
    d_w_in: Array
    d_b_in: Array
    d_w_out: Array
    d_b_out: Array


def mixture_of_experts_forward(
    x: Array, w_router: Array, b_router: Array, w_gate: Array, b_gate: Array, w_in: Array,
    b_in: Array, w_out: Array, b_out: Array, *, num_chosen: int, limit: float = LIMIT,
    alpha: float = ALPHA,
) -> tuple[Array, MixtureOfExpertsCache]:  # fmt: skip
    """Send each token through the C of E feed-forward networks that fit it best, and mix them.

    ``out = sum_e shares_e expert_e(x)`` over the experts with the C largest of the logits
    ``x w_router + b_router``, whose softmax are the shares. An expert is
    ``((up + 1) * gate * sigmoid(alpha gate)) w_out + b_out`` with
    ``gate = min(x w_gate + b_gate, limit)`` and ``up = x w_in + b_in``, clipped to +-limit.

    Parameters
    ----------
    x : (..., D) float array
    w_router, b_router : (D, E) and (E,) float arrays
    w_gate, w_in : (E, D, F) float arrays
    b_gate, b_in : (E, F) float arrays
    w_out, b_out : (E, F, D) and (E, D) float arrays
    num_chosen : int
        C, at most E.
    limit, alpha : float
        > 0.

    Returns
    -------
    out : (..., D) array
    cache : MixtureOfExpertsCache
        With ``cache.chosen`` and ``cache.shares``, both (..., C).

    Notes
    -----
    Of experts with equal logits the earlier one is chosen; NaN comes last. A token takes 6 C D F
    floating-point operations, however many experts there are, and 2 D E for the router.
    Sources: Shazeer et al. 2017, *Outrageously large neural networks*, eq. 1 and 3 to 5, without
    the noise; OpenAI 2025, *gpt-oss model card*, section 2.2. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> router = np.zeros((2, 4)), np.log([3.0, 1.0, 1.0, 6.0])
    >>> wide = np.ones((4, 2, 3)), np.zeros((4, 3))
    >>> narrow = np.ones((4, 3, 2)), np.zeros((4, 2))
    >>> params = *router, *wide, *wide, *narrow
    >>> out, cache = mixture_of_experts_forward(np.ones((5, 2)), *params, num_chosen=2)
    >>> out.shape, cache.chosen[0], cache.shares[0].round(3)
    ((5, 2), array([3, 0]), array([0.667, 0.333]))
    """
    return MIXTURE_OF_EXPERTS.forward(
        x=x, w_router=w_router, b_router=b_router, w_gate=w_gate, b_gate=b_gate, w_in=w_in,
        b_in=b_in, w_out=w_out, b_out=b_out, num_chosen=num_chosen, limit=limit, alpha=alpha,
    )  # fmt: skip


def mixture_of_experts_backward(
    d_out: Array, cache: MixtureOfExpertsCache
) -> MixtureOfExpertsGrads:
    """Pull a gradient back through the chosen experts, and through their shares to the router.

    The choice has no gradient: a small change of the logits leaves it as it is, until it jumps.

    Examples
    --------
    >>> wide = np.ones((4, 2, 3)), np.zeros((4, 3))
    >>> narrow = np.ones((4, 3, 2)), np.zeros((4, 2))
    >>> params = np.zeros((2, 4)), np.arange(4.0), *wide, *wide, *narrow
    >>> out, cache = mixture_of_experts_forward(np.ones((5, 2)), *params, num_chosen=1)
    >>> grads = mixture_of_experts_backward(np.ones((5, 2)), cache)
    >>> grads.d_b_out  # only the last expert was chosen, by 5 tokens
    array([[0., 0.],
           [0., 0.],
           [0., 0.],
           [5., 5.]])
    """
    return MIXTURE_OF_EXPERTS.backward(d_out, cache)


def mixture_of_experts_jvp(tangents: Any, cache: MixtureOfExpertsCache) -> Array:
    """Push tangents through the chosen experts and their shares; the choice does not move.

    `tangents` is a tuple in the order of forward's arrays, or a dict by their names.

    Examples
    --------
    >>> wide = np.ones((4, 2, 3)), np.zeros((4, 3))
    >>> narrow = np.ones((4, 3, 2)), np.zeros((4, 2))
    >>> params = np.zeros((2, 4)), np.arange(4.0), *wide, *wide, *narrow
    >>> out, cache = mixture_of_experts_forward(np.ones((1, 2)), *params, num_chosen=1)
    >>> mixture_of_experts_jvp({"b_out": np.arange(8.0).reshape(4, 2)}, cache)  # the last's moves
    array([[6., 7.]])
    """
    return MIXTURE_OF_EXPERTS.jvp(tangents, cache)


def _check(values: Values) -> None:
    E = len(values["b_router"])
    if values["num_chosen"] > E:
        raise ConfigError(f"num_chosen: expected at most E={E}; got {values['num_chosen']}")


AXES = {  # w_router first, which the others have to match
    "w_router": "D E", "b_router": "E", "w_gate": "E D F", "b_gate": "E F", "w_in": "E D F",
    "b_in": "E F", "w_out": "E F D", "b_out": "E D",
}  # fmt: skip


def _records(values: Values) -> Records:
    yield "x", "... D", ""
    yield from AXES.items()
    yield from (("limit", ""), ("alpha", ""), ("num_chosen", ""))
    yield "router_logits", "... E", "x @ w_router + b_router"
    first = "np.argsort(-router_logits, axis=-1, kind='stable')"
    yield "chosen", "... C", f"{first}[..., :num_chosen]"
    yield "chosen_logits", "... C", "np.take_along_axis(router_logits, chosen, axis=-1)"
    powers = "np.exp(chosen_logits - chosen_logits.max(axis=-1, keepdims=True))"
    yield "shares", "... C", f"{powers} / {powers}.sum(axis=-1, keepdims=True)"
    yield "tokens", "... C D", "x[..., None, :].repeat(C, axis=-2)"
    for name, letter in (("gate", "gate"), ("hidden", "in")):
        mapped = f"(tokens[..., None, :] @ w_{letter}[chosen])[..., 0, :]"
        yield name, "... C F", f"{mapped} + b_{letter}[chosen]"
    yield "gate_clipped", "... C F", "np.where(gate > limit, limit, gate)"
    is_far = "np.abs(hidden) > limit"
    yield "hidden_clipped", "... C F", f"np.where({is_far}, limit * np.sign(hidden), hidden)"
    yield "sigmoid", "... C F", "1 / (1 + np.exp(-alpha * gate_clipped))"
    yield "activated", "... C F", "(hidden_clipped + 1) * gate_clipped * sigmoid"
    mapped = "(activated[..., None, :] @ w_out[chosen])[..., 0, :]"
    yield "each_out", "... C D", f"{mapped} + b_out[chosen]"
    yield "out", "... D", "(shares[..., None] * each_out).sum(axis=-2)"


def _records_backward(values: Values) -> Records:
    x, chosen = values["x"], values["chosen"]
    rows, N = math.prod(x.shape[:-1]), chosen.size
    yield "d_out", "... D", ""
    yield "d_shares", "... C", "(d_out[..., None, :] * each_out).sum(axis=-1)"
    yield "d_each_out", "... C D", "shares[..., None] * d_out[..., None, :]"
    d_wide = "({}[..., None, :] @ {}[chosen].swapaxes(-1, -2))[..., 0, :]"
    yield "d_activated", "... C F", d_wide.format("d_each_out", "w_out")
    d_hidden = "d_activated * gate_clipped * sigmoid"
    yield "d_hidden", "... C F", f"np.where(np.abs(hidden) > limit, 0, {d_hidden})"
    yield "slope", "... C F", "sigmoid + alpha * gate_clipped * sigmoid * (1 - sigmoid)"
    d_gate = "d_activated * (hidden_clipped + 1) * slope"
    yield "d_gate", "... C F", f"np.where(gate > limit, 0, {d_gate})"
    values["one_hot"] = np.eye(values["w_router"].shape[1])[chosen]
    yield "one_hot", "... C E", "np.where(chosen[..., None] == np.arange(E), 1, 0)"
    by_expert = f"one_hot.reshape({N}, E).T"
    for letter, into, d_mapped in (
        ("out", "activated", "d_each_out"), ("gate", "tokens", "d_gate"),
        ("in", "tokens", "d_hidden"),
    ):  # fmt: skip
        _, inputs, outputs = AXES[f"w_{letter}"].split()
        d_rows = f"{d_mapped}.reshape({N}, {outputs})"
        of_each = f"{by_expert}[:, None] * {into}.reshape({N}, {inputs}).T"  # (E, inputs, N)
        yield f"d_w_{letter}", f"E {inputs} {outputs}", f"({of_each}) @ {d_rows}"
        yield f"d_b_{letter}", f"E {outputs}", f"{by_expert} @ {d_rows}"
    mean = "(shares * d_shares).sum(axis=-1, keepdims=True)"
    yield "d_chosen_logits", "... C", f"shares * (d_shares - {mean})"
    yield "d_router_logits", "... E", "(d_chosen_logits[..., None] * one_hot).sum(axis=-2)"
    d_rows = f"d_router_logits.reshape({rows}, E)"
    yield "d_w_router", "D E", f"x.reshape({rows}, D).T @ {d_rows}"
    yield "d_b_router", "E", sum_equation("d_router_logits", x)
    d_tokens = f"{d_wide.format('d_gate', 'w_gate')} + {d_wide.format('d_hidden', 'w_in')}"
    yield "d_x", "... D", f"d_router_logits @ w_router.T + ({d_tokens}).sum(axis=-2)"


def _shapes(cache: MixtureOfExpertsCache) -> Shapes:
    shapes = {"x": cache.x.shape}
    for name in ("router", "gate", "in", "out"):
        w = getattr(cache, f"w_{name}")
        shapes |= {f"w_{name}": w.shape, f"b_{name}": (*w.shape[:-2], w.shape[-1])}
    return shapes


MIXTURE_OF_EXPERTS = Pair(
    mixture_of_experts_steps,
    mixture_of_experts_steps_backward,
    mixture_of_experts_steps_jvp,
    MixtureOfExpertsCache,
    MixtureOfExpertsGrads,
    inputs={**AXES, "x": "... D"},
    options={
        "num_chosen": check_count, "limit": partial(check_number, positive=True),
        "alpha": partial(check_number, positive=True),
    },
    check=_check,
    computes="router_logits chosen chosen_logits shares tokens gate hidden gate_clipped "
    "hidden_clipped sigmoid activated each_out out",
    like="x",
    shapes=_shapes,
    records=_records,
)  # fmt: skip


class ExpertOptions(NamedTuple):
    """The numbers of experts of `MixtureOfExperts`, for blocks and models that are built of it."""

    num_experts: int
    num_chosen: int
    limit: float = LIMIT
    alpha: float = ALPHA


class MixtureOfExperts(Layer):
    """`mixture_of_experts_forward` with its own params.

    Parameters
    ----------
    embed_dim : int
        D.
    hidden_dim : int, optional
        F, width of each expert; default 4 D.
    num_experts, num_chosen : int
        E, and C of them for each token.
    limit, alpha : float
        Where experts clip, and how steep their gate is, as `mixture_of_experts_forward` explains.
    backend : {"numpy", "loops", "numba"}, optional
    rng : int or numpy Generator, optional
        Seeds the params: the same seed draws the same. Default: fresh randomness.

    Examples
    --------
    >>> layer = MixtureOfExperts(8, num_experts=4, num_chosen=2, rng=0)
    >>> layer(np.ones((2, 5, 8))).shape, layer.params["w_gate"].shape
    ((2, 5, 8), (4, 8, 32))
    """

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int | None = None,
        *,
        num_experts: int,
        num_chosen: int,
        limit: float = LIMIT,
        alpha: float = ALPHA,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        D, E = check_count("embed_dim", embed_dim), check_count("num_experts", num_experts)
        F = 4 * D if hidden_dim is None else check_count("hidden_dim", hidden_dim)
        self.options: dict[str, Any] = {"num_chosen": num_chosen, "limit": limit, "alpha": alpha}
        for name, check in MIXTURE_OF_EXPERTS.options.items():
            self.options[name] = check(name, self.options[name])
        self.backend = check_backend(backend)
        rng, sizes = make_rng(rng), {"D": D, "E": E, "F": F}
        for name, axes in AXES.items():
            shape = tuple(sizes[axis] for axis in axes.split())
            bound = 1 / np.sqrt(shape[-2]) if name.startswith("w") else 0
            self.params[name] = rng.uniform(-bound, bound, shape) if bound else np.zeros(shape)
        _check({**self.params, **self.options})

    def forward(self, x: Array) -> Array:
        """Send each token through its experts: (..., D) -> (..., D)."""
        params = [self.params[name] for name in AXES]
        out, self._cache = mixture_of_experts_forward(x, *params, **self.options)
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the params' gradients and return that of `x`."""
        d_x, *d_params = mixture_of_experts_backward(d_out, self.forward_cache)
        for name, gradient in zip(AXES, d_params, strict=True):
            self.accumulate(name, gradient, copy=False)
        return d_x
