#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""append_gpu.py — what appending to a cache costs on one Hopper GPU, without and with rotary
embedding, beside the attention alone on the keys that are then there; and beside the original's
flash_attn_with_kvcache where a wheel of it can be imported (tokenspeed-fa3, or fa3-fwd, which has
no pages).

Each contender is a captured graph of calls that go through more keys and values than L2 holds, one
after another; graphs take turns, medians. The outputs of both ways are compared, and the cache. One
JSON object a line, the first about machine and commit.
"""

import math

import gpu_run
import torch
from decode_gpu import captured
from fa3_ctypes import forward_args
from gpu_run import emit, measure, stream_handle

try:
    import flash_attn_interface as original
except ImportError:
    try:
        import fa3_fwd_interface as original
    except ImportError:
        original = None

L2_BYTES = 260e6  # of keys and values before the first ones come again
# batch, keys before, new ones, query heads, KV heads, head dim, rows of a page or 0, mask
STEPS = [
    (b, keys, 1, *heads, page, "full")
    for heads in ((32, 8, 128), (64, 8, 64))
    for page in (0, 16)
    for b, keys in ((1, 1024), (1, 4096), (1, 32768), (16, 4096), (64, 1024), (128, 4096))
] + [
    (1, 65536, 1, 64, 8, 128, 0, "full"), (8, 8192, 1, 128, 1, 128, 0, "full"),
    (1, 8192, 1, 16, 16, 128, 0, "full"), (16, 4096, 4, 32, 8, 128, 16, "causal"),
    (1, 4096, 8, 32, 8, 128, 16, "causal"), (16, 4096, 1, 32, 8, 256, 0, "full"),
]  # fmt: skip
PROMPTS = [
    (16, 0, 1024, 32, 8, 128, 0, "causal"), (1, 0, 16384, 32, 8, 128, 0, "causal"),
    (1, 8192, 1024, 32, 8, 128, 16, "causal"), (8, 4096, 512, 32, 8, 128, 16, "causal"),
    (4, 0, 4096, 16, 16, 64, 0, "causal"), (4, 0, 4096, 32, 8, 256, 0, "causal"),
]  # fmt: skip


class Problem:
    def __init__(self, cell, copies):
        self.batch, self.before, self.fresh, heads, heads_kv, d, page, self.mask = cell
        new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        ints = lambda x: torch.full((self.batch,), x, dtype=torch.int32, device="cuda")
        self.q = new(self.batch, self.fresh, heads, d)
        self.k_new, self.v_new = (new(self.batch, self.fresh, heads_kv, d) for _ in "kv")
        rows = self.before + self.fresh
        shape, self.table = (self.batch, rows, heads_kv, d), None
        if page:
            pages = -(-rows // page)
            order = torch.randperm(self.batch * pages, device="cuda", dtype=torch.int32)
            shape, self.table = (len(order), page, heads_kv, d), order.view(self.batch, pages)
        self.caches = [(new(*shape), new(*shape)) for _ in range(copies)]
        self.lengths, self.lengths_after = ints(self.before), ints(rows)
        angles = torch.arange(rows, device="cuda")[:, None] * 1e4 ** (
            -torch.arange(d // 2, device="cuda") / (d // 2)
        )
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        self.o = torch.empty_like(self.q)

    def rotated(self, x):
        a, b = x.float().chunk(2, -1)
        at = torch.arange(self.fresh, device="cuda") if self.mask == "causal" else 0
        positions = self.before + (at if x is self.q else torch.arange(self.fresh, device="cuda"))
        c, s = (t.float()[positions].view(-1, 1, a.shape[-1]) for t in (self.cos, self.sin))
        return torch.cat([a * c - b * s, b * c + a * s], -1).bfloat16()

    def call(self, context, cache, appends, rotates, q=None):
        q = self.q if q is None else q
        given = {"q": q, "k": cache[0], "v": cache[1], "o": self.o}
        given["seqused_kv"] = self.lengths if appends else self.lengths_after
        if self.table is not None:
            given["page_table"] = self.table
        if appends:
            given |= {"k_new": self.k_new, "v_new": self.v_new}
        if rotates:
            given |= {"rotary_cos": self.cos, "rotary_sin": self.sin}
        plan = context.plan_forward(forward_args(self.mask, {}, **given))
        work = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
        return lambda: plan.run(work.data_ptr(), stream_handle())

    def of_original(self, cache, appends):
        given = {"page_table": self.table, "causal": self.mask == "causal"}
        if appends:
            given |= {"k": self.k_new, "v": self.v_new, "rotary_cos": self.cos,
                      "rotary_sin": self.sin, "rotary_interleaved": False}  # fmt: skip
        lengths = self.lengths if appends else self.lengths_after
        return lambda: original.flash_attn_with_kvcache(
            self.q, *cache, cache_seqlens=lengths, **given
        )


def check(context, p):
    """The largest difference from attention on what is rotated and appended by PyTorch."""
    cache = p.caches[0]
    for x in cache:
        x.fill_(math.nan) if p.before == 0 else None
    p.call(context, cache, True, True)()
    appended = p.o.clone()
    p.call(context, cache, False, False, p.rotated(p.q))()
    return (appended.float() - p.o.float()).abs().max().item()


def difference_from_original(context, p):
    """The largest of O, and of the cache that both have written."""
    ours, theirs = (tuple(x.clone() for x in p.caches[0]) for _ in "ot")
    p.call(context, ours, True, True)()
    o = p.of_original(theirs, True)()
    apart = [(o.float() - p.o.float()).abs().max().item()]
    apart += [(a.float() - b.float()).abs().max().item() for a, b in zip(ours, theirs, strict=True)]
    return max(apart)


def run_cell(context, cell, calls, rounds, out):
    batch, before, fresh, _, heads_kv, d, *_ = cell
    size = 4 * batch * (before + fresh) * heads_kv * d
    p = Problem(cell, max(1, min(calls, math.ceil(L2_BYTES / size))))
    names = ("batch", "before", "new", "heads_q", "heads_kv", "head_dim", "page_size", "mask")
    row = {"cell": "append", **dict(zip(names, cell)), "difference": check(context, p)}
    graph = lambda make: captured([make(p.caches[i % len(p.caches)]) for i in range(calls)]).replay
    ways = {
        "attend": lambda cache: p.call(context, cache, False, False),
        "append": lambda cache: p.call(context, cache, True, False),
        "rotary": lambda cache: p.call(context, cache, True, True),
    }
    if original is not None:
        ways["original"] = lambda cache: p.of_original(cache, False)
        ways["original_rotary"] = lambda cache: p.of_original(cache, True)
    if original is not None:
        try:
            row["difference_from_original"] = difference_from_original(context, p)
        except Exception as error:
            row["original_error"] = f"{type(error).__name__}: {str(error)[:200]}"
            del ways["original"], ways["original_rotary"]
    contenders = {}
    for name, way in ways.items():
        try:
            contenders[name] = graph(way)
        except Exception as error:
            row[f"{name}_error"] = f"{type(error).__name__}: {str(error)[:200]}"
    for name, (median, low, high) in measure(contenders, rounds).items():
        row[f"{name}_us"] = [round(1e3 * x / calls, 3) for x in (median, low, high)]
    emit(out, row)


def main():
    parser = gpu_run.arguments(__doc__, rounds=9)
    args = parser.parse_args()
    out, context = gpu_run.begin(args, "append")
    for cells, calls in ((STEPS, 100), (PROMPTS, 10)):
        for cell in cells:
            run_cell(context, cell, calls, args.rounds, out)


if __name__ == "__main__":
    main()
