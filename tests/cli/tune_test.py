# SPDX-License-Identifier: BSD-3-Clause
"""fa3 tune, and FA3_TUNING: on the fake driver, whose kernels take longer with more threads."""

import json
import os
import unittest

from kit import BAD_INPUT, FAILED, UNSUPPORTED, USAGE, FakeGpuTest

PROBLEM = ["--head-dim", 64, "--seqlen-q", 3000, "--causal"]
QUICK = ["--rounds", 3, "--slice", 1, "--warm", 0]


class Tune(FakeGpuTest):
    def setUp(self):
        super().setUp()
        self.environment.update(FAKE_CUDA_FORWARD="right", FAKE_CUDA_CLOCK="1")
        self.file = self.path("tuning.json")

    def tune(self, *args):
        return self.fa3("tune", *args, *QUICK, env=self.environment)

    def explain(self, *args, log="", **variables):
        command = ["explain", "--dtype", "bf16", *args, "--backend", "cuda", "--json"]
        result = self.run_fa3(*command, env={**self.environment, **variables})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, log or r"\A\Z")
        return json.loads(result.stdout)["sm90"]

    def test_table_shows_rule_and_best(self):
        text = self.tune(*PROBLEM, "-o", self.file)
        self.assertRegex(text, r"\AFake H200; 3 rounds in turns")
        self.assertIn("forward bf16 batch 2 heads 4/4 head_dim 64/64 seqlen 3000/3000 causal", text)
        self.assertRegex(text, r"d64 +\d+\.\d +1\.000 +1\.000 to 1\.000  rule\n")
        self.assertRegex(text, r"d64 few rows +\d+\.\d +1\.500 +1\.500 to 1\.500  used\n")
        self.assertIn(f"FA3_TUNING={self.file}", text)
        self.assertEqual(self.names(), ["cache", "driver", "tuning.json"])

    def test_plans_follow_the_file(self):
        before = self.explain(*PROBLEM)
        self.assertEqual((before["row"], before["row_from"]), ("d64", "table"))
        self.tune(*PROBLEM, "-o", self.file)
        tuned = self.explain(*PROBLEM, FA3_TUNING=self.file)
        self.assertEqual((tuned["row"], tuned["row_from"]), ("d64 few rows", "file"))
        self.assertIn("the tuning names another", tuned["rows_rejected"]["d64"])
        self.assertEqual(tuned["tile_q"], 64)
        other = self.explain(*PROBLEM[:-1], FA3_TUNING=self.file)  # was not measured
        self.assertEqual((other["row"], other["row_from"]), ("d64 full", "table"))

    def test_few_queries(self):
        """The decode kernel is measured beside the rows of the forward, and kept by its name."""
        few = ["--head-dim", 64, "--seqlen-q", 1, "--seqlen-kv", 3000]
        before = self.explain(*few)
        self.assertEqual((before["row"], before["row_from"]), ("decode", "table"))
        self.assertIn("d64 few rows", before["rows_rejected"])
        text = self.tune(*few, "-o", self.file)
        self.assertRegex(text, r"decode +\d+\.\d +1\.000 +1\.000 to 1\.000  rule")
        self.assertRegex(text, r"d64 few rows +\d+\.\d ")
        with open(self.file) as file:
            made = json.load(file)
        for row, used in (("d64 few rows", "d64 few rows"), ("decode", "decode")):
            made["problems"][0]["row"] = row
            with open(self.file, "w") as file:
                json.dump(made, file)
            self.assertEqual(self.explain(*few, FA3_TUNING=self.file)["row"], used)
        made["problems"][0]["row"] = "d64 masked"
        with open(self.file, "w") as file:
            json.dump(made, file)
        declined = self.explain(*few, FA3_TUNING=self.file)
        self.assertEqual(declined["row"], "decode")
        self.assertIn("d64 masked: ", declined["tuning_declined"])
        run = ["bench", "--dtype", "bf16", *few, "--backend", "cuda", "--no-verify"]
        result = self.run_fa3(*run, env={**self.environment, "FA3_TUNING": self.file})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("FA3_TUNING names row d64 masked"), 1)

    def test_file_keeps_other_problems(self):
        self.tune(*PROBLEM, "-o", self.file)
        self.tune(*PROBLEM[:-1], "-o", self.file)
        self.tune(*PROBLEM, "-o", self.file)
        with open(self.file) as file:
            problems = json.load(file)["problems"]
        self.assertEqual([p["row"] for p in problems], ["d64 few rows", "d64 few rows"])
        self.assertNotEqual(problems[0]["problem"], problems[1]["problem"])

    def test_cases_and_json(self):
        cases = self.path("cases.json")
        sizes = {"heads_q": 2, "dtype": "bf16"}
        with open(cases, "w") as file:
            problems = [{"name": n, "seqlen_q": q, **sizes} for n, q in (("a", 40), ("b", 700))]
            json.dump(problems, file)
        lines = self.tune("--cases", cases, "--json").splitlines()
        found = [json.loads(line) for line in lines]
        self.assertEqual([f["name"] for f in found], ["a", "b"])
        self.assertEqual((found[0]["rule"], found[0]["row"]), ("d64 few rows", "d64 few rows"))
        for row in found[1]["rows"]:
            self.assertGreater(row["tflops"], 0)
            self.assertLessEqual(row["ratio_low"], row["ratio_high"])

    def test_another_gpu_or_version_warns(self):
        self.tune(*PROBLEM, "-o", self.file)
        with open(self.file) as file:
            tuning = json.load(file)
        for change in ({"gpu": "NVIDIA H100"}, {"fa3": "9.9.9"}):
            with open(self.file, "w") as file:
                json.dump({**tuning, **change}, file)
            warning = r"\Afa3: context: FA3_TUNING=[^\n]*it is not used[^\n]*\n\Z"
            plan = self.explain(*PROBLEM, FA3_TUNING=self.file, log=warning)
            self.assertEqual(plan["row_from"], "table")

    def test_row_that_cannot_run_warns(self):
        key = self.explain(*PROBLEM)["tuning_key"]
        version = json.loads(self.fa3("info", "--json"))["version"]
        with open(self.file, "w") as file:
            made = {"fa3_tuning": 1, "fa3": version, "gpu": "Fake H200"}
            json.dump({**made, "problems": [{"problem": key, "row": "d64 full"}]}, file)
        plan = self.explain(*PROBLEM, FA3_TUNING=self.file)
        self.assertEqual((plan["row"], plan["row_from"]), ("d64", "table"))
        self.assertEqual(plan["tuning_declined"], "d64 full: no mask, here causal")
        run = ["bench", "--dtype", "bf16", *PROBLEM, "--backend", "cuda", "--no-verify"]
        result = self.run_fa3(*run, env={**self.environment, "FA3_TUNING": self.file})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("FA3_TUNING names row d64 full: no mask"), 1)

    def test_row_that_a_pack_lacks_warns(self):
        self.tune(*PROBLEM, "-o", self.file)
        rule = self.explain(*PROBLEM)["kernel"]
        programs = json.loads(self.fa3("jit", "--list", "--json", env=self.environment))["programs"]
        pack, listed = self.path("pack"), self.path("list.json")
        with open(listed, "w") as file:
            json.dump([p for p in programs if p["expression"] == rule], file)
        self.fa3("jit", "--pack", pack, "--programs", listed, env=self.environment)
        bare = {"FA3_NVRTC": "/absent/libnvrtc.so", "FA3_CACHE_DIR": self.path("empty")}
        bare.update(FA3_TUNING=self.file, FA3_KERNEL_PACK=pack)
        self.assertEqual(self.explain(*PROBLEM, **bare)["row"], "d64")
        run = ["bench", "--dtype", "bf16", *PROBLEM, "--backend", "cuda", "--no-verify"]
        result = self.run_fa3(*run, env={**self.environment, **bare})
        self.assertEqual(result.returncode, 0, result.stderr)
        says = "the kernel that FA3_TUNING asks for is in no cache"
        self.assertEqual(result.stderr.count(says), 1)

    def test_mistakes(self):
        self.assert_fails(UNSUPPORTED, "tune", "--dtype", "f32", env=self.environment, says="f32")
        self.assert_fails(USAGE, "tune", "--backward", env=self.environment, says="backward")
        self.assert_fails(USAGE, "tune", "--rounds", 1, env=self.environment, says="--rounds")
        with open(self.path("notes.txt"), "w") as file:
            file.write("mine")
        onto_notes = ["tune", "-o", self.path("notes.txt")]
        says = ["notes.txt", "no tuning file"]
        self.assert_fails(BAD_INPUT, *onto_notes, env=self.environment, says=says)
        with open(self.path("notes.txt")) as file:
            self.assertEqual(file.read(), "mine")
        with open(self.path("deep.json"), "w") as file:
            file.write('{"fa3_tuning": 1, "problems": ' + "[" * 100000 + "]" * 100000 + "}")
        onto_deep = ["tune", "-o", self.path("deep.json")]
        self.assert_fails(BAD_INPUT, *onto_deep, env=self.environment, says="no tuning file")
        no_folder = {**self.environment, "TMPDIR": self.path("absent")}
        self.assert_fails(FAILED, "tune", "--quiet", env=no_folder, says="TMPDIR")
        nowhere = {**self.environment, "FA3_TUNING": self.path("absent.json")}
        says = ["FA3_TUNING=", "cannot be opened", "fa3 tune"]
        self.assert_fails(BAD_INPUT, "explain", "--backend", "cuda", env=nowhere, says=says)
        no_gpu = {**self.environment, "FAKE_CUDA_GPUS": "0"}
        self.assert_fails(UNSUPPORTED, "tune", env=no_gpu)


if __name__ == "__main__":
    unittest.main()
