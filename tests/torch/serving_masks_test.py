# SPDX-License-Identifier: BSD-3-Clause
"""serving_masks_test.py — attention_chunk, tree_mask and max_logit of fa3.torch: gradients, the
compiler, and the names that others call chunks by."""

import fa3.compat.flash_attn_interface as three
import fa3.torch
import pytest
import torch
from torch_kit import BOUND, assert_close, each_device, each_type, normal, qkv, some

ours = fa3.torch.attention


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261130)


def exact(q, k, v, chunk=0, causal=False):
    """(out, lse, greatest score of each head) in FP64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    at = torch.arange(q.shape[1], device=q.device)[:, None] + k.shape[1] - q.shape[1]
    key = torch.arange(k.shape[1], device=q.device)[None]
    seen = at // chunk == key // chunk if chunk else torch.ones_like(at == key)
    if causal:
        seen = seen & (key <= at)
    s = s.masked_fill(~seen, -torch.inf)
    out = torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v)
    return out, torch.logsumexp(s, -1), s.amax((0, 2, 3))


@each_type
@pytest.mark.parametrize("causal", [False, True])
def test_chunks(device, dtype, causal):
    q, k, v = qkv(dtype, device)
    out, lse = ours(q, k, v, attention_chunk=10, causal=causal, return_lse=True)
    want, want_lse, _ = exact(q, k, v, 10, causal)
    assert_close(out, want, BOUND[dtype])
    assert_close(lse, want_lse, 1e-5)
    dout = normal(*out.shape, device=device).to(dtype)
    got = torch.autograd.grad(out, (q, k, v), dout)
    for a, b in zip(got, torch.autograd.grad(want, (q, k, v), dout.double()), strict=True):
        assert_close(a, b, 4 * BOUND[dtype])
    same = three.flash_attn_func(q, k, v, causal=causal, attention_chunk=10)
    assert torch.equal(same, out)


@each_type
def test_max_logit(device, dtype):
    q, k, v = qkv(dtype, device)
    out, lse, most = ours(q, k, v, causal=True, return_lse=True, return_max_logit=True)
    want, want_lse, want_most = exact(q, k, v, causal=True)
    assert_close(out, want, BOUND[dtype])
    assert_close(most, want_most, 1e-5)
    assert not most.requires_grad
    assert len(ours(q, k, v, return_max_logit=True)) == 2
    dout = normal(*out.shape, device=device).to(dtype)
    got = torch.autograd.grad(out, (q, k, v), dout)
    for a, b in zip(got, torch.autograd.grad(want, (q, k, v), dout.double()), strict=True):
        assert_close(a, b, 4 * BOUND[dtype])


@each_device
def test_under_a_compiler(device):
    q, k, v = qkv(some(device), device)

    def call(q, k, v, chunk):
        out, most = ours(q, k, v, attention_chunk=chunk, causal=True, return_max_logit=True)
        return out, most

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    for a, b in zip(compiled(q, k, v, 7), call(q, k, v, 7), strict=True):
        assert torch.equal(a, b)
    arguments = (q, k, v, *(None,) * 19, True, None, None, False, 7, None, 0.0, 0, 0, False, True)
    torch.library.opcheck(torch.ops.fa3.forward_max_logit.default, arguments)


@each_device
def test_trees(device):
    q, k, v = (x.detach() for x in qkv(some(device), device, rows=3))
    chain = torch.tensor([[[1, 0], [3, 0], [7, 0]]] * 2, dtype=torch.int32, device=device)
    assert_close(ours(q, k, v, tree_mask=chain), ours(q, k, v, causal=True), 1e-6)
    with pytest.raises(NotImplementedError, match="tree_mask: trees have no gradients"):
        ours(q.requires_grad_(), k, v, tree_mask=chain)


@each_device
def test_max_logit_of_what_is_appended(device):
    """That of attention on the keys that are there afterwards; compiled, too."""
    q, k, v = (x.detach() for x in qkv(some(device), device, rows=2))
    new, used = 2, torch.tensor([40, 13], dtype=torch.int32, device=device)
    k_new, v_new = (torch.randn_like(x[:, :new]) * 3 for x in (k, v))
    want_k, want_v = k.clone(), v.clone()
    for row, n in enumerate(used.tolist()):
        want_k[row, n : n + new], want_v[row, n : n + new] = k_new[row], v_new[row]
    given = {"causal": True, "return_lse": True, "return_max_logit": True}
    want = ours(q, want_k, want_v, seqused_kv=used + new, **given)

    def call(k, v):
        return ours(q, k, v, k_new=k_new, v_new=v_new, seqused_kv=used, **given)

    for take in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
        cache = k.clone(), v.clone()
        for a, b in zip(take(*cache), want, strict=True):
            assert_close(a, b, 1e-6 if device == "cpu" else 1e-2)
        for a, b in zip(cache, (want_k, want_v), strict=True):
            assert torch.equal(a, b)


def test_what_max_logit_does_not_offer():
    q, k, v = (x.detach().half() for x in qkv())
    with pytest.raises(NotImplementedError, match='return_max_logit with precision'):
        ours(q, k, v, precision="fp8", return_max_logit=True)


def test_chunks_of_caches_and_packed_sequences():
    q, k, v = (x.detach() for x in qkv(rows=4))
    used = torch.tensor([47, 30], dtype=torch.int32)
    cached = three.flash_attn_with_kvcache(q, k, v, cache_seqlens=used, causal=True,
                                           attention_chunk=10)  # fmt: skip
    for b, n in enumerate(used.tolist()):
        want, _, _ = exact(q[b : b + 1], k[b : b + 1, :n], v[b : b + 1, :n], 10, True)
        assert_close(cached[b : b + 1], want, BOUND[torch.float32])
    cu_q, cu_k = (torch.tensor([0, n, 2 * n], dtype=torch.int32) for n in (4, 47))
    packed = three.flash_attn_varlen_func(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), cu_q,
                                          cu_k, 4, 47, causal=True, attention_chunk=10)  # fmt: skip
    assert_close(packed.view_as(q), exact(q, k, v, 10, True)[0], BOUND[torch.float32])
