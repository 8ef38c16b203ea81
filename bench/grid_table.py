#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""grid_table.py — renders docs/bench/forward.md from a result of peers_gpu.py --grid, and
backward.md beside it from one of bwd_gpu.py, without more than the standard library.

bench/grid_table.py            writes them from the newest bench/results/nvidia-*/*-grid.jsonl
bench/grid_table.py --check    fails when one, or what README.md says, is not that result
bench/grid_table.py FILE       prints the table of one result file
A result that does not say how it was measured is refused: commit, GPU, driver, CUDA, rows.
"""

import argparse
import collections
import dataclasses
import math
import pathlib
import sys

import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PEERS = ("flash_attn_3", "cudnn", "fa2")
DETERMINISTIC = "fa3_deterministic"
FIELDS = (*machine.GPU_FIELDS, "torch", "cudnn")
ORIGINAL_MEASURED = (
    "FlashAttention-3 is the original, compiled from the source of the commit in brackets for "
    "sm_90a and called\nas its Python module calls it."
)
REMEDY = (
    "what was not recorded cannot be added later: measure a grid by gpu-check.sh of `make "
    "gpu-check`, or by bench/peers_gpu.py --grid, and put it into bench/results/<device>/ "
    "(bench/README.md)"
)


@dataclasses.dataclass(frozen=True)
class Page:
    """A page about grids of one suite."""

    suite: str
    name: str  # of the page and, in lower case, of its file
    picture: str
    rates: str  # what TFLOP/s count
    configs: str  # the file of fa3's rows
    script: str
    original_missing: str

    def path(self):
        return ROOT / "docs" / "bench" / f"{self.name.lower()}.md"


FORWARD = Page(
    suite="fwd-grid",
    name="Forward",
    picture="fwd-h200.png",
    rates="TFLOP/s",
    configs="fwd/configs.h",
    script="peers_gpu.py --grid",
    original_missing="The original FlashAttention-3 was not installed where this was measured: "
    "`peers_gpu.py` takes its module\n`flash_attn_interface` where there is one.",
)
BACKWARD = Page(
    suite="bwd-grid",
    name="Backward",
    picture="bwd-h200.png",
    rates="TFLOP/s of 2.5 times the forward's operations, all kernels of the backward together",
    configs="bwd/configs.h",
    script="bwd_gpu.py",
    original_missing="The original FlashAttention-3 did not run here; what it reaches is in the "
    "[tuning log](../tuning/bwd_sm90.md).",
)
PAGES = (FORWARD, BACKWARD)


@dataclasses.dataclass
class Grid:
    """A result: its first line, other programs' rates for comparison, and the measured cells."""

    head: dict
    ceilings: dict
    cells: list

    def name(self, contender):
        """A contender with its version."""
        if contender == "fa3":
            return f"fa3 {self.head['fa3']}"
        if contender == DETERMINISTIC:
            return "the same, deterministic"
        if contender == "flash_attn_3":
            return f"FlashAttention-3 ({self.head['flash_attn_3']})"
        torch = self.head["torch"].split("+")[0]
        if contender == "cudnn":
            number = self.head["cudnn"]  # 91900 is 9.19.0
            return f"cuDNN {number // 10000}.{number // 100 % 100} (PyTorch {torch})"
        return f"FlashAttention-2 (PyTorch {torch})"

    def contenders(self):
        """fa3, deterministic, too, where it is another kernel, and the peers that ran."""
        found = {name for cell in self.cells for name in cell}
        return ("fa3", *(c for c in (DETERMINISTIC, *PEERS) if c in found))

    def peers(self):
        """The contenders that are not fa3."""
        return tuple(c for c in self.contenders() if c in PEERS)

    def date(self):
        return self.head["started"][:10]

    def rows(self):
        """{row of fa3's table: number of cells}, in the order measured."""
        return collections.Counter(cell["row"] for cell in self.cells)

    def panels(self):
        """[(head dim, mask, its cells by seqlen)], in the order measured."""
        found = {}
        for cell in self.cells:
            found.setdefault((cell["head_dim"], cell["mask"]), {})[cell["seqlen"]] = cell
        return [(*key, cells) for key, cells in found.items()]

    def ratios(self, peer):
        """By cell, the peer's time over fa3's, where the peer ran."""
        return {c["cell"]: c[peer]["ms"] / c["fa3"]["ms"] for c in self.cells if peer in c}


def newest_result(suite=FORWARD.suite, results=ROOT / "bench" / "results"):
    """The result of a suite that was started last, whether or not its file can be published."""

    def started(path):
        head = machine.load(path)[0]
        return head.get("started") or head.get("date", ""), path.name

    found = list(results.glob(f"nvidia-*/*-{suite}.jsonl"))
    if not found:
        raise ValueError(f"bench/results/nvidia-*: no *-{suite}.jsonl; {REMEDY}")
    return max(found, key=started)


def load(path):
    """The Grid of a file. Raises ValueError with what is wrong."""
    lines = machine.load(path)
    machine.require(path.name, lines, FIELDS, REMEDY)
    grid = Grid(lines[0], {}, [line for line in lines if "cell" in line])
    for line in lines:
        if "ceiling" in line:
            name = "matmul" if "tflops" in line else "copy"
            grid.ceilings[name] = line.get("tflops") or line["gbytes_per_s"]
    for cell in grid.cells:
        if not all(cell.get("same_bits", {}).values()):
            raise ValueError(f"{path.name}: {cell['cell']}: deterministic runs differ in bits")
    if not grid.cells:
        raise ValueError(f"{path.name}: no cells; {REMEDY}")
    return grid


def table(grid):
    """A row per head dim, mask and contender; a column per seqlen, the fastest in bold."""
    seqlens = sorted({cell["seqlen"] for cell in grid.cells})
    out = [
        "| head dim | mask | TFLOP/s | " + " | ".join(map(str, seqlens)) + " |",
        "|---|---|---|" + "---:|" * len(seqlens),
    ]

    def text(cell, contender):
        if cell is None or contender not in cell:
            return "–"
        rates = {c: cell[c]["tflops"] for c in grid.contenders() if c in cell}
        rate = f"{rates[contender]:.0f}"
        return f"**{rate}**" if rates[contender] == max(rates.values()) else rate

    for head_dim, mask, cells in grid.panels():
        for contender in grid.contenders():
            first = contender == "fa3"
            row = [str(head_dim) if first else "", mask if first else "", grid.name(contender)]
            row += [text(cells.get(seqlen), contender) for seqlen in seqlens]
            out.append("| " + " | ".join(row) + " |")
    return "\n".join(out)


def mean(ratios):
    return math.exp(sum(map(math.log, ratios.values())) / len(ratios))


def summary(grid):
    """How many times faster than each peer: the mean, the least, the most."""
    sentences = []
    for peer in grid.peers():
        ratios = grid.ratios(peer)
        least, most = min(ratios, key=ratios.get), max(ratios, key=ratios.get)
        sentences.append(
            f"- {grid.name(peer)}: {mean(ratios):.2f} in geometric mean over {len(ratios)} cells, "
            f"from\n  {ratios[least]:.3f} (`{least}`) to {ratios[most]:.2f} (`{most}`)."
        )
    text = "How many times faster fa3 is than\n\n" + "\n".join(sentences)
    if DETERMINISTIC not in grid.contenders():
        return text
    shares = {cell: 1 / ratio for cell, ratio in grid.ratios(DETERMINISTIC).items()}
    return (
        f"{text}\n\nDeterministic it runs at {mean(shares):.2f} of its own speed in geometric "
        f"mean, from {min(shares.values()):.2f} to {max(shares.values()):.2f}; ten runs\nof each "
        "cell gave the same bits of dQ, dK and dV."
    )


def claims(grid):
    """What README.md says of each peer but FlashAttention-2."""
    names = {"flash_attn_3": "the original FlashAttention-3"}
    for peer in grid.peers():
        if peer == "fa2":
            continue
        ratios = grid.ratios(peer)
        name = names.get(peer, grid.name(peer).split(" (")[0])
        yield (
            f"{mean(ratios):.2f} times the speed of {name} in geometric mean "
            f"({min(ratios.values()):.3f} in the least favourable of {len(ratios)} cells)"
        )


def render(page, path):
    """The page of a result."""
    grid = load(path)
    if path.name != (name := machine.result_name(grid.head)):
        raise ValueError(f"{path.name}: by its first line this is {name}; rename the file")
    source = path.relative_to(ROOT)
    rows = ", ".join(f"`{row}` ({cells})" for row, cells in grid.rows().items())
    paragraphs = [
        f"# {page.name} on a GPU",
        f"BF16 on one {grid.head['device_name']}: 16k tokens, hidden size 2048, so 2048 / head dim "
        "heads and 16384 / seqlen sequences.\nContenders take turns in one process on the same "
        f"tensors; medians, in {page.rates}; the fastest is in bold.",
        f"![TFLOP/s by head dim, mask and sequence length]({page.picture})",
        table(grid),
        summary(grid),
        ORIGINAL_MEASURED if "flash_attn_3" in grid.contenders() else page.original_missing,
        f"For comparison, at the start of the same run: cuBLAS multiplies 8192³ in BF16 at "
        f"{grid.ceilings['matmul']:.0f} TFLOP/s, and a\ncopy of 1 GiB reads and writes "
        f"{grid.ceilings['copy']:.0f} GB/s.",
        f"The rows of [`{page.configs}`](../../src/plan/sm90/{page.configs}) that fa3 ran, with "
        f"the number of cells: {rows}.",
        f"Measured on {grid.date()} at commit `{grid.head['fa3_commit']}`, driver "
        f"{grid.head['driver']}, CUDA {grid.head['cuda']}, result\n[`{source}`](../../{source}),\n"
        f"by `{page.script}`, whose protocol is in [bench/README.md](../../bench/README.md); "
        "`make gpu-check`\nmakes what measures it anew. This page is written by "
        "`bench/grid_table.py`, the picture by `bench/plot_grid.py`; `make lint`\ncompares the "
        "page with the result.",
    ]
    return "\n\n".join(paragraphs) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Renders docs/bench/{forward,backward}.md.")
    parser.add_argument("--check", action="store_true", help="fail when stale; write nothing")
    parser.add_argument("file", nargs="?", type=pathlib.Path, help="print this result's table")
    options = parser.parse_args()
    if options.file:
        grid = load(options.file)
        print(f"{table(grid)}\n\n{summary(grid)}")
        return
    for page in PAGES:
        fresh, path = render(page, newest_result(page.suite)), page.path()
        if not options.check:
            path.write_text(fresh)
        elif not path.exists() or path.read_text() != fresh:
            sys.exit(f"{path.name} is not that of the newest result; run bench/grid_table.py")
    if options.check:
        readme = " ".join(README.read_text().split())
        for said in (s for page in PAGES for s in claims(load(newest_result(page.suite)))):
            if said not in readme:
                sys.exit(f"README.md does not say what the newest result gives: {said}; correct it")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"grid_table: {error}")
