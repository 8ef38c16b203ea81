// SPDX-License-Identifier: BSD-3-Clause
// problem.cpp — the rules of fa3.h on how the arguments of a call fit together.
#include "api/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "api/append.h"
#include "api/cache.h"
#include "api/dims.h"
#include "api/dtypes.h"
#include "api/image.h"
#include "api/mask.h"
#include "api/rotation.h"
#include "api/scales.h"
#include "api/tensor.h"
#include "core/dtype.h"

namespace fa3 {
namespace {

constexpr int64_t kMaxExtent =
    INT32_MAX;  // batch, heads and rows: positions fit cu_seqlens' 32 bits
constexpr int64_t kMaxHeadDim = 512;

// Rows of all heads: those of the tensors, or more where every sequence is counted as if it had
// max_seqlen. Plans count bytes in 64 bits: of FP32 and of all columns that is 2^60, and several
// such buffers fit.
constexpr int64_t kMaxPaddedRows = int64_t{1} << 49;

// Kernels hold the scale, its product with log2(e) and its ratio to softcap in FP32.
constexpr double kMaxScale = 0x1p126;

std::string names_text(const Dims& dims) {
  return fmt::format("({})", fmt::join(dims.name, dims.name + dims.rank, ", "));
}

// One call of make_problem: the arguments, and the problem as far as it is known.
class ProblemMaker {
 public:
  explicit ProblemMaker(const Args& args)
      : args_(args),
        op_(op_name(args.op)),
        first_(args.op == FA3_OP_QUANTIZE  ? kX
               : args.op == FA3_OP_COMBINE ? kOParts
                                           : kQ) {
    p_.op = args.op;
    static_cast<Options&>(p_) = args.options;
  }

  Result<Problem> make() {
    FA3_RETURN_IF_ERROR(check_tensors());
    FA3_TRY(p_.scale_block, read_scale_blocks(args_));
    FA3_TRY(p_.cache, read_cache(args_));
    FA3_RETURN_IF_ERROR(check_append(args_));
    FA3_RETURN_IF_ERROR(check_ranks());
    read_dims();
    FA3_RETURN_IF_ERROR(check_dims());
    FA3_RETURN_IF_ERROR(read_max_seqlens());
    FA3_TRY(p_.image, read_image(args_, p_));
    FA3_RETURN_IF_ERROR(check_shapes());
    FA3_RETURN_IF_ERROR(check_dtypes(args_));
    FA3_TRY(p_.rotation, read_rotation(args_, p_));
    if (is_attention(args_.op)) {
      FA3_RETURN_IF_ERROR(read_mask(args_, p_));
      FA3_RETURN_IF_ERROR(read_scalars());
      FA3_RETURN_IF_ERROR(read_precision());
      FA3_RETURN_IF_ERROR(read_schedule());
    }
    read_layouts();
    FA3_RETURN_IF_ERROR(check_room(p_));
    if (first_ == kOParts) p_.q.varlen = false;  // without cu_seqlens: one batch entry
    return p_;
  }

 private:
  const fa3_tensor& tensor(TensorId id) const { return args_.tensor[id]; }
  bool present(TensorId id) const {
    return role_of(args_.op, id) != Role::kNone && tensor(id).rank != 0;
  }

  // Each by itself; required ones present.
  Status check_tensors() {
    for (int i = 0; i < kTensorCount; ++i) {
      const TensorId id = TensorId(i);
      const Role role = role_of(args_.op, id);
      if (present(id)) {
        FA3_RETURN_IF_ERROR(check_tensor(args_, id));
      } else if (role != Role::kNone && !is_optional(role)) {
        return invalid(
            "{}: {} is absent (rank 0) but required; set its data, dtype, rank and shape", op_,
            tensor_name(id));
      }
    }
    FA3_RETURN_IF_ERROR(check_pair(kKNew, kVNew, "each key has a value"));
    FA3_RETURN_IF_ERROR(
        check_pair(kSequenceIdsQ, kSequenceIdsKv, "a query sees the keys whose id equals its own"));
    FA3_RETURN_IF_ERROR(check_mask_tensors(args_));
    if (present(kDsinks) && !present(kSinks))
      return invalid("{}: dsinks is given, but sinks is absent; need it, or leave both out", op_);
    return check_pair(kRotaryCos, kRotarySin, "a rotation takes the cosine and the sine");
  }

  Status check_pair(TensorId a, TensorId b, const char* why) const {
    if (present(a) == present(b)) return {};
    return invalid("{}: {} is given, but {} is absent; need both or neither: {}", op_,
                   tensor_name(present(a) ? a : b), tensor_name(present(a) ? b : a), why);
  }

  // Varlen or dense, and every tensor with the rank that goes with it.
  Status check_ranks() {
    constexpr int kVarlenParts = 4;  // their rank
    p_.q.varlen = first_ == kOParts ? tensor(kOParts).rank == kVarlenParts
                                    : present(cu_seqlens_of(kTensors[first_].axis));
    p_.kv.varlen = present(kCuSeqlensKv) || has_packed_keys(args_);
    p_.q.seqused = present(seqused_of(kTensors[first_].axis));
    p_.kv.seqused = present(kSequsedKv);
    p_.fresh.varlen = present(kCuSeqlensNew);
    for (int i = 0; i < kTensorCount; ++i) {
      const TensorId id = TensorId(i);
      if (!present(id)) continue;
      const Dims need = expected_dims(p_, id, tensor(id));
      if (tensor(id).rank == need.rank) continue;
      const char* cu = tensor_name(cu_seqlens_of(kTensors[id].axis));
      std::string remedy = "pass it in that shape";
      if (kTensors[id].form == Form::kScale) {
        remedy = fmt::format(
            "or (1), (batch, heads) with {0}block 0; per token, with {0}block.rows=1, (batch, "
            "heads, seqlen) or varlen (total, heads)",
            id == kScale ? "" : fmt::format("{}_", tensor_name(scaled_by(id))));
      } else if (first_ == kOParts) {
        remedy = id == kOParts ? "or rank 4 (parts, total, heads, head_dim)" : "as o_parts says";
      } else if (kTensors[id].form == Form::kMask) {
        remedy = "put extents of 1 in front where it is the same for all";
      } else if (kTensors[id].form == Form::kSlopes) {
        remedy = "or (batch, heads_q), for slopes of each batch entry";
      } else if (has_layout(id) && kTensors[id].form != Form::kOffset &&
                 kTensors[id].form != Form::kTable && kTensors[id].form != Form::kImage &&
                 kTensors[id].form != Form::kHeads) {
        remedy = kTensors[id].axis == Axis::kKey && p_.cache.begins
                     ? "k and v have rank 4, or 3 with the keys of all sequences"
                 : p_.axis_of(id).varlen
                     ? fmt::format("{} makes it varlen: leave that out for dense tensors", cu)
                     : fmt::format("for varlen tensors give {} too", cu);
      }
      return invalid("{}: {}.rank={} with shape {}, need rank {} {}; {}", op_, tensor_name(id),
                     tensor(id).rank, tuple_text(tensor(id).shape, tensor(id).rank), need.rank,
                     names_text(need), remedy);
    }
    return {};
  }

  // q, k, v (and cu_seqlens), or x, define the dimensions; others are then checked against them.
  void read_dims() {
    if (first_ == kX) {
      const fa3_tensor& x = tensor(kX);
      p_.batch = p_.q.varlen ? tensor(kCuSeqlens).shape[0] - 1 : x.shape[0];
      p_.q.rows = x.shape[x.rank - 3];
      p_.heads_q = p_.heads_kv = x.shape[x.rank - 2];
      p_.head_dim_qk = p_.head_dim_v = x.shape[x.rank - 1];
      read_scale_shape(tensor(kScale), p_, kScale);
      return;
    }
    if (first_ == kOParts) {
      const fa3_tensor& o = tensor(kOParts);
      p_.parts = o.shape[0];
      p_.batch = p_.q.varlen ? 1 : o.shape[1];
      p_.q.rows = o.shape[o.rank - 3];
      p_.heads_q = p_.heads_kv = o.shape[o.rank - 2];
      p_.head_dim_qk = p_.head_dim_v = o.shape[o.rank - 1];
      return;
    }
    const fa3_tensor &q = tensor(kQ), &k = tensor(kK), &v = tensor(kV);
    p_.batch = p_.q.varlen ? tensor(kCuSeqlensQ).shape[0] - 1 : q.shape[0];
    p_.q.rows = q.shape[q.rank - 3];
    p_.heads_q = q.shape[q.rank - 2];
    p_.head_dim_qk = q.shape[q.rank - 1];
    p_.kv.rows = p_.cache.paged() ? rows_of_pages(p_.cache) : k.shape[k.rank - 3];
    p_.heads_kv = k.shape[k.rank - 2];
    p_.head_dim_v = v.shape[v.rank - 1];
    if (present(kKNew)) p_.fresh.rows = tensor(kKNew).shape[tensor(kKNew).rank - 3];
    p_.fresh.max_seqlen = p_.fresh.rows;
    for (const TensorId id : {kQScale, kKScale, kVScale}) read_scale_shape(tensor(id), p_, id);
  }

  Status check_dims() const {
    if (p_.batch < 0) {
      return invalid(
          "{}: {}.shape[0]=0, need batch + 1 ≥ 1 elements; for no sequences pass the one element 0",
          op_, tensor_name(cu_seqlens_of(kTensors[first_].axis)));
    }
    const AxisNames q = names_of(p_, first_), kv = names_of(p_, kK);
    const struct {
      const char* name;
      int64_t value, least, most;
    } limits[] = {
        {"parts", p_.parts, 0, kMaxExtent},
        {"batch", p_.batch, 0, kMaxExtent},
        {q.rows, p_.q.rows, 0, kMaxExtent},
        {kv.rows, p_.kv.rows, 0, kMaxExtent},
        {names_of(p_, kKNew).rows, p_.fresh.rows, 0, kMaxExtent},
        {q.heads, p_.heads_q, 0, kMaxExtent},
        {kv.heads, p_.heads_kv, 0, kMaxExtent},
        {q.columns, p_.head_dim_qk, 1, kMaxHeadDim},
        {names_of(p_, kV).columns, p_.head_dim_v, 1, kMaxHeadDim},
    };
    for (const auto& limit : limits) {
      if (limit.value < limit.least || limit.value > limit.most) {
        return invalid("{}: {}={}, need {}…{}; split the problem or correct the shape", op_,
                       limit.name, limit.value, limit.least, limit.most);
      }
    }
    // Zero KV heads can only serve zero query heads.
    if (p_.heads_kv == 0 ? p_.heads_q != 0 : p_.heads_q % p_.heads_kv != 0) {
      return invalid(
          "{}: heads_q={} is not a multiple of heads_kv={}; query head h reads KV head h / "
          "(heads_q / heads_kv); {}",
          op_, p_.heads_q, p_.heads_kv,
          fits_heads_first()
              ? "as (batch, heads, seqlen, head_dim) q and k would fit: if that is their order, "
                "exchange dimensions 1 and 2 in shape and stride of every tensor"
              : "correct the shape of q or of k and v");
    }
    return {};
  }

  // Whether the heads of dense q and k divide when dimensions 1 and 2 are exchanged.
  bool fits_heads_first() const {
    const fa3_tensor &q = tensor(kQ), &k = tensor(kK);
    return q.rank == 4 && k.rank == 4 && k.shape[1] > 0 && q.shape[1] % k.shape[1] == 0;
  }

  Status check_shapes() const {
    for (int i = 0; i < kTensorCount; ++i) {
      const TensorId id = TensorId(i);
      if (!present(id)) continue;
      const Dims need = expected_dims(p_, id, tensor(id));
      for (int d = 0; d < need.rank; ++d) {
        if (tensor(id).shape[d] == need.extent[d]) continue;
        return invalid(
            "{}: {}.shape[{}]={} disagrees with {}={}; got {}, need {} = {}{}; correct the one "
            "that is wrong",
            op_, tensor_name(id), d, tensor(id).shape[d], need.name[d], need.extent[d],
            tuple_text(tensor(id).shape, need.rank), names_text(need),
            tuple_text(need.extent, need.rank),
            kTensors[id].form == Form::kMask ? ", or 1 in any" : "");
      }
    }
    return {};
  }

  Status read_max_seqlens() {
    for (const auto& [name, given, axis] :
         {std::tuple(first_ == kQ ? "max_seqlen_q" : "max_seqlen", args_.max_seqlen_q, &p_.q),
          std::tuple("max_seqlen_kv", args_.max_seqlen_kv, &p_.kv)}) {
      if (given < 0)
        return invalid("{}: {}={} is negative; need ≥ 0 (0 = no bound known)", op_, name, given);
      const bool bounded = axis->varlen || (axis == &p_.kv && p_.cache.paged());
      axis->max_seqlen = bounded && given > 0 ? std::min(given, axis->rows) : axis->rows;
      const double rows = std::max(1.0 * p_.batch * std::max<int64_t>(axis->max_seqlen, 1),
                                   static_cast<double>(axis->rows));
      const double padded = rows * std::max(p_.heads_q, p_.heads_kv);
      if (padded > kMaxPaddedRows) {
        return invalid(
            "{}: batch={} sequences of up to {}={} rows, {} rows of the tensors, in {} heads are "
            "too many to plan for, need at most 2^49 in all; set {} to the longest sequence, or "
            "split the batch",
            op_, p_.batch, name, axis->max_seqlen, axis->rows, std::max(p_.heads_q, p_.heads_kv),
            name);
      }
    }
    return {};
  }

  Status read_scalars() {
    const double scale = p_.softmax_scale, cap = p_.softcap;
    if (!(std::fabs(scale) <= kMaxScale)) {
      return invalid(
          "{}: softmax_scale={}, need a finite number of at most 2^126 in size; 0 = 1/√head_dim_qk",
          op_, scale);
    }
    if (!(cap == 0 || (cap >= 1 / kMaxScale && cap <= kMaxScale))) {
      return invalid("{}: softcap={}, need 0 (off) or a finite number in 2^-126…2^126", op_, cap);
    }
    if (cap > 0 && std::fabs(scale) / cap > kMaxScale) {
      return invalid(
          "{}: softmax_scale={} over softcap={} exceeds 2^126; need numbers whose ratio f32 can "
          "hold",
          op_, scale, cap);
    }
    if (scale == 0) p_.softmax_scale = 1 / std::sqrt(static_cast<double>(p_.head_dim_qk));
    return {};
  }

  Status read_precision() {
    if (args_.precision < FA3_PRECISION_DEFAULT ||
        args_.precision > FA3_PRECISION_EIGHT_BIT_ACCURATE) {
      return invalid("{}: precision={} is unknown; need one of fa3_precision, 0…3", op_,
                     args_.precision);
    }
    p_.precision = fa3_precision(args_.precision);
    p_.rotation.seed = args_.seed;
    const int32_t dtype = tensor(kQ).dtype;
    if (p_.precision == FA3_PRECISION_DEFAULT) {
      if (args_.seed == 0) return {};
      return invalid("{}: precision_seed={} has no meaning with precision=0; need 0", op_,
                     args_.seed);
    }
    if (dtype == FA3_F16 || dtype == FA3_BF16) return {};
    return invalid(
        "{}: precision={} with q.dtype={}, need f16 or bf16; {}", op_, args_.precision,
        dtype_name(dtype),
        is_8_bit(dtype) ? "8-bit tensors are computed as they are: leave precision 0" : "cast it");
  }

  Status read_schedule() {
    for (const auto& [name, value] : {std::pair("deterministic", args_.deterministic),
                                      std::pair("batch_invariant", p_.batch_invariant)})
      if (value != 0 && value != 1)
        return invalid("{}: {}={} is unknown; need 0 or 1", op_, name, value);
    for (const auto& [name, value] :
         {std::pair("num_splits", p_.num_splits), std::pair("sm_margin", p_.sm_margin)})
      if (value < 0) return invalid("{}: {}={}, need 0 or more", op_, name, value);
    if (p_.batch_invariant == 1 && p_.num_splits != 0)
      return invalid("{}: num_splits={} with batch_invariant, need 0", op_, p_.num_splits);
    p_.deterministic = args_.deterministic == 1;
    return {};
  }

  void read_layouts() {
    for (int i = 0; i < kLayoutCount; ++i) {
      const TensorId id = TensorId(i);
      if (!present(id)) continue;
      p_.layout[i] = layout_of(id);
    }
  }

  // Does its first dimension count sequences?
  bool is_batched(TensorId id) const {
    switch (kTensors[id].form) {
      case Form::kSlopes:
        return tensor(id).rank == 2;
      case Form::kScale:
        return tensor(id).rank > 1 && !p_.block_of(scaled_by(id)).by_total_row;
      case Form::kOffset:
        return true;
      case Form::kTable:
      case Form::kHeads:
        return false;
      default:
        return !p_.axis_of(id).varlen;
    }
  }

  // (1), (batch, heads), (batch, heads, rows[, columns]) or (total, heads).
  void read_scale_strides(TensorId id, const std::array<int64_t, FA3_MAX_RANK>& stride,
                          Layout& layout) const {
    const bool by_total_row = p_.block_of(scaled_by(id)).by_total_row;
    if (by_total_row) layout.row = stride[0];
    if (tensor(id).rank > 1) layout.head = stride[1];
    if (tensor(id).rank > 2) layout.row = stride[2];
  }

  Layout layout_of(TensorId id) const {
    const auto stride = strides_of(tensor(id));
    const bool batched = is_batched(id);
    const bool of_parts = has_parts(kTensors[id].form);
    const int first = (batched ? 1 : 0) + (of_parts ? 1 : 0);  // dimension after batch
    Layout layout;
    layout.dtype = fa3_dtype(tensor(id).dtype);
    layout.batch = batched ? stride[of_parts ? 1 : 0] : 0;
    layout.part = of_parts ? stride[0] : 0;
    switch (kTensors[id].form) {
      case Form::kRows:
      case Form::kPartRows:
        layout.row = stride[first];
        layout.head = stride[first + 1];
        break;
      case Form::kLse:
      case Form::kPartLse:
        layout.head = stride[first];
        layout.row = stride[first + 1];
        break;
      case Form::kSlopes:
      case Form::kHeads:
        layout.head = stride[first];
        break;
      case Form::kIds:
      case Form::kTree:
      case Form::kTable:
        layout.row = stride[first];
        break;
      case Form::kMask:
        layout.head = stride[1];
        layout.row = stride[2];
        layout.column = stride[3];
        break;
      case Form::kScale:
        read_scale_strides(id, stride, layout);
        break;
      case Form::kOffset:
        layout.head = stride[1];
        break;
      case Form::kImage:  // dense, and of Problem::image
      case Form::kCuSeqlens:
      case Form::kSeqused:
      case Form::kPageTable:
        break;  // without strides
    }
    return layout;
  }

  const Args& args_;
  const char* op_;
  const TensorId first_;  // whose axis is p_.q
  Problem p_;
};

}  // namespace

Result<Problem> make_problem(const Args& args) { return ProblemMaker(args).make(); }

}  // namespace fa3
