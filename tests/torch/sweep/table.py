# SPDX-License-Identifier: BSD-3-Clause
"""table.py — docs/guide/transformers.md from the rows of the sweep, and back."""

import pathlib
import re
from collections import Counter
from typing import Any

import torch
import transformers

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "transformers.md"
CHECKS = (
    "no padding", "left", "right", "holes", "late token", "early token", "dynamic cache",
    "static cache",
)  # fmt: skip
MARKS = {"right": "+", "refused": "r", "wrong": "**wrong**", "–": "–", "": ""}
HEAD = """# Models of transformers on fa3

Every model type of transformers {transformers} that can be built small from its configuration, on
`attn_implementation="fa3"` against `eager` with the same weights: two layers, F32, PyTorch
{torch}, on a CPU. Written by

```sh
scripts/transformers_sweep --write
```

which fails if a verdict is neither *right* nor *refused* (twenty minutes on one core);
`tests/torch/transformers_sweep_test.py` runs a slice of it against this page. How the attention
and the mask function work together: [python.md](python.md#models-of-transformers).

| | model classes |
|---|---|
{counts}

**Right**: all that `eager` runs equals it: outputs within 1e-4 of the largest number (or ten
times what weights moved by 1e-7 do to `eager`), gradients of all parameters within ten times
that. **Right, by itself**: likewise, but fa3 was not called: the model has no attention, or
computes it in modules of its own. **Refused**: with the sentence in the last column, before that
attention is computed.

A row that sees nothing has even weights in `eager`, none in `sdpa` and on fa3. Where that reaches
other rows (recurrent layers, pooling of the first token), what counts is `sdpa`.

The checks: a batch without padding, padded *left*, padded *right*, with *holes* (outputs and
gradients; rows of padding, too, where `eager` and `sdpa` agree on them); a *late token* changes
(rows before it change where they do in `eager`), an *early token* changes (rows beyond a window
do not); `generate()` from a batch padded left, logits of five tokens, *dynamic cache* and *static
cache*. + equal to `eager`, r refused, – not of that model: it takes no text, does not generate,
or `eager` fails there. A window of 5 tokens is given to models that can have one.

## Verdicts

| type | class | verdict | none | left | right | holes | late | early | dynamic | static | why |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""
NOT_BUILT = """
## Not built

These say nothing about fa3: a default configuration that is not complete or cannot be made small
by the names of its fields, packages that are not installed (timm, natten, …), or inputs that the
sweep does not know how to make.

| model type | class | why |
|---|---|---|
"""


def verdict(row: dict[str, Any]) -> str:
    alone = row["verdict"] == "right" and not row.get("calls")
    return "right, by itself" if alone else row["verdict"]


def _plain(text: str, longest: int = 160) -> str:
    """One line of a message, of which nothing is a table's or a machine's."""
    text = re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "\\<")
    text = re.sub(r"/\S*/", "…/", text).removeprefix("fa3.huggingface: ").strip()
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def write(rows: list[dict[str, Any]]) -> None:
    counts = Counter(verdict(row) for row in rows)
    order = ("right", "right, by itself", "refused", "wrong", "not built")
    lines = [f"| {name} | {counts[name]} |" for name in order if counts[name]]
    text = HEAD.format(
        transformers=transformers.__version__, torch=torch.__version__.split("+")[0],
        counts="\n".join(lines),
    )  # fmt: skip
    for row in rows:
        if row["verdict"] != "not built":
            cells = " | ".join(MARKS[row.get(name, "")] for name in CHECKS)
            why = _plain(row["reason"], 300)
            text += f"| {row['type']} | {row['model']} | {verdict(row)} | {cells} | {why} |\n"
    text += NOT_BUILT
    for row in rows:
        if row["verdict"] == "not built":
            text += f"| {row['type']} | {row['model']} | {_plain(row['reason'])} |\n"
    PAGE.write_text(text)


def read() -> dict[tuple[str, str], list[str]]:
    """Of the page: {(model type, class): [verdict, marks…]}."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" |")]
        if len(cells) >= 11 and cells[2] in ("right", "right, by itself", "refused"):
            found[cells[0], cells[1]] = cells[2 : 3 + len(CHECKS)]
    return found
