#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""report.py — renders docs/bench/cpu.md from the newest result of peers.py, by stdlib alone.

bench/report.py            writes the page
bench/report.py --check    fails when it, or what README.md says of it, is not that result
bench/report.py FILE       prints the page of one result file
"""

import argparse
import math
import pathlib
import sys

from machine import CPU_FIELDS, load, require

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "bench" / "cpu.md"
SUITE = "cpu_peers"
OPS = {"fwd": "forward", "bwd": "backward"}


def publishable(lines, name):
    """The lines. Raises ValueError where they do not say how they were measured."""
    require(name, lines, CPU_FIELDS, "measure it anew in a checkout: bench/run")
    return lines


def newest_result(folder=RESULTS):
    """Lines of the peers result that was started last."""
    results = [load(path) for path in sorted(folder.glob("*/*.jsonl"))]
    results = [lines for lines in results if lines and lines[0].get("suite") == SUITE]
    if not results:
        raise ValueError("bench/results: no result of peers.py; measure one with `make bench`")
    return max(results, key=lambda lines: lines[0]["started"])


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def share_text(line):
    """`88 % of 192 GFLOP/s` of a peak_share line."""
    if line["share"] is None:
        return f"{line['ours_gflops']:.0f} GFLOP/s (no such instruction on this processor)"
    return f"{100 * line['share']:.0f} % of {line['peak_gflops']:.0f} GFLOP/s"


def table(measured):
    """Markdown table: a row per op, dtype, head dim and mask; a column per seqlen."""
    seqlens = sorted({line["seqlen"] for line in measured})
    rows = {}
    for line in measured:
        key = (line["op"], line["dtype"], line["head_dim"], line["mask"])
        rows.setdefault(key, {})[
            line["seqlen"]
        ] = f"**{line['ratio']:.2f}×** {line['ours_gflops']:.0f}"
    out = [
        "| | type | head dim | mask | "
        + " | ".join(f"seqlen {seqlen}" for seqlen in seqlens)
        + " |"
    ]
    out.append("|---|---|---|---|" + "---|" * len(seqlens))
    for (op, dtype, head_dim, mask), row in rows.items():
        fields = [
            OPS[op],
            dtype,
            str(head_dim),
            mask,
            *(row.get(seqlen, "–") for seqlen in seqlens),
        ]
        out.append("| " + " | ".join(fields) + " |")
    return "\n".join(out)


def cells(lines):
    """The measured cells, forward first, otherwise as measured."""
    measured = [line for line in lines if line["kind"] == "cell"]
    if not measured:
        raise ValueError(f"result {lines[0]['id']} has no cells; run bench/run again")
    order = {op: index for index, op in enumerate(OPS)}
    return sorted(measured, key=lambda line: order[line["op"]])


def means(measured):
    """Geometric mean by operation: `forward 1.50×, backward 1.60×`."""
    parts = []
    for op, name in OPS.items():
        ratios = [line["ratio"] for line in measured if line["op"] == op]
        if ratios:
            parts.append(f"{name} {geometric_mean(ratios):.2f}×")
    return ", ".join(parts)


def claim(lines):
    """What README.md says."""
    torch = lines[0]["torch"].split("+")[0]
    return f"PyTorch {torch} on a CPU in geometric mean: {means(cells(lines))}"


def peak_shares(lines):
    """One sentence on the share of the processor's peak, or nothing."""
    shares = [line for line in lines if line["kind"] == "peak_share"]
    if not shares:
        return ""
    parts = []
    for line in shares:
        threads = "1 thread" if line["threads"] == 1 else f"{line['threads']} threads"
        parts.append(f"{line['dtype']} on {threads} {share_text(line)}")
    first = shares[0]
    what = f"head dim {first['head_dim']}, {first['mask']}, seqlen {first['seqlen']}"
    return (
        f"Forward at {what}, against the peak measured between the same turns: "
        f"{'; '.join(parts)}."
    )


def page(lines):
    """Markdown of one result."""
    head = lines[0]
    measured = cells(lines)
    heads, torch = measured[0]["heads"], head["torch"].split("+")[0]
    lowest = min(measured, key=lambda line: line["ratio"])
    paragraphs = [
        "# Forward and backward on a CPU",
        "fa3 and PyTorch's `scaled_dot_product_attention` take turns in one process on the same "
        "tensors. The machine is shared, so\nthe ratios within this run are what to compare, not "
        "the rates.",
        f"How many times faster than PyTorch {torch} (in bold), and GFLOP/s of fa3; {heads} heads, "
        f"{head['num_threads']} threads each:",
        table(measured),
        f"Geometric mean: {means(measured)}; lowest: {lowest['ratio']:.2f}× (`{lowest['cell']}`).",
        peak_shares(lines),
        f"Measured on {head['device_name']} (`{head['device']}`), result `{head['id']}`, by "
        "`make bench`, whose protocol\nis in [bench/README.md](../../bench/README.md). This page "
        "is written by `bench/report.py`; `make lint` compares it with the\nresult.",
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Renders docs/bench/cpu.md from a result.")
    parser.add_argument("--check", action="store_true", help="fail when it is stale; write nothing")
    parser.add_argument("file", nargs="?", type=pathlib.Path, help="print this result's page")
    options = parser.parse_args()
    if options.file:
        print(page(publishable(load(options.file), options.file.name)), end="")
        return
    lines = newest_result()
    if lines:
        publishable(lines, f"the newest result ({lines[0].get('id', 'without id')})")
    fresh = page(lines)
    if not options.check:
        PAGE.write_text(fresh)
    elif not PAGE.exists() or PAGE.read_text() != fresh:
        sys.exit("the page is not that of the newest result; run bench/report.py")
    elif (said := claim(lines)) not in " ".join(README.read_text().split()):
        sys.exit(f"README.md does not say what the newest result gives: {said}; correct it")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"report: {error}")
