#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sinks_gpu.py — what attention sinks cost on one Hopper GPU: fa3 with and without them, forward,
backward and decode; beside FlashAttention-4 (flash-attn-4) and the original (tokenspeed-fa3), where
their wheels can be imported.

Contenders take turns; median, 10th and 90th percentile of the rounds. Outputs with sinks are
compared with FP32 in the last queries of the first sequence, dsinks with that of all. One JSON
object a line, the first about machine and commit. --also NAME=LIB: other builds, without sinks.
"""

import math
import sys

import gpu_run
import torch
from decode_gpu import captured
from fa3_ctypes import backward_args, forward_args
from gpu_run import emit, measure, stream_handle

try:
    from flash_attn.cute import flash_attn_func as fa4
except ImportError:
    fa4 = None
try:
    import flash_attn_interface as original
except ImportError:
    original = None

COMPARED = 64  # queries
GRAPH = 50  # calls in a graph of few queries
# batch, queries, keys, query heads, KV heads, head dim, mask, window to the left or None
PROMPTS = [
    (16, 1024, 1024, 2048 // d, 2048 // d, d, mask, None)
    for d in (64, 128, 256)
    for mask in ("full", "causal")
] + [
    (1, 16384, 16384, 2048 // d, 2048 // d, d, mask, None)
    for d in (64, 128, 256)
    for mask in ("full", "causal")
] + [(4, 4096, 4096, 64, 8, 64, "causal", left) for left in (None, 128)]  # fmt: skip
STEPS = [
    (b, 1, keys, *heads, "full", None)
    for heads in ((32, 8, 128), (64, 8, 64))
    for b, keys in ((1, 4096), (1, 32768), (32, 4096), (128, 1024))
]  # fmt: skip
BESIDE_4 = [i for i, c in enumerate(PROMPTS) if c[1] > 1024 and c[5] in (64, 128)]


class Problem:
    def __init__(self, cell):
        self.batch, queries, keys, self.heads, heads_kv, d, self.mask, self.left = cell
        new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        self.q, self.dout = (new(self.batch, queries, self.heads, d) for _ in "qd")
        self.k, self.v = (new(self.batch, keys, heads_kv, d) for _ in "kv")
        self.sinks = (math.log(min(keys, 500)) + torch.randn(self.heads, device="cuda")).bfloat16()
        self.o = torch.empty_like(self.q)
        self.lse = torch.empty(self.batch, self.heads, queries, device="cuda")

    def scalars(self):
        return {} if self.left is None else {"left": self.left, "mask": 2}

    def exact(self):
        """O of the last queries of the first sequence, in FP32."""
        n, keys = min(COMPARED, self.q.shape[1]), self.k.shape[1]
        group = self.heads // self.k.shape[2]
        wide = lambda x: x[0].float().repeat_interleave(group, 1).transpose(0, 1)
        q = self.q[0, -n:].float().transpose(0, 1)
        s = q @ wide(self.k).transpose(1, 2) / math.sqrt(q.shape[-1])
        at = torch.arange(n, device="cuda")[:, None] + keys - n
        key = torch.arange(keys, device="cuda")[None]
        if self.mask == "causal":
            s.masked_fill_(key > at, -math.inf)
        if self.left is not None:
            s.masked_fill_(key < at - self.left, -math.inf)
        of_sink = self.sinks.float()[:, None, None].expand(-1, n, 1)
        p = torch.cat([s, of_sink], -1).softmax(-1)[..., :-1]
        return (p @ wide(self.v)).transpose(0, 1)

    def error(self, o):
        exact = self.exact()
        return ((o[0, -exact.shape[0] :].float() - exact).abs().max() / exact.abs().max()).item()

    def exact_dsinks(self):
        delta = (self.dout.float() * self.o.float()).sum(-1).transpose(1, 2)
        weight = (self.sinks.float()[:, None] - self.lse).exp()
        return -(weight * delta).sum((0, 2))


class Plan:
    """A plan, and a workspace for it."""

    def __init__(self, plan):
        self.plan = plan
        self.work = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device="cuda")

    def __call__(self):
        self.plan.run(self.work.data_ptr(), stream_handle())


def forward(context, p, sinks):
    given = {"sinks": p.sinks} if sinks else {}
    args = forward_args(p.mask, p.scalars(), q=p.q, k=p.k, v=p.v, o=p.o, lse=p.lse, **given)
    return Plan(context.plan_forward(args))


def backward(context, p, sinks):
    names = {name: getattr(p, name) for name in ("q", "k", "v", "o", "lse", "dout")}
    names |= {f"d{name}": torch.empty_like(getattr(p, name)) for name in "qkv"}
    if sinks:
        names |= {"sinks": p.sinks, "dsinks": torch.full_like(p.sinks, math.nan).float()}
    args = backward_args(p.mask, **names)
    for name, value in p.scalars().items():
        setattr(args, name, value)
    plan = Plan(context.plan_backward(args))
    plan.dsinks = names.get("dsinks")
    return plan


def of_4(p, sinks):
    """FlashAttention-4: the forward, and the backward of its own results."""
    q, k, v = (x.detach().requires_grad_() for x in (p.q, p.k, p.v))
    sink = p.sinks.detach().requires_grad_() if sinks else None
    window = (None, None) if p.left is None else (p.left, 0)
    call = lambda: fa4(q, k, v, causal=p.mask == "causal" and p.left is None, window_size=window,
                       learnable_sink=sink)[0]  # fmt: skip
    out = call()
    inputs = [q, k, v, *([sink] if sinks else [])]

    def run():
        with torch.no_grad():
            return call()

    return run, lambda: torch.autograd.grad(out, inputs, p.dout, retain_graph=True), out


def of_original(p, sinks):
    window = (-1, -1) if p.left is None else (p.left, 0)
    given = {"sinks": p.sinks} if sinks else {}
    return lambda: original.flash_attn_func(p.q, p.k, p.v, causal=p.mask == "causal",
                                            window_size=window, **given)  # fmt: skip


def attempt(calls, name, make):
    """Adds a contender, or says why there is none."""
    try:
        calls[name] = make()
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)


def replayed(call, calls):
    """`calls` of it as one call."""
    return captured([call] * calls).replay


def run_cell(kind, contexts, cell, beside, rounds, out):
    p = Problem(cell)
    with_sinks = forward(contexts[""], p, True)
    with_sinks()
    row = {"cell": f"sinks_{kind}", "batch": cell[0], "queries": cell[1], "keys": cell[2],
           "heads_q": cell[3], "heads_kv": cell[4], "head_dim": cell[5], "mask": cell[6],
           "left": cell[7], "error": p.error(p.o)}  # fmt: skip
    calls = {}
    if kind == "bwd":
        calls["fa3_sinks"] = backward(contexts[""], p, True)
        calls["fa3_sinks"]()
        exact = p.exact_dsinks()
        found = calls["fa3_sinks"].dsinks
        row["error_dsinks"] = ((found - exact).abs().max() / exact.abs().max()).item()
        makers = {f"fa3{label}": lambda c=c: backward(c, p, False) for label, c in contexts.items()}
    else:
        calls["fa3_sinks"] = with_sinks
        makers = {f"fa3{label}": lambda c=c: forward(c, p, False) for label, c in contexts.items()}
    if beside and fa4 is not None:
        part = 1 if kind == "bwd" else 0
        makers |= {"fa4": lambda: of_4(p, False)[part], "fa4_sinks": lambda: of_4(p, True)[part]}
        attempt(calls, "fa4_error", lambda: p.error(of_4(p, True)[2]))
        row["fa4_error"] = calls.pop("fa4_error", None)
    if kind != "bwd" and original is not None:
        makers |= {"original": lambda: of_original(p, False),
                   "original_sinks": lambda: of_original(p, True)}  # fmt: skip
    for name, make in makers.items():
        attempt(calls, name, make)
    each = GRAPH if kind == "step" else 1
    if kind == "step":
        calls = {name: replayed(call, each) for name, call in calls.items()}
    for name, (median, low, high) in measure(calls, rounds).items():
        row[f"{name}_us"] = [round(1e3 * x / each, 3) for x in (median, low, high)]
    emit(out, row)


def main():
    parser = gpu_run.arguments(__doc__, rounds=9)
    gpu_run.add_also(parser)
    parser.add_argument("--kinds", default="fwd,bwd,step")
    args = parser.parse_args()
    out, context = gpu_run.begin(args, "sinks")
    contexts = {"": context, **gpu_run.others(args, "_")}
    for kind in args.kinds.split(","):
        for i, cell in enumerate(STEPS if kind == "step" else PROMPTS):
            run_cell(kind, contexts, cell, kind != "step" and i in BESIDE_4, args.rounds, out)


if __name__ == "__main__":
    main()
