// SPDX-License-Identifier: BSD-3-Clause
// quantize.cpp — rows of x → codes, scales and offsets.
//
// A task turns a chunk of rows of one head. Where blocks of scales fit into a chunk, it keeps the
// turned rows, finds their largest values and writes their codes at once. Blocks of more rows take
// two passes, the first of which collects the largest values in the scale tensor itself; the mean
// takes one before that. No result depends on how tasks meet: maxima have no order, and a mean is
// one task's.
#include "backend/cpu/quantize.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/cpu/scale_grid.h"
#include "backend/cpu/v_image.h"
#include "core/check_scales.h"
#include "core/dtype.h"
#include "core/signs.h"
#include "plan/cpu/cpu_plan.h"

namespace fa3::cpu {
namespace {

constexpr int64_t kChunkRows = 128;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One rounding to nearest even, by the addition of a number whose last place is the code's: eight
// of the float's mantissa bits lie below those of E4M3, subnormals count units of 2^-9.
uint8_t e4m3_code(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  const float size = std::min(std::bit_cast<float>(magnitude), 448.0f);
  const uint32_t of_size = std::bit_cast<uint32_t>(size);
  const uint32_t normal = (of_size + 0x7ffffu + (of_size >> 20 & 1)) >> 20;
  const uint32_t subnormal = std::bit_cast<uint32_t>(size + 0x1p14f) & 0xfu;
  const uint32_t code = size < 0x1p-6f ? subnormal : normal - ((127 - 7) << 3);
  return static_cast<uint8_t>(magnitude > 0x7f800000u ? 0x7fu : sign | code);
}

// NaN becomes 0: its block's scale says it.
int8_t i8_code(float x) {
  const float clamped = x > -127 ? std::min(x, 127.0f) : -127.0f;
  const float rounded = clamped + 0x1.8p23f;
  return x != x ? int8_t{0} : static_cast<int8_t>(std::bit_cast<uint32_t>(rounded));
}

// The larger of both, NaN above all.
float larger(float a, float b) { return b > a || b != b ? b : a; }

void raise(float& at, float value) {
  std::atomic_ref<float> shared(at);
  float old = shared.load(std::memory_order_relaxed);
  while (larger(old, value) != old && old == old &&
         !shared.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
}

// What a thread needs, and what all share.
struct Scratch {
  float* rows = nullptr;     // [kChunkRows][head_dim]: turned rows
  float* amax = nullptr;     // [head_dim]: of blocks of columns; then the reciprocals of scales
  double* sum = nullptr;     // [head_dim]
  int64_t* count = nullptr;  // [head_dim]

  Scratch(Arena& arena, const Problem& p)
      : rows(arena.take<float>(kChunkRows * p.head_dim_qk)),
        amax(arena.take<float>(p.head_dim_qk)),
        sum(arena.take<double>(p.head_dim_qk)),
        count(arena.take<int64_t>(p.head_dim_qk)) {}
};

// Rows [first, first + count) of a sequence in one head.
struct Chunk {
  int64_t b = 0;
  int64_t head = 0;
  Sequence sequence;
  int64_t first = 0;
  int64_t count = 0;
};

class Quantizer {
 public:
  Quantizer(const Problem& p, const Buffers& x, std::byte* workspace)
      : p_(p), x_(x), d_(p.head_dim_qk), workspace_(workspace) {
    Arena arena(workspace);
    factor_ = arena.take<float>(d_);
    shared_bytes_ = arena.used();
    Arena counted(nullptr);
    Scratch(counted, p);
    scratch_bytes_ = counted.used();
    const int64_t rows = p.block_of(kCodes).rows;
    in_chunk_ = rows > 0 && rows <= kChunkRows;
    chunk_rows_ = in_chunk_ ? kChunkRows / rows * rows : kChunkRows;
  }

  size_t workspace_bytes(int threads) const {
    return shared_bytes_ + static_cast<size_t>(threads) * scratch_bytes_;
  }

  void run(const Executor& executor) const {
    const Rotation& r = p_.rotation;
    const float unit = r.hadamard == 0 ? 1 : 1 / std::sqrt(static_cast<float>(r.hadamard));
    for (int64_t c = 0; c < d_; ++c)
      factor_[c] = r.hadamard == 0 ? 1 : unit * sign_of_column(p_, c);
    const fa3_dtype codes = p_.layout[kCodes].dtype;
    for_each_scale(p_, x_, [&](float& scale) { scale = in_chunk_ ? 1 : 0; });

    const int64_t heads = p_.batch * p_.heads_q;
    const int64_t chunks = (p_.q.max_seqlen + chunk_rows_ - 1) / chunk_rows_;
    const bool mean = x_.data[kOffset] != nullptr;
    const bool image = x_.data[kImage] != nullptr;
    const int64_t total = heads * ((mean ? 1 : 0) + (in_chunk_ ? 1 : 2) * chunks + (image ? 1 : 0));
    Progress progress{0, total};
    const auto phase = [&](int64_t tasks, auto&& body) {
      executor.run(tasks, body, progress);
      progress.before += tasks;
    };
    if (mean) {
      phase(heads, [&](const TaskContext& task) {
        Scratch scratch = scratch_of(task.slot);
        write_mean(task.index / p_.heads_q, task.index % p_.heads_q, scratch);
      });
    }
    const auto chunk_of = [&](int64_t index) {
      const int64_t head = index / chunks;
      return make_chunk(head / p_.heads_q, head % p_.heads_q, index % chunks * chunk_rows_);
    };
    if (!in_chunk_) {
      phase(heads * chunks, [&](const TaskContext& task) {
        Scratch scratch = scratch_of(task.slot);
        raise_scales(chunk_of(task.index), scratch);
      });
      for_each_scale(p_, x_, [&](float& scale) { scale = scale_of_block(scale, codes); });
    }
    phase(heads * chunks, [&](const TaskContext& task) {
      Scratch scratch = scratch_of(task.slot);
      write_codes(chunk_of(task.index), scratch);
    });
    if (image) {
      phase(heads, [&](const TaskContext& task) {
        write_v_image(p_, x_, task.index / p_.heads_q, task.index % p_.heads_q);
      });
    }
  }

 private:
  Scratch scratch_of(int slot) const {
    Arena arena(workspace_ + shared_bytes_ + static_cast<size_t>(slot) * scratch_bytes_);
    return Scratch(arena, p_);
  }

  Chunk make_chunk(int64_t b, int64_t head, int64_t first) const {
    Chunk chunk{b, head, sequence_of(p_, x_, Axis::kToken, b), first, 0};
    chunk.count = std::clamp<int64_t>(chunk.sequence.len - first, 0, chunk_rows_);
    return chunk;
  }

  template <class T>
  void load(const T* in, float* y) const {
    for (int64_t c = 0; c < d_; ++c) y[c] = to_float(in[c]);
  }

  template <class T>
  void embed(int64_t position, float* y) const {
    const int64_t half = p_.rotation.rotary_dim / 2;
    const T* const cosine = x_.in<T>(kRotaryCos) + position * p_.layout[kRotaryCos].row;
    const T* const sine = x_.in<T>(kRotarySin) + position * p_.layout[kRotarySin].row;
    const bool pairs = p_.rotation.rotary_pairs;
    for (int64_t i = 0; i < half; ++i) {
      float &a = y[pairs ? 2 * i : i], &b = y[pairs ? 2 * i + 1 : i + half];
      const float cos = to_float(cosine[i]), sin = to_float(sine[i]);
      const float turned = a * cos - b * sin;
      b = b * cos + a * sin;
      a = turned;
    }
  }

  // Signs and Hadamard transform, by butterflies.
  void spread(float* y) const {
    const int64_t block = p_.rotation.hadamard;
    if (block == 0) return;
    for (int64_t c = 0; c < d_; ++c) y[c] *= factor_[c];
    for (int64_t half = 1; half < block; half *= 2) {
      for (int64_t at = 0; at < d_; at += 2 * half) {
        for (int64_t c = at; c < at + half; ++c) {
          const float a = y[c], b = y[c + half];
          y[c] = a + b;
          y[c + half] = a - b;
        }
      }
    }
  }

  // Row i of the chunk's sequence, turned.
  void turn(const Chunk& chunk, int64_t i, float* y) const {
    const Layout& layout = p_.layout[kX];
    const int64_t at =
        chunk.b * layout.batch + (chunk.sequence.begin + i) * layout.row + chunk.head * layout.head;
    if (layout.dtype == FA3_F32) load(x_.in<float>(kX) + at, y);
    if (layout.dtype == FA3_F16) load(x_.in<F16>(kX) + at, y);
    if (layout.dtype == FA3_BF16) load(x_.in<Bf16>(kX) + at, y);
    if (p_.rotation.rotary_dim > 0) {
      const auto* const from = x_.in<int32_t>(kRotaryPosition);
      const int64_t position = (from == nullptr ? 0 : from[chunk.b]) + i;
      const fa3_dtype table = p_.layout[kRotaryCos].dtype;
      if (table == FA3_F32) embed<float>(position, y);
      if (table == FA3_F16) embed<F16>(position, y);
      if (table == FA3_BF16) embed<Bf16>(position, y);
    }
    spread(y);
  }

  void turn_and_centre(const Chunk& chunk, int64_t i, float* y) const {
    turn(chunk, i, y);
    const RowScales at = scales_at(chunk, i);
    if (at.offset == nullptr) return;
    for (int64_t c = 0; c < d_; ++c) y[c] -= at.offset[c];
  }

  RowScales scales_at(const Chunk& chunk, int64_t i) const {
    return scales_of(p_, x_, kCodes, chunk.b, chunk.sequence.begin, i, chunk.head);
  }

  void write_mean(int64_t b, int64_t head, Scratch& scratch) const {
    const Chunk all = make_chunk(b, head, 0);
    std::fill_n(scratch.sum, d_, 0.0);
    std::fill_n(scratch.count, d_, int64_t{0});
    for (int64_t i = 0; i < all.sequence.len; ++i) {
      turn(all, i, scratch.rows);
      for (int64_t c = 0; c < d_; ++c) {
        const bool finite = std::isfinite(scratch.rows[c]);
        scratch.sum[c] += finite ? scratch.rows[c] : 0;
        scratch.count[c] += finite ? 1 : 0;
      }
    }
    const Layout& layout = p_.layout[kOffset];
    float* const out = x_.out<float>(kOffset) + b * layout.batch + head * layout.head;
    for (int64_t c = 0; c < d_; ++c)
      out[c] = scratch.count[c] == 0
                   ? 0.0f
                   : static_cast<float>(scratch.sum[c] / static_cast<double>(scratch.count[c]));
  }

  // Of a row in blocks of `cols` columns: amax[block] grows to its largest value. What is not
  // finite is NaN for I8, and nothing for E4M3, which has a code for it.
  void grow(const float* y, int64_t cols, float* amax) const {
    const float other = p_.layout[kCodes].dtype == FA3_I8 ? kNan : 0.0f;
    for (int64_t begin = 0, block = 0; begin < d_; begin += cols, ++block) {
      float most = amax[block];
      for (int64_t c = begin; c < std::min(begin + cols, d_); ++c)
        most = larger(most, std::isfinite(y[c]) ? std::fabs(y[c]) : other);
      amax[block] = most;
    }
  }

  void raise_scales(const Chunk& chunk, Scratch& scratch) const {
    for (int64_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      turn_and_centre(chunk, i, scratch.rows);
      const RowScales at = scales_at(chunk, i);
      const int64_t blocks = (d_ + at.cols - 1) / at.cols;
      std::fill_n(scratch.amax, blocks, 0.0f);
      grow(scratch.rows, at.cols, scratch.amax);
      for (int64_t k = 0; k < blocks; ++k) raise(written(at)[k], scratch.amax[k]);
    }
  }

  void write_codes(const Chunk& chunk, Scratch& scratch) const {
    const int64_t rows = in_chunk_ ? p_.block_of(kCodes).rows : 1;
    for (int64_t first = chunk.first; first < chunk.first + chunk.count; first += rows) {
      const int64_t count = std::min(rows, chunk.first + chunk.count - first);
      const RowScales at = scales_at(chunk, first);
      const int64_t blocks = (d_ + at.cols - 1) / at.cols;
      std::fill_n(scratch.amax, blocks, 0.0f);
      for (int64_t r = 0; r < count; ++r) {
        turn_and_centre(chunk, first + r, scratch.rows + r * d_);
        if (in_chunk_) grow(scratch.rows + r * d_, at.cols, scratch.amax);
      }
      for (int64_t k = 0; k < blocks; ++k) {
        float& scale = written(at)[k];
        if (in_chunk_) scale = scale_of_block(scratch.amax[k], p_.layout[kCodes].dtype);
        scratch.amax[k] = 1 / scale;
      }
      for (int64_t r = 0; r < count; ++r)
        write_row(chunk, first + r, scratch.rows + r * d_, scratch.amax, at.cols);
    }
  }

  void write_row(const Chunk& chunk, int64_t i, const float* y, const float* reciprocal,
                 int64_t cols) const {
    const Layout& layout = p_.layout[kCodes];
    uint8_t* const out = x_.out<uint8_t>(kCodes) + chunk.b * layout.batch +
                         (chunk.sequence.begin + i) * layout.row + chunk.head * layout.head;
    for (int64_t begin = 0, block = 0; begin < d_; begin += cols, ++block) {
      const int64_t end = std::min(begin + cols, d_);
      const float by = reciprocal[block];
      if (layout.dtype == FA3_I8)
        for (int64_t c = begin; c < end; ++c) out[c] = static_cast<uint8_t>(i8_code(y[c] * by));
      else
        for (int64_t c = begin; c < end; ++c)
          out[c] = e4m3_code(std::isfinite(y[c]) ? y[c] * by : kNan);
    }
  }

  const Problem& p_;
  const Buffers& x_;
  const int64_t d_;
  std::byte* const workspace_;
  float* factor_;  // [head_dim]: sign / √hadamard
  size_t shared_bytes_, scratch_bytes_;
  bool in_chunk_;  // whole blocks of rows lie in a chunk
  int64_t chunk_rows_;
};

}  // namespace

size_t quantize_workspace_bytes(const Problem& problem, int threads) {
  return Quantizer(problem, {}, nullptr).workspace_bytes(threads);
}

void quantize(const Problem& problem, const Buffers& buffers, std::byte* workspace,
              const Executor& executor) {
  Quantizer(problem, buffers, workspace).run(executor);
}

}  // namespace fa3::cpu
