#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""earlier_release_test.py — a program compiled against the header of 0.1.0 or 0.2.0 runs on this
library, and gets what the same program compiled against today's header gets."""

import argparse
import os
import subprocess
import sys
import tempfile
import unittest

OPTIONS = argparse.Namespace()


class EarlierReleases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "FA3_CACHE_DIR": f"{folder}/cache"}
            cls.first, cls.second, cls.today = (
                subprocess.run([program], capture_output=True, text=True, env=environment)
                for program in OPTIONS.programs
            )

    def line(self, begin):
        (found,) = [x for x in self.second.stdout.splitlines() if x.startswith(begin + " ")]
        return found.removeprefix(begin + " ")

    def test_run_to_their_ends(self):
        for done in (self.first, self.second, self.today):
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout[-500:])

    def test_get_what_a_new_program_gets(self):
        today = self.today.stdout.splitlines()
        self.assertEqual(self.second.stdout.splitlines(), today)
        self.assertEqual(
            self.first.stdout.splitlines(), [x for x in today if not x.startswith("masked ")]
        )

    def test_outputs_are_written(self):
        for name in ("o", "lse", "dq", "dk", "dv", "masked o", "masked dq", "masked dattn_mask"):
            self.assertNotIn("ffffffff", self.line(name), name)
        self.assertEqual(self.line("planned o"), self.line("o"))
        self.assertEqual(self.line("planned lse"), self.line("lse"))

    def test_strides_left_at_zero_are_refused(self):
        says = self.line("zero strides:")
        self.assertRegex(says, r"^INVALID_ARGUMENT: forward: k\b.*stride")
        self.assertIn("fa3_dense", says)
        self.assertEqual(set(self.line("untouched o").split()), {"ffffffff"})

    def test_lists(self):
        self.assertIn('"matrix/movmatrix"', self.first.stdout)
        self.assertIn('"fwd/d128/bf16/causal/dense"', self.first.stdout)
        self.assertIn('"samples/attention"', self.first.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", nargs=3, required=True, help="of 0.1.0, 0.2.0 and today")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
