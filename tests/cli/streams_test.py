# SPDX-License-Identifier: BSD-3-Clause
"""stdout that cannot be written is a failure, one that nobody reads any more is none; the progress
bar appears on terminals only."""

import os
import pty
import select
import signal
import subprocess
import time
import unittest

import tensors
from kit import DONE, FA3, FAILED, CliTest


class Stdout(CliTest):
    def assert_stdout_fails(self, *args, **options):
        result = subprocess.run(
            [FA3, *args], stderr=subprocess.PIPE, text=True, timeout=60, **options
        )
        self.assertEqual(result.returncode, FAILED, args)
        self.assertRegex(result.stderr, r"\Afa3[^\n]*: stdout: [^\n]+\n\Z")

    def test_full(self):
        with open("/dev/full", "w") as full:
            for args in [
                ["info"],
                ["info", "--json"],
                ["explain"],
                ["check"],
                ["--help"],
                ["run", "--help"],
                ["--version"],
            ]:
                self.assert_stdout_fails(*args, stdout=full)
            self.assert_stdout_fails("bench", "--seqlen-q", "8", "--json", stdout=full)

    def test_broken_pipe(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        self.addCleanup(os.close, write_end)
        for args in [["info"], ["info", "--json"], ["run", "--help"], ["man"]]:
            result = subprocess.run([FA3, *args], stdout=write_end, stderr=subprocess.PIPE)
            self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, b""), args)

    def test_closed(self):
        self.assert_stdout_fails("info", preexec_fn=lambda: os.close(1))

    def test_closed_streams_do_not_leak_into_files(self):
        tensors.write(self.path("in.safetensors"), tensors.dense())

        def close_all():
            for fd in range(3):
                os.close(fd)

        command = [FA3, "run", self.path("in.safetensors"), "-o", self.path("out.safetensors")]
        code = subprocess.run(command, preexec_fn=close_all, timeout=60).returncode
        self.assertEqual(code, FAILED)  # the report could not be printed
        self.assertEqual(sorted(tensors.read(self.path("out.safetensors"))), ["lse", "o"])
        code = subprocess.run([*command, "--quiet"], preexec_fn=close_all, timeout=60).returncode
        self.assertEqual(code, DONE)


class ProgressBar(CliTest):
    def start(self, *args):
        """fa3 run on a problem of many seconds, stderr on a pseudo-terminal: process, terminal."""
        size = (1, 3000, 64, 16)
        block = tensors.draw((1000,), 5)[2]
        tensor = ("F32", list(size), block * (3000 * 64 * 16 // 1000))
        tensors.write(self.path("in.safetensors"), {"q": tensor, "k": tensor, "v": tensor})
        terminal, other_end = pty.openpty()
        self.addCleanup(os.close, terminal)
        command = [FA3, "run", self.path("in.safetensors"), "-o", self.path("out.safetensors")]
        self.begin = time.monotonic()  # before the process's own clock
        process = subprocess.Popen(
            [*command, "--backend", "reference", "--threads", "1", *args],
            stdout=subprocess.PIPE,
            stderr=other_end,
        )
        os.close(other_end)
        self.addCleanup(process.stdout.close)
        return process, terminal

    def read_until(self, terminal, wanted, seconds):
        text, end = "", time.monotonic() + seconds
        while wanted not in text and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    text += os.read(terminal, 4096).decode()
                except OSError:  # the other end is closed
                    break
        return text

    def test_bar_appears_after_a_second_and_goes_away(self):
        process, terminal = self.start()
        text = self.read_until(terminal, "left", 60)
        self.assertRegex(text, r"forward \[[#.]+\] +\d+ %  \d+:\d\d left")
        self.assertGreater(time.monotonic() - self.begin, 0.9)
        process.send_signal(signal.SIGINT)
        rest = text + self.read_until(terminal, "interrupted", 60)
        self.assertIn("\r\x1b[Kfa3 run: interrupted", rest)  # the bar was erased
        process.wait(60)

    def test_quiet_has_no_bar(self):
        process, terminal = self.start("--quiet")
        self.assertEqual(self.read_until(terminal, "left", 2.5), "")
        process.send_signal(signal.SIGINT)
        process.wait(60)


if __name__ == "__main__":
    unittest.main()
