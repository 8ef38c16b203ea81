# SPDX-License-Identifier: BSD-3-Clause
"""compat_test.py — the functions of FlashAttention-3 and -2 on fa3, against FP64."""

import inspect

import fa3
import numpy as np
import pytest
import torch
import torch._dynamo.testing
import upstream
from fa3.compat import bert_padding, rotary
from fa3.compat import flash_attn as two
from fa3.compat import flash_attn_interface as three
from torch_kit import BOUND, assert_close, attend, each_device, gradients, normal, qkv, some

both = pytest.mark.parametrize("family", [three, two], ids=["three", "two"])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261124)


def signatures():
    known = {
        three: upstream.FLASH_ATTENTION_3,
        two: upstream.FLASH_ATTENTION_2,
        bert_padding: upstream.BERT_PADDING,
        rotary: upstream.ROTARY,
    }
    for module, functions in known.items():
        for name, parameters in functions.items():
            name = f"{module.__name__.removeprefix('fa3.compat.')}.{name}"
            yield pytest.param(module, name, parameters, id=name)


@pytest.mark.parametrize("module, name, parameters", list(signatures()))
def test_parameters_are_upstreams(module, name, parameters):
    mine, added = [], []
    for parameter, p in inspect.signature(getattr(module, name.split(".")[-1])).parameters.items():
        default = str(p.default).removeprefix("torch.").replace(" ", "")
        where = added if p.kind == inspect.Parameter.KEYWORD_ONLY else mine
        has_none = p.default is inspect.Parameter.empty
        where.append(parameter if has_none else f"{parameter}={default}")
    assert mine == parameters.split()
    assert added == upstream.ADDED.get(name, "").split()


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
def test_lengths_of_other_types(device, family):
    x = normal(30, 2, 32, dtype=some(device), device=device)
    cu = torch.tensor([0, 12, 30], dtype=torch.int32, device=device)
    want = family.flash_attn_varlen_func(x, x, x, cu, cu, 18, 18)
    assert torch.equal(family.flash_attn_varlen_func(x, x, x, cu.long(), cu.long(), 18, 18), want)
    with pytest.raises(TypeError, match=r"cu_seqlens_k: torch.float32, .* pass cu_seqlens_k.to\("):
        family.flash_attn_varlen_func(x, x, x, cu, cu.float(), 18, 18)
    with pytest.raises(TypeError, match=r"cu_seqlens_q: list, need a torch.Tensor of int32"):
        family.flash_attn_varlen_func(x, x, x, [0, 30], cu, 18, 18)
    cache = normal(2, 9, 2, 32, dtype=some(device), device=device)
    lengths = torch.tensor([5, 5], dtype=torch.int32, device=device)
    want = family.flash_attn_with_kvcache(cache[:, :1], cache, cache, cache_seqlens=lengths)
    for same in (lengths.long(), lengths[0], lengths.long()[0]):
        got = family.flash_attn_with_kvcache(cache[:, :1], cache, cache, cache_seqlens=same)
        assert torch.equal(got, want)


@each_device
@both
def test_windows_without_bounds(device, family):
    q, k, v = qkv(some(device), device, grad=False)
    for sides, same in (((None, None), (-1, -1)), ((None, 0), (-1, 0)), ([3, None], (3, -1)),
                        (None, (-1, -1)), (torch.tensor([3, 2]), (3, 2))):  # fmt: skip
        got = family.flash_attn_func(q, k, v, window_size=sides)
        assert torch.equal(got, family.flash_attn_func(q, k, v, window_size=same))
    for wrong in (4, (1, 2, 3), "ab", (1.0j, 2)):
        with pytest.raises(ValueError, match=r"window_size: .*, need \(left, right\)"):
            family.flash_attn_func(q, k, v, window_size=wrong)


@each_device
@both
def test_out_and_lse_of_varlen(device, family):
    x = normal(30, 2, 32, dtype=some(device), device=device)
    cu = torch.tensor([0, 12, 30], dtype=torch.int32, device=device)
    lengths = (cu, cu, 18, 18)
    want, want_lse = family.flash_attn_varlen_func(x, x, x, *lengths, return_attn_probs=True)[:2]
    whole = torch.full((30, 2, 64), torch.nan, dtype=x.dtype, device=device)
    out, lse = family.flash_attn_varlen_func(
        x, x, x, *lengths, out=whole[..., ::2], return_softmax_lse=True
    )
    assert out.data_ptr() == whole.data_ptr() and whole[..., 1::2].isnan().all()
    assert torch.equal(whole[..., ::2], want) and torch.equal(lse, want_lse)
    cache = x.view(2, 15, 2, 32)
    into = torch.empty_like(cache)
    got = family.flash_attn_with_kvcache(cache, cache, cache, out=into)
    assert got is into and torch.equal(into, family.flash_attn_with_kvcache(cache, cache, cache))
    kind = str(x.dtype).removeprefix("torch.")
    for wrong in (whole, want.double(), want[:1]):
        before = wrong.clone()
        with pytest.raises(ValueError, match=rf"out: .*, need {kind} \(30, 2, 32\) on"):
            family.flash_attn_varlen_func(x, x, x, *lengths, out=wrong)
        assert torch.equal(wrong.nan_to_num(), before.nan_to_num())


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
    for splits in (1, -1):
        again = family.flash_attn_with_kvcache(
            q, k, v, cache_seqlens=20, causal=True, num_splits=splits
        )
        assert_close(again, one, BOUND[some(device)])
    with pytest.raises((ValueError, TypeError), match="num_splits"):  # it is handed on
        family.flash_attn_with_kvcache(q, k, v, cache_seqlens=20, num_splits=1 << 40)
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
                          (np.array([1, 2], dtype=np.int32), TypeError),
                          (torch.tensor([1.0, 2.0]), ValueError),
                          (torch.tensor([1]), ValueError)):  # fmt: skip
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
    with pytest.raises(ValueError, match="k_descale: given with k of torch.float32"):
        three.flash_attn_func(q, k, v, k_descale=scales[0])
    need = r"need float32 \(2, 2\), one for each sequence and KV head"
    for wrong, said in (
        (torch.ones(2, device=device), rf"float32 \(2,\), {need}; pass v_descale\[:, None\]"),
        (torch.ones(1, device=device), rf"{need}; pass v_descale.reshape\(1, 1\).expand\(2, 2\)"),
        (torch.ones(2, 4, device=device), rf"float32 \(2, 4\), {need}, of q, too"),
        (scales[0].double(), rf"float64 \(2, 2\), {need}; pass v_descale.float\(\)"),
    ):
        with pytest.raises(ValueError, match=f"v_descale: .*{said}"):
            three.flash_attn_func(*codes, v_descale=wrong)
    with pytest.raises(TypeError, match=f"q_descale: float, {need}, as a torch.Tensor"):
        three.flash_attn_func(*codes, q_descale=0.5)
    same = three.flash_attn_func(*codes, k_descale=scales[1][:, :1].expand(2, 2))
    assert torch.equal(same, three.flash_attn_func(*codes, k_descale=scales[1][:, [0, 0]]))


X = torch.ones(2, 6, 4, 16)
CU = torch.tensor([0, 6], dtype=torch.int32)
REFUSED = {
    "qv": lambda: three.flash_attn_func(X, X, X, qv=X),
    "dropout_p": lambda: two.flash_attn_func(X, X, X, dropout_p=0.1),
    "leftpad_k": lambda: two._flash_attn_varlen_forward(*VARLEN, leftpad_k=CU),
    "return_softmax": lambda: two._flash_attn_varlen_forward(*VARLEN, return_softmax=True),
}
VARLEN = (X[0], X[0], X[0], CU, CU, 6, 6, 0.0, None, False)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_lacking_is_said(name):
    with pytest.raises(NotImplementedError, match=rf"flash_attn_\w+: {name}: .* not offered.*; "):
        REFUSED[name]()


def test_lengths_of_what_is_not_given():
    """As SGLang and the original's own tests pass them; the original does not look at them then."""
    want = three.flash_attn_with_kvcache(X, X, X)
    assert torch.equal(three.flash_attn_with_kvcache(X, X, X, cu_seqlens_k_new=CU), want)
    assert torch.equal(three.flash_attn_with_kvcache(X, X, X, rotary_seqlens=CU), want)
    options = {"cu_seqlens_k_new": CU, "seqlens_rotary": CU}
    assert torch.equal(three._flash_attn_forward(X, X, X, **options)[0], want)


@both
def test_cache_seqlens_that_changes_compiles_twice(family):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    function = torch.compile(
        lambda n: family.flash_attn_with_kvcache(X[:, :1], X, X, cache_seqlens=n),
        backend=counter,
        fullgraph=True,
    )
    for n in range(2, 7):
        want = family.flash_attn_with_kvcache(X[:, :1], X, X, cache_seqlens=n)
        assert torch.equal(function(n), want)
    assert counter.frame_count == 2


def test_others():
    assert three.get_scheduler_metadata(1, 1, 64, 4, 4, 64, CU) is None
    with pytest.raises(ValueError, match="qkv: shape"):
        three.flash_attn_qkvpacked_func(X)
