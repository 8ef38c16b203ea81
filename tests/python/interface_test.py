# SPDX-License-Identifier: BSD-3-Clause
"""interface_test.py — the package's public names: documented, typed, complete."""

import inspect
import pathlib
import re

import fa3
import pytest
from fa3 import _fa3

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


@pytest.mark.parametrize(
    "op, function, implied",
    [
        (1, fa3.attention, {"rotary_cos", "rotary_sin", "v_image_layout"}),
        (2, fa3.attention_backward, set()),
        (3, fa3.quantize, {"codes", "scale", "rotary_cos", "rotary_sin", "v_image_layout"}),
    ],
)
def test_every_field_of_the_c_interface_is_reached(op, function, implied):
    """A field that the structs gain is an argument here, too, or follows from others."""
    fields = {name.split("[")[0] for name in _fa3.arguments(op)}  # "window[0]"
    assert len(fields) > 10
    assert fields - set(inspect.signature(function).parameters) == implied


def test_is_marked_as_typed():
    assert (pathlib.Path(fa3.__file__).parent / "py.typed").exists()
