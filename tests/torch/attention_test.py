# SPDX-License-Identifier: BSD-3-Clause
"""attention_test.py — fa3.torch.attention and its gradients against FP64."""

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


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261124)


def check(inputs, ours, theirs, bound, **options):
    out = fa3.torch.attention(*inputs, **ours)
    want, _ = attend(*inputs, **theirs)
    dout = normal(*out.shape, dtype=out.dtype, device=out.device)
    assert_close(out, want, bound)
    for got, expected in zip(
        gradients(out, inputs, dout), gradients(want, inputs, dout), strict=True
    ):
        assert got.dtype == inputs[0].dtype
        assert_close(got, expected, 4 * bound)


@each_type
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": (6, 2)}, {"causal": True, "window": (9, None)}],
    ids=["full", "causal", "window", "causal window"],
)
def test_masks(device, dtype, options):
    check(qkv(dtype, device), options, options, BOUND[dtype])


@each_type
@pytest.mark.parametrize("heads, heads_kv", [(1, 1), (6, 6), (6, 3), (6, 1)])
def test_heads(device, dtype, heads, heads_kv):
    check(qkv(dtype, device, heads=heads, heads_kv=heads_kv), {}, {}, BOUND[dtype])


@each_device
@pytest.mark.parametrize("d, d_v", [(64, 64), (40, 40), (24, 48), (20, 20), (13, 7), (1, 1)])
def test_head_dims(device, d, d_v):
    dtype = some(device)
    check(qkv(dtype, device, d=d, d_v=d_v), {"causal": True}, {"causal": True}, BOUND[dtype])


@each_device
def test_softcap_and_scale(device):
    dtype = some(device)
    ours = {"softcap": 2.0, "softmax_scale": 0.3}
    check(qkv(dtype, device), ours, {"softcap": 2.0, "scale": 0.3}, BOUND[dtype])


@each_device
def test_lse_has_a_gradient(device):
    inputs = qkv(some(device), device)
    out, lse = fa3.torch.attention(*inputs, return_lse=True)
    want, want_lse = attend(*inputs)
    bound = BOUND[some(device)]
    assert_close(lse, want_lse, 1e-5)
    dlse = normal(*lse.shape, device=device)
    got = torch.autograd.grad(lse, inputs[:2], dlse, retain_graph=True)
    expected = torch.autograd.grad(want_lse, inputs[:2], dlse.double(), retain_graph=True)
    for a, b in zip(got, expected, strict=True):
        assert_close(a, b, 4 * bound)
    both = torch.autograd.grad((out * 2).sum() + lse.sum(), inputs)
    expected = torch.autograd.grad((want * 2).sum() + want_lse.sum(), inputs)
    for a, b in zip(both, expected, strict=True):
        assert_close(a, b, 4 * bound)


@each_device
def test_varlen(device):
    dtype = some(device)
    q, k, v = qkv(dtype, device, rows=20, keys=20)
    cu = torch.tensor([0, 20, 40], dtype=torch.int32, device=device)
    flat = [x.detach().flatten(0, 1).requires_grad_() for x in (q, k, v)]
    out = fa3.torch.attention(*flat, causal=True, cu_seqlens_q=cu, cu_seqlens_kv=cu,
                              max_seqlen_q=20, max_seqlen_kv=20)  # fmt: skip
    want, _ = attend(q, k, v, causal=True)
    dout = normal(*out.shape, dtype=dtype, device=device)
    assert_close(out.view(want.shape), want, BOUND[dtype])
    for a, b in zip(gradients(out, flat, dout),
                    gradients(want, (q, k, v), dout.view(want.shape)), strict=True):  # fmt: skip
        assert_close(a.view(b.shape), b, 4 * BOUND[dtype])


@each_device
def test_views(device):
    """Transposed tensors, packed QKV, columns that are not contiguous, expanded gradients."""
    dtype = some(device)
    base = normal(2, 4, 33, 32, dtype=dtype, device=device, grad=True)
    q = base.transpose(1, 2)
    check((q, q.detach().clone().requires_grad_(), q), {}, {}, BOUND[dtype])
    spread = [normal(2, 20, 4, 64, dtype=dtype, device=device, grad=True)[..., ::2] for _ in "qkv"]
    check(spread, {}, {}, BOUND[dtype])
    negated = torch._neg_view(base.detach().transpose(1, 2))
    assert torch.equal(fa3.torch.attention(negated, q, q), fa3.torch.attention(-q, q, q))
    inputs = qkv(dtype, device)
    got = torch.autograd.grad(fa3.torch.attention(*inputs).sum(), inputs)
    want = torch.autograd.grad(attend(*inputs)[0].sum(), inputs)
    for a, b in zip(got, want, strict=True):
        assert_close(a, b, 4 * BOUND[dtype])


@each_device
def test_qkvpacked(device):
    dtype = some(device)
    packed = normal(2, 20, 3, 4, 32, dtype=dtype, device=device, grad=True)
    out = fa3.torch.attention_qkvpacked(packed, causal=True)
    want, _ = attend(*packed.unbind(2), causal=True)
    dout = normal(*out.shape, dtype=dtype, device=device)
    assert_close(out, want, BOUND[dtype])
    (got,), (expected,) = gradients(out, (packed,), dout), gradients(want, (packed,), dout)
    assert_close(got, expected, 4 * BOUND[dtype])
    flat = packed.detach().flatten(0, 1)
    cu = torch.tensor([0, 20, 40], dtype=torch.int32, device=device)
    varlen = fa3.torch.attention_qkvpacked(flat, causal=True, cu_seqlens=cu, max_seqlen=20)
    assert_close(varlen.view(out.shape), out, 1e-6)
    with pytest.raises(ValueError, match="qkv: shape"):
        fa3.torch.attention_qkvpacked(packed[:, :, :2])


@each_device
@pytest.mark.parametrize(
    "needs", [(True, False, False), (False, True, False), (False, False, True)]
)
def test_only_what_is_asked_for(device, needs):
    inputs = [x.detach().requires_grad_(n) for x, n in zip(qkv(some(device), device), needs)]
    out = fa3.torch.attention(*inputs)
    out.sum().backward()
    assert [x.grad is not None for x in inputs] == list(needs)


@each_device
def test_without_gradients(device):
    inputs = qkv(some(device), device)
    want = fa3.torch.attention(*inputs)
    with torch.no_grad():
        assert not fa3.torch.attention(*inputs).requires_grad
    with torch.inference_mode():
        assert torch.equal(fa3.torch.attention(*inputs), want)


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": (2, 1)}, {"softcap": 1.5}, {"softmax_scale": -0.4}],
    ids=str,
)
def test_gradcheck(options):
    """Every element of the Jacobian against finite differences, in float64."""
    small = qkv(batch=1, rows=3, keys=5, heads=2, heads_kv=1, d=4, d_v=3)
    inputs = [x.detach().double().requires_grad_() for x in small]
    assert torch.autograd.gradcheck(lambda *x: fa3.torch.attention(*x, **options), inputs)


def test_gradcheck_of_a_mask():
    """Heads differ, batch entries share it."""
    small = qkv(batch=2, rows=3, keys=4, heads=2, heads_kv=2, d=4, d_v=3)
    mask = normal(1, 2, 3, 4)
    inputs = [x.detach().double().requires_grad_() for x in (*small, mask)]
    assert torch.autograd.gradcheck(
        lambda q, k, v, m: fa3.torch.attention(q, k, v, causal=True, attn_mask=m), inputs
    )


def test_gradcheck_of_a_layer():
    """Projections, grouped causal heads, projection back: gradients of input and weights."""
    heads, heads_kv, d, width = 4, 2, 3, 5
    shapes = [(heads * d, width), (heads_kv * d, width), (heads_kv * d, width), (width, heads * d)]
    weights = [(0.5 * normal(*shape).double()).requires_grad_() for shape in shapes]
    x = normal(2, 4, width).double().requires_grad_()

    def layer(x, *weights):
        q, k, v = (
            (x @ w.T).unflatten(-1, (n, d))
            for w, n in zip(weights, (heads, heads_kv, heads_kv), strict=False)
        )
        return x + fa3.torch.attention(q, k, v, causal=True).flatten(2) @ weights[3].T

    assert torch.autograd.gradcheck(layer, (x, *weights))


@each_device
@pytest.mark.parametrize("batch, rows, keys", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_zero_sizes(device, batch, rows, keys):
    inputs = qkv(some(device), device, batch=batch, rows=rows, keys=keys)
    out = fa3.torch.attention(*inputs)
    assert out.shape == inputs[0].shape and not out.any()
    out.sum().backward()
    assert all(x.grad.shape == x.shape and not x.grad.any() for x in inputs)


@each_device
@pytest.mark.parametrize("precision", ["fp8", "eight_bit", "eight_bit_accurate"])
def test_eight_bits_train_straight_through(device, precision):
    inputs = qkv(torch.bfloat16, device, rows=64, keys=64, d=64, d_v=64)
    exact = fa3.torch.attention(*inputs)
    out = fa3.torch.attention(*inputs, precision=precision, seed=3)
    assert not torch.equal(out, exact)
    dout = normal(*out.shape, dtype=out.dtype, device=device)
    got, want = gradients(out, inputs, dout), gradients(exact, inputs, dout)
    for a, b in zip((out, *got), (exact, *want), strict=True):
        error = (a.double() - b.double()).norm() / b.double().norm()
        assert error < {"fp8": 0.1, "eight_bit": 0.06, "eight_bit_accurate": 0.06}[precision]


@each_device
def test_deterministic(device):
    inputs = qkv(some(device), device, rows=300, keys=300)
    results = []
    for _ in range(3):
        out = fa3.torch.attention(*inputs, deterministic=True)
        results.append(torch.autograd.grad(out.sum(), inputs))
    for again in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], again, strict=True))
