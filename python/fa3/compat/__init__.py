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

import importlib.machinery
import importlib.util
import sys
import types

__all__ = ["install"]


def install(*names: str, replace: bool = False) -> None:
    """Lets `import flash_attn_interface` and `import flash_attn` find fa3's functions.

    names: "flash_attn_interface" (FlashAttention-3), "flash_attn" (2); none = both.
    replace: also where the original is installed or imported; else that is refused, for all names,
      with RuntimeError.
    """
    from . import flash_attn, flash_attn_interface

    known = {
        "flash_attn_interface": {"flash_attn_interface": flash_attn_interface},
        "flash_attn": {"flash_attn": flash_attn, "flash_attn.flash_attn_interface": flash_attn},
    }
    chosen = names or tuple(known)
    for name in chosen:
        if name not in known:
            raise ValueError(f'names: "{name}", need "flash_attn_interface" or "flash_attn"')
        if not replace and _is_there(name):
            raise RuntimeError(
                f"install: {name} is installed; uninstall it, or say replace=True to take fa3 in "
                "this process"
            )
    for name in chosen:
        for path, source in known[name].items():
            sys.modules[path] = _module(path, source)
        if name == "flash_attn":
            sys.modules[name].flash_attn_interface = sys.modules["flash_attn.flash_attn_interface"]


def _is_there(name: str) -> bool:
    module = sys.modules.get(name)
    if module is not None:
        return not getattr(module, "_is_fa3", False)
    return importlib.util.find_spec(name) is not None


def _module(path: str, source: types.ModuleType) -> types.ModuleType:
    """A module of that name with the public functions of ours."""
    module = types.ModuleType(path, source.__doc__)
    module.__spec__ = importlib.machinery.ModuleSpec(path, None, is_package=path == "flash_attn")
    if path == "flash_attn":
        module.__path__ = []
    module.__version__ = source.__version__
    module.__all__ = list(source.__all__)
    module._is_fa3 = True
    for name in source.__all__:
        setattr(module, name, getattr(source, name))
    return module
