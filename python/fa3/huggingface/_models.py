# SPDX-License-Identifier: BSD-3-Clause
"""Models that compute attention themselves: recognised, and refused in a sentence."""

import functools
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

_names: set[str] = set()  # attn_implementations that are fa3
_served: set[type] = set()  # configurations whose models call attend


def _classes(kind: type) -> Iterator[type]:
    yield kind
    for child in kind.__subclasses__():
        yield from _classes(child)


@torch.compiler.assume_constant_result
def refuse_own_attention(config: type) -> None:
    """Models that compute attention themselves, with whatever mask they are given, would add a bool
    one to their scores: their modules do not look attention functions up."""
    if config in _served:
        return
    from transformers import PreTrainedConfig, PreTrainedModel

    models = [
        model
        for model in _classes(PreTrainedModel)
        if model.config_class not in (None, PreTrainedConfig)
        and issubclass(config, model.config_class)
    ]
    own = [kind for model in models for kind in model.__mro__ if issubclass(kind, PreTrainedModel)]
    modules = {kind.__module__ for kind in own if kind is not PreTrainedModel}
    for kind in config.__mro__:  # those of parts of a model are often no model's by themselves
        if issubclass(kind, PreTrainedConfig) and kind is not PreTrainedConfig:
            modules.add(kind.__module__.replace("configuration_", "modeling_"))
    found = [sys.modules[name] for name in modules if name in sys.modules]
    served = any(hasattr(module, "ALL_ATTENTION_FUNCTIONS") for module in found)
    served = served or any(model.is_backend_compatible() for model in models)
    if not served or _own_classes(config, found):
        raise NotImplementedError(
            f"fa3.huggingface: {config.__name__}: its models compute attention themselves, and "
            'would not call fa3; load the model with attn_implementation="eager"'
        )
    _served.add(config)


def _own_classes(config: type, modules: list[ModuleType]) -> bool:
    """Whether attention classes that are named as the configuration of a part are there, and none
    looks functions up: parts of a model, whose others may be served."""
    prefix = config.__name__.removesuffix("Config")
    classes = {
        value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, torch.nn.Module)
        and name.startswith(prefix)
        and "Attention" in name
        and value.__module__ == module.__name__
    }
    try:
        sources = [inspect.getsource(kind) for kind in classes]
    except (OSError, TypeError):  # defined where there is no file
        return False
    return bool(sources) and not any("ALL_ATTENTION_FUNCTIONS" in text for text in sources)


# ---- Tables of attention classes ----------------------------------------------------------------


def guard(name: str) -> None:
    """From now on a model that looks `name` up in a table of attention classes of its own is told
    what to do, where it would raise KeyError."""
    from transformers import PreTrainedModel

    _names.add(name)
    check = PreTrainedModel.get_correct_attn_implementation
    if getattr(check, "_fa3", False):
        return

    @functools.wraps(check)
    def checked(self: Any, requested_attention: str | None, *others: Any, **named: Any) -> str:
        if requested_attention in _names:
            for kind in type(self).__mro__:
                _fill_tables(vars(sys.modules.get(kind.__module__, object())), requested_attention)
        return check(self, requested_attention, *others, **named)

    checked._fa3 = True  # type: ignore[attr-defined]
    PreTrainedModel.get_correct_attn_implementation = checked  # type: ignore[method-assign]


def _fill_tables(module: dict[str, Any], name: str) -> None:
    for table in [value for key, value in module.items() if key.endswith("_CLASSES")]:
        if isinstance(table, dict) and "eager" in table and name not in table:
            table[name] = functools.partial(_refuse, name, sorted(map(str, table)))


def _refuse(name: str, others: list[str], config: Any = None, *_: Any, **__: Any) -> None:
    others = [x for x in others if x not in _names]
    remedy = "sdpa" if "sdpa" in others else "eager"
    kind = type(config).__name__
    raise NotImplementedError(
        f'fa3.huggingface: attn_implementation="{name}": the model of {kind} has attention classes '
        f"of its own ({', '.join(others)}) and would not call fa3; load it with "
        f'attn_implementation="{remedy}"'
    )
