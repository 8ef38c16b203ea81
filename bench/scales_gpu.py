#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scales_gpu.py — the 8-bit forward of fa3 on one Hopper GPU with scales of blocks of columns, and
with V as an image that the quantiser wrote.

First (--check) results against FP64 over the decoded tensors, and that of an image against that of
the codes, bit by bit. Then (--grid) blocks of columns beside scales of heads and of rows, and
(--image) forwards with and without an image and what it costs the quantiser; in turns, medians.
One JSON object a line, the first about machine and commit.
"""

import sys

import gpu_run
import peers_gpu
import torch
from fa3_ctypes import Fa3Error, quantize_args
from fwd8_gpu import MOST, Contender
from gpu_run import HIDDEN, MASKS, TOKENS, emit, flops, measure, stream_handle

E4M3 = torch.float8_e4m3fn
SEQLENS = (2048, 16384)


def in_blocks(x, rows, cols, dtype):
    """Codes with a scale for each block of rows and columns (0 = all), scales of (batch, heads,
    blocks, blocks), and the numbers that both mean."""
    batch, seqlen, heads, d = x.shape
    rows, cols = rows or seqlen, min(cols or d, d)
    blocks = x.float().reshape(batch, -1, rows, heads, d // cols, cols)
    scale = blocks.abs().amax(dim=(2, 5), keepdim=True) / MOST[dtype]
    codes = blocks / scale
    codes = (codes.round() if dtype == torch.int8 else codes).to(dtype)
    numbers = (codes.float() * scale).reshape(x.shape)
    scale = scale[:, :, 0, :, :, 0].transpose(1, 2).contiguous()
    return codes.reshape(x.shape), scale, numbers


def coded(context, mask, x, qk, v, block):
    """A contender with those types and blocks of (rows, columns), and its decoded q, k, v."""
    tensors, scalars, numbers = {"o": torch.empty_like(x[0])}, {}, []
    for letter, of, dtype in zip("qkv", x, (qk, qk, v)):
        if dtype is None:
            tensors[letter] = of
            numbers.append(of)
            continue
        tensors[letter], tensors[f"{letter}_scale"], decoded = in_blocks(of, *block, dtype)
        scalars[f"{letter}_block"] = block
        numbers.append(decoded)
    return Contender(context, mask, tensors, scalars), numbers


def contenders(context, mask, x):
    types = {"e4m3": (E4M3, E4M3), "i8_e4m3": (torch.int8, E4M3), "i8_bf16": (torch.int8, None)}
    blocks = {"head": (0, 0), "rows128": (128, 0), "columns64": (0, 64), "token": (1, 0),
              "token_columns64": (1, 64), "rows128_columns64": (128, 64)}
    if x[0].shape[3] == 256:
        blocks |= {"columns128": (0, 128), "token_columns128": (1, 128)}
    found = {}
    for name, block in blocks.items():
        for kind, (qk, v) in types.items():
            if kind == "e4m3" or block == (1, 64):
                found[f"{kind}_{name}"] = coded(context, mask, x, qk, v, block)
    return found


def error_of(contender, numbers, mask):
    """Root mean square of O's error over O's, of the worst 32 columns, for the last 256 queries of
    each head."""
    q, k, v = (n.double().transpose(1, 2) for n in numbers)
    rows = min(256, q.shape[2])
    s = q[:, :, -rows:] @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    seen = peers_gpu.visible(mask, rows, k.shape[2])
    want = torch.softmax(s.masked_fill(~seen, float("-inf")), -1) @ v
    ours = contender.tensors["o"].transpose(1, 2)[:, :, -rows:].double()
    of_groups = lambda x: x.unflatten(-1, (-1, 32)).square().mean((0, 1, 2, 4)).sqrt()
    return (of_groups(ours - want) / of_groups(want)).max().item()


# Against decoded tensors the roundings of P and O remain: P is E4M3 where V is.
LIMITS = {"e4m3": 0.04, "i8_e4m3": 0.04, "i8_bf16": 0.01}


def check(context, d, mask, out):
    # Columns of very different sizes, which cancel in q·k: a scale of another block would show.
    sizes = 4.0 ** (torch.arange(d, device="cuda") // 32 % 4)
    x = [(torch.randn(2, 1024, 2, d, device="cuda") * by).bfloat16()
         for by in (1.5 * sizes, 1 / sizes, sizes)]
    for name, (contender, numbers) in contenders(context, mask, x).items():
        contender()
        torch.cuda.synchronize()
        error = error_of(contender, numbers, mask)
        limit = next(v for k, v in LIMITS.items() if name.startswith(k))
        plan = context.explain_forward(contender.args)["sm90"]
        emit(out, {"check": f"scales_d{d}_{mask}_{name}", "relative_error": error,
                   "tile_kv": plan["tile_kv"], "failures": int(not error <= limit)})


def grid_cell(contexts, d, mask, seqlen, rounds, out):
    context = contexts[""]
    batch, heads = TOKENS // seqlen, HIDDEN // d
    x = [torch.randn(batch, seqlen, heads, d, device="cuda").bfloat16() for _ in "qkv"]
    found = {name: c for name, (c, _) in contenders(context, mask, x).items()}
    for label, other in contexts.items():
        if label:
            found[f"e4m3_token{label}"] = coded(other, mask, x, E4M3, E4M3, (1, 0))[0]
    found["bf16"] = Contender(context, mask, dict(zip("qkv", x)) | {"o": torch.empty_like(x[0])})
    row = {"cell": f"scales_d{d}_{mask}_s{seqlen}", "head_dim": d, "mask": mask, "seqlen": seqlen,
           "batch": batch, "heads": heads, "clock_power": gpu_run.clock_mhz()}
    for name, (ms, low, high) in measure(found, rounds).items():
        work = flops(d, mask, seqlen)
        row[name] = {"ms": ms, "p10_ms": low, "p90_ms": high, "tflops": work / ms * 1e-9}
    emit(out, row)


class Quantised:
    """V of heads' scales, perhaps with an image of that shape."""

    def __init__(self, context, x, image=(), layout=0):
        batch, _, heads, _ = x.shape
        self.codes = torch.empty_like(x, dtype=E4M3)
        self.scale = torch.zeros(batch, heads, device="cuda")
        tensors = {"x": x, "codes": self.codes, "scale": self.scale}
        self.image = torch.zeros(image, device="cuda").to(E4M3) if image else None
        if image:
            tensors["v_image"] = self.image
        self.args = quantize_args({"v_image_layout": layout}, **tensors)
        self.plan = context.plan_quantize(self.args)
        size = max(self.plan.workspace_bytes, 1)
        self.work = torch.empty(size, dtype=torch.uint8, device="cuda")

    def __call__(self):
        self.plan.run(self.work.data_ptr(), stream_handle())


def image_cell(context, d, seqlen, queries, rounds, out):
    """Prompts where there are as many queries as keys, else a few on many keys."""
    batch, heads = max(TOKENS // seqlen, 1), HIDDEN // d
    new = lambda rows: torch.randn(batch, rows, heads, d, device="cuda").bfloat16()
    q, k, v = new(queries), new(seqlen), new(seqlen)
    tensors = {}
    for letter, of in zip("qk", (q, k)):
        tensors[letter], tensors[f"{letter}_scale"], _ = in_blocks(of, 0, 0, E4M3)
    plain = Quantised(context, v)
    with_v = tensors | {"v": plain.codes, "v_scale": plain.scale,
                        "v_offset": torch.zeros(batch, heads, d, device="cuda")}
    prompt = with_v | {"q": torch.empty_like(tensors["k"]), "q_scale": tensors["k_scale"],
                       "o": torch.empty_like(k)}
    shape, layout = Contender(context, "full", prompt).plan.v_image()
    imaged = Quantised(context, v, shape, layout)
    from_codes = Contender(context, "full", with_v | {"o": torch.empty_like(q)})
    with_image = with_v | {"o": torch.empty_like(q), "v": torch.zeros_like(plain.codes),
                           "v_image": imaged.image}
    from_image = Contender(context, "full", with_image, {"v_image_layout": layout})
    for call in (plain, imaged, from_codes, from_image):
        call()
    torch.cuda.synchronize()
    differ = (from_codes.tensors["o"].float() - from_image.tensors["o"].float()).abs().max().item()
    same_row = all(context.explain_forward(c.args)["sm90"]["row"] ==
                   context.explain_forward(from_codes.args)["sm90"]["row"]
                   for c in (from_codes, from_image))
    emit(out, {"check": f"v_image_d{d}_q{queries}_k{seqlen}", "same_row": same_row,
               "o_differs_by": differ,
               "failures": int(differ != 0 if same_row else not differ < 0.05)})
    row = {"cell": f"v_image_d{d}_q{queries}_k{seqlen}", "head_dim": d, "batch": batch,
           "heads": heads, "image": list(shape)}
    calls = {"quantize": plain, "quantize_with_image": imaged, "forward": from_codes,
             "forward_from_image": from_image}
    for name, (ms, low, high) in measure(calls, rounds).items():
        row[name] = {"ms": ms, "p10_ms": low, "p90_ms": high}
    emit(out, row)


def main():
    parser = gpu_run.arguments(__doc__, 9, (128, 256), SEQLENS)
    gpu_run.add_also(parser, "another build, scales of tokens in the grid as e4m3_token_NAME")
    for stage in ("check", "grid", "image"):
        parser.add_argument(f"--{stage}", action="store_true")
    args = parser.parse_args()
    every = not (args.check or args.grid or args.image)
    out, gpu = gpu_run.begin(args, "fwd8-scales")
    contexts = {"": gpu, **gpu_run.others(args, "_")}
    for d in args.head_dims if args.check or every else ():
        for mask in MASKS:
            check(gpu, d, mask, out)
    for d in args.head_dims if args.image or every else ():
        for seqlen, queries in ((4096, 4096), (16384, 16384), (16384, 64), (4096, 1)):
            image_cell(gpu, d, seqlen, queries, args.rounds, out)
    for d in args.head_dims if args.grid or every else ():
        for mask in MASKS:
            for seqlen in args.seqlens:
                grid_cell(contexts, d, mask, seqlen, args.rounds, out)
    sys.exit(1 if gpu_run.wrong else 0)


if __name__ == "__main__":
    try:
        main()
    except Fa3Error as error:
        sys.exit(f"scales_gpu.py: {error}")
