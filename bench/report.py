#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""report.py — renders the README's speed table from the newest result of peers.py, by stdlib alone.

bench/report.py            writes the table into README.md, between the two bench markers
bench/report.py --check    fails when the README does not show the newest result
bench/report.py FILE       prints the table of one result file
"""

import argparse
import math
import pathlib
import sys

from machine import CPU_FIELDS, load, require

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
SUITE = "cpu_peers"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
NO_RESULT = "No result has been recorded yet; `make bench` measures and writes one.\n"
OPS = {"fwd": "forward", "bwd": "backward"}


def publishable(lines, name):
    """The lines. Raises ValueError where they do not say how they were measured."""
    require(name, lines, CPU_FIELDS, "measure it anew in a checkout: bench/run")
    return lines


def newest_result(folder=RESULTS):
    """Lines of the peers result that was started last, or None."""
    results = [load(path) for path in sorted(folder.glob("*/*.jsonl"))]
    results = [lines for lines in results if lines and lines[0].get("suite") == SUITE]
    return max(results, key=lambda lines: lines[0]["started"], default=None)


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


def means(measured):
    """One sentence: geometric means and the lowest cell."""
    parts = []
    for op, name in OPS.items():
        ratios = [line["ratio"] for line in measured if line["op"] == op]
        if ratios:
            parts.append(f"{name} {geometric_mean(ratios):.2f}×")
    lowest = min(measured, key=lambda line: line["ratio"])
    return (
        f"Geometric mean: {', '.join(parts)}; lowest: {lowest['ratio']:.2f}× (`{lowest['cell']}`)."
    )


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
    return f"Forward at {what}, against the peak measured beside it: {'; '.join(parts)}."


def render(lines):
    """Markdown of one result."""
    head = lines[0]
    measured = [line for line in lines if line["kind"] == "cell"]
    if not measured:
        raise ValueError(f"result {head['id']} has no cells; run bench/run again")
    order = {op: index for index, op in enumerate(OPS)}
    measured.sort(key=lambda line: order[line["op"]])  # stable: otherwise as measured
    heads, torch = measured[0]["heads"], head["torch"].split("+")[0]
    paragraphs = [
        f"How many times faster than `scaled_dot_product_attention` of PyTorch {torch} (in bold), "
        f"and GFLOP/s of fa3; {heads} heads, {head['num_threads']} threads each:",
        table(measured),
        means(measured),
        peak_shares(lines),
        f"Measured on {head['device_name']} (`{head['device']}`), result `{head['id']}`; "
        "the protocol is in [bench/README.md](bench/README.md).",
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def with_block(text, block):
    """README text with the part between the markers replaced. Raises ValueError without them."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(
            f"README.md: need one {BEGIN} and after it one {END}, each on its own line; add them"
        )
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{block}{END}{rest.split(END)[1]}"


def main():
    parser = argparse.ArgumentParser(
        description="Renders the README's speed table from the newest result."
    )
    parser.add_argument(
        "--check", action="store_true", help="fail when the README is stale; write nothing"
    )
    parser.add_argument(
        "file", nargs="?", type=pathlib.Path, help="print the table of this result file instead"
    )
    options = parser.parse_args()
    if options.file:
        lines = publishable(load(options.file), options.file.name)
        print(render(lines), end="")
        return
    lines = newest_result()
    if lines:
        publishable(lines, f"the newest result ({lines[0].get('id', 'without id')})")
    text = README.read_text()
    fresh = with_block(text, render(lines) if lines else NO_RESULT)
    if not options.check:
        README.write_text(fresh)
    elif text != fresh:
        sys.exit("README.md: the speed table is not that of the newest result; run bench/report.py")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"report: {error}")
