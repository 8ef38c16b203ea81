# SPDX-License-Identifier: BSD-3-Clause
"""feed.py — inputs of any model of transformers, by the names of what its forward takes."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch

LENGTH, ROWS = 20, 2


def field(config: Any, *names: str, default: Any = None) -> Any:
    """Of a configuration or of its parts, the first that is there."""
    from transformers import PreTrainedConfig

    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    for part in vars(config).values():
        if isinstance(part, PreTrainedConfig):
            value = field(part, *names)
            if value is not None:
                return value
    return default


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(11))


def tokens(length: int = LENGTH, rows: int = ROWS, seed: int = 3) -> torch.Tensor:
    """Of no special meaning: those lie outside."""
    return torch.randint(21, 98, (rows, length), generator=torch.Generator().manual_seed(seed))


def _images(config: Any) -> Iterator[torch.Tensor]:
    vision = getattr(config, "vision_config", config)
    size = field(vision, "image_size", "input_size", default=32)
    wide = tuple(size)[-2:] if isinstance(size, (list, tuple)) else (size, size)
    wide = (wide[0], wide[-1])
    if isinstance(size, dict):
        wide = (size.get("height", 32), size.get("width", 32))
    channels = field(vision, "num_channels", "in_channels", "in_chans", default=3)
    channels = channels if isinstance(channels, int) else 3
    for sides in (wide, (64, 64), (224, 224)):
        yield _random(ROWS, channels, *sides)
    frames = field(vision, "num_frames", default=2)
    yield _random(ROWS, frames, channels, *wide)


def _sounds(config: Any) -> Iterator[torch.Tensor]:
    bins = field(config, "num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel",
                 "input_dim", "feature_size", default=16)  # fmt: skip
    longest = field(config, "max_source_positions", default=64)
    yield _random(ROWS, bins, 2 * longest)
    yield _random(ROWS, 64, bins)
    yield _random(ROWS, 1, 64, bins)


def _waves(config: Any) -> Iterator[torch.Tensor]:
    yield _random(ROWS, 4000)
    yield _random(ROWS, 1, 4000)
    bins = field(config, "num_mel_bins", default=16)
    yield _random(ROWS, field(config, "max_length", default=64), bins)


def _zeros(config: Any, name: str) -> torch.Tensor:
    """Where tokens stand on a page, in a tree."""
    deep = 4 if name == "bbox" else field(config, "max_depth", default=50)
    return torch.zeros(ROWS, LENGTH, deep, dtype=torch.long)


_PLACES = ("bbox", "xpath_tags_seq", "xpath_subs_seq")


def feeds(model: Any) -> Iterator[dict[str, torch.Tensor]]:
    """What to try, most complete last. Those of text have input_ids of ROWS × LENGTH."""
    config = model.config
    names = inspect.signature(model.forward).parameters
    text: dict[str, torch.Tensor] = {}
    if "input_ids" in names:
        text["input_ids"] = tokens()
        if "decoder_input_ids" in names:
            text["decoder_input_ids"] = tokens(9, seed=4)
        text.update({name: _zeros(config, name) for name in _PLACES if name in names})
        yield text
    others = {
        "pixel_values": _images, "image": _images, "input_features": _sounds,
        "input_values": _waves, "audio_values": _waves, "audio_input_ids": _waves,
    }  # fmt: skip
    for name, make in others.items():
        if name not in names:
            continue
        for value in make(config):
            extra = {"decoder_input_ids": text.get("decoder_input_ids", tokens(9, seed=4))}
            extra = extra if "decoder_input_ids" in names else {}
            if "decoder_input_values" in names:
                bins = field(config, "num_mel_bins", default=16)
                extra["decoder_input_values"] = _random(ROWS, 9, bins)
            yield {name: value, **extra}
            if text:
                yield {**text, name: value}
    if "grid_thw" in names or "image_grid_thw" in names:  # patches of images, in one row
        patch = field(config, "patch_size", default=8)
        wide = field(config, "temporal_patch_size", default=1) * patch * patch
        wide *= field(config, "in_channels", "num_channels", "in_chans", default=3)
        grid = {"grid_thw": torch.tensor([[1, 4, 4], [1, 4, 6]])}
        yield {next(iter(names)): _random(40, wide), **grid}
    if "inputs_embeds" in names and "input_ids" not in names:
        wide = field(config, "hidden_size", "d_model", "n_embd", default=64)
        yield {"inputs_embeds": _random(ROWS, LENGTH, wide)}
    if "hidden_states" in names:
        yield {"hidden_states": _random(ROWS, LENGTH, field(config, "hidden_size", default=64))}
    if "query_embeds" in names:
        wide = field(config, "hidden_size", default=64)
        across = field(config, "encoder_hidden_size", default=wide)
        states = {"encoder_hidden_states": _random(ROWS, 9, across)}
        yield {"query_embeds": _random(ROWS, LENGTH, wide), **states}
    if "inputs" in names:  # Perceiver
        yield {"inputs": _random(ROWS, LENGTH, field(config, "d_model", default=64))}


def paddings() -> dict[str, torch.Tensor | None]:
    """Masks of ROWS × LENGTH; in each row something is left."""
    at = torch.arange(LENGTH)
    right = at[None] < torch.tensor([[LENGTH], [13]])
    holes = torch.ones(ROWS, LENGTH, dtype=torch.bool)
    holes[0, 4:6] = holes[1, 9] = holes[1, 15:17] = False
    return {
        "no padding": None, "left": right.flip(1).long(), "right": right.long(),
        "holes": holes.long(),
    }  # fmt: skip
