#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""codes_error_gpu.py — what a cache of E4M3 costs in accuracy on one GPU: the root mean square
error of O, relative to that of O, against attention in FP64 on keys and values before rounding.

One query of each head on 4k to 128k keys, 32/8 heads, head dim 128; scales of heads. Inputs are
normal; with outliers as FlashAttention-3's paper has them (one in a thousand, ten times as large);
or with K and V that have a mean in each column. Beside K and V in BF16 and under Q of E4M3, the
original's, too, where its wheel can be imported. `own`: the error against the decoded keys, which
is the kernel's. One JSON object a line.
"""

import math

import gpu_run
import torch
from decode_gpu import fa3_calls
from fa3_ctypes import forward_args
from gpu_run import emit

try:
    import flash_attn_interface as original
except ImportError:
    original = None

BATCH, HEADS, HEADS_KV, D = 2, 32, 8, 128
LARGEST = 448.0


def inputs(kind, keys):
    new = lambda rows, heads: torch.randn(BATCH, rows, heads, D, device="cuda")
    q, k, v = new(1, HEADS), new(keys, HEADS_KV), new(keys, HEADS_KV)
    if kind == "outliers":
        for x in (q, k, v):
            x += 10 * torch.randn_like(x) * (torch.rand_like(x) < 0.001)
    if kind == "means":
        for x in (k, v):
            x += 2 * torch.randn(1, 1, HEADS_KV, D, device="cuda")
    return q.bfloat16(), k.bfloat16(), v.bfloat16()


def coded(x):
    """Codes of (batch, rows, heads, columns), and a scale for each head of a sequence."""
    scale = x.float().abs().amax((1, 3)) / LARGEST
    return (x.float() / scale[:, None, :, None]).to(torch.float8_e4m3fn), scale


def exact(q, k, v):
    out = torch.empty(q.shape, dtype=torch.float64, device="cuda")
    group = HEADS // HEADS_KV
    for b in range(BATCH):
        for h in range(HEADS):
            s = k[b, :, h // group].double() @ q[b, 0, h].double() / math.sqrt(D)
            out[b, 0, h] = s.softmax(0) @ v[b, :, h // group].double()
    return out


def error(got, want):
    return ((got.double() - want).square().mean() / want.square().mean()).sqrt().item()


def measure(context, kind, keys):
    q, k, v = inputs(kind, keys)
    (k8, k_scale), (v8, v_scale), (q8, q_of_heads) = coded(k), coded(v), coded(q)
    # Of a KV head, as engines have it.
    q_scale = q_of_heads.view(BATCH, HEADS_KV, -1).amax(2)
    wide = q_scale.repeat_interleave(HEADS // HEADS_KV, 1)[:, None, :, None]
    q8 = (q.float() / wide).to(torch.float8_e4m3fn)
    o = torch.empty_like(q)
    scales = {"k_scale": k_scale, "v_scale": v_scale}

    def run(q, k, v, **scales):
        (call,), plan = fa3_calls(context, [forward_args("full", q=q, k=k, v=v, o=o, **scales)])
        call()
        torch.cuda.synchronize()
        plan.close()
        return o.clone()

    want = exact(q, k, v)
    back = lambda x, scale: x.double() * scale.double()[:, None, :, None]
    decoded = back(k8, k_scale), back(v8, v_scale)
    outputs = {
        "bf16": run(q, k, v),
        "codes": run(q, k8, v8, **scales),
        "codes_q8": run(q8, k8, v8, q_scale=q_scale, **scales),
    }
    if original:
        outputs["original_q8"] = original.flash_attn_func(
            q8, k8, v8, q_descale=q_scale, k_descale=k_scale, v_descale=v_scale
        )
    own = error(outputs["codes"], exact(q, *decoded))
    return {"cell": f"{kind} k{keys}", "own": own} | {
        name: error(x, want) for name, x in outputs.items()
    }


def main():
    args = gpu_run.arguments(__doc__).parse_args()
    out, context = gpu_run.begin(args, "codes-error")
    with context:
        for kind in ("normal", "outliers", "means"):
            for keys in (4096, 32768, 131072):
                emit(out, measure(context, kind, keys))


if __name__ == "__main__":
    main()
