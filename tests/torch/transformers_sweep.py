#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""transformers_sweep.py [--write] [MODEL_TYPE…]: model types of transformers, by default all that
can be built small from their configurations, on fa3 against eager attention.

Outputs, gradients, rows of padding, a token that changes early and one late, generation with
dynamic and static caches; without padding, padded left, right and in between. A model's verdict is
right, or refused with fa3's sentence; all else fails. --write: docs/guide/transformers.md.
Each model has a process of its own, 45 seconds and 8 GB. Begun by scripts/transformers_sweep.
"""

import argparse
import importlib
import json
import os
import pathlib
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torch
import transformers
from sweep import checks, feed
from sweep.shrink import WAYS, shrink
from sweep.table import CHECKS, MARKS, write
from transformers.models.auto import modeling_auto

SECONDS, BYTES = 45, 8 << 30
_KINDS = (
    "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ",
    "MULTIMODAL_LM",
)  # fmt: skip


def model_types() -> list[str]:
    return sorted(transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES)


def kinds(model_type: str) -> list[type]:
    """The classes that are tried: those that write text, or else the model alone."""
    names: list[str] = []
    for task in _KINDS:
        found = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").get(model_type)
        names += [found] if isinstance(found, str) else list(found or ())
    if not names:
        found = modeling_auto.MODEL_MAPPING_NAMES.get(model_type)
        names = [found] if isinstance(found, str) else list(found or ())[:1]
    made = [getattr(transformers, name, None) for name in dict.fromkeys(names)]
    made = [kind for kind in made if isinstance(kind, type) and _is_model(kind)]
    return made[:3] or parts(model_type)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)


def parts(model_type: str) -> list[type]:
    """The class of a part of a model, which no table lists: the one of its configuration that has
    the shortest name."""
    config = transformers.models.auto.configuration_auto.CONFIG_MAPPING[model_type]
    module = importlib.import_module(config.__module__.replace("configuration_", "modeling_"))
    found = [
        kind
        for kind in vars(module).values()
        if _is_model(kind) and kind.config_class is config and "forward" in vars(kind)
    ]
    return sorted(found, key=lambda kind: len(kind.__name__))[:1]


def configurations(model_type: str, kind: type) -> list[Any]:
    """In the order in which they are tried."""
    config = transformers.models.auto.configuration_auto.CONFIG_MAPPING[model_type]
    made, problems = [], []
    for way in WAYS:
        try:
            small = shrink(config, way)
        except Exception as error:
            problems.append(error)
            continue
        small = _part_of(small, kind)
        if "CausalLM" in kind.__name__ or "LMHead" in kind.__name__:
            if hasattr(small, "is_decoder"):
                small.is_decoder = True
        made.append(small)
    if not made:
        raise problems[0]
    return made


def _part_of(config: Any, kind: type) -> Any:
    """The part of a configuration that a class takes, where it does not take the whole."""
    if isinstance(config, kind.config_class):
        return config
    parts = [part for part in vars(config).values() if isinstance(part, kind.config_class)]
    return parts[0] if parts else config


def parameters(kind: type, config: Any) -> int:
    with torch.device("meta"):
        model = kind._from_config(config, attn_implementation="eager")
    return sum(p.numel() for p in model.parameters())


def build(model_type: str, kind: type) -> checks.Pair:
    problem: Exception | None = None
    for config in configurations(model_type, kind):
        try:
            count = parameters(kind, config)
            if count > 40e6:
                raise LookupError(f"{count / 1e6:.0f} million parameters")
            return checks.Pair(kind, config)
        except (checks.Refused, checks.Wrong):
            raise
        except Exception as error:
            problem = problem or error
    assert problem is not None
    raise problem


def examine(model_type: str, kind: type) -> dict[str, Any]:
    """The row of a model: {"model", "verdict", "reason", columns…}."""
    row: dict[str, Any] = {"type": model_type, "model": kind.__name__}
    try:
        pair = build(model_type, kind)
    except checks.Refused as sentence:
        return {**row, "verdict": "refused", "reason": str(sentence)}
    except checks.Wrong as wrong:
        return {**row, "verdict": "wrong", "reason": str(wrong)}
    except Exception as error:
        return {**row, "verdict": "not built", "reason": f"{type(error).__name__}: {error}"}
    checks.calls = 0
    refused = wrong = None
    parts: dict[str, Any] = {
        name: lambda n=name, p=padding: pair.outputs(p, n)
        for name, padding in feed.paddings().items()
    }
    parts["late token"] = lambda: pair.probe(-2, "a token near the end")
    parts["early token"] = lambda: pair.probe(1, "a token near the begin")
    for cache in ("dynamic", "static"):
        parts[f"{cache} cache"] = lambda c=cache: pair.generate(c)
    for name, check in parts.items():
        try:
            row[name] = {True: "right", None: "–"}[check()]
        except checks.Refused as sentence:
            row[name], refused = "refused", refused or str(sentence)
        except checks.Wrong as error:
            row[name], wrong = "wrong", wrong or f"{name}: {error}"
    row["calls"] = checks.calls
    if wrong or refused:
        return {**row, "verdict": "wrong" if wrong else "refused", "reason": wrong or refused}
    if "right" not in row.values():
        return {**row, "verdict": "not built", "reason": "nothing that eager computes twice alike"}
    return {**row, "verdict": "right", "reason": ""}


def alone(model_type: str, kind: type) -> dict[str, Any]:
    """examine in a process of its own: what hangs or is killed is an answer, too."""
    back, out = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(back)
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        try:
            row = examine(model_type, kind)
        except BaseException as error:
            row = {"type": model_type, "model": kind.__name__, "verdict": "wrong",
                   "reason": f"the sweep: {type(error).__name__}: {error}"}  # fmt: skip
        with os.fdopen(out, "w") as pipe:
            json.dump(row, pipe)
        os._exit(0)
    os.close(out)
    with os.fdopen(back) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if text:
        return json.loads(text)
    reason = f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended"
    return {"type": model_type, "model": kind.__name__, "verdict": "not built", "reason": reason}


def sweep(types: list[str]) -> list[dict[str, Any]]:
    rows = []
    for model_type in types:
        begin = time.monotonic()
        try:
            found = kinds(model_type)
        except Exception as error:
            found = []
            reason = f"{type(error).__name__}: {error}"
        else:
            reason = "no class of a model by itself"
        done = [alone(model_type, kind) for kind in found] or [
            {"type": model_type, "model": "", "verdict": "not built", "reason": reason}
        ]
        for row in done:
            cells = " ".join(MARKS[row.get(c, "")][:1] or " " for c in CHECKS)
            reason = row["reason"].replace("\n", " ")[:150]
            print(f"{time.monotonic() - begin:5.1f} s  {model_type:28} {row['model']:44} "
                  f"{row['verdict']:9} {cells} {row.get('calls', 0):4} {reason}",
                  flush=True)  # fmt: skip
        rows += done
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("types", nargs="*", metavar="MODEL_TYPE")
    parser.add_argument("--write", action="store_true", help="docs/guide/transformers.md")
    parser.add_argument("--json", type=pathlib.Path, help="rows as JSON, one a line")
    arguments = parser.parse_args()
    prepare()
    rows = sweep(arguments.types or model_types())
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if arguments.write:
        write(rows)
    wrong = [row for row in rows if row["verdict"] == "wrong"]
    print(dict(Counter(row["verdict"] for row in rows)))
    return 1 if wrong else 0


def prepare() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    checks.register()


if __name__ == "__main__":
    sys.exit(main())
