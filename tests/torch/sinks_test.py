# SPDX-License-Identifier: BSD-3-Clause
"""sinks_test.py — attention sinks: results, gradients, and the names that others call them by."""

import fa3.compat.flash_attn as two
import fa3.compat.flash_attn_interface as three
import fa3.torch
import pytest
import torch
from torch_kit import (
    BOUND,
    assert_close,
    attend,
    each_device,
    each_type,
    gradients,
    normal,
    qkv,
    some,
)

ours = fa3.torch.attention


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261130)


def some_sinks(device, dtype=torch.float32, heads=4):
    return (1 + 2 * torch.randn(heads)).to(device, dtype).requires_grad_()


@each_type
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (5, 0), "softcap": 2.0}])
@pytest.mark.parametrize("own", [True, False])
def test_results_and_gradients(device, dtype, options, own):
    q, k, v = qkv(dtype, device)
    sinks = some_sinks(device, dtype if own else torch.float32)
    out, lse = ours(q, k, v, sinks=sinks, return_lse=True, **options)
    want, of_sum = attend(q, k, v, sinks=sinks, **options)
    assert_close(out, want, BOUND[dtype])
    assert_close(lse, of_sum, 1e-5)
    dout, dlse = normal(*out.shape, device=device), normal(*lse.shape, device=device)
    inputs = (q, k, v, sinks)
    got = torch.autograd.grad((out, lse), inputs, (dout.to(dtype), dlse))
    exact = torch.autograd.grad((want, of_sum), inputs, (dout.double(), dlse.double()))
    for a, b in zip(got, exact, strict=True):
        assert a.dtype == b.dtype
        assert_close(a, b, 4 * BOUND[dtype])


def test_gradcheck():
    q, k, v = (x.detach().double().requires_grad_() for x in
               qkv(batch=1, rows=3, keys=5, heads=2, heads_kv=1, d=4, d_v=3))  # fmt: skip
    sinks = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    inputs = (q, k, v, sinks)
    assert torch.autograd.gradcheck(lambda q, k, v, s: ours(q, k, v, sinks=s), inputs)
    only = torch.autograd.gradcheck(lambda s: ours(q.detach(), k.detach(), v.detach(), sinks=s),
                                    (sinks,))  # fmt: skip
    assert only


@each_device
def test_operator(device):
    q, k, v = qkv(some(device), device)
    sinks = some_sinks(device)
    eager = ours(q, k, v, sinks=sinks)
    compiled = torch.compile(lambda s: ours(q, k, v, sinks=s), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(sinks), eager)
    a, b = (gradients(f(sinks), (sinks,), torch.ones_like(eager))[0]
            for f in (compiled, lambda s: ours(q, k, v, sinks=s)))  # fmt: skip
    assert torch.equal(a, b)
    in_parts = torch.func.grad(lambda s: ours(q, k, v, sinks=s).sum())(sinks.detach())
    assert torch.equal(in_parts, a)


def test_rows_without_keys():
    q, k, v = qkv(rows=6, keys=4)
    sinks = some_sinks("cpu")
    out, lse = ours(q, k, v, causal=True, sinks=sinks, return_lse=True)
    assert not out[:, :2].any()
    assert torch.equal(lse[:, :, 0], sinks.expand(2, 4))
    gradient, = torch.autograd.grad(lse[:, :, :2].sum(), sinks)
    assert torch.equal(gradient, torch.full((4,), 4.0))


@each_device
def test_combine(device):
    """Sinks come once, with the parts' gradients and their own."""
    q, k, v = qkv(some(device), device)
    sinks = some_sinks(device)
    whole, of_whole = ours(q, k, v, sinks=sinks, return_lse=True)
    parts = [ours(q, k[:, rows], v[:, rows], return_lse=True)
             for rows in (slice(0, 20), slice(20, None))]  # fmt: skip
    o, lse = (torch.stack(x) for x in zip(*parts, strict=True))
    out, of_parts = fa3.torch.combine(o, lse, sinks=sinks)
    bound = BOUND[whole.dtype]
    assert_close(out, whole, bound)
    assert_close(of_parts, of_whole, 1e-5)
    dlse = torch.randn_like(of_whole)
    dout = torch.randn_like(out)
    inputs = (q, k, v, sinks)
    for a, b in zip(torch.autograd.grad((out, of_parts), inputs, (dout, dlse)),
                    torch.autograd.grad((whole, of_whole), inputs, (dout, dlse)),
                    strict=True):  # fmt: skip
        assert_close(a, b, 4 * bound)


@each_device
def test_names_of_others(device):
    q, k, v = qkv(some(device), device, grad=False)
    sinks = some_sinks(device)
    want = ours(q, k, v, sinks=sinks)
    lengths = [torch.arange(0, 3 * n, n, dtype=torch.int32, device=device)
               for n in (q.shape[1], k.shape[1])]  # fmt: skip
    packed = [x.flatten(0, 1) for x in (q, k, v)]
    for family in (two, three):
        for name in ("sinks", "s_aux", "learnable_sink"):
            out = family.flash_attn_func(q, k, v, **{name: sinks})
            assert torch.equal(out, want)
            out = family.flash_attn_varlen_func(*packed, *lengths, 33, 47, **{name: sinks})
            assert_close(out.view_as(want), want, BOUND[q.dtype])
            assert_close(family.flash_attn_with_kvcache(q, k, v, **{name: sinks}), want,
                         BOUND[q.dtype])  # fmt: skip
        gradient, = torch.autograd.grad(family.flash_attn_func(q, k, v, s_aux=sinks).sum(), sinks)
        assert gradient.shape == sinks.shape
        with pytest.raises(ValueError, match="sinks and s_aux: one argument, need one of them"):
            family.flash_attn_func(q, k, v, sinks=sinks, s_aux=sinks)


def test_codes():
    q, k, v = qkv(grad=False)
    sinks = some_sinks("cpu").detach()
    codes = [x.to(torch.float8_e4m3fn) for x in (q, k, v)]
    want, _ = attend(*(x.double() for x in codes), sinks=sinks)
    assert_close(fa3.torch.attention_on_codes(*codes, sinks=sinks), want, BOUND[torch.bfloat16])


def test_what_is_refused():
    q, k, v = qkv(rows=5, keys=5)
    for wrong, said in ((torch.ones(2), r"sinks.shape\[0\]=2 disagrees with heads_q=4"),
                        (torch.ones(1, 4), r"sinks.rank=2 .* need rank 1 \(heads_q\); pass it in"),
                        (torch.ones(4, dtype=torch.int32), "sinks.dtype=i32")):  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=said):
            ours(q, k, v, sinks=wrong)
    pages = torch.zeros(2, 1, dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="keys in a cache have no gradients"):
        ours(q.detach(), k.detach(), v.detach(), page_table=pages, sinks=some_sinks("cpu"))
