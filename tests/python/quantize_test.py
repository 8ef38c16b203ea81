# SPDX-License-Identifier: BSD-3-Clause
"""quantize_test.py — fa3.quantize, and attention on what it returns."""

import fa3
import ml_dtypes
import numpy as np
import pytest
from attention_test import qkv
from kit import assert_close, attend, each


def values(quantized, heads_scale):
    codes = np.asarray(quantized.codes, np.float64)
    offset = 0 if quantized.offset is None else quantized.offset[:, None]
    return codes * heads_scale + offset


def test_a_scale_for_each_head(rng):
    q, _, _ = qkv(rng)
    result = fa3.quantize(q)
    assert result.codes.dtype == ml_dtypes.float8_e4m3fn and result.scale.shape == (2, 4)
    want = np.abs(q).max((1, 3)) / 448
    assert result.scale == pytest.approx(want, rel=1e-6)
    assert_close(values(result, result.scale[:, None, :, None]), q, 2**-4)
    assert result.offset is None and result.block == (0, 0)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("block", [None, (16, 0), (0, 8), (16, 16), (1, 0)])
def test_attention_takes_it(rng, dtype, block):
    q, k, v = qkv(rng, d_v=32)
    codes = [fa3.quantize(x, dtype, block=block) for x in (q, k)]
    codes.append(fa3.quantize(v, block=block))
    out = fa3.attention(*codes)
    assert out.dtype == np.float32
    scales = []
    for x in codes:
        scale = x.scale
        if block is None:
            scale = scale[:, None, :, None]
        else:
            rows, cols = (n or x.codes.shape[i] for n, i in zip(block, (1, 3), strict=True))
            scale = np.repeat(np.repeat(scale.transpose(0, 2, 1, 3), rows, 1), cols, 3)
            scale = scale[:, : x.codes.shape[1], :, : x.codes.shape[3]]
        scales.append(scale)
    want = each(attend, *(values(x, s) for x, s in zip(codes, scales, strict=True)))[0]
    assert_close(out, want, 1e-5)
    assert_close(out, each(attend, q, k, v)[0], 0.15)


def test_means_are_taken_off(rng):
    q, k, v = qkv(rng, d_v=32)
    k += 5
    plain, moved = fa3.quantize(k, "int8"), fa3.quantize(k, "int8", offset=True)
    assert moved.offset.shape == (2, 2, 32) and (moved.scale < plain.scale).all()
    assert moved.offset == pytest.approx(k.mean(1), abs=1e-5)
    codes_q, codes_v = fa3.quantize(q, "int8"), fa3.quantize(v)
    want = each(attend, q, k, v)[0]
    errors = [np.abs(fa3.attention(codes_q, x, codes_v) - want).mean() for x in (moved, plain)]
    assert errors[0] < errors[1]
    with pytest.raises(ValueError, match="q: quantised with an offset"):
        fa3.attention(fa3.quantize(q, "int8", offset=True), moved, codes_v)


def test_image_of_v(rng):
    q, k, v = qkv(rng, d_v=32)
    shape = (2, v.shape[2], -(-v.shape[1] // 64), 64, 32)
    plain, imaged = fa3.quantize(v), fa3.quantize(v, v_image=shape)
    assert plain.v_image is None and imaged.v_image.shape == shape
    codes = [fa3.quantize(x) for x in (q, k)]
    assert (fa3.attention(*codes, imaged) == fa3.attention(*codes, plain)).all()
    counts = [np.bincount(x.view(np.uint8).ravel(), minlength=256) for x in imaged[::4]]
    assert (counts[0][1:] == counts[1][1:]).all()
    assert fa3.Plan(fa3.attention, *codes, plain).v_image is None  # the CPU reads v
    with pytest.raises(ValueError, match=r"v_image.shape\[3\]=63"):
        fa3.quantize(v, v_image=(*shape[:3], 63, 32))
    with pytest.raises(ValueError, match="k: quantised with an image"):
        fa3.attention(codes[0], imaged, plain)


def test_hadamard_and_rotary(rng):
    q, k, v = qkv(rng, rows=47, d_v=32)
    angle = np.outer(np.arange(64), 100.0 ** (-np.arange(8) / 8)).astype(np.float32)
    rotary = (np.cos(angle), np.sin(angle))
    turned = [
        fa3.quantize(x, "int8", hadamard=32, seed=5, rotary=rotary, block=(1, 0)) for x in (q, k)
    ]
    out = fa3.attention(*turned, fa3.quantize(v), causal=True)

    def rotate(x):
        a, b = x[..., :8].astype(np.float64), x[..., 8:16].astype(np.float64)
        cos, sin = (t[: x.shape[1], None] for t in rotary)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 16:]], -1)

    seen = np.tril(np.ones((47, 47), bool))
    want = each(attend, rotate(q), rotate(k), v, seen=seen)[0]
    assert_close(out, want, 0.05)


def test_varlen_and_tokens(rng):
    x = rng.standard_normal((30, 2, 16)).astype(np.float16)
    cu = np.array([0, 12, 30], np.int32)
    tokens = fa3.quantize(x, "int8", block=(1, 0), cu_seqlens=cu, max_seqlen=18)
    assert tokens.scale.shape == (30, 2)
    assert tokens.scale == pytest.approx(np.abs(x.astype(np.float32)).max(2) / 127, rel=1e-5)
    heads = fa3.quantize(x, "int8", cu_seqlens=cu)
    assert heads.scale.shape == (2, 2)
    with pytest.raises(ValueError, match="cu_seqlens: None"):
        fa3.quantize(x)


def test_bits(rng):
    x = rng.standard_normal((1, 8, 1, 16)).astype(ml_dtypes.bfloat16)
    held = fa3.quantize(x.view(np.uint16), bits="bfloat16")
    assert (held.codes.view(np.uint8) == fa3.quantize(x).codes.view(np.uint8)).all()
    raw = held.codes.view(np.uint8)
    out = fa3.attention(raw, raw, raw, dtype="float8_e4m3fn")
    assert (out == fa3.attention(held.codes, held.codes, held.codes)).all()
