# SPDX-License-Identifier: BSD-3-Clause
"""compat_layers_test.py — flash_attn.bert_padding and flash_attn.layers.rotary: against loops over
tokens, and gradients against finite differences."""

import pytest
import torch
from fa3.compat import bert_padding as padding
from fa3.compat import rotary
from torch_kit import assert_close, each_device

styles = pytest.mark.parametrize("interleaved", [False, True])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261129)


# ---- Padding ------------------------------------------------------------------------------------


@each_device
@pytest.mark.parametrize("kind", [torch.bool, torch.int64])
def test_unpad_and_pad(device, kind):
    x = torch.randn(3, 5, 2, 4, device=device)
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 1]], device=device)
    unused = torch.tensor([[0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]], device=device)
    for extra in (None, unused):
        kept = mask if extra is None else mask + extra
        got, indices, cu, longest, used = padding.unpad_input(
            x, mask.to(kind), extra if extra is None else extra.to(kind)
        )
        want = torch.cat([x[b, kept[b].bool()] for b in range(3)])
        assert torch.equal(got, want) and torch.equal(x.flatten(0, 1)[indices], want)
        lengths = kept.sum(1).tolist()
        assert cu.tolist() == [0, lengths[0], lengths[0] + lengths[1], sum(lengths)]
        assert longest == max(lengths) and type(longest) is int
        assert used.tolist() == mask.sum(1).tolist()
        assert cu.dtype == used.dtype == torch.int32 and indices.dtype == torch.int64
        back = padding.pad_input(got, indices, 3, 5)
        assert torch.equal(back, x * kept[:, :, None, None])
        assert torch.equal(padding.pad_input(got, indices.int(), 3, 5), back)
    with pytest.raises(ValueError, match=r"attention_mask: shape \(3, 4\), need \(3, 5\)"):
        padding.unpad_input(x, mask[:, :4])
    with pytest.raises(ValueError, match=r"unused_mask: shape \(1, 5\), need \(3, 5\)"):
        padding.unpad_input(x, mask, mask[:1])


@each_device
def test_several_sequences_in_a_row(device):
    x = torch.randn(3, 6, 4, device=device)
    lengths = torch.tensor([[2, 3, 0, 0, 0, 0], [3, 2, 1, 0, 0, 0], [4, 0, 0, 0, 0, 0]])
    got, indices, cu, longest = padding.unpad_input_for_concatenated_sequences(
        x, lengths.to(device)
    )
    assert torch.equal(got, torch.cat([x[0, :5], x[1], x[2, :4]]))
    assert torch.equal(x.flatten(0, 1)[indices], got)
    assert cu.tolist() == [0, 2, 5, 8, 10, 11, 15] and cu.dtype == torch.int32 and longest == 4


def test_gradients_of_padding():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    indices = torch.tensor([3, 0, 1])
    check = torch.autograd.gradcheck
    assert check(lambda x: padding.index_first_axis(x, indices), (x,))
    assert check(lambda x: padding.index_first_axis_residual(x, indices), (x,))
    assert check(lambda x: padding.index_put_first_axis(x[:3], indices, 6), (x,))
    mask = torch.tensor([[1, 0], [1, 1]])
    assert check(lambda x: padding.unpad_input(x.view(2, 2, 3), mask)[0], (x,))
    assert check(lambda x: padding.pad_input(x, indices.new_tensor([0, 2, 3, 5]), 2, 3), (x,))
    first, residual = padding.index_first_axis_residual(x, indices)
    assert torch.equal(first, x[indices]) and torch.equal(residual, x)


# ---- Rotary embeddings --------------------------------------------------------------------------


def turned(x, cos, sin, interleaved, position):
    """By a loop over tokens and pairs, in FP64. x: (tokens, heads, head_dim)."""
    out = x.double().clone()
    half = cos.shape[1]
    for t, p in enumerate(position):
        for i in range(half if p < cos.shape[0] else 0):
            one, other = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
            c, s = cos[p, i].double(), sin[p, i].double()
            a, b = x[t, :, one].double(), x[t, :, other].double()
            out[t, :, one], out[t, :, other] = a * c - b * s, a * s + b * c
    return out


def table(rows=9, half=3, **options):
    angles = torch.randn(rows, half, **options)
    return angles.cos(), angles.sin()


@each_device
@styles
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-6), (torch.bfloat16, 8e-3)])
def test_apply_rotary_emb(device, interleaved, inplace, dtype, bound):
    x = torch.randn(2, 5, 3, 8, device=device).to(dtype)
    cos, sin = (t.to(dtype) for t in table(device=device))

    def apply(x, **options):
        given = x.clone()
        got = rotary.apply_rotary_emb(given, cos, sin, interleaved, inplace, **options)
        assert torch.equal(given, got if inplace else x)
        return got

    offsets = torch.tensor([4, 7], device=device)  # the last tokens are behind the table
    for offset, starts in ((0, (0, 0)), (4, (4, 4)), (offsets, (4, 7)), (offsets.int(), (4, 7))):
        want = [turned(x[b], cos, sin, interleaved, range(s, s + 5)) for b, s in enumerate(starts)]
        assert_close(apply(x, seqlen_offsets=offset), torch.stack(want), bound)
    flat = x.flatten(0, 1)
    cu = torch.tensor([0, 3, 3, 8], dtype=torch.int32, device=device)  # two tokens of none
    for offset, starts in ((0, (0, 0)), (torch.tensor([4, 5, 2], device=device), (4, 2))):
        position = [*range(starts[0], starts[0] + 3), *range(starts[1], starts[1] + 5), 99, 99]
        got = apply(flat, seqlen_offsets=offset, cu_seqlens=cu, max_seqlen=5)
        assert_close(got, turned(flat, cos, sin, interleaved, position), bound)


@styles
def test_apply_rotary_emb_torch(interleaved):
    x = torch.randn(2, 5, 3, 8)
    cos, sin = table(5)
    want = torch.stack([turned(part, cos, sin, interleaved, range(5)) for part in x])
    assert_close(rotary.apply_rotary_emb_torch(x, cos, sin, interleaved), want, 1e-6)
    half = torch.tensor([[-2.0, 1, -4, 3]] if interleaved else [[-3.0, -4, 1, 2]])
    assert torch.equal(rotary.rotate_half(torch.tensor([[1.0, 2, 3, 4]]), interleaved), half)


@styles
@pytest.mark.parametrize("inplace", [False, True])
def test_gradients_of_rotary(interleaved, inplace):
    """In place the tensor may be a leaf, as with the original."""
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64, requires_grad=True)
    cos, sin = table(dtype=torch.float64)

    def apply(x, *tables):
        tables = tables or (cos, sin)
        x = x.clone() if inplace else x  # gradcheck uses it again
        return rotary.apply_rotary_emb(x, *tables, interleaved, inplace, seqlen_offsets=2)

    assert torch.autograd.gradcheck(apply, (x,))
    if not inplace:
        assert torch.autograd.gradcheck(apply, (x, cos.requires_grad_(), sin.requires_grad_()))
        return
    dout = torch.randn_like(x)
    (want,) = torch.autograd.grad(apply(x), x, dout)
    leaf = x.detach().clone().requires_grad_()
    out = rotary.apply_rotary_emb(leaf, cos, sin, interleaved, True, 2)
    assert torch.equal(torch.autograd.grad(out, leaf, dout)[0], want)
    with pytest.raises(ValueError, match="cos, sin: require a gradient"):
        apply(x, cos.requires_grad_(), sin)


@styles
def test_packed_in_place(interleaved):
    cos, sin = table()
    cos_k, sin_k = table()

    def apply(x, cos, sin):
        return rotary.apply_rotary_emb(x, cos, sin, interleaved, seqlen_offsets=2)

    qkv = torch.randn(2, 5, 3, 4, 8, dtype=torch.float64, requires_grad=True)
    for tables in ((cos, sin, None, None), (cos, sin, cos_k, sin_k)):
        of_k = tables[2:] if tables[2] is not None else tables[:2]
        want = torch.stack(
            [apply(qkv[:, :, 0], cos, sin), apply(qkv[:, :, 1], *of_k), qkv[:, :, 2]], 2
        )
        dout = torch.randn_like(qkv)
        (gradient,) = torch.autograd.grad(want, qkv, dout)
        given = qkv.detach().clone().requires_grad_()
        got = rotary.apply_rotary_emb_qkv_(given, *tables, interleaved, 2)
        assert torch.equal(got, want) and torch.equal(given, want)
        assert_close(torch.autograd.grad(got, given, dout)[0], gradient, 1e-12)
    grouped = torch.randn(2, 5, 8, 8)
    want = torch.cat([apply(grouped[:, :, :6], cos, sin), grouped[:, :, 6:]], 2)
    got = rotary.apply_rotary_emb_qkv_(
        grouped, cos, sin, interleaved=interleaved, seqlen_offsets=2, num_heads_q=4
    )
    assert got.data_ptr() == grouped.data_ptr() and torch.equal(got, want)
    kv = torch.randn(2, 5, 2, 4, 8)
    want = torch.stack([apply(kv[:, :, 0], cos, sin), kv[:, :, 1]], 2)
    assert torch.equal(rotary.apply_rotary_emb_kv_(kv, cos, sin, interleaved, 2), want)


@pytest.mark.parametrize("scale_base", [None, 32.0])
def test_rotary_embedding(scale_base):
    layer = rotary.RotaryEmbedding(6, base=100.0, scale_base=scale_base)
    assert layer.inv_freq.tolist() == pytest.approx([1, 100 ** (-1 / 3), 100 ** (-2 / 3)])
    assert not layer.state_dict()
    angle = torch.arange(7).double()[:, None] * 100 ** (-torch.arange(3).double() / 3)
    size = 1.0
    if scale_base:
        column = (torch.arange(0, 6, 2).double() + 0.4 * 6) / (1.4 * 6)
        size = column ** ((torch.arange(7).double() - 3) / scale_base)[:, None]
    q, k, v = torch.randn(3, 2, 5, 4, 8)
    tables = (angle.cos() * size, angle.sin() * size), (angle.cos() / size, angle.sin() / size)
    want_q, want_k = (
        torch.stack([turned(x[b], *t, False, range(2, 7)) for b in range(2)])
        for x, t in zip((q, k), tables, strict=True)
    )
    for packed in (torch.stack([q, k, v], 2), torch.cat([q, k, v], 2)):
        heads = None if packed.dim() == 5 else 4
        got = layer(packed, seqlen_offset=2, num_heads_q=heads)
        assert got.data_ptr() == packed.data_ptr()
        got = got.unbind(2) if heads is None else got.split(4, 2)
        for a, b in zip(got, (want_q, want_k, v), strict=True):
            assert_close(a, b, 1e-5)
    got_q, got_kv = layer(q.clone(), torch.stack([k, v], 2), seqlen_offset=2)
    assert_close(got_q, want_q, 1e-5)
    assert_close(got_kv[:, :, 0], want_k, 1e-5)
    assert torch.equal(got_kv[:, :, 1], v)
    offsets = torch.tensor([2, 2])
    got_q, _ = layer(q.clone(), torch.stack([k, v], 2), seqlen_offset=offsets, max_seqlen=7)
    assert_close(got_q, want_q, 1e-5)


def test_tables_stay_exact_in_16_bits():
    """inv_freq cast with the module is computed anew."""
    layer = rotary.RotaryEmbedding(8).to(torch.bfloat16)
    qkv = torch.zeros(1, 900, 3, 1, 8, dtype=torch.bfloat16)
    qkv[..., 0] = 1
    got = layer(qkv)[0, 899, 0, 0]
    assert got[0].item() == pytest.approx(torch.tensor(899.0).cos().item(), abs=4e-3)


WRONG = {
    r"x: shape \(2, 5, 8\), need \(batch": lambda x, t: rotary.apply_rotary_emb(x[:, :, 0], *t),
    r"cos, sin: shapes \(9, 3\) and \(9, 2\)": lambda x, t: rotary.apply_rotary_emb(
        x, t[0], t[1][:, :2]
    ),
    "cos, sin: shapes .* of at most 4, ": lambda x, t: rotary.apply_rotary_emb(x[..., :4], *t),
    "seqlen_offsets: 5, need 0 to 4: 5 tokens": lambda x, t: rotary.apply_rotary_emb(
        x, *t, seqlen_offsets=5
    ),
    r"seqlen_offsets: torch.float32 \(2,\), need int32": lambda x, t: rotary.apply_rotary_emb(
        x, *t, seqlen_offsets=torch.ones(2)
    ),
    r"qkv: shape \(2, 5, 3, 8\) with num_heads_q=None": lambda x, t: rotary.apply_rotary_emb_qkv_(
        x, *t
    ),
    r"kv: shape \(2, 5, 3, 8\), need": lambda x, t: rotary.apply_rotary_emb_kv_(x, *t),
    "max_seqlen: None, need the table's length": lambda x, t: rotary.RotaryEmbedding(6)(
        x, seqlen_offset=torch.ones(2)
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_wrong_arguments_are_named(said):
    x = torch.randn(2, 5, 3, 8)
    before = x.clone()
    with pytest.raises(ValueError, match=said):
        WRONG[said](x, table())
    assert torch.equal(x, before)
