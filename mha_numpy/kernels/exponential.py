"""exp, tanh and log of a Vector (the first two of a number too): powers of two and polynomials.

A power of two is a matter of bits. ``e^x = 2^n * 2^f`` with ``n = round(x * log2(e))`` and f the
rest, between -1/2 and 1/2; ``log(2^n * m) = n * log(2) + log(m)`` with m from sqrt(1/2) to sqrt(2).
Source of the method: Muller, *Elementary Functions*, 3rd ed., chapter 11.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.polynomial import chebyshev

from mha_numpy.kernels.simd import emit_constant, emit_multiply_add


class _Format(NamedTuple):
    """The constants that depend on the width of the floats."""

    fraction_bits: int
    largest_exponent: int
    polynomial: list[float]  # of (2^f - 1) / f, the highest power first
    log_terms: int  # of a series in s^2 < 0.03


def _polynomial(degree: int) -> list[float]:
    """Return the coefficients of (2^f - 1) / f for |f| <= 1/2, of nearly the least error.

    A Taylor series is cut short where it costs least: as a sum of Chebyshev polynomials.
    """
    log_2, terms = math.log(2), range(degree + 9)
    taylor = [log_2 ** (k + 1) / math.factorial(k + 1) / 2**k for k in terms]  # in u = 2 f
    in_u = chebyshev.cheb2poly(chebyshev.poly2cheb(taylor)[: degree + 1])
    return [float(c * 2**power) for power, c in enumerate(in_u)][::-1]


FORMATS = {
    types.float32: _Format(23, 127, _polynomial(5), 5),
    types.float64: _Format(52, 1023, _polynomial(11), 11),
}


def _emit_powers(builder: Any, x: Any, dtype: types.Float) -> tuple[Any, Any]:
    """Return 2^n and 2^f - 1 with e^x = 2^n * 2^f."""
    format_ = FORMATS[dtype]

    constant = partial(emit_constant, x.type)
    # adding 1.5 * 2^fraction_bits leaves no room for a fraction: the sum is rounded to an integer,
    # n + largest_exponent in the lowest bits, which are the exponent of 2^n when shifted there
    rounder = constant(1.5 * 2.0**format_.fraction_bits + format_.largest_exponent)
    shifted = emit_multiply_add(builder, x, constant(float(np.log2(np.e))), rounder)
    n = builder.fsub(shifted, rounder)
    f = emit_multiply_add(builder, x, constant(float(np.log2(np.e))), builder.fneg(n))
    rest = constant(format_.polynomial[0])
    for coefficient in format_.polynomial[1:]:
        rest = emit_multiply_add(builder, rest, f, constant(coefficient))
    word = ir.IntType(dtype.bitwidth)
    if isinstance(x.type, ir.VectorType):
        word = ir.VectorType(word, x.type.count)
    shift = emit_constant(word, format_.fraction_bits)
    power = builder.bitcast(builder.shl(builder.bitcast(shifted, word), shift), x.type)
    return power, builder.fmul(rest, f)


@intrinsic
def exp(typingctx, vector):
    """Return e^x for x <= 80, lane by lane; 0 where it would be subnormal; NaN stays NaN."""
    dtype = getattr(vector, "dtype", vector)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit_exp(builder, args[0], dtype)

    return vector(vector), codegen


def emit_exp(builder: Any, x: Any, dtype: types.Float) -> Any:
    """Compute e^x for x <= 80."""
    power, rest = _emit_powers(builder, x, dtype)
    result = emit_multiply_add(builder, power, rest, power)
    least = emit_constant(x.type, (1 - FORMATS[dtype].largest_exponent) * math.log(2))
    zero = emit_constant(x.type, 0.0)
    return builder.select(builder.fcmp_ordered("<", x, least), zero, result)


@intrinsic
def tanh(typingctx, vector):
    """Return tanh(x) = (e^2x - 1) / (e^2x + 1), lane by lane; NaN stays NaN."""
    dtype = getattr(vector, "dtype", vector)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        constant = partial(emit_constant, args[0].type)
        # beyond 20 it is 1 to the last bit
        x = builder.fmul(args[0], constant(2.0))
        for bound, beyond in ((40.0, ">"), (-40.0, "<")):
            x = builder.select(builder.fcmp_ordered(beyond, x, constant(bound)), constant(bound), x)
        power, rest = _emit_powers(builder, x, dtype)
        less_one = builder.fsub(power, constant(1.0))
        less_one = emit_multiply_add(builder, power, rest, less_one)  # e^2x - 1, without loss
        return builder.fdiv(less_one, builder.fadd(less_one, constant(2.0)))

    return vector(vector), codegen


@intrinsic
def log(typingctx, vector):
    """Return the logarithm of a normal number > 0, lane by lane; inf and NaN stay themselves.

    ``log(m) = 2 artanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...)`` with ``s = (m - 1) / (m + 1)``.
    """
    format_ = FORMATS[getattr(vector, "dtype", vector)]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (x,) = args

        constant = partial(emit_constant, x.type)
        word = ir.VectorType(ir.IntType(vector.dtype.bitwidth), vector.lanes)
        shift = emit_constant(word, format_.fraction_bits)
        # the exponent of x / sqrt(1/2), whose bits are those of x less those of sqrt(1/2)
        least = builder.bitcast(constant(math.sqrt(0.5)), word)
        bits = builder.bitcast(x, word)
        n = builder.ashr(builder.sub(bits, least), shift)
        m = builder.bitcast(builder.sub(bits, builder.shl(n, shift)), x.type)
        s = builder.fdiv(builder.fsub(m, constant(1.0)), builder.fadd(m, constant(1.0)))
        square = builder.fmul(s, s)
        series = constant(1 / (2 * format_.log_terms + 1))
        for k in reversed(range(format_.log_terms)):
            series = emit_multiply_add(builder, series, square, constant(1 / (2 * k + 1)))
        half = builder.fmul(s, series)
        whole = builder.fmul(builder.sitofp(n, x.type), constant(math.log(2)))
        result = emit_multiply_add(builder, half, constant(2.0), whole)
        is_finite = builder.fcmp_ordered("<", x, constant(math.inf))
        return builder.select(is_finite, result, x)

    return vector(vector), codegen
