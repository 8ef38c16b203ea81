# SPDX-License-Identifier: BSD-3-Clause
"""combine_test.py — fa3.torch.combine and flash_attn_combine against FP64, with gradients."""

import pytest
import torch
from fa3.compat import flash_attn_interface as three
from fa3.torch import attention, combine
from torch_kit import BOUND, assert_close, attend, each_device, normal, qkv


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261129)


def merged(o, lse):
    """(out, lse) in FP64, with autograd."""
    o, lse = o.double(), lse.double()
    hidden = lse == -torch.inf
    total = lse.logsumexp(0)
    safe = torch.where(total.isfinite(), total, 0)
    weight = torch.where(hidden, 0, (lse - safe).exp()).transpose(-1, -2)[..., None]
    shown = torch.where(hidden.transpose(-1, -2)[..., None], 0, o)
    return (weight * shown).sum(0), total


def parts(shape=(5, 2, 7, 3, 24), dtype=torch.float32, device="cpu", grad=False):
    count, *batch, rows, heads, _ = shape
    o = normal(*shape, dtype=dtype, device=device)
    lse = 5 * normal(count, *batch, heads, rows, device=device)
    lse[1:3, ..., 2] = -torch.inf
    lse[..., -1] = -torch.inf  # the last row has no keys
    o.masked_fill_((lse == -torch.inf).transpose(-1, -2)[..., None], torch.nan)
    return o.requires_grad_(grad), lse.requires_grad_(grad)


@each_device
@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("shape", [(5, 2, 7, 3, 24), (17, 7, 3, 64)])
def test_formula(device, dtype, shape):
    o, lse = parts(shape, dtype, device)
    for out_dtype in (None, torch.float32, torch.bfloat16):
        out, got_lse = combine(o, lse, out_dtype=out_dtype)
        assert out.dtype == (out_dtype or dtype) and got_lse.dtype == torch.float32
        want, want_lse = merged(o, lse)
        assert_close(out, want, BOUND[out.dtype])
        assert torch.allclose(got_lse.double(), want_lse, 1e-5, 1e-5)


@each_device
@pytest.mark.parametrize("shape", [(5, 2, 7, 3, 24), (3, 7, 3, 64)])
def test_gradients(device, shape):
    o, lse = parts(shape, device=device, grad=True)
    out, of_lse = combine(o, lse)
    dout, dlse = normal(*out.shape, device=device), normal(*of_lse.shape, device=device)
    dlse[..., -1] = 0  # −inf has none
    got = torch.autograd.grad((out, of_lse), (o, lse), (dout, dlse))
    want_out, want_lse = merged(o, lse)
    shown = want_lse.isfinite()
    loss = (want_out * dout).sum() + (want_lse[shown] * dlse[shown]).sum()
    for x, want in zip(got, torch.autograd.grad(loss, (o, lse)), strict=True):
        assert_close(x, want.nan_to_num(), 1e-5)


# A ring of two steps: the keys in halves, one backward through both.
@each_device
def test_parts_of_attention_differentiate_as_one(device):
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q, k, v = qkv(dtype, device)
    halves = [
        attention(q, k[:, part], v[:, part], return_lse=True)
        for part in (slice(0, 20), slice(20, None))
    ]
    o, lse = (torch.stack(x) for x in zip(*halves, strict=True))
    out, lse = combine(o, lse)
    want, want_lse = attend(q, k, v)
    assert_close(out, want, 2 * BOUND[dtype])
    assert_close(lse, want_lse, 2 * BOUND[dtype])
    dout = normal(*out.shape, dtype=dtype, device=device)
    got = torch.autograd.grad(out, (q, k, v), dout)
    for x, y in zip(got, torch.autograd.grad(want, (q, k, v), dout.double()), strict=True):
        assert_close(x, y, 4 * BOUND[dtype])


def test_compiles_in_one_graph():
    o, lse = parts(grad=True)
    function = torch.compile(combine, fullgraph=True, backend="aot_eager")
    for got, want in zip(function(o, lse), combine(o, lse), strict=True):
        assert torch.equal(got, want)
    torch.library.opcheck(torch.ops.fa3.combine, (o.detach(), lse.detach(), None, torch.float32))


def test_transforms():
    """torch.func sees the gradients of autograd; forward mode is refused, not lost."""
    o, lse = parts()
    lse.nan_to_num_(neginf=-1.0)  # −∞ has no gradient
    sinks = normal(3).float()
    o.nan_to_num_()

    def loss(o, lse, sinks):
        out, of_lse = combine(o, lse, sinks=sinks)
        return out.square().sum() + of_lse.sin().sum()

    given = [x.clone().requires_grad_() for x in (o, lse, sinks)]
    want = torch.autograd.grad(loss(*given), given)
    for got, of_x in zip(torch.func.grad(loss, (0, 1, 2))(o, lse, sinks), want, strict=True):
        assert_close(got, of_x, 1e-6)
    several = torch.stack([sinks, sinks - 1])
    by_sinks = torch.func.grad(loss, 2)
    got = torch.func.vmap(by_sinks, (None, None, 0))(o, lse, several)
    assert_close(got, torch.stack([by_sinks(o, lse, x) for x in several]), 1e-6)
    for i in range(3):
        with pytest.raises(NotImplementedError, match="forward-mode derivatives"):
            torch.func.jvp(
                lambda x, i=i: loss(*[x if i == n else y for n, y in enumerate((o, lse, sinks))]),
                ((o, lse, sinks)[i],),
                (torch.ones_like((o, lse, sinks)[i]),),
            )


def test_layouts():
    o, lse = parts()
    out, of_lse = combine(o, lse)
    views = (
        o.transpose(2, 3).contiguous().transpose(2, 3),
        lse.transpose(2, 3).contiguous().transpose(2, 3),
    )
    columns_apart = o.transpose(-1, -2).contiguous().transpose(-1, -2)
    for a, b in (views, (columns_apart, lse)):
        for got, want in zip(combine(a, b), (out, of_lse), strict=True):
            assert torch.equal(got, want)
    assert combine(o[:0], lse[:0])[0].eq(0).all()
    one = combine(torch.ones(1).expand(2, 1, 3, 2, 8), torch.zeros(1).expand(2, 1, 2, 3))
    assert one[0].eq(1).all() and torch.allclose(one[1], torch.tensor(2.0).log())


def test_refusals():
    o, lse = parts()
    for make in (lambda f: f, lambda f: torch.compile(f, backend="eager")):
        with pytest.raises(Exception, match=r"lse_parts.shape\[0\]=4 disagrees with parts=5"):
            make(combine)(o, lse[:4])
    with pytest.raises(ValueError, match="o_parts: 3 dimensions, need 5"):
        combine(o[0, 0], lse)
    with pytest.raises(ValueError, match=r"sinks: 0 dimensions, need at least 1"):
        combine(o, lse, sinks=torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"sinks.rank=2 .* need rank 1 \(heads\)"):
        combine(o, lse, sinks=torch.ones(1, 3))
    with pytest.raises(ValueError, match="o_parts.dtype=f64, need f32, f16 or bf16"):
        combine(o.double(), lse)


@each_device
def test_flash_attn_combine(device):
    o, lse = parts(device=device)
    want, want_lse = merged(o, lse)
    by_rows = lse.transpose(-1, -2)  # as the original has it: stride 1 along the rows
    out, of_lse = three.flash_attn_combine(o, by_rows)
    assert out.dtype == torch.float32 and of_lse.shape == (2, 7, 3)
    assert of_lse.transpose(-1, -2).is_contiguous()
    assert_close(out, want, 3e-6)
    assert torch.allclose(of_lse.double(), want_lse.transpose(-1, -2), 1e-5, 1e-5)
    half, _ = three.flash_attn_combine(o, by_rows.contiguous(), out_dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    given = torch.empty(2, 7, 3, 24, dtype=torch.bfloat16, device=device)
    assert three.flash_attn_combine(o, by_rows, given)[0] is given and torch.equal(given, half)
    with pytest.raises(ValueError, match=r"out: bfloat16 \(2, 7, 3, 24\)"):
        three.flash_attn_combine(o, by_rows, given, torch.float16)
