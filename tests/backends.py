"""Which backends are tested: the reference, and every kernel that is there."""

import importlib.util

import pytest

from mha_numpy.backends import BACKENDS, KERNELS

BACKENDS_UNDER_TEST = [
    name for name in BACKENDS if name not in KERNELS or importlib.util.find_spec(KERNELS[name])
]
# the same as parameters: what a kernel runs is marked, since numba compiles for some seconds
EACH_BACKEND = [
    pytest.param(name, marks=pytest.mark.kernel if name in KERNELS else ())
    for name in BACKENDS_UNDER_TEST
]
EACH_KERNEL = EACH_BACKEND[1:]
