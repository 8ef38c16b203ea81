// SPDX-License-Identifier: BSD-3-Clause
// quantize_sm90.cpp — arguments of the quantising kernels.
#include "backend/launch/quantize_sm90.h"

#include <cmath>

#include "backend/launch/tensor_maps_sm90.h"
#include "core/signs.h"
#include "device/sm90/quantize/args.h"

namespace fa3::sm90 {
namespace {

template <class T>
Strided<T> strided(const Problem& p, const Buffers& buffers, TensorId id) {
  const Layout& layout = p.layout[id];
  return {static_cast<T*>(buffers.data[id]), layout.batch, layout.row, layout.head};
}

void set_signs(const Problem& p, QuantizeArgs& args) {
  args.unit = 1;
  if (p.rotation.hadamard <= 1) return;
  args.unit = 1 / std::sqrt(static_cast<float>(p.rotation.hadamard));
  for (int64_t c = 0; c < p.head_dim_qk; ++c) {
    const u32 bit = sign_of_column(p, c) < 0 ? 0x8000u : 0u;
    args.sign[c / 8][static_cast<int>(c % 8 / 2)] |= bit << (c % 2 == 0 ? 0 : 16);
  }
}

// {columns of a panel, row, panel, head, batch entry}: all panels of a tile in one box.
TensorMapSpec with_panels(TensorMapSpec spec, const TileLayout& tile) {
  for (int i = spec.rank++; i > 2; --i) {
    spec.dim[i] = spec.dim[i - 1];
    spec.stride_bytes[i] = spec.stride_bytes[i - 1];
  }
  spec.dim[0] = spec.box[0];
  spec.dim[2] = spec.box[2] = static_cast<u32>(tile.panels());
  spec.stride_bytes[2] = static_cast<u64>(tile.panel_width());
  return spec;
}

Status check_address(const Buffers& buffers, TensorId id, uintptr_t access) {
  const uintptr_t past = reinterpret_cast<uintptr_t>(buffers.data[id]) % access;
  if (past == 0) return {};
  return unsupported(
      "quantize: {}.data={} on sm90 is {} bytes past a multiple of {}, need none; copy the tensor "
      "to such an address, or use backend cpu",
      tensor_name(id), buffers.data[id], past, access);
}

}  // namespace

Status check_addresses(const QuantizePlan&, const Problem&, const Buffers& buffers) {
  FA3_RETURN_IF_ERROR(check_address(buffers, kX, 16));
  FA3_RETURN_IF_ERROR(check_address(buffers, kCodes, 8));
  FA3_RETURN_IF_ERROR(check_address(buffers, kRotaryCos, 16));
  return check_address(buffers, kRotarySin, 16);
}

Status launch(const QuantizePlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const ScaleBlock& block = p.block_of(kCodes);
  QuantizeArgs args{};
  args.x = strided<const void>(p, buffers, kX);
  args.codes = strided<u8>(p, buffers, kCodes);
  args.scale = strided<float>(p, buffers, kScale);
  args.offset = strided<float>(p, buffers, kOffset);
  args.axis = lengths_of(p, kX, buffers);
  // A tensor without elements may have a scale all the same.
  const bool empty = p.heads_q == 0 || (p.batch == 0 && !p.q.varlen);
  if (empty) args.axis.rows = 0;
  args.batch = empty ? 0 : static_cast<i32>(p.batch);
  args.heads = static_cast<i32>(p.heads_q);
  args.most_rows = static_cast<i32>(p.q.max_seqlen);
  args.cosine = strided<const void>(p, buffers, kRotaryCos);
  args.sine = strided<const void>(p, buffers, kRotarySin);
  args.position = buffers.in<i32>(kRotaryPosition);
  args.positions = static_cast<i32>(p.rotation.positions);
  args.block_rows = static_cast<i32>(std::min<int64_t>(block.rows, int64_t{1} << 30));
  args.blocks = block.rows == 0 ? 1 : static_cast<i32>(div_up(p.q.max_seqlen, block.rows));
  args.by_total_row = block.by_total_row;
  args.of_tensor = block.of_tensor;
  args.maxima = run.slice<u32>(kMaximaSlice);
  args.to_i8 = plan.config.to_i8;
  args.sums = run.slice<ColumnSums>(kSumsSlice);
  args.summed = run.slice<u32>(kCountsSlice);
  args.maxima_of_means = plan.maxima_of_means;
  args.chunks = static_cast<i32>(quantize_chunks(p));
  set_signs(p, args);
  args.rotated = plan.rotated;
  const auto widely = [](uintptr_t bytes) { return bytes % 16 == 0; };
  args.wide_codes = widely(reinterpret_cast<uintptr_t>(args.codes.data)) &&
                    widely(static_cast<uintptr_t>(args.codes.batch)) &&
                    widely(static_cast<uintptr_t>(args.codes.row)) &&
                    widely(static_cast<uintptr_t>(args.codes.head));
  const TurnConfig& turn = plan.config.turn;
  const bool rotated = plan.pass == QuantizePass::kRotated;
  if (rotated && plan.counts_bytes > 0) args.taken = args.summed;
  const bool by_gemm = is_of_codes(plan.pass) ? turn.by_gemm() : turn.sums_by_gemm();
  if ((by_gemm || rotated) && args.axis.rows > 0) {
    const int warpgroups = plan.pass == QuantizePass::kCodes ? plan.config.warpgroups() : 1;
    const TileLayout tile = rotated ? rotated_config(plan).x_tile() : turn.x_tile(warpgroups);
    TensorMapSpec spec = spec_of_rows(buffers.data[kX], p, kX, tile);
    if (rotated && rotated_config(plan).one_box()) spec = with_panels(spec, tile);
    FA3_TRY(args.x_map, run.runtime.encode(spec));
  }
  return run.launch(args);
}

}  // namespace fa3::sm90
