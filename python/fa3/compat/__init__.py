# SPDX-License-Identifier: BSD-3-Clause
"""fa3.compat: the functions of FlashAttention-3 and FlashAttention-2 by their own names.

    from fa3.compat.flash_attn_interface import flash_attn_func   # FlashAttention-3's
    from fa3.compat.flash_attn import flash_attn_func             # FlashAttention-2's

or, for programs that import the originals, before they do:

    import fa3.compat
    fa3.compat.install()

Names, defaults, return values and meaning are those of the originals at the commits that
docs/guide/python.md names, with a table of every parameter. What fa3 lacks raises
NotImplementedError with the reason; nothing is ignored that would change a result.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
import types

__all__ = ["install"]

# Top-level module: the package that it is of, and what fa3.compat has for it and below it. Some
# programs look for FlashAttention-3 below a package of its own, by one of two names.
_MODULES = {
    "flash_attn_interface": ("flash-attn-3", {"": "flash_attn_interface"}),
    "flash_attn": (
        "flash-attn",
        {
            "": "flash_attn",
            ".flash_attn_interface": "flash_attn",
            ".bert_padding": "bert_padding",
            ".layers": None,
            ".layers.rotary": "rotary",
        },
    ),
    "flash_attn_3": ("flash-attn-3", {"": None, ".flash_attn_interface": "flash_attn_interface"}),
    "flashattn_hopper": (
        "flash-attn-3",
        {"": None, ".flash_attn_interface": "flash_attn_interface"},
    ),
}
_DEFAULT = ("flash_attn_interface", "flash_attn")


def install(*names: str, replace: bool = False, metadata: bool = False) -> None:
    """Lets `import flash_attn_interface` and `import flash_attn` find fa3's functions.

    names: "flash_attn_interface", "flash_attn_3", "flashattn_hopper" (FlashAttention-3),
      "flash_attn" (2); none = the first and the last. Modules below them: flash_attn_interface,
      where it is not the name itself; of flash_attn also bert_padding and layers.rotary.
    replace: also where the original is installed or imported; else that is refused, for all names,
      with RuntimeError.
    metadata: also let importlib.metadata, which transformers and others ask, find the packages
      flash-attn-3 and flash-attn that these modules are of.
    """
    from . import _metadata, flash_attn, flash_attn_interface

    chosen = names or _DEFAULT
    for name in chosen:
        if name not in _MODULES:
            need = ", ".join(f'"{known}"' for known in _MODULES)
            raise ValueError(f'names: "{name}", need one of {need}')
        package = _MODULES[name][0]
        if not replace and (_is_there(name) or (metadata and _metadata.is_installed(package))):
            raise RuntimeError(
                f"install: {name} is installed; uninstall it, or say replace=True to take fa3 in "
                "this process"
            )
    versions = {
        "flash-attn": flash_attn.__version__,
        "flash-attn-3": flash_attn_interface.__version__,
    }
    for name in chosen:
        package, parts = _MODULES[name]
        for below, source in parts.items():
            _put(name + below, source, versions[package], bool(below) or len(parts) == 1)
        if metadata:
            _metadata.add(package, versions[package], {name})


def _is_there(name: str) -> bool:
    module = sys.modules.get(name)
    if module is not None:
        return not getattr(module, "_is_fa3", False)
    return importlib.util.find_spec(name) is not None


def _put(path: str, source: str | None, version: str, is_leaf: bool) -> None:
    """A module of that path with the functions of ours; below another it is its attribute, too."""
    is_package = not is_leaf or source is None
    module = types.ModuleType(path)
    module.__spec__ = importlib.machinery.ModuleSpec(path, None, is_package=is_package)
    if is_package:
        module.__path__ = []
    module.__version__ = version
    module._is_fa3 = True
    if source is not None:
        ours = importlib.import_module(f".{source}", __name__)
        module.__doc__ = ours.__doc__
        module.__all__ = list(ours.__all__)
        for name in ours.__all__:
            setattr(module, name, getattr(ours, name))
        if is_leaf:
            for function in getattr(ours, "PRIVATE", ()):
                setattr(module, function.__name__, function)
    sys.modules[path] = module
    parent, _, child = path.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
