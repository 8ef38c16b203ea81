# SPDX-License-Identifier: BSD-3-Clause
"""fa3 quantize: codes that fa3 run takes, and what is refused; fa3 run --precision."""

import math
import unittest

import tensors
from kit import BAD_INPUT, DONE, UNSUPPORTED, USAGE, CliTest

SHAPE = [2, 40, 3, 32]


class Quantize(CliTest):
    def setUp(self):
        super().setUp()
        self.input = {t: tensors.draw(SHAPE, seed, "BF16") for seed, t in enumerate("qkv")}
        self.write(self.input)

    def write(self, content):
        tensors.write(self.path("in"), content)

    def rmse(self, a, b):
        return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))

    def output(self, *options, of="in"):
        """o and lse of a run."""
        args = ["--out-dtype", "f32", "--quiet", *options]
        self.fa3("run", self.path(of), "-o", self.path("o"), *args)
        out = tensors.read(self.path("o"))
        return out["o"][2], out["lse"][2]

    def test_run_takes_the_codes(self):
        exact = self.output("--causal")
        for options, in_run, types, error in [
            ([], [], ("I8", "F8_E4M3"), 0.02),
            (["--qk-type", "f8_e4m3", "--no-means"], [], ("F8_E4M3", "F8_E4M3"), 0.04),
            (["--v-type", "keep"], [], ("I8", "BF16"), 0.01),
            (["--q-scale", "tensor", "--k-scale", "16", "--v-scale", "8x16"],
             ["--k-scale", "16", "--v-scale", "8x16"], ("I8", "F8_E4M3"), 0.02),
            (["--hadamard", 0, "--seed", 7], [], ("I8", "F8_E4M3"), 0.02),
        ]:
            text = self.fa3("quantize", self.path("in"), "-o", self.path("coded"), *options)
            self.assertIn(f"q         (2, 40, 3, 32) {types[0].lower()} from bf16", text)
            self.assertIn(" ".join(["fa3 run", self.path("coded"), *in_run, "-o"]), text)
            coded = tensors.read(self.path("coded"))
            self.assertEqual((coded["q"][0], coded["k"][0], coded["v"][0]), (types[0], *types))
            self.assertEqual("k_offset" in coded, "--no-means" not in options)
            self.assertEqual("v_scale" in coded, types[1] != "BF16")
            o, lse = self.output("--causal", *in_run, of="coded")
            self.assertLess(self.rmse(o, exact[0]), error, options)
            self.assertGreater(self.rmse(o, exact[0]), 0, options)
            self.assertLess(self.rmse(lse, exact[1]), 0.05, options)

    def test_rotary_tables_of_the_file(self):
        # An angle of half a turn changes the signs of q and k, and with them nothing.
        plain = self.output()
        table = [40, 8]
        half_turn = {
            "rotary_cos": ("F32", table, [-1.0] * 320),
            "rotary_sin": ("F32", table, [0.0] * 320),
        }
        rest = {"alibi_slopes": ("F32", [3], [0.0] * 3), "k_offset": ("F32", [1], [9.0])}
        self.write({**self.input, **half_turn, **rest, "other": ("F32", [2], [1.0, 2.0])})
        for layout in ["halves", "pairs"]:
            report = self.fa3_json("quantize", self.path("in"), "-o", self.path("coded"),
                                   "--rotary-layout", layout, "--no-means")
            self.assertEqual((report["q"]["rotary"], report["v"]["rotary"]), (True, False))
            names = set(tensors.read(self.path("coded")))
            coded = {"q", "k", "v", "q_scale", "k_scale", "v_scale", "alibi_slopes"}
            self.assertEqual(names, coded)
            self.assertLess(self.rmse(self.output(of="coded")[0], plain[0]), 0.02)
        short = {k: (t, [39, 8], v[:312]) for k, (t, _, v) in half_turn.items()}
        self.write({**self.input, **short})
        self.assert_fails(BAD_INPUT, "quantize", self.path("in"), "-o", self.path("x"),
                          says=["rotary_cos.shape[0]=39, need at least 40"])

    def test_varlen_and_streams(self):
        cu = {f"cu_seqlens_{x}": ("I32", [3], [0, 5, 60]) for x in ["q", "kv"]}
        self.write({t: (d, [80, 3, 32], v) for t, (d, _, v) in self.input.items()} | cu)
        exact = self.output()[0]
        with open(self.path("in"), "rb") as source, open(self.path("coded"), "wb") as sink:
            import subprocess

            from kit import FA3

            done = subprocess.run([FA3, "quantize", "-", "-o", "-", "--k-scale", "1"], stdin=source,
                                  stdout=sink, stderr=subprocess.PIPE, timeout=100)
        self.assertEqual((done.returncode, done.stderr), (DONE, b""))
        coded = tensors.read(self.path("coded"))
        self.assertEqual(coded["cu_seqlens_q"], cu["cu_seqlens_q"])
        self.assertEqual(coded["k_scale"][1], [80, 3])
        self.assertEqual(set(coded["q"][2][60 * 96 :]), {0})
        self.assertLess(self.rmse(self.output(of="coded")[0], exact), 0.02)

    def test_mask_of_the_file(self):
        values = [0.0 if j <= i else -math.inf for i in range(40) for j in range(40)]
        mask = ("F32", [40, 40], values)
        self.write({**self.input, "attn_mask": mask})
        exact = self.output()
        self.fa3("quantize", self.path("in"), "-o", self.path("coded"))
        self.assertEqual(tensors.read(self.path("coded"))["attn_mask"], mask)
        o, lse = self.output(of="coded")
        self.assertLess(self.rmse(o, exact[0]), 0.02)
        self.assertLess(self.rmse(lse, exact[1]), 0.05)

    def test_refusals(self):
        into = [self.path("in"), "-o", self.path("x")]
        for options, says in [
            ("--hadamard 3", ["hadamard=3", "head_dim=32"]),
            ("--hadamard 1", ["hadamard=1", "a power of two from 2 to 32"]),
            ("--hadamard 64", ["--hadamard: got 64", "at most 32"]),
            ("--q-scale group", ["--q-scale: got group"]),
            ("--k-scale none", ["--k-scale: got none"]),
            ("--qk-type i4", ["--qk-type", "i8, f8_e4m3"]),
        ]:
            code = BAD_INPUT if options in ("--hadamard 3", "--hadamard 1") else USAGE
            self.assert_fails(code, "quantize", *into, *options.split(), says=says)
        self.assert_fails(USAGE, "quantize", self.path("in"), "-o", "-", "--json", says="--json")
        self.assert_fails(BAD_INPUT, "quantize", *into, "--v-type", "keep", "--qk-type", "f8_e4m3",
                          says=["--v-type: keep", "need f8_e4m3"])
        backward = ["--backward", "--precision", "fp8"]
        self.assert_fails(USAGE, "run", *into, *backward, says="a backward has none")
        self.write({**self.input, "cu_seqlens_q": ("I32", [0], [])})
        self.assert_fails(BAD_INPUT, "quantize", *into, says=["cu_seqlens_q", "batch + 1"])
        self.write({"q": tensors.draw([1, 2, 1, 3], 1)})
        self.assert_fails(BAD_INPUT, "quantize", *into, "--hadamard", 1, says="head_dim=3 is odd")
        self.write({"x": self.input["q"]})
        self.assert_fails(BAD_INPUT, "quantize", *into, says="none of q, k, v")
        self.write({**self.input, "q": ("I32", [1, 1, 1, 2], [1, 2])})
        self.assert_fails(BAD_INPUT, "quantize", *into, says=["x.dtype=i32", "bf16"])

    def test_the_command_that_it_prints(self):
        heads_first = {t: (d, [2, 3, 40, 32], v) for t, (d, _, v) in self.input.items()}
        one_token = {t: (d, [3, 2, 32], v[:192]) for t, (d, _, v) in self.input.items()}
        cu = {f"cu_seqlens_{x}": ("I32", [4], [0, 1, 2, 3]) for x in ["q", "kv"]}
        for content, options in [(heads_first, ["--layout", "bhsd"]), ({**one_token, **cu}, [])]:
            self.write(content)
            exact = self.output(*options)[0]
            text = self.fa3("quantize", self.path("in"), "-o", self.path("coded"), *options)
            command = text.split("fa3 run ")[1].split(" -o")[0].split()
            self.assertLess(self.rmse(self.output(*command[1:], of="coded")[0], exact), 0.02)

    def test_image_of_v(self):
        exact = self.output()[0]
        problem = "--dtype i8 --heads-q 3 --head-dim 32 --seqlen-q 5000 --seqlen-kv 40"
        tile = self.fa3_json("explain", *problem.split(), "--backend", "sim")["v_image"]["tile"]
        keys, columns = map(int, tile.split("x"))
        quantize = ["quantize", self.path("in"), "-o", self.path("coded")]
        self.fa3(*quantize)
        without = tensors.read(self.path("coded"))
        text = self.fa3(*quantize, "--v-image", tile)
        self.assertIn(f"v_image   (2, 3, 1, {keys}, {columns}) f8_e4m3: ", text)
        coded = tensors.read(self.path("coded"))
        image = coded["v_image"]
        self.assertEqual(image[:2], ("F8_E4M3", [2, 3, 1, keys, columns]))
        self.assertEqual(coded["v_image_layout"], ("I32", [1], [1]))
        self.assertTrue({x: coded[x] for x in without} == without)  # a list of differences: minutes
        self.fa3("check", self.path("coded"), "--backend", "sim")

        # Hopper's kernel reads it and not v, the CPU v: which has other codes here.
        sim = self.output("--backend", "sim", of="coded")
        self.assertLess(self.rmse(sim[0], exact), 0.02)
        other = {x: t for x, t in coded.items() if x != "v_image" and x != "v_image_layout"}
        other["v"] = (*coded["v"][:2], [0] * len(coded["v"][2]))
        other |= {"w": image, "w_layout": coded["v_image_layout"]}
        tensors.write(self.path("other"), other)
        by_name = ["--v-image-name", "w"]
        self.assertTrue(self.output("--backend", "sim", *by_name, of="other") == sim)
        for options in [["--backend", "sim"], [], by_name]:
            self.assertGreater(self.rmse(self.output(*options, of="other")[0], exact), 0.1, options)

        # It stays beside v that stays, and goes with v that is quantised anew.
        kept = {**self.input, **{x: t for x, t in coded.items() if x[0] == "v"}}
        self.write({**kept, "q_image": self.input["q"]})
        self.fa3(*quantize, "--v-type", "keep")
        again = tensors.read(self.path("coded"))
        self.assertTrue(again["v_image"] == image and "q_image" not in again)
        self.write({**kept, "v": self.input["v"]})
        self.fa3(*quantize)
        self.assertNotIn("v_image", tensors.read(self.path("coded")))

        for wrong, says in [
            ({"v_image_layout": ("I32", [1], [2])}, ["v_image_layout=2", "another release"]),
            ({"v_image_layout": ("I32", [2], [1, 1])}, ["v_image_layout: shape (2)", "--v-image"]),
            ({"v_image": (*image[:1], [1, 3, 1, keys, columns], image[2][: len(image[2]) // 2])},
             ["v_image.shape[0]=1", "batch=2"]),
        ]:
            tensors.write(self.path("coded"), {**coded, **wrong})
            for backend in ["cpu", "sim"]:
                run = ["run", self.path("coded"), "-o", self.path("o"), "--backend", backend]
                self.assert_fails(BAD_INPUT, *run, says=says)
        del coded["v_image_layout"]
        tensors.write(self.path("coded"), coded)
        self.assert_fails(BAD_INPUT, *run, says=["'v_image_layout'", "fa3 quantize --v-image"])
        self.fa3(*run, "--v-image-name", "", "--quiet")

    def test_image_of_varlen_v(self):
        cu = {f"cu_seqlens_{x}": ("I32", [3], [0, 5, 60]) for x in ["q", "kv"]}
        self.write({t: (d, [80, 3, 32], v) for t, (d, _, v) in self.input.items()} | cu)
        self.fa3("quantize", self.path("in"), "-o", self.path("coded"), "--v-image", "128x64")
        image = tensors.read(self.path("coded"))["v_image"]
        self.assertEqual(image[1], [3, 2, 128, 64])
        self.fa3("check", self.path("coded"), "--backend", "sim")
        cu["cu_seqlens_kv"] = ("I32", [3], [0, 0, 0])  # no key at all: tiles that nobody writes
        self.write({t: (d, [80, 3, 32], v) for t, (d, _, v) in self.input.items()} | cu)
        self.fa3("quantize", self.path("in"), "-o", self.path("coded"), "--v-image", "128x64")
        self.assertEqual(set(tensors.read(self.path("coded"))["v_image"][2]), {0})

    def test_refusals_of_images(self):
        into = [self.path("in"), "-o", self.path("x")]
        for tile in ["128", "128x", "x64", "100x64", "288x64", "0x64", "128x320", "128x64x1"]:
            says = [f"--v-image: got '{tile}'", "KEYSxCOLUMNS", "32 up to 256", "fa3 explain"]
            self.assert_fails(USAGE, "quantize", *into, "--v-image", tile, says=says)
        keep = ["--v-image", "128x64", "--v-type", "keep"]
        self.assert_fails(USAGE, "quantize", *into, *keep, says=["--v-image", "--v-type keep"])
        reference = ["--v-image", "128x64", "--backend", "reference"]
        self.assert_fails(UNSUPPORTED, "quantize", *into, *reference, says="use backend cpu")
        self.fa3("quantize", *into, "--v-image", "32x32")  # of no row of the forward
        run = ["run", self.path("x"), "-o", self.path("o"), "--quiet", "--backend"]
        says = ["v_image has tiles of 32 keys and 32 columns", "leave v_image out"]
        self.assert_fails(UNSUPPORTED, *run, "sim", says=says)
        self.fa3(*run, "cpu")
        coded = tensors.read(self.path("x"))
        self.write({**coded, "v_image_layout": ("I64", [1], [2**40])})
        run[1] = self.path("in")
        message = self.assert_fails(BAD_INPUT, *run, "cpu", says=["v_image_layout", "--v-image"])
        self.assertNotIn("ids", message)
        wide = tensors.draw([1, 2, 1, 48], 1)
        self.write({"v": wide})
        narrow = ["--v-image", "128x32"]
        self.assert_fails(USAGE, "quantize", *into, *narrow, says="columns at least 48")
        self.write({"v": tensors.draw([1, 2, 1, 257], 1)})
        self.assert_fails(USAGE, "quantize", *into, *narrow, says=["head_dim=257", "at most 256"])
        self.write({"q": wide})
        self.assert_fails(BAD_INPUT, "quantize", *into, *narrow, says=["--v-image", "no v"])

    def test_precision(self):
        exact = self.output()[0]
        errors = [
            self.rmse(self.output("--precision", p, "--precision-seed", 3)[0], exact)
            for p in ["fp8", "eight_bit", "eight_bit_accurate"]
        ]
        self.assertLess(errors[1], errors[0])
        self.assertEqual(errors[1], errors[2])  # head_dim ≤ 64
        self.assertGreater(errors[2], 0)
        into = [self.path("in"), "-o", self.path("x")]
        self.assert_fails(USAGE, "run", *into, "--precision", "fp4", says=["--precision", "fp8"])
        self.assert_fails(BAD_INPUT, "run", *into, "--precision-seed", 1, says="precision_seed=1")
        self.assert_fails(BAD_INPUT, "run", *into, "--dtype", "f32", "--precision", "fp8",
                          says="q.dtype=f32")
        problem = ["--dtype", "bf16", "--head-dim", 128]
        coded = self.fa3_json("explain", *problem, "--precision", "eight_bit")["quantizations"]
        self.assertEqual((coded["q"]["dtype"], coded["v"]["dtype"]), ("i8", "f8_e4m3"))
        self.assertEqual((coded["k"]["hadamard"], coded["fp8_alone"]), (128, False))
        explain = ["explain", "--dtype", "bf16", "--backward", "--precision", "fp8"]
        self.assert_fails(USAGE, *explain, says="a backward has none")
        sim = self.run_fa3("run", *into, "--precision", "fp8", "--backend", "sim")
        self.assertEqual(sim.returncode, UNSUPPORTED, sim.stderr)


if __name__ == "__main__":
    unittest.main()
