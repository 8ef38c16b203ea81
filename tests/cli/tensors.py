# SPDX-License-Identifier: BSD-3-Clause
"""Safetensors files and problems for the tests of the command, by the standard library alone."""

import json
import math
import random
import struct

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "F8_E4M3": 1, "I8": 1}
SIZES["BOOL"] = 1
CODES = {"F64": "d", "F32": "f", "F16": "e", "I32": "i", "I64": "q", "I8": "b", "BOOL": "?"}


def pack(dtype, values):
    """Bytes of a list of numbers."""
    if dtype == "BF16":  # the upper half of an F32, rounded to nearest
        words = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]
        return b"".join(
            struct.pack("<H", ((w + 0x7FFF + (w >> 16 & 1)) >> 16) & 0xFFFF) for w in words
        )
    if dtype == "F8_E4M3":  # the list has its codes, 0…255
        return bytes(values)
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def unpack(dtype, data):
    """The numbers of a tensor's bytes."""
    if dtype == "BF16":
        words = struct.unpack(f"<{len(data) // 2}H", data)
        return [struct.unpack("<f", struct.pack("<I", w << 16))[0] for w in words]
    if dtype == "F8_E4M3":  # its codes
        return list(data)
    return list(struct.unpack(f"<{len(data) // SIZES[dtype]}{CODES[dtype]}", data))


def write(path, tensors):
    """tensors: name → (dtype, shape, list of numbers)."""
    header, blobs, at = {}, [], 0
    for name, (dtype, shape, values) in tensors.items():
        assert len(values) == math.prod(shape), name
        blob = pack(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read(path):
    """name → (dtype, shape, list of numbers)."""
    with open(path, "rb") as file:
        raw = file.read()
    (size,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    header.pop("__metadata__", None)
    return {
        name: (t["dtype"], t["shape"], unpack(t["dtype"], data[slice(*t["data_offsets"])]))
        for name, t in header.items()
    }


def e4m3(code):
    """The value of a code of F8_E4M3, none of its NaN."""
    exponent, fraction = code >> 3 & 15, code & 7
    value = (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0**-9
    return -value if code & 128 else value


def draw(shape, seed, dtype="F32"):
    """A tensor of normal deviates."""
    source = random.Random(seed)
    return (dtype, list(shape), [source.gauss(0, 1) for _ in range(math.prod(shape))])


def dense(batch=1, seqlen_q=5, seqlen_kv=7, heads_q=2, heads_kv=1, dim=4, dim_v=None, dtype="F32"):
    """q, k, v, do of a dense problem."""
    dim_v = dim if dim_v is None else dim_v
    return {
        "q": draw((batch, seqlen_q, heads_q, dim), 1, dtype),
        "k": draw((batch, seqlen_kv, heads_kv, dim), 2, dtype),
        "v": draw((batch, seqlen_kv, heads_kv, dim_v), 3, dtype),
        "do": draw((batch, seqlen_q, heads_q, dim_v), 4, dtype),
    }


def attention(q, k, v, causal=False, scale=None, slopes=None, ids=None, mask=None):
    """O and LSE of a dense problem by plain loops over flat lists: q (b, sq, hq, d) and so on.
    slopes: of each query head; ids: those of queries (b, sq) and keys (b, sk); mask: added to
    scores, (sq, sk) of all heads."""
    (b, sq, hq, d), (_, sk, hk, dv) = q[1], v[1]
    scale = scale or 1 / math.sqrt(d)
    o, lse = [0.0] * (b * sq * hq * dv), [0.0] * (b * hq * sq)

    def row(t, n, i, h):
        _, rows, heads, dim = t[1]
        at = ((n * rows + i) * heads + h) * dim
        return t[2][at : at + dim]

    for n in range(b):
        for i in range(sq):
            for h in range(hq):
                keys = [j for j in range(sk) if not causal or j <= i + sk - sq]
                if ids:
                    keys = [j for j in keys if ids[0][n * sq + i] == ids[1][n * sk + j]]
                scores = [
                    scale
                    * sum(x * y for x, y in zip(row(q, n, i, h), row(k, n, j, h // (hq // hk))))
                    - (slopes[h] * abs(i + sk - sq - j) if slopes else 0)
                    + (mask[2][i * sk + j] if mask else 0)
                    for j in keys
                ]
                if not keys:
                    lse[(n * hq + h) * sq + i] = -math.inf
                    continue
                top = max(scores)
                weights = [math.exp(s - top) for s in scores]
                total = sum(weights)
                lse[(n * hq + h) * sq + i] = top + math.log(total)
                for w, j in zip(weights, keys):
                    for c, x in enumerate(row(v, n, j, h // (hq // hk))):
                        o[((n * sq + i) * hq + h) * dv + c] += w / total * x
    return o, lse
