"""What an error says about the value that came."""

import numpy as np
import pytest

from mha_numpy import (
    ConfigError,
    attention_forward,
    linear_forward,
    multi_head_attention_backward,
    softmax_backward,
    softmax_forward,
)

X = np.ones((3, 4))


@pytest.mark.parametrize(
    ("backward", "cache", "got"),
    [
        (softmax_backward, attention_forward(X, X, X)[1], "an AttentionCache"),
        (softmax_backward, linear_forward(X, X.T)[1], "a LinearCache"),
        (softmax_backward, softmax_forward(X), "a tuple"),
        (softmax_backward, X, "an array (3, 4) of float64"),
        (softmax_backward, None, "None"),
        (multi_head_attention_backward, softmax_forward(X)[1], "a SoftmaxCache"),
    ],
)
def test_another_cache_is_named_by_its_type(backward, cache, got):
    with pytest.raises(ConfigError) as error:
        backward(X, cache)
    assert str(error.value).endswith(f"; got {got}")
