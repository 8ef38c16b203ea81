# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the command share: a folder each, running fa3, how every failure must look."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

FA3 = os.environ.get("FA3", str(Path(__file__).parents[2] / "build/release/bin/fa3"))

BUILT_FAKES = Path(__file__).parents[2] / "build/release/tests/cuda/fakes"
FAKES = Path(os.environ.get("FA3_FAKES", BUILT_FAKES))  # the fake driver and NVRTC of tests/cuda

DONE, CHECK_FAILED, USAGE, BAD_INPUT, UNSUPPORTED, FAILED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


def built_fake(name):
    """A fake library's path; without it the test is skipped, with the reason."""
    path = FAKES / f"fa3_fake_{name}.so"
    if not path.exists():
        raise unittest.SkipTest(f"{path} is not built; build the target {path.stem}")
    return str(path)


class CliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fa3-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def path(self, name):
        return str(self.folder / name)

    def names(self):
        """What lies in the folder, hidden files included."""
        return sorted(os.listdir(self.folder))

    def run_fa3(self, *args, program=FA3, **options):
        command = [program, *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, **options)

    def fa3(self, *args, **options):
        """Runs fa3, which must succeed; its stdout."""
        result = self.run_fa3(*args, **options)
        self.assertEqual(result.returncode, DONE, (args, result.stderr))
        self.assertEqual(result.stderr, "", args)
        return result.stdout

    def fa3_json(self, *args):
        return json.loads(self.fa3(*args, "--json"))

    def assert_fails(self, code, *args, says=(), **options):
        """Runs fa3, which must say nothing on stdout and one line on stderr that has each of
        `says`, and leave no new file behind."""
        before = self.names()
        result = self.run_fa3(*args, **options)
        self.assertEqual(result.returncode, code, (args, result.stdout, result.stderr))
        self.assertEqual(result.stdout, "", args)
        self.assertRegex(result.stderr, r"\Afa3[^\n]*: [^\n]+\n\Z", args)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, result.stderr)
        self.assertEqual(self.names(), before, args)
        return result.stderr

    def assert_near(self, got, want, tolerance):
        self.assertEqual(len(got), len(want))
        for i, (x, y) in enumerate(zip(got, want)):
            if not (x == y or abs(x - y) <= tolerance):  # == for infinities; a NaN fails
                self.fail(f"element {i}: {x}, want {y} within {tolerance}")


class FakeGpuTest(CliTest):
    """The command with the fake driver and compiler of tests/cuda, and an empty cache."""

    def setUp(self):
        super().setUp()
        (self.folder / "driver").mkdir()
        (self.folder / "driver/libcuda.so.1").symlink_to(built_fake("driver"))
        self.environment = {
            **os.environ,
            "FA3_CACHE_DIR": self.path("cache"),
            "FA3_NVRTC": built_fake("nvrtc"),
            "LD_LIBRARY_PATH": str(self.folder / "driver"),
        }
        self.environment.pop("FA3_KERNEL_PACK", None)
