"""Forward mode and double backward, against PyTorch's own of the same equations and of its op."""

from functools import partial

import numpy as np
import pytest

from mha_numpy.core import (
    attention_backward_jvp,
    attention_double_backward,
    attention_forward,
    attention_jvp,
)
from mha_numpy.core.attention_jvp import MOVING
from tests.backends import EACH_BACKEND
from tests.compare import Tolerance, assert_close
from tests.core.configurations import SEEDS, attention_configuration
from tests.slopes import random_tangents
from tests.sweeps import sweep

pytest.importorskip("torch")

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

# torch.func.jvp compiles its rules when it first runs, by what PyTorch itself calls deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
DOUBLE = Tolerance(1e-9, 1e-9)


def tensor(x):
    return torch.tensor(np.asarray(x, np.float64))


def attend(inputs, visible, scale, softcap=None, dropout_mask=None):
    """Attend by PyTorch's elementary functions: out and lse, 0 for a row that sees nothing."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if q.ndim == 4:
        G = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(G, dim=1), v.repeat_interleave(G, dim=1)
    scores = scale * q @ k.transpose(-1, -2)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if "bias" in inputs:  # -inf is in `visible`
        scores = scores + torch.where(torch.isfinite(inputs["bias"]), inputs["bias"], 0)
    powers = torch.where(visible, scores.exp(), 0)
    total = powers.sum(dim=-1, keepdim=True)
    if "sink" in inputs:
        total = total + inputs["sink"][..., None, None].exp()
    sees_any = total > 0
    weights = powers / torch.where(sees_any, total, 1)
    lse = torch.where(sees_any, torch.where(sees_any, total, 1).log(), 0)[..., 0]
    dropped = weights if dropout_mask is None else weights * tensor(dropout_mask)
    out = dropped @ v
    if "head_gate" in inputs:
        out = out * inputs["head_gate"][..., None, None]
    return out, lse


def problem(seed):
    """Return inputs, options, tangents, and PyTorch's function of the inputs."""
    inputs, options = attention_configuration(seed)
    _, cache = attention_forward(**inputs, **options)
    checked = cache.inputs
    visible = np.ones(checked.cells_shape, bool) if checked.visible is None else checked.visible
    function = partial(
        attend, visible=torch.tensor(np.broadcast_to(visible, checked.cells_shape).copy()),
        scale=checked.scale, softcap=checked.softcap, dropout_mask=checked.dropout_mask,
    )  # fmt: skip
    return inputs, options, random_tangents(inputs, seed), function


@pytest.mark.parametrize("backend", EACH_BACKEND)
@pytest.mark.parametrize("seed", sweep(SEEDS, 12, every=5))
def test_jvp(seed, backend):
    inputs, options, tangents, function = problem(seed)
    _, cache = attention_forward(**inputs, **options, backend=backend)
    found = attention_jvp(tangents, cache)
    given, dots = ({name: tensor(x) for name, x in xs.items()} for xs in (inputs, tangents))
    _, expected = torch.func.jvp(function, (given,), (dots,))
    for name, array, theirs in zip(found._fields, found, expected, strict=True):
        assert_close(array, theirs.numpy(), "framework", name=name)


@pytest.mark.parametrize("seed", sweep(SEEDS, 20, every=5))
def test_double_backward(seed):
    inputs, options, d_grads, function = problem(seed)
    out, cache = attention_forward(**inputs, **options)
    rng = np.random.default_rng(seed)
    upstream = {"d_out": rng.normal(size=out.shape), "d_lse": rng.normal(size=cache.lse.shape)}
    found = attention_double_backward(d_grads, **upstream, cache=cache)._asdict()

    given = {name: tensor(x).requires_grad_() for name, x in inputs.items()}
    d_outs = [tensor(x).requires_grad_() for x in upstream.values()]
    grads = torch.autograd.grad(function(given), list(given.values()), d_outs, create_graph=True)
    expected = torch.autograd.grad(
        grads, [*d_outs, *given.values()], [tensor(d_grads[name]) for name in given],
        materialize_grads=True,
    )  # fmt: skip
    for name, theirs in zip([*upstream, *given], expected, strict=True):
        assert_close(found[f"d_{name}"], theirs.numpy(), DOUBLE, name=name)
    assert all(found[f"d_{name}"] is None for name in MOVING if name not in inputs)


OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "masked": {"mask": np.arange(35).reshape(5, 7) % 3 > 0},
    "biased": {"bias": np.linspace(-2, 2, 35).reshape(5, 7)},
}


@pytest.mark.parametrize("kv_heads", [6, 3, 1])
@pytest.mark.parametrize("name", OPTIONS)
def test_of_the_op(rng, name, kv_heads):
    """torch.func.jvp and double backward of scaled_dot_product_attention by its math backend."""
    options = OPTIONS[name]
    q, k, v = (rng.normal(size=(2, H, T, 4)) for H, T in ((6, 5), (kv_heads, 7), (kv_heads, 7)))
    tangents = [rng.normal(size=x.shape) for x in (q, k, v)]
    theirs = dict(options)
    mask = theirs.pop("mask", theirs.pop("bias", None))
    function = partial(
        scaled_dot_product_attention, enable_gqa=True,
        attn_mask=None if mask is None else torch.tensor(mask), **theirs,
    )  # fmt: skip
    out, cache = attention_forward(q, k, v, **options)
    d_out = rng.normal(size=out.shape)
    with sdpa_kernel(SDPBackend.MATH):
        given, dots = ([tensor(x) for x in xs] for xs in ((q, k, v), tangents))
        _, out_dot = torch.func.jvp(function, tuple(given), tuple(dots))
        for x in given:
            x.requires_grad_()
        d_out_theirs = tensor(d_out).requires_grad_()
        grads = torch.autograd.grad(function(*given), given, d_out_theirs, create_graph=True)
        double = torch.autograd.grad(grads, [d_out_theirs, *given], dots)
    assert_close(attention_jvp(tangents, cache).out_dot, out_dot.numpy(), "framework")
    found = attention_double_backward(tangents, d_out, cache)
    for name, theirs in zip(("d_d_out", "d_q", "d_k", "d_v"), double, strict=True):
        assert_close(getattr(found, name), theirs.numpy(), DOUBLE, name=name)


def test_a_hessian_times_a_vector(rng):
    """torch.func.hessian builds the whole matrix of a small problem."""
    q, k, v, d_out = rng.normal(size=(4, 3, 2))
    _, cache = attention_forward(q, k, v)

    def loss(q):
        return (scaled_dot_product_attention(q, tensor(k), tensor(v)) * tensor(d_out)).sum()

    with sdpa_kernel(SDPBackend.MATH):
        matrix = torch.func.hessian(loss)(tensor(q)).reshape(6, 6).numpy()
    q_dot = rng.normal(size=q.shape)
    found = attention_backward_jvp({"q": q_dot}, d_out, cache).d_q
    assert_close(found.ravel(), matrix @ q_dot.ravel(), DOUBLE)
