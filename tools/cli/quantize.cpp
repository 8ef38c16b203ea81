// SPDX-License-Identifier: BSD-3-Clause
// quantize.cpp — `fa3 quantize`: q, k and v of a file as codes, scales and means, in a file that
// `fa3 run` takes.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "commands.h"
#include "error.h"
#include "file_problem.h"
#include "interrupt.h"
#include "json_text.h"
#include "output.h"
#include "session.h"
#include "tools/verify/fields.h"
#include "tools/verify/tensor.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

struct QuantizeOptions {
  FileOptions file;
  SessionOptions session;
  ScaleOptions scales{"1", "head", "head"};
  std::string output;
  std::string qk = "i8", v = "f8_e4m3";
  std::optional<int64_t> hadamard;  // none = the largest
  int64_t seed = 0;
  bool no_means = false;
  std::string v_image;  // "KEYSxCOLUMNS", "" = none
  std::string rotary = "halves";
};

// One of q, k, v, and what it becomes.
struct Coded {
  HostTensor from, codes, scale, offset, cu_seqlens, seqused, position;
  HostTensor image, image_layout;
  std::string spec;  // of scale
  fa3_quantize_args args{};
};

HostTensor integers(const tools::TensorFile& file, const std::string& name) {
  return file.find(name) == nullptr ? HostTensor{} : load_int32(file, name);
}

// Rotary tables have no option that casts them: F64, which numpy makes, becomes F32.
HostTensor load_table(const tools::TensorFile& file, const std::string& name) {
  const tools::TensorInfo* const info = file.find(name);
  const bool wide = info != nullptr && info->dtype == tools::DType::kF64;
  return load(file, name, wide ? FA3_F32 : FA3_DTYPE_NONE);
}

verify::Scaled scaled_of(const fa3_quantize_args& args) {
  const fa3_tensor& x = args.x;
  verify::Scaled of{};
  of.varlen = args.cu_seqlens.rank == 1;
  of.batch = of.varlen ? args.cu_seqlens.shape[0] - 1 : x.shape[0];
  of.rows = x.shape[x.rank - 3];
  of.heads = of.heads_kv = x.shape[x.rank - 2];
  of.columns = x.shape[x.rank - 1];
  of.max_seqlen = args.max_seqlen > 0 ? std::min(args.max_seqlen, of.rows) : of.rows;
  return of;
}

// Keys and columns of a tile of v's image, as --v-image says.
std::pair<int64_t, int64_t> parse_tile(const std::string& text, int64_t head_dim) {
  constexpr int64_t kUnit = 32, kMost = 256;  // of fa3/quantize.h
  if (head_dim > kMost)
    fail(kUsage, "--v-image: got {} for v of head_dim={}, need at most {}; leave --v-image out",
         text, head_dim, kMost);
  const size_t cross = std::min(text.find('x'), text.size());
  const auto keys = parse_integer(text.substr(0, cross));
  const auto columns = parse_integer(text.substr(std::min(cross + 1, text.size())));
  const auto fits = [](const std::optional<int64_t>& n, int64_t least) {
    return n && *n >= least && *n <= kMost && *n % kUnit == 0;
  };
  if (fits(keys, kUnit) && fits(columns, std::max(head_dim, kUnit))) return {*keys, *columns};
  fail(kUsage,
       "--v-image: got '{}', need KEYSxCOLUMNS, multiples of {} up to {}, columns at least {}, the "
       "head_dim of v; fa3 explain --backend sim (or cuda) of the attention that is to read it "
       "names the tile under v_image",
       text, kUnit, kMost, head_dim);
}

// The image of v's codes, and the number of its order of bytes, which travels as a tensor too.
void add_image(const std::string& tile, Coded& c) {
  const verify::Scaled of = scaled_of(c.args);
  const auto [keys, columns] = parse_tile(tile, of.columns);
  std::vector<int64_t> shape{of.heads, of.rows / keys + of.batch, keys, columns};
  if (!of.varlen) shape = {of.batch, of.heads, (of.rows + keys - 1) / keys, keys, columns};
  c.image = allocate("v_image", FA3_F8_E4M3, shape);
  c.args.v_image = c.image.view();
  // Tiles in which no row counts are not written.
  std::memset(c.args.v_image.data, 0, static_cast<size_t>(verify::element_count(c.args.v_image)));
  c.args.v_image_layout = FA3_V_IMAGE_SM90;
  c.image_layout = allocate("v_image_layout", FA3_I32, {1});
  std::memcpy(c.image_layout.view().data, &c.args.v_image_layout, sizeof(int32_t));
}

// The tensor `name` of the file as an input and its outputs; absent where it stays as it is.
std::optional<Coded> load_input(const tools::TensorFile& file, const QuantizeOptions& o,
                                const std::string& name) {
  const bool query = name == "q", value = name == "v";
  const std::string type = value ? o.v : o.qk;
  if (file.find(name) == nullptr || type == "keep") return std::nullopt;
  const bool heads_first = o.file.layout == "bhsd";
  Coded c;
  c.from = load(file, name, o.file.dtype == "file" ? FA3_DTYPE_NONE : dtype_value(o.file.dtype));
  check_rank(c.from);
  const char* const cu = query ? "cu_seqlens_q" : "cu_seqlens_kv";
  c.cu_seqlens = integers(file, cu);
  if (c.cu_seqlens.present() && c.cu_seqlens.shape == std::vector<int64_t>{0})
    fail(kBadInput, "tensor '{}': shape (0), need batch + 1 ≥ 1 elements", cu);
  c.seqused = integers(file, query ? "seqused_q" : "seqused_kv");
  c.codes = allocate(name, dtype_value(type), c.from.shape);
  fa3_quantize_args& a = c.args;
  a.struct_size = sizeof a;
  a.x = c.from.view(heads_first);
  a.codes = c.codes.view(heads_first);
  a.cu_seqlens = c.cu_seqlens.view();
  a.seqused = c.seqused.view();
  a.max_seqlen = longest(c.cu_seqlens);
  const verify::Scaled of = scaled_of(a);
  const char* const option = query ? "--q-scale" : value ? "--v-scale" : "--k-scale";
  c.spec = query ? o.scales.q : value ? o.scales.v : o.scales.k;
  const verify::Scales scales = scales_value(option, c.spec);
  if (scales.of == verify::Scales::Of::kNone || scales.of == verify::Scales::Of::kGroups)
    fail(kUsage, "{}: got {}, need tensor, head or a block, e.g. 1, 64, 64x32", option, c.spec);
  c.scale = allocate(name + "_scale", FA3_F32, verify::scale_shape(scales, of));
  a.scale = c.scale.view();
  a.block = verify::scale_block(scales);
  if (!query && !o.no_means) {
    c.offset = allocate(name + "_offset", FA3_F32, {of.batch, of.heads, of.columns});
    a.offset = c.offset.view();
  }
  a.rotary_layout = o.rotary == "pairs" ? FA3_ROTARY_PAIRS : FA3_ROTARY_HALVES;
  a.seed = static_cast<uint64_t>(o.seed);
  if (value) {
    if (!o.v_image.empty()) add_image(o.v_image, c);
    return c;
  }
  const int64_t largest = of.columns & -of.columns;
  const int64_t block = o.hadamard.value_or(largest == 1 ? 0 : largest);
  if (block > of.columns)
    fail(kUsage, "--hadamard: got {}, need at most {}, the columns of {}", block, of.columns, name);
  a.hadamard = static_cast<int32_t>(block);
  c.position = integers(file, query ? "rotary_position_q" : "rotary_position_kv");
  a.rotary_position = c.position.view();
  return c;
}

// What `fa3 run` needs to read the codes again beyond the shapes of their scales.
std::string hint_of(const std::vector<Coded>& coded, const std::string& layout) {
  std::string options;
  bool dense = false;
  for (const Coded& c : coded) {
    const verify::Scaled of = scaled_of(c.args);
    const bool of_heads_or_tokens = of.varlen && c.args.scale.rank == 2 && of.batch == of.rows;
    dense = dense || !of.varlen;
    if (c.args.block.rows > 1 || c.args.block.cols > 0 || of_heads_or_tokens)
      options += fmt::format(" --{}-scale {}", c.codes.name, c.spec);
  }
  return options + (dense && layout != "bshd" ? " --layout " + layout : "");
}

// v as it is has to fit the codes of q and k.
void check_v(const tools::TensorFile& file, const QuantizeOptions& o) {
  const tools::TensorInfo* const v = file.find("v");
  if (!o.v_image.empty() && v == nullptr)
    fail(kBadInput, "--v-image: got {}, but {} has no v to make an image of; leave it out",
         o.v_image, o.file.path);
  if (v == nullptr || o.v != "keep") return;
  const bool i8 = o.qk == "i8", e4m3 = v->dtype == tools::DType::kF8E4M3;
  const bool is_16_bit = v->dtype == tools::DType::kF16 || v->dtype == tools::DType::kBF16;
  if (e4m3 || (i8 && is_16_bit)) return;
  fail(kBadInput, "--v-type: keep leaves v of a type that {} of q and k do not go with, need {}",
       o.qk, i8 ? "f16, bf16 or f8_e4m3" : "f8_e4m3");
}

// What a call takes besides q, k and v, as the file has it. Where one of these is kept in 8 bits,
// its scale and offset too, and its image.
std::vector<tools::Tensor> load_rest(const tools::TensorFile& file,
                                     const std::vector<Coded>& coded) {
  std::vector<std::string> names;
  for (const fa3_field& f : verify::fields(FA3_OP_FORWARD))
    if (f.role == FA3_FIELD_OPTIONAL_INPUT && f.of == nullptr && !verify::is_for_appending(f))
      names.push_back(f.name);
  for (const char* input : {"q", "k", "v"}) {
    const auto is_coded = [&](const Coded& c) { return c.codes.name == input; };
    if (file.find(input) == nullptr || std::any_of(coded.begin(), coded.end(), is_coded)) continue;
    names.push_back(input);
    const tools::DType dtype = file.find(input)->dtype;
    if (dtype != tools::DType::kF8E4M3 && dtype != tools::DType::kI8) continue;
    for (const char* of : {"_scale", "_offset"}) names.push_back(std::string(input) + of);
    if (*input == 'v') names.insert(names.end(), {"v_image", "v_image_layout"});
  }
  std::vector<tools::Tensor> rest;
  for (const std::string& name : names)
    if (file.find(name) != nullptr) rest.push_back(file.load(name));
  return rest;
}

int quantize(const QuantizeOptions& o) {
  check_output(o.output, o.session.json);
  if (!o.v_image.empty() && o.v == "keep")
    fail(kUsage, "--v-image: got {} beside --v-type keep, need codes of v; leave one of them out",
         o.v_image);
  const bool to_stdout = o.output == kStandardStream;
  const tools::TensorFile file = open_file(o.file);
  defer_interrupts();
  Session session(o.session.backend, o.session.threads, !o.session.quiet);
  std::vector<Coded> coded;
  for (const char* name : {"q", "k", "v"})
    if (std::optional<Coded> c = load_input(file, o, name)) coded.push_back(std::move(*c));
  if (coded.empty())
    fail(kBadInput, "{}: none of q, k, v to quantise; name the tensors so", o.file.path);

  check_v(file, o);

  HostTensor cos, sin;
  if (file.find("rotary_cos") != nullptr || file.find("rotary_sin") != nullptr) {
    cos = load_table(file, "rotary_cos");
    sin = load_table(file, "rotary_sin");
  }
  std::vector<tools::Tensor> tensors = load_rest(file, coded);
  std::optional<tools::TensorFileWriter> writer;
  if (!to_stdout) writer.emplace(o.output);
  for (Coded& c : coded)
    if (c.codes.name != "v" && cos.present())
      c.args.rotary_cos = cos.view(), c.args.rotary_sin = sin.view();
  std::vector<Question> problems;
  for (const Coded& c : coded) problems.push_back(c.args);
  session.prefer_gpu(problems);
  for (Coded& c : coded) {
    Prepared plan = session.prepare(c.args);
    session.upload(plan, c.args);
    session.run(plan, c.args, c.codes.name.c_str());
    session.download(plan);
  }
  stop_if_interrupted();

  for (const Coded& c : coded)
    for (const HostTensor* t : {&c.codes, &c.scale, &c.offset, &c.image, &c.image_layout})
      if (t->present()) tensors.push_back(t->file_tensor());

  Json json;
  std::string text;
  for (const Coded& c : coded) {
    const std::string turned =
        c.args.hadamard > 0 ? fmt::format(", turned in blocks of {}", c.args.hadamard) : "";
    text += fmt::format("{:9} {} from {}: scale {}{}{}{}\n", c.codes.name, tensor_text(c.codes),
                        verify::dtype_text(c.from.dtype), c.spec, turned,
                        c.args.rotary_cos.rank > 0 ? ", rotary" : "",
                        c.offset.present() ? ", less mean" : "");
    json[c.codes.name] = {{"dtype", verify::dtype_text(c.codes.dtype)},
                          {"shape", c.codes.shape},
                          {"scale", c.spec},
                          {"hadamard", c.args.hadamard},
                          {"rotary", c.args.rotary_cos.rank > 0},
                          {"less_mean", c.offset.present()}};
    if (!c.image.present()) continue;
    text += fmt::format("{:9} {}: the codes in tiles of {}, for kernels of Hopper GPUs\n",
                        c.image.name, tensor_text(c.image), o.v_image);
    json[c.codes.name]["v_image"] = {{"shape", c.image.shape}, {"tile", o.v_image}};
  }
  json["output"] = o.output;
  text += fmt::format("{:9} {}; to use it: fa3 run {}{} -o …\n", "wrote", o.output, o.output,
                      hint_of(coded, o.file.layout));
  std::string report;
  if (o.session.json)
    report = dump(json) + "\n";
  else if (!o.session.quiet && !to_stdout)
    report = as_shown(text);
  if (to_stdout)
    tools::write_tensors(STDOUT_FILENO, "stdout", tensors, file.metadata());
  else
    writer->commit(tensors, file.metadata());
  print(report);
  return kDone;
}

}  // namespace

Action add_quantize(Parser& parser) {
  auto o = std::make_shared<QuantizeOptions>();
  parser.required("input", o->file.path, "IN.safetensors",
                  "File with some of the tensors q, k, v; - = stdin");
  parser.required(
      "-o,--output", o->output, "OUT.safetensors",
      "Where to write the codes as q, k, v, with q_scale, k_scale, v_scale, k_offset, "
      "v_offset, with --v-image v_image; what cuts, slopes, ids and mask the input has, "
      "and its metadata; may be the input; - = stdout, which then has nothing else");
  parser.group("Codes");
  parser.text("--qk-type", o->qk, "TYPE", "Type of q and k: i8, f8_e4m3", {"i8", "f8_e4m3"});
  parser.text("--v-type", o->v, "TYPE", "Type of v: f8_e4m3, or keep", {"f8_e4m3", "keep"});
  parser.text("--q-scale", o->scales.q, "SPEC",
              "Elements of q that share a scale: tensor, head, R or RxC: blocks of R rows (tokens "
              "of a sequence; 0 = all) and C columns, e.g. 64, 64x32; 1 = each token");
  parser.text("--k-scale", o->scales.k, "SPEC", "The same for k");
  parser.text("--v-scale", o->scales.v, "SPEC", "The same for v");
  parser.flag("--no-means", o->no_means,
              "Leave the means of k and v in: codes of a block then depend on that block only");
  parser.text("--v-image", o->v_image, "KEYSxCOLUMNS",
              "Write v_image and v_image_layout too: the codes of v in tiles, which kernels of "
              "Hopper GPUs (--backend cuda, sim) load as they are; others read v. fa3 explain of "
              "the attention that is to read it names the tile under v_image, e.g. 128x64");
  parser.group("Rotation of q and k");
  parser.whole(
      "--hadamard", o->hadamard,
      "Columns that a Hadamard transform mixes, a power of two from 2; 0 = none [the largest "
      "that divides head_dim]");
  parser.whole("--seed", o->seed, "Of the signs before it");
  parser.text("--rotary-layout", o->rotary, "NAME",
              "Columns that rotary embedding pairs, where the file has rotary_cos and rotary_sin "
              "(positions, pairs): halves (i, i + pairs) or pairs (2i, 2i + 1)",
              {"halves", "pairs"});
  parser.group("Input");
  parser.text("--dtype", o->file.dtype, "TYPE", "Type to cast q, k, v to on load: file (none), f32",
              {"file", "f32"});
  add_layout_option(parser, o->file);
  parser.flag("--mmap", o->file.mmap,
              "Map the file instead of reading it; it must not change meanwhile");
  add_session_options(parser, o->session);
  return [o] { return quantize(*o); };
}

}  // namespace fa3::cli
