# SPDX-License-Identifier: BSD-3-Clause
"""coarse_rows_test.py — rows whose keys are all hidden by a large finite number: gradients are
those of the weights that the forward used, scores rounded to float32 after the mask is added."""

import pytest
import torch
import torch_kit as kit

import fa3.torch

HIDDEN = (-1e3, -1e4, -1e5, -1e6, -1e7, -1e8, -1e9, -1e30, torch.finfo(torch.float32).min)


def problem(dtype, device, hidden, mask_dtype=torch.float32, rows=70, keys=300, d=64):
    """q, k, v and a mask of which every third row is hidden. Scores are multiples of 1/8, which are
    exact however they are summed, so that everybody rounds them alike."""
    torch.manual_seed(0)
    q, k = (torch.randint(-1, 2, (2, n, 2, d)).to(device, dtype).requires_grad_()
            for n in (rows, keys))  # fmt: skip
    v = (torch.randint(-4, 5, (2, keys, 2, d)) / 4).to(device, dtype).requires_grad_()
    mask = torch.randint(-1, 2, (1, 2, rows, keys)) / 2
    mask[:, :, 1::3] = hidden
    mask[..., 5::11] = -torch.inf
    return q, k, v, mask.to(device, mask_dtype).requires_grad_()


def weights(q, k, mask):
    """(batch, heads, rows, keys) in float64, of scores in float32."""
    scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) * 0.125 + mask.double()
    scores = scores.float().double()
    return torch.softmax(scores, -1)


def expected(q, k, v, mask, dout):
    with torch.no_grad():
        p, dout = weights(q, k, mask), dout.double()
        dp = torch.einsum("bihd,bjhd->bhij", dout, v.double())
        ds = p * (dp - (p * dp).sum(-1, keepdim=True))
        return (
            torch.einsum("bhij,bjhd->bihd", ds, k.double()) * 0.125,
            torch.einsum("bhij,bihd->bjhd", ds, q.double()) * 0.125,
            torch.einsum("bhij,bihd->bjhd", p, dout),
            ds.sum(0, keepdim=True),
        )


@pytest.mark.parametrize("device", kit.DEVICES)
def test_gradients_of_the_weights_used(device):
    for dtype in kit.dtypes(device):
        for hidden in HIDDEN:
            q, k, v, mask = problem(dtype, device, hidden)
            dout = torch.randint(-4, 5, q.shape, device=device).to(dtype) / 4
            out = fa3.torch.attention(q, k, v, attn_mask=mask, deterministic=hidden == -1e9)
            found = torch.autograd.grad(out, (q, k, v, mask), dout)
            bound = kit.BOUND[dtype] * (100 if dtype == torch.float32 else 2)
            for got, want in zip(found, expected(q, k, v, mask, dout), strict=True):
                kit.assert_close(got, want, bound)


@pytest.mark.parametrize("device", kit.DEVICES)
def test_weights_add_up_to_1(device):
    bounds = {torch.float32: 1e-3, torch.float16: 1e-3, torch.bfloat16: 4e-3}
    for dtype in kit.dtypes(device):
        for hidden in HIDDEN:
            q, k, v, mask = problem(dtype, device, hidden)
            for row in (1, 67):
                dout = torch.zeros_like(q)
                dout[:, row] = 1
                out = fa3.torch.attention(q, k, v, attn_mask=mask)
                (dv,) = torch.autograd.grad(out, (v,), dout)
                error = (dv.double().sum(1) - 1).abs().max().item()
                assert error <= bounds[dtype], (dtype, hidden, row, error)


@pytest.mark.parametrize("device", kit.DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masks_of_16_bits(device, dtype):
    q, k, v, mask = problem(dtype, device, torch.finfo(dtype).min, dtype, d=128)
    dout = torch.randint(-4, 5, q.shape, device=device).to(dtype) / 4
    out = fa3.torch.attention(q, k, v, attn_mask=mask, softmax_scale=0.125)
    found = torch.autograd.grad(out, (q, k, v, mask), dout)
    for got, want in zip(found, expected(q, k, v, mask, dout), strict=True):
        kit.assert_close(got, want, 2 * kit.BOUND[dtype])


@pytest.mark.parametrize("device", kit.DEVICES)
def test_added_masks_in_full_train_as_eager(device):
    """A row of padding in a batch, hidden as eager code hides it: by the least of the type."""
    torch.manual_seed(1)
    dtype = torch.float32 if device == "cpu" else torch.float16
    q, k, v = kit.qkv(dtype, device, rows=48, keys=48, heads=2, heads_kv=2, d=64, d_v=64)
    mask = torch.zeros(2, 1, 48, 48, device=device)
    mask[0, :, :, :7] = torch.finfo(torch.float32).min
    mask += torch.full((48, 48), -1e30, device=device).triu(1)
    mask.clamp_(min=torch.finfo(torch.float32).min)
    out = fa3.torch.attention(q, k, v, attn_mask=mask)
    dout = torch.randn_like(out)
    found = torch.autograd.grad(out, (q, k, v), dout)
    x = [t.detach().float().requires_grad_() for t in (q, k, v)]
    scores = torch.einsum("bihd,bjhd->bhij", x[0], x[1]) * 64**-0.5 + mask
    eager = torch.einsum("bhij,bjhd->bihd", torch.softmax(scores, -1), x[2])
    wanted = torch.autograd.grad(eager, x, dout.float())
    for got, want in zip(found, wanted, strict=True):
        kit.assert_close(got, want, 10 * kit.BOUND[dtype])
