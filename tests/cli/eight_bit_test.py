# SPDX-License-Identifier: BSD-3-Clause
"""8-bit tensors in the command: generated problems, cases, files with scales."""

import itertools
import json
import math
import random
import shlex
import unittest

import tensors
from kit import BAD_INPUT, UNSUPPORTED, USAGE, CliTest

BATCH, ROWS, HEADS, DIM = 2, 6, 2, 8


def scale_at(shape, b, i, h, c, rows, cols):
    """Index into the scales of row i of sequence b, column c."""
    if len(shape) == 1:
        return 0
    index = b * shape[1] + h
    if len(shape) == 3:
        return index * shape[2] + i
    if len(shape) == 4:
        block = index * shape[2] + (i // rows if rows else 0)
        return block * shape[3] + (c // cols if cols else 0)
    return index


class EightBit(CliTest):
    def file(self, name, scales, offsets=False, dtype="I8", v_dtype="F8_E4M3"):
        """A file with codes and scales, and one with the F32 tensors that they mean.
        scales: tensor → (shape of its scales, rows, cols)."""
        draw = random.Random(5)
        coded, plain = {}, {}
        shape = [BATCH, ROWS, HEADS, DIM]
        for t in "qkv":
            kind = v_dtype if t == "v" else dtype
            of, rows, cols = scales.get(t, (None, 0, 0))
            if kind == "I8":
                codes = [draw.randint(-128, 127) for _ in range(math.prod(shape))]
                values = codes
            else:
                signs = [0, 128]
                codes = [draw.randint(0, 110) + draw.choice(signs) for _ in range(math.prod(shape))]
                values = [tensors.e4m3(code) for code in codes]
            coded[t] = (kind, shape, codes)
            scale = [1.0]
            if of is not None:
                # Powers of two, so that Python's products are those of FP32.
                scale = [2.0 ** draw.randint(-7, -5) for _ in range(math.prod(of))]
                coded[t + "_scale"] = ("F32", of, scale)
            offset = [0.0] * (BATCH * HEADS * DIM)
            if offsets and t != "q":
                offset = [draw.randint(-4, 4) / 8 for _ in offset]
                coded[t + "_offset"] = ("F32", [BATCH, HEADS, DIM], offset)
            decoded = []
            for at, (b, i, h, c) in enumerate(itertools.product(*map(range, shape))):
                s = scale_at(of, b, i, h, c, rows, cols) if of else 0
                decoded.append(values[at] * scale[s] + offset[(b * HEADS + h) * DIM + c])
            plain[t] = ("F32", shape, decoded)
        tensors.write(self.path(name), coded)
        tensors.write(self.path("plain"), plain)
        return self.path(name)

    def assert_same(self, coded, *options):
        """The call on codes gives what the call on decoded tensors does."""
        self.fa3("run", coded, "-o", self.path("a"), "--out-dtype", "f32", "--quiet", *options)
        self.fa3("run", self.path("plain"), "-o", self.path("b"), "--quiet")
        self.assertEqual(tensors.read(self.path("a")), tensors.read(self.path("b")))

    def test_generated_problems(self):
        problems = [
            "--dtype f8_e4m3 --causal",
            "--dtype f8_e4m3 --q-scale group --heads-kv 2 --k-scale tensor --v-scale none",
            "--dtype i8 --q-scale 1 --k-scale 64 --k-offset --v-offset --out-dtype f32",
            "--dtype i8 --v-dtype bf16 --q-scale 1x0 --k-scale 16x32 --head-dim 72",
            "--dtype i8 --v-dtype f16 --out-dtype f16 --varlen-q 3,20 --varlen-kv 9,4 --spare-kv 3",
            "--dtype f8_e4m3 --q-scale 1 --v-scale 16 --varlen-q 9,0 --seqlen-kv 30 --seed 3",
            "--dtype f8_e4m3 --layout interleaved --alibi --sequence-ids 3 --seqlen-q 64",
        ]
        for options in problems:
            report = self.fa3_json("check", *options.split())
            self.assertEqual((report["ok"], list(report["outputs"])), (True, ["o", "lse"]), options)
            again = self.fa3_json(*shlex.split(report["replay"])[1:])
            self.assertEqual(again, report, options)
            generated = options.split(" --spare")[0].split(" --seed")[0].split()
            if "--layout" not in generated:  # an option of check, as those
                self.assertEqual(self.fa3_json("explain", *generated)["backend"], "cpu")
        text = self.fa3("check", "--dtype", "i8", "--k-offset", "--q-scale", 1)
        self.assertIn("i8 (v f8_e4m3), ", text)
        self.assertIn("scales of q 1, k head (offset), v head", text)

    def test_wrong_options(self):
        for command in ["check", "explain", "bench"]:
            for options, says in [
                ("--dtype i8 --q-scale 3x", ["--q-scale", "3x", "64x32"]),
                ("--dtype bf16 --q-scale 64", ["q-scale needs q of 8 bits"]),
                ("--dtype f8_e4m3 --k-scale group", ["k-scale group"]),
                ("--dtype f8_e4m3 --v-dtype bf16", ["v-dtype is for dtype i8"]),
                ("--dtype i8 --v-dtype f16 --v-offset", ["v-offset needs v of 8 bits"]),
            ]:
                self.assert_fails(USAGE, command, *options.split(), says=says)
        self.assert_fails(UNSUPPORTED, "check", "--dtype", "i8", "--backward", says="no gradient")

    def test_bench(self):
        sizes = {"seqlen_q": 20, "head_dim_qk": 16, "heads_q": 2}
        cases = [
            {"name": "a", "dtype": "f8_e4m3", "q_scale": "tensor", **sizes},
            {"name": "b", "dtype": "i8", "v_dtype": "bf16", "k_scale": "64", **sizes},
        ]
        cases[1]["k_offset"] = True
        path = self.path("cases.json")

        def write(cases):
            with open(path, "w") as file:
                json.dump(cases, file)

        write(cases)
        lines = self.fa3("bench", "--cases", path, "--repetitions", 1, "--json").splitlines()
        a, b = map(json.loads, lines)
        self.assertEqual((a["dtype"], a["v_dtype"], a["q_scale"]), ("f8_e4m3", "f8_e4m3", "tensor"))
        self.assertEqual((b["v_dtype"], b["k_scale"], b["v_scale"]), ("bf16", "64", "none"))
        self.assertEqual((b["k_offset"], b["v_offset"], a["verified"]), (True, False, True))
        for wrong, says in [
            ({"q_scale": "two"}, ["q_scale", "two"]),
            ({"q_scale": 64}, ["q_scale", "a string"]),
            ({"v_dtype": "f32"}, ["v_dtype", "f8_e4m3, f16, bf16"]),
            ({"k_offset": 1}, ["k_offset", "true or false"]),
        ]:
            write([{**cases[0], **wrong}])
            self.assert_fails(BAD_INPUT, "bench", "--cases", path, says=says)

    def test_files(self):
        head, token = [BATCH, HEADS], [BATCH, HEADS, ROWS]
        for n, scales in enumerate(
            [
                {},
                {"q": ([1], 0, 0), "k": (head, 0, 0), "v": (head, 0, 0)},
                {"q": (token, 1, 0), "k": (token, 1, 0), "v": (token, 1, 0)},
                # Numbers of blocks that only one size makes of 6 rows and 8 columns.
                {
                    "q": (head + [3, 1], 2, 0),
                    "k": (head + [6, 1], 1, 0),
                    "v": (head + [1, 8], 0, 1),
                },
            ]
        ):
            for dtype in ["I8", "F8_E4M3"]:
                self.assert_same(self.file(f"{n}", scales, offsets=n > 1, dtype=dtype))
        file = self.file("v16", {"q": (head, 0, 0), "k": (head, 0, 0)})
        self.assertEqual(self.fa3_json("check", file)["ok"], True)
        report = self.fa3_json("run", file, "-o", self.path("o"))
        self.assertEqual(report["outputs"]["o"]["dtype"], "bf16")
        self.assertEqual(report["inputs"]["v"]["dtype"], "f8_e4m3")

    def test_map(self):
        scales = {"q": ([BATCH, HEADS, 3, 1], 2, 0), "k": ([BATCH, HEADS, ROWS], 1, 0)}
        coded = self.file("in", scales, offsets=True)
        pictures = []
        for file in [coded, self.path("plain")]:
            out = ["-o", self.path("out"), "--map", self.path("map.png"), "--quiet"]
            self.fa3("run", file, *out, "--batch", 1, "--head", 1)
            with open(self.path("map.png"), "rb") as picture:
                pictures.append(picture.read())
        self.assertEqual(*pictures)

    def test_blocks_of_open_size(self):
        blocks = {"q": ([BATCH, HEADS, 2, 2], 4, 5)}  # 3, 4 or 5 rows; 4 … 7 columns
        file = self.file("in", blocks)
        out = ["run", file, "-o", self.path("out")]
        self.assert_fails(BAD_INPUT, *out, says=["--q-scale", "2 blocks of 6 rows", "64x32"])
        self.assert_same(file, "--q-scale", "4x5")
        self.assert_fails(BAD_INPUT, *out, "--q-scale", "2x4", says=["q_scale.shape[2]=2", "3"])
        self.assert_fails(USAGE, *out, "--q-scale", "x", says=["--q-scale", "x"])
        no_scales = [*out, "--q-scale", "4x5", "--k-scale", "head"]
        self.assert_fails(BAD_INPUT, *no_scales, says="--k-scale-name")

    def test_names_and_casts(self):
        file = self.file("in", {"q": ([1], 0, 0)})
        self.fa3("run", file, "-o", self.path("out"), "--q-scale-name", "", "--quiet")
        self.fa3("run", file, "-o", self.path("none"), "--q-scale", "none", "--quiet")
        self.assertEqual(tensors.read(self.path("out")), tensors.read(self.path("none")))
        # Other types have no scales; a model may have tensors of these names.
        cast = ["run", file, "-o", self.path("out"), "--dtype", "f32", "--quiet"]
        self.fa3(*cast)
        self.assert_fails(BAD_INPUT, *cast, "--q-scale-name", "q_scale", says=["q_scale", "f32"])
        self.assert_fails(USAGE, "check", file, "--dtype", "i8", says=["--dtype", "i8"])
        self.assert_fails(USAGE, "check", file, "--v-dtype", "bf16", says="--v-dtype")


if __name__ == "__main__":
    unittest.main()
