# SPDX-License-Identifier: BSD-3-Clause
"""backward_test.py — fa3.attention_backward against FP64, and against differences."""

import fa3
import numpy as np
import pytest
from attention_test import MASKS, qkv
from kit import BOUND, DTYPES, assert_close, attend, each, gradients, normal, visible


def forward(q, k, v, **options):
    out, lse = fa3.attention(q, k, v, return_lse=True, **options)
    return out, lse


@pytest.mark.parametrize("mask", ["full", "causal", "window", "causal_window"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(rng, dtype, mask):
    q, k, v = qkv(rng, dtype)
    options = MASKS[mask]
    out, lse = forward(q, k, v, **options)
    dout = normal(rng, out.shape, dtype)
    got = fa3.attention_backward(dout, q, k, v, out, lse, **options)
    want = each(gradients, dout, q, k, v, seen=visible(33, 47, **options))
    for mine, theirs, x in zip(got, want, (q, k, v), strict=True):
        assert mine.dtype == x.dtype
        assert_close(mine, theirs, 3 * BOUND[dtype])


def test_softcap_scale_and_dlse(rng):
    q, k, v = qkv(rng)
    options = {"softcap": 2.0, "softmax_scale": 0.4}
    out, lse = forward(q, k, v, **options)
    dout, dlse = normal(rng, out.shape), normal(rng, lse.shape)
    got = fa3.attention_backward(dout, q, k, v, out, lse, dlse=dlse, **options)
    for b in range(2):
        want = gradients(dout[b], q[b], k[b], v[b], scale=0.4, softcap=2.0, dlse=dlse[b])
        for mine, theirs in zip(got, want, strict=True):
            assert_close(mine[b], theirs, 1e-5)


def test_along_a_line(rng):
    """The slope of sum(dout · out) along a random direction, by central differences in FP64."""
    q, k, v = qkv(rng, batch=1, rows=9, keys=11)
    context = fa3.Context(backend="reference")
    out, lse = forward(q, k, v, causal=True, context=context)
    dout = normal(rng, out.shape)
    got = fa3.attention_backward(dout, q, k, v, out, lse, causal=True, context=context)
    steps = [normal(rng, x.shape) for x in (q, k, v)]
    slope = sum((g.astype(np.float64) * s).sum() for g, s in zip(got, steps, strict=True))

    def value(h):
        moved = [np.asarray(x, np.float64) + h * s for x, s in zip((q, k, v), steps, strict=True)]
        return (attend(*(x[0] for x in moved), seen=visible(9, 11, True))[0] * dout[0]).sum()

    assert slope == pytest.approx((value(1e-6) - value(-1e-6)) / 2e-6, rel=1e-5)


def test_output_mask_and_outputs_of_the_caller(rng):
    q, k, v = qkv(rng)
    out, lse = forward(q, k, v)
    dout = normal(rng, out.shape)
    every = fa3.attention_backward(dout, q, k, v, out, lse)
    dq, dk, dv = fa3.attention_backward(dout, q, k, v, out, lse, output_mask=(True, False, True))
    assert dk is None and (dq == every[0]).all() and (dv == every[2]).all()
    mine = np.full_like(k, np.nan)
    assert fa3.attention_backward(dout, q, k, v, out, lse, dk=mine)[1] is mine
    assert (mine == every[1]).all()
    nothing = fa3.attention_backward(dout, q, k, v, out, lse, output_mask=(False,) * 3)
    assert nothing == (None, None, None)


def test_grad_dtype_and_deterministic(rng):
    q, k, v = qkv(rng, "bfloat16")
    out, lse = forward(q, k, v)
    dout = normal(rng, out.shape, "bfloat16")
    wide = fa3.attention_backward(dout, q, k, v, out, lse, grad_dtype="float32", deterministic=True)
    assert all(g.dtype == np.float32 for g in wide)
    again = fa3.attention_backward(
        dout, q, k, v, out, lse, grad_dtype="float32", deterministic=True
    )
    assert all((a == b).all() for a, b in zip(wide, again, strict=True))


def test_varlen_sums_like_dense(rng):
    q, k, v = qkv(rng, rows=20, keys=20)
    cu = np.array([0, 20, 40], np.int32)
    flat = [x.reshape(40, *x.shape[2:]) for x in (q, k, v)]
    lengths = {"cu_seqlens_q": cu, "cu_seqlens_kv": cu}
    out, lse = forward(q, k, v, causal=True)
    flat_out, flat_lse = forward(*flat, causal=True, **lengths)
    dout = normal(rng, out.shape)
    dense = fa3.attention_backward(dout, q, k, v, out, lse, causal=True)
    varlen = fa3.attention_backward(
        dout.reshape(flat_out.shape), *flat, flat_out, flat_lse, causal=True, **lengths
    )
    for a, b in zip(dense, varlen, strict=True):
        assert_close(b.reshape(a.shape), a, 2e-6)
