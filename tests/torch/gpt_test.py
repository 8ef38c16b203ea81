# SPDX-License-Identifier: BSD-3-Clause
"""gpt_test.py — bench/gpt.py on a CPU: its smallest model is trained and validated in every way;
gpt_report.py makes tables and a picture of what it writes."""

import json
import os
import pathlib
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
OPTIONS = ["--tiny", "--text", BENCH, "--seeds", "1", "--steps", "3", "--runs", "128:fa2,fa3"]


def run(script, *arguments):
    command = [sys.executable, BENCH / script, *arguments]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, capture_output=True, text=True, env=hidden)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_result_and_its_report(tmp_path):
    path = tmp_path / "a-gpt.jsonl"
    run("gpt.py", *OPTIONS, "--out", path)
    meta, *lines = map(json.loads, path.read_text().splitlines())
    runs = [x for x in lines if x["kind"] == "run"]
    cells = {(x["attention"], x["method"]): x for x in lines if x["kind"] == "cell"}
    assert [x["attention"] for x in runs] == ["fa2", "fa3"]
    assert abs(runs[0]["loss"][0] - runs[1]["loss"][0]) < 0.01
    exact = cells["fa3", "bf16_fa3"]["loss"]
    for method in ("e4m3_tensor", "e4m3_head", "e4m3_block64", "e4m3_block128", "eight_bit"):
        loss = cells["fa3", method]["loss"]
        assert loss != exact and abs(loss - exact) < 0.01, method

    meta |= {"driver": "580", "cuda": "13.0", "cudnn": 91900, "fa3_commit": "0123456789ab"}
    path.write_text("".join(json.dumps(x) + "\n" for x in (meta, *lines)))
    tables = run("gpt_report.py", path, tmp_path / "a.svg")
    assert "| 128 | fa3 | " in tables and "| E4M3, a scale for each row and 64 columns | " in tables
    assert (tmp_path / "a.svg").read_text().count("<path ") > 3
