# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C: exit code 130, no output, no temporary file."""

import signal
import subprocess
import time
import unittest

import tensors
from kit import FA3, INTERRUPTED, CliTest


class Interrupt(CliTest):
    def write_long_problem(self):
        """Many seconds for the reference, in tasks short enough to stop soon under sanitizers."""
        count = 2000 * 64 * 16
        block = tensors.draw((1000,), 5)[2]
        tensor = ("F32", [1, 2000, 64, 16], block * (count // 1000))
        tensors.write(
            self.path("in.safetensors"), {"q": tensor, "k": tensor, "v": tensor, "do": tensor}
        )

    def interrupt(self, when, *args):
        process = subprocess.Popen(
            [FA3, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        end = time.monotonic() + 30
        while not when() and time.monotonic() < end:
            time.sleep(0.01)
        self.assertTrue(when(), "the work never began")
        self.assertIsNone(process.poll(), "the work was over too soon")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual((process.returncode, stdout), (INTERRUPTED, ""))
        self.assertIn("interrupted", stderr)

    def test_run_leaves_nothing_behind(self):
        self.write_long_problem()
        run = [
            "run",
            self.path("in.safetensors"),
            "-o",
            self.path("out.safetensors"),
            "--backend",
            "reference",
        ]
        run += ["--threads", "1"]
        began = lambda: len(self.names()) > 1  # the temporary file
        self.interrupt(began, *run)
        self.assertEqual(self.names(), ["in.safetensors"])
        self.interrupt(
            lambda: len(self.names()) > 2, *run, "--backward", "--map", self.path("map.png")
        )
        self.assertEqual(self.names(), ["in.safetensors"])

    def test_run_keeps_the_input_it_was_to_replace(self):
        self.write_long_problem()
        path = self.path("in.safetensors")
        began = lambda: len(self.names()) > 1
        self.interrupt(began, "run", path, "-o", path, "--backend", "reference", "--threads", "1")
        self.assertEqual(self.names(), ["in.safetensors"])
        self.assertEqual(sorted(tensors.read(path)), ["do", "k", "q", "v"])

    def test_check_and_bench(self):
        begin = time.monotonic()
        for command in ["check", "bench"]:
            args = [
                command,
                "--backend",
                "reference",
                "--heads-q",
                "64",
                "--seqlen-q",
                "8000",
                "--json",
            ]
            begin = time.monotonic()
            self.interrupt(lambda: time.monotonic() > begin + 0.5, *args)


if __name__ == "__main__":
    unittest.main()
