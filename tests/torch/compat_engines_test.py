# SPDX-License-Identifier: BSD-3-Clause
"""compat_engines_test.py — what vLLM and SGLang call, in their words, on the layouts that they have
caches in."""

import fa3.compat.sglang as sglang
import fa3.compat.vllm as vllm
import pytest
import torch
from torch_kit import BOUND, assert_close, attend, each_device

HEADS, HEADS_KV, DIM, BLOCK = 8, 2, 64, 16


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261130)


class Batch:
    """Sequences in pages, (blocks, kv_heads, block, 2 · head_dim) in memory as vLLM has them."""

    def __init__(self, device, queries=(1, 5, 1), lengths=(40, 37, 16)):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.lengths, self.queries = lengths, queries
        pages = -(-max(lengths) // BLOCK)
        blocks = pages * len(lengths)
        memory = torch.randn(blocks, HEADS_KV, BLOCK, 2 * DIM).to(device, dtype)
        self.k, self.v = memory.transpose(1, 2).split(DIM, dim=-1)
        self.table = torch.randperm(blocks).view(len(lengths), pages).int().to(device)
        self.used = torch.tensor(lengths, dtype=torch.int32, device=device)
        self.cu_q = torch.tensor([0, *queries]).cumsum(0).int().to(device)
        self.q = torch.randn(sum(queries), HEADS, DIM).to(device, dtype)
        self.sinks = torch.randn(HEADS).to(device, dtype) + 2
        self.ones = torch.ones(1, 1, device=device).expand(len(lengths), HEADS_KV)

    def exact(self, **options):
        out, lse = [], []
        for i, (n, used) in enumerate(zip(self.queries, self.lengths, strict=True)):
            rows = [x[self.table[i].long()].flatten(0, 1)[None, :used] for x in (self.k, self.v)]
            first = int(self.cu_q[i])
            o, of_sum = attend(self.q[None, first : first + n], *rows, **options)
            out.append(o[0]), lse.append(of_sum[0])
        return torch.cat(out), torch.cat(lse, -1)


@each_device
@pytest.mark.parametrize("window", [None, [9, 0]])
def test_vllm(device, window):
    """Decode and prefill in one call, as its backend makes it."""
    b = Batch(device)
    want, of_sum = b.exact(causal=True, sinks=b.sinks, window=window and tuple(window))
    out = torch.empty_like(b.q)
    metadata = torch.zeros(1 + 4 * 4, dtype=torch.int32, device=device)
    got, lse = vllm.flash_attn_varlen_func(
        q=b.q, k=b.k, v=b.v, out=out, cu_seqlens_q=b.cu_q, max_seqlen_q=max(b.queries),
        seqused_k=b.used, max_seqlen_k=max(b.lengths), softmax_scale=DIM**-0.5, causal=True,
        alibi_slopes=None, window_size=window or [-1, -1], block_table=b.table, softcap=0.0,
        scheduler_metadata=metadata, fa_version=3, q_descale=b.ones, k_descale=b.ones,
        v_descale=b.ones, num_splits=32, s_aux=b.sinks, return_softmax_lse=True,
    )  # fmt: skip
    assert got.data_ptr() == out.data_ptr()
    assert_close(got, want, BOUND[got.dtype])
    assert_close(lse, of_sum, 1e-5)


@each_device
def test_vllm_encoder(device):
    b = Batch(device)
    want = torch.cat([attend(part[None], part[None, :, :HEADS_KV], part[None, :, :HEADS_KV])[0][0]
                      for part in b.q.split(b.queries)])  # fmt: skip
    kv = b.q[:, :HEADS_KV]
    got = vllm.flash_attn_varlen_func(
        b.q, kv, kv, max(b.queries), b.cu_q, max(b.queries), b.cu_q, window_size=[-1, -1],
        num_splits=1,
    )  # fmt: skip
    assert_close(got, want, BOUND[got.dtype])


@each_device
@pytest.mark.parametrize("page", [1, BLOCK])
def test_sglang(device, page):
    b = Batch(device)
    want, of_sum = b.exact(causal=True, sinks=b.sinks)
    table = b.table
    k, v = b.k, b.v
    if page == 1:  # its default: tables of tokens
        table = (table[:, :, None] * BLOCK + torch.arange(BLOCK, device=device)).flatten(1).int()
        k, v = (x.reshape(-1, 1, HEADS_KV, DIM) for x in (k, v))
    cu_k = torch.nn.functional.pad(b.used.cumsum(0), (1, 0)).int()
    got, lse, *_ = sglang.flash_attn_with_kvcache(
        q=b.q, k_cache=k, v_cache=v, page_table=table, cache_seqlens=b.used, cu_seqlens_q=b.cu_q,
        cu_seqlens_k_new=cu_k, max_seqlen_q=max(b.queries), softmax_scale=DIM**-0.5, causal=True,
        window_size=(-1, -1), softcap=0.0, k_descale=b.ones, v_descale=b.ones, num_splits=0, ver=3,
        return_softmax_lse=True, sinks=b.sinks, attention_chunk=None,
        scheduler_metadata=sglang.get_scheduler_metadata(batch_size=3, num_heads=HEADS),
    )  # fmt: skip
    assert_close(got, want, BOUND[got.dtype])
    assert_close(lse, of_sum, 1e-5)


@each_device
def test_sglang_varlen(device):
    b = Batch(device)
    kv = b.q[:, :HEADS_KV]
    want = torch.cat([attend(part[None], part[None, :, :HEADS_KV], part[None, :, :HEADS_KV],
                             causal=True)[0][0] for part in b.q.split(b.queries)])  # fmt: skip
    got = sglang.flash_attn_varlen_func(
        q=b.q, k=kv, v=kv, cu_seqlens_q=b.cu_q, cu_seqlens_k=b.cu_q, max_seqlen_q=5,
        max_seqlen_k=5, causal=True, only_qv=False, ver=3,
    )  # fmt: skip
    assert_close(got, want, BOUND[got.dtype])


def test_what_is_lacking_is_said():
    b = Batch("cpu")
    given = {"cu_seqlens_q": b.cu_q, "max_seqlen_q": 5, "max_seqlen_k": 40}
    paged = {"seqused_k": b.used, "block_table": b.table}
    for name, value in (("q_v", b.q), ("cp_world_size", 2), ("mask_mod", len), ("causal", b.used),
                        ("output_scale", b.ones), ("dropout_p", 0.1)):  # fmt: skip
        with pytest.raises(NotImplementedError, match=f"flash_attn_varlen_func: {name}: .*; "):
            vllm.flash_attn_varlen_func(b.q, b.k, b.v, **given, **paged, **{name: value})
    with pytest.raises(ValueError, match="need cu_seqlens_k, or seqused_k with block_table"):
        vllm.flash_attn_varlen_func(b.q, b.k, b.v, **given)
    with pytest.raises(NotImplementedError, match="flash_attn_with_kvcache: only_qv: "):
        sglang.flash_attn_with_kvcache(b.q, b.k, b.v, only_qv=True)
