#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""fwd8_gpu.py — the 8-bit forward on one Hopper GPU: fa3 with E4M3 tensors, with INT8 Q and K, and
with 16 bits, on the paper's grid; with --cudnn beside cuDNN's FP8 forward, where Python finds the
package nvidia-cudnn-frontend; with --row beside itself on other rows of its table.

Contenders take turns in one process on tensors of the same numbers; medians in TFLOP/s. Each
8-bit result is compared with FP32 attention over the decoded tensors. One JSON object a line, the
first about machine and commit.
"""

import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import gpu_run
import peers_gpu
import torch
from cudnn_fp8 import CudnnFp8
from fa3_ctypes import Context, Fa3Error, forward_args
from gpu_run import HEAD_DIMS, HIDDEN, MASKS, TOKENS, emit, flops, measure, stream_handle

SEQLENS = (2048, 4096, 8192, 16384, 32768)
MOST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}


def quantised(x, dtype):
    """Codes, and scales of (batch, heads)."""
    scale = x.abs().amax(dim=(1, 3)).float() / MOST[dtype]
    codes = x.float() / scale[:, None, :, None]
    codes = codes.round() if dtype == torch.int8 else codes
    return codes.to(dtype), scale.contiguous()


def decoded(codes, scale):
    return codes.float() * scale[:, None, :, None]


def relative_error(o, q, k, v, mask):
    """Root mean square of O's error over O's, for the last 256 queries of the first head."""
    rows = min(256, q.shape[1])
    qs, ks, vs = (x[0, :, 0].double() for x in (q, k, v))
    s = qs[-rows:] @ ks.T * q.shape[-1] ** -0.5
    seen = peers_gpu.visible(mask, rows, k.shape[1])
    want = torch.softmax(s.masked_fill(~seen, float("-inf")), -1) @ vs
    ours = o[0, -rows:, 0].double()
    return ((ours - want).square().mean().sqrt() / want.square().mean().sqrt()).item()


class Contender:
    def __init__(self, context, mask, tensors, scalars=None):
        self.context, self.tensors = context, tensors
        self.args = forward_args(mask, scalars, **tensors)
        self.plan = context.plan_forward(self.args)
        size = max(self.plan.workspace_bytes, 1)
        self.work = torch.empty(size, dtype=torch.uint8, device="cuda")

    def __call__(self):
        self.plan.run(self.work.data_ptr(), stream_handle())


class CudnnContender:
    """cuDNN on E4M3 tensors; a scale for each, which is what it takes."""

    def __init__(self, mask, x):
        codes, scales = [], []
        for of in x:
            scale = of.abs().max().float() / MOST[torch.float8_e4m3fn]
            codes.append((of.float() / scale).to(torch.float8_e4m3fn))
            scales.append(scale)
        self.numbers = [c.float() * s for c, s in zip(codes, scales)]
        self.call = CudnnFp8(*codes, scales, mask)

    @property
    def tensors(self):
        return {"o": self.call.result()}

    def __call__(self):
        self.call()


def in_blocks(x, rows):
    """E4M3 codes with a scale for each block of rows, and scales of (batch, heads, blocks, 1)."""
    batch, seqlen, heads, d = x.shape
    blocks = x.float().reshape(batch, seqlen // rows, rows, heads, d)
    scale = blocks.abs().amax(dim=(2, 4)) / MOST[torch.float8_e4m3fn]
    codes = (blocks / scale[:, :, None, :, None]).to(torch.float8_e4m3fn)
    numbers = codes.float() * scale[:, :, None, :, None]
    scale = scale.transpose(1, 2).unsqueeze(-1).contiguous()
    return codes.reshape(x.shape), scale, numbers.reshape(x.shape)


def more_contenders(context, mask, x):
    """E4M3 whose sums of P·V stay in the tensor cores, since v_offset, of zeros, says that V has no
    mean; and with a scale for 128 keys."""
    in_head = [quantised(of, torch.float8_e4m3fn) for of in x]
    tensors = {"o": torch.empty_like(x[0])}
    for letter, (codes, scale) in zip("qkv", in_head):
        tensors[letter], tensors[f"{letter}_scale"] = codes, scale
    in_block = dict(tensors) | {"o": torch.empty_like(x[0])}
    numbers = [decoded(*in_head[0])]
    for letter, of in zip("kv", x[1:]):
        in_block[letter], in_block[f"{letter}_scale"], decoded_block = in_blocks(of, 128)
        numbers.append(decoded_block)
    batch, _, heads, d = x[2].shape
    tensors["v_offset"] = torch.zeros(batch, heads, d, device="cuda")
    scalars = {"k_block": (128, 0), "v_block": (128, 0)}
    return {
        "e4m3_v_offset": (Contender(context, mask, tensors), [decoded(*c) for c in in_head]),
        "e4m3_blocks": (Contender(context, mask, in_block, scalars), numbers),
    }


# Types of Q, K and V; None: as they come.
OPERANDS = {
    "e4m3": (torch.float8_e4m3fn,) * 3,
    "i8_e4m3": (torch.int8, torch.int8, torch.float8_e4m3fn),
    "i8_bf16": (torch.int8, torch.int8, None),
}


def coded(x, types):
    """Tensors of a forward and the numbers that they stand for."""
    tensors, numbers = {"o": torch.empty_like(x[0])}, []
    for letter, of, dtype in zip("qkv", x, types):
        if dtype is None:
            tensors[letter] = of
            numbers.append(of)
            continue
        tensors[letter], tensors[f"{letter}_scale"] = quantised(of, dtype)
        numbers.append(decoded(tensors[letter], tensors[f"{letter}_scale"]))
    return tensors, numbers


def context_with_row(library, row, operands, x, mask):
    """A context whose tuning names a row for this cell's problem."""
    batch, seqlen, heads, d = x[0].shape
    dtype = "f8_e4m3" if operands == "e4m3" else "i8"
    key = f"forward {dtype} batch {batch} heads {heads}/{heads} head_dim {d}/{d}"
    key += f" seqlen {seqlen}/{seqlen} {mask}"
    tuning = {"fa3_tuning": 1, "fa3": library.version(), "gpu": torch.cuda.get_device_name()}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(tuning | {"problems": [{"problem": key, "row": row}]}, file)
        file.flush()
        os.environ["FA3_TUNING"] = file.name
        try:
            return Context(library, device="cuda")
        finally:
            del os.environ["FA3_TUNING"]


def on_rows(library, rows, mask, x):
    """Of rows (name, operands, row, v_offset) those of this head dim."""
    jobs = {}
    for name, operands, row, v_offset in rows:
        if not row.startswith(f"d{x[0].shape[-1]} "):
            continue
        tensors, numbers = coded(x, OPERANDS[operands])
        if v_offset:
            batch, _, heads, d = x[2].shape
            tensors["v_offset"] = torch.zeros(batch, heads, d, device="cuda")
        context = context_with_row(library, row, operands, x, mask)
        jobs[name] = context, tensors, numbers
    with ThreadPoolExecutor() as pool:  # compiles
        made = {n: pool.submit(Contender, c, mask, t) for n, (c, t, _) in jobs.items()}
    found = {}
    for name, (_, _, numbers) in jobs.items():
        try:
            found[name] = made[name].result(), numbers
        except Fa3Error as error:
            print(f"{name}: {error}", file=sys.stderr)
    return found


def contenders(contexts, mask, x):
    """{name: (contender, decoded q, k, v)} for numbers x = (q, k, v) in BF16."""
    found = {}
    for label, context in contexts.items():
        o = torch.empty_like(x[0])
        if not label:
            names = dict(zip("qkv", x)) | {"o": o}
            found["bf16"] = Contender(context, mask, names), x
            found |= more_contenders(context, mask, x)
        for name, types in OPERANDS.items():
            tensors, numbers = coded(x, types)
            found[name + label] = Contender(context, mask, tensors), numbers
    return found


def run_cell(contexts, rows, d, mask, seqlen, rounds, cudnn, out):
    batch, heads = max(1, TOKENS // seqlen), HIDDEN // d
    x = [torch.randn(batch, seqlen, heads, d, device="cuda").bfloat16() for _ in "qkv"]
    found = contenders(contexts, mask, x)
    found |= on_rows(contexts[""].library, rows, mask, x)
    if cudnn:
        peer = CudnnContender(mask, x)
        found["cudnn_e4m3"] = peer, peer.numbers
    errors, used = {}, {}
    for name, (contender, numbers) in found.items():
        contender()
        torch.cuda.synchronize()
        errors[name] = relative_error(contender.tensors["o"], *numbers, mask)
        if isinstance(contender, Contender):
            used[name] = contender.context.explain_forward(contender.args)["sm90"]["row"]
    timed = measure({name: contender for name, (contender, _) in found.items()}, rounds)
    row = {
        "cell": f"fwd8_d{d}_{mask}_s{seqlen}",
        "rows": used,
        "head_dim": d,
        "mask": mask,
        "seqlen": seqlen,
        "batch": batch,
        "heads": heads,
        "clock_power": gpu_run.clock_mhz(),
        "relative_error": errors,
    }
    work = flops(d, mask, seqlen)
    for name, (ms, low, high) in timed.items():
        row[name] = {"ms": ms, "p10_ms": low, "p90_ms": high, "tflops": work / ms * 1e-9}
    emit(out, row)


def main():
    parser = gpu_run.arguments(__doc__, 9, HEAD_DIMS, SEQLENS)
    gpu_run.add_also(parser, "another build of the library, its results as …_NAME")
    parser.add_argument("--row", action="append", default=[], metavar="NAME=OPERANDS:ROW",
                        help="also on that row; OPERANDS+v_offset: with an offset of zeros")
    parser.add_argument("--cudnn", action="store_true", help="cuDNN's FP8 forward, too")
    parser.add_argument("--masks", type=lambda x: x.split(","), default=MASKS)
    args = parser.parse_args()
    out, context = gpu_run.begin(args, "fwd8-grid")
    contexts = {"": context, **gpu_run.others(args, "_")}
    rows = []
    for text in args.row:
        name, operands, row = text.replace(":", "=", 1).split("=", 2)
        rows.append((name, operands.removesuffix("+v_offset"), row, "+" in operands))
    for d in args.head_dims:
        for mask in args.masks:
            for seqlen in args.seqlens:
                run_cell(contexts, rows, d, mask, seqlen, args.rounds, args.cudnn, out)


if __name__ == "__main__":
    main()
