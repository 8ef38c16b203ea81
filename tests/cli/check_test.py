# SPDX-License-Identifier: BSD-3-Clause
"""fa3 check: generated problems, files, expected tensors, verdicts."""

import json
import math
import pathlib
import shlex
import unittest

import tensors
from kit import BAD_INPUT, CHECK_FAILED, FAILED, UNSUPPORTED, USAGE, CliTest


class Check(CliTest):
    def expecting(self, change=0.0, **sizes):
        """A file with the right O as tensor `want`, its largest element off by `change`."""
        problem = tensors.dense(**sizes)
        o, _ = tensors.attention(problem["q"], problem["k"], problem["v"])
        top = max(range(len(o)), key=lambda i: abs(o[i]))
        o[top] += change
        problem["want"] = ("F32", problem["q"][1][:3] + problem["v"][1][3:], o)
        path = self.path("expect.safetensors")
        tensors.write(path, problem)
        return path

    def test_generated_problem(self):
        report = self.fa3_json("check", "--seed", 3)
        self.assertEqual((report["ok"], report["seed"], report["backend"]), (True, 3, "cpu"))
        self.assertEqual(list(report["outputs"]), ["o", "lse"])
        for result in report["outputs"].values():
            self.assertEqual(sorted(result), ["bound", "max_err", "ok", "where"])
            self.assertIs(result["ok"], True)
            self.assertLessEqual(result["max_err"], result["bound"])
            self.assertGreater(result["bound"], 0)
            self.assertRegex(result["where"], r"\[\d+(, \d+)*\]")
        self.assertGreater(
            report["outputs"]["o"]["max_err"], 0
        )  # the cpu rounds, the reference does not

    def test_combine(self):
        for backend in ["cpu", "reference"]:
            report = self.fa3_json("check", "--combine", 3, "--backend", backend)
            self.assertEqual((report["ok"], report["backend"]), (True, backend))
            self.assertEqual(list(report["outputs"]), ["o", "lse"])
            self.assertGreater(report["outputs"]["o"]["bound"], 0)
        sizes = "--batch 2 --seqlen-q 5 --heads-q 3 --head-dim 24".split()
        for options in [
            "--combine 0",
            "--combine any --seed 7 --dtype bf16",
            "--combine 300 --dtype f16 --out-dtype f32 --layout heads_first --seed 1",
            "--combine 5 --layout padded --alignment 4 --magnitude 30 --seed 2",
            "--combine 2 --no-lse --layout seq_first",
        ]:
            text = self.fa3("check", *options.split(), *sizes, "--backend", "cpu")
            self.assertIn("merge of", text)
            self.assertEqual("lse" not in text, "--no-lse" in options)
        packed = self.fa3("check", *"--combine 4 --varlen-q 3,0,9 --layout heads_first".split())
        self.assertIn("heads 4, seqlen 12", packed)
        sim = ["check", "--combine", 9, "--backend", "sim", "--schedule-seed", 5, *sizes]
        self.fa3(*sim, "--dtype", "bf16")
        self.assertEqual(self.fa3_json(*sim)["replay"].split()[:4], "fa3 check --combine 9".split())

    def test_combine_takes_its_own_options_only(self):
        for options, says in [
            ("--combine 3 --causal", ["--causal", "--combine"]),
            ("--combine 3 --heads-kv 2", ["--heads-kv", "--combine"]),
            ("--combine 3 some.safetensors", ["input", "--combine"]),
            ("--combine x", ["--combine", "'x'", "any"]),
            ("--combine -1", ["--combine"]),
            ("--combine 3 --dtype i8", ["--dtype", "i8", "bf16"]),
            ("--combine 3 --layout interleaved", ["--layout", "interleaved", "padded"]),
            ("--combine 3 --alignment 3", ["--alignment", "power of two"]),
        ]:
            self.assert_fails(USAGE, "check", *options.split(), says=says)

    def test_seed_chooses_the_values(self):
        errors = [self.fa3_json("check", "--seed", s)["outputs"]["o"]["max_err"] for s in [1, 1, 2]]
        self.assertEqual(errors[0], errors[1])
        self.assertNotEqual(errors[0], errors[2])

    def test_backend_is_who_is_checked(self):
        report = self.fa3_json("check", "--backend", "reference")
        self.assertEqual(report["backend"], "reference")
        self.assertEqual(report["outputs"]["o"]["max_err"], 0)
        self.assert_fails(UNSUPPORTED, "check", "--backend", "cuda", says="cuda")
        self.assert_fails(UNSUPPORTED, "check", "--backend", "sim", says="sim")

    def test_hopper_kernel_on_a_real_model(self):
        sample = pathlib.Path(__file__).resolve().parents[2] / "data" / "minilm.safetensors"
        report = self.fa3_json("check", sample, "--dtype", "bf16", "--backend", "sim")
        self.assertEqual((report["ok"], report["backend"]), (True, "sim"))
        # Sequences of one row, of which some keys count: decoding.
        sizes = ["--batch", 2, "--seqlen-q", 1, "--seqlen-kv", 70, "--seqused-kv", "70,33"]
        self.fa3("check", "--dtype", "bf16", "--backend", "sim", "--head-dim", 64, *sizes)
        out = self.path("out.safetensors")
        self.fa3("run", sample, "-o", out, "--dtype", "bf16", "--backend", "sim", "--quiet")
        self.assertEqual(self.names(), ["out.safetensors"])

    def test_alignment(self):
        sim = ["check", "--dtype", "bf16", "--backend", "sim", "--seqlen-q", 9, "--heads-q", 1]
        self.fa3(*sim, "--alignment", 64)
        self.assert_fails(UNSUPPORTED, *sim, "--alignment", 8, says=["q.data", "multiple of 16"])
        for bytes_ in [24, 1 << 21]:
            says = ["alignment", "power of two"]
            self.assert_fails(USAGE, "check", "--alignment", bytes_, says=says)

    def test_event_log_of_the_simulator(self):
        args = "check --dtype bf16 --backend sim --seqlen-q 64 --seqlen-kv 200".split()
        log = self.path("log.json")
        self.fa3(*args, env={"FA3_SIM_TRACE": log})
        events = json.loads(pathlib.Path(log).read_text())["traceEvents"]
        names = {e["name"] for e in events}
        self.assertLessEqual({"wgmma k[0]", "wait q_full[0]", "tma_load v[0]"}, names)
        nowhere = self.path("none/log.json")
        says = ["FA3_SIM_TRACE", nowhere, "No such file", "unset"]
        self.assert_fails(FAILED, *args, env={"FA3_SIM_TRACE": nowhere}, says=says)
        # Before the work, not after it: this one would take minutes.
        long = [*args[:-3], "4096", "--seqlen-kv", "16384"]
        self.assert_fails(FAILED, *long, env={"FA3_SIM_TRACE": nowhere}, says=says)

    def test_deterministic_is_for_gradients(self):
        for command in (["check"], ["explain"], ["bench", "--seqlen-q", "3"]):
            says = ["--deterministic", "--backward"]
            self.assert_fails(USAGE, *command, "--deterministic", says=says)

    def test_options_without_effect_are_refused(self):
        for option in ["--dlse", "--no-lse --backward"]:
            self.assert_fails(USAGE, "check", *option.split(), says=[option.split()[0], "leave it"])

    def test_contradictions_say_value_and_limit(self):
        for options, says in [
            ("--batch 3 --seqused-q 9,9", ["seqused-q has 2 numbers", "need 3"]),
            ("--batch 1 --seqlen-q 8 --seqused-q 9", ["seqused-q has 9 for sequence 0", "0 to 8"]),
            ("--own-pages", ["own-pages needs page-size"]),
            ("--alignment 3", ["alignment is 3", "power of two"]),
            ("--threads 2000", ["2000", "0 to 1024"]),
            ("--window 99999999999999999999,1", ["--window", "2^63 - 1"]),
            ("--dtype f8_e4m3 --k-scale bogus", ["--k-scale", "none, tensor, head or a block"]),
        ]:
            self.assert_fails(USAGE, "check", *options.split(), says=says)

    def test_all_options_of_a_problem(self):
        problems = [
            "--dtype f16 --backward --causal --heads-q 6 --heads-kv 2 --head-dim 40 --head-dim-v 9",
            "--dtype bf16 --out-dtype f32 --backward --window 9,3 --softcap 5 --seqlen-q 33",
            "--varlen-q 3,0,17 --varlen-kv 9,4,17 --backward --dlse --softmax-scale 0.3",
            "--varlen-kv 9,40 --seqlen-q 5 --spare-kv 3 --no-lse",
            "--batch 3 --seqused-q 1,2,0 --seqused-kv 5,0,2 --seqlen-q 4 --seqlen-kv 6",
            "--magnitude 20 --seqlen-kv 70",
            "--layout interleaved --backward --deterministic --seqlen-q 19 --head-dim 8",
            "--alignment 32 --dtype f16 --head-dim 24",
            "--alibi --sequence-ids 3 --backward --seqlen-q 40 --heads-kv 2 --seed 3",
            "--sequence-ids 5 --scattered-ids --varlen-q 9,20 --varlen-kv 30,1 --causal",
            "--layout broadcast --threads 1 --batch 1 --seqlen-kv 0",
            "--page-size 4 --own-pages --seqlen-q 3 --causal --heads-kv 2",
            "--kv-slots 3 --kv-begin --seqlen-q 2 --seqlen-kv 30",
            "--attn-mask bool --mask-dims bk --causal --top-left --seqlen-kv 50 --seed 1",
            "--attn-mask input --seqlen-q 9 --dtype f16",
            "--attn-mask f32 --dattn-mask --backward --seqlen-q 40 --mask-dims hq --dtype bf16",
        ]
        for options in problems:
            report = self.fa3_json("check", *options.split())
            names = ["o", "lse"] + (["dq", "dk", "dv"] if "--backward" in options else [])
            if "--no-lse" in options:
                names.remove("lse")
            if "--dattn-mask" in options:
                names.append("dattn_mask")
            self.assertEqual(list(report["outputs"]), names, options)
            # The replay command makes the same problem: the same errors in the same places.
            replay = shlex.split(report["replay"])
            self.assertEqual(replay[:2], ["fa3", "check"])
            again = self.fa3_json(*replay[1:])
            if "--threads" not in options:
                self.assertEqual(again, report, options)

    def test_blind_check_is_said_so(self):
        self.assertEqual(self.fa3_json("check", "--backward")["blind"], [])
        # One key takes all weight, and the scores' rounding errors are as large as the weights.
        blind = ["check", "--seqlen-kv", 1, "--magnitude", "1e5"]
        report = self.fa3_json(*blind)
        self.assertEqual((report["ok"], report["blind"]), (True, ["o"]))
        self.assertIn("\nblind: the bounds of o are ", self.fa3(*blind))
        self.assertNotIn("blind", self.fa3("check"))

    def test_scores_beyond_any_bound_are_blind(self):
        huge = [*"check --batch 1 --heads-q 2 --seqlen-q 17 --softmax-scale 1e24".split()]
        report = self.fa3_json(*huge, "--backward", "--dtype", "bf16")
        self.assertTrue(report["ok"])
        self.assertIn("o", report["blind"])
        self.assertIn("\nblind: some bounds of o are infinite", self.fa3(*huge))

        report = self.fa3_json("check", "--batch", 1, "--seqlen-q", 17, "--magnitude", "1e38")
        self.assertEqual((report["ok"], report["blind"]), (True, ["o", "lse"]))

    def test_nothing_but_nan_is_blind(self):
        nan = ["check", "--dtype", "f16", "--magnitude", "1e8"]  # q is Inf
        report = self.fa3_json(*nan)
        self.assertEqual((report["ok"], report["blind"]), (True, ["o", "lse"]))
        self.assertIn("\nblind: o has NaN and nothing finite", self.fa3(*nan))
        empty = self.fa3_json("check", "--seqlen-kv", 0)
        self.assertEqual((empty["ok"], empty["blind"]), (True, []))

    def test_numbers_that_are_none(self):
        for option in ["--magnitude", "--tolerance"]:
            for value in ["inf", "-inf", "nan", "1e999", "-1"]:
                self.assert_fails(USAGE, "check", f"{option}={value}", says=option)

    def test_text(self):
        text = self.fa3("check", "--backward", "--dtype", "bf16")
        for part in [
            "bf16",
            "seqlen 256 x 256",
            "backend cpu",
            "max error",
            "bound",
            "lse",
            "dq",
            "dk",
            "dv",
            "\nok",
        ]:
            self.assertIn(part, text)
        self.assertEqual(self.fa3("check", "--quiet"), "")

    def test_file(self):
        path = self.path("in.safetensors")
        problem = tensors.dense(2, 9, 11, 4, 2, 8)
        tensors.write(path, problem)
        report = self.fa3_json("check", path, "--backward", "--causal", "--dtype", "bf16")
        self.assertEqual((report["ok"], report["seed"]), (True, None))
        self.assertEqual(list(report["outputs"]), ["o", "lse", "dq", "dk", "dv"])
        self.assertIn("in.safetensors", self.fa3("check", path, "--layout", "bshd"))
        self.assertEqual(self.names(), ["in.safetensors"])

    def test_expected_tensor(self):
        path = self.expecting(batch=2, seqlen_q=6, seqlen_kv=8, heads_q=4, heads_kv=2, dim=8)
        expected = self.fa3_json("check", path, "--expect", "want")["expected"]
        self.assertEqual((expected["ok"], expected["tensor"]), (True, "want"))
        self.assertLess(expected["max_err"], 1e-6)
        self.assertLessEqual(expected["rmse"], expected["max_err"])
        self.assertIn("RMSE", self.fa3("check", path, "--expect", "want"))

    def test_wrong_expectation_fails(self):
        path = self.expecting(change=0.01)
        result = self.run_fa3("check", path, "--expect", "want", "--json")
        self.assertEqual((result.returncode, result.stderr), (CHECK_FAILED, ""))
        report = json.loads(result.stdout)
        self.assertIs(report["ok"], False)
        self.assertTrue(all(r["ok"] for r in report["outputs"].values()))
        self.assertAlmostEqual(report["expected"]["max_err"], 0.01, places=5)
        count = 1 * 5 * 2 * 4
        self.assertAlmostEqual(report["expected"]["rmse"], 0.01 / math.sqrt(count), places=5)
        text = self.run_fa3("check", path, "--expect", "want")
        self.assertEqual(text.returncode, CHECK_FAILED)
        self.assertIn("FAILED", text.stdout)
        self.fa3("check", path, "--expect", "want", "--tolerance", 0.1)

    def test_expectation_with_nan_fails(self):
        path = self.expecting(change=math.nan)
        self.assertEqual(self.run_fa3("check", path, "--expect", "want").returncode, CHECK_FAILED)

    def test_expectation_with_inf_fails(self):
        path = self.expecting(change=math.inf)
        result = self.run_fa3("check", path, "--expect", "want", "--json")
        self.assertEqual(result.returncode, CHECK_FAILED)
        self.assertLess(json.loads(result.stdout)["expected"]["bound"], 1)

    def test_expected_nan_and_inf_are_compared_by_position(self):
        problem = tensors.dense(seqlen_kv=1, heads_q=1, dim=4)
        problem["v"][2][:3] = [math.nan, math.inf, -math.inf]
        path = self.path("in.safetensors")
        tensors.write(path, {**problem, "want": ("F32", problem["q"][1], problem["v"][2] * 5)})
        expected = self.fa3_json("check", path, "--expect", "want")["expected"]
        self.assertLess(expected["max_err"], 1e-6)
        self.assertLess(expected["bound"], 1)
        wrong = [problem["v"][2][i] for i in (1, 0, 2, 3)]
        tensors.write(path, {**problem, "want": ("F32", problem["q"][1], wrong * 5)})
        self.assertEqual(self.run_fa3("check", path, "--expect", "want").returncode, CHECK_FAILED)

    def test_expectation_must_fit(self):
        path = self.expecting()
        self.assert_fails(BAD_INPUT, "check", path, "--expect", "q2", says="q2")
        self.assert_fails(BAD_INPUT, "check", path, "--expect", "k", says=["--expect k", "shape"])

    def test_inputs_by_the_names_of_their_fields(self):
        drawn = ["--with", "alibi_slopes", "--with", "dlse", "--backward", "--varlen-q", "5,9"]
        result = self.fa3_json("check", *drawn, "--varlen-kv", "7,3", "--heads-q", 2)
        self.assertTrue(result["ok"])
        without = self.fa3_json("check", *drawn[4:], "--varlen-kv", "7,3", "--heads-q", 2)
        self.assertNotEqual(result["outputs"], without["outputs"])
        for name in ["q_scale", "q", "attn_mask", "dlse", "nothing"]:
            self.assert_fails(USAGE, "check", "--with", name, says=[name, "alibi_slopes"])

    def test_options_that_do_not_fit(self):
        path = self.expecting()
        self.assert_fails(USAGE, "check", path, "--batch", 3, says="--batch")
        self.assert_fails(USAGE, "check", path, "--seed", 3, says="--seed")
        self.assert_fails(USAGE, "check", path, "--layout", "padded", says="--layout")
        self.assert_fails(USAGE, "check", path, "--tolerance=-1", says="--tolerance")
        self.assert_fails(USAGE, "check", "--q-name", "x", says="--q-name")
        self.assert_fails(USAGE, "check", "--expect", "x", says="--expect")
        self.assert_fails(USAGE, "check", "--layout", "bhsd", says="--layout")
        self.assert_fails(
            USAGE, "check", "--varlen-q", "3,4", "--varlen-kv", "5", says="--varlen-kv"
        )
        self.assert_fails(USAGE, "check", "--varlen-q", "3,4", "--batch", 3, says="--batch")
        self.assert_fails(USAGE, "check", "--seqused-q", "3", says="seqused-q")
        for option in ["--spare-q", "--spare-kv"]:
            self.assert_fails(USAGE, "check", option, 5, says=[f"{option}: is for varlen"])
        self.assert_fails(
            USAGE, "check", "--varlen-q", "3,4", "--spare-kv", 5, says="give --varlen-kv"
        )
        spare = ["check", "--varlen-q", "3,3", "--spare-q"]
        self.assert_fails(USAGE, *spare, 2**63 - 1, says="--spare-q: got '9223372036854775807'")
        self.assert_fails(USAGE, *spare, 2**31, says="from 0 to 2147483647")
        self.assert_fails(BAD_INPUT, *spare, 2**31 - 1, says="total_q=2147483653")
        self.assert_fails(USAGE, "check", "--scattered-ids", says="needs sequence-ids")
        self.assert_fails(USAGE, "check", "--sequence-ids", -1, says="--sequence-ids")
        self.assert_fails(USAGE, "check", path, "--alibi", says="--alibi")
        self.assert_fails(USAGE, "check", "--attn-mask", "i8", says="--attn-mask: got 'i8'")
        self.assert_fails(USAGE, "check", "--mask-dims", "bx", says="letters b, h, q and k")
        gradient = ["--backward", "--dattn-mask"]
        self.assert_fails(USAGE, "check", *gradient, says="attn-mask that is added")
        varlen = ["--varlen-q", "3,4", "--attn-mask", "bool"]
        self.assert_fails(USAGE, "check", *varlen, says="attn-mask needs dense queries")

    def test_illegal_problems(self):
        self.assert_fails(BAD_INPUT, "check", "--heads-q", 3, "--heads-kv", 2, says="3")
        self.assert_fails(BAD_INPUT, "check", "--head-dim", 0, says="head_dim")
        self.assert_fails(BAD_INPUT, "check", "--softcap", -1, says=["softcap", "-1"])
        self.assert_fails(
            BAD_INPUT, "check", "--softmax-scale", "nan", says=["softmax_scale", "nan"]
        )
        self.assert_fails(
            BAD_INPUT, "check", "--softmax-scale", "inf", says=["softmax_scale", "inf"]
        )
        self.assert_fails(BAD_INPUT, "check", "--window=-2,0", says="-2")
        self.assert_fails(BAD_INPUT, "check", "--seqlen-q", 2**62, says="overflow")
        self.assert_fails(FAILED, "check", "--batch", 10**6, "--seqlen-q", 10**6, says="GiB")


if __name__ == "__main__":
    unittest.main()
