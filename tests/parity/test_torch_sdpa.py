from typing import NamedTuple

import numpy as np
import pytest

from mha_numpy.core import attention_backward, attention_forward
from tests.compare import assert_close

pytest.importorskip("torch")

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

pytestmark = pytest.mark.usefixtures("backend")

B, H, H_kv, T_q, T_k, d_k, d_v = 4, 6, 3, 5, 7, 11, 13
NAMES = ("out", "d_q", "d_k", "d_v", "d_bias")


class Config(NamedTuple):
    """One comparison: shapes and options."""

    rank: int = 4
    kv_heads: int = H
    queries: int = T_q
    keys: int = T_k
    mask: tuple[int, ...] | None = None
    bias: tuple[int, ...] | None = None
    is_causal: bool = False
    scale: float | None = None
    blind: tuple[int | slice, ...] | None = None  # the part of the mask that hides everything
    mask_in_bias: bool = False  # hide by -inf in the bias, with no mask

    def shapes(self):
        """Return the shapes of q, k and v."""
        leading = {2: ((), ()), 3: ((B,), (B,)), 4: ((B, H), (B, self.kv_heads))}
        per_query, per_key = leading[self.rank]
        return (
            (*per_query, self.queries, d_k),
            (*per_key, self.keys, d_k),
            (*per_key, self.keys, d_v),
        )


MASK_SHAPES = {
    2: [(T_k,), (T_q, 1), (1, T_k), (T_q, T_k)],
    3: [(T_k,), (T_q, T_k), (1, T_q, T_k), (B, 1, T_k), (B, T_q, 1), (B, T_q, T_k)],
    4: [
        (T_k,), (T_q, T_k), (H, 1, T_k), (H, T_q, T_k), (B, 1, 1, T_k), (B, 1, T_q, T_k),
        (1, H, T_q, 1), (B, H, 1, 1), (B, H, T_q, T_k),
    ],
}  # fmt: skip
SHAPED = [(rank, shape) for rank, shapes in MASK_SHAPES.items() for shape in shapes]
ALL = slice(None)

CONFIGS = {
    **{f"plain, rank {rank}": Config(rank) for rank in (2, 3, 4)},
    "more queries than keys": Config(queries=T_k, keys=T_q),
    "one query": Config(queries=1),
    "one key": Config(keys=1),
    "no query": Config(queries=0),
    "no key": Config(keys=0),
    **{f"causal, rank {rank}": Config(rank, is_causal=True) for rank in (2, 3, 4)},
    "causal, more queries than keys": Config(queries=T_k, keys=T_q, is_causal=True),
    "causal, as many": Config(queries=T_k, is_causal=True),
    **{f"mask {shape}, rank {rank}": Config(rank, mask=shape) for rank, shape in SHAPED},
    **{f"bias {shape}, rank {rank}": Config(rank, bias=shape) for rank, shape in SHAPED},
    "bias of one number": Config(bias=()),
    "mask and bias": Config(mask=(B, 1, 1, T_k), bias=(H, T_q, 1)),
    "mask, bias and causal": Config(mask=(B, 1, T_q, T_k), bias=(H, 1, T_k), is_causal=True),
    "causal and mask": Config(mask=(B, 1, 1, T_k), is_causal=True),
    "causal and bias": Config(bias=(H, T_q, T_k), is_causal=True),
    **{f"scale {scale}": Config(scale=scale) for scale in (0.37, 3.0, -0.37, 0.0)},
    "scale, bias and causal": Config(scale=0.37, bias=(B, 1, T_q, T_k), is_causal=True),
    **{f"{heads} key heads": Config(kv_heads=heads) for heads in (1, 2, H_kv, H)},
    **{f"{heads} key heads, causal": Config(kv_heads=heads, is_causal=True) for heads in (1, H_kv)},
    "grouped, mask": Config(kv_heads=H_kv, mask=(B, H, T_q, T_k)),
    "grouped, bias": Config(kv_heads=H_kv, bias=(H, 1, T_k)),
    "multi-query, bias, scale": Config(kv_heads=1, bias=(B, H, T_q, T_k), scale=0.37),
    "blind row": Config(mask=(T_q, T_k), blind=(2,)),
    "blind row, rank 2": Config(2, mask=(T_q, T_k), blind=(0,)),
    "blind row, rank 3": Config(3, mask=(B, T_q, T_k), blind=(1, 3)),
    "blind row, grouped": Config(kv_heads=H_kv, mask=(B, H, T_q, T_k), blind=(1, 4, 3)),
    "blind row, bias": Config(mask=(B, H, T_q, T_k), blind=(ALL, 2, 3), bias=(H, T_q, T_k)),
    "-inf in bias": Config(mask=(T_q, T_k), bias=(H, T_q, T_k), mask_in_bias=True),
    "-inf in bias, blind row": Config(
        mask=(B, 1, T_q, T_k), bias=(T_k,), blind=(3, 0, 2), mask_in_bias=True
    ),
    "-inf in bias, causal": Config(
        mask=(T_q, T_k), bias=(T_q, T_k), blind=(2,), mask_in_bias=True, is_causal=True
    ),
    "blind sequence": Config(mask=(B, 1, 1, T_k), blind=(2,)),
    "blind sequence, causal": Config(mask=(B, 1, 1, T_k), blind=(2,), is_causal=True),
    "blind head, bias": Config(mask=(H, 1, T_k), blind=(4,), bias=(T_q, 1)),
    "all blind": Config(mask=(T_k,), blind=(ALL,)),
}


def draw(config):
    """Return q, k, v, bias and mask, and a gradient of the output, all random."""
    rng = np.random.default_rng(20170612)
    shapes = config.shapes()
    q, k, v = (rng.normal(size=shape) for shape in shapes)
    d_out = rng.normal(size=(*shapes[0][:-1], d_v))
    bias = None if config.bias is None else rng.normal(size=config.bias)
    mask = None
    if config.mask is not None:
        mask = rng.random(config.mask) < 0.7
        if mask.shape[-1] > 1:
            mask[..., 0] = True  # a row is blind on purpose only
        if config.blind is not None:
            mask[config.blind] = False
        assert not mask.all()
    if config.mask_in_bias:
        bias, mask = np.where(mask, bias, -np.inf), None
    return q, k, v, bias, mask, d_out


def ours(config):
    """Return the output and all gradients of core."""
    q, k, v, bias, mask, d_out = draw(config)
    out, cache = attention_forward(
        q, k, v, mask=mask, bias=bias, is_causal=config.is_causal, scale=config.scale
    )
    grads = attention_backward(d_out, cache)
    return dict(zip(NAMES, (out, *grads[:4]), strict=True))


def theirs(config):
    """Return the same of PyTorch; it takes one mask alone, so the others are folded into it."""
    q, k, v, bias, mask, d_out = (x if x is None else torch.tensor(x) for x in draw(config))
    leaves = [x for x in (q, k, v, bias) if x is not None]
    for leaf in leaves:
        leaf.requires_grad_()
    is_causal = config.is_causal
    if is_causal and (mask is not None or bias is not None):
        top_left = torch.ones(config.queries, config.keys, dtype=torch.bool).tril()
        mask, is_causal = top_left if mask is None else mask & top_left, False
    attn_mask = mask if bias is None else bias
    if mask is not None and bias is not None:
        attn_mask = torch.where(mask, bias, -torch.inf)
    with sdpa_kernel(SDPBackend.MATH):
        out = scaled_dot_product_attention(
            q, k, v, attn_mask, is_causal=is_causal, scale=config.scale,
            enable_gqa=config.kv_heads != H,
        )  # fmt: skip
    grads = torch.autograd.grad(out, leaves, d_out)
    arrays = [out.detach(), *grads, *[None] * (4 - len(grads))]
    return dict(zip(NAMES, arrays, strict=True))


@pytest.mark.parametrize("name", CONFIGS)
def test_output_and_gradients(name):
    actual, expected = ours(CONFIGS[name]), theirs(CONFIGS[name])
    for name in NAMES:
        if expected[name] is None:
            assert actual[name] is None
        else:
            assert torch.isfinite(expected[name]).all()
            assert_close(actual[name], expected[name], "framework", name=name)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_lse_is_flex_attention_s():
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    q, k, v, *_ = draw(Config(kv_heads=H_kv))
    _, cache = attention_forward(q, k, v)
    tensors, asked = map(torch.tensor, (q, k, v)), AuxRequest(lse=True)
    _, found = flex_attention(*tensors, return_aux=asked, enable_gqa=True)
    assert_close(cache.lse, found.lse, "framework")


# no function of PyTorch differentiates its lse on a CPU: the formula, by autograd
@pytest.mark.parametrize("with_sink", [False, True])
def test_gradients_of_lse_and_sink(with_sink):
    q, k, v, _, _, d_out = draw(Config())
    rng = np.random.default_rng(1)
    d_lse, sink = rng.normal(size=(B, H, T_q)), rng.normal(size=H) if with_sink else None
    out, cache = attention_forward(q, k, v, sink=sink, is_causal=True)
    grads = attention_backward(d_out, cache, d_lse=d_lse)
    found = [grads.d_q, grads.d_k, grads.d_v, *([grads.d_sink] if with_sink else [])]

    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v, sink) if x is not None]
    scores = leaves[0] @ leaves[1].mT / np.sqrt(d_k)
    scores = scores.masked_fill(~torch.ones(T_q, T_k, dtype=torch.bool).tril(), -torch.inf)
    if with_sink:
        column = leaves[3].reshape(1, H, 1, 1).expand(B, H, T_q, 1)
        scores = torch.cat([scores, column], dim=-1)
    lse = scores.logsumexp(-1)
    expected = scores.softmax(-1)[..., :T_k] @ leaves[2]
    assert_close(out, expected.detach(), "framework")
    assert_close(cache.lse, lse.detach(), "framework")
    upstream = [torch.tensor(d_out), torch.tensor(d_lse)]
    for ours, theirs in zip(
        found, torch.autograd.grad([expected, lse], leaves, upstream), strict=True
    ):
        assert_close(ours, theirs, "framework")
