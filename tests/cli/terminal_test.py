# SPDX-License-Identifier: BSD-3-Clause
"""Text on a terminal of 80 columns; in a pipe lines go whole."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
import unittest

import tensors
from kit import FA3, CliTest


class Terminal(CliTest):
    def shown(self, *args, columns=80):
        """The lines that a terminal of so many columns gets."""
        terminal, other_end = pty.openpty()
        fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([FA3, *map(str, args)], stdout=other_end)
        os.close(other_end)
        text = b""
        while True:
            try:
                part = os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            text += part
        os.close(terminal)
        self.assertEqual(process.wait(60), 0, args)
        return text.decode().replace("\r\n", "\n").splitlines()

    def test_every_text_fits(self):
        source, out = self.path("in"), self.path("o")
        tensors.write(source, tensors.dense(2, 64, 64, 4, 4, 16))
        for args in [
            ["info"],
            ["jit", "--list"],
            ["check", "--backward", "--seqlen-q", 8],
            ["check", "--seqlen-kv", 1, "--magnitude", "1e6"],  # blind
            ["explain", "--dtype", "bf16", "--backend", "sim"],
            ["bench", "--seqlen-q", 8, "--repetitions", 1],
            ["selftest", "--list"],
            ["run", source, "-o", out, "--backward"],
        ]:
            for columns in [80, 60]:
                lines = self.shown(*args, columns=columns)
                for line in lines:
                    # A word that is longer, a path for example, stays whole.
                    long = max(map(len, line.split()), default=0) > columns - 24
                    self.assertTrue(len(line) <= columns or long, (args, line))
            # Nothing is lost but line breaks.
            if args[0] in ["info", "jit", "explain"]:
                self.assertEqual(" ".join(lines).split(), self.fa3(*args).split())

    def test_lines_go_on_below_their_value(self):
        lines = self.shown("info")
        at = next(i for i, line in enumerate(lines) if line.startswith("  cuda "))
        value = lines[at].index("not available")
        self.assertRegex(lines[at + 1], rf"\A {{{value}}}\S")

    def test_pipes_get_whole_lines(self):
        self.assertGreater(max(map(len, self.fa3("info").splitlines())), 80)


if __name__ == "__main__":
    unittest.main()
