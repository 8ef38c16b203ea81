#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""abi_test.py — what a program compiled against fa3.h relies on has not changed.

    abi_test.py layout --cc CC --golden FILE [--update] [--header conformance.h]
        struct sizes, field offsets, enum values, prototypes
    abi_test.py symbols --nm NM --lib libfa3.so --golden FILE [--update] [--header conformance.h]
        the dynamic symbols, with versions; fa3_private_… are between fa3's own libraries and in no
        header

The header itself is read for the list of structs, fields, enumerators and functions, so that
nothing can be forgotten here; a C99 program made from that list prints what the compiler makes of
them. --update rewrites the golden file: only for additions, or for a new major version
(CONTRIBUTING.md, "Add a field").
"""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ROOT / "include" / "fa3"


def declarations(header):
    """Structs {name: [field]}, enums {name: [enumerator]}, constants and prototypes of a header."""
    text = (HEADERS / header).read_text(encoding="utf-8")
    if header == "fa3.h":  # with the parts of it that are files of their own
        parts = r"^#include <fa3/(\w+\.h)>$"
        of = lambda part: (HEADERS / part[1]).read_text(encoding="utf-8")
        text = re.sub(parts, of, text, flags=re.M)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    structs = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, flags=re.S):
        structs[name] = [
            re.search(r"(\w+)\s*(?:\[\w+\])?$", field.strip()).group(1)
            for field in body.split(";")
            if field.strip()
        ]
    enums = {}
    for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\} \1;", text, flags=re.S):
        enums[name] = [item.split("=")[0].strip() for item in body.split(",") if item.strip()]
    constants = re.findall(r"^#define (FA3_MAX_\w+) \S+$", text, flags=re.M)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    prototypes = [" ".join(p.split()) for p in re.findall(r"FA3_API ([^;{}]+);", body)]
    prototypes += [
        " ".join(p.split()) for p in re.findall(r"typedef [^;{}]*\(\*\w+\)[^;{}]*(?=;)", body)
    ]
    return structs, enums, constants, prototypes


def layout(cc, header):
    structs, enums, constants, prototypes = declarations(header)
    program = [f"#include <fa3/{header}>", "#include <stdio.h>", "int main(void) {"]
    for name, fields in structs.items():
        program.append(f'  printf("struct {name} %lu\\n", (unsigned long)sizeof({name}));')
        for field in fields:
            program.append(
                f'  printf("  {field} %lu %lu\\n", (unsigned long)offsetof({name}, {field}), '
                f"(unsigned long)sizeof((({name}*)0)->{field}));"
            )
    for name, items in enums.items():
        program.append(f'  printf("enum {name} %lu\\n", (unsigned long)sizeof({name}));')
        program += [f'  printf("  {item} %d\\n", (int){item});' for item in items]
    program += [f'  printf("constant {item} %d\\n", {item});' for item in constants]
    program += ["  return 0;", "}", ""]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "layout.c")
        source.write_text("\n".join(program), encoding="utf-8")
        binary = pathlib.Path(folder, "layout")
        subprocess.run(
            [
                cc,
                "-std=c99",
                "-pedantic",
                "-Wall",
                "-Wextra",
                "-Werror",
                f"-I{ROOT / 'include'}",
                str(source),
                "-o",
                str(binary),
            ],
            check=True,
        )
        printed = subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout
    head = [
        f"# The ABI of {header} on LP64, made by tests/cabi/abi_test.py.",
        "# struct <name> <bytes>, then <field> <offset> <bytes>;",
        "# enum <name> <bytes>, then <enumerator> <value>; then the prototypes",
    ]
    return head + printed.splitlines() + prototypes


def symbols(nm, lib, header):
    printed = subprocess.run(
        [nm, "-D", "--defined-only", "--with-symbol-versions", lib],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = sorted(line.split()[-1] for line in printed.splitlines() if line.split()[1] != "A")
    declared = {
        re.search(r"(\w+)\(", p).group(1)
        for p in declarations(header)[3]
        if not p.startswith("typedef")
    }
    exported = {name.split("@")[0] for name in found if not name.startswith("fa3_private_")}
    if declared != exported:
        print(f"declared in {header} but not exported:", sorted(declared - exported) or "none")
        print(f"exported but not declared in {header}:", sorted(exported - declared) or "none")
        sys.exit(1)
    name = re.sub(r"\.so.*", ".so", pathlib.Path(lib).name)
    return [f"# Dynamic symbols that {name} defines, made by tests/cabi/abi_test.py."] + found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["layout", "symbols"])
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--lib")
    parser.add_argument("--header", default="fa3.h")
    parser.add_argument("--golden", type=pathlib.Path, required=True)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if options.what == "layout":
        lines = layout(options.cc, options.header)
    else:
        lines = symbols(options.nm, options.lib, options.header)
    if options.update:
        options.golden.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return 0
    golden = options.golden.read_text(encoding="utf-8").splitlines()
    if lines == golden:
        return 0
    print("\n".join(difflib.unified_diff(golden, lines, "frozen", "now", lineterm="", n=2)))
    print(
        "The ABI changed. A line removed or altered breaks programs that exist; for an addition "
        f"at the end of a struct run: {sys.argv[0]} {options.what} … --update"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
