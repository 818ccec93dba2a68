"""The normal distribution's share below x, for a Vector or a number: the factor of x in GELU.

The share beyond ``z = |x| / sqrt(2)`` is ``erfc(z) / 2 = t e^(-z^2 + p(t))`` with
``t = 1 / (1 + z / 2)``, where p is smooth for all z, and so nearly a polynomial. Source of the
method: Press et al. 2007, *Numerical Recipes*, 3rd ed., section 6.2.2.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.polynomial import chebyshev

from mha_numpy.kernels.exponential import emit_exp
from mha_numpy.kernels.simd import emit_constant, emit_multiply_add

LARGEST = 6.0  # z; beyond it t and p are kept: the share is below 1e-17
LEAST = 1 / (1 + LARGEST / 2)  # t


@np.vectorize
def _p(u: float) -> float:
    """Return log(e^(z^2) erfc(z) / (2 t)); t goes from LEAST to 1 as u goes from -1 to 1."""
    t = LEAST + (u + 1) / 2 * (1 - LEAST)
    z = 2 / t - 2
    return math.log(math.erfc(z) / (2 * t)) + z * z


COEFFICIENTS = {  # of Chebyshev polynomials in u
    types.float32: chebyshev.chebinterpolate(_p, 8).tolist(),
    types.float64: chebyshev.chebinterpolate(_p, 19).tolist(),
}


@intrinsic
def normal_share(typingctx, vector):
    """Return ``(1 + erf(x / sqrt(2))) / 2``, lane by lane; NaN stays NaN."""
    dtype = getattr(vector, "dtype", vector)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (x,) = args

        constant = partial(emit_constant, x.type)
        # 1. u, from t
        is_above = builder.fcmp_ordered(">", x, constant(0.0))
        z = builder.fmul(x, constant(math.sqrt(0.5)))
        z = builder.select(is_above, z, builder.fneg(z))
        t = builder.fdiv(constant(2.0), builder.fadd(z, constant(2.0)))
        t = builder.select(builder.fcmp_ordered("<", t, constant(LEAST)), constant(LEAST), t)
        two_u = emit_multiply_add(
            builder, t, constant(4 / (1 - LEAST)), constant(-2 - 4 * LEAST / (1 - LEAST))
        )

        # 2. p, by Clenshaw's recurrence
        first, *others = COEFFICIENTS[dtype]
        now, before = constant(0.0), constant(0.0)
        for coefficient in reversed(others):
            added = builder.fsub(constant(coefficient), before)
            now, before = emit_multiply_add(builder, two_u, now, added), now
        half_u = builder.fmul(two_u, constant(0.5))
        p = emit_multiply_add(builder, half_u, now, builder.fsub(constant(first), before))

        # 3. the share beyond, and that below
        power = emit_exp(builder, emit_multiply_add(builder, builder.fneg(z), z, p), dtype)
        beyond = builder.fmul(t, power)
        return builder.select(is_above, builder.fsub(constant(1.0), beyond), beyond)

    return vector(vector), codegen
