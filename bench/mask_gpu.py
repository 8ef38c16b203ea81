#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""mask_gpu.py — attention with attn_mask on one Hopper GPU: fa3 beside PyTorch's
scaled_dot_product_attention with the same mask, and beside fa3 without one.

Masks are of all heads, (batch or 1, 1, queries, keys): "random" hides half of the keys, "blocks"
three of four blocks of 256 × 256 (never the diagonal's), "causal" what a causal mask does, "bias"
hides nothing and adds. With --gradient a bias whose gradient is taken, too: one for all, one for
each head, and one for each head of each batch entry. Contenders take turns in one process on the
same tensors; medians. First each is compared with FP64 on some rows. One JSON object a line, the
first about machine and commit.
"""

import sys

import gpu_run
import torch
from fa3_ctypes import Fa3Error, backward_args
from fwd8_gpu import Contender
from gpu_run import HIDDEN, TOKENS, emit, measure, stream_handle
from torch.nn.attention import SDPBackend, sdpa_kernel

KINDS = ("random", "blocks", "causal", "bias")
PEERS = {"efficient": SDPBackend.EFFICIENT_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def shown(kind, n):
    """(n, n) of bool."""
    if kind == "random":
        seen = torch.rand(n, n, device="cuda") < 0.5
        return seen.fill_diagonal_(True)
    if kind == "causal":
        return torch.ones(n, n, dtype=torch.bool, device="cuda").tril()
    if kind == "bias":
        return torch.ones(n, n, dtype=torch.bool, device="cuda")
    blocks = torch.rand(n // 256, n // 256, device="cuda") < 0.25
    return blocks.fill_diagonal_(True).repeat_interleave(256, 0).repeat_interleave(256, 1)


def masks(kind, n):
    """By type: what hides the keys, and what is added where they are seen."""
    seen = shown(kind, n)
    bias = torch.randn(n, n, device="cuda") if kind == "bias" else torch.zeros(n, n, device="cuda")
    added = bias.masked_fill(~seen, float("-inf"))
    found = {"f32": added, "bf16": added.bfloat16()}
    return found if kind == "bias" else {"bool": seen} | found


class Backward:
    def __init__(self, context, forward, dout, mask, of_mask=None):
        t = forward.tensors
        grads = {f"d{n}": torch.empty_like(t[n]) for n in "qkv"}
        extra = {} if mask is None else {"attn_mask": mask}
        if of_mask is not None:
            extra["dattn_mask"] = of_mask
        self.args = backward_args("full", **{n: t[n] for n in ("q", "k", "v", "o", "lse")},
                                  dout=dout, **grads, **extra)
        self.plan = context.plan_backward(self.args)
        self.work = torch.empty(max(self.plan.workspace_bytes, 1), dtype=torch.uint8,
                                device="cuda")

    def __call__(self):
        self.plan.run(self.work.data_ptr(), stream_handle())


class Peer:
    """PyTorch's, forward or backward."""

    def __init__(self, backend, x, mask, dout):
        self.q, self.k, self.v = (t.transpose(1, 2).detach().requires_grad_(dout is not None)
                                  for t in x)
        self.backend, self.mask, self.dout = backend, mask, dout
        self.o = self.forward()

    def forward(self):
        with sdpa_kernel(self.backend):
            return torch.nn.functional.scaled_dot_product_attention(
                self.q, self.k, self.v, attn_mask=self.mask)

    def __call__(self):
        if self.dout is None:
            self.o = self.forward()
        else:
            wanted = [self.q, self.k, self.v]
            if self.mask is not None and self.mask.requires_grad:
                wanted.append(self.mask)
            return torch.autograd.grad(self.o, wanted, self.dout.transpose(1, 2),
                                       retain_graph=True)


def error_of(o, x, mask):
    """Root mean square of O's error over O's, for the last 256 queries of each head."""
    q, k, v = (t[:1].double().transpose(1, 2) for t in x)
    rows = min(256, q.shape[2])
    s = q[:, :, -rows:] @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    part = mask[..., -rows:, :]
    s = s.masked_fill(~part, float("-inf")) if part.dtype == torch.bool else s + part.double()
    want = torch.softmax(s, -1) @ v
    ours = o[:1, -rows:].transpose(1, 2).double()
    return ((ours - want).square().mean().sqrt() / want.square().mean().sqrt()).item()


def cell(context, others, kind, d, n, backward, rounds, out):
    batch, heads = max(TOKENS // n, 1), HIDDEN // d
    x = [torch.randn(batch, n, heads, d, device="cuda").bfloat16() for _ in "qkv"]
    dout = torch.randn_like(x[0]) if backward else None
    found, row = {}, {"cell": f"{'bwd' if backward else 'fwd'}_{kind}_d{d}_s{n}", "head_dim": d,
                      "seqlen": n, "batch": batch, "heads": heads, "mask": kind}
    by_type = masks(kind, n)
    row["seen"] = by_type.get("bool", torch.ones(1, device="cuda")).float().mean().item()
    for name, mask in ({"none": None} | by_type).items():
        four = None if mask is None else mask[None, None]
        tensors = dict(zip("qkv", x)) | {"o": torch.empty_like(x[0])}
        tensors["lse"] = torch.empty(batch, heads, n, device="cuda")
        if mask is not None:
            tensors["attn_mask"] = four
        forward = Contender(context, "full", tensors)
        forward()
        torch.cuda.synchronize()
        if mask is not None and not backward:
            error = error_of(tensors["o"], x, four)
            emit(out, {"check": f"mask_{kind}_{name}_d{d}_s{n}", "relative_error": error,
                       "failures": int(not error < 0.01)})
        found[f"fa3_{name}"] = Backward(context, forward, dout, four) if backward else forward
        for other, of_other in others.items() if backward else ():
            found[f"fa3_{other}_{name}"] = Backward(of_other, forward, dout, four)
    for name, backend in PEERS.items():
        for of, mask in by_type.items():
            if of == "f32":  # PyTorch takes bool or the type of q
                continue
            try:
                peer = Peer(backend, x, mask[None, None].expand(batch, 1, n, n), dout)
                peer()
                torch.cuda.synchronize()
                found[f"{name}_{of}"] = peer
            except RuntimeError as error:
                row[f"{name}_{of}"] = str(error).splitlines()[0][:80]
    for name, (ms, low, high) in measure(found, rounds).items():
        row[name] = {"ms": ms, "p10_ms": low, "p90_ms": high}
    emit(out, row)


def gradient_error(got, x, mask, dout):
    """Root mean square of dattn_mask's error over its own, by FP64 for the last 64 queries of one
    batch entry and head; mask and got have a gradient of their own for each."""
    q, k, v, d = (t[-1:, :, -1].double()[0] for t in (*x, dout))
    s = q[-64:] @ k.T * q.shape[-1] ** -0.5 + mask[-1, -1, -64:].double()
    p = torch.softmax(s, -1)
    dp = d[-64:] @ v.T
    want = p * (dp - (p * dp).sum(-1, keepdim=True))
    ours = got[-1, -1, -64:].double()
    return ((ours - want).square().mean().sqrt() / want.square().mean().sqrt()).item()


def gradient_cell(context, others, d, n, rounds, out):
    """The backward with a bias of BF16, without its gradient and with it."""
    batch, heads = max(TOKENS // n, 1), HIDDEN // d
    x = [torch.randn(batch, n, heads, d, device="cuda").bfloat16() for _ in "qkv"]
    dout = torch.randn_like(x[0])
    for name, b, h in (("all", 1, 1), ("heads", 1, heads), ("each", batch, heads)):
        if b * h * n * n > 2**31:
            continue
        found, row = {}, {"cell": f"bwd_gradient_{name}_d{d}_s{n}", "head_dim": d, "seqlen": n,
                          "batch": batch, "heads": heads, "mask": [b, h, n, n]}
        mask = torch.randn(b, h, n, n, device="cuda").bfloat16()
        tensors = dict(zip("qkv", x)) | {"o": torch.empty_like(x[0]), "attn_mask": mask}
        tensors["lse"] = torch.empty(batch, heads, n, device="cuda")
        forward = Contender(context, "full", tensors)
        forward()
        of_mask = torch.full_like(mask, float("nan"))
        found["fa3"] = Backward(context, forward, dout, mask)
        found["fa3_gradient"] = Backward(context, forward, dout, mask, of_mask)
        for other, of_other in others.items():
            found[f"fa3_{other}"] = Backward(of_other, forward, dout, mask)
            found[f"fa3_{other}_gradient"] = Backward(
                of_other, forward, dout, mask, of_mask.clone()
            )
        found["fa3_gradient"]()
        torch.cuda.synchronize()
        if name == "each":
            error = gradient_error(of_mask, x, mask, dout)
            emit(out, {"check": row["cell"], "relative_error": error,
                       "failures": int(not error < 0.02)})
        kept = mask.detach().clone().requires_grad_()
        for peer, wanted in (("efficient", mask), ("efficient_gradient", kept)):
            try:
                made = Peer(PEERS["efficient"], x, wanted.expand(batch, heads, n, n), dout)
                if wanted.requires_grad:
                    made.mask = wanted  # a leaf: its gradient is summed
                made()
                torch.cuda.synchronize()
                found[peer] = made
            except RuntimeError as error:
                row[peer] = str(error).splitlines()[0][:80]
        for contender, (ms, low, high) in measure(found, rounds).items():
            row[contender] = {"ms": ms, "p10_ms": low, "p90_ms": high}
        emit(out, row)


def main():
    parser = gpu_run.arguments(__doc__, 7, (64, 128), (2048, 8192))
    parser.add_argument("--gradient", action="store_true", help="only gradients of a bias")
    parser.add_argument("--kinds", default=KINDS, type=lambda x: x.split(","),
                        help="of masks, with commas between [all]")
    parser.add_argument("--passes", default=("forward", "backward"), type=lambda x: x.split(","))
    gpu_run.add_also(parser, "another build of the library, its backward as fa3_NAME_…")
    args = parser.parse_args()
    out, context = gpu_run.begin(args, "mask-gradient" if args.gradient else "attn-mask")
    others = gpu_run.others(args)
    if args.gradient:
        for d in args.head_dims:
            for n in args.seqlens:
                gradient_cell(context, others, d, n, args.rounds, out)
        sys.exit(1 if gpu_run.wrong else 0)
    for d in args.head_dims:
        for n in args.seqlens:
            for kind in args.kinds:
                for of_pass in args.passes:
                    cell(context, others, kind, d, n, of_pass == "backward", args.rounds, out)
    sys.exit(1 if gpu_run.wrong else 0)


if __name__ == "__main__":
    try:
        main()
    except Fa3Error as error:
        sys.exit(f"mask_gpu.py: {error}")
