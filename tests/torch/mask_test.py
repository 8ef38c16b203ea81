# SPDX-License-Identifier: BSD-3-Clause
"""mask_test.py — attn_mask with its gradient, and scaled_dot_product_attention beside PyTorch's."""

import fa3.torch
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as theirs
from torch_kit import BOUND, DEVICES, assert_close, dtypes, gradients, normal, qkv

ours = fa3.torch.scaled_dot_product_attention
BATCH, HEADS, ROWS, KEYS = 2, 4, 33, 47


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261124)


def math(*inputs, **options):
    """PyTorch's in FP64; rows from which all is hidden, which it may make NaN, are 0."""
    doubles = [x.double() for x in inputs]
    mask = options.pop("attn_mask", None)
    if mask is not None and mask.is_floating_point():
        mask = mask.double()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return theirs(*doubles, attn_mask=mask, **options).nan_to_num(0.0)


SHAPES = [(BATCH, HEADS, ROWS, KEYS), (1, 1, ROWS, KEYS), (BATCH, 1, 1, KEYS), (HEADS, ROWS, 1),
          (ROWS, KEYS), (KEYS,), (1,), ()]  # fmt: skip


@pytest.mark.parametrize(("device", "dtype"), [(d, t) for d in DEVICES for t in dtypes(d)])
@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_added_masks_have_gradients(shape, softcap, dtype, device):
    q, k, v = qkv(dtype, device)
    mask = normal(*shape, dtype=dtype, device=device, grad=True)
    out = fa3.torch.attention(q, k, v, attn_mask=mask, softcap=softcap)
    group = [x.double().transpose(1, 2) for x in (q, k, v)]
    s = group[0] @ group[1].repeat_interleave(2, 1).mT * q.shape[-1] ** -0.5
    s = softcap * torch.tanh(s / softcap) if softcap else s
    p = torch.softmax(s + mask.double(), -1)
    want = (p @ group[2].repeat_interleave(2, 1)).transpose(1, 2)
    assert_close(out, want, BOUND[dtype])
    dout = normal(*out.shape, dtype=dtype, device=device)
    inputs = (q, k, v, mask)
    for got, x, expected in zip(
        gradients(out, inputs, dout), inputs, gradients(want, inputs, dout), strict=True
    ):
        assert got.dtype == x.dtype
        assert got.shape == x.shape
        bound = 4 * BOUND[dtype]
        if x is mask:  # a sum of many terms in its type's steps
            bound *= max(1.0, expected.abs().max().item())
            if shape[-1:] in ((), (1,)):  # all keys of a row: 0, but for δ, of O as it is rounded
                step = torch.finfo(dtype).eps / 2
                bound = max(bound, 3 * step * (out.double() * dout.double()).norm().item())
        assert_close(got, expected, bound)


@pytest.mark.parametrize("shape", [*SHAPES, (BATCH, HEADS, 1, 1)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_sdpa_with_masks(shape, causal):
    q, k, v = (x.transpose(1, 2) for x in qkv(heads_kv=HEADS))
    shown = torch.rand(shape) < 0.7
    for mask in (shown, torch.where(shown, torch.randn(shape), -torch.inf)):
        out = ours(q, k, v, attn_mask=mask, is_causal=causal)
        seen = torch.ones(ROWS, KEYS, dtype=torch.bool)
        both = mask
        if causal:
            hidden = ~seen.tril()
            both = (
                mask & ~hidden
                if mask.dtype == torch.bool
                else torch.where(hidden, -torch.inf, mask)
            )
        want = math(q, k, v, attn_mask=both)
        assert_close(out, want, BOUND[torch.float32])
        inputs = (q, k, v)
        dout = normal(*out.shape)
        rows = want.detach().abs().sum(-1, keepdim=True) > 0  # PyTorch's gradients of others: NaN
        if not rows.all():
            continue
        for got, expected in zip(
            gradients(out, inputs, dout), gradients(want, inputs, dout), strict=True
        ):
            assert_close(got, expected, 4 * BOUND[torch.float32])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows, keys", [(9, 9), (9, 14), (14, 9), (1, 5)])
def test_sdpa_is_causal_from_the_top_left(device, rows, keys):
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q, k, v = (x.transpose(1, 2) for x in qkv(dtype, device, heads_kv=4, rows=rows, keys=keys))
    out = ours(q, k, v, is_causal=True, scale=0.3)
    want = math(q, k, v, is_causal=True, scale=0.3)
    assert_close(out, want, BOUND[dtype])
    dout = normal(*out.shape, dtype=dtype, device=device)
    for got, expected in zip(
        gradients(out, (q, k, v), dout), gradients(want, (q, k, v), dout), strict=True
    ):
        assert_close(got, expected, 4 * BOUND[dtype])


FRONTS = {
    "none": ((), (), ()),
    "batch": ((3,), (3,), (3,)),
    "four": ((2, 3), (2, 3), (2, 3)),
    "five": ((2, 2, 3), (2, 2, 3), (2, 2, 3)),
    "broadcast": ((2, 3), (1, 3), (2, 1)),
    "missing": ((2, 3), (3,), ()),
    "empty batch": ((0, 3), (0, 3), (0, 3)),
}


@pytest.mark.parametrize("fronts", FRONTS.values(), ids=FRONTS.keys())
@pytest.mark.parametrize("masked", [False, True])
def test_sdpa_of_any_dimensions_in_front(fronts, masked):
    q, k, v = (
        normal(*front, n, d) for front, n, d in zip(fronts, (7, 11, 11), (16, 16, 8), strict=True)
    )
    mask = None
    if masked:
        mask = torch.rand(*torch.broadcast_shapes(*fronts), 7, 11) < 0.8
        mask[..., 0] = True
    out = ours(q, k, v, attn_mask=mask)
    want = math(q, k, v, attn_mask=mask)
    assert out.shape == want.shape
    assert_close(out, want, BOUND[torch.float32])


def test_sdpa_with_grouped_heads():
    q, k, v = (x.transpose(1, 2) for x in qkv())
    mask = torch.rand(4, 33, 47) < 0.9
    out = ours(q, k, v, attn_mask=mask, enable_gqa=True)
    group = [x.repeat_interleave(2, 1) for x in (k, v)]
    assert_close(out, math(q, *group, attn_mask=mask), BOUND[torch.float32])
    with pytest.raises(ValueError, match="enable_gqa"):
        ours(q, k, v[:, :1], enable_gqa=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sdpa_compiles(dynamic):
    def loss(q, k, v, mask):
        return ours(q, k, v, attn_mask=mask, is_causal=True).square().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (9, 12):
        inputs = [x.transpose(1, 2) for x in qkv(heads_kv=4, rows=rows, keys=14)]
        inputs.append(normal(rows, 14, grad=True))
        want = torch.autograd.grad(loss(*inputs), inputs)
        got = torch.autograd.grad(compiled(*inputs), inputs)
        for a, b in zip(got, want, strict=True):
            assert_close(a, b, 1e-5)


def test_masks_of_any_strides():
    q, k, v = qkv()
    mask = torch.randn(47, 33, 4).permute(2, 1, 0)
    want = fa3.torch.attention(q, k, v, attn_mask=mask.contiguous())
    assert torch.equal(fa3.torch.attention(q, k, v, attn_mask=mask), want)
    one = torch.zeros(()).expand(BATCH, HEADS, ROWS, KEYS).requires_grad_()
    out = fa3.torch.attention(q, k, v, attn_mask=one)
    assert_close(out, fa3.torch.attention(q, k, v), 1e-6)
    (gradient,) = gradients(out, (one,), normal(*out.shape))
    assert gradient.shape == one.shape
    assert gradient.sum(-1).abs().max() < 1e-4  # of a softmax


def test_other_types_become_float32():
    q, k, v = qkv(torch.bfloat16)
    mask = torch.randn(ROWS, KEYS).half().requires_grad_()
    out = fa3.torch.attention(q, k, v, attn_mask=mask)
    assert torch.equal(out, fa3.torch.attention(q, k, v, attn_mask=mask.float()))
    assert gradients(out, (mask,), normal(*out.shape))[0].dtype == torch.float16


REFUSED = {
    "dropout": (lambda x: ours(*x, dropout_p=0.1), NotImplementedError, "dropout_p: 0.1, need 0"),
    "integers": (
        lambda x: ours(*x, attn_mask=torch.ones(ROWS, KEYS, dtype=torch.int64)),
        TypeError,
        "attn_mask: torch.int64, need torch.bool",
    ),
    "shape": (
        lambda x: ours(*x, attn_mask=torch.ones(ROWS, KEYS + 1)),
        ValueError,
        r"attention: attn_mask.shape\[3\]=48 disagrees with seqlen_kv=47",
    ),
    "dimensions": (
        lambda x: fa3.torch.attention(*x, attn_mask=torch.ones(1, 1, 1, 1, 1)),
        ValueError,
        "attn_mask: 5 dimensions",
    ),
    "no tensor": (
        lambda x: fa3.torch.attention(*x, attn_mask=[True]),
        TypeError,
        "attn_mask: list, need a torch.Tensor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call([x.transpose(1, 2) for x in qkv(heads_kv=4)])
