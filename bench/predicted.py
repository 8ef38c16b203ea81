#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""predicted.py — how far `fa3 explain` is from the clock: its estimate beside each cell of a grid
that peers_gpu.py or bwd_gpu.py measured, at the clock that the cell ran at.

    make build sim && bench/predicted.py bench/results/nvidia-h200/2026-11-20-fwd-grid.jsonl
"""

import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

FA3 = Path(__file__).resolve().parent.parent / "build/release/bin/fa3"


def estimate(cell):
    command = [FA3, "explain", "--backend", "sim", "--dtype", "bf16", "--json"]
    for option in ("batch", "head-dim"):
        command += [f"--{option}", str(cell[option.replace("-", "_")])]
    command += ["--heads-q", str(cell["heads"]), "--seqlen-q", str(cell["seqlen"])]
    if cell["mask"] == "causal":
        command.append("--causal")
    if is_backward(cell):
        command.append("--backward")
    plan = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    kernel = plan["backward_kernels"]["main"] if is_backward(cell) else plan["sm90"]
    return kernel["row"], plan["estimate"]


def is_backward(cell):
    return cell["cell"].startswith("bwd_")


def at_clock(e, ghz):
    """TFLOP/s at most of a backward: what is bound by memory does not follow the clock."""
    main_ms = e["ms_at_least_of"]["main"]
    rest_ms = e["ms_at_least"] - main_ms
    if e["limiter"] != "memory":
        main_ms *= e["clock_ghz"] / ghz
    return e["tflops_at_most"] * e["ms_at_least"] / (main_ms + rest_ms)


def backward(cells):
    """The backward's estimate is a bound, and no more."""
    shares = []
    print("| cell | row | GHz | limiter | at most | measured | measured / at most |")
    print("|---|---|---|---|---|---|---|")
    for cell in cells:
        row, e = estimate(cell)
        ghz = cell["clock_power"][0] / 1e3
        most, measured = at_clock(e, ghz), cell["fa3"]["tflops"]
        shares.append(measured / most)
        print(
            f"| {cell['cell']} | {row} | {ghz:.2f} | {e['limiter']} | {most:.0f} "
            f"| {measured:.0f} | {shares[-1]:.2f} |"
        )
    print(f"\n{len(shares)} cells: measured / at most {min(shares):.2f} to {max(shares):.2f}")


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} GRID.jsonl, a file of peers_gpu.py --grid or bwd_gpu.py")
    lines = map(json.loads, Path(sys.argv[1]).read_text().splitlines())
    cells = [line for line in lines if "cell" in line]
    if cells and is_backward(cells[0]):
        return backward(cells)
    ratios = []
    print("| cell | row | GHz | at most | expected | measured | expected / measured |")
    print("|---|---|---|---|---|---|---|")
    for cell in cells:
        row, e = estimate(cell)
        ghz = cell["clock_power"][0] / 1e3
        faster = 1 if e["limiter"] == "memory" else ghz / e["clock_ghz"]
        measured = cell["fa3"]["tflops"]
        ratios.append(e["tflops_expected"] * faster / measured)
        print(
            f"| {cell['cell']} | {row} | {ghz:.2f} | {e['tflops_at_most'] * faster:.0f} "
            f"| {e['tflops_expected'] * faster:.0f} | {measured:.0f} | {ratios[-1]:.2f} |"
        )
    near = sum(abs(r - 1) <= 0.1 for r in ratios)
    rms = math.sqrt(statistics.mean((r - 1) ** 2 for r in ratios))
    print(
        f"\n{len(ratios)} cells: expected / measured {min(ratios):.2f} to {max(ratios):.2f}, "
        f"mean {statistics.mean(ratios):.2f}, rms error {rms:.3f}, {near} within 10 %"
    )


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"predicted: {error.stderr.decode().strip()}")
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"predicted: {error!r}; need a grid of peers_gpu.py or bwd_gpu.py, and make sim")
