"""The KV cache: keys and values of the tokens so far."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mha_numpy.checks import check_count, check_shape
from mha_numpy.dtypes import Array, as_float_array, as_integer_array, result_dtype
from mha_numpy.errors import ConfigError, describe


class KVCache:
    """Keys and values of past tokens, for H_kv heads instead of H.

    It holds k as (B, H_kv, length, d_k) and v as (B, H_kv, length, d_v). The first `append`
    decides all sizes but the length; room then grows by doubling, and mixed floats promote.

    Notes
    -----
    A layer's cache holds 2 B H_kv length d_h numbers if keys and values are equally wide. That is
    H / H_kv times less than multi-head attention would need. Source: Shazeer 2019, section 3.
    Other kinds of cache are `RollingKVCache`, `PagedKVCache` and `Int8KVCache`: all of them can be
    used in its place. ``docs/caches.md`` compares them.

    Examples
    --------
    >>> kv_cache = KVCache()
    >>> k, v = kv_cache.append(np.ones((1, 2, 3, 4)), np.ones((1, 2, 3, 4)))
    >>> k, v = kv_cache.append(np.ones((1, 2, 1, 4)), np.ones((1, 2, 1, 4)))
    >>> k.shape, kv_cache.length, kv_cache.nbytes
    ((1, 2, 4, 4), 4, 512)
    """

    keeps_unrotated = False  # True if RoPE comes after `append`, by the place in the cache

    def __init__(self) -> None:
        self._room: list[Array] = []  # k and v, each (B, H_kv, capacity, d)
        self._length = 0

    @property
    def length(self) -> int:
        """Number of tokens held."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values held, without the room for later tokens."""
        return sum(part[:, :, : self._length].nbytes for part in self._room)

    @property
    def at_once(self) -> int | None:
        """Largest number of tokens that one `append` takes now; None if there is no limit."""
        return None

    def place(self, T: int) -> int:
        """Return the place among the keys that the first of T new tokens will have."""
        return self._length

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Add the keys and values of new tokens, and return those of all tokens.

        Parameters
        ----------
        k : (B, H_kv, T, d_k) float array
        v : (B, H_kv, T, d_v) float array

        Returns
        -------
        k, v : (B, H_kv, length, d_k) and (B, H_kv, length, d_v)
            Read-only views; a token that `truncate` forgets may change in them later.
        """
        k, v = self._check(k, v)
        longer = self._length + k.shape[2]
        parts = self._encode(k, v)
        empty = [new[:, :, :0].copy() for new in parts]  # room of our own
        self._room = [
            _with_room(part, longer, result_dtype(part, new))
            for part, new in zip(self._room or empty, parts, strict=True)
        ]
        for part, new in zip(self._room, parts, strict=True):
            part[:, :, self._length : longer] = new
        self._length = longer
        k, v = self.held
        return k, v

    def truncate(self, length: int) -> None:
        """Forget all tokens except the first `length`."""
        self._length = self._check_length(length)

    def keep(self, tokens: Sequence[int] | Array) -> None:
        """Keep these tokens, in this order, such as the accepted ones of a tree of drafts.

        Parameters
        ----------
        tokens : (T',) integers from 0 to length - 1

        Examples
        --------
        >>> kv_cache = KVCache()
        >>> k = np.array([0.0, 1.0, 2.0, 3.0]).reshape(1, 1, 4, 1)
        >>> _ = kv_cache.append(k, k)
        >>> kv_cache.keep([0, 1, 3])
        >>> kv_cache.held[0].ravel()
        array([0., 1., 3.])
        """
        index = check_index("tokens", tokens, self._length, "token")
        room = [_with_room(part[:, :, index], part.shape[2], part.dtype) for part in self._room]
        self._room, self._length = room, len(index)

    def select(self, rows: Sequence[int] | Array) -> None:
        """Keep these sequences, in this order; one may be kept several times, as in beam search.

        Parameters
        ----------
        rows : (B',) integers from 0 to B - 1

        Examples
        --------
        >>> kv_cache = KVCache()
        >>> k = np.array([0.0, 1.0, 2.0]).reshape(3, 1, 1, 1)
        >>> _ = kv_cache.append(k, k)
        >>> kv_cache.select([2, 2])
        >>> kv_cache.held[0].ravel()
        array([2., 2.])
        """
        B = self._room[0].shape[0] if self._room else 0
        index = check_index("rows", rows, B, "sequence")
        self._room = [part[index] for part in self._room]

    @contextmanager
    def unchanged_on_error(self) -> Iterator[None]:
        """Forget what the block appended if it raises."""
        before = self._room, self._length
        try:
            yield
        except BaseException:
            self._room, self._length = before
            raise

    def __repr__(self) -> str:
        name = type(self).__name__
        if not self.held:
            return f"{name}(empty)"
        k, v = self.held
        return f"{name}(k {k.shape}, v {v.shape}, {k.dtype}, {self.nbytes} bytes)"

    @property
    def held(self) -> list[Array]:
        """The keys and values of all tokens, read-only views; none before the first `append`."""
        views = self._decode([part[:, :, : self._length] for part in self._room])
        for view in views:
            view.flags.writeable = False
        return views

    def _encode(self, k: Array, v: Array) -> list[Array]:
        """Return new tokens as they are stored: arrays (B, H_kv, T, ...), first of k and of v."""
        return [k, v]

    def _decode(self, parts: list[Array]) -> list[Array]:
        """Return stored arrays as keys and values."""
        return parts

    def sizes(self) -> dict[str, int]:
        """Return B, H_kv, d_k and d_v; none before the first `append` decides them."""
        if not self._room:
            return {}
        (B, H_kv, _, d_k), (_, _, _, d_v) = (part.shape for part in self._room[:2])
        return {"B": B, "H_kv": H_kv, "d_k": d_k, "d_v": d_v}

    def _check(self, k: Any, v: Any) -> tuple[Array, Array]:
        """Return the keys and values of new tokens as arrays that fit what is held."""
        k, v = as_float_array("k", k), as_float_array("v", v)
        sizes = self.sizes()
        held = "the KV cache" if sizes else ""
        check_shape("k", k, "B H_kv T d_k", sizes, to_match=held)
        check_shape("v", v, "B H_kv T d_v", sizes, to_match=held or f"k {k.shape}")
        return k, v

    def _check_length(self, length: Any) -> int:
        if check_count("length", length, least=0) > self._length:
            raise ConfigError(
                f"length: expected at most {self._length}, the tokens that it has; got {length}"
            )
        return int(length)


def check_index(name: str, index: Any, count: int, what: str) -> Array:
    """Return integers from 0 to count - 1, one for each `what` to keep, or raise a ConfigError."""
    if isinstance(index, (list, tuple)) and not index:
        return np.zeros(0, np.int64)
    found = as_integer_array(name, index, f"integers, one for each {what} to keep")
    if found.ndim != 1 or not ((found >= 0) & (found < count)).all():
        raise ConfigError(f"{name}: expected integers from 0 to {count - 1}; got {describe(index)}")
    return found


def _with_room(part: Array, length: int, dtype: np.dtype[Any]) -> Array:
    """Return `part` if `length` tokens of this dtype fit, else a copy with twice the room."""
    B, H_kv, capacity, d = part.shape
    if length <= capacity and dtype == part.dtype:
        return part
    more = capacity if length <= capacity else max(length, 2 * capacity)
    room = np.zeros((B, H_kv, more, d), dtype)
    room[:, :, :capacity] = part
    return room
