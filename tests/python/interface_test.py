# SPDX-License-Identifier: BSD-3-Clause
"""interface_test.py — the package's public names: documented, typed, complete."""

import inspect
import pathlib
import re

import fa3
import pytest

PUBLIC = [getattr(fa3, name) for name in fa3.__all__]


@pytest.mark.parametrize("item", PUBLIC, ids=fa3.__all__)
def test_has_a_docstring(item):
    assert item.__doc__ and len(item.__doc__) > 20


@pytest.mark.parametrize("function", [fa3.attention, fa3.attention_backward, fa3.quantize])
def test_every_argument_is_documented_and_typed(function):
    text = function.__doc__
    assert "Args:" in text and "Returns:" in text and "Raises:" in text
    hidden = {
        "q_block",
        "k_scale",
        "v_scale",
        "k_offset",
        "v_offset",
        "k_block",
    }  # "q_scale … v_block"
    if function is fa3.attention_backward:  # "the arguments of the mask and of the scores as there"
        hidden |= set(inspect.signature(fa3.attention).parameters)
    for name, parameter in inspect.signature(function).parameters.items():
        assert parameter.annotation is not inspect.Parameter.empty, name
        assert name in hidden or re.search(rf"\b{name}\b", text), f"{name} is not documented"


def test_every_field_of_the_c_interface_is_reached():
    """A field that the structs gain is an argument here, too."""
    root = pathlib.Path(__file__).resolve().parents[2]
    header = (root / "include/fa3/fa3.h").read_text() + (
        root / "include/fa3/quantize.h"
    ).read_text()
    table = (root / "python/src/fields.cpp").read_text()
    for struct in ("fa3_forward_args", "fa3_backward_args", "fa3_quantize_args"):
        body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", header, re.S)[1]
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        fields = set(re.findall(r"(\w+);", body)) - {"struct_size"}
        known = set(re.findall(r"FA3_FIELD\((?:type|" + struct + r"), (\w+),", table))
        missing = {f for f in fields - known if not f.endswith("reserved")}
        assert len(fields) > 10 and not missing, f"{struct}: {missing}"


def test_is_marked_as_typed():
    assert (pathlib.Path(fa3.__file__).parent / "py.typed").exists()
