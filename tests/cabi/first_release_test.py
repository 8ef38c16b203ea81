#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""first_release_test.py — a program compiled against the header of 0.1.0 runs on this library, and
gets what the same program compiled against today's header gets."""

import argparse
import os
import subprocess
import sys
import tempfile
import unittest

OPTIONS = argparse.Namespace()


class FirstRelease(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "FA3_CACHE_DIR": f"{folder}/cache"}
            cls.old, cls.new = (
                subprocess.run([program], capture_output=True, text=True, env=environment)
                for program in (OPTIONS.old, OPTIONS.new)
            )

    def line(self, begin):
        (found,) = [x for x in self.old.stdout.splitlines() if x.startswith(begin + " ")]
        return found.removeprefix(begin + " ")

    def test_runs_to_its_end(self):
        for done in (self.old, self.new):
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout[-500:])

    def test_gets_what_a_new_program_gets(self):
        self.assertEqual(self.old.stdout.splitlines(), self.new.stdout.splitlines())

    def test_outputs_are_written(self):
        for name in ("o", "lse", "dq", "dk", "dv"):
            self.assertNotIn("ffffffff", self.line(name), name)
        self.assertEqual(self.line("planned o"), self.line("o"))
        self.assertEqual(self.line("planned lse"), self.line("lse"))

    def test_strides_left_at_zero_are_refused(self):
        says = self.line("zero strides:")
        self.assertRegex(says, r"^INVALID_ARGUMENT: forward: k\b.*stride")
        self.assertIn("fa3_dense", says)
        self.assertEqual(set(self.line("untouched o").split()), {"ffffffff"})

    def test_lists(self):
        self.assertIn('"matrix/movmatrix"', self.old.stdout)
        self.assertIn('"fwd/d128/bf16/causal/dense"', self.old.stdout)
        self.assertIn('"samples/attention"', self.old.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
