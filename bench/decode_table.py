#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""decode_table.py — renders docs/bench/decode.md from a result of decode_gpu.py, without more than
the standard library.

bench/decode_table.py            writes it from the newest bench/results/nvidia-*/*-decode.jsonl
bench/decode_table.py --check    fails when it, or what README.md says, is not that result
bench/decode_table.py --picture  draws its picture, in a Python with matplotlib (requirements.txt)
"""

import argparse
import dataclasses
import pathlib
import re
import sys

import grid_table
import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "bench" / "decode.md"
PICTURE = PAGE.with_name("decode-h200.png")
README = ROOT / "README.md"
PEERS = ("cudnn", "original")
NAME = re.compile(r"b(\d+) k(\d+) h(\d+)/(\d+) d(\d+) q(\d+)(?: page(\d+))?")


@dataclasses.dataclass
class Cell:
    """Sequences of equal lengths, and µs a call of each contender."""

    batch: int
    keys: int
    heads: str
    head_dim: int
    queries: int
    page: int  # rows of a page, 0 without pages
    gbytes: float
    us: dict

    def best_peer(self):
        return min(self.us[peer] for peer in PEERS if peer in self.us)

    def shape(self):
        """What the first columns of a table say."""
        return f"| {self.batch} | {self.keys} | {self.heads} | {self.head_dim} | {self.queries} |"


def cells(lines):
    found = []
    for line in (line for line in lines if "cell" in line):
        b, k, h, h_kv, d, q, page = (int(x or 0) for x in NAME.fullmatch(line["cell"]).groups())
        us = {name: value["us"] for name, value in line.items() if isinstance(value, dict)}
        found.append(Cell(b, k, f"{h}/{h_kv}", d, q, page, line["bytes"] * 1e-9, us))
    return found


def load(path):
    """The first line of a result, its cells without pages, and those with."""
    lines = machine.load(path)
    machine.require(path.name, lines, grid_table.FIELDS, grid_table.REMEDY)
    found = cells(lines)
    dense, paged = [c for c in found if not c.page], [c for c in found if c.page]
    if not dense or not paged:
        raise ValueError(f"{path.name}: no cells, or none with pages; {grid_table.REMEDY}")
    return lines[0], dense, paged


def ratios(of, over, among):
    return {i: of(c) / over(c) for i, c in enumerate(among)}


def over_best(among):
    return ratios(Cell.best_peer, lambda c: c.us["fa3"], among)


def over(name, among):
    return ratios(lambda c: c.us[name], lambda c: c.us["fa3"], [c for c in among if name in c.us])


def dense_table(dense):
    out = [
        "| batch | keys | heads | head dim | queries | fa3, µs | GB/s | cuDNN, µs | original, µs "
        "| best / fa3 |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for c in dense:
        peers = " | ".join(f"{c.us[p]:.1f}" if p in c.us else "–" for p in PEERS)
        rate = c.gbytes / c.us["fa3"] * 1e6
        out.append(f"{c.shape()} {c.us['fa3']:.1f} | {rate:.0f} | {peers} | "
                   f"{c.best_peer() / c.us['fa3']:.2f} |")  # fmt: skip
    return "\n".join(out)


def paged_table(paged):
    out = [
        "| batch | keys | heads | head dim | queries | rows of a page | fa3, µs | dense, µs "
        "| dense / fa3 | original, µs | original / fa3 |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for c in paged:
        us = c.us
        out.append(f"{c.shape()} {c.page} | {us['fa3']:.1f} | {us['fa3_dense']:.1f} | "
                   f"{us['fa3_dense'] / us['fa3']:.2f} | {us['original']:.1f} | "
                   f"{us['original'] / us['fa3']:.2f} |")  # fmt: skip
    return "\n".join(out)


def claim(dense):
    """What README.md says."""
    shares = over_best(dense)
    return (
        f"{grid_table.mean(shares):.2f} times the speed of the better of cuDNN and the original in "
        f"geometric mean ({min(shares.values()):.2f} in the least favourable of {len(dense)} cells)"
    )


def summary(dense, paged):
    shares = over_best(dense)
    behind = sum(ratio < 0.98 for ratio in shares.values())
    large = [c for c in paged if c.page >= 16]
    mean = grid_table.mean
    return (
        f"- The better of cuDNN and the original takes {mean(shares):.2f} times as long as fa3 in "
        f"geometric mean over {len(dense)} cells, from\n  {min(shares.values()):.2f} to "
        f"{max(shares.values()):.2f}; below 0.98 in {behind} of them.\n"
        f"- The original takes {mean(over('original', dense)):.2f} times as long, and on the same "
        f"pages {mean(over('original', paged)):.2f} times as long.\n"
        f"- In pages of 16 rows and more fa3 runs at {mean(over('fa3_dense', large)):.2f} of its "
        "speed on dense keys, in shorter ones at "
        f"{mean(over('fa3_dense', [c for c in paged if c.page < 16])):.2f}."
    )


def render(path):
    head, dense, paged = load(path)
    source = path.relative_to(ROOT)
    number = head["cudnn"]  # 91900 is 9.19.0
    paragraphs = [
        "# Decode on a GPU",
        f"BF16 on one {head['device_name']}: few queries of each sequence over all of its keys, "
        "lengths on the device.\nEach contender is a replayed graph of 100 calls that go through "
        "more keys and values than L2 holds; graphs take turns in one process, medians of 5.\n"
        "GB/s count keys and values, each once. cuDNN "
        f"{number // 10000}.{number // 100 % 100} is called by PyTorch "
        f"{head['torch'].split('+')[0]}'s `scaled_dot_product_attention`, for one query; the "
        "original is\nFlashAttention-3 (`tokenspeed-fa3`) with its scheduler's metadata, made "
        "once.",
        f"![Time of cuDNN and of the original over that of fa3, by cell]({PICTURE.name})",
        dense_table(dense),
        "Pages in random order, beside fa3 on dense keys and the original on the same pages:",
        paged_table(paged),
        summary(dense, paged),
        "Why it is as fast as it is: [decode_sm90.md](../tuning/decode_sm90.md).",
        f"Measured on {head['started'][:10]} at commit `{head['fa3_commit']}`, driver "
        f"{head['driver']}, CUDA {head['cuda']}, result\n[`{source}`](../../{source}),\nby "
        "`decode_gpu.py`. This page and its picture are made by `bench/decode_table.py`; `make "
        "lint` compares the page with the result.",
    ]
    return "\n\n".join(paragraphs) + "\n"


def draw(path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    head, dense, _ = load(path)
    shown = sorted(dense, key=lambda c: c.best_peer() / c.us["fa3"])
    figure, axes = plt.subplots(figsize=(9, 0.2 * len(shown) + 1.2))
    looks = {"cudnn": ("#E69F00", "cuDNN"), "original": ("#009E73", "the original")}
    for peer, (colour, name) in looks.items():
        at = [i for i, c in enumerate(shown) if peer in c.us]
        axes.scatter([shown[i].us[peer] / shown[i].us["fa3"] for i in at], at, s=26, color=colour,
                     label=f"{name} over fa3")  # fmt: skip
    axes.axvline(1, color="#0072B2", lw=1.4, label="fa3")
    axes.set_xscale("log")
    axes.set_xticks([0.5, 0.75, 1, 1.5, 2], ["0.5", "0.75", "1", "1.5", "2"])
    axes.minorticks_off()
    names = [f"{c.batch} × {c.keys}, {c.heads} heads of {c.head_dim}, {c.queries} q" for c in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=7)
    axes.set_ylim(-1, len(shown))
    axes.set_xlabel("time of a peer over that of fa3: right of the line fa3 is faster")
    axes.set_title(f"Decode on {head['device_name']}: batch × keys ({head['started'][:10]})")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=110, bbox_inches="tight", metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description="Renders docs/bench/decode.md.")
    parser.add_argument("--check", action="store_true", help="fail when stale; write nothing")
    parser.add_argument("--picture", action="store_true", help="draw the picture")
    options = parser.parse_args()
    path = grid_table.newest_result("decode")
    if options.picture:
        draw(path)
        return
    fresh = render(path)
    if not options.check:
        PAGE.write_text(fresh)
        return
    if not PAGE.exists() or PAGE.read_text() != fresh:
        sys.exit("decode.md is not that of the newest result; run bench/decode_table.py")
    if (said := claim(load(path)[1])) not in " ".join(README.read_text().split()):
        sys.exit(f"README.md does not say what the newest result gives: {said}; correct it")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"decode_table: {error}")
