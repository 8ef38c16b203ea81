# SPDX-License-Identifier: BSD-3-Clause
"""scale_test.py — gradients of softmax_scale, a scale of 0, and which gradients are refused."""

import fa3
import fa3.compat.flash_attn as two
import fa3.compat.flash_attn_interface as three
import fa3.torch
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as theirs
from torch_kit import BOUND, assert_close, attend, each_device, each_type, normal, qkv, some

ours = fa3.torch.attention


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261128)


def lengths(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


IDS = torch.tensor([[1, 1, 2]], dtype=torch.int32), torch.tensor([[1, 2, 2, 1, 0]]).int()
TERMS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "softcap": {"softcap": 1.5},
    "slopes": {"alibi_slopes": torch.tensor([0.5, -0.25]), "causal": True},
    "ids": {"sequence_ids_q": IDS[0], "sequence_ids_kv": IDS[1]},
    "mask": {"attn_mask": torch.tensor([[0.5, -torch.inf, 1, 2, -1]])},
    "hidden": {"attn_mask": torch.tensor([[True] * 5, [False] * 5, [True, False] * 2 + [True]])},
    "used": {"seqused_q": lengths(2), "seqused_kv": lengths(4)},
}


@pytest.mark.parametrize("value", [0.4, -0.7, 1e-3])
@pytest.mark.parametrize("name", TERMS)
def test_gradcheck(name, value):
    """Every element of the Jacobian against finite differences, in float64."""
    small = qkv(batch=1, rows=3, keys=5, heads=2, heads_kv=1, d=4, d_v=3)
    inputs = [x.detach().double().requires_grad_() for x in small]
    scale = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda q, k, v, s: ours(q, k, v, softmax_scale=s, **TERMS[name]), (*inputs, scale)
    )


@each_device
def test_gradient_through_lse(device):
    q, k, v = qkv(some(device), device)
    scale = torch.tensor(0.3, device=device, requires_grad=True)
    out, lse = ours(q, k, v, softmax_scale=scale, causal=True, return_lse=True)
    want, want_lse = attend(q, k, v, scale=scale.double(), causal=True)
    dlse = normal(*lse.shape, device=device)
    for a, b in (
        (lse * dlse, want_lse * dlse.double()),
        (lse * dlse + out.float().sum(), want_lse * dlse + want.sum()),
    ):
        seen = torch.isfinite(b)
        (got,) = torch.autograd.grad(a[seen].sum(), scale, retain_graph=True)
        (expected,) = torch.autograd.grad(b[seen].sum(), scale, retain_graph=True)
        assert_close(got, expected, BOUND[some(device)])


@each_type
@pytest.mark.parametrize("d", [32, 13])
@pytest.mark.parametrize(
    "terms", [{}, {"causal": True, "softcap": 2.0}, {"window": (6, 2)}], ids=str
)
def test_gradient(device, dtype, d, terms):
    """Measured by the terms of its sum, which cancel. Where d is odd a GPU pads."""
    inputs = qkv(dtype, device, d=d, d_v=d)
    scale = torch.tensor(0.25, device=device, requires_grad=True)
    out = ours(*inputs, softmax_scale=scale, **terms)
    want, _ = attend(*inputs, scale=scale.double(), **terms)
    dout = normal(*out.shape, dtype=dtype, device=device)
    (got,) = torch.autograd.grad(out, scale, dout, retain_graph=True)
    expected, dq = torch.autograd.grad(want, (scale, inputs[0]), dout.double())
    size = ((dq.double() * inputs[0].double()).square().sum().sqrt() / 0.25).item()
    assert abs(got.item() - expected.item()) <= 2 * BOUND[dtype] * size
    alone = torch.autograd.grad(out, inputs, dout, retain_graph=True)
    plain = ours(*inputs, softmax_scale=0.25, deterministic=True, **terms)
    assert_close(out, plain.double(), 0)
    for a, b in zip(alone, torch.autograd.grad(plain, inputs, dout), strict=True):
        assert_close(a, b.double(), 0 if device == "cpu" else 4 * BOUND[dtype])


@each_type
def test_gradient_is_of_dq_before_rounding(device, dtype):
    """Rounding dq to 16 bits first moves it by 3e-4 (F16) to 4e-3 (BF16) of that size."""
    x = qkv(dtype, device)
    scale = torch.tensor(0.25, device=device, requires_grad=True)
    out, lse = ours(*x, softmax_scale=scale, return_lse=True, deterministic=True)
    dout = normal(*out.shape, dtype=dtype, device=device)
    (got,) = torch.autograd.grad(out, scale, dout)
    q, *others = (t.detach() for t in (*x, out, lse))
    dq, _, _ = fa3.attention_backward(dout, q, *others, softmax_scale=0.25, deterministic=True,
                                      grad_dtype="float32")  # fmt: skip
    terms = dq.double() * q.double() / 0.25
    assert abs(got.item() - terms.sum().item()) <= 1e-6 * terms.square().sum().sqrt().item()


@each_device
@pytest.mark.parametrize(
    "shape, dtype", [((), torch.float64), ((1,), torch.bfloat16), ((1, 1), None)]
)
def test_gradient_is_like_the_scale(device, shape, dtype):
    """Also on another device than q's, and where only the scale requires a gradient."""
    inputs = qkv(some(device), device, grad=False)
    scale = torch.full(shape, 0.25, dtype=dtype).requires_grad_()
    (got,) = torch.autograd.grad(ours(*inputs, softmax_scale=scale).float().square().sum(), scale)
    assert got.shape == scale.shape and got.dtype == scale.dtype and got.device == scale.device
    exact = scale.detach().double().requires_grad_()
    want = attend(*inputs, scale=exact.squeeze())[0].square().sum()
    (want,) = torch.autograd.grad(want, exact)
    assert_close(got, want, 2e-2 if scale.dtype == torch.bfloat16 or device == "cuda" else 1e-5)


@each_device
def test_rows_of_no_sequence_do_not_count(device):
    """Whatever they hold; NaN in one that counts reaches the gradient."""
    q, k, v = qkv(some(device), device, batch=1, rows=20, keys=20, grad=False)
    cu = torch.tensor([0, 9, 15], dtype=torch.int32, device=device)
    used = torch.tensor([7, 6], dtype=torch.int32, device=device)
    scale = torch.tensor(0.25, device=device, requires_grad=True)
    how = {"cu_seqlens_q": cu, "cu_seqlens_kv": cu, "seqused_q": used, "seqused_kv": used}
    inputs = [x[0] for x in (q, k, v)]

    def gradient(q):
        out = ours(q, *inputs[1:], softmax_scale=scale, deterministic=True, **how)
        return torch.autograd.grad(out[:15].float().square().nansum(), scale)[0]

    want, spoilt = gradient(inputs[0]), inputs[0].clone()
    spoilt[7:9] = torch.nan
    spoilt[15:] = torch.nan
    assert torch.isfinite(want) and want != 0
    assert torch.equal(gradient(spoilt), want)
    spoilt[3] = torch.nan
    assert gradient(spoilt).isnan()


@each_device
@pytest.mark.parametrize("precision", ["default", "fp8"])
def test_autocast_and_8_bits(device, precision):
    """Gradients are those of the inputs before rounding to 8 bits."""
    q, k, v = qkv(torch.float32, device, d=64, d_v=64)
    scale = torch.tensor(0.2, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        out = ours(q, k, v, softmax_scale=scale, precision=precision)
    dout = normal(*out.shape, dtype=out.dtype, device=device)
    got, dq = torch.autograd.grad(out, (scale, q), dout)
    assert got.dtype == torch.float32
    size = ((dq * q).square().sum().sqrt() / 0.2).item()
    want = attend(q, k, v, scale=scale.double())[0]
    (want,) = torch.autograd.grad(want, scale, dout.double())
    assert abs(got.item() - want.item()) <= (0.1 if precision == "fp8" else 0.03) * size


@each_device
def test_a_scale_of_0(device):
    """Keys that are seen count alike; a scale that passes through 0 has its gradient there."""
    inputs = qkv(some(device), device)
    bound = BOUND[some(device)]
    scale = torch.zeros((), device=device, requires_grad=True)
    for terms in ({}, {"causal": True}, {"softcap": 3.0, "window": (5, 1)}):
        want, want_lse = attend(*inputs, scale=scale.double(), **terms)
        dout = normal(*want.shape, device=device).double()
        expected = torch.autograd.grad(want, (*inputs, scale), dout)
        for given in (scale, 0, 0.0):
            out, lse = ours(*inputs, softmax_scale=given, return_lse=True, **terms)
            assert_close(out, want, bound)
            assert_close(lse, want_lse, 1e-5)
            wrt = (*inputs, scale) if given is scale else inputs
            got = torch.autograd.grad(out, wrt, dout.to(out.dtype))
            assert not got[0].any() and not got[1].any()
            for a, b in zip(got[2:], expected[2:], strict=False):
                assert_close(a, b, 4 * bound)
    bad = inputs[0].detach().clone()
    bad[0, 3, 1] = torch.nan
    assert ours(bad, *inputs[1:], softmax_scale=0)[0, 3, 1].isnan().all()


@each_device
@pytest.mark.parametrize("scale", [0, 0.0, -0.5, torch.tensor(0.3)], ids=str)
def test_scales_of_sdpa(device, scale):
    inputs = [x.transpose(1, 2) for x in qkv(some(device), device, heads_kv=4, grad=False)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        want = theirs(*(x.double() for x in inputs), scale=float(scale))
    got = fa3.torch.scaled_dot_product_attention(*inputs, scale=scale)
    assert_close(got, want, BOUND[some(device)])


@pytest.mark.parametrize("family", [two, three])
def test_learnable_scale_of_flash_attn_func(family):
    inputs = qkv(grad=False)
    scale = torch.tensor(0.3, requires_grad=True)
    out = family.flash_attn_func(*inputs, softmax_scale=scale, causal=True)
    want, _ = attend(*inputs, scale=scale.double(), causal=True)
    (got,) = torch.autograd.grad(out.square().sum(), scale)
    (want,) = torch.autograd.grad(want.square().sum(), scale)
    assert_close(got, want, 1e-5)


def test_learnable_scale_of_sdpa():
    """PyTorch's own refuses it."""
    inputs = [x.transpose(1, 2) for x in qkv(heads_kv=4, grad=False)]
    scale = torch.tensor(0.3, requires_grad=True)
    out = fa3.torch.scaled_dot_product_attention(*inputs, scale=scale)
    s = torch.einsum("bhid,bhjd->bhij", *(x.double() for x in inputs[:2])) * scale.double()
    want = torch.einsum("bhij,bhjd->bhid", s.softmax(-1), inputs[2].double())
    (got,) = torch.autograd.grad(out.square().sum(), scale)
    (want,) = torch.autograd.grad(want.square().sum(), scale)
    assert_close(got, want, 1e-5)


def test_transforms_of_a_scale():
    from torch.func import grad, vmap

    inputs = qkv(grad=False)

    def loss(scale):
        return ours(*inputs, softmax_scale=scale).square().sum()

    scales = torch.tensor([0.2, 0.5])
    leaves = [s.clone().requires_grad_() for s in scales]
    want = torch.stack([torch.autograd.grad(loss(s), s)[0] for s in leaves])
    assert_close(grad(loss)(scales[0]), want[0].double(), 1e-6)
    assert_close(vmap(grad(loss))(scales), want.double(), 1e-6)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives"):
        torch.func.jvp(loss, (scales[0],), (scales[1],))
    with pytest.raises(NotImplementedError, match="second derivatives"):
        grad(grad(loss))(scales[0])


LEAF = torch.tensor(2.0, requires_grad=True)
LEAVES = torch.ones(4, requires_grad=True)
X = torch.ones(2, 6, 4, 16)
CODES = X.to(torch.float8_e4m3fn)
REFUSED = {
    "softcap": (lambda: ours(X, X, X, softcap=LEAF), "softcap: requires a gradient"),
    "slopes": (lambda: ours(X, X, X, alibi_slopes=LEAVES), "alibi_slopes: requires a gradient"),
    "scale without records": (
        lambda: fa3.attention(X, X, X, softmax_scale=LEAF),
        "softmax_scale: requires a gradient.*use fa3.torch, or softmax_scale.detach",
    ),
    "softcap without records": (
        lambda: fa3.attention(X, X, X, softcap=LEAF),
        r"softcap: requires a gradient.*pass softcap.detach\(\)",
    ),
    "scale of codes": (
        lambda: fa3.torch.attention_on_codes(CODES, CODES, CODES, softmax_scale=LEAF),
        "softmax_scale: requires a gradient",
    ),
    "scales of codes": (
        lambda: fa3.torch.attention_on_codes(CODES, CODES, CODES, k_scale=LEAVES[:1]),
        "k_scale: requires a gradient",
    ),
    "several scales": (
        lambda: ours(X, X, X, softmax_scale=LEAVES),
        r"softmax_scale: torch.float32, shape \(4,\), need a number, or a tensor of one",
    ),
    "complex": (lambda: ours(X, X, X, softcap=torch.tensor(1j)), "softcap: torch.complex64"),
    "half a token": (
        lambda: ours(X, X, X, max_seqlen_q=torch.tensor(2.0)),
        r"max_seqlen_q: torch.float32, shape \(\), need a whole number, or a tensor of one",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name, monkeypatch):
    """Before anything runs."""
    call, message = REFUSED[name]
    for module in (fa3.torch.operators, fa3.torch.codes):
        monkeypatch.setattr(module, "execute", None)
    with pytest.raises(ValueError, match=message):
        call()


def test_without_records_a_leaf_is_a_number():
    want = ours(X, X, X, softmax_scale=2.0, softcap=2.0)
    with torch.no_grad():
        assert torch.equal(ours(X, X, X, softmax_scale=LEAF, softcap=LEAF), want)


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan"), float("-inf")])
def test_dropout_that_is_none(p):
    """PyTorch refuses it, too, and in other words."""
    with pytest.raises(ValueError, match=f"dropout_p: {p}, need a probability, 0 to 1"):
        fa3.torch.scaled_dot_product_attention(X, X, X, dropout_p=p)
    with pytest.raises(RuntimeError):
        theirs(X, X, X, dropout_p=p)
    for p in (None, "0"):
        with pytest.raises(TypeError, match="dropout_p: .*, need a number"):
            fa3.torch.scaled_dot_product_attention(X, X, X, dropout_p=p)
    for p in (0.1, 1, True):
        with pytest.raises(NotImplementedError, match="dropout is not offered"):
            fa3.torch.scaled_dot_product_attention(X, X, X, dropout_p=p)
