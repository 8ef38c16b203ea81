# SPDX-License-Identifier: BSD-3-Clause
"""compat_test.py — the functions of FlashAttention-3 and -2 on fa3, against FP64."""

import inspect
import subprocess
import sys

import fa3
import fa3.compat
import numpy as np
import pytest
import torch
import upstream
from fa3.compat import flash_attn as two
from fa3.compat import flash_attn_interface as three
from torch_kit import BOUND, DEVICES, assert_close, attend, gradients, normal, qkv

each_device = pytest.mark.parametrize("device", DEVICES)
both = pytest.mark.parametrize("family", [three, two], ids=["three", "two"])


def some(device):
    return torch.bfloat16 if device == "cuda" else torch.float32


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261124)


def signatures():
    for family, known in ((three, upstream.FLASH_ATTENTION_3), (two, upstream.FLASH_ATTENTION_2)):
        for name, parameters in known.items():
            yield pytest.param(getattr(family, name), parameters, id=f"{family.__name__}.{name}")


@pytest.mark.parametrize("function, parameters", list(signatures()))
def test_parameters_are_upstreams(function, parameters):
    mine = []
    for name, p in inspect.signature(function).parameters.items():
        default = str(p.default).removeprefix("torch.").replace(" ", "")
        mine.append(name if p.default is inspect.Parameter.empty else f"{name}={default}")
    assert mine == parameters.split()


@each_device
@both
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (5, 3), (4, -1)])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("heads_kv", [4, 2, 1])
def test_flash_attn_func(device, family, causal, window, softcap, heads_kv):
    inputs = qkv(some(device), device, heads_kv=heads_kv)
    options = {"causal": causal, "softcap": softcap}
    sides = tuple(None if side < 0 else side for side in window)
    out, lse, *_ = family.flash_attn_func(
        *inputs, window_size=window, return_attn_probs=True, **options
    )
    want, want_lse = attend(*inputs, window=sides, **options)
    bound = BOUND[some(device)]
    assert_close(out, want, bound)
    rows = want_lse.isfinite()
    assert_close(lse[rows], want_lse[rows], 1e-5)
    assert (lse[~rows] == -torch.inf).all()
    dout = normal(*out.shape, dtype=out.dtype, device=device)
    for a, b in zip(gradients(out, inputs, dout), gradients(want, inputs, dout), strict=True):
        assert_close(a, b, 4 * bound)


@each_device
@both
def test_varlen(device, family):
    q, k, v = (x.detach() for x in qkv(some(device), device, batch=1, rows=30, keys=40))
    q, k, v = (x[0].requires_grad_() for x in (q, k, v))
    cu_q = torch.tensor([0, 12, 12, 30], dtype=torch.int32, device=device)
    cu_k = torch.tensor([0, 15, 20, 40], dtype=torch.int32, device=device)
    out = family.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 18, 20, causal=True)
    parts = [
        attend(q[None, a:b], k[None, c:d], v[None, c:d], causal=True)[0][0]
        for a, b, c, d in ((0, 12, 0, 15), (12, 12, 15, 20), (12, 30, 20, 40))
    ]
    want = torch.cat(parts)
    assert_close(out, want, BOUND[some(device)])
    dout = normal(*out.shape, dtype=out.dtype, device=device)
    for a, b in zip(gradients(out, (q, k, v), dout), gradients(want, (q, k, v), dout), strict=True):
        assert_close(a, b, 4 * BOUND[some(device)])
    if family is two:
        packed = torch.stack([k, v], 1)
        assert torch.equal(
            two.flash_attn_varlen_kvpacked_func(q, packed, cu_q, cu_k, 18, 20, causal=True), out
        )


@each_device
@both
def test_packed(device, family):
    packed = normal(2, 20, 3, 4, 32, dtype=some(device), device=device, grad=True)
    want = family.flash_attn_func(*packed.unbind(2), causal=True)
    assert torch.equal(family.flash_attn_qkvpacked_func(packed, causal=True), want)
    if family is three:
        grouped = normal(2, 20, 8, 32, dtype=some(device), device=device)
        q, k, v = grouped.split([4, 2, 2], 2)
        got = three.flash_attn_qkvpacked_func(grouped, num_heads_q=4)
        assert torch.equal(got, three.flash_attn_func(q, k, v))
    else:
        got = two.flash_attn_kvpacked_func(packed[:, :, 0], packed[:, :, 1:], causal=True)
        assert torch.equal(got, want)
        cu = torch.tensor([0, 20, 40], dtype=torch.int32, device=device)
        flat = two.flash_attn_varlen_qkvpacked_func(packed.flatten(0, 1), cu, 20, causal=True)
        assert_close(flat.view(want.shape), want, BOUND[some(device)])


@each_device
@both
@pytest.mark.parametrize("rows", [1, 3])
def test_with_kvcache(device, family, rows):
    q, k, v = qkv(some(device), device, rows=rows)
    lengths = torch.tensor([20, 47], dtype=torch.int32, device=device)
    out, lse, *rest = family.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=lengths, causal=True, return_softmax_lse=True
    )
    assert not out.requires_grad and len(rest) == (2 if family is three else 0)
    for b, n in enumerate(lengths.tolist()):
        want, want_lse = attend(q[b : b + 1], k[b : b + 1, :n], v[b : b + 1, :n], causal=True)
        assert_close(out[b : b + 1], want, BOUND[some(device)])
        assert_close(lse[b : b + 1], want_lse, 1e-5)
    one = family.flash_attn_with_kvcache(q, k, v, cache_seqlens=20, causal=True)
    for number in (np.int64(20), np.array(20)):
        again = family.flash_attn_with_kvcache(q, k, v, cache_seqlens=number, causal=True)
        assert torch.equal(again, one)
    assert torch.equal(one[0], out[0])
    assert_close(
        family.flash_attn_with_kvcache(q, k, v),
        attend(q, k, v)[0],
        BOUND[some(device)],
    )


@both
def test_wrong_shapes_name_the_argument(family):
    q, k, v = qkv(torch.float32, "cpu")
    with pytest.raises(ValueError, match=r"qkv: shape \(2, 20, 2, 4, 32\)"):
        family.flash_attn_qkvpacked_func(torch.zeros(2, 20, 2, 4, 32))
    for lengths, kind in (([3, 4], TypeError), (2.5, TypeError), (True, TypeError),
                          (48, ValueError), (-1, ValueError),
                          (torch.tensor([1, 2]), ValueError)):  # fmt: skip
        with pytest.raises(kind, match="cache_seqlens: .* need int32"):
            family.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths)
    if family is three:
        with pytest.raises(ValueError, match="num_heads_q=99"):
            three.flash_attn_qkvpacked_func(torch.zeros(2, 20, 8, 32), num_heads_q=99)
        return
    with pytest.raises(ValueError, match=r"kv: shape .* need \(batch, seqlen, 2, heads"):
        two.flash_attn_kvpacked_func(q, torch.zeros(2, 20, 4, 4, 32))
    cu = torch.tensor([0, 20], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"qkv: shape .* need \(total, 3, heads"):
        two.flash_attn_varlen_qkvpacked_func(torch.zeros(20, 4, 4, 32), cu, 20)


@each_device
def test_alibi(device):
    q, k, v = qkv(some(device), device, grad=False)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], device=device)
    got = two.flash_attn_func(q, k, v, alibi_slopes=slopes)
    assert torch.equal(got, fa3.attention(q, k, v, alibi_slopes=slopes))


@each_device
def test_fp8_and_descales(device):
    q, k, v = qkv(torch.float32, device, grad=False, d=64, d_v=64, rows=64, keys=64)
    scales = [normal(2, 2, device=device).abs() + 0.5 for _ in "qkv"]
    codes = [x.to(torch.float8_e4m3fn) for x in (q, k, v)]
    out, lse = three.flash_attn_func(
        *codes, causal=True, q_descale=scales[0], k_descale=scales[1], v_descale=scales[2],
        return_attn_probs=True,
    )  # fmt: skip
    assert out.dtype == torch.bfloat16
    wide = [
        x.float() * scale.repeat_interleave(x.shape[2] // 2, 1)[:, None, :, None]
        for x, scale in zip(codes, scales, strict=True)
    ]
    want, want_lse = attend(*wide, causal=True)
    assert_close(out, want, 0.06)
    assert_close(lse, want_lse, 1e-3)
    with pytest.raises(ValueError, match="q_descale: given with q of torch.float32"):
        three.flash_attn_func(q, k, v, q_descale=scales[0])


X = torch.ones(2, 6, 4, 16)
CU = torch.tensor([0, 6], dtype=torch.int32)
REFUSED = {
    "qv": lambda: three.flash_attn_func(X, X, X, qv=X),
    "attention_chunk": lambda: three.flash_attn_func(X, X, X, attention_chunk=4),
    "page_table": lambda: three.flash_attn_with_kvcache(X, X, X, page_table=CU),
    "rotary_cos": lambda: three.flash_attn_with_kvcache(X, X, X, rotary_cos=X, rotary_sin=X),
    "k": lambda: three.flash_attn_with_kvcache(X, X, X, k=X, v=X),
    "cache_leftpad": lambda: three.flash_attn_with_kvcache(X, X, X, cache_leftpad=CU),
    "dropout_p": lambda: two.flash_attn_func(X, X, X, dropout_p=0.1),
    "block_table": lambda: two.flash_attn_with_kvcache(X, X, X, block_table=CU),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_lacking_is_said(name):
    with pytest.raises(NotImplementedError, match=rf"flash_attn_\w+: {name}: .* not offered.*; "):
        REFUSED[name]()


def test_others():
    with pytest.raises(NotImplementedError, match="flash_attn_combine"):
        three.flash_attn_combine(X, X)
    assert three.get_scheduler_metadata(1, 1, 64, 4, 4, 64, CU) is None
    with pytest.raises(ValueError, match="qkv: shape"):
        three.flash_attn_qkvpacked_func(X)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_install():
    code = """
import fa3.compat
fa3.compat.install()
fa3.compat.install()  # again is no error
import importlib.util, torch, flash_attn, flash_attn_interface
from flash_attn.flash_attn_interface import flash_attn_varlen_func
from flash_attn_interface import flash_attn_func
assert importlib.util.find_spec("flash_attn") and importlib.util.find_spec("flash_attn_interface")
x = torch.randn(1, 4, 2, 8)
assert torch.equal(flash_attn_func(x, x, x), flash_attn.flash_attn_func(x, x, x))
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_install_over_the_original():
    code = """
import sys, types
sys.modules["flash_attn"] = original = types.ModuleType("flash_attn")
import fa3.compat
try:
    fa3.compat.install()
except RuntimeError as error:
    print(error)
assert sys.modules["flash_attn"] is original and "flash_attn_interface" not in sys.modules
fa3.compat.install("flash_attn_interface")
fa3.compat.install(replace=True)
assert sys.modules["flash_attn"] is not original
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "flash_attn is installed; uninstall it, or say replace=True" in done.stdout


def test_install_what():
    with pytest.raises(ValueError, match='names: "xformers"'):
        fa3.compat.install("xformers")
