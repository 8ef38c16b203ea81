// SPDX-License-Identifier: BSD-3-Clause
// reference_quantize.cpp — the formula of quantize.h, term by term.
#include "backend/cpu/reference_quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "backend/cpu/reference_rows.h"
#include "backend/cpu/scale_grid.h"
#include "core/check_scales.h"
#include "core/dtype.h"

namespace fa3::reference {
namespace {

constexpr int64_t kMaxColumns = 512;
using Row = std::array<double, kMaxColumns>;

// SplitMix64's number `index`: negative where its top bit is set.
double sign(uint64_t seed, int64_t index) {
  uint64_t state = seed;
  for (int64_t i = 0; i <= index; ++i) state += 0x9e3779b97f4a7c15u;
  state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9u;
  state = (state ^ state >> 27) * 0x94d049bb133111ebu;
  state ^= state >> 31;
  return static_cast<int64_t>(state) < 0 ? -1 : 1;
}

struct Pair {
  int64_t a, b;
};

// The columns of the i-th rotary pair.
Pair pair_of(const Rotation& r, int64_t width, int64_t i) {
  return r.rotary_pairs ? Pair{2 * i, 2 * i + 1} : Pair{i, i + width / 2};
}

// y of row i of sequence b.
Row turned(const Problem& p, const Buffers& x, int64_t b, int64_t i, int64_t head) {
  const Rotation& r = p.rotation;
  const int64_t d = p.head_dim_qk;
  const Sequence s = sequence_of(p, x, Axis::kToken, b);
  const Layout& layout = p.layout[kX];
  Row row{}, y{};
  for (int64_t c = 0; c < d; ++c)
    row[c] =
        element(p, x, kX, b * layout.batch + (s.begin + i) * layout.row + head * layout.head + c);
  if (r.rotary_dim > 0) {
    const int64_t t =
        i + (x.data[kRotaryPosition] == nullptr ? 0 : x.in<int32_t>(kRotaryPosition)[b]);
    for (int64_t k = 0; k < r.rotary_dim / 2; ++k) {
      const double cos = element(p, x, kRotaryCos, t * p.layout[kRotaryCos].row + k);
      const double sin = element(p, x, kRotarySin, t * p.layout[kRotarySin].row + k);
      const Pair at = pair_of(r, r.rotary_dim, k);
      const double u = row[at.a], v = row[at.b];
      row[at.a] = u * cos - v * sin;
      row[at.b] = v * cos + u * sin;
    }
  }
  if (r.hadamard == 0) return row;
  const int64_t width = r.rotary_dim > 0 ? r.rotary_dim : d - d % 2;
  for (int64_t k = 0; k < width / 2; ++k) {
    const Pair at = pair_of(r, width, k);
    row[at.a] *= sign(r.seed, k);
    row[at.b] *= sign(r.seed, k);
  }
  for (int64_t c = width; c < d; ++c) row[c] *= sign(r.seed, c);
  for (int64_t c = 0; c < d; ++c) {
    const int64_t block = c / r.hadamard * r.hadamard;
    for (int64_t k = 0; k < r.hadamard; ++k) {
      const bool minus = std::popcount(static_cast<uint64_t>((c - block) & k)) % 2 != 0;
      y[c] += minus ? -row[block + k] : row[block + k];
    }
    y[c] /= std::sqrt(static_cast<double>(r.hadamard));
  }
  return y;
}

// y − μ.
Row centred(const Problem& p, const Buffers& x, int64_t b, int64_t i, int64_t head,
            const RowScales& at) {
  Row y = turned(p, x, b, i, head);
  for (int64_t c = 0; c < p.head_dim_qk; ++c) y[c] -= at.offset_of(c);
  return y;
}

// FP32 may hold it: what overflows there is not finite here.
bool is_finite(double y) { return std::fabs(y) <= std::numeric_limits<float>::max(); }

void write_mean(const Problem& p, const Buffers& x, int64_t b, int64_t head) {
  Row sum{}, count{};
  for (int64_t i = 0; i < sequence_of(p, x, Axis::kToken, b).len; ++i) {
    const Row y = turned(p, x, b, i, head);
    for (int64_t c = 0; c < p.head_dim_qk; ++c) {
      if (!is_finite(y[c])) continue;
      sum[c] += y[c];
      count[c] += 1;
    }
  }
  const Layout& layout = p.layout[kOffset];
  float* const out = x.out<float>(kOffset) + b * layout.batch + head * layout.head;
  for (int64_t c = 0; c < p.head_dim_qk; ++c)
    out[c] = static_cast<float>(count[c] == 0 ? 0 : sum[c] / count[c]);
}

// Rows of one head of a sequence: f(row of the sequence, its scales).
template <class F>
void for_each_row(const Problem& p, const Buffers& x, int64_t b, int64_t head, F&& f) {
  const Sequence s = sequence_of(p, x, Axis::kToken, b);
  for (int64_t i = 0; i < s.len; ++i) f(i, scales_of(p, x, kCodes, b, s.begin, i, head));
}

void raise_scales(const Problem& p, const Buffers& x, int64_t b, int64_t head) {
  for_each_row(p, x, b, head, [&](int64_t i, const RowScales& at) {
    const Row y = centred(p, x, b, i, head, at);
    for (int64_t c = 0; c < p.head_dim_qk; ++c) {
      float& amax = written(at)[c / at.cols];
      const float size = static_cast<float>(std::fabs(y[c]));
      if (!is_finite(y[c]) && p.layout[kCodes].dtype == FA3_I8)
        amax = std::numeric_limits<float>::quiet_NaN();
      else if (is_finite(y[c]) && amax < size)
        amax = size;
    }
  });
}

void write_codes(const Problem& p, const Buffers& x, int64_t b, int64_t head) {
  const Layout& layout = p.layout[kCodes];
  const int64_t begin = sequence_of(p, x, Axis::kToken, b).begin;
  for_each_row(p, x, b, head, [&](int64_t i, const RowScales& at) {
    const Row y = centred(p, x, b, i, head, at);
    const int64_t first = b * layout.batch + (begin + i) * layout.row + head * layout.head;
    for (int64_t c = 0; c < p.head_dim_qk; ++c) {
      const double code = y[c] / at.scale_of(c);
      if (layout.dtype == FA3_I8)
        x.out<int8_t>(kCodes)[first + c] =
            static_cast<int8_t>(code == code ? std::clamp(std::nearbyint(code), -127.0, 127.0) : 0);
      else
        x.out<F8E4m3>(kCodes)[first + c] =
            from_double<F8E4m3>(is_finite(y[c]) ? code : std::numeric_limits<double>::quiet_NaN());
    }
  });
}

}  // namespace

void quantize(const Problem& p, const Buffers& x, const Executor& executor) {
  const int64_t heads = p.batch * p.heads_q;
  const bool mean = x.data[kOffset] != nullptr, of_tensor = p.block_of(kCodes).of_tensor;
  Progress progress{0, heads * (mean ? 3 : 2)};
  const auto phase = [&](auto&& body) {
    executor.run(
        heads, [&](const TaskContext& t) { body(t.index / p.heads_q, t.index % p.heads_q); },
        progress);
    progress.before += heads;
  };
  if (mean) phase([&](int64_t b, int64_t head) { write_mean(p, x, b, head); });
  for_each_scale(p, x, [](float& scale) { scale = 0; });
  std::mutex of_all;  // the scale, where there is one
  phase([&](int64_t b, int64_t head) {
    std::unique_lock lock(of_all, std::defer_lock);
    if (of_tensor) lock.lock();
    raise_scales(p, x, b, head);
  });
  for_each_scale(p, x, [&](float& scale) {
    scale = static_cast<float>(scale_of_block(static_cast<double>(scale), p.layout[kCodes].dtype));
  });
  phase([&](int64_t b, int64_t head) { write_codes(p, x, b, head); });
}

}  // namespace fa3::reference
