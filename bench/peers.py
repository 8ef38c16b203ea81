# SPDX-License-Identifier: BSD-3-Clause
"""peers.py — fa3 beside PyTorch on the CPU: one process, the same tensors, taking turns.

Every cell of the grid (cells.py) is verified before it is timed; a disagreement ends the run
without a result. The result is one JSON object per line; report.py renders it, README.md of this
folder says how to read it.
"""

import argparse
import datetime
import functools
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import torch

import cells
import contenders
import fa3_ctypes
import machine
import report
import timing

ROOT = pathlib.Path(__file__).resolve().parent.parent

PEAK_S = 0.3  # of each measurement of the processor's peak


def verify(cell, x, two):
    """(errors, (seconds of ours, of the peer)) of one call each; raises contenders.Disagreement."""
    mine, ours_s = timing.timed(lambda: two.ours(fill=math.nan))
    theirs, peer_s = timing.timed(two.peer_outputs)
    return contenders.verify(cell, x, mine, theirs), (ours_s, peer_s)


def measure_cell(cell, context, options):
    """One line of the result: verify, then time."""
    x = contenders.Tensors.random(cell, options.layout)
    two = contenders.contenders(context, cell, x)
    errors, cold_s = verify(cell, x, two)
    turns = timing.Turn(two.ours, cold_s[0]), timing.Turn(two.peer, cold_s[1])
    measure = functools.partial(timing.time_pairs, turns, options.seconds, options.pairs)
    pairs, busy = timing.undisturbed(cell.name, measure, options.strict)
    ours_ms, peer_ms = (timing.spread(times) for times in zip(*pairs))
    return {
        "kind": "cell",
        "cell": cell.name,
        **shape_fields(cell),
        "ours_ms": ours_ms,
        "peer_ms": peer_ms,
        "ours_gflops": round(cell.flops / ours_ms["median"] * 1e-6, 1),
        "peer_gflops": round(cell.flops / peer_ms["median"] * 1e-6, 1),
        "ratio": round(statistics.median(theirs / mine for mine, theirs in pairs), 4),
        "pairs": len(pairs),
        "busy_elsewhere": busy,
        "max_errors": errors,
    }


def shape_fields(cell):
    return {
        "op": cell.op,
        "dtype": cell.dtype,
        "batch": cell.batch,
        "heads": cell.heads,
        "seqlen": cell.seqlen,
        "head_dim": cell.head_dim,
        "mask": cell.mask,
    }


def run_peak(options, threads, dtype=None):
    """fa3_peak's answer: {clock_ghz, f32, bf16}, of which the last two may be None."""
    command = [
        str(options.peak),
        "--seconds",
        str(PEAK_S),
        "--threads",
        ",".join(map(str, threads)),
    ]
    command += ["--dtype", dtype] if dtype else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def peak_gflops(measured, threads):
    """The peak of one dtype on so many threads; None where the processor has no instruction."""
    return measured["gflops"][str(threads)]["peak"] if measured else None


def time_beside_peak(cell, turn, threads, options):
    """[(GFLOP/s of the turn, mean peak right before and after it)]; peaks may be None."""
    flops, peaks = [], []

    def measure_peak():
        peaks.append(peak_gflops(run_peak(options, [threads], cell.dtype)[cell.dtype], threads))

    measure_peak()
    for _ in range(options.pairs):
        flops.append(cell.flops * 1e-9 / turn.take())
        measure_peak()
    if None in peaks:
        return [(rate, None) for rate in flops]
    return [(rate, (a + b) / 2) for rate, a, b in zip(flops, peaks, peaks[1:])]


def measure_peak_share(cell, threads, library, options):
    """One line: forward GFLOP/s as a share of the peak measured before and after each turn."""
    x = contenders.Tensors.random(cell, options.layout)
    with fa3_ctypes.Context(library, threads, options.backend) as context:
        two = contenders.contenders(context, cell, x)
        errors, cold_s = verify(cell, x, two)
        turn = timing.Turn(two.ours, cold_s[0])
        measure = functools.partial(time_beside_peak, cell, turn, threads, options)
        measured, busy = timing.undisturbed(f"peak_share {cell.name}", measure, options.strict)
    rates, peaks = zip(*measured)
    known = None not in peaks  # else this processor has no such instruction
    return {
        "kind": "peak_share",
        "cell": cell.name,
        "threads": threads,
        **shape_fields(cell),
        "ours_gflops": round(statistics.median(rates), 1),
        "peak_gflops": round(statistics.median(peaks), 1) if known else None,
        "share": round(statistics.median(r / p for r, p in measured), 4) if known else None,
        "pairs": len(measured),
        "busy_elsewhere": busy,
        "max_errors": errors,
    }


class Result:
    """The lines of a run; a file appears only when the run is complete."""

    def __init__(self, common):
        self.common = common  # fields that every line repeats, so that a line can be read alone
        self.lines = []

    def add(self, line):
        self.lines.append({**line, **self.common})

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        partial.replace(path)


def meta(info, options, started):
    """First line: the machine, the versions and the protocol."""
    return {
        "kind": "meta",
        "suite": report.SUITE,
        "started": started.isoformat(timespec="seconds"),
        "device_name": info.name.decode(),
        "cores": os.cpu_count(),
        "torch_blas": re.findall(
            r"(?:Math Kernel Library Version|MKL-DNN v)\s*\S+", torch.__config__.show()
        ),
        "torch_simd": torch.backends.cpu.get_cpu_capability(),
        # Settings that change how either contender runs; none is set in an ordinary run.
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if re.match(r"G?OMP_|MKL_|ATEN_|FA3_", name) and "/" not in value
        },
        "layout": options.layout,
        "pause_s": timing.PAUSE_S,
        "turn_s": timing.TURN_S,
        "seconds_per_cell": options.seconds,
        "min_pairs": options.pairs,
    }


def measure_all(selected, library, options):
    """The whole run, as a Result."""
    started = datetime.datetime.now(datetime.timezone.utc)
    with fa3_ctypes.Context(library, options.threads, options.backend) as context:
        info = context.device_info()
        isa = info.instruction_set.decode()
        commit = machine.commit(ROOT)
        common = {
            "id": f"{started:%Y-%m-%d}-{commit}",
            "device": machine.device_slug(isa),
            "instruction_set": isa,
            "num_threads": options.threads,
            "fa3": library.version(),
            "fa3_commit": commit,
            "torch": torch.__version__,
        }
        result = Result(common)
        result.add(meta(info, options, started))
        counts = sorted({1, options.threads})
        peak = run_peak(options, counts)
        result.add({"kind": "peak", "when": "start", **peak})
        begin = time.perf_counter()
        for index, cell in enumerate(selected):
            line = measure_cell(cell, context, options)
            line["peak_gflops"] = peak_gflops(peak[cell.dtype], options.threads)
            result.add(line)
            elapsed = time.perf_counter() - begin
            print(
                f"[{index + 1:2}/{len(selected)} {elapsed:4.0f} s] "
                f"{cell.name:28} {line['ratio']:5.2f}x   "
                f"fa3 {line['ours_ms']['median']:10.3f} ms {line['ours_gflops']:7.1f} GFLOP/s   "
                f"torch {line['peer_ms']['median']:10.3f} ms {line['peer_gflops']:7.1f} GFLOP/s",
                flush=True,
            )
    if options.peak_share:
        for cell in cells.peak_cells():
            for threads in counts:
                line = measure_peak_share(cell, threads, library, options)
                result.add(line)
                print(f"{cell.name} on {threads} thread(s): {report.share_text(line)}", flush=True)
    result.add({"kind": "peak", "when": "end", **run_peak(options, counts)})
    return result


def parse_options():
    parser = argparse.ArgumentParser(
        description="Times fa3 beside PyTorch on the CPU, in turns, on the same tensors."
    )
    build = ROOT / "build" / "release"
    add = parser.add_argument
    add(
        "--lib",
        type=pathlib.Path,
        default=build / "lib" / "libfa3.so",
        help="libfa3 (default: the release build's)",
    )
    add(
        "--peak",
        type=pathlib.Path,
        default=build / "bin" / "fa3_peak",
        help="fa3_peak (default: as above)",
    )
    add(
        "--out",
        type=pathlib.Path,
        help="result file (default: bench/results/DEVICE/ID.jsonl for the whole grid with default "
        "layout, threads and backend, else none)",
    )
    add(
        "--cells",
        metavar="REGEX",
        help="only cells whose name matches, e.g. fwd_bf16_d128_causal_s8192",
    )
    add("--list", action="store_true", help="print the names of the cells and stop")
    add(
        "--quick",
        action="store_true",
        help="a smoke run: 2 heads, 1 batch entry, seqlen 256; no result file by default",
    )
    add(
        "--layout",
        choices=("bshd", "bhsd"),
        default="bshd",
        help="order of the tensors in memory (default bshd)",
    )
    add("--threads", type=int, default=2, help="threads of each contender (default 2)")
    add(
        "--backend",
        choices=sorted(fa3_ctypes.BACKENDS),
        default="auto",
        help="of fa3 (default auto)",
    )
    add("--seconds", type=float, default=4.0, help="time per cell after warm-up (default 4)")
    add(
        "--pairs",
        type=int,
        default=5,
        help="pairs per cell at least; 3 where a pair takes over 2 s (default 5)",
    )
    add(
        "--no-peak-share",
        dest="peak_share",
        action="store_false",
        help="skip the percent-of-peak measurement",
    )
    options = parser.parse_args()
    if options.threads < 1 or options.pairs < 2 or not options.seconds >= 0:
        parser.error(
            f"--threads {options.threads} --pairs {options.pairs} --seconds {options.seconds}: "
            "need threads ≥ 1, pairs ≥ 2, seconds ≥ 0"
        )
    if not options.peak.exists():
        parser.error(f"--peak {options.peak}: not there; bench/run builds it")
    return options


def select(options):
    """The cells to measure; sets options.strict: a result for bench/results, on a quiet machine."""
    selected = cells.grid()
    if options.quick:
        selected = cells.grid(seqlens=(256,), tokens=256, heads=2)
        options.seconds, options.pairs, options.peak_share = 0.0, 2, False
    if options.cells:
        selected = [cell for cell in selected if re.search(options.cells, cell.name)]
        options.peak_share = False
    if not selected:
        sys.exit(f"peers: --cells {options.cells} matches no cell; --list prints them")
    chosen = (options.threads, options.layout, options.backend, options.out)
    options.strict = options.peak_share and chosen == (2, "bshd", "auto", None)
    return selected


def main():
    options = parse_options()
    selected = select(options)
    if options.list:
        print("\n".join(cell.name for cell in selected))
        return
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        result = measure_all(selected, fa3_ctypes.Library(options.lib), options)
    print("\n" + report.render(result.lines))
    path = options.out
    if options.strict:
        common = result.common
        path = ROOT / "bench" / "results" / common["device"] / f"{common['id']}.jsonl"
    if path:
        result.write(path)
        print(f"written: {path}")


if __name__ == "__main__":
    try:
        main()
    except (
        re.error,
        timing.BusyMachine,
        contenders.Disagreement,
        fa3_ctypes.Fa3Error,
        OSError,
        subprocess.CalledProcessError,
    ) as error:
        sys.exit(f"peers: {error}; no result was written")
    except KeyboardInterrupt:
        print("peers: interrupted; no result was written", file=sys.stderr)
        sys.exit(130)
