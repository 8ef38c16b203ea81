// SPDX-License-Identifier: BSD-3-Clause
// file_problem.cpp — from a file to the arguments of the library.
#include "file_problem.h"

#include <unistd.h>

#include <algorithm>

#include "error.h"
#include "tools/verify/tensor.h"

namespace fa3::cli {
namespace {

// The name of an optional tensor that is to be read; "" = none is.
std::string name_of(const tools::TensorFile& file, const OptionalName& name,
                    const char* default_name) {
  return name.value_or(file.find(default_name) == nullptr ? "" : default_name);
}

HostTensor load_integers(const tools::TensorFile& file, const OptionalName& given,
                         const char* default_name) {
  const std::string name = name_of(file, given, default_name);
  return name.empty() ? HostTensor{} : load_int32(file, name);
}

// Heads that do not divide, but would in the other order of dimensions: the order is the mistake.
void check_layout(const FileProblem& p) {
  if (p.q.shape.size() != 4 || p.k.shape.size() != 4) return;
  const auto divide = [&](int heads) {
    return p.k.shape[heads] > 0 && p.q.shape[heads] % p.k.shape[heads] == 0;
  };
  const int heads = p.heads_first ? 1 : 2, other = 3 - heads;
  if (divide(heads) || !divide(other)) return;
  fail(
      kBadInput,
      "q {} and k {} with --layout {}: {} query heads are not a multiple of {} KV heads; as {} the "
      "heads fit: give --layout {}",
      shape_text(p.q.shape), shape_text(p.k.shape), p.heads_first ? "bhsd" : "bshd",
      p.q.shape[heads], p.k.shape[heads],
      p.heads_first ? "(batch, seqlen, heads, head_dim)" : "(batch, heads, seqlen, head_dim)",
      p.heads_first ? "bshd" : "bhsd");
}

fa3_dtype output_dtype(const std::string& option, fa3_dtype input) {
  if (option != "input") return dtype_value(option);
  return verify::is_8_bit(input) ? FA3_BF16 : input;
}

// The size of the blocks that n elements make `count` of; −1 = several would.
int64_t block_size(int64_t n, int64_t count) {
  if (count <= 1) return 0;
  const int64_t least = (n + count - 1) / count, most = (n + count - 2) / (count - 1) - 1;
  return least >= most ? least : -1;
}

// What scales are of by their shape. Shapes that fit nothing are the library's to refuse.
// cu_seqlens, max_seqlen: of that tensor.
fa3_scale_block infer_block(const fa3_tensor& scale, const fa3_tensor& of,
                            const HostTensor& cu_seqlens, int64_t max_seqlen, const char* option) {
  const bool varlen = cu_seqlens.shape.size() == 1 && of.rank == 3;
  if (scale.rank == 3) return {1, 0};
  if (scale.rank == 2 && varlen) {
    const bool of_heads = scale.shape[0] == cu_seqlens.shape[0] - 1;
    const bool of_tokens = scale.shape[0] == of.shape[0];
    if (of_heads && of_tokens)
      fail(kBadInput, "{}: scales of heads and of tokens have this shape; say which, head or 1",
           option);
    return {of_tokens ? 1 : 0, 0};
  }
  if (scale.rank != 4) return {};
  const int64_t tokens = of.shape[of.rank - 3];
  const int64_t longest = varlen && max_seqlen > 0 ? std::min(max_seqlen, tokens) : tokens;
  const int64_t columns = of.shape[of.rank - 1];
  const int64_t rows = block_size(longest, scale.shape[2]);
  const int64_t cols = block_size(columns, scale.shape[3]);
  if (rows < 0 || cols < 0)
    fail(kBadInput,
         "{}: the scales have {} blocks of {} rows and {} of {} columns, which leaves their size "
         "open; name it, e.g. 64 or 64x32",
         option, scale.shape[2], longest, scale.shape[3], columns);
  return {static_cast<int32_t>(rows), static_cast<int32_t>(cols)};
}

// In a type that goes with q. No option casts it: F64 becomes F32.
HostTensor load_mask(const tools::TensorFile& file, const std::string& name, fa3_dtype of_q) {
  const tools::TensorInfo* const info = file.find(name);
  if (info != nullptr && info->dtype == tools::DType::kI64)
    fail(kBadInput,
         "{}: element type I64, need BOOL, or F32, F16, BF16, F64, which are added to the score; "
         "write it anew as one of them",
         name);
  const bool wide = info != nullptr && info->dtype == tools::DType::kF64;
  HostTensor mask = load(file, name, wide ? FA3_F32 : FA3_DTYPE_NONE);
  if (mask.dtype != FA3_BOOL && mask.dtype != of_q) mask = load(file, name, FA3_F32);
  return mask;
}

// A mask or its gradient as the library takes it: dimensions that are left out in front are 1.
fa3_tensor mask_view(HostTensor mask) {
  if (mask.present() && mask.shape.size() < 4)
    mask.shape.insert(mask.shape.begin(), 4 - mask.shape.size(), 1);
  return mask.view();
}

// Scales or offsets of an 8-bit tensor; models have tensors of these names for other purposes, so
// without 8 bits they are read only when asked for.
HostTensor load_for(const tools::TensorFile& file, const OptionalName& given,
                    const char* default_name, const HostTensor& of) {
  if (!given && !verify::is_8_bit(of.dtype)) return {};
  const std::string name = name_of(file, given, default_name);
  return name.empty() ? HostTensor{} : load(file, name, FA3_F32);
}

void load_scales(const tools::TensorFile& file, const FileOptions& o, FileProblem& p) {
  struct Row {
    const char *name, *option;
    const std::string& text;
    const OptionalName& given;
    const HostTensor& of;
    HostTensor& scale;
    fa3_scale_block& block;
  };
  const Row rows[] = {{"q_scale", "--q-scale", o.scales.q, o.q_scale, p.q, p.q_scale, p.q_block},
                      {"k_scale", "--k-scale", o.scales.k, o.k_scale, p.k, p.k_scale, p.k_block},
                      {"v_scale", "--v-scale", o.scales.v, o.v_scale, p.v, p.v_scale, p.v_block}};
  for (const Row& r : rows) {
    const verify::Scales named = scales_value(r.option, r.text);
    if (named.of == verify::Scales::Of::kNone) continue;
    r.scale = load_for(file, r.given, r.name, r.of);
    if (!r.scale.present()) {
      if (!r.text.empty())
        fail(kBadInput, "{}: got {}, but there are no scales; name their tensor with {}-name",
             r.option, r.text, r.option);
      continue;
    }
    if (r.scale.shape.empty()) r.scale.shape = {1};  // a scalar, as checkpoints have them
    const bool query = &r.of == &p.q;
    r.block = r.text.empty() ? infer_block(r.scale.view(), r.of.view(p.heads_first),
                                           query ? p.cu_seqlens_q : p.cu_seqlens_kv,
                                           query ? p.max_seqlen_q : p.max_seqlen_kv, r.option)
                             : verify::scale_block(named);
  }
  p.k_offset = load_for(file, o.k_offset, "k_offset", p.k);
  p.v_offset = load_for(file, o.v_offset, "v_offset", p.v);
}

// Of v's codes, with the number of its order of bytes in a tensor beside it.
void load_image(const tools::TensorFile& file, const OptionalName& given, FileProblem& p) {
  if (!given && p.v.dtype != FA3_F8_E4M3) return;
  const std::string name = name_of(file, given, "v_image");
  if (name.empty()) return;
  p.v_image = load(file, name, FA3_DTYPE_NONE);
  const std::string layout = name + "_layout";
  constexpr const char* kRemedy =
      "write both anew with fa3 quantize --v-image, or leave them out with --v-image-name \"\"";
  if (file.find(layout) == nullptr)
    fail(kBadInput, "{}: there is no tensor '{}' with the number of its order of bytes; {}", name,
         layout, kRemedy);
  const HostTensor number = load_int32(file, layout, kRemedy);
  if (verify::element_count(number.view()) != 1)
    fail(kBadInput, "{}: shape {}, need one element; {}", layout, shape_text(number.shape),
         kRemedy);
  p.v_image_layout = *static_cast<const int32_t*>(number.data.get());
}

template <class Args>
Args common_args(const FileProblem& p) {
  Args a = {};
  a.struct_size = sizeof a;
  a.q = p.q.view(p.heads_first);
  a.k = p.k.view(p.heads_first);
  a.v = p.v.view(p.heads_first);
  a.o = p.o.view(p.heads_first);
  a.lse = p.lse.view();
  a.cu_seqlens_q = p.cu_seqlens_q.view();
  a.cu_seqlens_kv = p.cu_seqlens_kv.view();
  a.seqused_q = p.seqused_q.view();
  a.seqused_kv = p.seqused_kv.view();
  a.alibi_slopes = p.alibi_slopes.view();
  a.sequence_ids_q = p.sequence_ids_q.view();
  a.sequence_ids_kv = p.sequence_ids_kv.view();
  a.max_seqlen_q = p.max_seqlen_q;
  a.max_seqlen_kv = p.max_seqlen_kv;
  a.mask = p.mask.kind;
  a.left = p.mask.left;
  a.right = p.mask.right;
  a.softmax_scale = p.softmax_scale;
  a.softcap = p.softcap;
  a.attn_mask = mask_view(p.attn_mask);
  if (p.top_left) a.mask_alignment = FA3_ALIGN_TOP_LEFT;
  return a;
}

// Of --dattn-mask: a gradient that there is.
void check_mask_gradient(const FileProblem& p) {
  if (!p.attn_mask.present())
    fail(kBadInput,
         "--dattn-mask: there is no attn_mask to have a gradient; name its tensor with "
         "--attn-mask-name or leave --dattn-mask out");
  if (p.attn_mask.dtype == FA3_BOOL)
    fail(kBadInput,
         "--dattn-mask: {} is a mask of BOOL, which has no gradient, need one that is added (F32, "
         "F16, BF16); leave --dattn-mask out",
         p.attn_mask.name);
}

void allocate_outputs(const FileOptions& options, bool backward, FileProblem& p) {
  const fa3_dtype out = output_dtype(options.out_dtype, p.q.dtype);
  std::vector<int64_t> shape = p.q.shape;
  shape.back() = p.v.shape.back();
  p.o = allocate("o", out, shape);
  const fa3_tensor q = p.q.view(p.heads_first);  // (batch, seqlen, heads, d) or (tokens, heads, d)
  const bool dense = q.rank == 4;
  p.lse = allocate("lse", FA3_F32,
                   dense ? std::vector<int64_t>{q.shape[0], q.shape[2], q.shape[1]}
                         : std::vector<int64_t>{q.shape[1], q.shape[0]});
  if (!backward) return;
  const fa3_dtype grad = output_dtype(options.grad_dtype, p.q.dtype);
  p.dq = allocate("dq", grad, p.q.shape);
  p.dk = allocate("dk", grad, p.k.shape);
  p.dv = allocate("dv", grad, p.v.shape);
  if (!options.gradients.dattn_mask) return;
  const fa3_dtype of_mask = options.grad_dtype == "input" ? p.attn_mask.dtype : grad;
  p.dattn_mask = allocate("dattn_mask", of_mask, p.attn_mask.shape);
}

}  // namespace

int64_t longest(const HostTensor& cu_seqlens) {
  if (!cu_seqlens.present() || cu_seqlens.shape.size() != 1) return 0;
  const auto* cu = static_cast<const int32_t*>(cu_seqlens.data.get());
  int64_t most = 0;
  for (int64_t b = 0; b + 1 < cu_seqlens.shape[0]; ++b) {
    if (cu[b] < 0 || cu[b + 1] < cu[b]) return 0;
    most = std::max(most, int64_t{cu[b + 1]} - cu[b]);
  }
  return most;
}

void check_rank(const HostTensor& t) {
  if (t.shape.size() == 3 || t.shape.size() == 4) return;
  fail(kBadInput,
       "tensor '{}': shape {}, need rank 4 (batch, seqlen, heads, head_dim) or, varlen, 3 (tokens, "
       "heads, head_dim)",
       t.name, shape_text(t.shape));
}

void add_type_options(Parser& parser, FileOptions& o) {
  parser.group("Input");
  parser.text(
      "--dtype", o.dtype, "TYPE",
      "Type to cast q, k, v (and do) to on load: file (none), f32, f16, bf16; F64 needs a cast",
      {"file", "f32", "f16", "bf16"});
  parser.text("--out-dtype", o.out_dtype, "TYPE",
              "Type of o: input (that of q; bf16 for 8 bits), f32; for 8 bits also f16",
              {"input", "f32", "f16", "bf16"});
  parser.text("--grad-dtype", o.grad_dtype, "TYPE",
              "Type of dq, dk, dv, dattn_mask: input (that of q, of attn_mask), f32",
              {"input", "f32"});
  add_scale_options(parser, o.scales, "[by the shape of q_scale, where that leaves no choice]");
}

void add_layout_option(Parser& parser, FileOptions& o) {
  parser.text("--layout", o.layout, "NAME",
              "Order of rank-4 tensors, read and written: bshd (batch, seqlen, heads, head_dim) or "
              "bhsd (batch, heads, seqlen, head_dim); taken by strides, not copied",
              {"bshd", "bhsd"});
}

void add_tensor_options(Parser& parser, FileOptions& o) {
  parser.group(kTensorGroup);
  const auto name = [&](const char* option, auto& value, const char* help) {
    parser.any_text(option, value, "NAME", help);
  };
  name("--q-name", o.q, "Queries");
  name("--k-name", o.k, "Keys");
  name("--v-name", o.v, "Values");
  name("--do-name", o.dout, "Gradient of o, for --backward");
  name("--dlse-name", o.dlse, "Gradient of lse, for --backward [dlse if in the file]; \"\" = none");
  name("--cu-seqlens-q-name", o.cu_seqlens_q,
       "First row of each varlen query sequence and the end, I32 or I64 (batch + 1) [cu_seqlens_q "
       "if in the file]; \"\" = none");
  name("--cu-seqlens-kv-name", o.cu_seqlens_kv, "The same for keys [cu_seqlens_kv if in the file]");
  name("--seqused-q-name", o.seqused_q,
       "Queries that count per sequence, I32 or I64 (batch) [seqused_q if in the file]; \"\" = "
       "none");
  name("--seqused-kv-name", o.seqused_kv, "The same for keys [seqused_kv if in the file]");
  name("--alibi-slopes-name", o.alibi_slopes,
       "ALiBi: slope*distance is subtracted from a score; (heads_q) or (batch, heads_q) "
       "[alibi_slopes if in the file]; \"\" = none");
  name("--sequence-ids-q-name", o.sequence_ids_q,
       "Ids, I32 or I64 (batch, seqlen) or varlen (tokens): a query sees keys of its own only "
       "[sequence_ids_q if in the file]; \"\" = none");
  name("--sequence-ids-kv-name", o.sequence_ids_kv,
       "The same for keys [sequence_ids_kv if in the file]");
  name("--attn-mask-name", o.attn_mask,
       "Mask (batch, heads_q, seqlen_q, seqlen_kv), 1 in any or left out in front; BOOL: false "
       "hides a key; else it is added to the score [attn_mask if in the file]; \"\" = none");
  name("--q-scale-name", o.q_scale,
       "Scales of 8-bit q, F32; of what: --q-scale [q_scale if in the file and q has 8 bits]; \"\" "
       "= none");
  name("--k-scale-name", o.k_scale, "The same for k [k_scale]");
  name("--v-scale-name", o.v_scale, "The same for v [v_scale]");
  name("--k-offset-name", o.k_offset,
       "Offsets of 8-bit k, F32 (batch, heads_kv, head_dim) [k_offset if in the file and k has 8 "
       "bits]; \"\" = none");
  name("--v-offset-name", o.v_offset, "The same for v [v_offset]");
  name(
      "--v-image-name", o.v_image,
      "The codes of v again, in tiles that kernels of Hopper GPUs (--backend cuda, sim) read in "
      "place of v, as fa3 quantize --v-image writes them, with NAME_layout [v_image if in the file "
      "and v is of F8_E4M3]; \"\" = none");
  parser.whole("--max-seqlen-q", o.max_seqlen_q,
               "Upper bound of the lengths of varlen query sequences, in tokens; 0 = the longest");
  parser.whole("--max-seqlen-kv", o.max_seqlen_kv, "The same for keys");
  parser.flag("--mmap", o.mmap, "Map the file instead of reading it; it must not change meanwhile");
}

void check_output(const std::string& path, bool json) {
  if (path != kStandardStream) return;
  if (json)
    fail(kUsage,
         "--json: would print beside the tensors, which -o - writes to stdout; leave one "
         "of the two out");
  if (isatty(STDOUT_FILENO))
    fail(kUsage,
         "-o: - is stdout, and that is a terminal; send it to a file or a program, or name "
         "a file");
}

fa3_forward_args FileProblem::forward_args() const {
  auto a = common_args<fa3_forward_args>(*this);
  a.q_scale = q_scale.view();
  a.k_scale = k_scale.view();
  a.v_scale = v_scale.view();
  a.k_offset = k_offset.view();
  a.v_offset = v_offset.view();
  a.q_block = q_block;
  a.k_block = k_block;
  a.v_block = v_block;
  a.v_image = v_image.view();
  a.v_image_layout = v_image_layout;
  a.precision = precision;
  a.precision_seed = precision_seed;
  return a;
}

fa3_backward_args FileProblem::backward_args() const {
  fa3_backward_args a = common_args<fa3_backward_args>(*this);
  a.dout = dout.view(heads_first);
  a.dlse = dlse.view();
  a.dq = dq.view(heads_first);
  a.dk = dk.view(heads_first);
  a.dv = dv.view(heads_first);
  a.dattn_mask = mask_view(dattn_mask);
  a.deterministic = deterministic;
  return a;
}

tools::TensorFile open_file(const FileOptions& options) {
  const tools::Access access = options.mmap ? tools::Access::kMap : tools::Access::kRead;
  if (options.path != kStandardStream) return tools::TensorFile::open(options.path, access);
  if (isatty(STDIN_FILENO))
    fail(kUsage,
         "-: stdin is a terminal, need a file or a pipe with tensors; name a file, or send "
         "one here with <");
  return tools::TensorFile::read(STDIN_FILENO, "stdin", access);
}

FileProblem load_problem(const tools::TensorFile& file, const FileOptions& options,
                         const ScoreOptions& score, bool backward) {
  FileProblem p;
  p.mask = parse_mask(score);
  p.softmax_scale = score.softmax_scale;
  p.softcap = score.softcap;
  p.top_left = score.top_left;
  p.heads_first = options.layout == "bhsd";
  p.deterministic = options.gradients.deterministic;
  p.precision = precision_value(options.precision.name);
  p.precision_seed = static_cast<uint64_t>(options.precision.seed);
  p.max_seqlen_q = options.max_seqlen_q;
  p.max_seqlen_kv = options.max_seqlen_kv;

  const fa3_dtype cast = options.dtype == "file" ? FA3_DTYPE_NONE : dtype_value(options.dtype);
  p.q = load(file, options.q, cast);
  p.k = load(file, options.k, cast);
  p.v = load(file, options.v, cast);
  for (const HostTensor* t : {&p.q, &p.k, &p.v}) check_rank(*t);
  check_layout(p);
  p.cu_seqlens_q = load_integers(file, options.cu_seqlens_q, "cu_seqlens_q");
  p.cu_seqlens_kv = load_integers(file, options.cu_seqlens_kv, "cu_seqlens_kv");
  if (p.max_seqlen_q == 0) p.max_seqlen_q = longest(p.cu_seqlens_q);
  if (p.max_seqlen_kv == 0) p.max_seqlen_kv = longest(p.cu_seqlens_kv);
  p.seqused_q = load_integers(file, options.seqused_q, "seqused_q");
  p.seqused_kv = load_integers(file, options.seqused_kv, "seqused_kv");
  load_scales(file, options, p);
  load_image(file, options.v_image, p);
  const std::string slopes = name_of(file, options.alibi_slopes, "alibi_slopes");
  if (!slopes.empty()) p.alibi_slopes = load(file, slopes, FA3_F32);
  p.sequence_ids_q = load_integers(file, options.sequence_ids_q, "sequence_ids_q");
  p.sequence_ids_kv = load_integers(file, options.sequence_ids_kv, "sequence_ids_kv");
  const std::string mask = name_of(file, options.attn_mask, "attn_mask");
  if (!mask.empty()) p.attn_mask = load_mask(file, mask, p.q.dtype);
  if (options.gradients.dattn_mask) check_mask_gradient(p);
  if (backward) {
    // dout has the type of o, which a cast of the inputs changes too.
    p.dout = load(file, options.dout,
                  cast == FA3_DTYPE_NONE ? cast : output_dtype(options.out_dtype, cast));
    const std::string dlse = name_of(file, options.dlse, "dlse");
    if (!dlse.empty()) p.dlse = load(file, dlse, FA3_F32);
  }
  allocate_outputs(options, backward, p);
  return p;
}

}  // namespace fa3::cli
