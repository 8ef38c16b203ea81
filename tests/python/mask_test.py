# SPDX-License-Identifier: BSD-3-Clause
"""mask_test.py — attn_mask and top_left in fa3.attention and its backward, against FP64."""

import itertools

import fa3
import numpy as np
import pytest
from attention_test import qkv
from kit import BOUND, DTYPES, assert_close, attend, normal, probabilities, visible

SHAPES = [(2, 4, 33, 47), (1, 1, 33, 47), (2, 1, 1, 47), (4, 33, 1), (33, 47), (47,)]


def want_of(q, k, v, bias, **options):
    parts = [
        attend(q[b], k[b], v[b], bias=np.where(np.isneginf(bias[b]), 0, bias[b]),
               seen=~np.isneginf(bias[b]), **options)
        for b in range(len(q))
    ]  # fmt: skip
    return tuple(np.stack(x) for x in zip(*parts, strict=True))


@pytest.mark.parametrize("kind", ["bool", "float32", "own"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_masks(rng, dtype, shape, kind):
    q, k, v = qkv(rng, dtype)
    shown = rng.random(shape) < 0.7
    if kind == "bool":
        mask = shown
        bias = np.where(shown, 0.0, -np.inf)
    else:
        bias = np.where(shown, rng.standard_normal(shape), -np.inf)
        mask = bias.astype(np.float32 if kind == "float32" else DTYPES[dtype])
        bias = mask.astype(np.float64)
    out, lse = fa3.attention(q, k, v, attn_mask=mask, return_lse=True)
    want, want_lse = want_of(q, k, v, np.broadcast_to(bias, (2, 4, 33, 47)))
    assert_close(out, want, BOUND[dtype])
    finite = np.isfinite(want_lse)
    assert np.array_equal(np.isneginf(lse), ~finite)
    assert_close(lse[finite], want_lse[finite], 1e-5)


def test_expanded_and_strided(rng):
    q, k, v = qkv(rng)
    mask = rng.random((33, 64)) < 0.6
    want = fa3.attention(q, k, v, attn_mask=mask[:, :47].copy())
    assert np.array_equal(fa3.attention(q, k, v, attn_mask=mask[:, :47]), want)
    expanded = np.broadcast_to(mask[:, :47], (2, 4, 33, 47))
    assert np.array_equal(fa3.attention(q, k, v, attn_mask=expanded), want)


@pytest.mark.parametrize("kind", [np.bool_, np.float32])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("expanded", list(itertools.product([0, 1], repeat=4)))
def test_expanded_in_any_dimensions(rng, expanded, heads, kind):
    q, k, v = qkv(rng, heads=heads, heads_kv=1)
    full = (2, heads, 33, 47)
    few = tuple(1 if e else n for e, n in zip(expanded, full, strict=True))
    mask = rng.standard_normal(few).astype(np.float32)
    mask = mask > -0.5 if kind is np.bool_ else mask
    given = np.broadcast_to(mask, full)
    out, lse = fa3.attention(q, k, v, attn_mask=given, return_lse=True)
    assert np.array_equal(out, fa3.attention(q, k, v, attn_mask=given.copy()))
    assert np.array_equal(fa3.attention(q, k, v, attn_mask=mask), out)
    arrays = (normal(rng, out.shape), q, k, v, out, lse)
    found = fa3.attention_backward(*arrays, attn_mask=given)
    want = fa3.attention_backward(*arrays, attn_mask=given.copy())
    assert all(np.array_equal(a, b) for a, b in zip(found, want, strict=True))


def test_expanded_to_other_extents(rng):
    """Refused as ever, although nothing of it would be read."""
    q, k, v = qkv(rng)
    one = np.ones((), np.float32)
    for shape in [(3, 4, 33, 47), (2, 3, 33, 47), (2, 4, 32, 47), (2, 4, 33, 46), (33, 46)]:
        with pytest.raises(ValueError, match="attn_mask.shape"):
            fa3.attention(q, k, v, attn_mask=np.broadcast_to(one, shape))


@pytest.mark.parametrize("rows, keys", [(20, 31), (31, 20)])
@pytest.mark.parametrize("options", [{"causal": True}, {"window": (4, 2)}])
def test_top_left(rng, rows, keys, options):
    q, k, v = qkv(rng, rows=rows, keys=keys)
    # The same square cut from its top left corner, or with rows beyond it.
    seen = visible(max(rows, keys), max(rows, keys), **options)[:rows, :keys]
    out = fa3.attention(q, k, v, top_left=True, **options)
    for b in range(2):
        assert_close(out[b], attend(q[b], k[b], v[b], seen=seen)[0], BOUND["float32"])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradient_of_the_mask(rng, shape):
    q, k, v = qkv(rng)
    mask = rng.standard_normal(shape).astype(np.float32)
    out, lse = fa3.attention(q, k, v, attn_mask=mask, return_lse=True)
    dout = normal(rng, out.shape)
    *_, got = fa3.attention_backward(
        dout, q, k, v, out, lse, attn_mask=mask, return_dattn_mask=True
    )
    full = np.empty((2, 4, 33, 47))
    bias = np.broadcast_to(mask, full.shape)
    for b in range(2):
        p, _, _ = probabilities(q[b], k[b], bias=bias[b])
        dp = np.einsum("ihd,jhd->hij", dout[b].astype(float), np.repeat(v[b], 2, 1).astype(float))
        full[b] = p * (dp - (p * dp).sum(-1, keepdims=True))
    shape4 = (1,) * (4 - len(shape)) + shape
    summed = tuple(d for d in range(4) if shape4[d] == 1)
    want = full.sum(summed, keepdims=True).reshape(shape)
    assert got.shape == shape
    assert_close(got, want, 1e-5 * max(1, np.abs(want).max()))


def test_gradients_into_arrays(rng):
    q, k, v = qkv(rng)
    mask = normal(rng, (33, 47))
    out, lse = fa3.attention(q, k, v, attn_mask=mask, return_lse=True)
    dout = normal(rng, out.shape)
    common = {"attn_mask": mask, "output_mask": (False, False, False)}
    into = np.full_like(mask, np.nan)
    got = fa3.attention_backward(dout, q, k, v, out, lse, dattn_mask=into, **common)
    assert got == (None, None, None)
    *_, want = fa3.attention_backward(dout, q, k, v, out, lse, return_dattn_mask=True, **common)
    assert np.array_equal(into, want)


def test_refused(rng):
    q, k, v = qkv(rng)
    with pytest.raises(TypeError, match="attn_mask: dtype int64"):
        fa3.attention(q, k, v, attn_mask=np.ones((33, 47), np.int64))
    with pytest.raises(ValueError, match=r"attn_mask.shape\[3\]=46 disagrees with seqlen_kv=47"):
        fa3.attention(q, k, v, attn_mask=np.ones((33, 46), bool))
    with pytest.raises(ValueError, match="attn_mask: None, need the mask"):
        out, lse = fa3.attention(q, k, v, return_lse=True)
        fa3.attention_backward(out, q, k, v, out, lse, return_dattn_mask=True)
    with pytest.raises(ValueError, match="dattn_mask beside attn_mask of bool"):
        mask = np.ones((33, 47), bool)
        fa3.attention_backward(out, q, k, v, out, lse, attn_mask=mask, return_dattn_mask=True)
