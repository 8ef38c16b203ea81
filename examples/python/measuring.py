# SPDX-License-Identifier: BSD-3-Clause
"""measuring.py — what the examples share: times of runs, tables, results that say where from."""

import json
import pathlib
import statistics
import sys
import time

import torch

import fa3

WARM_UPS, WARM_S, RUNS = 3, 0.1, 10


def add_options(parser):
    parser.add_argument("--device", help="cuda or cpu (cuda where there is a GPU)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write them there, too")
    parser.add_argument("--commit", help="of fa3, for --json (that of the tree)")


def device_of(options):
    """The device, after a word about what is not there."""
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        print("No GPU: a small problem on the CPU, whose speeds say nothing of a GPU's.\n")
    return device


def milliseconds(call, device):
    """Mean and standard deviation of RUNS calls, after WARM_UPS that take WARM_S seconds or more;
    on a GPU between two events."""
    wait = (lambda: None) if device == "cpu" else torch.cuda.synchronize
    count, until = 0, time.perf_counter() + WARM_S
    while count < WARM_UPS or time.perf_counter() < until:
        call()
        wait()
        count += 1
    taken = []
    if device == "cpu":
        for _ in range(RUNS):
            began = time.perf_counter()
            call()
            taken.append((time.perf_counter() - began) * 1e3)
    else:
        events = [[torch.cuda.Event(enable_timing=True) for _ in "ab"] for _ in range(RUNS)]
        call()  # so that none waits for the one before to be launched
        for begin, end in events:
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        taken = [begin.elapsed_time(end) for begin, end in events]
    return statistics.mean(taken), statistics.stdev(taken)


def print_table(head, rows):
    texts = [head, *rows]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
    for row in texts:
        cells = zip(row, widths, strict=True)
        first, *others = (f"{text:<{width}}" if i == 0 else f"{text:>{width}}"
                          for i, (text, width) in enumerate(cells))  # fmt: skip
        print("  ".join((first, *others)).rstrip())


def write(options, suite, device, cells, **problem):
    """Results as the benchmarks write them: a line about machine and commit, then one a cell."""
    if options.json is None:
        return
    root = pathlib.Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root / "bench"))
    import machine

    cpu = device == "cpu"
    name = fa3.Context().info()["name"] if cpu else torch.cuda.get_device_name()
    commit = options.commit or machine.commit(root)
    meta = machine.gpu_meta(suite, name, fa3.__version__, commit)
    meta |= {"torch": torch.__version__, "warm_ups": WARM_UPS, "runs": RUNS, **problem}
    lines = [meta, *({"kind": "cell", **cell} for cell in cells)]
    options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"\nwritten to {options.json}")
