"""Arrays of each framework: from NumPy's, and back."""

import sys
from importlib import import_module
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array


def to_framework(array: Array, framework: str) -> Any:
    """Return a copy of an array as a framework has it."""
    array = array.copy()
    if framework == "torch":
        return import_module("torch").from_numpy(array)
    if framework == "jax" or (framework == "keras" and "jax" in sys.modules):
        import_module("jax").config.update("jax_enable_x64", True)  # or it would narrow float64
    if framework == "jax":
        jax = import_module("jax")
        is_long = array.dtype == np.int64  # its own integers are short
        return jax.device_put(array.astype(np.int32) if is_long else array)
    if framework == "keras":
        return import_module("keras").ops.convert_to_tensor(array, dtype=array.dtype.name)
    if framework == "tensorflow":
        return import_module("tensorflow").convert_to_tensor(array)
    if framework == "mlx":
        return import_module("mlx.core").array(array)
    return array


def to_numpy(value: Any) -> Any:
    """Return a framework's array as NumPy's; what is no array stays as it is."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return value.numpy() if str(value.dtype) != "torch.bfloat16" else value.float().numpy()
    if isinstance(value, np.ndarray):
        return value.astype(float) if value.dtype == object else value
    return np.asarray(value) if hasattr(value, "__array__") else value
