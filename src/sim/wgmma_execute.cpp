// SPDX-License-Identifier: BSD-3-Clause
// wgmma_execute.cpp — what a wgmma computes: operands by their descriptors, products in FP32 (S32).
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/dtype.h"
#include "device/hopper/swizzle.h"
#include "device/warp/fragment.h"
#include "sim/numbers.h"
#include "sim/tensor_core.h"
#include "sim/wgmma.h"

namespace fa3::sim {
namespace {

// The fields of a shared-memory matrix descriptor.
struct Descriptor {
  u32 start, leading, stride;  // bytes
  u32 swizzle;                 // 128, 64, 32 or 0

  explicit Descriptor(u64 bits)
      : start(static_cast<u32>(bits & 0x3FFF) << 4),
        leading(static_cast<u32>(bits >> 16 & 0x3FFF) << 4),
        stride(static_cast<u32>(bits >> 32 & 0x3FFF) << 4) {
    constexpr u32 kSwizzles[] = {0, 128, 64, 32};
    swizzle = kSwizzles[bits >> 62];
  }
  u32 swizzled(u32 address) const { return fa3::swizzled(address, Swizzle(swizzle)); }
  // The 16 bytes that hold row mn, bytes 16·half… of a K-major operand.
  u32 k_major(u32 mn, u32 half) const {
    return swizzle != 0 ? swizzled(start + mn / 8 * stride + mn % 8 * swizzle + 16 * half)
                        : start + mn / 8 * stride + mn % 8 * 16 + half * leading;
  }
  // From the start to the end of the last row of 16 to 128 bytes that `mn` rows take.
  u32 k_major_bytes(u32 mn) const {
    return (mn - 1) / 8 * stride + (swizzle != 0 ? 8 * swizzle - start % swizzle : 128 + leading);
  }
  u32 mn_major_bytes(u32 mn) const {
    if (swizzle == 0) return (mn - 1) / 8 * stride + leading + 128;
    return (mn - 1) / (swizzle / 2) * leading + stride + 8 * swizzle - start % swizzle;
  }
  // A part of a panel of an MN-major operand, which does not end in the next one.
  bool leaves_panel(u32 mn) const {
    return swizzle != 0 && start % swizzle != 0 && start % swizzle + 2 * mn > swizzle;
  }
  // The 16 bytes that hold 8 rows from mn (a multiple of 8) at k of an MN-major operand of 16 bits.
  u32 mn_major(u32 mn, u32 k) const {
    if (swizzle == 0) return start + mn / 8 * stride + k / 8 * leading + k % 8 * 16;
    const u32 elements = swizzle / 2;
    return swizzled(start + mn / elements * leading + mn % elements * 2 + k / 8 * stride +
                    k % 8 * swizzle);
  }
};

// One operand of one wgmma being read.
class Reader {
 public:
  Reader(const Warpgroup& group, const WgmmaOp& op, u64 number, const char* name, u64 descriptor)
      : cta_(*group.cta), op_(op), name_(name), bits_(descriptor), descriptor_(descriptor) {
    by_.epoch = {group.agent, static_cast<Tick>(number + 1)};
    by_.site = intern("wgmma", op.where);
    by_.async = true;
    if ((descriptor & ~0xC0003FFF3FFF3FFFull) != 0)
      refuse("has bits set that must be zero (a base offset, or reserved ones)",
             "a descriptor whose pattern starts at its natural boundary");
    if (descriptor_.swizzle != 0 &&
        descriptor_.start % (8 * descriptor_.swizzle) >= descriptor_.swizzle)
      refuse(fmt::format("starts {} bytes into a swizzle pattern of {}",
                         descriptor_.start % (8 * descriptor_.swizzle), 8 * descriptor_.swizzle),
             fmt::format("operands aligned to {} bytes", 8 * descriptor_.swizzle));
    cta_.shadow.fresh_view();
  }

  const Descriptor& descriptor() const { return descriptor_; }

  // `mn` rows of the operand must lie in one member; elements of an array are one member here.
  void check_extent(u32 mn, bool transposed) {
    const u32 first = descriptor_.start - kSmemWindow;
    if (transposed && descriptor_.leaves_panel(mn))
      refuse(fmt::format("begins {} bytes into a panel of {} and has {}",
                         descriptor_.start % descriptor_.swizzle, descriptor_.swizzle, 2 * mn),
             "whole panels, or a part of one");
    const u32 end =
        first + (transposed ? descriptor_.mn_major_bytes(mn) : descriptor_.k_major_bytes(mn));
    const Member* begins = cta_.member(first);
    const Member* ends = cta_.member(end - 1);
    if (begins == ends || begins == nullptr) return;
    const auto array = [](const Member& member) {
      return std::string_view(member.name).substr(0, member.name.find('['));
    };
    if (ends != nullptr && array(*begins) == array(*ends)) return;
    refuse(fmt::format("begins in {} and ends in {}, {} bytes further", cta_.name(first),
                       cta_.name(end - 1), end - first),
           "a tile that holds all rows and columns of the operand; LBO and SBO as the layout says");
  }

  // 16 bytes at a window address, read for the warps that `view` is the clock of.
  const u8* granule(u32 address, const Tick* view) {
    const u32 offset = address - kSmemWindow;
    if (address < kSmemWindow || offset + 16 > cta_.smem_bytes)
      refuse(fmt::format("reaches offset {} of {} bytes of shared memory",
                         i64{address} - kSmemWindow, cta_.smem_bytes),
             "offsets of the operand's own tile");
    by_.view = view;
    const Tick* const warps = op_.known->data();
    by_.warps = view == warps + 4 * size_t{cta_.cluster.width} ? warps : nullptr;
    cta_.shadow.read(by_, offset, 16);
    const u8 format = cta_.shadow.format(offset);
    if (format != 0 && format - 1u != descriptor_.swizzle) {
      fail(cta_, Rule::kDescriptor, cta_.name(offset),
           fmt::format("operand {} of a wgmma reads {} with a {}-byte swizzle; the copy wrote it "
                       "with a {}-byte swizzle",
                       name_, cta_.name(offset), descriptor_.swizzle, format - 1),
           "the same swizzle in tensor map and descriptor",
           {{"wgmma", cta_.cluster.agent_name(by_.epoch.agent), text(op_.where)}});
    }
    return reinterpret_cast<const u8*>(cta_.smem.get()) + offset;
  }

  [[noreturn]] void refuse(const std::string& what, std::string missing) {
    fail(cta_, Rule::kDescriptor, "",
         fmt::format("operand {} of a wgmma {}; its descriptor is {:#018x} (start {}, LBO {}, SBO "
                     "{}, swizzle {})",
                     name_, what, bits_, descriptor_.start, descriptor_.leading, descriptor_.stride,
                     descriptor_.swizzle),
         std::move(missing),
         {{"wgmma", cta_.cluster.agent_name(by_.epoch.agent), text(op_.where)}});
  }

 private:
  Cta& cta_;
  const WgmmaOp& op_;
  const char* name_;
  u64 bits_;
  Descriptor descriptor_;
  Accessor by_{};
};

const std::array<float, 256>& fp8_table(MmaType type) {
  const auto make = [](float (*decode)(u8)) {
    std::array<float, 256> out;
    for (u32 i = 0; i < 256; i++) out[i] = decode(static_cast<u8>(i));
    return out;
  };
  static const auto e4m3 = make(e4m3_to_f32);
  static const auto e5m2 = make(e5m2_to_f32);
  return type == MmaType::kE4m3 ? e4m3 : e5m2;
}

// `count` elements at `from`, every `step`-th of `to`.
template <class T>
void decode(MmaType type, const u8* from, u32 count, T* to, u32 step) {
  const auto bits16 = [&](u32 i) {
    u16 bits;
    std::memcpy(&bits, from + 2 * i, 2);
    return bits;
  };
  switch (type) {
    case MmaType::kBf16:
      for (u32 i = 0; i < count; i++) to[i * step] = static_cast<T>(to_float(Bf16{bits16(i)}));
      return;
    case MmaType::kF16:
      for (u32 i = 0; i < count; i++) to[i * step] = static_cast<T>(to_float(F16{bits16(i)}));
      return;
    case MmaType::kE4m3:
    case MmaType::kE5m2: {
      const auto& table = fp8_table(type);
      for (u32 i = 0; i < count; i++) to[i * step] = static_cast<T>(table[from[i]]);
      return;
    }
    case MmaType::kS8:
      for (u32 i = 0; i < count; i++)
        to[i * step] = static_cast<T>(static_cast<signed char>(from[i]));
      return;
    case MmaType::kU8:
      for (u32 i = 0; i < count; i++) to[i * step] = static_cast<T>(from[i]);
      return;
    case MmaType::kTf32:  // the low 13 bits of an FP32 do not count
      for (u32 i = 0; i < count; i++) {
        u32 bits;
        std::memcpy(&bits, from + 4 * i, 4);
        to[i * step] = static_cast<T>(std::bit_cast<float>(bits & 0xFFFFE000u));
      }
      return;
  }
}

// Column n of B lies where the accumulators of a lane follow each other: q·N/4 + 2·(n/8) + n%2.
u32 column_slot(u32 n, u32 columns) { return n % 8 / 2 * (columns / 4) + n / 8 * 2 + n % 2; }

template <class T>
struct Operands {
  alignas(64) T a[kWarpgroup / 2][32];
  alignas(64) T b[32 * 256];
};

template <class T>
void read_a(Reader& reader, const WgmmaOp& op, u32 width, Operands<T>& to) {
  const auto& instruction = *op.instruction;
  const u32 size = static_cast<u32>(instruction.element_bytes());
  const u32 per_granule = 16 / size;
  reader.check_extent(64, instruction.a_transposed);
  for (u32 row = 0; row < 64; row += instruction.a_transposed ? 8 : 1) {
    const Tick* view = op.known->data() + size_t{row / 16} * width;
    if (instruction.a_transposed) {
      for (u32 k = 0; k < 16; k++)
        decode(instruction.a, reader.granule(reader.descriptor().mn_major(row, k), view), 8,
               &to.a[row][k], 32);
    } else {
      for (u32 half = 0; half < 2; half++)
        decode(instruction.a, reader.granule(reader.descriptor().k_major(row, half), view),
               per_granule, &to.a[row][half * per_granule], 1);
    }
  }
}

// A from registers: 4 bytes along K in each.
template <class T>
void read_a_registers(const WgmmaOp& op, Operands<T>& to) {
  const auto& instruction = *op.instruction;
  const u32 size = static_cast<u32>(instruction.element_bytes());
  for (u32 t = 0; t < kWarpgroup; t++)
    for (u32 r = 0; r < 4; r++) {
      const Place place = a8_place(t, r, 0);  // in bytes along K, whatever the type
      decode(instruction.a, reinterpret_cast<const u8*>(&op.a[t][r]), 4 / size,
             &to.a[place.row][place.column / size], 1);
    }
}

template <class T>
void read_b(Reader& reader, const WgmmaOp& op, u32 width, Operands<T>& to) {
  const auto& instruction = *op.instruction;
  const u32 columns = static_cast<u32>(instruction.n);
  const u32 per_granule = 16 / static_cast<u32>(instruction.element_bytes());
  const Tick* view = op.known->data() + size_t{4} * width;
  T line[16] = {};
  reader.check_extent(columns, instruction.b_transposed);
  for (u32 n = 0; n < columns; n += instruction.b_transposed ? 8 : 1) {
    if (instruction.b_transposed) {
      for (u32 k = 0; k < 16; k++) {
        decode(instruction.b, reader.granule(reader.descriptor().mn_major(n, k), view), 8, line, 1);
        for (u32 i = 0; i < 8; i++) to.b[k * columns + column_slot(n + i, columns)] = line[i];
      }
    } else {
      const u32 slot = column_slot(n, columns);
      for (u32 half = 0; half < 2; half++)
        decode(instruction.b, reader.granule(reader.descriptor().k_major(n, half), view),
               per_granule, &to.b[half * per_granule * columns + slot], columns);
    }
  }
}

template <class T>
void run(Warpgroup& group, const WgmmaOp& op, u64 number) {
  // Too large for a fiber's stack, and only one wgmma executes at a time on an OS thread.
  thread_local Operands<T> operands;
  const u32 width = group.cta->cluster.width;
  const u32 columns = static_cast<u32>(op.instruction->n);
  if (op.instruction->a_in_registers) {
    read_a_registers(op, operands);
  } else {
    Reader a(group, op, number, "A", op.a_desc);
    read_a(a, op, width, operands);
  }
  Reader b(group, op, number, "B", op.b_desc);
  read_b(b, op, width, operands);

  // Lane t holds, of its two rows, the quarter of the columns that column_slot() puts together.
  const u32 quarter = columns / 4;
  const u32 k = static_cast<u32>(op.instruction->k());
  // FP8 sums lose bits that matter; the others differ from FP32's in the last place.
  const bool modelled =
      is_fp8(op.instruction->a) || group.cta->cluster.worker->grid.device.options.exact_sums;
  for (u32 q = 0; q < 4; q++) {
    T* rows[64];
    for (u32 row = 0; row < 64; row++) {
      const u32 t = row / 16 * 32 + row % 8 * 4 + q;
      rows[row] = static_cast<T*>(op.d[t]) + (row / 8 % 2) * quarter;
      if (!op.accumulate) std::fill_n(rows[row], quarter, T{});
    }
    alignas(64) T part[32 * 64];
    for (u32 i = 0; i < k; i++)
      std::copy_n(&operands.b[i * columns + q * quarter], quarter, &part[i * quarter]);
    if constexpr (!std::is_same_v<T, float>)
      simd().multiply_add_int(rows, &operands.a[0][0], part, 64, quarter, k);
    else if (modelled)
      add_step(rows, &operands.a[0][0], part, 64, quarter, k, sum_bits(op.instruction->a));
    else
      simd().multiply_add(rows, &operands.a[0][0], part, 64, quarter, k);
  }
}

}  // namespace

void execute(Warpgroup& group, const WgmmaOp& op, u64 number) {
  if (op.instruction->d == AccType::kS32)
    run<i32>(group, op, number);
  else
    run<float>(group, op, number);
  Worker& worker = *group.cta->cluster.worker;
  if (Trace* trace = worker.grid.device.options.trace) {
    const Cta& cta = *group.cta;
    const Member* b = cta.member(Descriptor(op.b_desc).start - kSmemWindow);
    trace->add({fmt::format("wgmma {}", b != nullptr ? b->name : "?"), op.started, worker.step,
                cta.number(), Trace::kWgmmaRow + group.index, text(op.where)});
  }
}

}  // namespace fa3::sim
