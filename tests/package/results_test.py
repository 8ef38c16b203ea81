#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""results_test.py — results measured on a GPU say how: both writers of the first line on fake
libraries, and the refusal of results without it."""

import argparse
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
OPTIONS = argparse.Namespace()

sys.path.insert(0, str(BENCH))
import decode_table  # noqa: E402 (after the path)
import grid_table  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402

META = {
    "kind": "meta",
    "suite": "fwd-grid",
    "started": "2026-11-22T08:00:00+00:00",
    "device_name": "NVIDIA H200",
    "driver": "580.159.04",
    "cuda": "13.0",
    "fa3": "0.1.0",
    "fa3_commit": "0123456789ab",
    "torch": "2.11.0+cu130",
    "cudnn": 91900,
}
NAME = "2026-11-22-0123456789ab-fwd-grid.jsonl"


def grid():
    """Lines of a proper result, of two cells."""
    rate = lambda ms: {"ms": ms, "tflops": 600 / ms}
    cells = [
        {
            "kind": "cell",
            "cell": f"fwd_bf16_d128_full_s{seqlen}",
            "row": "d128",
            "head_dim": 128,
            "mask": "full",
            "seqlen": seqlen,
            "fa3": rate(1.0),
            "cudnn": rate(1.25),
        }
        for seqlen in (512, 1024)
    ]
    ceilings = [
        {"kind": "ceiling", "ceiling": "matmul 8192^3 bf16", "tflops": 750.0},
        {"kind": "ceiling", "ceiling": "copy 1 GiB", "gbytes_per_s": 4200.0},
    ]
    return copy.deepcopy([META, *ceilings, *cells])


def fakes(folder, driver=True):
    """Environment in which the fakes stand for what an NVIDIA driver installs."""
    names = {"libcuda.so.1": "fa3_fake_driver.so"}
    if driver:
        names["libnvidia-ml.so.1"] = "fa3_fake_nvml.so"
    for name, fake in names.items():
        pathlib.Path(folder, name).symlink_to(OPTIONS.fakes / fake)
    keep = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
    return {
        **keep,
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(folder),
        "FA3_CACHE_DIR": f"{folder}/cache",
        "FA3_NVRTC": str(OPTIONS.fakes / "fa3_fake_nvrtc.so"),
        "FAKE_CUDA_FORWARD": "right",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Writers(unittest.TestCase):
    def run_on_fakes(self, *command, driver=True):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                list(map(str, command)),
                env=fakes(folder, driver),
                capture_output=True,
                text=True,
                timeout=60,
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def launch(self, *args, **options):
        return self.run_on_fakes(OPTIONS.launch, *args, **options)

    def test_cpp_names_commit_gpu_driver_cuda_and_rows(self):
        lines, said = self.launch("--commit", "0123456789ab", "1")
        self.assertEqual(said, "")
        machine.require("launch", lines, machine.GPU_FIELDS, "")
        meta, *cells = lines
        self.assertEqual((meta["driver"], meta["cuda"]), ("580.159.04", "13.0"))
        self.assertEqual((meta["suite"], meta["fa3_commit"]), ("launch", "0123456789ab"))
        self.assertIn("Fake H200", meta["device_name"])
        names = ["full", "causal", "decode"]
        self.assertEqual([cell["cell"] for cell in cells], [f"launch_{name}" for name in names])
        *prompts, decode = (cell["row"] for cell in cells)
        self.assertTrue(all(row.startswith("d128") for row in prompts), prompts)
        self.assertEqual(decode, "decode")
        self.assertTrue(machine.result_name(meta).endswith("-0123456789ab-launch.jsonl"))

    def test_both_languages_write_the_same_line(self):
        (cpp,), _ = self.launch("--meta", "a-suite", "--commit", "0123456789ab-dirty")
        call = f"machine.gpu_meta('a-suite', {cpp['device_name']!r}, '{cpp['fa3']}', "
        code = f"import sys; sys.path.insert(0, {str(BENCH)!r}); import json, machine; "
        code += f"print(json.dumps({call} '0123456789ab-dirty')))"
        (python,), _ = self.run_on_fakes(sys.executable, "-c", code)
        self.assertEqual(list(cpp), list(python))
        self.assertEqual(set(cpp), {"kind", *machine.GPU_FIELDS})
        self.assertEqual(len(cpp.pop("started")), len(python.pop("started")))
        self.assertEqual(cpp, python)

    def test_what_is_not_known_is_not_made_up(self):
        if os.path.exists("/proc/driver/nvidia/version"):
            self.skipTest("this machine has a driver")
        (meta, *_), said = self.launch("1", driver=False)
        self.assertIn("--commit", said)
        unknown = machine.missing(meta, machine.GPU_FIELDS)
        self.assertEqual(unknown, ["driver", "cuda", "fa3_commit"])

    def test_commit_of_a_bundle(self):
        with tempfile.TemporaryDirectory() as folder:
            for text, commit in [
                ("fa3 0.1.0, commit 0123456789ab-dirty, needs glibc 2.34", "0123456789ab-dirty"),
                ("fa3 0.1.0", machine.UNKNOWN),
            ]:
                pathlib.Path(folder, "VERSION").write_text(text + "\n")
                self.assertEqual(machine.commit(folder), commit)


class Readers(unittest.TestCase):
    def load(self, lines, name=NAME):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            return grid_table.load(path)

    def refused(self, lines, *says):
        with self.assertRaises(ValueError) as refusal:
            self.load(lines)
        for text in (NAME, "measure a grid", *says):
            self.assertIn(text, str(refusal.exception))

    def test_proper_result_is_accepted(self):
        grid_ = self.load(grid())
        self.assertEqual(grid_.rows(), {"d128": 2})
        self.assertIn("| 128 | full | fa3 0.1.0 | **600** | **600** |", grid_table.table(grid_))
        self.assertEqual(machine.result_name(grid_.head), NAME)

    def test_each_missing_field_is_named(self):
        for field in ("fa3_commit", "driver", "cuda", "device_name", "started", "torch"):
            for value in (None, "", "unknown"):
                with self.subTest(field=field, value=value):
                    lines = grid()
                    lines[0][field] = value
                    self.refused(lines, f"no {field};")

    def test_missing_row_and_meta_line(self):
        lines = grid()
        del lines[-1]["row"]
        self.refused(lines, "no row in 1 of 2 cells;")
        self.refused(grid()[1:], "no meta line, suite,")
        self.refused(grid() + [META], "2 meta lines; need one run in one file")

    def test_format_of_before_is_refused(self):
        head = {"device": "NVIDIA H200", "torch": "2.11.0+cu130", "fa3": "0.1.0"}
        self.refused([{**head, "date": "2026-11-20"}, *grid()[1:]], "driver, cuda")

    def test_page_is_of_the_newest_and_names_its_origin(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder, "bench", "results", "nvidia-h200")
            place.mkdir(parents=True)
            for name, day in [("f" * 12, 21), ("0123456789ab", 22), ("0" * 12, 20)]:
                lines = grid()
                lines[0] |= {"started": f"2026-11-{day}T08:00:00+00:00", "fa3_commit": name}
                text = "".join(json.dumps(line) + "\n" for line in lines)
                (place / machine.result_name(lines[0])).write_text(text)
            newest = grid_table.newest_result(results=place.parent)
            self.assertEqual(newest.name, NAME)
            grid_table.ROOT, root = pathlib.Path(folder), grid_table.ROOT
            try:
                page = grid_table.render(grid_table.FORWARD, newest)
                wrong = newest.rename(newest.with_name("2026-11-22b-fwd-grid.jsonl"))
                with self.assertRaisesRegex(ValueError, f"this is {NAME}; rename"):
                    grid_table.render(grid_table.FORWARD, wrong)
            finally:
                grid_table.ROOT = root
            for text in ("0123456789ab", "580.159.04", "CUDA 13.0", "NVIDIA H200", "`d128` (2)"):
                self.assertIn(text, page)

    def test_decode_counts_the_better_peer(self):
        cell = {"kind": "cell", "row": "decode", "bytes": 4e6}
        us = lambda **contenders: {name: {"us": x} for name, x in contenders.items()}
        lines = [
            {**META, "suite": "decode"},
            {**cell, "cell": "b1 k1024 h32/8 d128 q1", **us(fa3=10.0, cudnn=12.0, original=20.0)},
            {**cell, "cell": "b2 k1024 h32/8 d128 q4", **us(fa3=10.0, original=7.5)},
            {**cell, "cell": "b1 k1024 h32/8 d128 q1 page16",
             **us(fa3=8.0, fa3_dense=6.0, original=10.0)},
        ]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "result.jsonl")
            write = lambda some: path.write_text("".join(json.dumps(x) + "\n" for x in some))
            write(lines)
            _, dense, paged = decode_table.load(path)
            write(lines[:-1])
            with self.assertRaisesRegex(ValueError, "none with pages"):
                decode_table.load(path)
            write([lines[0], {k: v for k, v in lines[1].items() if k != "row"}])
            with self.assertRaisesRegex(ValueError, "no row in 1 of 1 cells"):
                decode_table.load(path)
        table = decode_table.dense_table(dense)
        self.assertIn("| 1 | 1024 | 32/8 | 128 | 1 | 10.0 | 400 | 12.0 | 20.0 | 1.20 |", table)
        self.assertIn("| 2 | 1024 | 32/8 | 128 | 4 | 10.0 | 400 | – | 7.5 | 0.75 |", table)
        self.assertIn("| 16 | 8.0 | 6.0 | 0.75 | 10.0 | 1.25 |", decode_table.paged_table(paged))
        self.assertIn("0.95 times the speed", decode_table.claim(dense))  # √(1.2 · 0.75)
        self.assertIn("(0.75 in the least favourable of 2 cells)", decode_table.claim(dense))

    def test_cpu_result_without_commit_is_refused(self):
        lines = [{**META, "suite": report.SUITE, "id": "2026-11-22-x"}]
        self.assertEqual(report.publishable(lines, "a"), lines)
        lines[0]["fa3_commit"] = machine.UNKNOWN
        with self.assertRaisesRegex(ValueError, "a: .*no fa3_commit; .*bench/run"):
            report.publishable(lines, "a")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launch", type=pathlib.Path, required=True)
    parser.add_argument("--fakes", type=pathlib.Path, required=True)
    parser.parse_known_args(namespace=OPTIONS)
    OPTIONS.fakes = OPTIONS.fakes.resolve()
    unittest.main(argv=sys.argv[:1])
