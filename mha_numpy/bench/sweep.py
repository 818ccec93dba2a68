"""draw_calls: attention calls as people make them, drawn at random, so no list hides holes."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from mha_numpy.bench.problems import Case, LayerProblem, Mask, Problem, written

MOST_OPERATIONS = 4 * 10**11  # of a call: a second or two
MOST_NUMBERS = 2**27  # of an input
MOST_CELLS = 2**26  # of a mask or a bias, in all heads and sequences
LONGEST = 32768  # tokens
WIDEST = 4096  # features of a layer
MOST_HEADS = 64
COMMON_WIDTHS, OTHER_WIDTHS = (64, 128), (16, 24, 32, 40, 48, 80, 96, 112, 160, 192, 256)
MASKS: tuple[Mask | None, ...] = (None, "padding", "full", "bias")


def draw_calls(count: int, seed: int) -> list[tuple[str, Case]]:
    """Draw shapes and cases at random.

    Parameters
    ----------
    count : int
        How many.
    seed : int
        The same seed draws the same calls.

    Returns
    -------
    list of (shape, case)
        A fifth are layers, a fifth are steps of decoding, one in seven is cross attention, and the
        rest self-attention, half of it causal. Lengths, batch and heads are spread evenly on a
        logarithmic scale, so there are as many calls of 10 to 100 tokens as of 1,000 to 10,000.
        Calls that would take more than a second or two, or gigabytes, are drawn again.

    Examples
    --------
    >>> for shape, case in draw_calls(3, seed=1):
    ...     print(shape, "-", case.name)
    layer 1,256,128,2 - fwd
    32,16/4,1,64,24 - fwd bias
    layer 16,2048,768,8 - fwd
    """
    rng = np.random.default_rng(seed)
    fitting = (call for call in _calls(rng) if _fits(*call))
    return [(written(problem), case) for problem, case in islice(fitting, count)]


def _calls(rng: np.random.Generator) -> Iterator[tuple[Problem | LayerProblem, Case]]:
    """Draw one call after another, whatever they cost."""
    while True:
        kind = rng.choice(["self", "layer", "decode", "cross"], p=[0.46, 0.2, 0.2, 0.14])
        backward = bool(kind != "decode" and rng.random() < 0.5)
        B, d = _power(rng, 64), _width(rng)
        if kind == "layer":
            H = _power(rng, 32)
            yield LayerProblem(B, _length(rng), H * d, H), Case(backward)
            continue
        H_kv, group = _power(rng, 64), 1
        if rng.random() < 0.35:
            group = int(rng.choice([2, 4, 8]))
        T_k = _length(rng)
        T_q = T_k if kind == "self" else _length(rng)
        if kind == "decode":  # one token, or a few that were guessed
            T_q, T_k = (1 if rng.random() < 0.7 else int(rng.integers(2, 9))), max(T_k, 64)
        is_causal = bool(kind == "self" and rng.random() < 0.5)
        window = int(2 ** rng.integers(4, 11)) if is_causal and rng.random() < 0.2 else 0
        mask = MASKS[rng.choice(len(MASKS), p=[0.6, 0.2, 0.1, 0.1])]
        case = Case(backward, is_causal, mask, window=window, is_double=bool(rng.random() < 0.15))
        yield Problem(B, group * H_kv, H_kv, T_q, T_k, d), case


def _fits(problem: Problem | LayerProblem, case: Case) -> bool:
    """Return whether a call takes neither minutes nor gigabytes."""
    if isinstance(problem, LayerProblem):
        fits = problem.D <= WIDEST and problem.B * problem.T * problem.D <= MOST_NUMBERS
    else:
        B, H, _, T_q, T_k, d = problem
        copies = {None: 1, "padding": B, "full": B, "bias": H}[case.mask]
        cells = copies * T_q * T_k * bool(case.mask or case.window)
        fits = B * H * max(T_q, T_k) * d <= MOST_NUMBERS and cells <= MOST_CELLS
        fits &= H <= MOST_HEADS
    return fits and problem.operations(case) <= MOST_OPERATIONS


def _power(rng: np.random.Generator, most: int) -> int:
    """Draw a power of two, or now and then another number that people have."""
    number = 2 ** int(rng.integers(int(np.log2(most)) + 1))
    return int(number * 3 // 2) if rng.random() < 0.2 and number * 3 // 2 <= most else number


def _length(rng: np.random.Generator) -> int:
    """Draw a number of tokens, in half of the cases a power of two."""
    exponent = rng.uniform(0, np.log2(LONGEST))
    return int(2 ** (round(exponent) if rng.random() < 0.5 else exponent))


def _width(rng: np.random.Generator) -> int:
    """Draw the width of a head."""
    if rng.random() < 0.1:
        return int(rng.integers(16, 257))
    return int(rng.choice(COMMON_WIDTHS if rng.random() < 0.6 else OTHER_WIDTHS))
