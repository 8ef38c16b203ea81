# SPDX-License-Identifier: BSD-3-Clause
"""append_test.py — new keys that attention writes into its cache, rotated or not: fa3.torch, the
operator, and flash_attn_with_kvcache of both families, as the originals have them."""

import fa3.compat.flash_attn as two
import fa3.compat.flash_attn_interface as three
import fa3.torch
import pytest
import torch
from torch_kit import each_device, some

import fa3

BATCH, HEADS, HEADS_KV, DIM, ROWS = 3, 8, 2, 64, 48
LENGTHS = (5, 40, 0)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261130)


class Case:
    """A cache, what is new, and both as they are afterwards."""

    def __init__(self, device, new=2, rotary_dim=DIM, interleaved=True, causal=True, first=None):
        self.dtype, self.device, self.new = some(device), device, new
        self.interleaved, self.causal = interleaved, causal
        normal = lambda *shape: torch.randn(shape).to(device, self.dtype)
        self.q = normal(BATCH, new, HEADS, DIM)
        self.k, self.v = (normal(BATCH, ROWS, HEADS_KV, DIM) for _ in "kv")
        self.k_new, self.v_new = (normal(BATCH, new, HEADS_KV, DIM) for _ in "kv")
        self.lengths = torch.tensor(LENGTHS, dtype=torch.int32, device=device)
        angles = 6.3 * torch.rand(ROWS + 20, rotary_dim // 2)
        self.cos, self.sin = (t.to(device, self.dtype) for t in (angles.cos(), angles.sin()))
        first = self.lengths if first is None else first
        at = torch.arange(new, device=device)
        queries = at if causal else 0 * at
        self.k_after, self.v_after, self.q_after = self.k.clone(), self.v.clone(), self.q.clone()
        for b, length in enumerate(LENGTHS):
            rows = slice(length, length + new)
            self.k_after[b, rows] = self.rotated(self.k_new[b], first[b] + at)
            self.v_after[b, rows] = self.v_new[b]
            self.q_after[b] = self.rotated(self.q[b], first[b] + queries)

    def rotated(self, x, positions):
        cos, sin = (t.float()[positions.long()][:, None] for t in (self.cos, self.sin))
        pairs = cos.shape[-1]
        turned, rest = x.float()[..., : 2 * pairs], x[..., 2 * pairs :]
        if self.interleaved:
            a, b = turned[..., ::2], turned[..., 1::2]
            turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        return torch.cat((turned.to(x.dtype), rest), -1)

    def want(self):
        return fa3.torch.attention(
            self.q_after, self.k_after, self.v_after, seqused_kv=self.lengths + self.new,
            causal=self.causal,
        )  # fmt: skip

    def tables(self):
        return {"rotary_cos": self.cos, "rotary_sin": self.sin,
                "rotary_interleaved": self.interleaved}  # fmt: skip

    def expect(self, got, k, v, want=None):
        close = {"atol": 2e-2, "rtol": 2e-2} if self.dtype != torch.float32 else {}
        torch.testing.assert_close(got, self.want() if want is None else want, **close)
        torch.testing.assert_close(k, self.k_after, **close)
        assert torch.equal(v, self.v_after)
        assert self.lengths.tolist() == list(LENGTHS)


@each_device
@pytest.mark.parametrize("family", [two, three])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rotary_dim", [64, 32])
def test_with_kvcache(device, family, interleaved, causal, rotary_dim):
    x = Case(device, 2, rotary_dim, interleaved, causal)
    k, v = x.k.clone(), x.v.clone()
    got = family.flash_attn_with_kvcache(
        x.q, k, v, x.k_new, x.v_new, cache_seqlens=x.lengths, causal=causal, **x.tables()
    )
    x.expect(got, k, v)


@each_device
@pytest.mark.parametrize("family", [two, three])
def test_pages_and_leftpad(device, family):
    """Positions count from the first row of the cache, what is left out included."""
    x = Case(device)
    order = torch.randperm(BATCH * 6)
    table = order.reshape(BATCH, 6).to(torch.int32).to(device)
    pages = lambda cache: cache.reshape(BATCH * 6, 8, HEADS_KV, DIM)[order.argsort().to(device)]
    k, v = pages(x.k), pages(x.v)
    got = family.flash_attn_with_kvcache(
        x.q, k, v, x.k_new, x.v_new, cache_seqlens=x.lengths, causal=True, block_table=table,
        **x.tables(),
    )  # fmt: skip
    back = lambda cache: cache[order.to(device)].reshape(BATCH, ROWS, HEADS_KV, DIM)
    x.expect(got, back(k), back(v))
    pad = torch.tensor([3, 7, 0], dtype=torch.int32, device=device)
    k, v = x.k.clone(), x.v.clone()
    got = family.flash_attn_with_kvcache(
        x.q, k, v, x.k_new, x.v_new, cache_seqlens=x.lengths, cache_leftpad=pad, causal=True,
        **x.tables(),
    )  # fmt: skip
    want = family.flash_attn_with_kvcache(
        x.q_after, x.k_after, x.v_after, cache_seqlens=x.lengths + 2, cache_leftpad=pad, causal=True
    )
    x.expect(got, k, v, want)


@each_device
def test_packed_new_keys_and_positions(device):
    first = torch.tensor([7, 40, 2], dtype=torch.int32, device=device)
    x = Case(device, first=first)
    cu = torch.arange(0, 2 * BATCH + 1, 2, dtype=torch.int32, device=device)
    k, v = x.k.clone(), x.v.clone()
    got = three.flash_attn_with_kvcache(
        x.q.flatten(0, 1), k, v, x.k_new.flatten(0, 1), x.v_new.flatten(0, 1),
        cache_seqlens=x.lengths, cu_seqlens_q=cu, cu_seqlens_k_new=cu, max_seqlen_q=2, causal=True,
        rotary_seqlens=first, **x.tables(),
    )  # fmt: skip
    x.expect(got.unflatten(0, (BATCH, 2)), k, v)
    k, v = x.k.clone(), x.v.clone()
    got, *_ = three._flash_attn_forward(
        x.q, k, v, x.k_new, x.v_new, seqused_k=x.lengths, seqlens_rotary=first, causal=True,
        **x.tables(),
    )  # fmt: skip
    x.expect(got, k, v)


@each_device
def test_packed_sequences_without_queries_get_their_keys(device):
    """FlashAttention-3 leaves these out."""
    x = Case(device)
    begins = lambda *counts: torch.tensor([0, *counts], dtype=torch.int32, device=device).cumsum(0)
    k, v = x.k.clone(), x.v.clone()
    got = three.flash_attn_with_kvcache(
        x.q[[0, 2]].flatten(0, 1), k, v, x.k_new.flatten(0, 1), x.v_new.flatten(0, 1),
        cache_seqlens=x.lengths, cu_seqlens_q=begins(2, 0, 2), cu_seqlens_k_new=begins(2, 2, 2),
        max_seqlen_q=2, causal=True, **x.tables(),
    )  # fmt: skip
    x.expect(got.unflatten(0, (2, 2)), k, v, x.want()[[0, 2]])


@each_device
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles(device, backend):
    x = Case(device, interleaved=False)
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend=backend)
    def step(q, k, v, k_new, v_new):
        out = fa3.torch.attention(
            q, k, v, k_new=k_new, v_new=v_new, rotary=(x.cos, x.sin), seqused_kv=x.lengths,
            causal=True,
        )  # fmt: skip
        return 2 * out

    k, v = x.k.clone(), x.v.clone()
    x.expect(step(x.q, k, v, x.k_new, x.v_new) / 2, k, v)


def test_operator_is_sound():
    x = Case("cpu")
    names = (None, None, None, x.lengths, *(None,) * 13)
    numbers = (None, None, True, None, None, False, 0, None, 0.0, 0, 0, False, False)
    torch.library.opcheck(
        torch.ops.fa3.append.default,
        (x.q, x.k, x.v, x.k_new, x.v_new, None, x.cos, x.sin, None, 1, *names, *numbers),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_arrays_of_numpy():
    x = Case("cpu", interleaved=False)
    k, v = x.k.numpy().copy(), x.v.numpy().copy()
    how = {"k_new": x.k_new.numpy(), "v_new": x.v_new.numpy(), "seqused_kv": x.lengths.numpy(),
           "rotary": (x.cos.numpy(), x.sin.numpy()), "causal": True}  # fmt: skip
    got = fa3.attention(x.q.numpy(), k, v, **how)
    x.expect(*(torch.from_numpy(t) for t in (got, k, v)))
    k.flags.writeable = False
    with pytest.raises(ValueError, match="k: a read-only array, need one that can be written"):
        fa3.attention(x.q.numpy(), k, v, **how)


def test_what_has_saved_the_cache_notices():
    x = Case("cpu")
    weight = torch.ones_like(x.k, requires_grad=True)
    product = (weight * x.k).sum()
    fa3.torch.attention(x.q, x.k, x.v, k_new=x.k_new, v_new=x.v_new, seqused_kv=x.lengths)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_refusals():
    x = Case("cpu")
    how = {"k_new": x.k_new, "v_new": x.v_new, "seqused_kv": x.lengths}
    with pytest.raises(NotImplementedError, match="appended to a cache have no gradients"):
        fa3.torch.attention(x.q.clone().requires_grad_(), x.k, x.v, **how)
    with pytest.raises(ValueError, match="rotary: given without k_new"):
        fa3.torch.attention(x.q, x.k, x.v, rotary=(x.cos, x.sin))
    with pytest.raises(ValueError, match='rotary_layout: "neox", need "halves" or "pairs"'):
        fa3.torch.attention(x.q, x.k, x.v, rotary=(x.cos, x.sin), rotary_layout="neox", **how)
    with pytest.raises(ValueError, match="sequence 1 has seqused_kv=47 keys and 2 new ones"):
        full = torch.tensor([5, 47, 0], dtype=torch.int32)
        fa3.torch.attention(x.q, x.k, x.v, **how | {"seqused_kv": full})
    for family in (two, three):
        call = family.flash_attn_with_kvcache
        with pytest.raises(ValueError, match="need both k and v"):
            call(x.q, x.k, x.v, x.k_new, cache_seqlens=x.lengths)
        with pytest.raises(ValueError, match="without k nothing is rotated"):
            call(x.q, x.k, x.v, cache_seqlens=x.lengths, rotary_cos=x.cos, rotary_sin=x.sin)
        with pytest.raises(ValueError, match="cache_seqlens: None beside k"):
            call(x.q, x.k, x.v, x.k_new, x.v_new)
