"""Who computes: what is chosen for a block of code, and what has a backend of its own."""

from threading import Thread

import numpy as np
import pytest

from mha_numpy import (
    KVCache,
    MultiHeadAttention,
    MultiHeadParams,
    attention_forward,
    backend,
    backends,
    multi_head_attention_decode,
    multi_head_attention_forward,
)
from mha_numpy.backends import chosen_backend
from mha_numpy.layers import Layer, Sequential

X = np.random.default_rng(0).normal(size=(1, 3, 4))
PARAMS = MultiHeadParams(*(np.eye(4) if i % 2 == 0 else None for i in range(8)))


@pytest.fixture
def asked(monkeypatch):
    """Return the backends of the attention that ran, in order; the equations compute."""
    names = []

    def find_kernels(modules, *_, backend=None):
        if modules is backends.KERNELS:
            names.append(chosen_backend(backend))

    for module in ("kernel_calls", "pair"):
        monkeypatch.setattr(f"mha_numpy.core.{module}.find_kernels", find_kernels)
    return names


def attend(**options):
    return attention_forward(X, X, X, **options)


def test_a_block_chooses_for_all_that_is_in_it(asked):
    attend()
    with backend("loops"):
        attend()
        with backend("numba"):
            attend()
        with backend(None):
            attend()
        with pytest.raises(KeyError), backend("numba"):
            raise KeyError
        attend()
    attend()
    assert asked == ["numpy", "loops", "numba", "loops", "loops", "numpy"]


def test_a_backend_of_its_own_wins(asked):
    options = {"params": PARAMS, "num_heads": 2, "backend": "numba"}
    with backend("loops"):
        attend(backend="numba")
        multi_head_attention_forward(X, **options)
        multi_head_attention_decode(X, kv_cache=KVCache(), **options)
        MultiHeadAttention(4, 2, backend="numba")(X)
        attend()
        assert asked == ["numba"] * 4 + ["loops"]


def test_a_layer_chooses_for_its_parts_and_backward_computes_as_forward_did(asked):
    class Spy(Layer):
        def forward(self, x):
            asked.append(chosen_backend())
            return x

        def backward(self, d_out):
            asked.append(chosen_backend())
            return d_out

    own, of_block = Spy(), Spy()
    own.backend = "numpy"
    model = Sequential(own, of_block)
    with backend("loops"):
        model(X)
    model.backward(X)
    model.backend = "numba"
    model(X)
    model.backward(X)
    in_block, with_its_own = asked[:4], asked[4:]
    assert in_block == ["numpy", "loops", "loops", "numpy"]  # backward runs the last part first
    assert with_its_own == ["numpy", "numba", "numba", "numpy"]


def test_threads_do_not_see_each_other_s_choice(asked):
    with backend("loops"):
        thread = Thread(target=attend)
        thread.start()
        thread.join()
    assert asked == ["numpy"]
