// SPDX-License-Identifier: BSD-3-Clause
// problem.h — attention problems made from a few numbers and a seed, and the command that repeats.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/fields.h"
#include "tools/verify/scales.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {

// Layouts of tensors in memory.
enum class Layout {
  kDense,        // (batch, seqlen, heads, head_dim)
  kHeadsFirst,   // (batch, heads, seqlen, head_dim) in memory; varlen: (heads, total, head_dim)
  kSeqFirst,     // (seqlen, batch, heads, head_dim) in memory; varlen: as kDense
  kPadded,       // kDense with unused elements after each head
  kInterleaved,  // q, k, v one after another along heads in one tensor, dq, dk, dv in another;
                 // needs seqlen_q = seqlen_kv (or equal varlen) and head_dim_qk = head_dim_v
  kBroadcast,    // k and v the same for all batch entries (stride 0); needs dense keys
};

// "dense", "heads_first", "seq_first", "padded", "interleaved", "broadcast"
const char* layout_name(Layout layout);

// "auto", "cpu", "reference", "cuda", "sim", as --backend takes them; "unknown"
const char* backend_name(int32_t backend);

// A problem. The comment after each field is its flag of `fa3 check`.
struct Config {
  bool backward = false;    // --backward
  int32_t dtype = FA3_F32;  // --dtype: F32, F16, BF16; forward also F8_E4M3, I8
  int32_t v_dtype = 0;      // --v-dtype: of v where q and k are I8: F8_E4M3 (also for 0), F16, BF16
  int32_t kv_dtype = 0;     // --kv-dtype: of k and v, F8_E4M3 beside F32, F16, BF16; 0 = dtype
  int32_t out_dtype = 0;    // --out-dtype: of o, dout, dq, dk, dv; 0 = dtype, else F32. Where dtype
                            // has 8 bits, 0 = BF16, else F16, F32
  Scales q_scale{}, k_scale{}, v_scale{};  // --q-scale, --k-scale, --v-scale: of 8-bit tensors
  bool k_offset = false;                   // --k-offset: of 8-bit k
  bool v_offset = false;                   // --v-offset: of 8-bit v
  int64_t batch = 1;                       // --batch
  int64_t heads_q = 1;                     // --heads-q
  int64_t heads_kv = 1;                    // --heads-kv
  int64_t seqlen_q = 1;                    // --seqlen-q, dense queries
  int64_t seqlen_kv = 1;                   // --seqlen-kv, dense keys
  int64_t head_dim_qk = 64;                // --head-dim
  int64_t head_dim_v = 64;                 // --head-dim-v
  // Varlen rows of these lengths, one per batch entry; {} = dense.
  std::vector<int64_t> varlen_q{};   // --varlen-q N,N,…
  std::vector<int64_t> varlen_kv{};  // --varlen-kv N,N,…
  int64_t spare_q = 0;               // --spare-q: varlen rows after the last sequence
  int64_t spare_kv = 0;              // --spare-kv
  // Rows that count, one number per batch entry; {} = all.
  std::vector<int64_t> seqused_q{};   // --seqused-q N,N,…
  std::vector<int64_t> seqused_kv{};  // --seqused-kv N,N,…
  fa3_mask mask = FA3_MASK_FULL;      // --causal, --window L,R
  int64_t left = 0;
  int64_t right = 0;
  double softmax_scale = 0;  // --softmax-scale; 0 = default
  double softcap = 0;        // --softcap
  // --alibi: slopes 2^(-8i/heads_q) for the i-th query head from 1; other ones for each batch entry
  // where seed / 2 is odd.
  bool alibi = false;
  // --sequence-ids N: documents of random lengths in each sequence, at the same fractions of
  // queries and keys; 0 = none. Rows of no sequence have the id of a document.
  int64_t sequence_ids = 0;
  bool scattered_ids = false;  // --scattered-ids: any row of any document, and queries of none
  // --attn-mask: BOOL, F32 or dtype, 0 = none. Of blocks that are hidden, that are not and that
  // mix both, of rows that see nothing; added values are normal, seeds 2 mod 3 hide nothing.
  int32_t attn_mask = 0;
  // --mask-dims: the dimensions of batch, heads, queries and keys in which its values differ; odd
  // seeds expand it in the others (stride 0), even ones give extent 1.
  std::string mask_dims = "bhqk";
  bool dattn_mask = false;  // --dattn-mask: backward with the gradient of attn_mask
  // --with NAME …: optional inputs, and outputs of a forward, by the names of their fields, in the
  // shape that the library publishes and of F32, where the field has more types also of dtype: in
  // odd seeds; their gradients, where they have some, too. Values are normal, those of sinks 5 +
  // 3·normal or −inf, those of tree_mask any bits.
  std::vector<std::string> with{};
  // Caches. --page-size: pages in random order; --kv-slots: of k and v, 0 = none; --kv-begin: keys
  // begin at rows of the seed; --packed-kv: of a tensor of rank 3, of which sequences share rows.
  int64_t page_size = 0;
  int64_t kv_slots = 0;
  bool kv_begin = false;
  bool packed_kv = false;
  bool own_pages = false;  // --own-pages: no page of two sequences
  // --append N,N,…: of the keys of each sequence the last so many are new, {} = none; --packed-new:
  // packed; --rotary-dim: they and the queries are rotated, by random angles, with --rotary-layout
  // 1 neighbouring columns. Odd seeds have positions of their own, 3 mod 4 odd addresses; tables
  // are of F32, the dtype or F16.
  std::vector<int64_t> append{};
  bool packed_new = false;
  int64_t rotary_dim = 0;
  // --num-splits, --sm-margin: what numbers() lists, by the names of their fields.
  std::map<std::string, double> numbers{};
  bool top_left = false;       // --top-left: positions from the first query and key
  bool lse = true;             // --no-lse: forward without LSE
  bool dlse = false;           // --dlse: backward with a gradient of LSE
  bool deterministic = false;  // --deterministic: backward
  double magnitude = 1;  // --magnitude: standard deviation of q; large: one key takes nearly all
  Layout layout = Layout::kDense;  // --layout
  int64_t alignment = 0;           // --alignment: of q, k, v, o in bytes; 0 = of an element
  uint64_t seed = 0;               // --seed
};

// `fa3 check …` with all sizes and every flag that is not at its default. backend: a name
// as of --backend; "" = none.
std::string replay_command(const Config& config, const std::string& backend = "");

// "" when the fields fit each other, else what does not. The library itself judges everything else.
std::string contradiction(const Config& config);

// The extents of attn_mask: 1 where its values do not differ. {} = none. max_seqlen_kv: as for
// scale_shape.
std::vector<int64_t> mask_shape(const Config& config, int64_t max_seqlen_kv);

// The type of an optional input that Config::with draws, and of its gradient.
int32_t dtype_of_field(const Config& config, const fa3_field& field, bool gradient);

// The extents of a tensor whose shape is made of the sizes of a problem; {} = of others too.
std::vector<int64_t> shape_of_field(const Config& config, const fa3_field& field);

int32_t dtype_of_k(const Config& config);
int32_t dtype_of_v(const Config& config);
int32_t dtype_of_out(const Config& config);

// Scales and offset of q, k or v.
enum class Operand { kQ, kK, kV };
Scales scales_of(const Config& config, Operand operand);  // never kDefault
bool has_offset(const Config& config, Operand operand);
// {} = none. max_seqlen: the bound that the arguments give, 0 = none.
std::vector<int64_t> scale_shape(const Config& config, Operand operand, int64_t max_seqlen);
std::vector<int64_t> offset_shape(const Config& config, Operand operand);

// A problem's tensors. Inputs are drawn from the seed (normal, rounded to the type), guards and
// padding are NaN, outputs NaN. In a backward problem o and lse are inputs and start as NaN as
// well: run the forward first.
//
// Values of 8-bit tensors are as those of any type. Each scale is what the largest element of its
// block needs, times 1 to 4: whoever takes the wrong one gets wrong values. Scales of blocks
// without elements are NaN. I8 has no NaN: −128 stands in rows that nothing may read.
struct Tensors {
  Tensor q, k, v, o, lse, dout, dlse, dq, dk, dv;
  Tensor q_scale, k_scale, v_scale, k_offset, v_offset;
  Tensor cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv;
  Tensor alibi_slopes, sequence_ids_q, sequence_ids_kv;
  Tensor attn_mask, dattn_mask;
  Tensor page_table, kv_batch_idx, kv_begin;
  Tensor k_new, v_new, cu_seqlens_new, rotary_cos, rotary_sin, rotary_position;
  std::map<std::string, Tensor, std::less<>> with;  // Config::with

  // What there is after appending. rotated: rows of k, by the index of their first element.
  struct {
    Tensor q, k, v, seqused_kv;
    std::set<Index> rotated;
  } after;

  // By the name of its field; nullptr = there is none.
  const Tensor* find(const std::string& name) const;
};

// Throws std::invalid_argument with contradiction(config) unless that is "".
Tensors make_tensors(const Config& config);

fa3_forward_args forward_args(const Config& config, const Tensors& tensors);
fa3_backward_args backward_args(const Config& config, const Tensors& tensors);

// The scalars of either struct but for the bounds of lengths.
template <class Args>
void set_scalars(const Config& c, Args& args) {
  args.mask = c.mask;
  args.left = c.left;
  args.right = c.right;
  args.softmax_scale = c.softmax_scale;
  args.softcap = c.softcap;
  args.mask_alignment = c.top_left ? FA3_ALIGN_TOP_LEFT : FA3_ALIGN_BOTTOM_RIGHT;
  for (const auto& [name, value] : c.numbers)
    if (const fa3_field* const f = find_field(op_of<Args>(), name)) set_number(args, *f, value);
}

// Normal deviates, the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits();                             // uniform
  double uniform();                            // in (0, 1)
  double normal();                             // mean 0, variance 1
  int64_t between(int64_t low, int64_t high);  // low ≤ result ≤ high

 private:
  uint64_t state_;
};

}  // namespace fa3::verify
