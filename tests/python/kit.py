# SPDX-License-Identifier: BSD-3-Clause
"""kit.py — what the tests of the Python package share: attention in FP64, inputs, a bound."""

import ml_dtypes
import numpy as np

DTYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
# Of a result near 1 in magnitude: the rounding of the type, and of P to it, with room for sums.
BOUND = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def normal(rng, shape, dtype="float32"):
    return rng.standard_normal(shape).astype(DTYPES[dtype])


def visible(length_q, length_kv, causal=False, window=None):
    """(length_q, length_kv), true where a query sees a key; bottom-right aligned."""
    position = np.arange(length_q)[:, None] + length_kv - length_q
    key = np.arange(length_kv)[None]
    seen = np.ones((length_q, length_kv), bool)
    if causal:
        seen &= key <= position
    if window is not None:
        left, right = window
        if left is not None:
            seen &= key >= position - left
        if right is not None:
            seen &= key <= position + right
    return seen


def probabilities(q, k, *, scale=None, softcap=0.0, bias=None, seen=None):
    """P and LSE of one sequence, FP64: q (rows, heads_q, d), k (keys, heads_kv, d). P is (heads_q,
    rows, keys); also dS'/dS of the softcap."""
    q, k = (np.asarray(x, np.float64) for x in (q, k))
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    s = np.einsum("ihd,jhd->hij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    slope = np.ones_like(s)
    if softcap:
        s = softcap * np.tanh(s / softcap)
        slope = 1 - (s / softcap) ** 2
    if bias is not None:
        s = s + bias
    if seen is not None:
        s = np.where(seen, s, -np.inf)
    top = s.max(-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    return np.divide(p, total, out=np.zeros_like(p), where=total > 0), lse, slope


def attend(q, k, v, **options):
    """O and LSE of one sequence in FP64."""
    p, lse, _ = probabilities(q, k, **options)
    v = np.repeat(np.asarray(v, np.float64), q.shape[1] // v.shape[1], axis=1)
    return np.einsum("hij,jhd->ihd", p, v), lse


def gradients(dout, q, k, v, *, scale=None, dlse=None, **options):
    """dQ, dK, dV of one sequence in FP64, from the definition."""
    p, _, slope = probabilities(q, k, scale=scale, **options)
    group = q.shape[1] // k.shape[1]
    dout, q, k, v = (np.asarray(x, np.float64) for x in (dout, q, k, v))
    wide_k, wide_v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    dp = np.einsum("ihd,jhd->hij", dout, wide_v)
    delta = (p * dp).sum(-1, keepdims=True)
    if dlse is not None:
        delta = delta - dlse[..., None]
    ds = p * (dp - delta) * slope * (q.shape[-1] ** -0.5 if scale is None else scale)
    dk = np.einsum("hij,ihd->jhd", ds, q)
    dv = np.einsum("hij,ihd->jhd", p, dout)

    def summed(x):
        return x.reshape(x.shape[0], -1, group, x.shape[-1]).sum(2)

    return np.einsum("hij,jhd->ihd", ds, wide_k), summed(dk), summed(dv)


def each(function, *arrays, **options):
    """Per sequence of dense arrays, stacked."""
    results = [function(*row, **options) for row in zip(*arrays, strict=True)]
    return tuple(np.stack(part) for part in zip(*results, strict=True))


def assert_close(got, want, bound):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    same = (got == want) | (np.isnan(got) & np.isnan(want))  # infinities
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, np.abs(got - want)) / max(
            1, np.abs(want[np.isfinite(want)]).max(initial=0)
        )
    assert (error <= bound).all(), f"error {error.max():.3g}, need at most {bound:.3g}"
