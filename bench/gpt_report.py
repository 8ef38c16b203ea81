#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gpt_report.py — renders docs/bench/quality.md and its picture from a result of gpt.py, by stdlib
alone.

bench/gpt_report.py              writes them from the newest bench/results/nvidia-*/*-gpt.jsonl
bench/gpt_report.py --check      fails when one is not that of the result
bench/gpt_report.py FILE [SVG]   prints the tables of one result file, and draws it
"""

import argparse
import math
import pathlib
import statistics
import sys
import textwrap

import machine
from timeline import Svg

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "bench" / "quality.md"
PICTURE = PAGE.with_name("quality-h200.svg")
FIELDS = (*machine.GPU_FIELDS, "torch", "cudnn", "model", "text", "steps")
REMEDY = "measure it anew by bench/gpt.py on a GPU (bench/README.md)"
BASE = "bf16_fa3"
TRAINED = {"fa3": "fa3", "fa2": "FlashAttention-2", "cudnn": "cuDNN"}
METHODS = {
    BASE: "BF16, fa3",
    "bf16_fa2": "BF16, FlashAttention-2",
    "bf16_cudnn": "BF16, cuDNN",
    "e4m3_tensor": "E4M3, a scale for each tensor",
    "e4m3_head": "E4M3, a scale for each head of a sequence",
    "e4m3_block256": "E4M3, a scale for each row and 256 columns",
    "e4m3_block128": "E4M3, a scale for each row and 128 columns",
    "e4m3_block64": "E4M3, a scale for each row and 64 columns",
    "fp8": '`precision="fp8"`',
    "eight_bit": '`precision="eight_bit"`',
    "eight_bit_accurate": '`precision="eight_bit_accurate"`',
}
# Okabe and Ito's palette, as plot_grid.py has it.
COLOURS = {"fa3": "#0072B2", "cudnn": "#E69F00", "fa2": "#009E73", "again": "#8a8f96"}
BAND = "#dfe7f1"


class Result:
    def __init__(self, path):
        lines = machine.load(path)
        machine.require(path.name, [x for x in lines if x["kind"] == "meta"], FIELDS, REMEDY)
        self.path, self.head = path, lines[0]
        self.runs = [x for x in lines if x["kind"] == "run"]
        self.cells = [x for x in lines if x["kind"] == "cell" and "loss" in x]
        self.every = self.runs[0]["every"]
        # A training that stopped with the machine has no sisters to compare it with.
        seeds = {x["seed"] for x in self.runs}
        self.seeds = sorted(s for s in seeds if len(self.of_seed(s)) == len(self.of_seed(0)))

    def of_seed(self, seed):
        return [x for x in self.runs if x["seed"] == seed]

    def head_dims(self):
        return sorted({x["head_dim"] for x in self.runs})

    def trainings(self, head_dim):
        """(attention, again) in the order of the tables, FlashAttention-2 first."""
        found = {(x["attention"], x["again"]) for x in self.runs if x["head_dim"] == head_dim}
        order = ["fa2", "cudnn", "fa3"]
        return sorted(found, key=lambda key: (key[1], order.index(key[0])))

    def curve(self, head_dim, attention, again, seed):
        for x in self.of_seed(seed):
            if (x["head_dim"], x["attention"], x["again"]) == (head_dim, attention, again):
                return x["loss"]
        raise ValueError(f"{self.path.name}: no training {head_dim}, {attention}, seed {seed}")

    def rates(self, head_dim, attention, again):
        """Million tokens a second of each training."""
        return [
            x["tokens"] / x["seconds"] / 1e6
            for x in self.runs
            if (x["head_dim"], x["attention"], x["again"]) == (head_dim, attention, again)
        ]

    def losses(self, head_dim, method, attention=None, again=0):
        """By run, of the validation files, with a method; of one kind of training or of all."""
        return {
            x["run"]: x["loss"]
            for x in self.cells
            if x["head_dim"] == head_dim
            and x["method"] == method
            and x["seed"] in self.seeds
            and (attention is None or (x["attention"], x["again"]) == (attention, again))
        }


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def ends(curves):
    """Mean of the last twentieth of each curve."""
    return [statistics.fmean(x[-max(1, len(x) // 20) :]) for x in curves]


def training_table(result):
    lines = [
        "| head dim | attention in training | training loss at the end | minus FlashAttention-2, "
        "same seed: at the end | whole curve, RMS | validation perplexity | million tokens/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for head_dim in result.head_dims():
        for attention, again in result.trainings(head_dim):
            curves = [result.curve(head_dim, attention, again, s) for s in result.seeds]
            last = ends(curves)
            name = TRAINED[attention] + (", again" if again else "")
            apart = whole = "–"
            if ("fa2", 0) in result.trainings(head_dim) and (attention, again) != ("fa2", 0):
                others = [result.curve(head_dim, "fa2", 0, s) for s in result.seeds]
                differences = [a - b for a, b in zip(last, ends(others))]
                apart = signed(differences, 4)
                squares = [(a - b) ** 2 for x, y in zip(curves, others) for a, b in zip(x, y)]
                whole = f"{math.sqrt(statistics.fmean(squares)):.4f}"
            losses = result.losses(head_dim, BASE, attention, again)
            perplexities = list(map(math.exp, losses.values()))
            rate = statistics.fmean(result.rates(head_dim, attention, again))
            lines.append(
                f"| {head_dim} | {name} | {pair(last, 4)} | {apart} | {whole} | "
                f"{pair(perplexities, 3)} | {rate:.2f} |"
            )
    return "\n".join(lines)


def repetitions(result):
    """Of fa3 with one seed, from the result beside this one whose name ends in -2."""
    path = result.path.with_name(f"{result.path.stem}-2.jsonl")
    if not path.exists():
        return []
    lines = machine.load(path)
    machine.require(path.name, lines[:1], FIELDS, REMEDY)
    texts, found = [], {}
    for x in lines[1:]:
        others = result.curve(x["head_dim"], "fa2", 0, x["seed"])
        first = result.curve(x["head_dim"], "fa3", 0, x["seed"])
        of = found.setdefault((x["head_dim"], x["seed"]), [first, others])
        of.append(x["loss"])
    for (head_dim, seed), (first, others, *more) in sorted(found.items()):
        all_ = ", ".join(f"{a - ends([others])[0]:+.4f}" for a in ends([first, *more]))
        texts.append(f"head dim {head_dim}, seed {seed}: {all_}")
    source = path.relative_to(ROOT)
    return [
        "fa3 minus FlashAttention-2 at the end, when fa3 trains once more with the seed that it "
        f"differs most in, the first as above ([result](../../{source})): {'; '.join(texts)}."
    ]


def pair(values, digits):
    return f"{statistics.fmean(values):.{digits}f} ± {spread(values):.{digits}f}"


def signed(values, digits):
    return f"{statistics.fmean(values):+.{digits}f} ± {spread(values):.{digits}f}"


def differences(result, head_dim, method):
    """Of the perplexity to that of BF16, in percent, model by model."""
    base, losses = result.losses(head_dim, BASE), result.losses(head_dim, method)
    return [100 * math.expm1(losses[run] - base[run]) for run in losses if run in base]


def quality_table(result):
    head_dims = result.head_dims()
    lines = [
        "| attention in validation | " + " | ".join(f"head dim {d}" for d in head_dims) + " |",
        "|---|" + "---|" * len(head_dims),
    ]
    first = []
    for d in head_dims:
        models = result.losses(d, BASE)
        mean = statistics.fmean(map(math.exp, models.values()))
        first.append(f"{mean:.3f}, {len(models)} models")
    lines.append(f"| {METHODS[BASE]} | " + " | ".join(first) + " |")
    for method in list(METHODS)[1:]:
        texts = []
        for d in head_dims:
            found = differences(result, d, method)
            texts.append(f"{signed(found, 3)} %" if found else "–")
        if set(texts) != {"–"}:
            lines.append(f"| {METHODS[method]} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


# ---- The picture --------------------------------------------------------------------------------

WIDTH, LEFT, GAP, TOP, UPPER, LOWER = 1080, 62, 56, 58, 250, 170


class Curves(Svg):
    def path(self, points, colour, width=1.2, dash="", opacity=1):
        way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes} '
            f'stroke-opacity="{opacity}"/>'
        )

    def area(self, points, colour):
        way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.parts.append(f'<path d="M{way}Z" fill="{colour}"/>')


class Axes:
    """A rectangle with scales."""

    def __init__(self, svg, place, xs, ys):
        self.svg, (self.x0, self.y0, self.width, self.height) = svg, place
        self.xs, self.ys = xs, ys

    def at(self, x, y):
        (x0, x1), (y0, y1) = self.xs, self.ys
        y = min(max(y, y0), y1)
        return (
            self.x0 + self.width * (x - x0) / (x1 - x0),
            self.y0 + self.height * (y1 - y) / (y1 - y0),
        )

    def frame(self, x_marks, y_marks, digits):
        for y in y_marks:
            left, right = self.at(self.xs[0], y), self.at(self.xs[1], y)
            self.svg.line(*left, *right)
            self.svg.text(left[0] - 6, left[1] + 3.5, f"{y:.{digits}f}", 10, "end")
        for x in x_marks:
            place = self.at(x, self.ys[0])
            self.svg.text(place[0], place[1] + 14, f"{x:g}", 10, "middle")


def smooth(curve, width=5):
    return [statistics.fmean(curve[max(0, i - width + 1) : i + 1]) for i in range(len(curve))]


def marks(low, high, step):
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def nice(span):
    """A step that cuts a span into four to ten."""
    power = 10 ** math.floor(math.log10(span / 4))
    return next(power * f for f in (5, 2, 1) if span / (power * f) >= 4)


def draw_losses(svg, place, result, head_dim, steps):
    curves = {
        (attention, seed): result.curve(head_dim, attention, 0, seed)
        for attention, again in result.trainings(head_dim)
        for seed in result.seeds
        if not again
    }
    skipped = min(len(steps) // 10, 10)
    low = min(min(c) for c in curves.values())
    high = max(c[skipped] for c in curves.values())
    high = max(high, low + 1e-6)  # of a run that has not learnt anything
    axes = Axes(svg, place, (0, steps[-1]), (low - 0.05 * (high - low), high))
    axes.frame([], marks(*axes.ys, nice(high - low)), 1)
    for (attention, _), curve in curves.items():
        points = [axes.at(x, y) for x, y in zip(steps[skipped:], curve[skipped:])]
        svg.path(points, COLOURS[attention], 1.1, opacity=0.8)


def draw_apart(svg, place, result, head_dim, steps):
    """Differences to FlashAttention-2 on the same batches, and what seeds differ by."""
    mean = lambda values: [statistics.fmean(x) for x in zip(*values)]
    base = [smooth(result.curve(head_dim, "fa2", 0, s)) for s in result.seeds]
    middle = mean(base)
    band = smooth([max(abs(c[i] - middle[i]) for c in base) for i in range(len(middle))])
    apart = [
        (again, attention, [a - b for a, b in zip(smooth(curve), base[i])])
        for attention, again in result.trainings(head_dim)[1:]
        for i, seed in enumerate(result.seeds)
        for curve in [result.curve(head_dim, attention, again, seed)]
    ]
    high = 1.15 * max(max(map(abs, curve)) for _, _, curve in apart) + 1e-9
    high = max(high, statistics.median(band))
    axes = Axes(svg, place, (0, steps[-1]), (-high, high))
    upper = [axes.at(x, y) for x, y in zip(steps, band)]
    lower = [axes.at(x, -y) for x, y in zip(steps, band)]
    svg.area(upper + lower[::-1], BAND)
    step = nice(2 * high)
    axes.frame(marks(*axes.xs, nice(steps[-1])), marks(*axes.ys, step), 3 if step < 0.01 else 2)
    for again, attention, curve in apart:
        points = [axes.at(x, y) for x, y in zip(steps, curve)]
        svg.path(points, COLOURS["again" if again else attention], 1.1, opacity=0.85)


def draw(result):
    """SVG text."""
    svg = Curves()
    panels = [d for d in result.head_dims() if len(result.trainings(d)) > 1]
    width = (WIDTH - LEFT - 20 - GAP * (len(panels) - 1)) / len(panels)
    steps = [result.every * (i + 1) for i in range(len(result.runs[0]["loss"]))]
    seeds = len(result.seeds)
    legend = [
        (COLOURS["fa3"], "fa3"),
        (COLOURS["cudnn"], "cuDNN"),
        (COLOURS["fa2"], "FlashAttention-2"),
        (COLOURS["again"], "FlashAttention-2 once more, below"),
        (BAND, f"how far {seeds} seeds are apart (FlashAttention-2), below"),
    ]
    x = LEFT
    for colour, text in legend:
        svg.rect(x, 12, 14, 10, colour)
        svg.text(x + 19, 21, text, 11)
        x += 40 + 5.9 * len(text)
    for i, head_dim in enumerate(panels):
        left = LEFT + i * (width + GAP)
        svg.text(left, TOP - 10, f"Head dim {head_dim}: training loss, {seeds} seeds", 12.5)
        draw_losses(svg, (left, TOP, width, UPPER), result, head_dim, steps)
        below = TOP + UPPER + 34
        text = "the same, minus that of FlashAttention-2 on the same batches"
        svg.text(left, below - 10, text, 12.5)
        draw_apart(svg, (left, below, width, LOWER), result, head_dim, steps)
        svg.text(left + width / 2, below + LOWER + 30, "step", 11, "middle")
    return svg.document(WIDTH, TOP + UPPER + 34 + LOWER + 40)


# ---- The page -----------------------------------------------------------------------------------


def page(result):
    head, source = result.head, result.path.relative_to(ROOT)
    model, text = head["model"], head["text"]
    tokens = head["steps"] * model["batch"] * model["context"] / 1e6
    each = {d: len(result.losses(d, BASE)) for d in result.head_dims()}
    heads = ", ".join(f"{model['width'] // d} of {d}" for d in each)
    seconds = sum(x["seconds"] for x in result.runs)
    paragraphs = [
        "# Quality of models",
        f"Small GPTs on one {head['device_name']}: {model['layers']} layers, width "
        f"{model['width']}, heads of three sizes ({heads}), {head['weights'] / 1e6:.1f} million "
        f"weights, context {model['context']}, learned positions, BF16 by autocast over FP32 "
        f"weights. The text is {text['files']} files of Python's standard library, split by file: "
        f"{text['training_bytes'] / 1e6:.1f} MB to train, "
        f"{text['validation_bytes'] / 1e6:.1f} MB to validate, of which "
        f"{text['validation_tokens']} tokens count; a vocabulary of {model['vocabulary']} words, "
        f"indentations and bytes, {text['bytes_per_token']:.2f} bytes a token. "
        f"{head['steps']} steps of {model['batch']} windows, {tokens:.1f} million tokens, AdamW. "
        f"{len(result.runs)} models, {seconds:.0f} s of training together.",
        "## Training",
        "From the same weights on the same batches, with attention (forward and backward) of fa3, "
        "of PyTorch's FlashAttention-2 and of its cuDNN; ± is the standard deviation over "
        f"{len(result.seeds)} seeds. *Again*: the same program with the same seed a second time; "
        "what it differs by comes of the order in which the backward adds up. Perplexity is that "
        "of a token of the validation files, with fa3's attention in BF16. Speed is that of whole "
        "steps.",
        f"![Training loss by step, and differences]({PICTURE.name})",
        training_table(result),
        *repetitions(result),
        "## 8 bits in validation",
        "The same models, on the validation files, with attention computed in 8 bits: perplexity "
        "relative to BF16, model by model; the mean and the standard deviation over the models "
        "(of all seeds and kinds of training). Nothing was trained or calibrated for 8 bits.",
        quality_table(result),
        "Codes with a scale for each row and 64, 128 or 256 columns are those of `fa3.quantize(x, "
        "block=(1, columns))` of q, k and v, for `fa3.attention`; where a head has no more "
        "columns than the block, each row has one scale. They and those with a scale for each "
        "tensor or head are not turned (no Hadamard transform). `precision=` is what "
        "[accuracy](../guide/accuracy.md#8-bits) describes: the first is FlashAttention-3's recipe "
        "with turned q and k; at head dim 64 the two others are the same. What the figures say is "
        "[there](../guide/accuracy.md#models), too.",
        f"Measured on {head['started'][:10]} at commit `{head['fa3_commit']}`, driver "
        f"{head['driver']}, CUDA {head['cuda']}, PyTorch {head['torch']}, cuDNN {head['cudnn']}, "
        f"result [`{source}`](../../{source}), by `gpt.py` ([how](../../bench/README.md)). This "
        "page and the picture are written by `bench/gpt_report.py`; `make lint` compares them with "
        "the result.",
    ]
    return "\n\n".join(map(wrapped, paragraphs)) + "\n"


def wrapped(paragraph):
    if paragraph[0] in "#|!":
        return paragraph
    return textwrap.fill(paragraph, 130, break_long_words=False, break_on_hyphens=False)


def newest():
    found = list(RESULTS.glob("nvidia-*/*-gpt.jsonl"))
    if not found:
        raise ValueError(f"bench/results: no result of gpt.py; {REMEDY}")
    return max(found, key=lambda path: machine.load(path)[0]["started"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="fail when stale; write nothing")
    parser.add_argument("file", nargs="?", type=pathlib.Path, help="print this result's tables")
    parser.add_argument("picture", nargs="?", type=pathlib.Path, help="draw it")
    options = parser.parse_args()
    if options.file:
        result = Result(options.file)
        print(f"{training_table(result)}\n\n{quality_table(result)}")
        if options.picture:
            options.picture.write_text(draw(result))
        return
    result = Result(newest())
    for path, fresh in ((PAGE, page(result)), (PICTURE, draw(result))):
        if not options.check:
            path.write_text(fresh)
        elif not path.exists() or path.read_text() != fresh:
            sys.exit(f"{path.name} is not that of the newest result; run bench/gpt_report.py")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"gpt_report: {error!r}")
