// SPDX-License-Identifier: BSD-3-Clause
// mask_sm90.cpp — strides of attn_mask, of its bits, tiles and image.
#include "backend/launch/mask_sm90.h"

#include "core/dtype.h"
#include "core/tensor_map.h"
#include "device/sm90/mask/args.h"
#include "plan/sm90/slices.h"

namespace fa3::sm90 {

std::optional<TensorMapSpec> map_of_mask(void* values, const Problem& p, const TileLayout& tile) {
  const Layout& mask = p.layout[kAttnMask];
  if (mask.row <= 0 || mask.head < 0 || mask.batch < 0 || mask.column != 1) return std::nullopt;
  TensorMapSpec spec;
  spec.name = tensor_name(kAttnMask);
  spec.base = values;
  spec.type = mask.dtype == FA3_F32   ? TmaType::kF32
              : mask.dtype == FA3_F16 ? TmaType::kF16
                                      : TmaType::kBf16;
  spec.swizzle = tile.swizzle();
  spec.rank = 4;
  spec.dim[0] = static_cast<u64>(p.kv.max_seqlen);
  spec.box[0] = static_cast<u32>(tile.panel_columns());
  spec.box[1] = static_cast<u32>(tile.rows);
  spec.box[2] = spec.box[3] = 1;
  const auto dimension = [&](int i, int64_t extent, int64_t stride) {
    const bool same = stride == 0;  // any other stride, which is never used
    spec.dim[i] = same ? 1 : static_cast<u64>(extent);
    spec.stride_bytes[i] = same ? 16 : static_cast<u64>(stride * tile.element_bytes);
  };
  dimension(1, p.q.rows, mask.row);
  dimension(2, p.heads_q, mask.head);
  dimension(3, p.batch, mask.batch);
  // The usual reason first: the message of a check is memory, of which a run takes none.
  for (int i = 1; i < spec.rank; ++i)
    if (spec.stride_bytes[i] % 16 != 0) return std::nullopt;
  if (reinterpret_cast<uintptr_t>(values) % 16 != 0 || !check_tensor_map(spec).ok())
    return std::nullopt;
  return spec;
}

MaskTensorArgs mask_of(const StepRun& run, const MaskShape& shape) {
  const Problem& p = run.problem;
  const Layout& mask = p.layout[kAttnMask];
  MaskTensorArgs args{};
  args.values = run.buffers.data[kAttnMask];
  args.batch = mask.batch, args.head = mask.head, args.row = mask.row;
  args.bits = run.slice<const u32>(kMaskBitsSlice);
  args.tiles = run.slice<const MaskTiles>(kMaskTilesSlice);
  const auto stride = [](bool same, int64_t of) { return same ? 0 : of; };
  args.bits_row = stride(shape.same_rows, shape.words);
  args.bits_head = stride(shape.same_heads, shape.rows * shape.words);
  args.bits_batch = stride(shape.same_batch, shape.heads * shape.rows * shape.words);
  args.tiles_q = stride(shape.same_rows, shape.groups);
  args.tiles_head = stride(shape.same_heads, shape.q_tiles * shape.groups);
  args.tiles_batch = stride(shape.same_batch, shape.heads * shape.q_tiles * shape.groups);
  args.step = shape.same_keys ? 0 : 1;
  args.keys = static_cast<i32>(p.kv.max_seqlen);
  const int64_t odd = mask.batch | mask.head | mask.row | p.kv.max_seqlen;
  const auto pair_bytes = static_cast<uintptr_t>(2 * dtype_bytes(mask.dtype));
  args.pairs = !shape.same_keys && odd % 2 == 0 &&
               reinterpret_cast<uintptr_t>(args.values) % pair_bytes == 0;
  args.cap = p.softcap > 0 ? static_cast<float>(p.softcap) : 1;
  return args;
}

MaskImageView image_of(const MaskImageShape& shape, const std::byte* at, int64_t first) {
  const auto stride = [](bool same, int64_t of) { return same ? 0 : of; };
  MaskImageView view{};
  view.data = at;
  view.shown = reinterpret_cast<const MaskImageShown*>(at + shape.shown_at());
  view.kv_block = static_cast<i32>(stride(shape.same_keys, 1));
  view.q_block = stride(shape.same_rows, shape.kv_blocks);
  view.head = stride(shape.same_heads, shape.q_blocks * shape.kv_blocks);
  view.batch = stride(shape.same_batch, shape.heads * shape.q_blocks * shape.kv_blocks);
  const int64_t blocks = first * view.batch;
  view.data = at + blocks * kMaskImageRows * kMaskImageRows * shape.element_bytes;
  view.shown += blocks;
  return view;
}

Status launch(const MaskImagePlan& plan, const StepRun& run) {
  const MaskImageShape& shape = plan.shape;
  if (shape.blocks() == 0) return {};
  const Problem& p = run.problem;
  std::byte* const image = run.slice<std::byte>(kMaskImageSlice);
  const Layout& mask = p.layout[kAttnMask];
  MaskImageArgs args{};
  args.mask.values = run.buffers.data[kAttnMask];
  args.mask.batch = mask.batch, args.mask.head = mask.head, args.mask.row = mask.row;
  args.mask.step = shape.same_keys ? 0 : 1;
  args.image = image;
  args.shown = reinterpret_cast<MaskImageShown*>(image + shape.shown_at());
  args.heads = static_cast<i32>(shape.heads);
  args.rows = static_cast<i32>(shape.same_rows ? kMaskImageRows : p.q.rows);
  args.keys = static_cast<i32>(shape.same_keys ? kMaskImageRows : p.kv.max_seqlen);
  args.q_blocks = static_cast<i32>(shape.q_blocks);
  args.kv_blocks = static_cast<i32>(shape.kv_blocks);
  return run.launch(args);
}

Status launch(const MaskBitsPlan& plan, const StepRun& run) {
  const MaskShape& shape = plan.shape;
  if (shape.grid() == 0) return {};
  MaskBitsArgs args{};
  args.mask = mask_of(run, shape);
  args.heads = static_cast<i32>(shape.heads);
  args.rows = static_cast<i32>(shape.rows);
  args.keys = static_cast<i32>(shape.keys);
  args.q_tiles = static_cast<i32>(shape.q_tiles);
  args.groups = static_cast<i32>(shape.groups);
  return run.launch(args);
}

}  // namespace fa3::sm90
