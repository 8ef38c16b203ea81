#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""bwd_gpu.py — the backward on one Hopper GPU: fa3 beside PyTorch's cuDNN and FlashAttention-2, on
the paper's grid.

Contenders take turns in one process on the same tensors; medians in TFLOP/s, 2.5 times the
forward's operations. Each gradient is compared with FP32 by definition, for the last queries and
the first keys of a head. One JSON object a line, the first about machine and commit.
"""

import sys

import gpu_run
import peers_gpu
import torch
from fa3_ctypes import backward_args, forward_args
from gpu_run import HEAD_DIMS, MASKS, SEQLENS, emit, measure, stream_handle

BACKWARD_TO_FORWARD = 2.5
ROWS = 256  # of queries, and of keys, that are compared
aten = torch.ops.aten


class Problem:
    """Tensors of a cell and fa3's forward of them."""

    def __init__(self, context, d, mask, seqlen):
        self.batch, self.heads = gpu_run.TOKENS // seqlen, gpu_run.HIDDEN // d
        self.mask, self.seqlen, self.head_dim = mask, seqlen, d
        shape = (self.batch, seqlen, self.heads, d)
        self.q, self.k, self.v, self.dout = (
            torch.randn(shape, device="cuda").bfloat16() for _ in range(4)
        )
        self.o, self.lse = torch.empty_like(self.q), torch.empty(
            self.batch, self.heads, seqlen, device="cuda"
        )
        inputs = {name: getattr(self, name) for name in ("q", "k", "v", "o", "lse")}
        context.forward(forward_args(mask, **inputs), stream_handle())
        torch.cuda.synchronize()

    def exact(self):
        """dQ of the last ROWS queries, dK and dV of the first ROWS keys, of the first head."""
        q, k, v, o, dout = (
            x[0, :, 0].float() for x in (self.q, self.k, self.v, self.o, self.dout)
        )
        lse, scale = self.lse[0, 0], self.head_dim**-0.5
        delta = (o * dout).sum(-1)
        n = min(ROWS, self.seqlen)

        def p_and_ds(rows, keys, seen):
            s = q[rows] @ k[keys].T * scale
            p = torch.exp(s - lse[rows, None]).masked_fill(~seen, 0)
            return p, p * (dout[rows] @ v[keys].T - delta[rows, None])

        everything, last, first = slice(None), slice(self.seqlen - n, None), slice(0, n)
        seen = peers_gpu.visible(self.mask, self.seqlen, self.seqlen)
        _, ds = p_and_ds(last, everything, seen[last])
        p, ds_keys = p_and_ds(everything, first, seen[:, first])
        return {"dq": ds @ k * scale, "dk": ds_keys.T @ q * scale, "dv": p.T @ dout}

    def errors(self, dq, dk, dv):
        """Root mean square of the errors over that of the values; (batch, seqlen, heads, d)."""
        n = min(ROWS, self.seqlen)
        found = {"dq": dq[0, self.seqlen - n :, 0], "dk": dk[0, :n, 0], "dv": dv[0, :n, 0]}
        exact = self.exact()
        rms = lambda x: x.double().square().mean().sqrt().item()
        return {name: rms(found[name] - exact[name]) / rms(exact[name]) for name in found}


class Fa3:
    def __init__(self, context, p, deterministic=False):
        self.gradients = [torch.full_like(x, float("nan")) for x in (p.q, p.k, p.v)]
        names = {name: getattr(p, name) for name in ("q", "k", "v", "o", "lse", "dout")}
        names |= dict(zip(("dq", "dk", "dv"), self.gradients))
        self.plan = context.plan_backward(backward_args(p.mask, deterministic, **names))
        size = max(self.plan.workspace_bytes, 1)
        self.work = torch.empty(size, dtype=torch.uint8, device="cuda")

    def __call__(self):
        self.plan.run(self.work.data_ptr(), stream_handle())
        return self.gradients


class Peer:
    """The backward alone, on the results of the same library's forward."""

    def __init__(self, name, p):
        q, k, v, dout = (x.transpose(1, 2) for x in (p.q, p.k, p.v, p.dout))
        causal = p.mask == "causal"
        if name == "cudnn":
            f = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)
            o, lse, cq, ck, mq, mk, seed, offset = f[:8]
            self.call = lambda: aten._scaled_dot_product_cudnn_attention_backward(
                dout, q, k, v, o, lse, seed, offset, None, cq, ck, mq, mk, 0.0, causal
            )
        else:
            f = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)
            o, lse, cq, ck, mq, mk, seed, offset = f[:8]
            self.call = lambda: aten._scaled_dot_product_flash_attention_backward(
                dout, q, k, v, o, lse, cq, ck, mq, mk, 0.0, causal, seed, offset
            )

    def __call__(self):
        return [x.transpose(1, 2) for x in self.call()[:3]]


def same_bits(contender, runs=10):
    """Whether runs agree in every bit of dQ, dK and dV."""
    first = [x.clone() for x in contender()]
    return all(
        torch.equal(a.view(torch.int16), b.view(torch.int16))
        for _ in range(runs - 1)
        for a, b in zip(first, contender())
    )


def run_cell(contexts, d, mask, seqlen, rounds, out):
    p = Problem(contexts[""], d, mask, seqlen)
    found, errors = {}, {}
    makers = {f"fa3{label}": lambda c=context: Fa3(c, p) for label, context in contexts.items()}
    makers |= {
        f"fa3{label}_deterministic": lambda c=context: Fa3(c, p, deterministic=True)
        for label, context in contexts.items()
    }
    makers |= {name: lambda n=name: Peer(n, p) for name in ("cudnn", "fa2")}
    for name, make in makers.items():
        try:
            contender = make()
            errors[name] = p.errors(*contender())
            found[name] = contender
        except RuntimeError as error:
            print(f"{name} d{d} {mask} {seqlen}: {error}", file=sys.stderr)
    timed = measure(found, rounds)
    row = {
        "cell": f"bwd_bf16_d{d}_{mask}_s{seqlen}",
        "row": f"d{d}",
        "head_dim": d,
        "mask": mask,
        "seqlen": seqlen,
        "batch": p.batch,
        "heads": p.heads,
        "clock_power": gpu_run.clock_mhz(),
        "relative_error": errors,
    }
    row["same_bits"] = {n: same_bits(c) for n, c in found.items() if n.endswith("deterministic")}
    work = BACKWARD_TO_FORWARD * gpu_run.flops(d, mask, seqlen)
    for name, (ms, low, high) in timed.items():
        row[name] = {"ms": ms, "p10_ms": low, "p90_ms": high, "tflops": work / ms * 1e-9}
    emit(out, row)


def main():
    parser = gpu_run.arguments(__doc__, 9, HEAD_DIMS, SEQLENS)
    gpu_run.add_also(parser)
    parser.add_argument("--masks", type=lambda x: x.split(","), default=MASKS)
    args = parser.parse_args()
    out, context = gpu_run.begin(args, "bwd-grid")
    contexts = {"": context, **gpu_run.others(args, "_")}
    for d in args.head_dims:
        for mask in args.masks:
            for seqlen in args.seqlens:
                run_cell(contexts, d, mask, seqlen, args.rounds, out)


if __name__ == "__main__":
    main()
