// SPDX-License-Identifier: BSD-3-Clause
// file_problem.cpp — from a file to the arguments of the library.
#include "file_problem.h"

#include <unistd.h>

#include <algorithm>

#include "error.h"
#include "tools/verify/fields.h"
#include "tools/verify/tensor.h"

namespace fa3::cli {
namespace {

using verify::fields;

// Names in files differ from those of fields here.
std::string default_name(const std::string& field) { return field == "dout" ? "do" : field; }

// The option that names the tensor of a field.
std::string option_of(const std::string& field) {
  std::string name = default_name(field);
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name + "-name";
}

// What a file gives: the forward's inputs and what the backward adds to them.
std::vector<fa3_field> inputs() {
  std::vector<fa3_field> all;
  for (const fa3_op op : {FA3_OP_FORWARD, FA3_OP_BACKWARD})
    for (const fa3_field& f : fields(op))
      if (verify::is_tensor(f) && !verify::is_output(f) && !verify::is_for_appending(f) &&
          (op == FA3_OP_FORWARD || verify::find_field(FA3_OP_FORWARD, f.name) == nullptr))
        all.push_back(f);
  return all;
}

// The tensors of a problem while they are read.
class Loader {
 public:
  Loader(const tools::TensorFile& file, const FileOptions& options, FileProblem& problem)
      : file_(file), options_(options), p_(problem) {}

  void load_all(bool backward);

 private:
  const OptionalName& given(const std::string& field) const {
    static const OptionalName kNone;
    const auto at = options_.names.find(field);
    return at == options_.names.end() ? kNone : at->second;
  }
  // The name of an optional tensor that is to be read; "" = none is.
  std::string name_of(const std::string& field) const {
    return given(field).value_or(file_.find(field) == nullptr ? "" : field);
  }
  HostTensor load_required(const std::string& field, fa3_dtype cast) const {
    return load(file_, given(field).value_or(default_name(field)), cast);
  }
  HostTensor load_optional(const fa3_field& field) const;
  HostTensor load_mask(const std::string& name) const;
  void load_scales();
  void load_image();

  const tools::TensorFile& file_;
  const FileOptions& options_;
  FileProblem& p_;
};

// Heads that do not divide, but would in the other order of dimensions: the order is the mistake.
void check_layout(const FileProblem& p) {
  const std::vector<int64_t>&q = p.at("q").shape, &k = p.at("k").shape;
  if (q.size() != 4 || k.size() != 4) return;
  const auto divide = [&](int heads) { return k[heads] > 0 && q[heads] % k[heads] == 0; };
  const int heads = p.heads_first ? 1 : 2, other = 3 - heads;
  if (divide(heads) || !divide(other)) return;
  fail(
      kBadInput,
      "q {} and k {} with --layout {}: {} query heads are not a multiple of {} KV heads; as {} the "
      "heads fit: give --layout {}",
      shape_text(q), shape_text(k), p.heads_first ? "bhsd" : "bshd", q[heads], k[heads],
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
HostTensor Loader::load_mask(const std::string& name) const {
  const tools::TensorInfo* const info = file_.find(name);
  if (info != nullptr && info->dtype == tools::DType::kI64)
    fail(kBadInput,
         "{}: element type I64, need BOOL, or F32, F16, BF16, F64, which are added to the score; "
         "write it anew as one of them",
         name);
  const bool wide = info != nullptr && info->dtype == tools::DType::kF64;
  HostTensor mask = load(file_, name, wide ? FA3_F32 : FA3_DTYPE_NONE);
  if (mask.dtype != FA3_BOOL && mask.dtype != p_.at("q").dtype) mask = load(file_, name, FA3_F32);
  return mask;
}

// Of an input of several types.
bool takes_f32(const fa3_field& f) { return std::string_view(f.types).starts_with("f32"); }

// Scales and offsets belong to a tensor of 8 bits; models have tensors of these names for other
// purposes, so without 8 bits they are read only when asked for.
HostTensor Loader::load_optional(const fa3_field& f) const {
  if (f.of != nullptr && !given(f.name) && !verify::is_8_bit(p_.at(f.of).dtype)) return {};
  const std::string name = name_of(f.name);
  if (name.empty()) return {};
  if (f.dtype == FA3_I32) return load_int32(file_, name);
  if (verify::has_pairs(f)) return load_mask(name);
  const tools::TensorInfo* const info = file_.find(name);
  const bool wide = info != nullptr && info->dtype == tools::DType::kF64;
  const bool narrows = wide && f.dtype == FA3_DTYPE_NONE && takes_f32(f);
  return load(file_, name, narrows ? FA3_F32 : fa3_dtype(f.dtype));
}

// A mask or its gradient as the library takes it: dimensions that are left out in front are 1.
fa3_tensor mask_view(HostTensor mask) {
  if (mask.present() && mask.shape.size() < 4)
    mask.shape.insert(mask.shape.begin(), 4 - mask.shape.size(), 1);
  return mask.view();
}

void Loader::load_scales() {
  struct Row {
    const char *of, *option;
    const std::string& text;
    fa3_scale_block& block;
  };
  const Row rows[] = {{"q", "--q-scale", options_.scales.q, p_.q_block},
                      {"k", "--k-scale", options_.scales.k, p_.k_block},
                      {"v", "--v-scale", options_.scales.v, p_.v_block}};
  for (const Row& r : rows) {
    const std::string name = std::string(r.of) + "_scale";
    HostTensor& scale = p_.tensors[name];
    const verify::Scales named = scales_value(r.option, r.text);
    if (named.of == verify::Scales::Of::kNone) {
      scale = {};
      continue;
    }
    if (!scale.present()) {
      if (!r.text.empty())
        fail(kBadInput, "{}: got {}, but there are no scales; name their tensor with {}-name",
             r.option, r.text, r.option);
      continue;
    }
    if (scale.shape.empty()) scale.shape = {1};  // a scalar, as checkpoints have them
    const bool query = *r.of == 'q';
    r.block = r.text.empty() ? infer_block(scale.view(), p_.at(r.of).view(p_.heads_first),
                                           p_.at(query ? "cu_seqlens_q" : "cu_seqlens_kv"),
                                           query ? p_.max_seqlen_q : p_.max_seqlen_kv, r.option)
                             : verify::scale_block(named);
  }
}

// v_image is of v's codes, with the number of its order of bytes in a tensor beside it.
void Loader::load_image() {
  const HostTensor& image = p_.at("v_image");
  if (!image.present()) return;
  const std::string layout = image.name + "_layout";
  constexpr const char* kRemedy =
      "write both anew with fa3 quantize --v-image, or leave them out with --v-image-name \"\"";
  if (file_.find(layout) == nullptr)
    fail(kBadInput, "{}: there is no tensor '{}' with the number of its order of bytes; {}",
         image.name, layout, kRemedy);
  const HostTensor number = load_int32(file_, layout, kRemedy);
  if (verify::element_count(number.view()) != 1)
    fail(kBadInput, "{}: shape {}, need one element; {}", layout, shape_text(number.shape),
         kRemedy);
  p_.v_image_layout = *static_cast<const int32_t*>(number.data.get());
}

template <class Args>
Args common_args(const FileProblem& p) {
  Args a = {};
  a.struct_size = sizeof a;
  verify::for_each_tensor(a, [&](const fa3_field& f, fa3_tensor& view) {
    const HostTensor& t = p.at(f.name);
    view =
        verify::has_pairs(f) ? mask_view(t) : t.view(p.heads_first && verify::has_rows_of_heads(f));
  });
  a.max_seqlen_q = p.max_seqlen_q;
  a.max_seqlen_kv = p.max_seqlen_kv;
  a.mask = p.mask.kind;
  a.left = p.mask.left;
  a.right = p.mask.right;
  a.softmax_scale = p.softmax_scale;
  a.softcap = p.softcap;
  if (p.top_left) a.mask_alignment = FA3_ALIGN_TOP_LEFT;
  return a;
}

// Of --dattn-mask: a gradient that there is.
void check_mask_gradient(const FileProblem& p) {
  const HostTensor& mask = p.at("attn_mask");
  if (!mask.present())
    fail(kBadInput,
         "--dattn-mask: there is no attn_mask to have a gradient; name its tensor with "
         "--attn-mask-name or leave --dattn-mask out");
  if (mask.dtype == FA3_BOOL)
    fail(kBadInput,
         "--dattn-mask: {} is a mask of BOOL, which has no gradient, need one that is added (F32, "
         "F16, BF16); leave --dattn-mask out",
         mask.name);
}

// Rank 0 means "absent" to the library; a scalar would be passed over without a word.
void check_no_scalar(const HostTensor& t, const fa3_field& f) {
  if (!t.present() || !t.shape.empty() || verify::has_pairs(f)) return;
  fail(kBadInput, "{}: a scalar, need {}; write it anew in that shape, or leave it out with {}",
       t.name, f.shape, fmt::format("{}-name \"\"", verify::option_of(f)));
}

void allocate_outputs(const FileOptions& options, bool backward, FileProblem& p) {
  const HostTensor &q = p.at("q"), &k = p.at("k"), &v = p.at("v");
  const auto output = [&](const char* name, fa3_dtype dtype, const std::vector<int64_t>& shape) {
    p.tensors[name] = allocate(name, dtype, shape);
  };
  std::vector<int64_t> shape = q.shape;
  shape.back() = v.shape.back();
  output("o", output_dtype(options.out_dtype, q.dtype), shape);
  const fa3_tensor x = q.view(p.heads_first);  // (batch, seqlen_q, heads, d) or (tokens, heads, d)
  output("lse", FA3_F32,
         x.rank == 4 ? std::vector<int64_t>{x.shape[0], x.shape[2], x.shape[1]}
                     : std::vector<int64_t>{x.shape[1], x.shape[0]});
  if (!backward) return;
  const fa3_dtype grad = output_dtype(options.grad_dtype, q.dtype);
  output("dq", grad, q.shape);
  output("dk", grad, k.shape);
  output("dv", grad, v.shape);
  for (const fa3_field& f : inputs()) {
    const HostTensor& input = p.at(f.name);
    const fa3_field* const gradient = verify::gradient_of(f.name);
    if (gradient == nullptr || !input.present()) continue;
    if (verify::has_pairs(*gradient) && !options.gradients.dattn_mask) continue;  // not for free
    output(gradient->name, options.grad_dtype == "input" ? input.dtype : grad, input.shape);
  }
}

// The help of the option that names the tensor of a field.
std::string help_of(const fa3_field& f) {
  const std::string types = f.dtype == FA3_I32 ? "I32 or I64 " : "";
  const std::string varlen = f.varlen_shape == nullptr ? "" : fmt::format(" or {}", f.varlen_shape);
  const std::string text = fmt::format("{}, {}{}{}", f.help, types, f.shape, varlen);
  const std::string name = default_name(f.name);
  const bool of_gradient = verify::find_field(FA3_OP_FORWARD, f.name) == nullptr;
  if (!verify::is_optional(f))
    return fmt::format("{}{} [{}]", text, of_gradient ? ", for --backward" : "", name);
  const std::string when = f.of == nullptr ? "" : fmt::format(" and {} has 8 bits", f.of);
  return fmt::format("{} [{} if in the file{}]; \"\" = none", text, name, when);
}

void Loader::load_all(bool backward) {
  const fa3_dtype cast = options_.dtype == "file" ? FA3_DTYPE_NONE : dtype_value(options_.dtype);
  for (const char* name : {"q", "k", "v"}) check_rank(p_.tensors[name] = load_required(name, cast));
  check_layout(p_);
  for (const fa3_field& f : inputs()) {
    const bool of_gradient = verify::find_field(FA3_OP_FORWARD, f.name) == nullptr;
    if (!verify::is_optional(f) || (of_gradient && !backward)) continue;
    p_.tensors[f.name] = load_optional(f);
  }
  if (p_.max_seqlen_q == 0) p_.max_seqlen_q = longest(p_.at("cu_seqlens_q"));
  if (p_.max_seqlen_kv == 0) p_.max_seqlen_kv = longest(p_.at("cu_seqlens_kv"));
  load_scales();
  load_image();
  for (const fa3_field& f : inputs()) check_no_scalar(p_.at(f.name), f);
  if (options_.gradients.dattn_mask) check_mask_gradient(p_);
  // dout has the type of o, which a cast of the inputs changes too.
  if (backward)
    p_.tensors["dout"] = load_required(
        "dout", cast == FA3_DTYPE_NONE ? cast : output_dtype(options_.out_dtype, cast));
  allocate_outputs(options_, backward, p_);
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
  for (const fa3_field& f : inputs())
    parser.any_text(option_of(f.name).c_str(), o.names[f.name], "NAME", help_of(f).c_str());
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

const HostTensor& FileProblem::at(const std::string& field) const {
  static const HostTensor kAbsent;
  const auto found = tensors.find(field);
  return found == tensors.end() ? kAbsent : found->second;
}

std::vector<const HostTensor*> FileProblem::outputs() const {
  std::vector<const HostTensor*> all;
  for (const fa3_op op : {FA3_OP_FORWARD, FA3_OP_BACKWARD})
    for (const fa3_field& f : fields(op))
      if (verify::is_output(f) && at(f.name).present()) all.push_back(&at(f.name));
  return all;
}

fa3_forward_args FileProblem::forward_args() const {
  auto a = common_args<fa3_forward_args>(*this);
  a.q_block = q_block;
  a.k_block = k_block;
  a.v_block = v_block;
  a.v_image_layout = v_image_layout;
  a.precision = precision;
  a.precision_seed = precision_seed;
  return a;
}

fa3_backward_args FileProblem::backward_args() const {
  auto a = common_args<fa3_backward_args>(*this);
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
  Loader(file, options, p).load_all(backward);
  return p;
}

}  // namespace fa3::cli
