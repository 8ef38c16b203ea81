# SPDX-License-Identifier: BSD-3-Clause
"""fa3 run --map: the picture decodes and shows the mask and the probabilities."""

import functools
import itertools
import pathlib
import re
import struct
import unittest
import zlib

import tensors
from kit import BAD_INPUT, FAILED, CliTest

FONT = pathlib.Path(__file__).resolve().parents[2] / "data" / "fixed_font.inc"
GLYPH_WIDTH, GLYPH_HEIGHT = 9, 15
INK = (32, 32, 32)
HIDDEN = (222, 226, 230)
WHITE = (255, 255, 255)


def unfiltered(kind, line, above):
    """A line of the picture from what its filter has left of it."""
    if kind == 1:
        for channel in range(3):
            line[channel::3] = bytes(
                itertools.accumulate(line[channel::3], lambda left, x: (left + x) & 255)
            )
    elif kind == 2:
        line = bytearray((x + up) & 255 for x, up in zip(line, above))
    elif kind > 2:
        left, corner = [0, 0, 0], [0, 0, 0]
        for i, up in enumerate(above):
            a, c = left[i % 3], corner[i % 3]
            guess = (a + up) // 2
            if kind == 4:
                near = a + up - c
                guess = min((a, up, c), key=lambda value, near=near: abs(near - value))
            line[i] = left[i % 3] = (line[i] + guess) & 255
            corner[i % 3] = up
    return line


def decode_png(path):
    """Rows of (r, g, b) of an 8-bit RGB picture."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, size = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            kind + body
        )
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert (depth, colour) == (8, 2)
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    raw, stride, rows, above = zlib.decompress(packed), 3 * width, [], bytes(3 * width)
    for y in range(height):
        kind, *line = raw[y * (stride + 1) : (y + 1) * (stride + 1)]
        above = unfiltered(kind, bytearray(line), above)
        rows.append(list(zip(above[0::3], above[1::3], above[2::3])))
    return rows


@functools.lru_cache(maxsize=None)
def alphabet(bold):
    """Characters by their pixels, rows of a glyph as numbers."""
    lines = re.findall(r'^\{"(\w+)", "(\w+)"\}', FONT.read_text(encoding="utf-8"), re.M)
    digits = len(lines[0][bold]) // GLYPH_HEIGHT
    rows = lambda line: re.findall("." * digits, line[bold])
    spare = 4 * digits - GLYPH_WIDTH
    return {
        tuple(int(row, 16) >> spare for row in rows(line)): chr(ord(" ") + i)
        for i, line in enumerate(lines)
    }


def read_text(picture, left, top, bold=False):
    """What stands there, up to the right edge; "" when it is not text."""
    known, text = alphabet(bold), ""
    for x in range(left, len(picture[0]) - GLYPH_WIDTH, GLYPH_WIDTH):
        cell = [row[x : x + GLYPH_WIDTH] for row in picture[top : top + GLYPH_HEIGHT]]
        glyph = tuple(int("".join("01"[pixel == INK] for pixel in row), 2) for row in cell)
        if glyph not in known:
            return ""
        text += known[glyph]
    return text.rstrip()


class Map(CliTest):
    def draw(self, problem, *args):
        tensors.write(self.path("in.safetensors"), problem)
        self.fa3(
            "run",
            self.path("in.safetensors"),
            "-o",
            self.path("out.safetensors"),
            "--map",
            self.path("map.png"),
            *args
        )
        return decode_png(self.path("map.png"))

    def plot(self, picture):
        """The part inside the frame, whose top is the first long dark row."""
        side = [INK] * 100
        top, left = next(
            (y, x)
            for y, row in enumerate(picture)
            for x in [i for i in range(len(row)) if row[i] == INK]
            if row[x : x + 100] == side
        )
        right = left
        while picture[top][right + 1] == INK:
            right += 1
        bottom = top + 1
        while picture[bottom][left] == INK and picture[bottom][right] == INK:
            bottom += 1
        return [r[left + 1 : right] for r in picture[top + 1 : bottom - 1]]

    def test_small_map_shows_each_cell(self):
        # Query i points at key i alone: the diagonal is light, the rest dark.
        n = 8
        eye = [40.0 if r == c else 0.0 for r in range(n) for c in range(n)]
        problem = {
            "q": ("F32", [1, n, 1, n], eye),
            "k": ("F32", [1, n, 1, n], eye),
            "v": ("F32", [1, n, 1, n], eye),
        }
        cells = self.plot(self.draw(problem))
        size = len(cells) // n
        self.assertEqual((len(cells), len(cells[0])), (n * size, n * size))
        self.assertGreaterEqual(size, 8)
        for r in range(n):
            for c in range(n):
                block = {
                    cells[y][x]
                    for y in range(r * size, r * size + size)
                    for x in range(c * size, c * size + size)
                }
                self.assertEqual(len(block), 1, (r, c))
                light = sum(block.pop())
                self.assertTrue(light > 600 if r == c else light < 100, (r, c, light))

    def test_other_sequence_ids_are_hidden(self):
        problem = tensors.dense(1, 4, 4)
        problem["sequence_ids_q"] = ("I32", [1, 4], [1, 1, 2, 2])
        problem["sequence_ids_kv"] = ("I32", [1, 4], [1, 2, 1, 2])
        cells = self.plot(self.draw(problem))
        size = len(cells) // 4
        for r in range(4):
            for c in range(4):
                cell = cells[r * size + size // 2][c * size + size // 2]
                self.assertEqual(cell == HIDDEN, (r < 2) != (c % 2 == 0), (r, c))

    def test_labels_can_be_read(self):
        picture = self.draw(tensors.dense(1, 4, 7, heads_q=2), "--causal", "--head", 1)
        tops = range(len(picture) - GLYPH_HEIGHT)
        texts = {read_text(picture, 16, top, bold) for top in tops for bold in (False, True)}
        self.assertIn("Attention probabilities, head 1 of 2, sequence 0, causal", texts)
        self.assertIn("Colour: probability, logarithmic. Grey: hidden by the mask.", texts)
        beside = picture[52:][: 4 * 48]  # the plot's rows, a label that reads upwards on their left
        turned = list(zip(*beside[::-1]))
        axis = {read_text(turned, x, 16, bold=True).strip() for x in range(GLYPH_WIDTH)}
        self.assertIn("query", axis)

    def test_mask_is_bottom_right_aligned(self):
        rows, columns = 4, 7
        cells = self.plot(self.draw(tensors.dense(1, rows, columns), "--causal", "--head", 1))
        height, width = len(cells) // rows, len(cells[0]) // columns
        for r in range(rows):
            for c in range(columns):
                hidden = cells[r * height][c * width] == HIDDEN
                self.assertEqual(hidden, c > r + columns - rows, (r, c))

    def test_heads_and_sequences_differ(self):
        problem = tensors.dense(2, 6, 6, heads_q=2)
        pictures = [
            self.plot(self.draw(problem, "--head", head, "--batch", batch))
            for head in [0, 1]
            for batch in [0, 1]
        ]
        for i in range(4):
            for j in range(i):
                self.assertNotEqual(pictures[i], pictures[j])

    def test_packed_sequence_shows_its_own_keys(self):
        problem = {
            "q": tensors.draw((9, 1, 4), 1),
            "k": tensors.draw((12, 1, 4), 2),
            "v": tensors.draw((12, 1, 4), 3),
            "cu_seqlens_q": ("I32", [3], [0, 4, 9]),
            "cu_seqlens_kv": ("I32", [3], [0, 5, 12]),
        }
        part = lambda name, first: (
            "F32",
            [1, problem[name][1][0] - first, 1, 4],
            problem[name][2][first * 4 :],
        )
        alone = {"q": part("q", 4), "k": part("k", 5), "v": part("v", 5)}
        self.assertEqual(self.plot(self.draw(problem, "--batch", 1)), self.plot(self.draw(alone)))

    def test_long_sequences_are_pooled(self):
        # All scores equal: row i sees i + 1 keys, so a pooled row is light on the left and even.
        n = 1100
        zero = ("F32", [1, n, 1, 1], [0.0] * n)
        cells = self.plot(self.draw({"q": zero, "k": zero, "v": zero}, "--causal"))
        self.assertEqual((len(cells), len(cells[0])), (550, 550))
        self.assertEqual(cells[10][11], HIDDEN)
        self.assertNotEqual(cells[10][10], HIDDEN)
        self.assertEqual(len(set(cells[549][:549])), 1)
        self.assertGreater(sum(cells[0][0]), sum(cells[549][0]))

    def test_wrong_head_or_sequence(self):
        tensors.write(self.path("in.safetensors"), tensors.dense())
        args = [
            "run",
            self.path("in.safetensors"),
            "-o",
            self.path("out"),
            "--map",
            self.path("map.png"),
        ]
        self.assert_fails(BAD_INPUT, *args, "--head", 2, says=["--head", "2"])
        self.assert_fails(BAD_INPUT, *args, "--batch", 1, says=["--batch", "1"])
        tensors.write(self.path("none.safetensors"), tensors.dense(batch=0))
        args[1] = self.path("none.safetensors")
        self.assert_fails(BAD_INPUT, *args, says="--map: there is no sequence to draw")
        self.assert_fails(FAILED, *args[:-1], self.path("no/map.png"), says=["--map", "no/map.png"])


if __name__ == "__main__":
    unittest.main()
