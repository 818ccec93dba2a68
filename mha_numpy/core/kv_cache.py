"""The KV cache: keys and values of the tokens so far, and the decode step that uses them."""

from typing import Any, Unpack

import numpy as np

from mha_numpy.core.attention import attention_forward
from mha_numpy.core.attention_types import AttentionOptions
from mha_numpy.core.dtypes import Array, as_float_array
from mha_numpy.core.linear import linear_forward
from mha_numpy.core.multihead_params import MultiHeadParams, check_multi_head_inputs
from mha_numpy.core.projection import project_heads_forward
from mha_numpy.core.rope import RopeOptions, rope_forward
from mha_numpy.core.shapes import check_count, check_shape, merge_heads
from mha_numpy.errors import ConfigError


class KVCache:
    """Keys and values of past tokens, for the H_kv heads that exist and not for H.

    Holds k as (B, H_kv, length, d_k) and v as (B, H_kv, length, d_v). The first `append`
    decides all sizes but the length; room then grows by doubling, and mixed floats promote.

    Notes
    -----
    2 B H_kv length d_h numbers a layer, where keys and values are equally wide: H / H_kv times
    less than multi-head attention would need. Source: Shazeer 2019, section 2.4.

    Examples
    --------
    >>> kv_cache = KVCache()
    >>> k, v = kv_cache.append(np.ones((1, 2, 3, 4)), np.ones((1, 2, 3, 4)))
    >>> k, v = kv_cache.append(np.ones((1, 2, 1, 4)), np.ones((1, 2, 1, 4)))
    >>> k.shape, kv_cache.length, kv_cache.nbytes
    ((1, 2, 4, 4), 4, 512)
    """

    def __init__(self) -> None:
        self._room: list[Array] = []  # k and v, each (B, H_kv, capacity, d)
        self._length = 0

    @property
    def length(self) -> int:
        """Number of tokens held."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values held (room kept for later tokens not counted)."""
        return sum(part.nbytes for part in self._held())

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Add the keys and values of new tokens, and return those of all tokens.

        Parameters
        ----------
        k : (B, H_kv, T, d_k) float array
        v : (B, H_kv, T, d_v) float array

        Returns
        -------
        k, v : (B, H_kv, length, d_k) and (B, H_kv, length, d_v)
            Read-only views: valid until `truncate`, or until a later append needs more room.

        Raises
        ------
        DTypeError, ShapeError
            An argument is not a float array, or does not fit the other or those held.
        """
        k, v = as_float_array("k", k), as_float_array("v", v)
        sizes: dict[str, int] = {}
        for part, axes in zip(self._room, ("B H_kv room d_k", "B H_kv room d_v"), strict=False):
            check_shape("kv_cache", part, axes, sizes)
        held = "the KV cache" if self._room else ""
        check_shape("k", k, "B H_kv T d_k", sizes, to_match=held)
        check_shape("v", v, "B H_kv T d_v", sizes, to_match=held or f"k {k.shape}")

        longer = self._length + k.shape[2]
        empty = [new[:, :, :0] for new in (k, v)]
        self._room = [
            _with_room(part, longer, np.result_type(part, new))
            for part, new in zip(self._room or empty, (k, v), strict=True)
        ]
        for part, new in zip(self._room, (k, v), strict=True):
            part[:, :, self._length : longer] = new
        self._length = longer
        k, v = self._held()
        return k, v

    def truncate(self, length: int) -> None:
        """Forget all tokens but the first `length`.

        Raises
        ------
        ConfigError
            `length` is not an integer from 0 to the present length.
        """
        if check_count("length", length, least=0) > self._length:
            raise ConfigError(
                f"length: expected at most {self._length}, what is held; got {length}"
            )
        self._length = int(length)

    def __repr__(self) -> str:
        if not self._room:
            return "KVCache(empty)"
        k, v = self._held()
        return f"KVCache(k {k.shape}, v {v.shape}, {k.dtype}, {self.nbytes} bytes)"

    def _held(self) -> list[Array]:
        views = [part[:, :, : self._length] for part in self._room]
        for view in views:
            view.flags.writeable = False
        return views


def multi_head_attention_decode(
    x: Array,
    *,
    kv_cache: KVCache,
    params: MultiHeadParams,
    num_heads: int,
    num_kv_heads: int | None = None,
    rope: RopeOptions | None = None,
    **options: Unpack[AttentionOptions],
) -> tuple[Array, Array]:
    """Attend from new tokens to all tokens so far, whose keys and values `kv_cache` holds.

    What `multi_head_attention_forward` gives for the last T tokens of the whole sequence,
    without projecting the earlier ones again. It has no backward: it is for inference.

    Parameters
    ----------
    x : (B, T, D) float array
        The new tokens: one when decoding, several when a prompt is read.
    kv_cache : KVCache
        Gets the new keys and values appended; unchanged where an error is raised.
    params, num_heads, num_kv_heads, rope
        As in `multi_head_attention_forward`.
    **options
        As in `attention_forward`, but for `q_offset`, which is the cache's length. T_k is
        the length after appending. With T > 1 a causal model needs ``is_causal=True`` here too.

    Returns
    -------
    out : (B, T, D_out) array
    weights : (B, H, T, T_k) array
        Before dropout.

    Raises
    ------
    DTypeError, ShapeError, MaskError, ConfigError, BackendError
        An argument is of the wrong kind, shape or value; the message names it.

    Notes
    -----
    O(T_k) time a token instead of O(T_k^2). Source: Shazeer 2019, section 2.4.

    Examples
    --------
    >>> params = MultiHeadParams(*(np.ones((8, 8)) if i % 2 == 0 else None for i in range(8)))
    >>> kv_cache = KVCache()
    >>> for token in range(3):
    ...     out, weights = multi_head_attention_decode(
    ...         np.ones((1, 1, 8)), kv_cache=kv_cache, params=params, num_heads=2)
    >>> out.shape, weights.shape
    ((1, 1, 8), (1, 2, 1, 3))
    """
    if not isinstance(kv_cache, KVCache):
        raise ConfigError(f"kv_cache: expected a KVCache; got {type(kv_cache).__name__}")
    if "q_offset" in options:
        raise ConfigError("q_offset: expected none, for with a KV cache it is the cache's length")
    x, _, _, params, num_heads, num_kv_heads = check_multi_head_inputs(
        x, None, None, params, num_heads, num_kv_heads
    )
    past = options["q_offset"] = kv_cache.length
    before = kv_cache._room, kv_cache._length

    # 1. project the new tokens and split into heads
    q, _ = project_heads_forward("q", x, params.w_q, params.b_q, num_heads)
    k, _ = project_heads_forward("k", x, params.w_k, params.b_k, num_kv_heads)
    v, _ = project_heads_forward("v", x, params.w_v, params.b_v, num_kv_heads)

    # 2. rotate by their place in the whole sequence
    if rope is not None:
        positions = past + np.arange(x.shape[1])
        q, _ = rope_forward(q, positions=positions, **rope._asdict())
        k, _ = rope_forward(k, positions=positions, **rope._asdict())

    # 3. append, and attend to all
    try:
        k, v = kv_cache.append(k, v)
        heads, attention = attention_forward(q, k, v, **options)
    except Exception:
        kv_cache._room, kv_cache._length = before
        raise

    # 4. merge, 5. project
    out, _ = linear_forward(merge_heads(heads), params.w_o, params.b_o)
    return out, attention.weights.astype(heads.dtype, copy=False)


def _with_room(part: Array, length: int, dtype: np.dtype[Any]) -> Array:
    """Return `part` if `length` tokens of this dtype fit, else a copy with twice the room."""
    B, H_kv, capacity, d = part.shape
    if length <= capacity and dtype == part.dtype:
        return part
    room = np.zeros((B, H_kv, max(length, 2 * capacity), d), dtype)
    room[:, :, :capacity] = part
    return room
