# SPDX-License-Identifier: BSD-3-Clause
"""Metadata of packages that are not installed, for programs that ask importlib.metadata which
FlashAttention there is before they import it."""

import importlib.metadata
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any


class _Package(importlib.metadata.Distribution):
    def __init__(self, name: str, version: str, modules: tuple[str, ...]) -> None:
        self._name, self._version, self._modules = name, version, modules

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            summary = "fa3 in its place"
            return (
                f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {self._version}\n"
                f"Summary: {summary}\n"
            )
        return "".join(f"{m}\n" for m in self._modules) if filename == "top_level.txt" else None

    def locate_file(self, path: Any) -> pathlib.Path:
        return pathlib.Path(__file__).parent / path  # there is none


class _Finder(importlib.metadata.DistributionFinder):
    """On sys.meta_path, in front: finds packages, no modules."""

    def __init__(self) -> None:
        self.packages: dict[str, _Package] = {}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        return None

    def find_distributions(self, context: Any = None) -> Iterator[_Package]:
        wanted = getattr(context, "name", None)
        for name, package in self.packages.items():
            if wanted is None or _normalised(wanted) == name:
                yield package


_finder = _Finder()


def _normalised(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def is_installed(name: str) -> bool:
    """Really: not by add."""
    try:
        return not isinstance(importlib.metadata.distribution(name), _Package)
    except importlib.metadata.PackageNotFoundError:
        return False


def add(name: str, version: str, modules: set[str]) -> None:
    """From now on a package of that name counts as installed in this process, with the top-level
    modules `modules` beside those of earlier calls."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    known = _finder.packages.get(name)
    modules = modules | set(known._modules if known else ())
    _finder.packages[name] = _Package(name, version, tuple(sorted(modules)))
