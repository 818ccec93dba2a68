"""What several models take beside ids: masks of tokens, and KV caches."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mha_numpy.core import KVCache
from mha_numpy.core.steps import step
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, MaskError, describe


def as_cells(mask: Array | None, shape: tuple[int, ...]) -> Array | None:
    """Return a mask of tokens as one of cells: (B, T) -> (B, 1, 1, T); one of rank 4 stays.

    Parameters
    ----------
    mask : bool array, optional
    shape : (B, T)
        Of all tokens, those in a KV cache too.

    Raises
    ------
    MaskError
        `mask` has another shape or dtype.
    """
    if mask is None or np.ndim(mask) == 4:
        return mask
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != shape:
        raise MaskError(
            f"mask: expected bool (B, T) = {shape}, True = a token, or (B, H, T_q, T_k), "
            f"True = may attend; got {describe(mask)}"
        )
    step("mask", mask, "B T_k")
    return step("key_mask", mask[:, None, None], "B 1 1 T_k", "mask[:, None, None, :]")


def check_kv_caches(kv_caches: Any, count: int) -> Sequence[Any]:
    """Return one KV cache (or what a block has) for each block; None for each if there are none.

    Raises
    ------
    ConfigError
        They are not one for each block, or of another kind.
    """
    if kv_caches is None:
        return [None] * count
    is_list = isinstance(kv_caches, (list, tuple))
    got = len(kv_caches) if is_list else describe(kv_caches)
    if got != count:
        raise ConfigError(
            f"kv_caches: expected one for each of the {count} blocks, as model.new_kv_caches() "
            f"makes them; got {got}"
        )
    for each in kv_caches:
        parts = each if isinstance(each, tuple) else (each,)
        if not all(isinstance(part, KVCache) for part in parts):
            raise ConfigError(
                f"kv_caches: expected those of model.new_kv_caches(); got {describe(each)}"
            )
    return list(kv_caches)
