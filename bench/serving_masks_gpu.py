#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""serving_masks_gpu.py — what chunks, trees and max_logit cost on one Hopper GPU: each beside the
mask next to it, in turns, and beside the original's chunks, where its module can be imported.

Forward, backward and steps of few queries; median, 10th and 90th percentile of the rounds in µs a
call. Chunks beside causal and beside the window that is as wide; trees beside causal and beside a
boolean attn_mask that says the same; max_logit beside the same call without. One JSON object a
line, the first about machine and commit. --also NAME=LIB: other builds, on what they know.
"""

import math

import gpu_run
import torch
from fa3_ctypes import backward_args, forward_args
from gpu_run import emit, measure
from sinks_gpu import Plan, attempt, replayed

try:
    import fa3_fwd_interface as original
except ImportError:
    try:
        import flash_attn_interface as original
    except ImportError:
        original = None

GRAPH = 50  # calls in a graph of few queries
# batch, queries, keys, query heads, KV heads, head dim, chunk
CHUNKS = [(1, 32768, 32768, 40, 8, 128, 8192), (1, 16384, 16384, 40, 8, 128, 8192),
          (4, 4096, 4096, 16, 16, 128, 1024), (4, 4096, 4096, 32, 32, 64, 300),
          (4, 4096, 4096, 8, 8, 256, 1024)]  # fmt: skip
CHUNK_STEPS = [(b, 1, keys, 40, 8, 128, 8192) for b, keys in ((1, 32768), (32, 30000), (64, 9000))]
# …, head dim
TREES = [(b, q, keys, 32, 8, 128) for q in (8, 26, 64)
         for b, keys in ((1, 4096), (1, 32768), (16, 8192), (64, 2048))]  # fmt: skip
MAXIMA = [(1, 16384, 16384, 2048 // d, 2048 // d, d, mask) for d in (64, 128, 256)
          for mask in ("full", "causal")] + [(32, 1, 8192, 32, 8, 128, "full")]  # fmt: skip
PLAIN = [(1, 16384, 16384, 2048 // d, 2048 // d, d, mask) for d in (64, 128, 256)
         for mask in ("full", "causal", "window")]  # fmt: skip
PLAIN_STEPS = [(b, q, keys, 32, 8, 128, "causal") for q in (1, 4, 16)
               for b, keys in ((1, 8192), (32, 4096), (128, 1024))]  # fmt: skip
WINDOW = 1000  # of PLAIN


class Problem:
    def __init__(self, cell):
        self.batch, queries, keys, self.heads, heads_kv, d = cell[:6]
        new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        self.q, self.dout = (new(self.batch, queries, self.heads, d) for _ in "qd")
        self.k, self.v = (new(self.batch, keys, heads_kv, d) for _ in "kv")
        self.o = torch.empty_like(self.q)
        self.lse = torch.empty(self.batch, self.heads, queries, device="cuda")

    def forward(self, context, mask, scalars=None, **more):
        args = forward_args(mask, scalars, q=self.q, k=self.k, v=self.v, o=self.o, lse=self.lse,
                            **more)  # fmt: skip
        return Plan(context.plan_forward(args))

    def backward(self, context, mask, scalars):
        self.forward(context, mask, scalars)()
        names = {name: getattr(self, name) for name in ("q", "k", "v", "o", "lse", "dout")}
        names |= {f"d{name}": torch.empty_like(getattr(self, name)) for name in "qkv"}
        args = backward_args(mask, **names)
        for name, value in scalars.items():
            setattr(args, name, value)
        return Plan(context.plan_backward(args))

    def tree(self):
        """Each token branches off a random one before it."""
        n, keys = self.q.shape[1], self.k.shape[1]
        sees = torch.eye(n, dtype=torch.bool)
        for i in range(1, n):
            sees[i] |= sees[torch.randint(max(i - 6, 0), i, ())]
        bits = torch.zeros(n, 2, dtype=torch.int64)
        for j in range(n):
            bits[:, j // 32] |= sees[:, j].long() << j % 32
        words = bits.to(torch.int32).cuda().expand(self.batch, n, 2).contiguous()
        shown = torch.ones(1, 1, n, keys, dtype=torch.bool, device="cuda")
        shown[..., keys - n :] = sees.cuda()
        return words, shown



def of_original(p, chunk):
    call = lambda: original.flash_attn_func(p.q, p.k, p.v, causal=True, attention_chunk=chunk)
    call()  # not every build has chunks
    return call


def record(kind, cell, calls, args, out):
    each = 1
    if cell[1] <= 64:
        each = GRAPH
        calls = {name: replayed(call, each) for name, call in calls.items()}
    row = {"cell": kind, "batch": cell[0], "queries": cell[1], "keys": cell[2],
           "heads_q": cell[3], "heads_kv": cell[4], "head_dim": cell[5]}  # fmt: skip
    if len(cell) > 6:
        row["chunk" if isinstance(cell[6], int) else "mask"] = cell[6]
    for name, (median, low, high) in measure(calls, args.rounds).items():
        row[f"{name}_us"] = [round(1e3 * x / each, 3) for x in (median, low, high)]
    emit(out, row)


def chunks(kind, context, args, out):
    for cell in CHUNK_STEPS if kind == "chunk_step" else CHUNKS:
        p, chunk = Problem(cell), cell[6]
        make = p.backward if kind == "chunk_bwd" else p.forward
        scalars = {"chunk": {"attention_chunk": chunk}, "causal": {}}
        calls = {name: make(context, "causal", given) for name, given in scalars.items()}
        calls["window"] = make(context, "window", {"left": chunk - 1, "right": 0})
        if original is not None and kind != "chunk_bwd":
            attempt(calls, "original", lambda p=p, chunk=chunk: of_original(p, chunk))
        record(kind, cell, calls, args, out)


def trees(context, args, out):
    for cell in TREES:
        p = Problem(cell)
        words, shown = p.tree()
        calls = {"tree": p.forward(context, "full", tree_mask=words)}
        calls["tree"]()
        tree = p.o.clone()
        calls["attn_mask"] = p.forward(context, "full", attn_mask=shown)
        calls["attn_mask"]()
        apart = (tree.float() - p.o.float()).abs().max().item()
        if not apart < 0.02:
            raise SystemExit(f"{cell}: a tree is {apart} from the attn_mask that says the same")
        calls["causal"] = p.forward(context, "causal")
        record("tree", cell, calls, args, out)


def maxima(context, args, out):
    for cell in MAXIMA:
        p, mask = Problem(cell), cell[6]
        most = torch.full((p.heads,), math.nan, device="cuda")
        calls = {"max_logit": p.forward(context, mask, max_logit=most),
                 "without": p.forward(context, mask)}  # fmt: skip
        record("max_logit", cell, calls, args, out)


def plain(contexts, args, out):
    for cell in PLAIN + PLAIN_STEPS:
        p, mask = Problem(cell), cell[6]
        scalars = {"left": WINDOW, "right": 0} if mask == "window" else {}
        kinds = ("fwd", "bwd") if cell[1] > 64 else ("step",)
        for kind in kinds:
            make = p.backward if kind == "bwd" else p.forward
            calls = {f"fa3{label}": make(c, mask, scalars) for label, c in contexts.items()}
            record(f"plain_{kind}", cell, calls, args, out)


def main():
    parser = gpu_run.arguments(__doc__, rounds=9)
    gpu_run.add_also(parser)
    parser.add_argument("--kinds", default="chunk_fwd,chunk_bwd,chunk_step,tree,max_logit,plain")
    args = parser.parse_args()
    out, context = gpu_run.begin(args, "serving_masks")
    contexts = {"": context, **gpu_run.others(args, "_")}
    for kind in args.kinds.split(","):
        if kind.startswith("chunk"):
            chunks(kind, context, args, out)
        elif kind == "tree":
            trees(context, args, out)
        elif kind == "max_logit":
            maxima(context, args, out)
        else:
            plain(contexts, args, out)


if __name__ == "__main__":
    main()
