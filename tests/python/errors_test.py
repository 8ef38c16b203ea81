# SPDX-License-Identifier: BSD-3-Clause
"""errors_test.py — what is refused, as which exception, in words that name the argument."""

import re

import fa3
import ml_dtypes
import numpy as np
import pytest

X = np.ones((2, 6, 4, 16), np.float32)
HALF = np.ones((2, 6, 4, 16), np.float16)
CU = np.array([0, 6], np.int32)
LSE = np.zeros((2, 4, 6), np.float32)
NUMBER = np.zeros((), np.float32)
CODES = fa3.quantize(X, "int8")


def unaligned():
    return np.frombuffer(bytes(X.nbytes + 1), np.uint8)[1:].view(np.float32).reshape(X.shape)


BAD = {
    # what is no array, or of another kind
    "number": (TypeError, "q: int, need an array", lambda: fa3.attention(1, X, X)),
    "list": (TypeError, "k: list, need an array", lambda: fa3.attention(X, X.tolist(), X)),
    "none": (TypeError, "v: NoneType, need an array", lambda: fa3.attention(X, X, None)),
    "float64": (
        NotImplementedError,
        "dtype f64 on backend cpu, need f32, f16 or bf16; convert, or use backend reference",
        lambda: fa3.attention(*3 * [X.astype(np.float64)]),
    ),
    "float64 queries": (
        NotImplementedError,
        "k.dtype=f32 differs from q.dtype=f64",
        lambda: fa3.attention(X.astype(np.float64), X, X),
    ),
    "longdouble": (
        TypeError,
        "q: dtype float128, need float32, float16",
        lambda: fa3.attention(X.astype(np.longdouble), X, X),
    ),
    "int64": (
        TypeError,
        "cu_seqlens_q: dtype int64, need .*int32",
        lambda: fa3.attention(X[0], X, X, cu_seqlens_q=np.array([0, 6])),
    ),
    "bool": (ValueError, "q.dtype=bool, need f32", lambda: fa3.attention(X > 0, X, X)),
    "complex": (TypeError, "q: dtype complex64", lambda: fa3.attention(X + 1j, X, X)),
    "object": (TypeError, "q: dtype object", lambda: fa3.attention(X.astype(object), X, X)),
    "e5m2": (
        TypeError,
        "q: dtype float8_e5m2",
        lambda: fa3.attention(X.astype(ml_dtypes.float8_e5m2), X, X),
    ),
    "e4m3 with infinities": (
        TypeError,
        "q: dtype float8_e4m3, need .*float8_e4m3fn",
        lambda: fa3.attention(X.astype(ml_dtypes.float8_e4m3), X, X),
    ),
    "e4m3 with infinities by name": (
        ValueError,
        'dtype: "float8_e4m3", need .*"float8_e4m3fn"',
        lambda: fa3.attention(*3 * [X.astype(np.uint8)], dtype="float8_e4m3"),
    ),
    "byte order": (TypeError, "q: dtype >f4", lambda: fa3.attention(X.astype(">f4"), X, X)),
    "bits": (
        TypeError,
        'q: dtype uint16, .*dtype="bfloat16"',
        lambda: fa3.attention(*3 * [HALF.view(np.uint16)]),
    ),
    "bits of another size": (
        TypeError,
        "q: dtype uint16",
        lambda: fa3.attention(*3 * [HALF.view(np.uint16)], dtype="float8_e4m3fn"),
    ),
    "bits by name": (ValueError, 'dtype: "int7"', lambda: fa3.attention(X, X, X, dtype="int7")),
    "mixed": (NotImplementedError, "attention: k.dtype=f16", lambda: fa3.attention(X, HALF, X)),
    # shapes and strides
    "rank 2": (ValueError, "q: 2 dimensions, need 4", lambda: fa3.attention(X[0, 0], X, X)),
    "rank 5": (ValueError, "k: 5 dimensions, need 4", lambda: fa3.attention(X, X[None], X)),
    "rank 3": (
        ValueError,
        "q.rank=3 .*give cu_seqlens_q",
        lambda: fa3.attention(X[0], X, X),
    ),
    "keys": (ValueError, r"v.shape\[1\]=5", lambda: fa3.attention(X, X, X[:, :5])),
    "heads": (
        ValueError,
        "heads_q=4 .*heads_kv=3",
        lambda: fa3.attention(X, X[:, :, :3], X[:, :, :3]),
    ),
    "columns": (
        ValueError,
        "last dimension is not contiguous",
        lambda: fa3.attention(X[..., ::2], X[..., ::2], X),
    ),
    "backwards": (ValueError, "stride", lambda: fa3.attention(X[:, ::-1], X, X)),
    "unaligned": (
        ValueError,
        "q: its elements are not aligned",
        lambda: fa3.attention(unaligned(), X, X),
    ),
    "out": (ValueError, "out.shape", lambda: fa3.attention(X, X, X, out=X[:1].copy())),
    "read-only": (
        ValueError,
        "out: a read-only array",
        lambda: fa3.attention(X, X, X, out=np.frombuffer(X.tobytes(), np.float32).reshape(X.shape)),
    ),
    "out of no dimensions": (
        ValueError,
        "out: 0 dimensions, need at least 1",
        lambda: fa3.attention(X, X, X, out=NUMBER),
    ),
    "lse of no dimensions": (
        ValueError,
        "lse: 0 dimensions, need at least 1",
        lambda: fa3.attention(X, X, X, lse=NUMBER),
    ),
    "lengths of no dimensions": (
        ValueError,
        "seqused_kv: 0 dimensions, need at least 1",
        lambda: fa3.attention(X, X, X, seqused_kv=NUMBER.astype(np.int32)),
    ),
    "spec of no dimensions": (
        ValueError,
        "alibi_slopes: 0 dimensions",
        lambda: fa3.supported(fa3.attention, X, X, X, alibi_slopes=fa3.Spec((), "float32")),
    ),
    "out_dtype": (
        ValueError,
        "out_dtype: 'foo', need \"float32\", \"float16\", \"bfloat16\"",
        lambda: fa3.attention(X, X, X, out_dtype="foo"),
    ),
    "grad_dtype": (
        ValueError,
        "grad_dtype: 'int8', need \"float32\"",
        lambda: fa3.attention_backward(*5 * [X], LSE, grad_dtype="int8"),
    ),
    "two scales": (
        ValueError,
        "k_scale: given, but k is a Quantized.*k.codes",
        lambda: fa3.attention(CODES, CODES, CODES, k_scale=NUMBER),
    ),
    "two blocks": (
        ValueError,
        "q_block: given, but q is a Quantized",
        lambda: fa3.attention(CODES, CODES, CODES, q_block=(1, 0)),
    ),
    "overlap": (ValueError, "out .*shares elements with q", lambda: fa3.attention(X, X, X, out=X)),
    # numbers
    "window": (TypeError, "window: 5, need a tuple", lambda: fa3.attention(X, X, X, window=5)),
    "window of floats": (
        TypeError,
        "window: .*need a tuple",
        lambda: fa3.attention(X, X, X, window=(1.5, 1)),
    ),
    "masked": (TypeError, "q: .*MaskedArray, need an", lambda: fa3.attention(np.ma.array(X), X, X)),
    "max_seqlen": (
        TypeError,
        "max_seqlen_q: 1.5, need an integer",
        lambda: fa3.attention(X, X, X, max_seqlen_q=1.5),
    ),
    "negative seed": (
        TypeError,
        "seed: -1, need an integer",
        lambda: fa3.attention(HALF, HALF, HALF, precision="fp8", seed=-1),
    ),
    "dtype by number": (
        TypeError,
        "dtype: int, need a name",
        lambda: fa3.attention(X, X, X, dtype=3),
    ),
    "window of 3": (
        TypeError,
        "window: .*need a tuple",
        lambda: fa3.attention(X, X, X, window=(1, 2, 3)),
    ),
    "left": (
        ValueError,
        r"attention: window\[0\]=-3",
        lambda: fa3.attention(X, X, X, window=(-3, 1)),
    ),
    "scale": (ValueError, "softmax_scale: 0", lambda: fa3.attention(X, X, X, softmax_scale=0)),
    "infinite": (
        ValueError,
        "attention: softmax_scale=inf",
        lambda: fa3.attention(X, X, X, softmax_scale=np.inf),
    ),
    "softcap": (ValueError, "attention: softcap=-1", lambda: fa3.attention(X, X, X, softcap=-1.0)),
    "text": (
        TypeError,
        "softcap: 'no', need a number",
        lambda: fa3.attention(X, X, X, softcap="no"),
    ),
    "precision": (
        ValueError,
        'precision: "int4"',
        lambda: fa3.attention(X, X, X, precision="int4"),
    ),
    "precision of float32": (
        ValueError,
        'attention: precision="fp8" with q.dtype=f32',
        lambda: fa3.attention(X, X, X, precision="fp8"),
    ),
    "seed": (ValueError, "attention: seed=3", lambda: fa3.attention(X, X, X, seed=3)),
    "num_splits": (
        ValueError,
        "attention: num_splits=-1",
        lambda: fa3.attention(X, X, X, num_splits=-1),
    ),
    "sm_margin": (
        ValueError,
        "attention: sm_margin=-2",
        lambda: fa3.attention(X, X, X, sm_margin=-2),
    ),
    "cu_seqlens": (
        ValueError,
        "cu_seqlens_q",
        lambda: fa3.attention(X[0], X[0], X[0], cu_seqlens_q=CU + 1, cu_seqlens_kv=CU),
    ),
    "stream": (
        ValueError,
        "stream: given for arrays on the CPU",
        lambda: fa3.attention(X, X, X, stream=1),
    ),
    "stream 0": (ValueError, "stream: 0, need 1", lambda: fa3.attention(X, X, X, stream=0)),
    "context": (
        TypeError,
        "context: str, need a fa3.Context",
        lambda: fa3.attention(X, X, X, context="cpu"),
    ),
    "unknown": (
        TypeError,
        "unexpected keyword argument 'mask'",
        lambda: fa3.attention(X, X, X, mask=X),
    ),
    # contexts
    "device": (ValueError, 'device: "gpu", need "cpu"', lambda: fa3.Context("gpu")),
    "device number": (ValueError, 'device: "cuda:x"', lambda: fa3.Context("cuda:x")),
    "backend": (ValueError, 'backend: "fast"', lambda: fa3.Context(backend="fast")),
    "threads": (ValueError, "num_threads=-1", lambda: fa3.Context(num_threads=-1)),
    "cache": (ValueError, "cache_dir", lambda: fa3.Context(cache_dir="here")),
    # the others
    "backward lse": (
        TypeError,
        "lse: NoneType",
        lambda: fa3.attention_backward(X, X, X, X, X, None),
    ),
    "backward lse of one dimension": (
        ValueError,
        r"lse: 1 dimensions, need 3, \(batch, heads, seqlen\), or 2",
        lambda: fa3.attention_backward(*5 * [X], LSE.reshape(-1)),
    ),
    "backward dq": (
        ValueError,
        "dq: 0 dimensions",
        lambda: fa3.attention_backward(*5 * [X], LSE, dq=NUMBER),
    ),
    "backward dout": (
        ValueError,
        "attention_backward: dout",
        lambda: fa3.attention_backward(X[:, :5], X, X, X, X, LSE),
    ),
    "8-bit backward": (
        NotImplementedError,
        "attention_backward: ",
        lambda: fa3.attention_backward(*5 * [X.astype(np.int8)], LSE),
    ),
    "codes": (ValueError, 'dtype: "int4"', lambda: fa3.quantize(X, "int4")),
    "codes with infinities": (
        ValueError,
        'dtype: "float8_e4m3", need "float8_e4m3fn"',
        lambda: fa3.quantize(X, "float8_e4m3"),
    ),
    "list of lengths": (
        TypeError,
        "cu_seqlens: list, need an array",
        lambda: fa3.quantize(X[0], cu_seqlens=[0, 6]),
    ),
    "length of no dimensions": (
        ValueError,
        r"cu_seqlens: 0 dimensions, need 1, \(batch \+ 1\)",
        lambda: fa3.quantize(X[0], cu_seqlens=NUMBER.astype(np.int32)),
    ),
    "layout": (ValueError, 'rotary_layout: "x"', lambda: fa3.quantize(X, rotary_layout="x")),
    "hadamard": (ValueError, "quantize: hadamard=3", lambda: fa3.quantize(X, hadamard=3)),
    "block": (TypeError, "block: .*need a tuple", lambda: fa3.quantize(X, block=("a", 1))),
    "spec": (
        ValueError,
        "q: a Spec has no data",
        lambda: fa3.attention(*3 * [fa3.Spec(X.shape, "float32")], out=X.copy()),
    ),
    "spec dtype": (ValueError, 'dtype: "float80"', lambda: fa3.Spec((1,), "float80")),
    "spec rank": (ValueError, "at most 5 dimensions", lambda: fa3.Spec((1,) * 6)),
    "plan of what": (TypeError, "need fa3.attention", lambda: fa3.Plan(lambda *a, **k: 1, X, X, X)),
    "plan of nothing": (TypeError, "need a function", lambda: fa3.Plan(None, X, X, X)),
    "plan of another": (
        ValueError,
        "attention: batch=1 differs from the plan's 2",
        lambda: fa3.Plan(fa3.attention, X, X, X).run(X[:1], X[:1], X[:1]),
    ),
    "workspace": (
        ValueError,
        "workspace: need a contiguous array of bytes",
        lambda: fa3.Plan(fa3.attention, X, X, X).run(X, X, X, workspace=np.empty(9, np.float32)),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name):
    kind, message, call = BAD[name]
    with pytest.raises(kind) as error:
        call()
    assert re.search(message, str(error.value), re.S), error.value
    assert type(error.value) is kind


def test_workspace_too_small():
    plan = fa3.Plan(fa3.attention, X, X, X)
    with pytest.raises(RuntimeError, match="workspace"):
        plan.run(X, X, X, workspace=np.empty(plan.workspace_bytes - 1, np.uint8))


def test_no_gpu_is_said():
    try:
        fa3.Context("cuda")
    except NotImplementedError as error:
        assert "cuda" in str(error).lower()
    else:
        pytest.skip("there is one")


def test_nothing_is_written_where_refused():
    out = np.full_like(X, 7)
    with pytest.raises(ValueError):
        fa3.attention(X, X, X[:, :5], out=out)
    assert (out == 7).all()
