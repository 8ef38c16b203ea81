#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""bwd_outliers_gpu.py — how far dQ is from FP64 beside outliers, deterministic (sums in fixed
point) and by default (FP32), on one Hopper GPU. Root mean square of the errors of dQ in FP32 over
that of its values, the last queries of one head; normal BF16 tensors, and in them

  channel F   a column of K that is F times as large (every key)
  elements F  one of 1000 elements of K and of V that are F times as large
  keys F      one of 1000 keys whose K and V are F times as large
"""

import gpu_run
import torch
from fa3_ctypes import backward_args, forward_args
from gpu_run import emit, stream_handle
from peers_gpu import visible

ROWS = 128  # queries that are compared


def with_outliers(kind, factor, k, v):
    """k and v (1, seqlen, 1, d), changed in place."""
    if kind == "channel":
        k[..., 7] *= factor
        return
    for x in (k, v):
        shape = x.shape if kind == "elements" else (*x.shape[:3], 1)
        x *= torch.where(torch.rand(shape, device=x.device) < 1e-3, factor, 1.0).to(x.dtype)


def exact(mask, q, k, v, o, lse, dout):
    """dQ of the last ROWS queries in FP64, of O as the forward rounded it."""
    q, k, v, o, dout = (x[0, :, 0].double() for x in (q, k, v, o, dout))
    rows, scale = slice(len(q) - ROWS, None), q.shape[1] ** -0.5
    p = torch.exp(q[rows] @ k.T * scale - lse[0, 0, rows, None].double())
    p = p.masked_fill(~visible(mask, len(q), len(q))[rows], 0)
    ds = p * (dout[rows] @ v.T - (o * dout).sum(-1)[rows, None])
    return ds @ k * scale


def run(context, kind, factor, d, mask, seqlen):
    q, k, v, dout = (torch.randn(1, seqlen, 1, d, device="cuda").bfloat16() for _ in range(4))
    with_outliers(kind, factor, k, v)
    o, lse = torch.empty_like(q), torch.empty(1, 1, seqlen, device="cuda")
    context.forward(forward_args(mask, q=q, k=k, v=v, o=o, lse=lse), stream_handle())
    torch.cuda.synchronize()
    want = exact(mask, q, k, v, o, lse, dout)
    row = {"cell": f"d{d}_{mask}_s{seqlen}_{kind}_{factor}", "head_dim": d, "mask": mask}
    row |= {"seqlen": seqlen, "kind": kind, "factor": factor}
    for name, deterministic in (("default", False), ("deterministic", True)):
        dq = torch.empty(1, seqlen, 1, d, device="cuda")
        inputs = dict(q=q, k=k, v=v, o=o, lse=lse, dout=dout, dq=dq)
        plan = context.plan_backward(backward_args(mask, deterministic, **inputs))
        work = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
        plan.run(work.data_ptr(), stream_handle())
        error = dq[0, seqlen - ROWS :, 0].double() - want
        row[name] = (error.square().mean() / want.square().mean()).sqrt().item()
    return row


def main():
    parser = gpu_run.arguments(__doc__)
    args = parser.parse_args()
    out, context = gpu_run.begin(args, "bwd-outliers")
    cases = [("channel", f) for f in (1, 10, 100, 1000)]
    cases += [(kind, f) for kind in ("elements", "keys") for f in (10, 100, 1000)]
    for d in (64, 128, 256):
        for mask, seqlen in (("full", 1024), ("causal", 16384)):
            for kind, factor in cases:
                emit(out, run(context, kind, factor, d, mask, seqlen))


if __name__ == "__main__":
    main()
