"""docs/conventions.md: what it says about a mask together with `is_causal` in PyTorch."""

from functools import partial

import numpy as np
import pytest

from mha_numpy import attention_forward
from tests.compare import assert_close

pytest.importorskip("torch")

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

B, H, T_q, T_k, d_k, d_v = 4, 6, 5, 7, 11, 13


def attend(leading=(B, H), d_v=d_k, *, d_mask=False, **options):
    """Return a call of PyTorch's function with both, and what ours gives for the same."""
    rng = np.random.default_rng(20170612)
    q, k, v = (rng.normal(size=(*leading, *size)) for size in ((T_q, d_k), (T_k, d_k), (T_k, d_v)))
    mask = rng.random((T_q, T_k)) < 0.7
    mask[:, 0] = True
    expected, _ = attention_forward(q, k, v, mask=mask, is_causal=True)
    attn_mask = torch.tensor(np.where(mask, 0, -np.inf), requires_grad=True) if d_mask else mask
    tensors = [torch.as_tensor(array) for array in (q, k, v, attn_mask)]
    return partial(scaled_dot_product_attention, *tensors, is_causal=True, **options), expected


def test_flash_attention_combines_them():
    theirs, expected = attend()
    assert_close(theirs(), expected, "framework")


@pytest.mark.parametrize(
    "problem",
    [{"leading": (B,)}, {"d_v": d_v}, {"dropout_p": 0.1}, {"d_mask": True}],
    ids=lambda problem: next(iter(problem)),
)
def test_the_math_implementation_refuses_them(problem):
    theirs, _ = attend(**problem)
    with pytest.raises(RuntimeError, match="attn_mask should not be set when is_causal"):
        theirs()


def test_the_math_implementation_refuses_what_flash_attention_combines():
    theirs, _ = attend()
    with sdpa_kernel(SDPBackend.MATH), pytest.raises(RuntimeError, match="should not be set"):
        theirs()
