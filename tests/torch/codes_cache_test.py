# SPDX-License-Identifier: BSD-3-Clause
"""Caches of E4M3 under queries of 16 bits and of E4M3: fa3.torch.attention_on_codes, and the calls
of engines, beside attention in FP32 on the decoded keys."""

import math

import pytest
import torch

import fa3.torch
from fa3.compat import flash_attn_interface, sglang, vllm

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
E4M3 = torch.float8_e4m3fn
BATCH, HEADS, KV_HEADS, ROWS, PAGE = 3, 8, 2, 256, 16
GROUP = HEADS // KV_HEADS


class Cache:
    """Keys and values, dense or in pages, their scales, and the same in float32."""

    def __init__(self, device, head_dim, paged):
        torch.manual_seed(head_dim)
        new = lambda *shape: torch.randn(*shape).to(E4M3).to(device)
        shape = (BATCH * ROWS // PAGE, PAGE) if paged else (BATCH, ROWS)
        self.k, self.v = (new(*shape, KV_HEADS, head_dim) for _ in "kv")
        self.used = torch.tensor([200, 0, 17], dtype=torch.int32, device=device)
        self.k_scale = torch.rand(BATCH, KV_HEADS, device=device) + 0.5
        # One number for all, as engines expand it.
        self.v_scale = torch.tensor(0.7, device=device).expand(BATCH, KV_HEADS)
        self.table = None
        values = [x.float() for x in (self.k, self.v)]
        if paged:
            pages = torch.randperm(BATCH * ROWS // PAGE).view(BATCH, -1)
            self.table = pages.to(device, torch.int32)
            values = [x[self.table.long()].flatten(1, 2) for x in values]
        scales = (self.k_scale, self.v_scale)
        self.values = [x * s[:, None, :, None] for x, s in zip(values, scales, strict=True)]

    def expected(self, q, causal):
        """In float32, of (batch, queries, heads, head_dim)."""
        out = torch.zeros_like(q.float())
        queries = q.shape[1]
        for b, n in enumerate(self.used.tolist()):
            if n == 0:
                continue
            k, v = (x[b, :n].repeat_interleave(GROUP, 1) for x in self.values)
            s = torch.einsum("qhd,khd->hqk", q[b].float(), k) / math.sqrt(q.shape[-1])
            if causal:
                at = torch.arange(queries, device=q.device)[:, None] + n - queries
                s = s.masked_fill(torch.arange(n, device=q.device)[None] > at, -math.inf)
            out[b] = torch.einsum("hqk,khd->qhd", s.softmax(-1).nan_to_num(), v)
        return out


def queries(device, head_dim, dtype, count):
    """q, its scales or None, and their product."""
    q = torch.randn(BATCH, count, HEADS, head_dim, device=device).to(dtype)
    if dtype != E4M3:
        return q, None, q.float()
    scale = torch.rand(BATCH, KV_HEADS, device=device) + 0.5
    return q, scale, q.float() * scale.repeat_interleave(GROUP, 1)[:, None, :, None]


def near(got, want):
    torch.testing.assert_close(got.float(), want, atol=8e-3, rtol=8e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, E4M3])
@pytest.mark.parametrize("paged", [False, True])
def test_with_kvcache(device, head_dim, dtype, paged):
    cache = Cache(device, head_dim, paged)
    for count in (1, 3):
        q, scale, values = queries(device, head_dim, dtype, count)
        for module in (flash_attn_interface, sglang):
            out = module.flash_attn_with_kvcache(
                q, cache.k, cache.v, cache_seqlens=cache.used, page_table=cache.table,
                q_descale=scale, k_descale=cache.k_scale, v_descale=cache.v_scale, causal=True,
            )  # fmt: skip
            assert out.dtype == (torch.bfloat16 if dtype == E4M3 else dtype)
            near(out, cache.expected(values, causal=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, E4M3])
def test_vllm_packed_queries(device, dtype):
    cache = Cache(device, 128, True)
    cache.used = torch.tensor([200, 90, 17], dtype=torch.int32, device=device)
    q, scale, values = queries(device, 128, dtype, 4)
    cu = torch.tensor([0, 4, 8, 12], dtype=torch.int32, device=device)
    ones = torch.ones(1, 1, device=device).expand(BATCH, KV_HEADS)
    out = torch.empty_like(q, dtype=torch.bfloat16).flatten(0, 1)
    vllm.flash_attn_varlen_func(
        q.flatten(0, 1), cache.k, cache.v, 4, cu, ROWS, seqused_k=cache.used, causal=True,
        block_table=cache.table, out=out, q_descale=ones if scale is None else scale,
        k_descale=cache.k_scale, v_descale=cache.v_scale,
    )  # fmt: skip
    near(out.view(q.shape), cache.expected(values, causal=True))


@pytest.mark.parametrize("device", DEVICES)
def test_operator(device):
    cache = Cache(device, 64, True)
    q, _, values = queries(device, 64, torch.float16, 2)

    def call(q):
        return fa3.torch.attention_on_codes(
            q, cache.k, cache.v, seqused_kv=cache.used, page_table=cache.table,
            k_scale=cache.k_scale, v_scale=cache.v_scale, return_lse=True,
        )  # fmt: skip

    out, lse = call(q)
    near(out, cache.expected(values, causal=False))
    assert (lse[1] == -math.inf).all() and out.dtype == torch.float16
    compiled = torch.compile(call, fullgraph=True, backend="eager")
    assert torch.equal(compiled(q)[0], out)


@pytest.mark.parametrize("device", DEVICES)
def test_wide_range_of_bf16(device):
    """Rows of BF16 that F16 could not hold."""
    cache = Cache(device, 64, False)
    q = torch.randn(BATCH, 1, HEADS, 64, device=device)
    powers = torch.tensor([2.0**k for k in (-60, -20, 0, 5, 20, 60, -100, 1)], device=device)
    q = (q * powers[:, None]).bfloat16()
    out = fa3.torch.attention_on_codes(
        q, cache.k, cache.v, seqused_kv=cache.used, k_scale=cache.k_scale, v_scale=cache.v_scale
    )
    near(out, cache.expected(q, causal=False))


def test_refusals():
    cache = Cache("cpu", 64, False)
    q, _, _ = queries("cpu", 64, torch.bfloat16, 1)
    call = flash_attn_interface.flash_attn_with_kvcache
    with pytest.raises(ValueError, match="q_descale: given with q of torch.bfloat16"):
        call(q, cache.k, cache.v, cache_seqlens=cache.used, q_descale=cache.k_scale)
    with pytest.raises(ValueError, match=r"k_descale: float32 \(3, 8\), need float32 \(3, 2\)"):
        call(q, cache.k, cache.v, cache_seqlens=cache.used, k_descale=torch.ones(3, 8))
    with pytest.raises(ValueError, match="k_scale of sequence 0, head 1, row 0, column 0 is -1"):
        scale = cache.k_scale.clone()
        scale[0, 1] = -1
        call(q, cache.k, cache.v, cache_seqlens=cache.used, k_descale=scale)
    with pytest.raises(NotImplementedError, match="appending to a cache of FP8"):
        call(q, cache.k, cache.v, q[:, :, :2], q[:, :, :2], cache_seqlens=cache.used)
