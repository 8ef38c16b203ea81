# SPDX-License-Identifier: BSD-3-Clause
"""gpu_run.py — what the benchmarks on a Hopper GPU share: the paper's sizes, options, results as
one JSON object a line, and contenders that are timed in turns."""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys

import machine
import torch
from fa3_ctypes import Context, Library

ROOT = pathlib.Path(__file__).resolve().parent.parent  # of the tree, or of the bundle
HIDDEN, TOKENS = 2048, 16384
HEAD_DIMS, MASKS = (64, 128, 256), ("full", "causal")
SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)
wrong = []  # checks that found something


def emit(out, row):
    if row.get("failures") or row.get("equal") is False:
        wrong.append(row["check"])
    if "kind" not in row:
        row = {"kind": next(iter(row)), **row}  # check, ceiling or cell
    print(json.dumps(row), file=out, flush=True)


def stream_handle():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def flops(d, mask, seqlen):
    batch, heads = max(1, TOKENS // seqlen), HIDDEN // d
    pairs = seqlen * (seqlen + 1) / 2 if mask == "causal" else seqlen * seqlen
    return 4 * batch * heads * pairs * d


def elapsed_ms(call, calls):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def measure(calls, rounds):
    """Median, 10th and 90th percentile ms per contender, taking turns; each begins in turn."""
    for call in calls.values():
        for _ in range(3):
            call()
    counts = {name: max(1, round(3.0 / elapsed_ms(call, 2))) for name, call in calls.items()}
    times = {name: [] for name in calls}
    names = list(calls)
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            times[name].append(elapsed_ms(calls[name], counts[name]))
    result = {}
    for name, taken in times.items():
        taken.sort()
        at = lambda share: taken[min(len(taken) - 1, int(share * len(taken)))]
        result[name] = (statistics.median(taken), at(0.1), at(0.9))
    return result


def clock_mhz():
    try:
        text = subprocess.run(
            ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=10,
        ).stdout
        return [float(x) for x in text.strip().split("\n")[0].split(",")]
    except Exception:
        return None


def ceilings(out):
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in "ab")
    c = torch.empty_like(a)
    ms = statistics.median(elapsed_ms(lambda: torch.matmul(a, b, out=c), 10) for _ in range(9))
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    copy = statistics.median(elapsed_ms(lambda: y.copy_(x), 5) for _ in range(9))
    emit(out, {"ceiling": "matmul 8192^3 bf16", "tflops": 2 * 8192**3 / ms * 1e-9})
    emit(out, {"ceiling": "copy 1 GiB", "gbytes_per_s": 2 * x.numel() / copy * 1e-6})


def arguments(doc, rounds=None, head_dims=None, seqlens=None):
    """A parser of what each benchmark of a library is asked, and of what it has defaults for."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lib", default="build/release/lib/libfa3.so")
    parser.add_argument("--out", help="file to append to [standard output]")
    parser.add_argument("--commit", help="of the library [the commit of this tree or bundle]")
    if rounds:
        parser.add_argument("--rounds", type=int, default=rounds)
    ints = lambda x: [int(y) for y in x.split(",")]
    if head_dims:
        parser.add_argument("--head-dims", type=ints, default=head_dims)
    if seqlens:
        parser.add_argument("--seqlens", type=ints, default=seqlens)
    return parser


def add_also(parser, text="another build of the library, its results as fa3_NAME"):
    parser.add_argument("--also", action="append", default=[], metavar="NAME=LIB", help=text)


def others(args, prefix=""):
    """A context of each build that --also names, by prefix and name."""
    named = (also.split("=", 1) for also in args.also)
    return {prefix + name: Context(Library(path), device="cuda") for name, path in named}


def begin(args, suite):
    """Where results go, and a context on the GPU; writes the line about machine and commit, and
    the rates of this GPU."""
    out = open(args.out, "a") if args.out else sys.stdout
    torch.manual_seed(0)
    library = Library(args.lib)
    meta = machine.gpu_meta(suite, torch.cuda.get_device_name(), library.version(),
                            args.commit or machine.commit(ROOT))
    emit(out, meta | {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()})
    ceilings(out)
    return out, Context(library, device="cuda")
