#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""plot_grid.py — draws a result of peers_gpu.py --grid or bwd_gpu.py as the paper's figure: a
panel per head dim and mask, a group of bars per sequence length. Needs matplotlib
(bench/requirements.txt).

bench/plot_grid.py                 the pictures of docs/bench/ from the newest results
bench/plot_grid.py FILE OUT.png    another result
"""

import argparse
import pathlib
import sys

import grid_table
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (after the choice of a backend)

# Okabe and Ito's palette: told apart with any colour vision, and by lightness in grey.
COLOURS = {"fa3": "#0072B2", "fa3_deterministic": "#56B4E9", "flash_attn_3": "#009E73"}
COLOURS |= {"cudnn": "#E69F00", "fa2": "#C8C8C8"}
GROUP = 0.87  # of the distance between groups, for all bars of one
CEILING = "#555555"


def length_text(seqlen):
    return f"{seqlen // 1024}k" if seqlen >= 1024 else str(seqlen)


def draw_panel(axes, grid, head_dim, mask, cells):
    seqlens = sorted(cells)
    contenders = grid.contenders()
    width = GROUP / len(contenders)
    for i, contender in enumerate(contenders):
        shift = (i - (len(contenders) - 1) / 2) * width
        at = [g + shift for g, s in enumerate(seqlens) if contender in cells[s]]
        rates = [cells[s][contender]["tflops"] for s in seqlens if contender in cells[s]]
        bars = axes.bar(
            at, rates, 0.94 * width, color=COLOURS[contender], label=grid.name(contender)
        )
        weight = "bold" if contender == "fa3" else "normal"
        labels = axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=2, fontweight=weight)
        for label in labels:  # legible where the ceiling passes
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.4})
    matmul = grid.ceilings["matmul"]
    label = f"cuBLAS 8192³, same run: {matmul:.0f}"
    axes.axhline(matmul, color=CEILING, lw=0.9, ls=(0, (4, 3)), label=label, zorder=0)
    axes.set_title(f"head dim {head_dim}, {mask} mask", fontsize=10.5)
    axes.set_xticks(range(len(seqlens)), [length_text(s) for s in seqlens], fontsize=9)
    axes.tick_params(axis="x", length=0)
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def draw(grid, name, out):
    panels = grid.panels()
    rows = len({head_dim for head_dim, _, _ in panels})
    figure, axes = plt.subplots(
        rows,
        len(panels) // rows,
        figsize=(2.5 + 3 * len(grid.contenders()), 3.1 * rows + 1.2),
        sharey=True,
        squeeze=False,
    )
    for place, panel in zip(axes.flat, panels):
        draw_panel(place, grid, *panel)
    most = max(c[name]["tflops"] for c in grid.cells for name in COLOURS if name in c)
    axes[0][0].set_ylim(0, 1.1 * most)
    for row in axes:
        row[0].set_ylabel("TFLOP/s", fontsize=9)
    for place in axes[-1]:
        place.set_xlabel("sequence length", fontsize=9)
    figure.suptitle(
        f"Attention {name.lower()} on {grid.head['device_name']}: BF16, 16k tokens, hidden size "
        f"2048 ({grid.date()})",
        fontsize=13,
    )
    handles, labels = axes[0][0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i].startswith("cuBLAS"))
    figure.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="upper center",
        bbox_to_anchor=(0.5, 0.967),
        ncols=len(labels),
        frameon=False,
        fontsize=9,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.96), h_pad=1.4)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description="Draws grids measured on a GPU.")
    parser.add_argument("file", nargs="?", type=pathlib.Path, help="result [the newest of each]")
    parser.add_argument("out", nargs="?", type=pathlib.Path, help="picture [of docs/bench]")
    options = parser.parse_args()
    if options.file:
        grid = grid_table.load(options.file)
        page = next(p for p in grid_table.PAGES if p.suite == grid.head["suite"])
        draw(grid, page.name, options.out or page.path().with_name(page.picture))
        return
    for page in grid_table.PAGES:
        grid = grid_table.load(grid_table.newest_result(page.suite))
        draw(grid, page.name, page.path().with_name(page.picture))


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"plot_grid: {error}")
