# SPDX-License-Identifier: BSD-3-Clause
"""serving_masks_test.py — attention_chunk, tree_mask, max_logit of fa3.attention, against FP64."""

import fa3
import numpy as np
import pytest
from attention_test import qkv
from kit import BOUND, DTYPES, assert_close, attend, gradients, normal, visible

ROWS, KEYS = 33, 47  # of qkv


def in_chunks(chunk, rows=ROWS, keys=KEYS, **options):
    at = (np.arange(rows)[:, None] + keys - rows) // chunk
    return visible(rows, keys, **options) & (at == np.arange(keys)[None] // chunk)


def each(function, seen, *arrays, **options):
    found = [function(*row, seen=seen, **options) for row in zip(*arrays, strict=True)]
    return tuple(np.stack(part) for part in zip(*found, strict=True))


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (5, 2)}])
@pytest.mark.parametrize("chunk", [1, 10, 100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks(rng, dtype, chunk, options):
    q, k, v = qkv(rng, dtype)
    out, lse = fa3.attention(q, k, v, attention_chunk=chunk, return_lse=True, **options)
    seen = in_chunks(chunk, **options)
    want, want_lse = each(attend, seen, q, k, v)
    assert_close(out, want, BOUND[dtype])
    assert_close(lse, want_lse, 1e-5)
    dout = normal(rng, out.shape, dtype)
    got = fa3.attention_backward(dout, q, k, v, out, lse, attention_chunk=chunk, **options)
    exact = each(gradients, seen, dout, q, k, v)
    for a, b in zip(got, exact, strict=True):
        assert_close(a, b, 4 * BOUND[dtype])


def words_of(shown):
    """(batch, rows, new keys) of bool as tree_mask."""
    bits = np.zeros((*shown.shape[:2], 64), np.uint64)
    bits[..., : shown.shape[2]] = shown
    packed = np.packbits(bits.astype(np.uint8), axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view("<i4").reshape(*shown.shape[:2], 2)


@pytest.mark.parametrize("packed", [False, True])
def test_trees(rng, packed):
    q, k, v = qkv(rng)
    shown = rng.random((2, ROWS, ROWS)) < 0.4
    tree = words_of(shown)
    seen = np.concatenate([np.ones((2, ROWS, KEYS - ROWS), bool), shown], axis=2)
    if packed:
        cuts = np.array([0, ROWS, 2 * ROWS], np.int32)
        out = fa3.attention(
            q.reshape(-1, *q.shape[2:]), k, v, tree_mask=tree.reshape(-1, 2), cu_seqlens_q=cuts,
            max_seqlen_q=ROWS,
        ).reshape(2, ROWS, -1, v.shape[-1])  # fmt: skip
    else:
        out = fa3.attention(q, k, v, tree_mask=tree)
    for b in range(2):
        assert_close(out[b], attend(q[b], k[b], v[b], seen=seen[b])[0], BOUND["float32"])


def test_a_chain_is_causal(rng):
    q, k, v = qkv(rng)
    chain = np.broadcast_to(np.tril(np.ones((ROWS, ROWS), bool)), (2, ROWS, ROWS))
    out = fa3.attention(q, k, v, tree_mask=words_of(chain))
    assert_close(out, fa3.attention(q, k, v, causal=True).astype(np.float64), 1e-6)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"softcap": 2.0}])
def test_max_logit(rng, options):
    q, k, v = qkv(rng)
    most = np.full(q.shape[2], np.nan, np.float32)
    out = fa3.attention(q, k, v, max_logit=most, **options)
    assert np.array_equal(out, fa3.attention(q, k, v, **options))
    wide = np.repeat(k.astype(np.float64), q.shape[2] // k.shape[2], axis=2)
    s = np.einsum("bihd,bjhd->bhij", q.astype(np.float64), wide) * q.shape[-1] ** -0.5
    if cap := options.get("softcap"):
        s = cap * np.tanh(s / cap)
    s = np.where(visible(ROWS, KEYS, causal="causal" in options), s, -np.inf)
    assert_close(most, s.max((0, 2, 3)), 1e-5)


def test_max_logit_of_no_keys(rng):
    q, k, v = qkv(rng)
    most = np.zeros(q.shape[2], np.float32)
    fa3.attention(q, k[:, :0], v[:, :0], max_logit=most)
    assert np.isneginf(most).all()


def test_refusals(rng):
    q, k, v = qkv(rng)
    tree = np.zeros((2, ROWS, 2), np.int32)
    with pytest.raises(ValueError, match="attention_chunk=-1, need ≥ 1"):
        fa3.attention(q, k, v, attention_chunk=-1)
    with pytest.raises(ValueError, match="tree_mask beside"):
        fa3.attention(q, k, v, tree_mask=tree, causal=True)
    with pytest.raises(ValueError, match="at most 64 new tokens"):
        wide = np.zeros((1, 65, 4, q.shape[3]), np.float32)
        fa3.attention(wide, k[:1], v[:1], tree_mask=np.zeros((1, 65, 2), np.int32))
    with pytest.raises(ValueError, match="max_logit"):
        fa3.attention(q, k, v, max_logit=np.zeros(3, np.float32))
