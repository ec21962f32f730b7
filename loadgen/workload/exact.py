"""Elementary functions whose every bit is the same on any machine and with any NumPy.

What decides a row of a plan goes through these: libm and SIMD functions differ in the last bit from one CPU
to the next. They use + - * / and sqrt (correctly rounded by IEEE 754), frexp, ldexp and rint alone; each is
accurate to a few units in the last place. Arrays of float64 in, arrays of float64 out, element by element.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_LN2_HIGH = float.fromhex("0x1.62e42feep-1")  # 32 bits of ln 2: its multiples by an exponent are exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")  # and the rest
_TWO_PI = float.fromhex("0x1.921fb54442d18p+2")


def _horner(x: Floats, highest_first: tuple[float, ...]) -> Floats:
    total = np.full_like(x, highest_first[0])
    for coefficient in highest_first[1:]:
        total *= x
        total += coefficient
    return total


# log((1 + s) / (1 - s)) = 2s + s * R(s^2), R(z) = 2 (z/3 + z^2/5 + ...), for |s| <= 0.172
_LOG_SERIES = (*(2.0 / k for k in range(23, 2, -2)), 0.0)


def log(x: ArrayLike) -> Floats:
    """Natural logarithm of positive numbers (normal ones: above 2.3e-308)."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    low = mantissa < math.sqrt(0.5)  # so that it lies in [sqrt(1/2), sqrt(2))
    f = np.where(low, 2 * mantissa, mantissa) - 1  # exact
    twos = (exponent - low).astype(np.float64)
    s = f / (2 + f)
    series: Floats = f - s * (f - _horner(s * s, _LOG_SERIES))
    return twos * _LN2_HIGH + (series + twos * _LN2_LOW)


_EXP_SERIES = tuple(1 / math.factorial(k) for k in range(14, -1, -1))


def exp(x: ArrayLike) -> Floats:
    """e^x; 0 below -745 and infinite above 709.8."""
    y = np.clip(np.asarray(x, np.float64), -800, 800)
    twos = np.rint(y / (_LN2_HIGH + _LN2_LOW))
    rest = (y - twos * _LN2_HIGH) - twos * _LN2_LOW
    with np.errstate(over="ignore", under="ignore"):
        result: Floats = np.ldexp(_horner(rest, _EXP_SERIES), twos.astype(np.int32))
    return result


def log1p(x: ArrayLike) -> Floats:
    """log(1 + x) with no digits lost near 0; -1 < x."""
    y = np.asarray(x, np.float64)
    near = 1 + y  # what rounding does to it is in both of log(near) and near - 1, and cancels (Kahan)
    none = near == 1
    return y * np.where(none, 1, log(near) / np.where(none, 1, near - 1))


def expm1(x: ArrayLike) -> Floats:
    """e^x - 1 with no digits lost near 0; x up to 709."""
    y = np.maximum(np.asarray(x, np.float64), -700)
    near = exp(y)
    none = near == 1
    return y * np.where(none, 1, (near - 1) / np.where(none, 1, log(near)))


def power(x: ArrayLike, exponent: float) -> Floats:
    """x^exponent of positive numbers, to |exponent x log(x)| units in the last place."""
    return exp(exponent * log(x))


# sin(2 pi y) for |y| <= 1/4, in powers of (2 pi y)^2
_SIN_SERIES = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(11, -1, -1))


def sin_turns(x: ArrayLike) -> Floats:
    """sin(2 pi x): x in turns, so that whole turns are taken off exactly."""
    turns = np.asarray(x, np.float64)
    y = turns - np.rint(turns)
    y = np.where(np.abs(y) > 0.25, np.copysign(0.5, y) - y, y) * _TWO_PI
    return y * _horner(y * y, _SIN_SERIES)


# Wichura (1988), Algorithm AS 241, PPND16: coefficients of numerator and denominator, highest first.
_CENTRE = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_TAIL = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
_FAR = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e0,
        5.46378491116411436990e0,
        6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)


def normal_quantile(p: ArrayLike) -> Floats:
    """Inverse of the standard normal distribution function, 0 < p < 1."""
    probability = np.asarray(p, np.float64)
    off = probability - 0.5
    result = off * _ratio(0.180625 - off * off, _CENTRE)
    outside = np.flatnonzero(np.abs(off) > 0.425)
    tail, side = probability[outside], off[outside]
    depth = np.sqrt(-log(np.where(side < 0, tail, 1 - tail)))
    far = np.where(depth <= 5, _ratio(depth - 1.6, _TAIL), _ratio(depth - 5, _FAR))
    result[outside] = np.copysign(far, side)
    return result


def _ratio(x: Floats, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Floats:
    return _horner(x, coefficients[0]) / _horner(x, coefficients[1])
