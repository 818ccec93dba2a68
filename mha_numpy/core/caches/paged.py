"""A KV cache in blocks: sequences share one pool, and what they have in common."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from mha_numpy.checks import check_count, check_type
from mha_numpy.core.kv_cache import KVCache, check_index
from mha_numpy.core.masks import padding_mask
from mha_numpy.dtypes import Array, result_dtype
from mha_numpy.errors import DTypeError, MhaError, ShapeError


class BlockPool:
    """Memory for the keys and values of many `PagedKVCache`s, in blocks of `block_size` tokens.

    All sequences of all layers can share a pool. The first append decides the number of heads,
    their widths and the dtype, and takes all of the memory.

    Parameters
    ----------
    num_blocks, block_size : int

    Attributes
    ----------
    users : (num_blocks,) int array
        How many sequences name each block in their tables; a block without users is free.

    Examples
    --------
    >>> pool = BlockPool(num_blocks=8, block_size=4)
    >>> kv_cache = PagedKVCache(pool)
    >>> k, v = kv_cache.append(*np.ones((2, 1, 2, 5, 3)))  # five tokens: two blocks
    >>> pool
    BlockPool(2 of 8 blocks of 4 tokens in use, 768 of 3072 bytes)
    """

    def __init__(self, num_blocks: int, block_size: int = 16) -> None:
        self.block_size = check_count("block_size", block_size)
        self.users = np.zeros(check_count("num_blocks", num_blocks), np.int64)
        self.room: list[Array] = []  # k and v, each (num_blocks, H_kv, block_size, d)

    @property
    def free_blocks(self) -> int:
        """Number of blocks that no sequence uses."""
        return int((self.users == 0).sum())

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return sum(part.nbytes for part in self.room)

    @property
    def nbytes_used(self) -> int:
        """Bytes of the blocks in use."""
        return self.nbytes // len(self.users) * (len(self.users) - self.free_blocks)

    def claim(self, count: int) -> Array:
        """Return `count` free blocks, or raise a MhaError; a table that names them uses them."""
        free = np.flatnonzero(self.users == 0)
        if count > len(free):
            raise MhaError(
                f"pool: expected {count} free blocks for the new tokens; got {len(free)} of "
                f"{len(self.users)}; truncate or drop a KV cache, or make a larger pool"
            )
        return free[:count]

    def __repr__(self) -> str:
        N = len(self.users)
        return (
            f"BlockPool({N - self.free_blocks} of {N} blocks of {self.block_size} tokens in use, "
            f"{self.nbytes_used} of {self.nbytes} bytes)"
        )


class PagedKVCache(KVCache):
    """Keys and values in blocks of a pool, found by a table of blocks for each sequence.

    Blocks are taken when tokens need them. Sequences that began as one share its blocks; the
    first that writes into a shared block gets a copy. Blocks without users go back to the pool.

    Parameters
    ----------
    pool : BlockPool

    Notes
    -----
    The keys and values that it returns are those of `KVCache`, bit for bit, gathered from the
    blocks. A kernel would read the blocks where they are. Source: Kwon et al. 2023, *Efficient
    memory management for large language model serving with PagedAttention*, section 4. More:
    ``docs/caches.md``.

    Examples
    --------
    >>> pool = BlockPool(num_blocks=8, block_size=4)
    >>> kv_cache = PagedKVCache(pool)
    >>> k, v = kv_cache.append(*np.ones((2, 1, 2, 5, 3)))
    >>> kv_cache.select([0, 0])  # two beams, which share both blocks
    >>> kv_cache.table
    array([[0, 1],
           [0, 1]])
    >>> k, v = kv_cache.append(*np.ones((2, 2, 2, 1, 3)))  # the first beam gets its own last block
    >>> kv_cache.table
    array([[0, 2],
           [0, 1]])
    """

    def __init__(self, pool: BlockPool) -> None:
        super().__init__()
        check_type("pool", pool, BlockPool, "mha_numpy")
        self.pool = pool
        self._table: Array | None = None  # until the first append decides B

    @property
    def table(self) -> Array:
        """The blocks of each sequence, in order: (B, number of blocks), read-only."""
        table = self._blocks()[...]
        table.flags.writeable = False
        return table

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks in its tables, each block counted once."""
        return self.pool.nbytes // len(self.pool.users) * len(np.unique(self._blocks()))

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Add the keys and values of new tokens, and return those of all tokens.

        Parameters
        ----------
        k : (B, H_kv, T, d_k) float array
        v : (B, H_kv, T, d_v) float array

        Returns
        -------
        k, v : (B, H_kv, length, d_k) and (B, H_kv, length, d_v)
            Copies, gathered from the blocks.

        Raises
        ------
        MhaError
            If the pool has too few free blocks; nothing is appended then.
        """
        k, v = self._check(k, v)
        size, B, T = self.pool.block_size, k.shape[0], k.shape[2]
        for name, new, part in zip("kv", (k, v), self.pool.room, strict=False):
            if result_dtype(new, part) != part.dtype:
                raise DTypeError(f"{name}: expected {part.dtype}, as the pool has; got {new.dtype}")
        table = self._blocks() if self._table is not None else np.zeros((B, 0), np.int64)

        # 1. a last block that others use too must be copied, and full ones need another after them
        copied = self._rows_to_copy(table) if T and self._length % size else []
        added = self._blocks_for(self._length + T) - table.shape[1]
        fresh = self.pool.claim(len(copied) + B * added)
        own, more = fresh[: len(copied)], fresh[len(copied) :].reshape(B, added)
        if not self.pool.room:
            N, H_kv = len(self.pool.users), k.shape[1]
            self.pool.room = [np.zeros((N, H_kv, size, x.shape[-1]), x.dtype) for x in (k, v)]
        grown = np.concatenate([table, more], axis=1)
        if copied:
            last = table.shape[1] - 1
            for part in self.pool.room:
                part[own] = part[table[copied, last]]
            grown[copied, last] = own
        self._use(grown)

        # 2. write each token into its block
        places = np.arange(self._length, self._length + T)
        blocks, slots = grown[:, places // size], places % size  # (B, T), (T,)
        for part, new in zip(self.pool.room, (k, v), strict=True):
            part[blocks, :, slots] = new.swapaxes(1, 2)  # (B, T, H_kv, d)
        self._length += T
        k, v = self.held
        return k, v

    def _rows_to_copy(self, table: Array) -> list[int]:
        """Return the sequences whose last block has other users; the last user keeps it."""
        left, copied = self.pool.users.copy(), []
        for row, block in enumerate(table[:, -1]):
            if left[block] > 1:
                left[block] -= 1
                copied.append(row)
        return copied

    @property
    def held(self) -> list[Array]:
        """The keys and values of all tokens, read-only copies; none before the first `append`."""
        if self._table is None:
            return []
        gathered = []
        for part in self.pool.room:
            blocks = part[self._table].swapaxes(1, 2)  # (B, H_kv, blocks, block_size, d)
            B, H_kv, n, size, d = blocks.shape
            gathered.append(blocks.reshape(B, H_kv, n * size, d)[:, :, : self._length])
            gathered[-1].flags.writeable = False
        return gathered

    def truncate(self, length: int) -> None:
        """Forget all tokens except the first `length`, and free the blocks after them."""
        length = self._check_length(length)
        if self._table is not None:
            self._use(self._table[:, : self._blocks_for(length)])
        self._length = length

    def keep(self, tokens: Sequence[int] | Array) -> None:
        """Keep these tokens, in this order; the first ones stay in their blocks.

        Parameters
        ----------
        tokens : (T',) integers from 0 to length - 1
        """
        index = check_index("tokens", tokens, self._length, "token")
        moved = np.flatnonzero(index != np.arange(len(index)))
        first = int(moved[0]) if moved.size else len(index)
        with self.unchanged_on_error():
            rest = [part[:, :, index[first:]] for part in self.held]
            self.truncate(first)
            if rest:
                self.append(*rest)

    def select(self, rows: Sequence[int] | Array) -> None:
        """Keep these sequences, in this order; one that is kept several times shares its blocks.

        Parameters
        ----------
        rows : (B',) integers from 0 to B - 1
        """
        index = check_index("rows", rows, len(self._blocks()), "sequence")
        if self._table is not None:
            self._use(self._table[index])

    def fork(self) -> "PagedKVCache":
        """Return another KV cache with the same tokens, in the same blocks.

        Examples
        --------
        >>> prompt = PagedKVCache(BlockPool(num_blocks=8, block_size=4))
        >>> k, v = prompt.append(*np.ones((2, 1, 2, 8, 3)))
        >>> answers = [prompt.fork(), prompt.fork()]
        >>> prompt.pool.users
        array([3, 3, 0, 0, 0, 0, 0, 0])
        """
        other = PagedKVCache(self.pool)
        if self._table is not None:
            other._use(self._table)
        other._length = self._length
        return other

    __copy__ = fork

    @contextmanager
    def unchanged_on_error(self) -> Iterator[None]:
        """Forget what the block appended if it raises."""
        table, length, room = self._table, self._length, self.pool.room
        try:
            yield
        except BaseException:
            self._use(table)
            self._length = length
            if not self.pool.users.any():  # then nothing has decided any sizes
                self.pool.room = room
            raise

    def __del__(self) -> None:
        if hasattr(self, "_table"):  # else the pool was none
            self._use(None)

    def _use(self, table: Array | None) -> None:
        """Let these be its blocks, and no longer those that it had."""
        for blocks, change in ((table, 1), (self._table, -1)):
            if blocks is not None:
                np.add.at(self.pool.users, blocks, change)
        self._table = table

    def _blocks(self) -> Array:
        return np.zeros((0, 0), np.int64) if self._table is None else self._table

    def _blocks_for(self, length: int) -> int:
        return -(-length // self.pool.block_size)

    def sizes(self) -> dict[str, int]:
        """Return B, H_kv, d_k and d_v of what is held or what the pool has room for."""
        sizes: dict[str, int] = {}
        if self.pool.room:
            (_, H_kv, _, d_k), (*_, d_v) = (part.shape for part in self.pool.room)
            sizes = {"H_kv": H_kv, "d_k": d_k, "d_v": d_v}
        return sizes if self._table is None else {"B": len(self._table), **sizes}


def pad_batch(kv_caches: Sequence[KVCache]) -> tuple[Array, Array, Array]:
    """Stack what several KV caches hold, of different lengths, and mask the padding.

    Parameters
    ----------
    kv_caches : list of KVCache, each with at least one append

    Returns
    -------
    k, v : (B, H_kv, T_k, d_k) and (B, H_kv, T_k, d_v)
        One sequence after another, zeros after short ones.
    mask : (B, 1, 1, T_k) bool array
        For `attention_forward` of one query per sequence.

    Examples
    --------
    >>> pool = BlockPool(num_blocks=8, block_size=4)
    >>> kv_caches = [PagedKVCache(pool), PagedKVCache(pool)]
    >>> for kv_cache, T in zip(kv_caches, (5, 2)):
    ...     _ = kv_cache.append(*np.ones((2, 1, 3, T, 4)))
    >>> k, v, mask = pad_batch(kv_caches)
    >>> k.shape, mask[:, 0, 0].sum(axis=-1)
    ((2, 3, 5, 4), array([5, 2]))
    """
    held = []
    for i, kv_cache in enumerate(kv_caches):
        check_type(f"kv_caches[{i}]", kv_cache, KVCache, "mha_numpy")
        held.append(kv_cache.held)
    shapes = {tuple((part.shape[1], part.shape[3]) for part in parts) for parts in held}
    if len(shapes) != 1 or () in shapes:
        raise ShapeError(
            "kv_caches: expected one or more with tokens, of the same heads and widths; got "
            f"{', '.join(map(repr, kv_caches)) or 'none'}"
        )
    longest = max(parts[0].shape[2] for parts in held)
    k, v = (
        np.concatenate([
            np.pad(part, ((0, 0), (0, 0), (0, longest - part.shape[2]), (0, 0))) for part in parts
        ])
        for parts in zip(*held, strict=True)
    )  # fmt: skip
    lengths = [k.shape[2] for k, _ in held for _ in range(k.shape[0])]
    return k, v, padding_mask(np.array(lengths, np.int64), longest)
