# SPDX-License-Identifier: BSD-3-Clause
"""attention_test.py — fa3.attention against FP64, over what its arguments can say."""

import fa3
import ml_dtypes
import numpy as np
import pytest
from kit import BOUND, DTYPES, assert_close, attend, each, normal, visible


def qkv(rng, dtype="float32", batch=2, rows=33, keys=47, heads=4, heads_kv=2, d=32, d_v=24):
    return (
        normal(rng, (batch, rows, heads, d), dtype),
        normal(rng, (batch, keys, heads_kv, d), dtype),
        normal(rng, (batch, keys, heads_kv, d_v), dtype),
    )


MASKS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (5, 3)},
    "left": {"window": (7, None)},
    "right": {"window": (None, 2)},
    "causal_window": {"causal": True, "window": (9, None)},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_masks(rng, dtype, mask):
    q, k, v = qkv(rng, dtype)
    out, lse = fa3.attention(q, k, v, return_lse=True, **MASKS[mask])
    want, want_lse = each(attend, q, k, v, seen=visible(33, 47, **MASKS[mask]))
    assert out.dtype == q.dtype and lse.dtype == np.float32
    assert_close(out, want, BOUND[dtype])
    assert_close(lse, want_lse, 1e-5)


@pytest.mark.parametrize("heads, heads_kv", [(1, 1), (6, 6), (6, 2), (6, 1)])
def test_heads(rng, heads, heads_kv):
    q, k, v = qkv(rng, heads=heads, heads_kv=heads_kv)
    assert_close(fa3.attention(q, k, v), each(attend, q, k, v)[0], BOUND["float32"])


@pytest.mark.parametrize(
    "options, kit_options",
    [
        ({"softmax_scale": 0.5}, {"scale": 0.5}),
        ({"softmax_scale": -0.25}, {"scale": -0.25}),
        ({"softcap": 1.5}, {"softcap": 1.5}),
        ({"softcap": 3.0, "softmax_scale": 0.3}, {"softcap": 3.0, "scale": 0.3}),
    ],
)
def test_scores(rng, options, kit_options):
    q, k, v = qkv(rng)
    want = each(attend, q, k, v, **kit_options)[0]
    assert_close(fa3.attention(q, k, v, **options), want, BOUND["float32"])


def test_alibi(rng):
    q, k, v = qkv(rng)
    slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    distance = np.abs(np.arange(33)[:, None] + 47 - 33 - np.arange(47))
    want = each(attend, q, k, v, bias=-slopes[:, None, None] * distance)[0]
    assert_close(fa3.attention(q, k, v, alibi_slopes=slopes), want, BOUND["float32"])


def test_sequence_ids(rng):
    q, k, v = qkv(rng, batch=1)
    ids_q = np.sort(rng.integers(0, 4, (1, 33))).astype(np.int32)
    ids_kv = np.sort(rng.integers(0, 4, (1, 47))).astype(np.int32)
    out = fa3.attention(q, k, v, sequence_ids_q=ids_q, sequence_ids_kv=ids_kv)
    want = each(attend, q, k, v, seen=ids_q[0][:, None] == ids_kv[0])[0]
    assert_close(out, want, BOUND["float32"])


def test_varlen(rng):
    lengths_q, lengths_kv = [3, 0, 17, 5], [9, 4, 17, 0]
    cu_q = np.cumsum([0, *lengths_q], dtype=np.int32)
    cu_kv = np.cumsum([0, *lengths_kv], dtype=np.int32)
    q = normal(rng, (cu_q[-1], 4, 16))
    k, v = (normal(rng, (cu_kv[-1], 2, 16)) for _ in range(2))
    out, lse = fa3.attention(
        q, k, v, causal=True, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv, max_seqlen_q=17,
        max_seqlen_kv=17, return_lse=True,
    )  # fmt: skip
    assert lse.shape == (4, cu_q[-1])
    for b, (rows, keys) in enumerate(zip(lengths_q, lengths_kv, strict=True)):
        part_q, part_kv = slice(cu_q[b], cu_q[b + 1]), slice(cu_kv[b], cu_kv[b + 1])
        want, want_lse = attend(q[part_q], k[part_kv], v[part_kv], seen=visible(rows, keys, True))
        assert_close(out[part_q], want, BOUND["float32"])
        assert_close(lse[:, part_q], want_lse, 1e-5)


def test_seqused(rng):
    q, k, v = qkv(rng)
    used_q, used_kv = np.array([33, 10], np.int32), np.array([12, 0], np.int32)
    out = fa3.attention(q, k, v, seqused_q=used_q, seqused_kv=used_kv)
    for b in range(2):
        rows, keys = used_q[b], used_kv[b]
        want = attend(q[b, :rows], k[b, :keys], v[b, :keys])[0]
        assert_close(out[b, :rows], want, BOUND["float32"])
        assert (out[b, rows:] == 0).all()


def test_views_need_no_copy(rng):
    packed = normal(rng, (2, 20, 3, 4, 32))  # (batch, seqlen, q k v, heads, d)
    q, k, v = (packed[:, :, i] for i in range(3))
    want = each(attend, q, k, v)[0]
    assert_close(fa3.attention(q, k, v), want, BOUND["float32"])
    heads_first = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
    out = np.empty_like(heads_first[0])
    turned = [x.transpose(0, 2, 1, 3) for x in (*heads_first, out)]
    assert fa3.attention(*turned[:3], out=turned[3]) is turned[3]
    assert_close(out.transpose(0, 2, 1, 3), want, BOUND["float32"])


def test_read_only_and_expanded_inputs(rng):
    q, k, v = qkv(rng, batch=3)
    want = fa3.attention(q, np.repeat(k[:1], 3, 0), np.repeat(v[:1], 3, 0))
    q.flags.writeable = False
    k, v = (np.broadcast_to(x[:1], x.shape) for x in (k, v))  # batch stride 0, read-only
    assert (fa3.attention(q, k, v) == want).all()


def test_outputs_of_the_caller(rng):
    q, k, v = qkv(rng)
    out, lse = np.full((2, 33, 4, 24), np.nan, np.float32), np.full((2, 4, 33), np.nan, np.float32)
    got = fa3.attention(q, k, v, out=out, lse=lse)
    assert got is out
    assert not np.isnan(out).any() and not np.isnan(lse).any()
    again, again_lse = fa3.attention(q, k, v, out=out, lse=lse, return_lse=True)
    assert again is out and again_lse is lse


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_bits_in_uint16(rng, dtype):
    arrays = qkv(rng, dtype)
    want = fa3.attention(*arrays)
    got = fa3.attention(*(x.view(np.uint16) for x in arrays), dtype=dtype)
    assert got.dtype == np.uint16 and (got == want.view(np.uint16)).all()


def test_out_dtype(rng):
    q, k, v = qkv(rng, "bfloat16")
    out = fa3.attention(q, k, v, out_dtype="float32")
    assert out.dtype == np.float32
    assert_close(out, each(attend, q, k, v)[0], BOUND["bfloat16"])


@pytest.mark.parametrize(
    "shape_q, shape_kv",
    [
        ((0, 3, 2, 8), (0, 3, 2, 8)),
        ((2, 0, 2, 8), (2, 3, 2, 8)),
        ((2, 3, 2, 8), (2, 0, 2, 8)),
    ],
)
def test_zero_sizes(shape_q, shape_kv):
    q, k = np.ones(shape_q, np.float32), np.ones(shape_kv, np.float32)
    out, lse = fa3.attention(q, k, k, return_lse=True)
    assert out.shape == shape_q and (out == 0).all()
    assert (lse == -np.inf).all()


def test_nan_stays_in_its_rows(rng):
    q, k, v = qkv(rng, batch=1)
    q[0, 5, 1, 0] = np.nan
    out = fa3.attention(q, k, v)
    assert np.isnan(out[0, 5, 1]).all() and np.isnan(out).sum() == out.shape[-1]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_context(rng, backend):
    q, k, v = qkv(rng)
    context = fa3.Context(backend=backend, num_threads=1)
    assert context.info()["backend"] == backend and context.info()["num_threads"] == 1
    assert_close(fa3.attention(q, k, v, context=context), each(attend, q, k, v)[0], 2e-6)


def test_float64_is_the_reference_s(rng):
    """Neither rounded on its way in nor out: what float32 cannot tell apart stays apart."""
    context = fa3.Context(backend="reference")
    q, k, v = (x.astype(np.float64) for x in qkv(rng))
    out, lse = fa3.attention(q, k, v, context=context, return_lse=True)
    assert out.dtype == np.float64 and lse.dtype == np.float32
    assert_close(out, each(attend, q, k, v)[0], 1e-14)
    moved = fa3.attention(q, k, v + 1e-12, context=context)
    assert_close((moved - out) / 1e-12, np.ones_like(out), 1e-3)


@pytest.mark.parametrize("name", ["fp8", "eight_bit", "eight_bit_accurate"])
def test_precision(rng, name):
    q, k, v = qkv(rng, "bfloat16", d_v=32)
    want = each(attend, q, k, v)[0]
    out = fa3.attention(q, k, v, precision=name, seed=7)
    error = np.sqrt(np.mean((out.astype(np.float64) - want) ** 2)) / np.sqrt(np.mean(want**2))
    exact = fa3.attention(q, k, v).astype(np.float64)
    assert 0 < error < {"fp8": 0.06, "eight_bit": 0.04, "eight_bit_accurate": 0.02}[name]
    assert not (out.astype(np.float64) == exact).all()


def test_results_do_not_depend_on_who_holds_bits(rng):
    """ml_dtypes' bfloat16 and NumPy's float16 go the same way as float32."""
    q, k, v = qkv(rng, "bfloat16")
    assert q.dtype == ml_dtypes.bfloat16
    wide = fa3.attention(*(x.astype(np.float32) for x in (q, k, v)))
    assert_close(fa3.attention(q, k, v), wide, BOUND["bfloat16"])
