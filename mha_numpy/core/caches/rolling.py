"""A KV cache of constant size: the first few tokens and the last ones."""

from mha_numpy.checks import check_count
from mha_numpy.core.kv_cache import KVCache
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError


class RollingKVCache(KVCache):
    """Keys and values of the first `sinks` and of the last `window` tokens.

    It holds keys before RoPE. After each append they are rotated by their place in the cache, as if
    the forgotten tokens had never been, so that no distance exceeds ``sinks + window``.

    Parameters
    ----------
    window : int
        Number of last tokens to keep, at least 1.
    sinks : int
        Number of first tokens to keep. With 0, one token after another sees what it would see
        through ``window=(window - 1, 0)``.

    Notes
    -----
    A softmax has to put its weight somewhere, and trained models put what they do not need on the
    first tokens. Source: Xiao et al. 2023, *Efficient streaming language models with attention
    sinks*, section 3.2. More: ``docs/caches.md``.

    Examples
    --------
    >>> import numpy as np
    >>> kv_cache = RollingKVCache(window=3, sinks=1)
    >>> for token in range(6):
    ...     k, v = kv_cache.append(*np.full((2, 1, 1, 1, 1), float(token)))
    >>> k.ravel(), kv_cache.length
    (array([0., 3., 4., 5.]), 4)
    """

    keeps_unrotated = True

    def __init__(self, window: int, sinks: int = 4) -> None:
        super().__init__()
        self.window = check_count("window", window)
        self.sinks = check_count("sinks", sinks, least=0)

    @property
    def at_once(self) -> int:
        """Largest number of tokens that one `append` takes now: what has room, or else one."""
        return max(1, self.sinks + self.window - self._length)

    def place(self, T: int) -> int:
        """Return the place among the keys that the first of T new tokens will have."""
        return min(self._length, max(self.sinks + self.window - T, 0))

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Add the keys (before RoPE) and values of new tokens, and return all that are kept.

        Several tokens must all have room, because each would see its own past otherwise.

        Parameters
        ----------
        k : (B, H_kv, T, d_k) float array
        v : (B, H_kv, T, d_v) float array

        Returns
        -------
        k, v : (B, H_kv, length, d_k) and (B, H_kv, length, d_v)
        """
        k, v = self._check(k, v)
        T, full = k.shape[2], self.sinks + self.window
        most = self.at_once
        if most < T:
            raise ConfigError(
                f"k: expected at most T={most} new tokens at once, because {self._length} of the "
                f"{full} places of the rolling KV cache are taken; got {T}; pass what has no room "
                "one token at a time"
            )
        if self._length + T > full:  # one token: the oldest that is no sink makes room
            self.keep([*range(self.sinks), *range(self.sinks + 1, self._length)])
        return super().append(k, v)
