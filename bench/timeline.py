#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""timeline.py — draws event logs of fa3_timeline as one SVG, by stdlib alone.

bench/timeline.py FOLDER OUT.svg    FOLDER/two_stage.json above FOLDER/serial.json
"""

import json
import pathlib
import re
import sys
from html import escape

PANELS = [
    ("two_stage", "Two-stage step (algorithm 2): exp t overlaps PV t+1 of the same consumer"),
    ("serial", "Serial step (algorithm 1): exp t overlaps no GEMM of the same consumer"),
]
LEFT, WIDTH, ROW, BAR, TITLE = 118, 1080, 21, 15, 34  # pixels
CHAR = 5.6  # width of a letter
COLOURS = {
    "copy": "#b9a3e3",
    "qk": "#86b6e8",
    "pv": "#8ccf98",
    "exp": "#f2a541",
    "barrier": "#ec8f8f",
    "wgmma": "#d5d8dc",
}
LEGEND = [
    ("copy", "copy in flight"),
    ("qk", "QKᵀ on the tensor cores"),
    ("pv", "PV"),
    ("exp", "exponentials of the softmax"),
    ("barrier", "wait at a barrier, by its name"),
    ("wgmma", "wait for a GEMM or store"),
]


class Log:
    """Events of one CTA as (begin, end, name), by the name of their row."""

    def __init__(self, path):
        events = json.loads(path.read_text())["traceEvents"]
        names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.rows = {name: [] for name in names.values()}
        for e in events:
            if e["ph"] == "X":
                self.rows[names[e["tid"]]].append((e["ts"], e["ts"] + e["dur"], e["name"]))
        for row in self.rows.values():
            row.sort()
        self.end = max(end for row in self.rows.values() for _, end, _ in row)

    def copies(self, place):
        """Copies of a tile, whose panels count as one: (begin, end) in order."""
        panels = [row for name, row in self.rows.items() if panel_of(name, place)]
        return [(min(p[0] for p in t), max(p[1] for p in t)) for t in zip(*panels)]

    def gemms(self, warpgroup):
        """Runs of wgmma with the same B operand."""
        runs = []
        for begin, end, name in self.rows[f"wgmma of warpgroup {warpgroup}"]:
            if not runs or runs[-1][0] != name:
                runs.append((name, []))
            runs[-1][1].append((begin, end))
        return runs


def panel_of(row, place):
    return re.fullmatch(rf"copies of {re.escape(place)}(\+\d+)?", row)


class Svg:
    def __init__(self):
        self.parts = []

    def rect(self, x, y, width, height, colour, title="", opacity=1):
        tip = f"<title>{escape(title)}</title>" if title else ""
        fade = f' fill-opacity="{opacity}"' if opacity != 1 else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.8):.1f}" height="{height}" '
            f'fill="{colour}"{fade}>{tip}</rect>'
        )

    def text(self, x, y, text, size=10, anchor="start", weight="normal"):
        bold = f' font-weight="{weight}"' if weight != "normal" else ""
        side = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{side}{bold}>{escape(text)}</text>'
        )

    def line(self, x0, y0, x1, y1):
        self.parts.append(f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="#e3e6ea"/>')

    def document(self, width, height):
        # An opaque ground, so that it reads the same on a dark page.
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="Helvetica, Arial, sans-serif" fill="#1f2328">\n'
            f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


class Panel:
    """One log, drawn from `top` down; `scale` in pixels per clock."""

    def __init__(self, svg, log, top, scale):
        self.svg, self.log, self.top, self.scale = svg, log, top, scale

    def x(self, clock):
        return LEFT + clock * self.scale

    def bar(self, begin, end, kind, label, title, opacity=1):
        width = (end - begin) * self.scale
        self.svg.rect(self.x(begin), self.y, width, BAR, COLOURS[kind], title, opacity)
        if label and len(label) * CHAR < width - 2:
            self.svg.text(self.x((begin + end) / 2), self.y + 11, label, 9.5, "middle")

    def row(self, name, first=False):
        if first:
            self.top += 5
        self.y = self.top
        self.svg.text(LEFT - 8, self.y + 11, name, 10.5, "end", "bold" if first else "normal")
        self.top += ROW

    def copies(self, name, stages, kv_tiles):
        """A row per stage; tiles are loaded from the last to the first."""
        loads = [self.log.copies(f"{name.lower()}[{s}]") for s in range(stages)]
        for stage in range(stages):
            self.row(f"{name}, stage {stage}")
            for n, (begin, end) in enumerate(loads[stage]):
                tile = kv_tiles - 1 - (n * stages + stage)
                label = f"{name} {tile}"
                self.bar(begin, end, "copy", label, f"load of {label}: {begin}…{end}")

    def waits(self, warp, kv_tiles=0):
        """What a warp does besides GEMMs: exponentials, and what it waits for."""
        events = self.log.rows[f"warp {warp}"]
        tile = kv_tiles
        for begin, end, name in events:
            title = f"{name}: {begin}…{end}"
            if name.endswith("exponentials"):
                tile -= 1
                self.bar(begin, end, "exp", f"exp {tile}", title)
            else:
                barrier = name.startswith("wait ")
                self.bar(begin, end, "barrier" if barrier else "wgmma", "", title)
        # Names may reach over what follows, but not over the next name.
        named = [e for e in events if e[2] != "wgmma_wait"] + [(self.log.end, 0, "")]
        for (begin, end, name), (until, _, _) in zip(named, named[1:]):
            label = name.removeprefix("wait ").replace("named barrier", "bar")
            if not name.startswith("wait ") or len(label) * CHAR > (until - begin) * self.scale:
                continue
            width = max((end - begin) * self.scale, len(label) * CHAR + 4)
            self.svg.text(self.x(begin) + width / 2, self.y + 11, label, 9.5, "middle")

    def gemms(self, warpgroup, kv_tiles):
        count = {"k": 0, "v": 0}
        for name, run in self.log.gemms(warpgroup):
            operand = name.split()[1][0]
            tile = kv_tiles - 1 - count[operand]
            count[operand] += 1
            kind, label = ("qk", f"QK {tile}") if operand == "k" else ("pv", f"PV {tile}")
            begin, end = run[0][0], run[-1][1]
            title = f"{label}, B from {name.split()[1]}: {begin}…{end}"
            self.bar(begin, end, kind, "", title, 0.5)
            for b, e in run:
                self.svg.rect(self.x(b), self.y, (e - b) * self.scale, BAR, COLOURS[kind])
            self.svg.text(self.x((begin + end) / 2), self.y + 11, label, 9.5, "middle")

    def draw(self, title, span):
        kv_tiles = sum(name == "k" for name in self.operands())
        self.svg.text(12, self.top + 15, title, 13, weight="bold")
        self.top += TITLE - 12
        first = self.top
        self.row("producer", True)
        self.waits(0)
        self.row("Q, then O")
        for name in "qo":  # of both consumers, as one
            tiles = [self.log.copies(f"{name}[{consumer}]")[0] for consumer in range(2)]
            begin, end = min(t[0] for t in tiles), max(t[1] for t in tiles)
            self.bar(begin, end, "copy", name.upper(), f"{name.upper()}: {begin}…{end}")
        stages = len({n for n in self.log.rows if re.fullmatch(r"copies of k\[\d+\]", n)})
        self.copies("K", stages, kv_tiles)
        self.copies("V", stages, kv_tiles)
        for consumer in range(2):
            self.row(f"consumer {consumer}", True)
            self.gemms(1 + consumer, kv_tiles)
            self.row("its warps")
            self.waits(4 + 4 * consumer, kv_tiles)
        self.svg.text(LEFT - 8, self.top + 9, "clocks", 9, "end")
        for clock in range(0, span + 1, 1000):
            self.svg.text(self.x(clock), self.top + 9, f"{clock}", 9, "middle")
        grid = len(self.svg.parts)
        for clock in range(0, span + 1, 1000):
            self.svg.line(self.x(clock), first, self.x(clock), self.top - 2)
        # Behind the bars.
        lines = self.svg.parts[grid:]
        del self.svg.parts[grid:]
        self.svg.parts[self.start : self.start] = lines
        return self.top + 16

    def operands(self):
        return [name.split()[1][0] for name, _ in self.log.gemms(1)]


def main(folder, out):
    logs = [(Log(pathlib.Path(folder, f"{name}.json")), title) for name, title in PANELS]
    span = max(log.end for log, _ in logs)
    scale = (WIDTH - LEFT - 24) / span
    svg = Svg()
    x = 12
    for kind, text in LEGEND:
        svg.rect(x, 10, 14, 12, COLOURS[kind])
        svg.text(x + 19, 20, text, 11)
        x += 34 + len(text) * CHAR * 1.05
    top = 34
    for log, title in logs:
        panel = Panel(svg, log, top, scale)
        panel.start = len(svg.parts)
        top = panel.draw(title, span)
    pathlib.Path(out).write_text(svg.document(WIDTH, top + 4), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"timeline: {error!r}; need the folder that fa3_timeline has written to")
