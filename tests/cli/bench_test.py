# SPDX-License-Identifier: BSD-3-Clause
"""fa3 bench: what it measures and how it says so; never how fast."""

import json
import unittest

from kit import BAD_INPUT, UNSUPPORTED, USAGE, CliTest

SMALL = [
    "--batch",
    1,
    "--heads-q",
    2,
    "--seqlen-q",
    20,
    "--seqlen-kv",
    30,
    "--head-dim",
    8,
    "--repetitions",
    3,
]


class Bench(CliTest):
    def lines(self, *args):
        return [json.loads(line) for line in self.fa3("bench", *args, "--json").splitlines()]

    def cases(self, cases):
        path = self.path("cases.json")
        with open(path, "w") as file:
            file.write(cases if isinstance(cases, str) else json.dumps(cases))
        return path

    def test_json_lines(self):
        lines = self.lines(*SMALL, "--backward", "--dtype", "bf16", "--causal")
        self.assertEqual([x["op"] for x in lines], ["forward", "backward"])
        for x in lines:
            self.assertEqual(
                (x["backend"], x["dtype"], x["verified"], x["repetitions"]),
                ("cpu", "bf16", True, 3),
            )
            self.assertTrue(0 < x["p10_ms"] <= x["median_ms"] <= x["p90_ms"])
            self.assertAlmostEqual(x["gflops"], x["flops"] / x["median_ms"] / 1e6)
            self.assertTrue(x["device"] and x["instruction_set"] and x["threads"] >= 1)
        pairs = sum(min(30, i + 11) for i in range(20))
        self.assertEqual(lines[0]["flops"], 2 * 2 * pairs * 16)
        self.assertEqual(lines[1]["flops"], 2.5 * lines[0]["flops"])
        self.assertEqual(lines[0]["kv_bytes"], 30 * 2 * 16 * 2)
        self.assertNotIn("kv_bytes", lines[1])

    def test_hopper_kernel_in_the_simulator(self):
        for dtype in ["bf16", "f16"]:
            for row in self.lines(*SMALL, "--dtype", dtype, "--backend", "sim"):
                self.assertEqual((row["backend"], row["verified"]), ("sim", True))
                self.assertGreater(row["median_ms"], 0)

    def test_table(self):
        text = self.fa3("bench", *SMALL, "--threads", 1)
        for part in [
            "median",
            "p10",
            "p90",
            "GFLOP/s",
            "forward",
            "1 threads",
            "cpu",
            "f32, batch 1, heads 2",
        ]:
            self.assertIn(part, text)
        self.assertEqual(self.fa3("bench", *SMALL, "--quiet"), "")

    def test_simulated(self):
        for extra in [[], ["--causal"]]:
            (line,) = self.lines(*SMALL, "--dtype", "bf16", "--backend", "sim", *extra)
            self.assertEqual((line["backend"], line["verified"]), ("sim", True))
            self.assertGreater(line["median_ms"], 0)

    def test_cases(self):
        shape = {"dtype": "f32", "heads_q": 4, "heads_kv": 2, "head_dim_qk": 16, "head_dim_v": 8}
        path = self.cases(
            [
                {
                    "name": "dense_w",
                    "op": "forward",
                    "batch": 1,
                    "seqlen_q": 9,
                    "seqlen_kv": 200,
                    "mask": "window",
                    "left": 3,
                    "right": 0,
                    **shape,
                },
                {
                    "name": "ragged",
                    "op": "backward",
                    "deterministic": True,
                    "varlen_q": [0, 5, 9],
                    "varlen_kv": [3, 5, 1],
                    "mask": "causal",
                    "softcap": 3.0,
                    **shape,
                },
                {"name": "documents", "seqlen_q": 9, "alibi": True, "sequence_ids": 1, **shape},
                {"name": "parts", "num_splits": 2, **shape},
                {"name": "bias", "seqlen_q": 9, "attn_mask": "f32", "mask_dims": "", **shape},
                {"name": "sinks", "op": "backward", "with": ["sinks", "alibi_slopes"], **shape},
            ]
        )
        lines = self.lines("--cases", path, "--repetitions", 1)
        names = ["dense_w", "ragged", "documents", "parts", "bias", "sinks"]
        self.assertEqual([x["name"] for x in lines], names)
        self.assertEqual(lines[0]["mask"], "window 3,0")
        self.assertEqual(lines[0]["flops"], 2 * 4 * (9 * 4) * 24)
        self.assertEqual(lines[1]["varlen_q"], [0, 5, 9])
        self.assertIs(lines[1]["deterministic"], True)
        self.assertEqual(lines[1]["flops"], 2.5 * 2 * 4 * (15 + 1) * 24)
        self.assertEqual((lines[2]["alibi"], lines[2]["sequence_ids"]), (True, 1))
        self.assertEqual(lines[2]["flops"], 2 * 4 * 9 * 9 * 24)
        self.assertEqual(lines[3]["num_splits"], 2)
        self.assertEqual((lines[4]["attn_mask"], lines[4]["mask_dims"]), ("f32", ""))
        self.assertEqual(lines[5]["with"], ["sinks", "alibi_slopes"])
        self.assertIn(lines[4]["flops"], (0, 2 * 4 * 9 * 9 * 24))  # one value hides all or none
        self.assertEqual(
            [x["name"] for x in self.lines("--cases", path, "--only", "rag")], ["ragged"]
        )

    def test_wrong_cases(self):
        self.assert_fails(BAD_INPUT, "bench", "--cases", self.path("none.json"), says="none.json")
        good = {
            "name": "a",
            "dtype": "f32",
            "batch": 1,
            "heads_q": 1,
            "seqlen_q": 4,
            "head_dim_qk": 4,
        }
        for cases, message in [
            ("[1]", "need an object"),
            ([{"name": "a"}], "dtype: missing"),
            ([{**good, "dtype": "f8"}], "dtype: got 'f8', need one of f32, f16, bf16"),
            ([{**good, "mask": "odd"}], "mask: got 'odd'"),
            ([{**good, "op": "sideways"}], "op: got 'sideways'"),
            ([{**good, "heads_q": -1}], "heads-q is -1, need at least 0"),
            ([{**good, "heads_q": "two"}], "heads_q: got \"two\", need a whole number"),
            ([{**good, "heads_q": 1.5}], "heads_q: got 1.5, need a whole number"),
            ([{**good, "batch": 2**63}], "batch: got 9223372036854775808, need a whole number"),
            ([{**good, "varlen_q": [1, "x"]}], "varlen_q: got [1,\"x\"], need a list of whole"),
            ([{**good, "softcap": None}], "softcap: got null, need a number"),
            ([{**good, "alibi": 1}], "alibi: got 1, need true or false"),
            ([{**good, "sequence_ids": -1}], "sequence-ids is -1, need 0 to 1048576"),
            ([{**good, "with": "sinks"}], "with: got \"sinks\", need a list of strings"),
            ([{**good, "with": ["sink"]}], "with has sink, need some of alibi_slopes"),
            ([{**good, "attn_mask": "i8"}], "attn_mask: got 'i8', need one of none, bool, f32"),
            ([{**good, "num_splits": 2**31}], "num_splits: got 2147483648, need 0 to 2147483647"),
            ([{**good, "seqlenq": 4}], "unknown key 'seqlenq', need one of name, op,"),
            ([{**good, "left": 4}], "left, right: are for mask window"),
            ([{**good, "varlen_q": [1], "batch": 2}], "batch: got 2, need the number of varlen"),
            ('[{"name": "a", "softcap": 1e999}]', "'1e999' is beyond the range of a double"),
        ]:
            says = ["cases.json: case 0: ", message]
            error = self.assert_fails(
                BAD_INPUT, "bench", "--cases", self.cases(cases), says=[*says, "fa3 bench --help"]
            )
            self.assertNotIn("json.exception", error)
        for cases, message in [
            ("[{", "byte 3"),
            ("{}", "array"),
            ("", "byte 1"),
            ("[]", "no cases"),
            ("[" * 100000 + "]" * 100000, "nested deeper than 8 levels"),
        ]:
            self.assert_fails(
                BAD_INPUT, "bench", "--cases", self.cases(cases), says=["cases.json", message]
            )
        self.assert_fails(BAD_INPUT, "bench", "--cases", ".", says="--cases: .: not a regular file")
        path = self.cases([good])
        self.assert_fails(BAD_INPUT, "bench", "--cases", path, "--only", "zebra", says="zebra")
        self.assertEqual(len(self.lines("--cases", path, "--repetitions", 1)), 1)

    def test_options_beside_cases(self):
        path = self.cases([{"name": "a", "dtype": "f32"}])
        shared = ["--seqlen-q=8", "--varlen-q=3,4", "--dtype=f32", "--causal", "--backward"]
        for command, option in [
            *((command, option) for command in ("bench", "tune") for option in shared),
            *(("bench", option) for option in ("--page-size=4", "--kv-begin", "--decode")),
        ]:
            says = [option.partition("=")[0] + ": ", "--cases"]
            self.assert_fails(USAGE, command, "--cases", path, option, says=says)

    def test_decode(self):
        small = ["--decode", "--batch", 2, "--heads-q", 4, "--heads-kv", 2, "--head-dim", 16]
        small += ["--seqlen-kv", 70, "--repetitions", 1]
        (line,) = self.lines(*small)
        self.assertEqual((line["name"], line["op"], line["verified"]), ("decode", "forward", True))
        self.assertEqual((line["dtype"], line["seqlen_q"], line["mask"]), ("bf16", 1, "causal"))
        self.assertEqual((line["page_size"], line["kv_slots"]), (16, 0))
        row_bytes = 2 * 2 * (16 + 16)  # of a token's keys and values, of all sequences
        self.assertEqual(line["kv_bytes"], 2 * 70 * row_bytes)
        self.assertAlmostEqual(line["kv_gb_per_s"], line["kv_bytes"] / line["median_ms"] / 1e6)
        self.assertEqual(line["flops"], 2 * 2 * 4 * 70 * 32)
        for options, rows, page_size in [
            (["--seqlen-q", 3], 140, 16),
            (["--seqlen-q", 3, "--window", "9,0"], 24, 16),  # the queries see 10 keys each
            (["--kv-slots", 3, "--kv-begin"], 140, 0),
            (["--page-size", 0], 140, None),
            (["--varlen-kv", "30,12"], 42, None),
        ]:
            (line,) = self.lines(*small, *options)
            self.assertEqual(line["kv_bytes"], rows * row_bytes, options)
            self.assertEqual(line.get("page_size"), page_size, options)
        text = self.fa3("bench", *small)
        for part in ["times in µs", "KV GB/s", "\ndecode ", "causal, pages of 16\n"]:
            self.assertIn(part, text)

    def test_decode_as_usual(self):
        (line,) = self.lines("--decode", "--seqlen-kv", 40, "--repetitions", 1)
        sizes = [line[x] for x in ("batch", "heads_q", "heads_kv", "head_dim_qk", "page_size")]
        self.assertEqual(sizes, [8, 32, 8, 128, 16])
        (line,) = self.lines("--decode", "--seqlen-kv", 40, "--heads-q", 4, "--repetitions", 1)
        self.assertEqual((line["heads_q"], line["heads_kv"]), (4, 4))
        sim = ["--backend", "sim", "--batch", 1, "--seqlen-kv", 130, "--repetitions", 1]
        (line,) = self.lines("--decode", *sim, "--head-dim", 64)
        self.assertEqual((line["backend"], line["verified"]), ("sim", True))

    def test_caches(self):
        cache = ["--page-size", 8]
        (line,) = self.lines(*SMALL, *cache)
        self.assertEqual((line["name"], line["page_size"], line["mask"]), ("forward", 8, "full"))
        self.assertEqual(line["kv_bytes"], 30 * 2 * (8 + 8) * 4)
        self.assertNotIn("KV GB/s", self.fa3("bench", *SMALL, *cache))

    def test_refusals(self):
        says = ["--decode", "--backward"]
        self.assert_fails(USAGE, "bench", "--decode", "--backward", says=says)
        for option in ["--varlen-kv=3,4", "--sequence-ids=2", "--backward"]:
            self.assert_fails(USAGE, "bench", "--page-size", 4, option, says="cache")
        self.assert_fails(USAGE, "bench", "--repetitions", 0, says="--repetitions")
        self.assert_fails(UNSUPPORTED, "bench", "--backend", "sim", "--json", says="sim")
        self.assert_fails(BAD_INPUT, "bench", "--head-dim", 0, "--json", says="head_dim")


if __name__ == "__main__":
    unittest.main()
