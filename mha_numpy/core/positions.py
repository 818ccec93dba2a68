"""A token's position: its number, ALiBi bias and sinusoids to add. For RoPE see `rope`."""

import numpy as np

from mha_numpy.checks import check_count, check_integer, check_number
from mha_numpy.core.masks import check_kind, document_mask
from mha_numpy.dtypes import Array
from mha_numpy.errors import MaskError


def positions_from_mask(mask: Array) -> Array:
    """Count each sequence's positions from its first real token, for padding on the left.

    Parameters
    ----------
    mask : (T,) or (B, T) bool array
        True = a real token; ``tokens.attention_mask == 1`` from a tokenizer.

    Returns
    -------
    int array like `mask`. Padding before the first token has position 0; nothing sees it.

    Examples
    --------
    >>> positions_from_mask(np.array([[False, False, True, True], [True, True, True, True]]))
    array([[0, 0, 0, 1],
           [0, 1, 2, 3]])
    """
    mask = check_kind("mask", mask)
    if mask.ndim not in (1, 2):
        raise MaskError(f"mask: expected (T,) or (B, T), True = a real token; got {mask.shape}")
    return np.maximum(np.cumsum(mask, axis=-1) - 1, 0)


def document_positions(ids: Array) -> Array:
    """Count positions from the start of each document: how many tokens of it came before.

    Parameters
    ----------
    ids : (T,) or (B, T) int array
        As `document_mask` takes them.

    Returns
    -------
    int array like `ids`; 0 for padding.

    Examples
    --------
    >>> document_positions(np.array([0, 0, 0, 1, 1, -1]))
    array([0, 1, 2, 0, 1, 0])
    """
    mask = document_mask(ids)
    return np.tril(mask, -1).sum(axis=-1).reshape(np.shape(ids))


def alibi_bias(H: int, T_q: int, T_k: int | None = None, *, q_offset: int = 0) -> Array:
    """Return a bias that falls linearly with distance, steeper or flatter by head.

    ``bias[h, i, j] = -slope_h * |i + q_offset - j|``.

    Parameters
    ----------
    H, T_q, T_k : int
        Heads, queries, keys; `T_k` defaults to `T_q`.
    q_offset : int
        Position of the first query among the keys.

    Returns
    -------
    (H, T_q, T_k) float64 array, to be passed as ``bias=``.

    Notes
    -----
    For H a power of 2 the slopes are ``2^(-8/H), 2^(-16/H), ..., 2^-8``; for another H the slopes
    of the next smaller power of 2 come first, then every other one of the next larger. Source:
    Press et al. 2022, section 3 and the authors' code. The paper is causal; with the
    absolute distance the same bias also serves attention that looks both ways.

    Examples
    --------
    >>> alibi_bias(2, 3)[1] * 256
    array([[ 0., -1., -2.],
           [-1.,  0., -1.],
           [-2., -1.,  0.]])
    """
    H = check_count("H", H)
    T_q = check_count("T_q", T_q, least=0)
    T_k = T_q if T_k is None else check_count("T_k", T_k, least=0)
    power = 2 ** (H.bit_length() - 1)
    slopes = 2.0 ** (-8 / power * np.arange(1, power + 1))
    slopes_between = 2.0 ** (-4 / power * np.arange(1, 2 * (H - power) + 1, 2))
    query = np.arange(T_q)[:, None] + check_integer("q_offset", q_offset)
    distance = np.abs(query - np.arange(T_k))  # (T_q, T_k)
    # 0 - distance, for -distance would make -0.0 of 0
    return np.concatenate([slopes, slopes_between])[:, None, None] * (0 - distance)


def sinusoidal_positions(T: int, D: int, *, base: float = 10000.0, offset: int = 0) -> Array:
    """Return fixed position vectors to add to token embeddings.

    ``out[t, 2 i] = sin((t + offset) * base^(-2 i / D))``, and ``out[t, 2 i + 1]`` the cosine.

    Parameters
    ----------
    T, D : int
        Tokens and width.
    base : float
        Larger is slower.
    offset : int
        Position of the first token.

    Returns
    -------
    (T, D) float64 array

    Notes
    -----
    Source: Vaswani et al. 2017, section 3.5.

    Examples
    --------
    >>> sinusoidal_positions(2, 4).round(2)
    array([[0.  , 1.  , 0.  , 1.  ],
           [0.84, 0.54, 0.01, 1.  ]])
    """
    T, D = check_count("T", T, least=0), check_count("D", D)
    base = check_number("base", base, positive=True)
    column = np.arange(D)
    pair = column // 2
    angles = (np.arange(T)[:, None] + check_integer("offset", offset)) * base ** (
        -2 * pair / D
    )  # (T, D)
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))
