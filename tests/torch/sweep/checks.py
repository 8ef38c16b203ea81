# SPDX-License-Identifier: BSD-3-Clause
"""checks.py — one small model of transformers on fa3 against its eager attention."""

import contextlib
import copy
import inspect
from typing import Any

import fa3.huggingface
import torch
from transformers import AttentionInterface

from . import feed

BOUND = 1e-4  # of the largest number of an output, in FP32 over two layers
SEEN = 1e-5  # what counts as a change, of the same
calls = 0


class Wrong(Exception):
    """What eager computes and fa3 does not, neither equal nor refused."""


class Refused(Exception):
    """A sentence of fa3's."""


def _counted(*arguments: Any, **options: Any) -> Any:
    global calls
    calls += 1
    return fa3.huggingface.attend(*arguments, **options)


def register() -> None:
    fa3.huggingface.register()
    AttentionInterface.register("fa3", _counted)


def build(kind: type, config: Any, name: str, like: Any = None) -> Any:
    """A model in eval(), weights so large that attention is uneven, or those of `like`."""
    torch.manual_seed(0)
    model = kind._from_config(copy.deepcopy(config), attn_implementation=name).float().eval()
    if like is not None:
        model.load_state_dict(like.state_dict())
        for (_, a), (_, b) in zip(model.named_buffers(), like.named_buffers(), strict=True):
            a.copy_(b)
        return model
    for p in model.parameters():
        with torch.no_grad():
            if not bool(torch.isfinite(p).all()):  # left as the allocator gave it
                p.zero_()
            if p.dim() > 1 and p.numel():
                p.normal_(std=min(0.12, p[0].numel() ** -0.5))
    return model


def ours(run: Any) -> Any:
    """fa3's result; its sentences are Refused, all else is Wrong."""
    try:
        return run()
    except NotImplementedError as error:
        if "fa3" in str(error):
            raise Refused(str(error)) from None
        raise Wrong(f"{type(error).__name__}: {error}") from error
    except Exception as error:
        raise Wrong(f"{type(error).__name__}: {error}") from error


def result(output: Any) -> torch.Tensor:
    """The first floating tensor of an output, logits if there are any."""
    if isinstance(output, torch.Tensor):
        return output
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(output, name, None), torch.Tensor):
            return getattr(output, name)
    values = output.values() if hasattr(output, "values") else output
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1:
            return value
    raise ValueError("no tensor in the output")


def forward(model: Any, given: dict[str, Any]) -> torch.Tensor:
    torch.manual_seed(1)
    given = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    return result(model(**given))


def size(x: torch.Tensor) -> float:
    return max(x.abs().max().item(), 1e-6)


class Pair:
    """eager and fa3 with the same weights, and inputs that eager takes."""

    def __init__(self, kind: type, config: Any) -> None:
        self.kind, self.config = kind, config
        self.eager = build(kind, config, "eager")
        self.given = self._first()
        self.ours = ours(lambda: build(kind, config, "fa3", self.eager))
        self.noise = self._noise()
        if self.bound() > 0.01:
            raise LookupError(f"rounding alone moves its output by {self.noise:.2g} of itself")

    def _first(self) -> dict[str, torch.Tensor]:
        problems = []
        best = None
        for given in feed.feeds(self.eager):
            try:
                with torch.no_grad():
                    out = forward(self.eager, given)
                if not bool(torch.isfinite(out).all()):
                    problems.append("not finite")
                    continue
            except Exception as error:
                problems.append(f"{type(error).__name__}: {str(error)[:80]}")
                continue
            best = given
            break
        if best is None:
            names = ", ".join(inspect.signature(self.eager.forward).parameters)
            raise LookupError(problems[0] if problems else f"no input known: {names}")
        return best

    @torch.no_grad()
    def _noise(self) -> float:
        """How far eager's output moves if its weights do by 1e-7 of themselves: what rounding may
        do, which where experts are chosen is much."""
        before = forward(self.eager, self.given)
        moved = copy.deepcopy(self.eager)
        for p in moved.parameters():
            p.mul_(1 + 1e-7 * torch.randn(p.shape, generator=torch.Generator().manual_seed(5)))
        return (forward(moved, self.given) - before).abs().max().item() / size(before)

    def bound(self) -> float:
        return max(BOUND, 10 * self.noise)

    def compare(self, got: torch.Tensor, want: torch.Tensor, what: str) -> None:
        if got.shape != want.shape:
            raise Wrong(f"{what}: shape {tuple(got.shape)}, need {tuple(want.shape)}")
        if not want.numel():
            return
        error = (got - want).abs().max().item() / size(want)
        if not error <= self.bound():
            raise Wrong(f"{what}: {error:.2g} off, at most {self.bound():.2g}")

    @property
    def is_text(self) -> bool:
        return "input_ids" in self.given and self.given["input_ids"].shape[1] == feed.LENGTH

    # ---- Checks: each returns what was compared, or None where eager does not run it ------------

    def outputs(self, padding: torch.Tensor | None, what: str) -> bool | None:
        given = dict(self.given)
        if padding is not None:
            if not self.is_text or "attention_mask" not in inspect.signature(
                self.eager.forward
            ).parameters:
                return None
            given["attention_mask"] = padding
        try:
            want = self._run(self.eager, given)
        except Exception:
            return None
        got = ours(lambda: self._run(self.ours, given))
        if not bool(torch.isfinite(want).all()):
            return True
        rows = self._rows(given, want)
        try:
            self.compare(got[rows], want[rows], what)
            self._gradients(self.eager, what)
        except Wrong:
            # Rows that see nothing have an effect in this model, and there eager and sdpa disagree.
            sdpa = self._sdpa() if padding is not None else None
            if sdpa is None:
                raise
            self.compare(got[rows], self._run(sdpa, given)[rows], what)
            self._gradients(sdpa, what)
        self._other_rows(given, got, want, rows, what)
        return True

    def _run(self, model: Any, given: dict[str, Any]) -> torch.Tensor:
        model.zero_grad()
        out = forward(model, given)
        if out.requires_grad:  # images' key points have none
            out[self._rows(given, out)].square().mean().backward()
        return out.detach()

    def _sdpa(self) -> Any:
        """The model on sdpa, if it takes that."""
        try:
            return build(self.kind, self.config, "sdpa", self.eager)
        except Exception:
            return None

    def _rows(self, given: dict[str, Any], out: torch.Tensor) -> Any:
        """Of tokens that are no padding, where the output has a row for each token."""
        mask = given.get("attention_mask")
        if mask is None or out.dim() < 3 or "decoder_input_ids" in given:
            return slice(None)
        more = out.shape[1] - mask.shape[1]  # tokens of the model's own, at the end
        if len(out) != len(mask) or not 0 <= more <= 1:
            return slice(None)
        return torch.nn.functional.pad(mask.bool(), (0, more), value=True)

    def _gradients(self, like: Any, what: str) -> None:
        pairs = [
            (name, a.grad, b.grad)
            for (name, a), b in zip(
                self.ours.named_parameters(), like.parameters(), strict=True
            )
            if b.grad is not None and b.grad.numel()
        ]
        if not pairs:
            return
        largest = max(size(b) for _, _, b in pairs)
        for name, a, b in pairs:
            if not bool(torch.isfinite(b).all()):
                continue
            if a is None:
                raise Wrong(f"gradients, {what}: none of {name}")
            error = (a - b).abs().max().item() / max(size(b), 0.01 * largest)
            if not error <= 10 * self.bound():
                raise Wrong(f"gradients, {what}: {name} {error:.2g} off")

    def _other_rows(
        self, given: dict[str, Any], got: torch.Tensor, want: torch.Tensor, rows: Any, what: str
    ) -> None:
        """Rows of padding, where eager and sdpa agree on them."""
        if isinstance(rows, slice):
            return
        sdpa = self._sdpa()
        if sdpa is None:
            return
        with torch.no_grad():
            theirs = forward(sdpa, given)
        off = (theirs - want).abs().flatten(2).amax(2) / size(want)
        agreed = ~rows & (off <= self.bound())
        if agreed.any():
            self.compare(got[agreed], want[agreed], f"{what}, rows of padding")

    @torch.no_grad()
    def probe(self, at: int, what: str) -> bool | None:
        """The rows that change with the token `at` are eager's: none before it under a causal mask,
        none behind it beyond a window."""
        name = "decoder_input_ids" if "decoder_input_ids" in self.given else "input_ids"
        if not self.is_text:
            return None
        changed = {**self.given, name: self.given[name].clone()}
        changed[name][:, at] = (changed[name][:, at] + 7 - 21) % 70 + 21
        moved = []
        for model in (self.eager, self.ours):
            a, b = (ours(lambda g=g, m=model: forward(m, g)) for g in (self.given, changed))
            if a.dim() < 3 or a.shape != b.shape:
                return None
            moved.append((a - b).abs().flatten(2).amax(2) / size(a))
        exact = moved[0] == 0  # eager's rows that do not change at all
        if (moved[1][exact] > SEEN).any():
            raise Wrong(f"{what}: rows change that eager's mask hides it from")
        if (moved[1][moved[0] > max(100 * SEEN, 10 * self.bound())] == 0).any():
            raise Wrong(f"{what}: rows do not change that see it in eager")
        return True

    @torch.no_grad()
    def generate(self, cache: str) -> bool | None:
        if not self.eager.can_generate():
            return None
        mask = feed.paddings()["left"] if self.is_text else None
        if "attention_mask" not in inspect.signature(self.eager.forward).parameters:
            mask = None
        given = {k: v for k, v in self.given.items() if k != "decoder_input_ids"}
        options = {
            "max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "disable_compile": True,
            "output_logits": True, "return_dict_in_generate": True, "cache_implementation": cache,
        }  # fmt: skip
        if cache == "dynamic":
            del options["cache_implementation"]
        if mask is not None:
            options["attention_mask"] = mask
        if self.eager.config.is_encoder_decoder:
            options["decoder_start_token_id"] = 1

        def run(model: Any) -> torch.Tensor:
            torch.manual_seed(1)
            with contextlib.redirect_stdout(None):
                return torch.stack(model.generate(**given, **options).logits, 1)

        try:
            want = run(self.eager)
        except Exception:
            return None
        got = ours(lambda: run(self.ours))
        if not bool(torch.isfinite(want).all()):
            return None
        try:
            self._texts(got, want, cache)
        except Wrong:
            sdpa = self._sdpa() if mask is not None else None
            if sdpa is None:
                raise
            self._texts(got, run(sdpa), cache)
        return True

    def _texts(self, got: torch.Tensor, want: torch.Tensor, cache: str) -> None:
        # A token that rounding decides makes what follows another text.
        top = want.topk(2).values
        close = (((top[..., 0] - top[..., 1]) / size(want)) < 10 * self.bound()).any(0)
        sure = int(close.int().argmax()) + 1 if close.any() else want.shape[1]
        self.compare(got[:, :sure], want[:, :sure], f"generation, {cache} cache")
