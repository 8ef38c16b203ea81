# SPDX-License-Identifier: BSD-3-Clause
"""errors_test.py — what fa3.torch, and fa3 with tensors of PyTorch, refuse."""

import re

import fa3
import fa3.torch
import numpy as np
import pytest
import torch

X = torch.ones(2, 6, 4, 16)
HALF = X.half()
GRAD = torch.ones(2, 6, 4, 16, requires_grad=True)
attention = fa3.torch.attention

BAD = {
    "array": (TypeError, "k: ndarray, need a torch.Tensor", lambda: attention(X, np.ones(3), X)),
    "rank": (ValueError, "v: 2 dimensions, need 4", lambda: attention(X, X, X[0, 0])),
    "double": (
        NotImplementedError,
        "dtype f64 on backend cpu",
        lambda: fa3.attention(*3 * [X.double()]),
    ),
    "int": (TypeError, "q: dtype int64", lambda: attention(*3 * [X.long()])),
    "bool": (ValueError, "q.dtype=bool, need f32", lambda: attention(*3 * [X > 0])),
    "mixed": (NotImplementedError, "k.dtype=f16 differs", lambda: attention(X, HALF, HALF)),
    "keys": (ValueError, r"v.shape\[1\]=5", lambda: attention(X, X, X[:, :5])),
    "scale": (ValueError, "softmax_scale: 0", lambda: fa3.attention(X, X, X, softmax_scale=0)),
    "window": (TypeError, "window: 3", lambda: attention(X, X, X, window=3)),
    "left": (ValueError, r"window\[0\]=-3", lambda: attention(X, X, X, window=(-3, 0))),
    "precision": (ValueError, 'precision: "x"', lambda: attention(X, X, X, precision="x")),
    "fp8 of float": (ValueError, 'precision="fp8"', lambda: attention(X, X, X, precision="fp8")),
    "int64 lengths": (
        TypeError,
        "cu_seqlens_q: dtype int64, need .*int32",
        lambda: attention(X[0], X[0], X[0], cu_seqlens_q=torch.tensor([0, 6]),
                          cu_seqlens_kv=torch.tensor([0, 6])),
    ),
    "sparse": (
        TypeError,
        "q: Can('t export|not access data)",
        lambda: fa3.attention(X.to_sparse(), X, X),
    ),
    "meta": (
        TypeError,
        "k: (Cannot pack|Unknown device)",
        lambda: fa3.attention(X, X.to("meta"), X),
    ),
    "to be negated": (
        ValueError,
        r"q: a view that is to be negated; need q.resolve_neg\(\)",
        lambda: fa3.attention(torch._neg_view(X), X, X),
    ),
    "records": (ValueError, "k: requires a gradient", lambda: fa3.attention(X, GRAD, X)),
    "slopes record": (
        ValueError,
        r"alibi_slopes: requires a gradient.*alibi_slopes.detach\(\)",
        lambda: attention(X, X, X, alibi_slopes=torch.ones(4, requires_grad=True)),
    ),
    "slopes of no dimensions": (
        ValueError,
        "alibi_slopes: 0 dimensions",
        lambda: attention(X, X, X, alibi_slopes=torch.tensor(1.0)),
    ),
    "scale of text": (
        TypeError,
        "softmax_scale",
        lambda: attention(X, X, X, softmax_scale="1"),
    ),
    "output records": (
        ValueError,
        "out: requires a gradient",
        lambda: fa3.attention(X, X, X, out=GRAD),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(name):
    kind, message, call = BAD[name]
    with pytest.raises(kind) as error:
        call()
    assert type(error.value) is kind
    assert re.search(message, str(error.value)), error.value


def test_tensors_on_two_devices():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    with pytest.raises(ValueError, match="k: on cpu, need cuda:0 as q"):
        attention(HALF.cuda(), HALF, HALF.cuda())


class Old:
    """A tensor as PyTorch before 2.10 has it: without the table of functions, FP8 not lent."""

    requires_grad = False

    def __init__(self, tensor):
        self.tensor = tensor
        self.shape, self.dtype = tensor.shape, tensor.dtype

    def is_neg(self):
        return False

    def view(self, dtype):
        return Old(self.tensor.view(dtype))

    def __dlpack_device__(self):
        if self.tensor.is_meta:
            raise ValueError("Unknown device type meta")
        return (1, 0)

    def __dlpack__(self, stream=None):
        if self.dtype == torch.float8_e4m3fn:
            raise RuntimeError("float8 types are not supported by dlpack")
        if self.tensor.is_sparse:
            raise RuntimeError("Can't export tensors with layout other than torch.strided")
        return self.tensor.__dlpack__()


def test_tensors_of_an_old_pytorch():
    x = torch.randn(2, 9, 4, 16).to(torch.float8_e4m3fn)
    want = fa3.attention(x, x, x)
    out = torch.empty_like(want)
    fa3.attention(Old(x), Old(x), Old(x), out=Old(out))
    assert torch.equal(out, want)
    for wrong, says in ((X.to_sparse(), "k: Can't export"), (X.to("meta"), "k: Unknown device")):
        with pytest.raises(TypeError, match=says):
            fa3.attention(Old(X), Old(wrong), Old(X), out=Old(torch.empty_like(X)))


def test_fa3_takes_tensors():
    """fa3.attention, too, where no gradients are wanted; it returns tensors."""
    q = torch.randn(2, 9, 4, 16)
    out, lse = fa3.attention(q, q, q, causal=True, return_lse=True)
    assert isinstance(out, torch.Tensor) and lse.dtype == torch.float32
    assert torch.equal(out, attention(q, q, q, causal=True))
    codes = fa3.quantize(q)
    assert codes.codes.dtype == torch.float8_e4m3fn
    assert fa3.attention(codes, codes, codes).dtype == torch.bfloat16
    mixed = fa3.attention(q.numpy(), q, q)  # NumPy and PyTorch share the CPU
    assert isinstance(mixed, np.ndarray)


def test_what_is_written_is_marked():
    """What autograd has saved before it was written to is refused, as after x.copy_()."""
    names = ("out", "lse")
    written = {"out": torch.empty_like(X), "lse": torch.empty(2, 4, 6)}
    saved = (torch.ones_like(X, requires_grad=True) * written["out"]).sum()
    versions = [written[n]._version for n in names]
    fa3.supported(fa3.attention, X, X, X, **written)
    assert [written[n]._version for n in names] == versions
    fa3.attention(X, X, X, **written)
    assert [written[n]._version for n in names] == [v + 1 for v in versions]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()
    plan = fa3.Plan(fa3.attention, X, X, X, **written)
    assert written["out"]._version == versions[0] + 1
    plan.run(X, X, X, **written)
    assert written["out"]._version == versions[0] + 2
    dq = torch.empty_like(X)
    fa3.attention_backward(X, X, X, X, written["out"], written["lse"], dq=dq)
    assert dq._version == 1
    with torch.inference_mode():
        free = torch.empty_like(X)
    fa3.attention(X, X, X, out=free)  # has no version
    assert torch.equal(free, written["out"])
