# SPDX-License-Identifier: BSD-3-Clause
"""Keys in pages, slots and at any row: fa3.torch, the operators, the functions of flash_attn."""

import pytest
import torch
from fa3.compat import flash_attn as two
from fa3.compat import flash_attn_interface as three

import fa3

LENGTHS = (37, 0, 64, 5)
NAN = float("nan")


def table(batch, columns, pages):
    """Pages in random order, −1 behind those that lengths of 8 rows a page need."""
    order = torch.randperm(pages)[: batch * columns].reshape(batch, columns).to(torch.int32)
    for b, length in enumerate(LENGTHS[:batch]):
        order[b, -(-length // 8) :] = -1
    return order


@pytest.fixture
def paged():
    """q, dense k and v of which LENGTHS rows count, the same in pages of 8, and their table."""
    torch.manual_seed(0)
    q = torch.randn(4, 2, 8, 32, dtype=torch.bfloat16)
    k, v = (torch.randn(4, 64, 2, 32, dtype=torch.bfloat16) for _ in range(2))
    pages = table(4, 8, 40)
    cache = torch.full((40, 2, 8, 64), NAN, dtype=torch.bfloat16).transpose(1, 2)
    paged_k, paged_v = cache.split(32, dim=-1)  # as vLLM has them
    for b, length in enumerate(LENGTHS):
        for row in range(length):
            paged_k[pages[b, row // 8], row % 8] = k[b, row]
            paged_v[pages[b, row // 8], row % 8] = v[b, row]
    return q, k, v, paged_k, paged_v, pages, torch.tensor(LENGTHS, dtype=torch.int32)


def expected(q, k, v, used, **how):
    return fa3.torch.attention(q, k, v, seqused_kv=used, **how)


def test_pages(paged):
    q, k, v, paged_k, paged_v, pages, used = paged
    want = expected(q, k, v, used, causal=True)
    how = {"page_table": pages, "seqused_kv": used, "causal": True}
    assert torch.equal(fa3.torch.attention(q, paged_k, paged_v, **how), want)
    assert torch.equal(fa3.attention(q, paged_k, paged_v, **how), want)
    compiled = torch.compile(fa3.torch.attention, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, paged_k, paged_v, **how), want)


def test_slots_and_begins(paged):
    q, k, v, _, _, _, used = paged
    want = expected(q, k, v, used)
    order = torch.tensor([2, 0, 3, 5], dtype=torch.int32)
    slots = [torch.full((6, 70, 2, 32), NAN, dtype=torch.bfloat16) for _ in range(2)]
    for x, cache in zip((k, v), slots):
        cache[order.long(), 6:] = x
    begin = torch.full((4,), 6, dtype=torch.int32)
    how = {"kv_batch_idx": order, "kv_begin": begin, "seqused_kv": used}
    assert torch.equal(fa3.torch.attention(q, *slots, **how), want)
    packed = [x.flatten(0, 1) for x in slots]
    how = {"kv_begin": (order * 70 + 6).to(torch.int32), "seqused_kv": used}
    assert torch.equal(fa3.attention(q, *packed, **how, max_seqlen_kv=64), want)


def test_gradients_and_wrong_values_are_refused(paged):
    q, _, _, paged_k, paged_v, pages, used = paged
    how = {"page_table": pages, "seqused_kv": used}
    with pytest.raises(NotImplementedError, match="keys in a cache have no gradients"):
        fa3.torch.attention(q.requires_grad_(), paged_k, paged_v, **how)
    q = q.detach()
    pages[2, 1] = 40
    with pytest.raises(ValueError, match=r"page_table\[2, 1\]=40 is needed .* 0…39"):
        fa3.torch.attention(q, paged_k, paged_v, **how)
    with pytest.raises(ValueError, match="seqused_kv is absent"):
        fa3.torch.attention(q, paged_k, paged_v, page_table=pages)


@pytest.mark.parametrize("family", [two, three])
def test_with_kvcache(paged, family):
    q, k, v, paged_k, paged_v, pages, used = paged
    run = family.flash_attn_with_kvcache
    want = run(q, k, v, cache_seqlens=used, causal=True)
    how = {"cache_seqlens": used, "causal": True}
    assert torch.equal(run(q, paged_k, paged_v, block_table=pages, **how), want)
    assert torch.equal(run(q, paged_k, paged_v, block_table=pages.long(), **how), want)
    if family is three:
        assert torch.equal(run(q, paged_k, paged_v, page_table=pages, **how), want)
    order = torch.tensor([3, 1, 0, 2], dtype=torch.int32)
    how["cache_batch_idx"] = order.argsort().int()
    picked = run(q, k[order.long()], v[order.long()], **how)
    assert torch.equal(picked, want)
    table = torch.cat([pages[order.long()], pages[:1]])  # of more sequences
    assert torch.equal(run(q, paged_k, paged_v, block_table=table, **how), want)


@pytest.mark.parametrize("family", [two, three])
def test_leftpad_counts_from_the_first_row(family):
    """20 rows of which 5 are left out are 15 keys, as the original has it."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, n, 4, 32) for n in (1, 30, 30))
    pad = torch.tensor([5, 0], dtype=torch.int32)
    k[0, :5] = v[0, :5] = NAN
    used = torch.tensor([20, 30], dtype=torch.int32)
    got = family.flash_attn_with_kvcache(q, k, v, cache_seqlens=used, cache_leftpad=pad)
    one = fa3.torch.attention(q[:1], k[:1, 5:20], v[:1, 5:20])
    assert torch.equal(got[:1], one)
    # Without cache_seqlens all rows count.
    got = family.flash_attn_with_kvcache(q, k, v, cache_leftpad=pad)
    assert torch.equal(got[:1], fa3.torch.attention(q[:1], k[:1, 5:], v[:1, 5:]))


@pytest.mark.parametrize("family", [two, three])
def test_varlen_queries_of_pages(paged, family):
    """Prefill and decode in one call, as vLLM passes it."""
    q, k, v, paged_k, paged_v, pages, used = paged
    want = expected(q, k, v, used, causal=True).flatten(0, 1)
    cu_q = torch.tensor([0, 2, 4, 6, 8], dtype=torch.int32)
    cu_k = torch.cat([torch.zeros(1, dtype=torch.int32), used.cumsum(0).int()])
    out = torch.empty_like(want)
    lengths = {"max_seqlen_q": 2, "max_seqlen_k": 64, "cu_seqlens_q": cu_q}
    how = {"causal": True, "out": out, "block_table": pages}
    rows = (q.flatten(0, 1), paged_k, paged_v)
    got = family.flash_attn_varlen_func(*rows, cu_seqlens_k=cu_k, **lengths, **how)
    assert got is out and torch.equal(out, want)
    if family is two:
        private, *_ = two._flash_attn_varlen_forward(
            *rows, cu_q, cu_k, 2, 64, 0.0, None, True, block_table=pages
        )
        assert torch.equal(private, want)
        return
    out.fill_(NAN)
    family.flash_attn_varlen_func(*rows, cu_seqlens_k=None, seqused_k=used, **lengths, **how)
    assert torch.equal(out, want)
    private, *_ = three._flash_attn_forward(
        *rows, cu_seqlens_q=cu_q, max_seqlen_q=2, seqused_k=used, page_table=pages, causal=True
    )
    assert torch.equal(private, want)


def test_operator_is_sound(paged):
    q, _, _, paged_k, paged_v, pages, used = paged
    rest = (None, None, None, used, pages, *(None,) * 14, True, None, None, False, 0, None)
    torch.library.opcheck(
        torch.ops.fa3.forward.default,
        (q, paged_k, paged_v, *rest, 0.0, 0, 0, False, False, "default", 0, 0),
        test_utils=("test_schema", "test_faketensor"),
    )
