# SPDX-License-Identifier: BSD-3-Clause
"""fa3 info, fa3 explain, --help, --version and wrong command lines."""

import json
import unittest

from kit import BAD_INPUT, UNSUPPORTED, USAGE, CliTest

COMMANDS = ["run", "check", "bench", "info", "jit", "explain", "selftest", "completion", "man"]


class Info(CliTest):
    def test_json(self):
        info = self.fa3_json("info")
        self.assertRegex(info["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(info["device"]["type"], "cpu")
        self.assertGreaterEqual(info["device"]["threads"], 1)
        self.assertTrue(info["device"]["instruction_set"])
        backends = {b["name"]: b for b in info["build"]["backends"]}
        self.assertEqual(
            [backends[n]["usable"] for n in ["cpu", "reference", "sim"]], [True, True, True]
        )
        self.assertTrue(all(b["why"] for b in backends.values()))
        self.assertIn("FA3_NUM_THREADS", [v["name"] for v in info["environment"]])

    def test_text_says_the_same(self):
        info, text = self.fa3_json("info"), self.fa3("info")
        for part in [
            info["version"],
            info["build"]["compiler"],
            info["device"]["name"],
            "L2",
            "not available",
        ]:
            self.assertIn(part, text)
        for variable in info["environment"]:
            self.assertIn(variable["name"], text)
            self.assertIn(variable["meaning"], text)

    def test_fields_are_those_of_the_library(self):
        fields, text = self.fa3_json("info", "--fields"), self.fa3("info", "--fields")
        self.assertEqual(list(fields), ["forward", "backward", "quantize", "combine"])
        lse = next(f for f in fields["forward"] if f["name"] == "lse")
        self.assertEqual(
            (lse["role"], lse["types"], lse["shape"], lse["varlen_shape"]),
            ("optional output", "f32", "(batch, heads_q, seqlen_q)", "(heads_q, total_q)"),
        )
        self.assertIn("(batch, heads_q, seqlen_q) or (heads_q, total_q)", text)
        for operation in fields.values():
            for field in operation:
                self.assertIn(field["help"], text)

    def test_environment_is_read(self):
        result = self.run_fa3("info", "--json", env={"FA3_NUM_THREADS": "3"})
        info = json.loads(result.stdout)
        self.assertEqual(info["device"]["threads"], 3)
        value = {v["name"]: v["value"] for v in info["environment"]}
        self.assertEqual(value["FA3_NUM_THREADS"], "3")
        self.assert_fails(
            BAD_INPUT, "info", env={"FA3_NUM_THREADS": "many"}, says=["FA3_NUM_THREADS", "many"]
        )


class Explain(CliTest):
    def test_json_is_the_plan(self):
        plan = self.fa3_json("explain", "--seqlen-q", 300, "--causal", "--threads", 2)
        self.assertEqual((plan["op"], plan["backend"], plan["threads"]), ("forward", "cpu", 2))
        self.assertEqual(plan["problem"]["seqlen_q"], 300)
        # 2 sequences · 4 heads · 2 · (64 + 64) per visible pair of the triangle.
        self.assertEqual(plan["flops"], 2 * 4 * 2 * 128 * 300 * 301 // 2)
        plan = self.fa3_json("explain", "--backward", "--deterministic")
        self.assertEqual((plan["op"], plan["problem"]["deterministic"]), ("backward", True))
        self.assertEqual(self.fa3_json("explain", "--backend", "reference")["backend"], "reference")

    def test_text_and_varlen(self):
        text = self.fa3(
            "explain",
            "--varlen-q",
            "5,6",
            "--varlen-kv",
            "7,8",
            "--dtype",
            "bf16",
            "--window",
            "3,0",
        )
        for part in ["workspace_bytes", "why", "bf16", "window", "total_q"]:
            self.assertIn(part, text)

    def test_no_data_is_needed(self):
        plan = self.fa3_json(
            "explain", "--batch", 64, "--heads-q", 128, "--seqlen-q", 2**20, "--head-dim", 128
        )
        self.assertEqual(plan["problem"]["seqlen_kv"], 2**20)

    def test_hopper_rows_and_estimate(self):
        problem = ["--backend", "sim", "--dtype", "bf16", "--head-dim", 128, "--seqlen-q", 4096]
        plan = self.fa3_json("explain", *problem)
        rejected = plan["sm90"]["rows_rejected"]
        self.assertEqual(plan["sm90"]["row"], "d128 full")
        self.assertNotIn("d128 full", rejected)
        self.assertEqual(rejected["d96"], "head_dim_qk up to 96, here 128")
        estimate = plan["estimate"]
        tile = estimate["kv_tile"]
        self.assertEqual((tile["mma_clocks"], tile["exponential_clocks"]), (2048, 1024))
        self.assertEqual(tile["limiter"], "mma")
        self.assertTrue(tile["softmax_fits_beside_mma"])
        # Of an H200, whatever the simulator has.
        self.assertEqual(estimate["grid"], 132)
        self.assertLess(estimate["tflops_expected"], estimate["tflops_at_most"])
        flops = estimate["ms_expected"] * 1e9 * estimate["tflops_expected"]
        self.assertAlmostEqual(flops / plan["flops"], 1, delta=0.01)
        text = self.fa3("explain", *problem)
        for part in ["rows_rejected", "head_dim_qk up to 96, here 128", "tflops_expected"]:
            self.assertIn(part, text)

    def test_estimate_without_lengths_or_queries(self):
        bf16 = ["explain", "--backend", "sim", "--dtype", "bf16"]
        varlen = self.fa3_json(*bf16, "--varlen-q", "5,600", "--varlen-kv", "5,600")["estimate"]
        self.assertIn("data", varlen["note"])
        self.assertNotIn("ms_expected", varlen)
        empty = self.fa3_json(*bf16, "--seqlen-q", 0)["estimate"]
        self.assertIn("no queries", empty["note"])
        self.assertNotIn("ms_expected", empty)
        self.assertEqual(self.fa3_json(*bf16, "--seqlen-kv", 0)["estimate"]["tflops_expected"], 0)

    def test_refusals(self):
        self.assert_fails(UNSUPPORTED, "explain", "--backend", "sim", says=["f32", "bf16"])
        self.assert_fails(BAD_INPUT, "explain", "--heads-q", 5, "--heads-kv", 3, "--json", says="5")
        self.assert_fails(UNSUPPORTED, "explain", "--backend", "cuda", says="cuda")


class CommandLine(CliTest):
    def test_help(self):
        text = self.fa3("--help")
        for part in COMMANDS + ["Exit codes", "130"]:
            self.assertIn(part, text)
        for command in COMMANDS:
            text = self.fa3(command, "--help")
            self.assertIn(f"fa3 {command}", text)
            self.assertIn("Exit codes", text)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 80, line)
        for part in ["in tokens", "--map", "--softcap X=0", "--threads", "1/sqrt(head_dim)"]:
            self.assertIn(part, self.fa3("run", "--help"))

    def test_mistakes_are_named(self):
        for args, says in [
            (["-V"], ["fa3: unknown option -V (did you mean --version?)"]),
            (["--helpp"], ["--helpp (did you mean --help?)"]),
            (["--json", "info"], ["fa3 info: --json goes after the command: fa3 info --json"]),
            (["--json"], ["--json goes after the command: fa3 COMMAND --json"]),
            (["--zzzzzz"], ["unknown option --zzzzzz; see fa3 --help"]),
            (["info", "--jsn"], ["fa3 info: unknown option --jsn (did you mean --json?)"]),
            (["check", "--head-dim-w=3"], ["--head-dim-w (did you mean --head-dim"]),
            (["chekc"], ["chekc", "did you mean check?"]),
            (["info", "more"], ["fa3 info: unexpected argument 'more'"]),
        ]:
            self.assert_fails(USAGE, *args, says=[*says, "--help"])

    def test_version(self):
        self.assertEqual(self.fa3("--version"), f"fa3 {self.fa3_json('info')['version']}\n")

    def test_wrong_command_lines(self):
        self.assert_fails(USAGE, says="run, quantize, check, bench, tune, info, jit, explain")
        known = "run, quantize, check, bench, tune, info, jit, explain"
        self.assert_fails(USAGE, "--", "check", says=f"no subcommand, need one of {known}")
        self.assert_fails(USAGE, "walk", says=["walk", known])
        self.assert_fails(USAGE, "run", says="fa3 run --help")
        self.assert_fails(USAGE, "run", "in.safetensors", says="--output")
        self.assert_fails(USAGE, "info", "--nonsense", says="--nonsense")
        self.assert_fails(USAGE, "info", "more", says="more")
        for value in ["x", "", "1.5", "-1", "1e3", "99999999999999999999", "0x10"]:
            self.assert_fails(
                USAGE,
                "check",
                f"--batch={value}",
                says=["--batch", f"'{value}'"] if value else "--batch",
            )
        self.assert_fails(USAGE, "check", "--threads", -1, says=["--threads", "-1"])
        self.assert_fails(USAGE, "check", "--softcap", "much", says=["--softcap", "much"])
        for value in ["1e-400", "-1e-400", "1e999", "-1e999"]:
            says = f"--softmax-scale: got '{value}', need 0 or a number from"
            self.assert_fails(USAGE, "check", f"--softmax-scale={value}", says=says)
        self.assert_fails(USAGE, "check", "--dtype", "f8", says=["--dtype", "f8", "bf16"])
        self.assert_fails(
            USAGE, "check", "--backend", "tpu", says=["--backend", "tpu", "reference"]
        )
        for value in ["3", "3,", "3,4,5", "a,b", ",", "3, 4"]:
            self.assert_fails(USAGE, "check", "--window", value, says=["--window", f"'{value}'"])
        self.assert_fails(
            USAGE, "check", "--window", "3,4", "--causal", says=["--window", "--causal"]
        )
        self.assert_fails(USAGE, "check", "--varlen-q", "3,-4", says=["--varlen-q", "-4"])

    def test_empty_text_is_no_default(self):
        """What a script passes whose variable is not set."""
        for command, option, unit in [
            ("check", "--window", "L,R"),
            ("check", "--varlen-q", "N,N,..."),
            ("check", "--seqused-kv", "N,N,..."),
            ("check", "--layout", "NAME"),
            ("check", "--expect", "NAME"),
            ("check", "--dtype", "one of f32"),
            ("run in -o out", "--map", "FILE.png"),
            ("run in", "--output", "OUT.safetensors"),
            ("bench", "--cases", "FILE.json"),
            ("bench", "--only", "TEXT"),
            ("tune", "--output", "FILE.json"),
            ("jit", "--warm", "KERNELS"),
            ("selftest", "--filter", "REGEX"),
        ]:
            args = [*command.split(), option, ""]
            self.assert_fails(USAGE, *args, says=f"{option}: got '', need {unit}")
        self.assert_fails(USAGE, "check", "", says="input: got '', need IN.safetensors")

    def test_optional_inputs(self):
        for options, names in [("", ["sinks"]), ("--backward", ["sinks", "dsinks"])]:
            problem = self.fa3_json("explain", "--with", "sinks", *options.split())["problem"]
            self.assertEqual([name for name in ("sinks", "dsinks") if problem.get(name)], names)
        self.assert_fails(USAGE, "explain", "--with", "sink", says="need some of alibi_slopes")

    def test_leading_zeros_are_decimal(self):
        self.assertEqual(self.fa3_json("explain", "--seqlen-q", "010")["problem"]["seqlen_q"], 10)


if __name__ == "__main__":
    unittest.main()
