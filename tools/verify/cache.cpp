// SPDX-License-Identifier: BSD-3-Clause
// cache.cpp — from dense keys to a cache of the same rows.
#include "tools/verify/cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "tools/verify/axis.h"

namespace fa3::verify {
namespace {

constexpr int64_t kMostBegin = 7;     // rows before the keys of a sequence, at most
constexpr int64_t kSpareRows = 3;     // behind those of all
constexpr int64_t kSparePages = 2;    // of no sequence
constexpr int64_t kSpareColumns = 1;  // of the page table

Random stream(const Config& c, uint64_t of) { return Random(~(c.seed * 16 + of)); }

int64_t length_of(const Config& c, int64_t b) {
  return c.seqused_kv.empty() ? c.seqlen_kv : c.seqused_kv[b];
}

int64_t pages_of(const Config& c, int64_t rows) { return (rows + c.page_size - 1) / c.page_size; }

// First rows of the keys of all sequences; packed ones share the rows of the one before.
std::vector<int64_t> begins_of(const Config& c) {
  std::vector<int64_t> begins(batch_of(c), 0);
  if (!c.kv_begin) return begins;
  Random random = stream(c, 1);
  for (int64_t b = 0; b < batch_of(c); ++b) {
    begins[b] = random.between(0, kMostBegin);
    if (c.packed_kv && b > 0) begins[b] = begins[b - 1] + random.between(0, length_of(c, b - 1));
  }
  return begins;
}

// Every number below `count` once, in random order.
std::vector<int64_t> shuffled(int64_t count, Random& random) {
  std::vector<int64_t> order(count);
  for (int64_t i = 0; i < count; ++i) {
    order[i] = i;
    std::swap(order[i], order[random.between(0, i)]);
  }
  return order;
}

// The page table, (batch, max_pages). A page that two sequences have is full in both, of keys that
// are not appended.
std::vector<int64_t> table_of(const Config& c, const std::vector<int64_t>& begins) {
  const int64_t columns = max_pages_of(c), pages = cache_rows(c)[0];
  Random random = stream(c, 2);
  const std::vector<int64_t> order = shuffled(pages, random);
  std::vector<int64_t> table;
  int64_t next = 0;
  for (int64_t b = 0; b < batch_of(c); ++b) {
    const int64_t end = begins[b] + length_of(c, b), first = begins[b] / c.page_size;
    const int64_t needed = length_of(c, b) == 0 ? 0 : pages_of(c, end);
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t stale[] = {-1, INT32_MAX, order[random.between(0, pages - 1)]};
      const bool is_needed = i >= first && i < needed;
      table.push_back(is_needed ? order[next++] : stale[random.between(0, 2)]);
      const int64_t above = std::ssize(table) - 1 - columns;
      const auto is_full_in = [&](int64_t of) {
        const int64_t fresh = c.append.empty() ? 0 : c.append[of];
        return i * c.page_size >= begins[of] &&
               (i + 1) * c.page_size <= begins[of] + length_of(c, of) - fresh;
      };
      const bool is_full = is_full_in(b), full_above = b > 0 && is_full_in(b - 1);
      if (is_needed && is_full && full_above && random.between(0, 3) == 0 && !c.own_pages)
        table.back() = table[above];
    }
  }
  return table;
}

Tensor integers(const std::vector<int64_t>& values, const std::vector<int64_t>& shape) {
  Tensor t = make_tensor(FA3_I32, shape);
  size_t i = 0;
  generate(t.view, [&] { return static_cast<double>(values[i++]); });
  return t;
}

std::byte* row_at(const fa3_tensor& t, const Index& at) {
  int64_t offset = 0;
  for (int d = 0; d < t.rank - 1; ++d) offset += at[d] * t.stride[d];
  return static_cast<std::byte*>(t.data) + offset * element_bytes(t.dtype);
}

// Where row r of sequence b is: all dimensions of a cache before heads.
using Find = std::function<std::vector<int64_t>(int64_t b, int64_t r)>;

Tensor moved(const Config& c, const Tensor& dense, const MemoryOrder& memory,
             const std::vector<int64_t>& begins, const Find& find) {
  const fa3_tensor& from = dense.view;
  std::vector<int64_t> shape = cache_rows(c);
  shape.insert(shape.end(), {from.shape[2], from.shape[3]});
  Tensor into = make_tensor(from.dtype, shape, memory);
  const auto bytes = static_cast<size_t>(from.shape[3] * element_bytes(from.dtype));
  for (int64_t b = 0; b < batch_of(c); ++b) {
    for (int64_t j = 0; j < length_of(c, b); ++j) {
      for (int64_t h = 0; h < from.shape[2]; ++h) {
        Index to{};
        int d = 0;
        for (const int64_t i : find(b, begins[b] + j)) to[d++] = i;
        to[d] = h;
        std::memcpy(row_at(into.view, to), row_at(from, {b, j, h}), bytes);
      }
    }
  }
  return into;
}

// (pages, heads) from (batch, heads, pages of a sequence, 1); NaN where no key lies.
Tensor scales_of_pages(const Config& c, const Tensor& dense, const std::vector<int64_t>& table) {
  const fa3_tensor& from = dense.view;
  Tensor into =
      make_tensor(FA3_F32, {cache_rows(c)[0], from.shape[1]}, {{}, c.seed % 2 == 0 ? 3 : 0});
  fill(into.view, std::numeric_limits<double>::quiet_NaN());
  for (int64_t b = 0; b < batch_of(c); ++b)
    for (int64_t i = 0; i < pages_of(c, length_of(c, b)); ++i)
      for (int64_t h = 0; h < from.shape[1]; ++h)
        set(into.view, {table[b * max_pages_of(c) + i], h}, get(from, {b, h, i, 0}));
  return into;
}

}  // namespace

bool has_cache(const Config& c) { return c.page_size > 0 || c.kv_slots > 0 || c.kv_begin; }

std::string contradiction_of_cache(const Config& c) {
  if (c.page_size < 0 || c.kv_slots < 0) return "page-size and kv-slots need at least 0";
  if (c.packed_kv && (!c.kv_begin || c.page_size > 0 || c.kv_slots > 0))
    return "packed-kv needs kv-begin, and neither page-size nor kv-slots";
  if (c.page_size > 0 && c.kv_slots > 0) return "page-size and kv-slots exclude each other";
  if (c.own_pages && c.page_size == 0) return "own-pages needs page-size";
  if (!has_cache(c)) return "";
  if (c.backward) return "backward has no caches";
  if (is_varlen_kv(c)) return "caches have no varlen-kv";
  if (dtype_of_k(c) == FA3_I8) return "caches need k and v of f32, f16, bf16 or f8_e4m3";
  if (c.k_offset || c.v_offset) return "caches have no k-offset and v-offset";
  for (const Scales* const s : {&c.k_scale, &c.v_scale})
    if (s->of == Scales::Of::kTokens || s->of == Scales::Of::kBlocks)
      return "caches have scales of none, tensor, head or page";
  if (c.sequence_ids > 0) return "caches have no sequence-ids";
  if (c.layout == Layout::kInterleaved || c.layout == Layout::kBroadcast)
    return "caches need layout dense, heads_first, seq_first or padded";
  return "";
}

int64_t max_pages_of(const Config& c) {
  return pages_of(c, c.seqlen_kv + (c.kv_begin ? kMostBegin : 0)) + kSpareColumns;
}

std::vector<int64_t> cache_rows(const Config& c) {
  if (c.page_size > 0) return {batch_of(c) * max_pages_of(c) + kSparePages, c.page_size};
  const std::vector<int64_t> begins = begins_of(c);
  if (c.packed_kv) {
    int64_t end = c.seqlen_kv - kSpareRows;  // no fewer rows than the columns of a mask
    for (int64_t b = 0; b < batch_of(c); ++b) end = std::max(end, begins[b] + length_of(c, b));
    return {end + kSpareRows};
  }
  return {c.kv_slots > 0 ? c.kv_slots : batch_of(c), cache_mask_columns(c)};
}

int64_t cache_max_seqlen(const Config& c) {
  const bool bounded = c.page_size > 0 || c.packed_kv;
  return bounded && (c.seed % 2 == 1 || c.attn_mask != 0) ? c.seqlen_kv : 0;
}

int64_t cache_mask_columns(const Config& c) {
  const bool bounded = c.page_size > 0 || c.packed_kv;
  return bounded || !c.kv_begin ? c.seqlen_kv : c.seqlen_kv + kMostBegin;
}

void move_to_cache(const Config& c, const MemoryOrder& memory, Tensors* t) {
  const int64_t batch = batch_of(c);
  const std::vector<int64_t> begins = begins_of(c);
  std::vector<int64_t> lengths, slots, table;
  Random random = stream(c, 3);
  for (int64_t b = 0; b < batch; ++b) lengths.push_back(length_of(c, b));
  if (c.page_size > 0) table = table_of(c, begins);
  if (c.kv_slots > 0) {
    const std::vector<int64_t> order = shuffled(c.kv_slots, random);
    for (int64_t b = 0; b < batch; ++b)
      slots.push_back(lengths[b] == 0 ? -1 - b : order[b % c.kv_slots]);
  }
  const Find find = [&](int64_t b, int64_t r) -> std::vector<int64_t> {
    if (c.packed_kv) return {r};
    if (c.kv_slots > 0) return {slots[b], r};
    if (c.page_size == 0) return {b, r};
    return {table[b * max_pages_of(c) + r / c.page_size], r % c.page_size};
  };
  for (const auto& [x, scale] : {std::pair(Operand::kK, &t->k_scale), {Operand::kV, &t->v_scale}})
    if (scales_of(c, x).of == Scales::Of::kPages) *scale = scales_of_pages(c, *scale, table);
  t->k = moved(c, t->k, memory, begins, find);
  t->v = moved(c, t->v, memory, begins, find);
  if (c.page_size > 0) t->page_table = integers(table, {batch, max_pages_of(c)});
  if (c.kv_slots > 0) t->kv_batch_idx = integers(slots, {batch});
  if (c.kv_begin) t->kv_begin = integers(begins, {batch});
  if (c.page_size > 0 || c.kv_begin) t->seqused_kv = integers(lengths, {batch});
}

}  // namespace fa3::verify
