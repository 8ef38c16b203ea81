#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""peers_gpu.py — fa3 beside PyTorch's cuDNN and FlashAttention-2 on one Hopper GPU, and beside the
original FlashAttention-3 where Python finds its module flash_attn_interface.

First every check (--check): results against FP64 for many shapes, bits over repetitions, a captured
graph, two streams. Then the paper's grid (--grid): contenders take turns in one process on the
same tensors; medians in TFLOP/s, with a GEMM and a copy as ceilings. One JSON object a line, the
first about machine and commit.
"""

import ctypes
import importlib
import sys

import machine
import torch
from fa3_ctypes import Context, Library, forward_args
from gpu_run import (
    HEAD_DIMS,
    HIDDEN,
    MASKS,
    ROOT,
    SEQLENS,
    TOKENS,
    arguments,
    ceilings,
    clock_mhz,
    emit,
    flops,
    measure,
    stream_handle,
    wrong,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
ORIGINAL = "flash_attn_interface"  # the module of flash-attention's hopper/ folder

# ---- Checks --------------------------------------------------------------------------------------


def visible(mask, sq, skv, left=-1, right=-1):
    """(sq, skv) of bool, bottom-right aligned."""
    p = torch.arange(sq, device="cuda")[:, None] + skv - sq
    j = torch.arange(skv, device="cuda")[None, :]
    if mask == "causal":
        left, right = -1, 0
    if mask == "full":
        left = right = -1
    seen = torch.ones(sq, skv, dtype=torch.bool, device="cuda")
    if left >= 0:
        seen &= p - j <= left
    if right >= 0:
        seen &= j - p <= right
    return seen


def attention(q, k, v, seen, scale, softcap, dtype, rounded):
    """O, LSE of one sequence (heads, rows, dim) in dtype; rounded: P in q's type, as naive."""
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    s = torch.matmul(q.to(dtype), k.to(dtype).transpose(1, 2))
    s = s.to(torch.float64 if not rounded else torch.float32) * scale
    if softcap > 0:
        s = softcap * torch.tanh(s / softcap)
    s = s.masked_fill(~seen, float("-inf"))
    lse = torch.logsumexp(s, -1)
    p = torch.softmax(s, -1).nan_to_num(0.0)
    o = torch.matmul(p.to(dtype), v.to(dtype))
    return o, lse


def check_one(
    context, dtype, d, dv, sq, skv, heads, heads_kv, mask, batch=2, window=(-1, -1), softcap=0.0
):
    """Largest ratio of our error to its bound (≤ 1 is right), or a string."""
    g = torch.Generator(device="cuda").manual_seed(sq * 131 + skv * 7 + d)
    make = lambda *shape: torch.randn(*shape, device="cuda", generator=g).to(dtype)
    q, k, v = (
        make(batch, sq, heads, d),
        make(batch, skv, heads_kv, d),
        make(batch, skv, heads_kv, dv),
    )
    o = torch.full((batch, sq, heads, dv), float("nan"), device="cuda", dtype=dtype)
    lse = torch.full((batch, heads, sq), float("nan"), device="cuda")
    scalars = {"softcap": softcap}
    if mask == "window":
        scalars |= {"left": window[0], "right": window[1]}
    context.forward(forward_args(mask, scalars, q=q, k=k, v=v, o=o, lse=lse), stream_handle())
    torch.cuda.synchronize()
    worst = 0.0
    seen = visible(mask, sq, skv, *window)
    for b in range(batch):
        parts = [x[b].transpose(0, 1) for x in (q, k, v)]
        want, want_lse = attention(*parts, seen, d**-0.5, softcap, torch.float64, False)
        naive, naive_lse = attention(*parts, seen, d**-0.5, softcap, dtype, True)
        ours = o[b].transpose(0, 1).double()
        floor = 2 * (want.abs().amax(-1, keepdim=True) * torch.finfo(dtype).eps)
        bound = 2 * (naive.double() - want).abs().amax(-1, keepdim=True) + floor + 1e-6
        ratio = ((ours - want).abs() / bound).nan_to_num(float("inf")).max().item()
        empty = torch.isinf(want_lse)
        if not torch.equal(torch.isinf(lse[b]), empty):
            return "LSE: -inf stands in the wrong place"
        lse_err = (lse[b].double() - want_lse)[~empty].abs()
        lse_bound = 2 * (naive_lse.double() - want_lse)[~empty].abs() + 2e-5 * (
            1 + want_lse[~empty].abs()
        )
        lse_ratio = (lse_err / lse_bound).max().item() if lse_err.numel() else 0.0
        worst = max(worst, ratio, lse_ratio)
    return worst


def check_shapes(context, out):
    cases = []
    for dtype in (torch.bfloat16, torch.float16):
        for d, dv in (
            (64, 64),
            (96, 96),
            (128, 128),
            (192, 128),
            (192, 192),
            (256, 256),
            (80, 80),
            (112, 112),
            (40, 72),
            (8, 8),
            (128, 64),
            (64, 128),
        ):
            for mask in MASKS:
                for sq, skv in (
                    (512, 512),
                    (113, 203),
                    (203, 113),
                    (1, 1),
                    (64, 1000),
                    (129, 257),
                    (1023, 1024),
                ):
                    cases.append((dtype, d, dv, sq, skv, 4, 2, mask))
    failures = 0
    for case in cases:
        result = check_one(context, *case)
        if isinstance(result, str) or not result <= 1:
            failures += 1
            emit(out, {"check": "shape", "case": [str(x) for x in case], "result": result})
    for window in ((64, 0), (100, 30), (0, 0), (-1, 77)):
        for d in (64, 128, 256):
            result = check_one(
                context, torch.bfloat16, d, d, 700, 650, 4, 1, "window", window=window
            )
            if isinstance(result, str) or not result <= 1:
                failures += 1
                emit(out, {"check": "window", "case": [d, *window], "result": result})
            cases.append(None)
    for d in (64, 128, 256):
        result = check_one(context, torch.bfloat16, d, d, 300, 500, 4, 4, "causal", softcap=15.0)
        if isinstance(result, str) or not result <= 1:
            failures += 1
            emit(out, {"check": "softcap", "case": d, "result": result})
        cases.append(None)
    emit(out, {"check": "shapes", "cases": len(cases), "failures": failures})


def check_ragged(context, out):
    """Varlen and seqused sequences against the same sequences alone; NaN beyond each end."""
    failures = cases = 0
    for d in (64, 128, 256):
        for mask in MASKS:
            for used in (False, True):
                lens_q, lens_kv = [100, 0, 257, 31, 640], [90, 50, 300, 0, 1000]
                used_q, used_kv = [50, 0, 200, 31, 333], [80, 1, 255, 0, 999]
                total_q, total_kv = sum(lens_q) + 140, sum(lens_kv) + 77
                q = torch.randn(total_q, 4, d, device="cuda").bfloat16()
                k, v = (
                    torch.full((total_kv, 2, d), float("nan"), device="cuda").bfloat16()
                    for _ in "kv"
                )
                cu = lambda lens: torch.tensor([0] + lens, device="cuda").cumsum(0).int()
                cu_q, cu_kv = cu(lens_q), cu(lens_kv)
                count_q, count_kv = (used_q, used_kv) if used else (lens_q, lens_kv)
                for b, n in enumerate(count_kv):
                    k[cu_kv[b] : cu_kv[b] + n].normal_()
                    v[cu_kv[b] : cu_kv[b] + n].normal_()
                o = torch.full((total_q, 4, d), float("nan"), device="cuda").bfloat16()
                lse = torch.full((4, total_q), float("nan"), device="cuda")
                tensors = dict(q=q, k=k, v=v, o=o, lse=lse, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)
                if used:
                    tensors["seqused_q"] = torch.tensor(used_q, device="cuda").int()
                    tensors["seqused_kv"] = torch.tensor(used_kv, device="cuda").int()
                context.forward(forward_args(mask, **tensors), stream_handle())
                torch.cuda.synchronize()
                want = torch.zeros_like(o, dtype=torch.float64)
                naive = torch.zeros_like(want)
                for b in range(5):
                    rows = slice(cu_q[b], cu_q[b] + count_q[b])
                    keys = slice(cu_kv[b], cu_kv[b] + count_kv[b])
                    if count_q[b] == 0 or count_kv[b] == 0:
                        continue
                    parts = [x.transpose(0, 1) for x in (q[rows], k[keys], v[keys])]
                    seen = visible(mask, count_q[b], count_kv[b])
                    want[rows] = attention(*parts, seen, d**-0.5, 0, torch.float64, False)[
                        0
                    ].transpose(0, 1)
                    naive[rows] = (
                        attention(*parts, seen, d**-0.5, 0, torch.bfloat16, True)[0]
                        .transpose(0, 1)
                        .double()
                    )
                bound = 2 * (naive - want).abs().amax(-1, keepdim=True) + 0.02 * want.abs().amax(
                    -1, keepdim=True
                )
                good = ((o.double() - want).abs() <= bound).all().item()
                cases += 1
                if not good:
                    failures += 1
                    emit(
                        out,
                        {
                            "check": "ragged",
                            "case": [d, mask, used],
                            "nan": torch.isnan(o).sum().item(),
                        },
                    )
    emit(out, {"check": "ragged", "cases": cases, "failures": failures})


def run_once(context, args):
    plan = context.plan_forward(args)
    work = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
    plan.run(work.data_ptr(), stream_handle())
    torch.cuda.synchronize()
    plan.close()


def check_large(context, out):
    """More than 2^31 elements a tensor: the last sequence has the bits that it has alone."""
    batch, seqlen, heads, d = 40, 4096, 128, 128
    if torch.cuda.mem_get_info()[0] < 5 * batch * seqlen * heads * d * 2:
        return emit(out, {"check": "large", "skipped": "less than 27 GB of free GPU memory"})
    shape = (batch, seqlen, heads, d)
    q, k, v = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
    o, lse = torch.full_like(q, float("nan")), torch.empty(batch, heads, seqlen, device="cuda")
    cu_seqlens = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * seqlen
    for mask in MASKS:
        last = [x[-1:].contiguous() for x in (q, k, v)]
        alone, lse_alone = torch.empty_like(last[0]), torch.empty_like(lse[-1:])
        names = dict(zip("qkv", last))
        run_once(context, forward_args(mask, **names, o=alone, lse=lse_alone))
        run_once(context, forward_args(mask, q=q, k=k, v=v, o=o, lse=lse))
        equal = torch.equal(o[-1:], alone) and torch.equal(lse[-1:], lse_alone)
        emit(out, {"check": "large", "mask": mask, "elements": q.numel(), "equal": equal})
        o.fill_(float("nan"))
        varlen = {name: x.flatten(0, 1) for name, x in zip("qkvo", (q, k, v, o))}
        lengths = {"max_seqlen_q": seqlen, "max_seqlen_kv": seqlen}
        run_once(
            context,
            forward_args(
                mask, lengths, **varlen, cu_seqlens_q=cu_seqlens, cu_seqlens_kv=cu_seqlens
            ),
        )
        equal = torch.equal(o[-1:], alone)
        emit(out, {"check": "large, varlen", "mask": mask, "elements": q.numel(), "equal": equal})


def check_runs(context, out):
    """The same bits again, in a graph, and on two streams at once."""
    for mask in MASKS:
        shape = (2, 2000, 8, 128)
        q, k, v = (torch.randn(*shape, device="cuda").bfloat16() for _ in "qkv")
        o, other = torch.empty_like(q), torch.empty_like(q)
        plan = context.plan_forward(forward_args(mask, q=q, k=k, v=v, o=o))
        work = [
            torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
            for _ in "ab"
        ]
        plan.run(work[0].data_ptr(), stream_handle())
        torch.cuda.synchronize()
        first, equal = o.clone(), True
        for _ in range(10):
            o.fill_(float("nan"))
            plan.run(work[0].data_ptr(), stream_handle())
            torch.cuda.synchronize()
            equal &= torch.equal(o, first)
        emit(out, {"check": "repeated", "mask": mask, "equal": equal})
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plan.run(work[0].data_ptr(), stream_handle())
        equal = True
        for _ in range(100):
            o.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            equal &= torch.equal(o, first)
        emit(out, {"check": "graph", "mask": mask, "equal": equal})
        streams = [torch.cuda.Stream() for _ in "ab"]
        args = [forward_args(mask, q=q, k=k, v=v, o=x) for x in (o, other)]
        equal = True
        for _ in range(20):
            o.fill_(float("nan")), other.fill_(float("nan"))
            torch.cuda.synchronize()
            for i in (0, 1):
                plan.run(work[i].data_ptr(), ctypes.c_void_p(streams[i].cuda_stream), args[i])
            torch.cuda.synchronize()
            equal &= torch.equal(o, first) and torch.equal(other, first)
        emit(out, {"check": "streams", "mask": mask, "equal": equal})
        plan.close()


# ---- Grid ----------------------------------------------------------------------------------------


def cells(args):
    for d in args.head_dims:
        for mask in MASKS:
            for seqlen in args.seqlens:
                yield d, mask, seqlen


def original():
    """(The original's module, its version), or None where it is not installed."""
    try:
        module = importlib.import_module(ORIGINAL)
    except ImportError:
        return None
    return module, str(getattr(module, "__version__", "version unknown"))


def peer_calls(q, k, v, mask):
    """{name: call}, each call with (batch, seqlen, heads, d) in and out."""
    views = [x.transpose(1, 2) for x in (q, k, v)]

    def sdpa(backend):
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                *views, is_causal=mask == "causal"
            ).transpose(1, 2)

    def flash_attn_3(function):
        o = function(q, k, v, causal=mask == "causal")
        return o[0] if isinstance(o, tuple) else o  # older versions return LSE too

    calls = {name: lambda b=backend: sdpa(b) for name, backend in PEERS.items()}
    if found := original():
        calls["flash_attn_3"] = lambda: flash_attn_3(found[0].flash_attn_func)
    return calls


def run_cell(context, d, mask, seqlen, rounds, out):
    batch, heads = TOKENS // seqlen, HIDDEN // d
    q, k, v = (torch.randn(batch, seqlen, heads, d, device="cuda").bfloat16() for _ in "qkv")
    o, lse = torch.empty_like(q), torch.empty(batch, heads, seqlen, device="cuda")
    args = forward_args(mask, q=q, k=k, v=v, o=o, lse=lse)
    plan = context.plan_forward(args)
    work = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
    calls = {"fa3": lambda: plan.run(work.data_ptr(), stream_handle())}
    answers = {}
    for name, call in peer_calls(q, k, v, mask).items():
        try:
            answers[name] = call()
            calls[name] = call
        except RuntimeError as error:
            print(f"{name} d{d} {mask} {seqlen}: {error}", file=sys.stderr)
    calls["fa3"]()
    torch.cuda.synchronize()
    apart = {n: (a.float() - o.float()).abs().max().item() for n, a in answers.items()}
    # Few short calls: a graph would take the host's time out, but a user of PyTorch pays it too.
    timed = measure(calls, rounds)
    work_flops = flops(d, mask, seqlen)
    row = {
        "cell": f"fwd_bf16_d{d}_{mask}_s{seqlen}",
        "row": context.explain_forward(args)["sm90"]["row"],
        "head_dim": d,
        "mask": mask,
        "seqlen": seqlen,
        "batch": batch,
        "heads": heads,
        "clock_power": clock_mhz(),
        "apart": apart,
    }
    for name, (ms, low, high) in timed.items():
        row[name] = {"ms": ms, "p10_ms": low, "p90_ms": high, "tflops": work_flops / ms * 1e-9}
    emit(out, row)
    plan.close()


def main():
    parser = arguments(__doc__, 9, HEAD_DIMS, SEQLENS)
    parser.add_argument("--check", action="store_true", help="run the checks")
    parser.add_argument("--grid", action="store_true", help="run the grid")
    args = parser.parse_args()
    out = open(args.out, "a") if args.out else sys.stdout
    torch.manual_seed(0)
    library = Library(args.lib)
    with Context(library, device="cuda") as context:
        meta = machine.gpu_meta(
            "fwd-grid" if args.grid else "check-peers",
            torch.cuda.get_device_name(),
            library.version(),
            args.commit or machine.commit(ROOT),
        )
        if lacks := machine.missing(meta, machine.GPU_FIELDS):
            print(f"peers_gpu: unknown {', '.join(lacks)}: no result to publish", file=sys.stderr)
        versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
        emit(out, meta | versions | ({"flash_attn_3": o[1]} if (o := original()) else {}))
        if args.check:
            check_shapes(context, out)
            check_ragged(context, out)
            check_runs(context, out)
            check_large(context, out)
        if args.grid:
            ceilings(out)
            for d, mask, seqlen in cells(args):
                run_cell(context, d, mask, seqlen, args.rounds, out)
    if wrong:
        sys.exit(f"peers_gpu: wrong: {', '.join(wrong)}; see the lines above")


if __name__ == "__main__":
    main()
