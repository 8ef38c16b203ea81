# SPDX-License-Identifier: BSD-3-Clause
"""The simulator's report of a broken rule, by a simulator that always has one to make."""

import json
import os
import shlex
import unittest
from pathlib import Path

import tensors
from kit import FA3, FAILED, USAGE, CliTest, built_fake

CHECK = "check --dtype bf16 --backend sim --batch 1 --heads-q 1 --seqlen-q 5".split()


class Violation(CliTest):
    def setUp(self):
        super().setUp()
        # libfa3 looks for the simulator in its own folder.
        folder = self.folder / "lib"
        folder.mkdir()
        library = Path(FA3).resolve().parents[1] / "lib/libfa3.so.0"
        (folder / "libfa3.so.0").symlink_to(library)
        (folder / "libfa3_sim.so").symlink_to(built_fake("sim"))
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}

    def violation(self, *args, **variables):
        result = self.run_fa3(*args, "--json", env={**self.environment, **variables})
        self.assertEqual((result.returncode, result.stderr), (FAILED, ""), result.stdout)
        report = json.loads(result.stdout)
        self.assertIs(report["ok"], False)
        return report

    def test_json(self):
        report = self.violation(*CHECK, "--schedule-seed", 7)
        self.assertEqual(
            report["violation"],
            {
                "rule": "race",
                "message": "tma_load writes k[0] and nothing orders it: that is bad",
                "accesses": [
                    {"what": "tma_load", "where": "attention.cuh:74", "who": "the copy engine"},
                    {"what": "wgmma", "where": "attention.cuh:181", "who": "wgmma of warpgroup 1"},
                ],
                "missing": "wgmma_wait() by the warpgroup that reads",
                "block": [0, 2, 0],
                "seed": 7,
            },
        )
        replay = shlex.split(report["replay"])
        self.assertEqual(self.violation(*replay[1:]), report)

    def test_json_of_a_file(self):
        path = self.path("in.safetensors")
        tensors.write(path, tensors.dense(dim=8))
        report = self.violation(*["check", path, "--dtype", "bf16", "--backend", "sim"])
        self.assertEqual(report["violation"]["rule"], "race")
        self.assertNotIn("replay", report)

    def test_text(self):
        result = self.run_fa3(*CHECK, "--schedule-seed", 3, env=self.environment)
        self.assertEqual((result.returncode, result.stdout), (FAILED, ""))
        report = r"(?s)\Afa3 check: race: .*\n  block \(0, 2, 0\), seed 3\n\Z"
        self.assertRegex(result.stderr, report)

    def test_seed_of_the_environment(self):
        self.assertEqual(self.violation(*CHECK)["violation"]["seed"], 0)
        self.assertEqual(self.violation(*CHECK, FA3_SIM_SEED="5")["violation"]["seed"], 5)
        given = self.violation(*CHECK, "--schedule-seed", 6, FA3_SIM_SEED="5")
        self.assertEqual(given["violation"]["seed"], 6)

    def test_seed_is_for_the_simulator(self):
        self.assert_fails(USAGE, "check", "--schedule-seed", 3, says=["--schedule-seed", "sim"])
        says = ["--schedule-seed", "-3"]
        self.assert_fails(USAGE, *CHECK, "--schedule-seed=-3", says=says)


if __name__ == "__main__":
    unittest.main()
