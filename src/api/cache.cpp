// SPDX-License-Identifier: BSD-3-Clause
// cache.cpp — page_table, kv_batch_idx and kv_begin: what they need, and what excludes them.
#include "api/cache.h"

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"

namespace fa3 {
namespace {

constexpr int64_t kMaxExtent = INT32_MAX;

bool has(const Args& args, TensorId id) {
  return role_of(args.op, id) != Role::kNone && args.tensor[id].rank != 0;
}

// One of the three, by the name of its field, beside all others.
Status check_beside(const Args& args, TensorId id) {
  const char* const name = tensor_name(id);
  if (has(args, kCuSeqlensKv)) {
    return invalid(
        "forward: {} beside cu_seqlens_kv: both say where keys lie; leave cu_seqlens_kv out, and "
        "give lengths as seqused_kv",
        name);
  }
  if (id != kKvBatchIdx && !has(args, kSequsedKv)) {
    return invalid("forward: {} is given, but seqused_kv is absent; need the number of keys there",
                   name);
  }
  if (args.tensor[kK].dtype == FA3_I8 || args.precision != FA3_PRECISION_DEFAULT) {
    return unsupported(
        "forward: {} with {}, whose scales belong to rows of dense or packed keys; need k and v in "
        "f8_e4m3, f16, bf16 or f32, and precision 0",
        name, args.tensor[kK].dtype == FA3_I8 ? "k of i8" : "a precision of 8 bits");
  }
  for (const TensorId offset : {kKOffset, kVOffset})
    if (has(args, offset))
      return unsupported("forward: {} beside {}, need k and v without offsets; leave it out",
                         tensor_name(offset), name);
  if (has(args, kSequenceIdsKv)) {
    return unsupported(
        "forward: {} with sequence_ids, which lie as dense or packed keys do; say the same by "
        "attn_mask, or make each document a sequence",
        name);
  }
  return {};
}

Status check_table(const fa3_tensor& table) {
  if (table.rank != 2) {
    return invalid("forward: page_table.rank={}, need rank 2 (batch, max_pages)", table.rank);
  }
  if (table.shape[0] > 1 && table.shape[1] > 0 && table.stride[0] != table.shape[1]) {
    return invalid(
        "forward: page_table.stride[0]={}, need {}, its columns: the table is dense; copy it, or "
        "pass all columns and bound lengths by max_seqlen_kv",
        table.stride[0], table.shape[1]);
  }
  return {};
}

}  // namespace

bool has_packed_keys(const Args& args) {
  return has(args, kKvBegin) && !has(args, kPageTable) && !has(args, kKvBatchIdx) &&
         args.tensor[kK].rank == 3;
}

Result<KvCache> read_cache(const Args& args) {
  KvCache cache;
  for (const TensorId id : {kPageTable, kKvBatchIdx, kKvBegin})
    if (has(args, id)) FA3_RETURN_IF_ERROR(check_beside(args, id));
  cache.begins = has(args, kKvBegin);
  cache.slots = has(args, kKvBatchIdx);
  if (cache.slots && has(args, kPageTable)) {
    return invalid(
        "forward: kv_batch_idx beside page_table, whose rows say the same; leave kv_batch_idx out, "
        "and exchange rows of page_table");
  }
  const fa3_tensor& k = args.tensor[kK];
  if (cache.slots && k.rank == 4) cache.entries = k.shape[0];
  if (!has(args, kPageTable)) return cache;
  const fa3_tensor& table = args.tensor[kPageTable];
  FA3_RETURN_IF_ERROR(check_table(table));
  if (k.rank != 4) {
    return invalid(
        "forward: k.rank={} beside page_table, need rank 4 (pages, page_size, heads_kv, "
        "head_dim_qk)",
        k.rank);
  }
  cache.entries = k.shape[0];
  cache.page_size = k.shape[1];
  cache.max_pages = table.shape[1];
  if (cache.page_size < 1 || cache.page_size > kMaxExtent) {
    return invalid("forward: k.shape[1]={} is the page_size, need 1…{}", cache.page_size,
                   kMaxExtent);
  }
  return cache;
}

int64_t rows_of_pages(const KvCache& cache) {
  int64_t rows = 0;
  const bool fits = !__builtin_mul_overflow(cache.max_pages, cache.page_size, &rows);
  return fits ? std::min(rows, kMaxExtent + 1) : kMaxExtent + 1;
}

}  // namespace fa3
