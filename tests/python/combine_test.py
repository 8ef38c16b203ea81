# SPDX-License-Identifier: BSD-3-Clause
"""combine_test.py — fa3.combine: parts of the keys make the attention over all of them."""

import fa3
import ml_dtypes
import numpy as np
import pytest
from attention_test import qkv
from kit import assert_close


def merged(o, lse):
    """In FP64: o (parts, …, rows, heads, d), lse (parts, …, heads, rows)."""
    o, lse = (np.asarray(x, np.float64) for x in (o, lse))
    with np.errstate(invalid="ignore"):
        weight = np.exp(lse - lse.max(0))
    weight[~np.isfinite(lse)] = 0
    by_row = np.moveaxis(weight, -1, -2)[..., None]
    total = by_row.sum(0)
    out = np.where(by_row > 0, by_row * o, 0).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, out / total, 0), lse.max(0) + np.log(weight.sum(0))


def parts(rng, shape=(5, 2, 7, 3, 24)):
    count, *batch, rows, heads, _ = shape
    o = rng.standard_normal(shape).astype(np.float32)
    lse = 5 * rng.standard_normal((count, *batch, heads, rows)).astype(np.float32)
    lse[rng.random(lse.shape) < 0.2] = -np.inf
    lse[..., -1] = -np.inf  # the last row has no keys
    o[np.moveaxis(np.isinf(lse), -1, -2)] = np.nan
    return o, lse


@pytest.mark.parametrize("shape", [(5, 2, 7, 3, 24), (17, 7, 3, 24), (1, 2, 7, 3, 24)])
@pytest.mark.parametrize("out_dtype", [None, "bfloat16", "float16"])
def test_formula(rng, shape, out_dtype):
    o, lse = parts(rng, shape)
    got, got_lse = fa3.combine(o, lse, out_dtype=out_dtype)
    want, want_lse = merged(o, lse)
    assert got.dtype == np.dtype(getattr(ml_dtypes, "bfloat16") if out_dtype == "bfloat16"
                                 else out_dtype or np.float32)  # fmt: skip
    assert_close(got, want, 1.6e-2 if out_dtype else 2e-6)
    assert_close(got_lse, want_lse, 2e-6)
    assert (np.asarray(got[..., -1, :, :], np.float32) == 0).all()


def test_keys_in_three_parts(rng):
    q, k, v = qkv(rng)
    some = [
        fa3.attention(q, k[:, a:b], v[:, a:b], return_lse=True)
        for a, b in [(0, 5), (5, 20), (20, k.shape[1])]
    ]
    o, lse = (np.stack(x) for x in zip(*some, strict=True))
    out, lse = fa3.combine(o, lse)
    want, want_lse = fa3.attention(q, k, v, return_lse=True)
    assert_close(out, want, 4e-6)
    assert_close(lse, want_lse, 4e-6)


def test_strides_and_given_outputs(rng):
    o, lse = parts(rng)
    want, want_lse = fa3.combine(o, lse)
    out, given = np.empty((7, 2, 3, 24), np.float32).transpose(1, 0, 2, 3), np.empty_like(want_lse)
    heads_first = np.ascontiguousarray(o.transpose(0, 1, 3, 2, 4)).transpose(0, 1, 3, 2, 4)
    by_rows = np.ascontiguousarray(lse.swapaxes(-1, -2)).swapaxes(-1, -2)
    got, got_lse = fa3.combine(heads_first, by_rows, out=out, lse=given)
    assert got is out and got_lse is given
    assert (out == want).all() and (given == want_lse).all()


def test_plan_explain_supported(rng):
    o, lse = parts(rng)
    plan = fa3.Plan(fa3.combine, o, lse)
    assert plan.workspace_bytes == 0
    for got, want in zip(plan.run(o, lse), fa3.combine(o, lse), strict=True):
        assert (got == want).all()
    assert fa3.explain(fa3.combine, o, lse)["problem"]["parts"] == 5
    assert fa3.supported(fa3.combine, fa3.Spec(o.shape, "float16"), fa3.Spec(lse.shape, "float32"))


def test_refusals(rng):
    o, lse = parts(rng)
    with pytest.raises(ValueError, match=r"o_parts: 3 dimensions, need 5, \(parts, batch"):
        fa3.combine(o[0, 0], lse)
    with pytest.raises(ValueError, match=r"combine: lse_parts.shape\[0\]=4 disagrees with parts=5"):
        fa3.combine(o, lse[:4])
    with pytest.raises(ValueError, match=r"combine: out.shape\[0\]=1 disagrees with batch=2"):
        fa3.combine(o, lse, out=np.empty((1, 7, 3, 24), np.float32))
    with pytest.raises(ValueError, match="out_dtype: 'int8'"):
        fa3.combine(o, lse, out_dtype="int8")
    with pytest.raises(ValueError, match="out .* shares elements with o_parts"):
        fa3.combine(o, lse, out=o[0])
