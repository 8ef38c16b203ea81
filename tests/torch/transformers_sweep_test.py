# SPDX-License-Identifier: BSD-3-Clause
"""transformers_sweep_test.py — a slice of transformers_sweep.py: what docs/guide/transformers.md
says of these models is still so."""

import warnings

import pytest
import transformers
import transformers_sweep
from sweep import checks, table

# Kinds of masks, of caches, of refusals: decoders whose modules say the opposite of their masks,
# encoders whose modules say nothing, windows that attention is not told, chunks, masks that models
# compute with, biases, attention across, parts that see images, tables of their own.
SLICE = (
    "bart", "bert", "bloom", "clap_text_model", "data2vec-vision", "deepseek_v32", "doge", "falcon",
    "gemma3_text", "gpt_oss", "gptj", "llama4_text", "mistral", "modernbert", "nllb-moe",
    "pegasus_x", "phimoe", "qwen2_5_vl_vision", "sam", "splinter", "t5", "xlm-roberta",
)  # fmt: skip


@pytest.mark.parametrize("model_type", SLICE)
def test_verdicts(model_type):
    said = {name: row for (kind, name), row in table.read().items() if kind == model_type}
    assert said
    transformers.logging.set_verbosity_error()
    checks.register()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in transformers_sweep.kinds(model_type):
            row = transformers_sweep.examine(model_type, kind)
            if row["verdict"] == "not built":
                assert kind.__name__ not in said, row["reason"]
                continue
            marks = [table.MARKS[row.get(name, "")] for name in table.CHECKS]
            assert [table.verdict(row), *marks] == said[kind.__name__], row["reason"]


def test_the_page_has_no_third_verdict():
    verdicts = {row[0] for row in table.read().values()}
    assert verdicts == {"right", "right, by itself", "refused"}
    assert "wrong" not in table.PAGE.read_text().split("## Verdicts")[1]
    assert len(table.read()) >= 283
