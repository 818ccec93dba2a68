"""Inputs of several models besides ids: masks of tokens, and KV caches."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from mha_numpy.core import KVCache
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, MaskError, describe
from mha_numpy.steps import step


def as_cells(mask: Array | None, shape: tuple[int, ...]) -> Array | None:
    """Return a mask of tokens as one of cells: (B, T) -> (B, 1, 1, T); one of rank 4 stays.

    `shape` is (B, T) of all tokens, those in a KV cache too.
    """
    if mask is None or np.ndim(mask) == 4:
        return mask
    mask = check_mask(mask, shape, ", or (B, H, T_q, T_k), True = may attend")
    step("mask", mask, "B T_k")
    return step("key_mask", mask[:, None, None], "B 1 1 T_k", "mask[:, None, None, :]")


def check_mask(mask: Any, shape: tuple[int, ...], otherwise: str = "") -> Array:
    """Return a mask of tokens, bool (B, T), or raise a MaskError that lists the allowed forms."""
    found = np.asarray(mask)
    if found.dtype != bool or found.shape != shape:
        raise MaskError(
            f"mask: expected bool (B, T) = {shape}, True = a token{otherwise}; got {describe(mask)}"
        )
    return found


def check_kv_caches(
    kv_caches: Any, count: int, *, are_pairs: bool = False, are_places_added: bool = True
) -> Sequence[Any]:
    """Return one KV cache (or a pair) for each block; None for each if there are none.

    Where learned positions are added to the tokens, no place in a cache may change.
    """
    if kv_caches is None:
        return [None] * count
    expected = "kv_caches: expected"
    is_list = isinstance(kv_caches, (list, tuple))
    got = len(kv_caches) if is_list else describe(kv_caches)
    if got != count:
        raise ConfigError(
            f"{expected} one for each of the {count} blocks, as model.new_kv_caches() makes them; "
            f"got {got}"
        )
    n = 2 if are_pairs else 1
    blocks = [each if are_pairs else (each,) for each in kv_caches]
    for each, block in zip(kv_caches, blocks, strict=True):
        is_whole = isinstance(block, tuple) and len(block) == n
        if not is_whole or not all(isinstance(part, KVCache) for part in block):
            raise ConfigError(f"{expected} those of model.new_kv_caches(); got {describe(each)}")
    if are_places_added and any(part.keeps_unrotated for block in blocks for part in block):
        raise ConfigError(
            f"{expected} none that rolls, because learned positions are in the keys that it would "
            "move; a model with rope can have them"
        )
    if len({id(part) for block in blocks for part in block}) < n * count:
        raise ConfigError(f"{expected} a separate one for each block; got the same one twice")
    for parts in zip(*blocks, strict=True):  # those that do the same in each block
        given = [part.sizes() for part in parts if part.length]
        shared = [n for n in (given or [{}])[0] if all(n in each for each in given)]  # a state: B
        sizes = {
            (part.length, *(part.sizes()[n] for n in shared)) if part.length else (): part
            for part in parts
        }
        if len(sizes) > 1:
            raise ConfigError(
                f"{expected} the same number of tokens, of the same sizes, in each block; "
                f"got {', '.join(map(repr, sizes.values()))}"
            )
    return list(kv_caches)


def first_place(kv_caches: Sequence[Any], ids: Any) -> int:
    """Return the place of the first of the new tokens `ids` (B, T): 0 without KV caches."""
    first = next(of_all(kv_caches), None)
    return 0 if first is None else first.place(np.shape(ids)[1] if np.ndim(ids) == 2 else 0)


def of_all(kv_caches: Sequence[Any]) -> Iterator[KVCache]:
    """Yield the KV caches of all blocks, each of which has one, a pair, or None."""
    for block in kv_caches:
        yield from () if block is None else block if isinstance(block, tuple) else (block,)


@contextmanager
def unchanged_on_error(kv_caches: Sequence[Any]) -> Iterator[None]:
    """Forget what all KV caches of a model appended if one of its blocks raises."""
    with ExitStack() as stack:
        for kv_cache in of_all(kv_caches):
            stack.enter_context(kv_cache.unchanged_on_error())
        yield
