#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""decode_gpu.py — attention of few queries on one Hopper GPU: fa3 beside cuDNN through PyTorch's
SDPA, and beside the original where its wheel (tokenspeed-fa3) can be imported.

Each contender is a captured graph of 100 calls that go through more keys and values than L2 holds,
one after another (at batch 1 and 1k keys 50 MB, partly from L2); graphs take turns, medians of 5.
Lengths are on the device (seqused_kv) for fa3 and the original, which has its metadata. The first
output is compared with FP32. Pages lie in random order; beside them stands fa3 on dense keys. One
JSON object a line, the first about machine and commit. --prefill: prompts in pages instead, in
graphs of 10 calls, compared with FP32 in their last queries. --batch-invariant: fa3 beside itself
with that option, of few queries and of prompts. --unequal: sequences of all lengths in pages, as
servers have them, and rows of nobody that pad a batch. --codes: K and V of E4M3 under Q of BF16
and of E4M3 beside BF16, and the original under Q of E4M3.
"""

import math
import random
import statistics

import gpu_run
import torch
from fa3_ctypes import forward_args
from gpu_run import emit, stream_handle
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    import flash_attn_interface as original
except ImportError:
    original = None

MOST_COMPARED = 64
L2_BYTES = 260e6  # of keys and values before the first ones come again
# batch, keys, query heads, KV heads, head dim, queries, and rows of a page or 0
BATCHES = [
    (1, 1024), (1, 4096), (1, 32768), (1, 131072), (4, 4096), (16, 1024), (16, 4096), (16, 32768),
    (32, 512), (32, 4096), (64, 1024), (128, 1024), (128, 4096), (128, 16384), (256, 1024),
]  # fmt: skip
FACTORS = [
    (64, 8, 128, 1), (16, 16, 128, 1), (128, 1, 128, 1), (32, 8, 64, 1), (32, 8, 256, 1),
    (32, 8, 128, 4), (32, 8, 128, 16),
]  # fmt: skip
OTHERS = [
    (1, 1024, 32, 4, 128, 1), (1, 4096, 32, 4, 128, 1), (1, 32768, 32, 4, 128, 1),
    (1, 8192, 64, 8, 128, 1), (1, 65536, 64, 8, 128, 1), (1, 8192, 16, 16, 128, 1),
    (64, 4096, 64, 8, 128, 16), (16, 4096, 32, 8, 128, 32), (16, 4096, 32, 8, 128, 64),
    (16, 4096, 32, 8, 64, 64), (1, 8192, 32, 8, 128, 64), (1, 8192, 32, 8, 256, 64),
    (1, 32768, 64, 8, 128, 128), (1, 8192, 32, 8, 128, 256), (8, 16384, 64, 8, 128, 32),
    (16, 4096, 128, 1, 128, 8), (1, 4096, 32, 8, 128, 64), (4, 4096, 32, 8, 128, 16),
    (8, 8192, 32, 8, 128, 1), (8, 8192, 128, 1, 128, 1), (16, 16384, 64, 8, 128, 1),
    (32, 4096, 32, 8, 64, 1), (32, 4096, 32, 8, 256, 1), (32, 4096, 32, 8, 128, 4),
    (32, 4096, 64, 8, 128, 8), (8, 8192, 32, 8, 128, 16), (8, 8192, 32, 8, 256, 16),
]  # fmt: skip
CELLS = (
    [(*size, 32, 8, 128, 1) for size in BATCHES]
    + [(batch, 4096, *factor) for factor in FACTORS for batch in (1, 16, 128)]
    + OTHERS
)
PAGED = [(b, 4096, 32, 8, 128, 1, p) for b in (1, 16, 128) for p in (1, 16, 64)] + [
    (1, 4096, 32, 4, 128, 1, 16), (1, 65536, 64, 8, 128, 1, 16), (16, 4096, 16, 16, 128, 1, 16),
    (32, 4096, 32, 8, 128, 1, 1), (32, 4096, 32, 8, 128, 1, 4), (32, 4096, 32, 8, 128, 1, 16),
    (32, 4096, 32, 8, 128, 1, 64), (32, 4096, 32, 8, 128, 1, 256), (32, 4096, 32, 8, 64, 1, 16),
    (32, 4096, 32, 8, 256, 1, 16), (32, 4096, 32, 8, 128, 4, 16), (128, 1024, 32, 8, 128, 1, 16),
    (8, 8192, 32, 8, 128, 16, 16),
]  # fmt: skip
PREFILL = [
    (2, 4096, 32, 8, 128, 4096, 1), (2, 4096, 32, 8, 128, 4096, 16),
    (2, 4096, 32, 8, 128, 4096, 64), (2, 4096, 32, 8, 128, 4096, 256),
    (2, 4096, 32, 8, 64, 4096, 16), (2, 4096, 32, 8, 256, 4096, 16),
    (8, 8192, 32, 8, 128, 512, 16), (8, 8192, 32, 8, 128, 512, 1),
]  # fmt: skip
INVARIANT = (
    [(*size, 32, 8, 128, 1) for size in BATCHES if size[0] in (1, 16, 32, 64, 128)]
    + [(batch, 4096, *factor) for factor in FACTORS for batch in (16, 128)]
    + [
        (2, 4096, 32, 8, 128, 4096), (2, 4096, 32, 8, 64, 4096), (2, 4096, 32, 8, 256, 4096),
        (1, 16384, 32, 8, 128, 16384), (8, 1024, 32, 8, 128, 1024), (2, 4096, 32, 8, 96, 4096),
        (8, 8192, 32, 8, 128, 512), (8, 8192, 32, 8, 64, 512),
    ]
)  # fmt: skip
# K and V of E4M3: the figures that are asked for at batch 1, batches, groups, head dims and pages.
CODES = [
    (1, 4096, 32, 4, 128, 1, 0), (1, 16384, 32, 4, 128, 1, 0), (1, 65536, 32, 4, 128, 1, 0),
    (1, 262144, 32, 4, 128, 1, 0), (8, 8192, 32, 8, 128, 1, 0), (32, 4096, 32, 8, 128, 1, 0),
    (16, 16384, 64, 8, 128, 1, 0), (128, 1024, 32, 8, 128, 1, 0), (128, 4096, 32, 8, 128, 1, 0),
    (64, 4096, 64, 8, 64, 1, 0), (64, 4096, 32, 8, 256, 1, 0), (16, 4096, 16, 16, 128, 1, 0),
    (64, 8192, 128, 2, 128, 1, 0), (32, 4096, 32, 8, 128, 4, 0), (32, 8192, 32, 8, 128, 8, 0),
    (32, 8192, 64, 8, 128, 8, 0), (1, 8192, 32, 8, 128, 16, 0), (1, 8192, 32, 8, 128, 1, 0),
    (1, 4096, 32, 4, 128, 1, 16), (32, 4096, 32, 8, 128, 1, 16), (32, 4096, 32, 8, 128, 1, 64),
    (32, 4096, 32, 8, 128, 1, 1), (128, 4096, 32, 8, 128, 1, 16), (64, 4096, 64, 8, 64, 1, 16),
    (32, 4096, 32, 8, 128, 4, 16),
]  # fmt: skip
PAGE = 16  # of sequences of unequal lengths


def unequal():
    """Lengths of sequences by name: a key for each that only pads the batch."""
    rng = random.Random(1)
    log_normal = lambda n, median: [
        min(max(int(rng.lognormvariate(0, 1) * median), 1), 16 * median) for _ in range(n)
    ]
    return {
        "64 log-normal, median 1024": log_normal(64, 1024),
        "16 log-normal, median 1024": log_normal(16, 1024),
        "256 log-normal, median 256": log_normal(256, 256),
        "4 log-normal, median 4096": log_normal(4, 4096),
        "64 of 1 to 128": [rng.randint(1, 128) for _ in range(64)],
        "60 of 100, 4 of 16384": [100] * 60 + [16384] * 4,
        "1 of 32768, 31 of 500": [32768] + [500] * 31,
        "40 of 2000, 24 of nobody": [2000] * 40 + [0] * 24,
        "20 of 1500, 12 of nobody": [1500] * 20 + [0] * 12,
        "10 of 3000, 6 of nobody": [3000] * 10 + [0] * 6,
        "3 of 1500, 1 of nobody": [1500] * 3 + [0],
        "64 of 2000 and 2001": [2000, 2001] * 32,
    }


def captured(calls):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:3]:
            call()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for call in calls:
            call()
    graph.calls = calls  # Their workspaces: the next capture returns free memory to the driver.
    return graph


def us_a_call(graph, calls):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls


def in_turns(contenders, calls_a_graph, rounds):
    """Median µs of a call by name, of graphs that take turns; `contenders` has the calls by name,
    which are made one after the other."""
    graphs = {
        name: captured([each[i % len(each)] for i in range(calls_a_graph)])
        for name, each in contenders.items()
    }
    taken = {name: [] for name in graphs}
    for i in range(rounds + 1):
        for name, graph in graphs.items():
            us = us_a_call(graph, calls_a_graph)
            if i > 0:
                taken[name].append(us)
    return {name: {"us": statistics.median(us)} for name, us in taken.items()}


def error(q, k, v, o, causal):
    """Greatest difference from FP32; of prompts the first one's last queries."""
    if q.shape[1] > MOST_COMPARED:
        q, k, v, o = q[:1, -MOST_COMPARED:], k[:1], v[:1], o[:1, -MOST_COMPARED:]
    group, n, keys = q.shape[2] // k.shape[2], q.shape[1], k.shape[1]
    wide = lambda x: x.float().repeat_interleave(group, 2).transpose(1, 2)
    s = q.float().transpose(1, 2) @ wide(k).transpose(2, 3) / math.sqrt(q.shape[3])
    if causal:
        ahead = torch.arange(n, device="cuda")[:, None] + keys - n
        s.masked_fill_(torch.arange(keys, device="cuda")[None] > ahead, -math.inf)
    return (o.float() - (s.softmax(-1) @ wide(v)).transpose(1, 2)).abs().max().item()


def fa3_calls(context, args):
    """A call of one plan for each of the arguments, and the plan."""
    plan = context.plan_forward(args[0])
    plan.row = context.explain_forward(args[0])["sm90"]["row"]
    work = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
    return [lambda a=a: plan.run(work.data_ptr(), stream_handle(), a) for a in args], plan


def contenders(context, others, cell, q, caches, used, table, invariant):
    """Calls by name, one for each cache, fa3's output and the plans."""
    batch, keys, heads, heads_kv, d, queries, page = cell
    causal = queries > 1
    o = torch.empty_like(q)
    paged = lambda x: x.view(-1, page, heads_kv, d) if page else x
    extra = {"page_table": table} if page else {}
    args = lambda f, scalars=None, **extra: [
        forward_args("causal" if causal else "full", scalars, q=q, k=f(k), v=f(v), o=o,
                     seqused_kv=used, **extra) for k, v in caches]  # fmt: skip
    calls, plans = {}, []
    calls["fa3"], plan = fa3_calls(context, args(paged, **extra))
    plans.append(plan)
    if invariant:
        calls["fa3_invariant"], plan = fa3_calls(context, args(paged, {"batch_invariant": 1}))
        return calls, o, [*plans, plan]
    for name, other in others.items():
        calls[f"fa3_{name}"], plan = fa3_calls(other, args(paged, **extra))
        plans.append(plan)
    if page:
        calls["fa3_dense"], plan = fa3_calls(context, args(lambda x: x))
        plans.append(plan)
    if not causal and not page:

        def cudnn(k, v):
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(
                    q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), enable_gqa=True)

        calls["cudnn"] = [lambda k=k, v=v: cudnn(k, v) for k, v in caches]
    if original:
        metadata = original.get_scheduler_metadata(
            batch, queries, keys, heads, heads_kv, d, used, qkv_dtype=q.dtype, causal=causal,
            page_size=page or None)
        calls["original"] = [
            lambda k=k, v=v: original.flash_attn_with_kvcache(
                q, paged(k), paged(v), cache_seqlens=used, causal=causal,
                scheduler_metadata=metadata, page_table=table)
            for k, v in caches]  # fmt: skip
    return calls, o, plans


def measure(context, others, cell, rounds, invariant=False):
    batch, keys, heads, heads_kv, d, queries, page = cell
    size = 4 * batch * keys * heads_kv * d
    count = min(100, max(2, math.ceil(L2_BYTES / size))) if size >= 2.5e6 else 25
    calls_a_graph = 10 if queries > MOST_COMPARED else 100 if size < 1e9 else 20
    new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    caches = [[new(batch, keys, heads_kv, d) for _ in "kv"] for _ in range(count)]
    q = new(batch, queries, heads, d)
    used = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
    table = None
    if page:
        table = torch.randperm(batch * keys // page, device="cuda", dtype=torch.int32)
        table = table.view(batch, -1)
    calls, o, plans = contenders(context, others, cell, q, caches, used, table, invariant)
    calls["fa3"][0]()
    first = caches[0]
    if page:
        first = [x.view(-1, page, heads_kv, d)[table.long()].view(x.shape) for x in first]
    name = f"b{batch} k{keys} h{heads}/{heads_kv} d{d} q{queries}" + f" page{page}" * (page > 0)
    row = {"cell": name, "row": plans[0].row, "bytes": size,
           "max_error": error(q, *first, o, queries > 1)}  # fmt: skip
    row |= in_turns(calls, calls_a_graph, rounds)
    for plan in plans:
        plan.close()
    return row


def measure_unequal(context, others, name, lengths, rounds, heads=32, heads_kv=8, d=128):
    size = 4 * sum(lengths) * heads_kv * d
    count = min(40, max(2, math.ceil(L2_BYTES / size)))
    pages = [-(-n // PAGE) for n in lengths]
    new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    caches = [[new(sum(pages), PAGE, heads_kv, d) for _ in "kv"] for _ in range(count)]
    table = torch.full((len(lengths), max(pages)), -1, device="cuda", dtype=torch.int32)
    order = torch.randperm(sum(pages), device="cuda", dtype=torch.int32).split(pages)
    for row, mine in zip(table, order, strict=True):
        row[: len(mine)] = mine
    used = torch.tensor(lengths, device="cuda", dtype=torch.int32)
    q = new(len(lengths), 1, heads, d)
    o = torch.empty_like(q)
    args = [
        forward_args("full", None, q=q, k=k, v=v, o=o, seqused_kv=used, page_table=table)
        for k, v in caches
    ]
    made = {"fa3": fa3_calls(context, args)}
    made |= {f"fa3_{name}": fa3_calls(other, args) for name, other in others.items()}
    calls = {name: each for name, (each, _) in made.items()}
    if original:
        there = table.clamp(min=0)
        metadata = original.get_scheduler_metadata(
            len(lengths), 1, max(lengths), heads, heads_kv, d, used, qkv_dtype=q.dtype,
            page_size=PAGE)  # fmt: skip
        calls["original"] = [
            lambda k=k, v=v: original.flash_attn_with_kvcache(
                q, k, v, cache_seqlens=used, scheduler_metadata=metadata, page_table=there)
            for k, v in caches]  # fmt: skip
    calls["fa3"][0]()
    k, v = ([x[mine.long()].flatten(0, 1)[:n] for mine, n in zip(order, lengths, strict=True)]
            for x in caches[0])  # fmt: skip
    worst = max(
        error(q[i : i + 1], k[i][None], v[i][None], o[i : i + 1], False) if n > 0
        else o[i].abs().max().item() for i, n in enumerate(lengths)
    )  # fmt: skip
    taken = in_turns(calls, 40, rounds)
    for _, plan in made.values():
        plan.close()
    row = {"cell": name, "bytes": size, "max_error": worst}
    return row | taken


def measure_codes(context, others, cell, rounds):
    """K and V of E4M3 beside the same keys in BF16; bytes are those of the codes."""
    batch, keys, heads, heads_kv, d, queries, page = cell
    size = 2 * batch * keys * heads_kv * d
    count = min(100, max(2, math.ceil(L2_BYTES / size))) if size >= 2.5e6 else 25
    calls_a_graph = 10 if queries > MOST_COMPARED else 100 if size < 1e9 else 20
    new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    coded = lambda *shape: new(*shape).to(torch.float8_e4m3fn)
    shape = (batch, keys, heads_kv, d)
    codes = [[coded(*shape) for _ in "kv"] for _ in range(count)]
    wide = [[new(*shape) for _ in "kv"] for _ in range(max(2, count // 2))]
    q = new(batch, queries, heads, d)
    q8 = q.to(torch.float8_e4m3fn)
    o = torch.empty_like(q)
    used = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
    scale = torch.full((1,), 0.5, device="cuda")
    scales = scale.expand(batch, heads_kv)
    causal = queries > 1
    extra, table = {}, None
    if page:
        table = torch.randperm(batch * keys // page, device="cuda", dtype=torch.int32)
        extra["page_table"] = table = table.view(batch, -1)
    paged = lambda x: x.view(-1, page, heads_kv, d) if page else x
    args = lambda q, caches, **more: [
        forward_args("causal" if causal else "full", q=q, k=paged(k), v=paged(v), o=o,
                     seqused_kv=used, **extra, **more) for k, v in caches]  # fmt: skip
    of_keys = {"k_scale": scale, "v_scale": scale}
    contenders, plans = {}, []
    for name, given in {
        "fa3": args(q, codes, **of_keys),
        "fa3_q8": args(q8, codes, q_scale=scale, **of_keys),
        "fa3_bf16": args(q, wide),
    }.items():
        contenders[name], plan = fa3_calls(context, given)
        plans.append(plan)
    for name, other in others.items():
        contenders[f"fa3_{name}"], plan = fa3_calls(other, args(q, codes, **of_keys))
        plans.append(plan)
    if original:
        metadata = original.get_scheduler_metadata(
            batch, queries, keys, heads, heads_kv, d, used, qkv_dtype=q8.dtype, causal=causal,
            page_size=page or None)
        contenders["original"] = [
            lambda k=k, v=v: original.flash_attn_with_kvcache(
                q8, paged(k), paged(v), cache_seqlens=used, causal=causal, q_descale=scales,
                k_descale=scales, v_descale=scales, scheduler_metadata=metadata,
                page_table=table)
            for k, v in codes]  # fmt: skip
    contenders["fa3"][0]()
    first = [(0.5 * x[: MOST_COMPARED].float()) for x in codes[0]]
    if page:
        first = [0.5 * paged(x)[table[:MOST_COMPARED].long()].view(-1, *shape[1:]).float()
                 for x in codes[0]]  # fmt: skip
    few = slice(0, 2)
    name = f"b{batch} k{keys} h{heads}/{heads_kv} d{d} q{queries}" + f" page{page}" * (page > 0)
    row = {"cell": name, "row": plans[0].row, "bytes": size,
           "max_error": error(q[few], first[0][few], first[1][few], o[few], causal)}  # fmt: skip
    row |= in_turns(contenders, calls_a_graph, rounds)
    for plan in plans:
        plan.close()
    return row


def read_rate(out):
    """What a kernel reaches that only reads."""
    x = torch.empty(1 << 30, device="cuda")
    ms = statistics.median(gpu_run.elapsed_ms(x.sum, 5) for _ in range(9))
    emit(out, {"ceiling": "sum of 4 GiB", "gbytes_per_s": x.nbytes / ms * 1e-6})


def main():
    parser = gpu_run.arguments(__doc__, rounds=5)
    parser.add_argument("--prefill", action="store_true", help="prompts in pages")
    parser.add_argument("--batch-invariant", action="store_true", help="what the option costs")
    parser.add_argument("--unequal", action="store_true", help="lengths as servers have them")
    parser.add_argument("--codes", action="store_true", help="K and V of E4M3")
    gpu_run.add_also(parser)
    args = parser.parse_args()
    suite, cells = "decode", [(*cell, 0) for cell in CELLS] + PAGED
    if args.prefill:
        suite, cells = "prefill-pages", PREFILL
    elif args.batch_invariant:
        suite, cells = "batch-invariant", [(*cell, 0) for cell in INVARIANT]
    elif args.unequal:
        suite = "decode-unequal"
    elif args.codes:
        suite, cells = "decode-codes", CODES
    out, context = gpu_run.begin(args, suite)
    others = gpu_run.others(args)
    read_rate(out)
    with context:
        if args.unequal:
            for name, lengths in unequal().items():
                emit(out, measure_unequal(context, others, name, lengths, args.rounds))
            return
        for cell in cells:
            if args.codes:
                emit(out, measure_codes(context, others, cell, args.rounds))
                continue
            emit(out, measure(context, others, cell, args.rounds, args.batch_invariant))


if __name__ == "__main__":
    main()
