#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""quantize_gpu.py — fa3_quantize on one Hopper GPU, and 16-bit attention by way of 8 bits.

First (--check) codes, scales and offsets against the processor's. Then (--rate) what the recipes
quantise, in bytes read and written once a second, in turns with a copy of as many bytes. Then
(--grid) forwards with `precision` beside the one in BF16, all kernels timed, in turns; medians in
TFLOP/s. Last (--long) errors with up to 128k keys, where V has a mean and where it has none. One
JSON object a line, the first about machine and commit. With --before another build takes its turns
beside this one in rates and grid, under names that begin with before/.
"""

import itertools
import sys

import gpu_run
import torch
from fa3_ctypes import MASKS as MASK_IDS
from fa3_ctypes import PRECISIONS, Context, Fa3Error, Library, quantize_args
from fwd8_gpu import Contender, quantised, relative_error
from gpu_run import HEAD_DIMS, HIDDEN, MASKS, TOKENS, emit, flops, measure, stream_handle

SEQLENS = (2048, 4096, 8192, 16384)
SEED = 42


def power_of_two(d):
    return d & -d


class Quantisation:
    """One call: rows = 1, of a block, or 0 = all of a head that share a scale. With ends of packed
    sequences, rows of the batch follow each other, and rows = 1."""

    def __init__(self, context, x, dtype, rows, hadamard=0, offset=False, rotary=None, ends=None):
        batch, seqlen, heads, d = x.shape
        if ends is not None:
            x = x.flatten(0, 1)
        self.context, self.x = context, x
        self.codes = torch.zeros(x.shape, dtype=dtype, device=x.device)
        blocks = 1 if rows == 0 else -(-seqlen // rows)
        shape = (batch, heads, blocks, 1) if ends is None else (batch * seqlen, heads)
        self.scale = torch.zeros(shape, device=x.device)
        tensors = {"x": x, "codes": self.codes, "scale": self.scale}
        if ends is not None:
            self.ends = torch.tensor([0, *ends], dtype=torch.int32, device=x.device)
            tensors["cu_seqlens"] = self.ends
        self.offset = torch.zeros(batch, heads, d, device=x.device) if offset else None
        if offset:
            tensors["offset"] = self.offset
        if rotary is not None:
            tensors |= {"rotary_cos": rotary[0], "rotary_sin": rotary[1]}
        scalars = {"block": (rows, 0), "hadamard": hadamard, "seed": SEED}
        self.args = quantize_args(scalars, **tensors)
        self.plan = context.plan_quantize(self.args)
        size = max(self.plan.workspace_bytes, 1)
        self.work = torch.empty(size, dtype=torch.uint8, device=x.device)

    def __call__(self):
        on_gpu = self.x.is_cuda
        self.plan.run(self.work.data_ptr(), stream_handle() if on_gpu else None)


def tables(seqlen, d, device):
    """cos and sin of rotary embedding, (seqlen, d / 2), FP32; the same on every device."""
    angle = torch.arange(seqlen)[:, None] * (1e4 ** (-torch.arange(0, d, 2) / d))[None]
    return tuple(table.float().contiguous().to(device) for table in (angle.cos(), angle.sin()))


def cases(d):
    """{name: keywords of a Quantisation}: what the recipes and attention tensors need."""
    turned = {"hadamard": power_of_two(d)}
    i8, e4m3 = torch.int8, torch.float8_e4m3fn
    return {
        "q_i8": {"dtype": i8, "rows": 1} | turned,
        "q_i8_rotary": {"dtype": i8, "rows": 1, "rotary": True} | turned,
        "q_i8_rotary_packed": {"dtype": i8, "rows": 1, "rotary": True, "packed": True} | turned,
        "q_e4m3": {"dtype": e4m3, "rows": 1} | turned,
        "k_i8_tile": {"dtype": i8, "rows": 128} | turned,
        "k_e4m3_head": {"dtype": e4m3, "rows": 0} | turned,
        "k_i8_head_less_mean": {"dtype": i8, "rows": 0, "offset": True} | turned,
        "v_e4m3_head_less_mean": {"dtype": e4m3, "rows": 0, "offset": True},
    }


def made(context, x, case):
    case = dict(case)
    batch, longest, _, d = x.shape
    if case.pop("packed", False):  # by turns a quarter longer and shorter
        two = [longest * 5 // 4, longest - longest // 4]
        lengths = two * (batch // 2) + [longest] * (batch % 2)
        case["ends"] = list(itertools.accumulate(lengths))
        longest = max(lengths)
    if case.pop("rotary", False):
        case["rotary"] = tables(longest, d, x.device)
    return Quantisation(context, x, **case)


def check(gpu, cpu, d, dtype, out):
    x = torch.randn(2, 700, 7, d).to(dtype)
    x[:, :, :, 3] += 20  # a channel with a mean
    for name, case in cases(d).items():
        theirs = made(cpu, x, case)
        theirs()
        ours = made(gpu, x.cuda(), case)
        ours()
        torch.cuda.synchronize()
        codes = [q.codes.cpu().view(torch.uint8).int() for q in (ours, theirs)]
        apart = (codes[0] - codes[1]).abs()
        apart = torch.minimum(apart, 256 - apart)
        share = (apart > 0).double().mean().item()
        scale = ((ours.scale.cpu() - theirs.scale) / theirs.scale).abs().max().item()
        row = {
            "check": f"quantize_{name}_d{d}_{str(dtype).removeprefix('torch.')}",
            "codes_off": share,
            "codes_apart_at_most": apart.max().item(),
            "scale_relative_difference": scale,
        }
        bad = share > 1e-3 or scale > 2e-6
        if ours.offset is not None:
            row["offset_difference"] = (ours.offset.cpu() - theirs.offset).abs().max().item()
            bad = bad or row["offset_difference"] > 1e-4
        emit(out, row | {"failures": int(bad)})


def rate(contexts, d, tokens, rounds, out):
    """Bytes: x once and codes once, whatever the kernels read twice."""
    seqlen, heads = 4096, HIDDEN // d
    x = torch.randn(tokens // seqlen, seqlen, heads, d, device="cuda").bfloat16()
    moved = x.numel() * 3
    source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    calls = {prefix + name: made(context, x, case)
             for name, case in cases(d).items() for prefix, context in contexts.items()}
    timed = measure({"copy": lambda: target.copy_(source)} | calls, rounds)
    row = {"cell": f"quantize_d{d}_t{tokens}", "head_dim": d, "tokens": tokens, "bytes": moved}
    for name, (ms, low, high) in timed.items():
        row[name] = {"ms": ms, "p10_ms": low, "p90_ms": high, "gbytes_per_s": moved / ms * 1e-6}
    emit(out, row)


def grid_cell(contexts, d, mask, seqlen, rounds, out):
    batch, heads = TOKENS // seqlen, HIDDEN // d
    x = [torch.randn(batch, seqlen, heads, d, device="cuda").bfloat16() for _ in "qkv"]
    found = {}
    for name, value in PRECISIONS.items():
        for prefix, context in contexts.items():
            tensors = dict(zip("qkv", x)) | {"o": torch.empty_like(x[0])}
            scalars = {"precision": value, "precision_seed": SEED if value else 0}
            key = prefix + ("bf16" if name == "default" else name)
            found[key] = Contender(context, mask, tensors, scalars)
    errors = {}
    for name, contender in found.items():
        contender()
        torch.cuda.synchronize()
        errors[name] = relative_error(contender.tensors["o"], *x, mask)
    timed = measure(found, rounds)
    row = {"cell": f"precision_d{d}_{mask}_s{seqlen}", "head_dim": d, "mask": mask,
           "seqlen": seqlen, "batch": batch, "heads": heads,
           "clock_power": gpu_run.clock_mhz(), "relative_error": errors}
    for name, (ms, low, high) in timed.items():
        work = flops(d, mask, seqlen)
        row[name] = {"ms": ms, "p10_ms": low, "p90_ms": high, "tflops": work / ms * 1e-9}
    emit(out, row)


def exact(q, k, v):
    """FP64 attention of the first head, full mask."""
    q, k, v = (x[0, :, 0].double() for x in (q, k, v))
    return torch.softmax(q @ k.T * q.shape[-1] ** -0.5, -1) @ v


def long_cell(context, d, keys, mean, out):
    """RMSE of O over O's deviation from its column's mean: a mean of V adds nothing to that."""
    shape = lambda rows: (1, rows, 2, d)
    q, k, v = (torch.randn(shape(n), device="cuda") for n in (128, keys, keys))
    x = [q.bfloat16(), k.bfloat16(), (v + mean).bfloat16()]
    want = exact(*x)
    size = (want - want.mean(0)).square().mean().sqrt()
    errors = {}
    for name, value in PRECISIONS.items():
        o = torch.empty_like(x[0])
        scalars = {"precision": value, "precision_seed": SEED if value else 0}
        Contender(context, "full", dict(zip("qkv", x)) | {"o": o}, scalars)()
        errors["bf16" if name == "default" else name] = o
    codes = [quantised(of, torch.float8_e4m3fn) for of in x]
    offset = x[2].float().mean(1)
    less = quantised(x[2].float() - offset[:, None], torch.float8_e4m3fn)
    for name, coded in (("e4m3", codes[2]), ("e4m3_v_offset", less)):
        o = torch.empty_like(x[0])
        tensors = dict(zip("qkv", (codes[0][0], codes[1][0], coded[0]))) | {"o": o}
        tensors |= {f"{n}_scale": s for n, s in zip("qkv", (codes[0][1], codes[1][1], coded[1]))}
        if coded is less:
            tensors["v_offset"] = offset.contiguous()
        Contender(context, "full", tensors)()
        errors[name] = o
    torch.cuda.synchronize()
    error = lambda o: ((o[0, :, 0].double() - want).square().mean().sqrt() / size).item()
    emit(out, {"cell": f"long_d{d}_k{keys}_mean{mean}", "head_dim": d, "keys": keys, "v_mean": mean,
               "size_of_o": size.item(), "error": {n: error(o) for n, o in errors.items()}})


def main():
    parser = gpu_run.arguments(__doc__, 9, HEAD_DIMS, SEQLENS)
    parser.add_argument("--masks", type=lambda x: x.split(","), default=MASKS)
    parser.add_argument("--tokens", type=int, default=65536, help="of the rates [65536]")
    parser.add_argument("--before", help="another build of the library, timed in turns with --lib")
    parser.add_argument("--before-commit", help="its commit")
    for stage in ("check", "rate", "grid", "long"):
        parser.add_argument(f"--{stage}", action="store_true")
    args = parser.parse_args()
    unknown = [mask for mask in args.masks if mask not in MASK_IDS]
    if unknown:
        parser.error(f"--masks: {unknown[0]} is none of {', '.join(MASK_IDS)}")
    every = not (args.check or args.rate or args.grid or args.long)
    out, gpu = gpu_run.begin(args, "quantize")
    contexts = {"": gpu}
    if args.before:
        contexts["before/"] = Context(Library(args.before), device="cuda")
        emit(out, {"kind": "before", "fa3_commit": args.before_commit})
    if args.check or every:
        with Context(Library(args.lib), device="cpu") as cpu:
            for d in (16, 80, *args.head_dims):
                for dtype in (torch.bfloat16, torch.float16, torch.float32):
                    check(gpu, cpu, d, dtype, out)
    if args.rate or every:
        for d in args.head_dims:
            rate(contexts, d, args.tokens, args.rounds, out)
    if args.grid or every:
        for d in args.head_dims:
            for mask in args.masks:
                for seqlen in args.seqlens:
                    grid_cell(contexts, d, mask, seqlen, args.rounds, out)
    if args.long or every:
        for d in args.head_dims:
            for keys in (1024, 2048, 4096, 8192, 32768, 131072):
                for mean in (0.0, 0.5):
                    long_cell(gpu, d, keys, mean, out)
    sys.exit(1 if gpu_run.wrong else 0)


if __name__ == "__main__":
    try:
        main()
    except Fa3Error as error:
        sys.exit(f"quantize_gpu.py: {error}")
