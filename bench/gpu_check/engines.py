#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""engines.py — calls as inference engines make them, on one Hopper GPU: fa3's functions of
flash_attn beside the original's, where its wheel (tokenspeed-fa3) can be imported, and beside FP32.

Caches are those of vLLM, K and V as halves of (blocks, heads, block, 2 · head_dim) in the order
rows first, and of SGLang, tables of tokens (pages of one row). A step of decode is captured in a
CUDA graph and replayed after its lengths and tables have changed. Prints a line a call; exit status
1 if a result is not within twice the original's error and a rounding.
"""

import itertools
import math
import sys

import torch
from fa3.compat import flash_attn_interface as ours

import fa3

try:
    import flash_attn_interface as original
except ImportError:
    original = None

NAN = float("nan")
failed = []


def judge(name, got, want, theirs=None):
    """got beside FP32 and, where it is there, beside the original's result."""
    error = (got.float() - want).abs().max().item()
    bound = 2**-8 * want.abs().max().item() + 1e-3
    text = f"{name}: error {error:.5f}"
    if theirs is not None:
        other = (theirs.float() - want).abs().max().item()
        bound = max(bound, 2 * other)
        text += f", the original's {other:.5f}"
    ok = error <= bound and not got.isnan().any()
    print(("ok   " if ok else "FAIL ") + text, flush=True)
    if not ok:
        failed.append(name)


def nan(*shape):
    return torch.full(shape, NAN, device="cuda", dtype=torch.bfloat16)


class Cache:
    """Sequences of `lengths` keys in pages of random order, NaN elsewhere."""

    def __init__(self, lengths, heads, d, page, halves):
        self.lengths, self.page = lengths, page
        columns = max(-(-n // page) for n in lengths) + 2
        pages = sum(-(-n // page) for n in lengths) + 7
        if halves:  # vLLM
            self.k, self.v = nan(pages, heads, page, 2 * d).transpose(1, 2).split(d, dim=-1)
        else:
            self.k, self.v = (nan(pages, page, heads, d) for _ in "kv")
        self.table = torch.full((len(lengths), columns), -1, device="cuda", dtype=torch.int32)
        free = iter(torch.randperm(pages).tolist())
        self.rows = []
        for b, n in enumerate(lengths):
            named = list(itertools.islice(free, -(-n // page)))
            self.table[b, : len(named)] = torch.tensor(named, dtype=torch.int32)
            key, value = (torch.randn(n, heads, d, device="cuda").bfloat16() for _ in "kv")
            at = torch.arange(n, device="cuda")
            where = torch.tensor(named, device="cuda")[at // page], at % page
            self.k[where], self.v[where] = key, value
            self.rows.append((key, value))
        self.used = torch.tensor(lengths, device="cuda", dtype=torch.int32)

    def without_nan(self):
        """For the original, which reads what lies behind a length."""
        return self.k.nan_to_num(), self.v.nan_to_num(), self.table.clamp(min=0)


def fp32(q, cache, cu, causal=True, window=(-1, -1), softcap=0.0):
    """O and LSE of packed queries, in FP32."""
    all_o, all_lse = [], []
    for b, (k, v) in enumerate(cache.rows):
        rows = q[cu[b] : cu[b + 1]].float().transpose(0, 1)
        group = rows.shape[0] // k.shape[1]
        wide = lambda x: x.float().repeat_interleave(group, 1).transpose(0, 1)
        s = rows @ wide(k).transpose(1, 2) / math.sqrt(q.shape[-1])
        s = softcap * torch.tanh(s / softcap) if softcap else s
        n, m = s.shape[1:]
        last = torch.arange(n, device="cuda")[:, None] + m - n
        key = torch.arange(m, device="cuda")[None]
        hidden = (key > last) if causal else torch.zeros(n, m, device="cuda", dtype=torch.bool)
        if window[0] >= 0:
            hidden = hidden | (key < last - window[0])
        s = s.masked_fill(hidden, -math.inf)
        all_o.append((s.softmax(-1).nan_to_num() @ wide(v)).transpose(0, 1))
        all_lse.append(s.logsumexp(-1))
    return torch.cat(all_o), torch.cat(all_lse, dim=1)


def of_original(q, cache, **how):
    """The original's result, if it is here and has the feature."""
    if original is None:
        return None
    k, v, table = cache.without_nan()
    try:
        return original.flash_attn_with_kvcache(q, k, v, page_table=table, **how)
    except RuntimeError as error:
        print("     the original declines:", str(error).splitlines()[0])
        return None


def starts(counts):
    return torch.tensor([0, *itertools.accumulate(counts)], device="cuda", dtype=torch.int32)


def metadata(library, queries, cache, heads, heads_kv, d, cu):
    return library.get_scheduler_metadata(
        batch_size=len(queries), max_seqlen_q=max(queries), max_seqlen_k=max(cache.lengths),
        num_heads_q=heads, num_heads_kv=heads_kv, headdim=d, cache_seqlens=cache.used,
        qkv_dtype=torch.bfloat16, cu_seqlens_q=cu, page_size=cache.page, causal=True,
        window_size=(-1, -1), num_splits=0)  # fmt: skip


def vllm(name, queries, lengths, heads=32, heads_kv=8, d=128, page=16, window=(-1, -1), cap=0.0):
    """Prompts and single tokens of one step in one call, into a tensor that is there."""
    cache, cu = Cache(lengths, heads_kv, d, page, halves=True), starts(queries)
    q = torch.randn(sum(queries), heads, d, device="cuda").bfloat16()
    out = torch.empty_like(q)
    plan = metadata(ours, queries, cache, heads, heads_kv, d, cu)
    ours.flash_attn_varlen_func(
        q=q, k=cache.k, v=cache.v, out=out, cu_seqlens_q=cu, cu_seqlens_k=None,
        max_seqlen_q=max(queries), seqused_k=cache.used, max_seqlen_k=max(lengths), causal=True,
        softmax_scale=d**-0.5, window_size=list(window), block_table=cache.table, softcap=cap,
        num_splits=0)  # fmt: skip
    del plan
    theirs = of_original(
        q, cache, cache_seqlens=cache.used, cu_seqlens_q=cu, max_seqlen_q=max(queries), causal=True,
        window_size=tuple(window), softcap=cap)  # fmt: skip
    judge(f"vllm {name}", out, fp32(q, cache, cu.tolist(), True, window, cap)[0], theirs)


def sglang(name, queries, lengths, heads=32, heads_kv=8, d=128, page=1):
    """flash_attn_with_kvcache with packed queries and tables of tokens."""
    cache, cu = Cache(lengths, heads_kv, d, page, halves=False), starts(queries)
    q = torch.randn(sum(queries), heads, d, device="cuda").bfloat16()
    how = {
        "cache_seqlens": cache.used, "cu_seqlens_q": cu, "max_seqlen_q": max(queries),
        "softmax_scale": d**-0.5, "causal": True, "window_size": (-1, -1), "softcap": 0.0,
        "num_splits": 0}  # fmt: skip
    got, lse, *_ = ours.flash_attn_with_kvcache(
        q, cache.k, cache.v, page_table=cache.table, cu_seqlens_k_new=starts(lengths),
        scheduler_metadata=metadata(ours, queries, cache, heads, heads_kv, d, cu),
        return_softmax_lse=True, **how)  # fmt: skip
    want, want_lse = fp32(q, cache, cu.tolist())
    theirs = of_original(q, cache, **how)
    judge(f"sglang {name}", got, want, theirs)
    judge(f"sglang {name}, LSE", lse, want_lse)


def cascade(queries=4, lengths=(900, 77, 1500), heads=32, heads_kv=8, d=128):
    """Speculative decoding with a tree: all drafts see the prefix, each its own keys; both parts
    are merged by their LSE."""
    cache = Cache(list(lengths), heads_kv, d, 1, halves=False)
    cu = starts([queries] * len(lengths))
    q = torch.randn(queries * len(lengths), heads, d, device="cuda").bfloat16()
    prefix = torch.tensor([n - queries for n in lengths], device="cuda", dtype=torch.int32)
    how = {"cu_seqlens_q": cu, "max_seqlen_q": queries, "return_softmax_lse": True}
    first, first_lse, *_ = ours.flash_attn_with_kvcache(
        q, cache.k, cache.v, page_table=cache.table, cache_seqlens=prefix, causal=False, **how)
    draft = torch.stack([cache.table[b, n - queries : n] for b, n in enumerate(lengths)])
    rest, rest_lse, *_ = ours.flash_attn_with_kvcache(
        q, cache.k, cache.v, page_table=draft.contiguous(), causal=True,
        cache_seqlens=torch.full_like(prefix, queries), **how)  # fmt: skip
    got, lse = fa3.torch.combine(torch.stack([first, rest]), torch.stack([first_lse, rest_lse]))
    want, want_lse = fp32(q, cache, cu.tolist())
    judge("cascade", got, want)
    judge("cascade, LSE", lse, want_lse)


def graph(page, batch=8, heads=32, heads_kv=8, d=128):
    """A captured step, replayed with other lengths, tables and queries: the bits of eager calls."""
    most = Cache([4000] * batch, heads_kv, d, page, halves=True)
    q = torch.randn(batch, 1, heads, d, device="cuda").bfloat16()
    out = torch.empty_like(q)
    call = lambda: ours.flash_attn_with_kvcache(
        q, most.k, most.v, page_table=most.table, cache_seqlens=most.used, causal=True, out=out)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        call()
    for lengths in ([4000] * batch, [1] * batch, [0, 5, 4000, 17, 1, 2048, 999, 16][:batch]):
        most.used.copy_(torch.tensor(lengths, dtype=torch.int32))
        most.table.copy_(most.table[torch.randperm(batch, device="cuda")])
        q.normal_()
        out.fill_(NAN)
        captured.replay()
        got = out.clone()
        out.fill_(NAN)
        call()
        same = torch.equal(got, out) and not got.isnan().any()
        print(("ok   " if same else "FAIL ") + f"graph, pages of {page}, lengths {lengths[:4]}…")
        if not same:
            failed.append(f"graph {page}")


def main():
    torch.manual_seed(0)
    ones = [1] * 32
    lengths = torch.randint(1, 4000, (32,)).tolist()
    vllm("decode", ones, lengths)
    vllm("decode, blocks of 48", ones, lengths, page=48)
    vllm("decode, window", ones, lengths, window=(512, 0))
    vllm("decode, softcap, heads of 64", ones, lengths, heads_kv=4, d=64, cap=30.0)
    vllm("prompts and tokens", [700, *ones, 33], [700, *lengths, 900])
    vllm("prompts and tokens, window", [700, *ones, 33], [1700, *lengths, 900], window=(256, 0))
    vllm("prompts, heads of 256", [300, 5], [300, 2000], heads=8, heads_kv=2, d=256)
    vllm("speculation", [4] * 16, [n + 4 for n in lengths[:16]])
    sglang("decode", ones, lengths)
    sglang("extend", [100, 7, 300], [1100, 7, 300])
    sglang("decode, pages of 64", ones, lengths, page=64)
    cascade()
    for page in (1, 16, 64):
        graph(page)
    if original is None:
        print("the original is not here: beside FP32 alone")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
