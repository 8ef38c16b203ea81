// SPDX-License-Identifier: BSD-3-Clause
// jit.cpp — `fa3 jit`: GPU kernels compiled ahead of time.
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "commands.h"
#include "error.h"
#include "json_text.h"
#include "output.h"
#include "session.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

struct JitOptions {
  std::optional<std::string> warm;
  std::optional<std::string> pack;
  std::optional<std::string> programs;
  bool list = false;
  bool clear = false;
  bool json = false;
};

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || std::filesystem::is_directory(path))
    fail(kBadInput, "{}: cannot be read; name a file that exists", path);
  return text.str();
}

// Whether these are names of kernels, of which the library says what is wrong with them.
bool is_names(const std::string& text) {
  std::error_code ignored;  // names may be longer than those of files
  return !text.ends_with(".json") && !std::filesystem::exists(text, ignored);
}

// The kernels that "fwd/d64,samples" or a file lists.
class Kernels {
 public:
  explicit Kernels(const std::string& list) : list_(list) {
    if (!is_names(list)) {
      json_ = read_text(list);
      return;
    }
    std::istringstream parts(list);
    for (std::string name; std::getline(parts, name, ',');) names_.push_back(name);
    for (const std::string& name : names_) pointers_.push_back(name.c_str());
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  void warm(fa3_context* context, const char** report) const {
    check(json_ ? fa3_jit_warm(context, json_->c_str(), report)
                : fa3_jit_warm_kernels(context, pointers_.data(), pointers_.size(), report));
  }
  void pack(fa3_context* context, const std::string& path) const {
    check(json_ ? fa3_jit_pack(context, json_->c_str(), path.c_str())
                : fa3_jit_pack_kernels(context, pointers_.data(), pointers_.size(), path.c_str()));
  }

 private:
  // Throws unless OK; an error in a file names the file.
  void check(fa3_status status) const {
    if (status == FA3_INVALID_ARGUMENT && json_) fail(kBadInput, "{}: {}", list_, fa3_last_error());
    if (status == FA3_INVALID_ARGUMENT) fail(kUsage, "{}", fa3_last_error());
    check_status(status);
  }

  std::string list_;
  std::optional<std::string> json_;  // of a file; else names
  std::vector<std::string> names_;
  std::vector<const char*> pointers_;
};

// A kernel's name, else its C++ expression.
std::string title(const Json& program) {
  return program.value("name", program.value("expression", "?"));
}

void warm(Session& session, const JitOptions& o) {
  const Kernels kernels(*o.warm);
  const char* report = nullptr;
  session.progress().start("kernels");
  kernels.warm(session.context(), &report);
  session.progress().finish();
  const Json rows = Json::parse(report);
  if (o.json) return print(dump(rows, 2) + "\n");
  for (const Json& row : rows) {
    print_text(fmt::format("{:<9} {:>8.1f} ms {:>9}  {}\n", row.value("source", "?"),
                           row.value("ms", 0.0), size_text(row.value("bytes", int64_t{0})),
                           title(row)));
  }
}

void pack(Session& session, const JitOptions& o) {
  const Kernels kernels(o.programs.value_or("all"));
  session.progress().start("kernels");
  kernels.pack(session.context(), *o.pack);
  session.progress().finish();
  if (o.json) {
    print(dump(Json{{"pack", *o.pack}}, 2) + "\n");
  } else {
    print_text(fmt::format("{} written; use it with FA3_KERNEL_PACK or the option kernel_pack\n",
                           *o.pack));
  }
}

void clear(fa3_context* context, const JitOptions& o) {
  check_status(fa3_jit_clear(context));
  if (o.json) {
    print("{\"cleared\": true}\n");
  } else {
    print_text("the cache of kernels is empty\n");
  }
}

std::string kernels_text(int64_t count) {
  return fmt::format("{} kernel{}", count, count == 1 ? "" : "s");
}

// What is used, or why not.
std::string place_text(const std::string& name, const Json& place) {
  if (!place.value("usable", false)) {
    return fmt::format("{:<7} not available: {}\n", name, place.value("why", ""));
  }
  if (name == "driver") {
    return fmt::format("{:<7} CUDA {} ({})\n", name, place.value("cuda", ""),
                       place.value("library", ""));
  }
  if (name == "nvrtc") {
    return fmt::format("{:<7} {} ({})\n", name, place.value("version", ""),
                       place.value("library", ""));
  }
  if (name == "cache") {
    return fmt::format("{:<7} {}: {}, {} of {}\n", name, place.value("folder", ""),
                       kernels_text(place.value("entries", int64_t{0})),
                       size_text(place.value("bytes", int64_t{0})),
                       size_text(place.value("limit_bytes", int64_t{0})));
  }
  return fmt::format("{:<7} {}: {} by NVRTC {}\n", name, place.value("file", ""),
                     kernels_text(place.value("kernels", int64_t{0})), place.value("nvrtc", ""));
}

void list(fa3_context* context, const JitOptions& o) {
  const char* report = nullptr;
  check_status(fa3_jit_list(context, &report));
  const Json document = Json::parse(report);
  if (o.json) return print(dump(document, 2) + "\n");
  for (const char* name : {"driver", "nvrtc", "cache", "pack"}) {
    print_text(place_text(name, document[name]));
  }
  for (const Json& program : document["programs"]) {
    const Json& kept = program["kept"];
    print_text(
        fmt::format("{:<7} {}\n", kept.is_null() ? "-" : kept.get<std::string>(), title(program)));
  }
}

int jit(const JitOptions& o) {
  if (int{o.list} + int{o.clear} + int{o.warm.has_value()} + int{o.pack.has_value()} != 1) {
    fail(kUsage, "need exactly one of --warm, --pack, --list, --clear; see fa3 jit --help");
  }
  if (o.programs && !o.pack) {
    fail(kUsage, "--programs goes with --pack; --warm and --list take no other list");
  }
  Session session("auto", 0, !o.json);
  fa3_context* const context = session.context();
  if (o.warm) warm(session, o);
  if (o.pack) pack(session, o);
  if (o.list) list(context, o);
  if (o.clear) clear(context, o);
  return kDone;
}

}  // namespace

Action add_jit(Parser& parser) {
  auto o = std::make_shared<JitOptions>();
  parser.group("What to do");
  parser.text("--warm", o->warm, "KERNELS",
              "Compile kernels into the cache: names such as 'all', 'fwd', 'fwd/d128/bf16', "
              "'fwd/d80,fwd/d64/softcap', or a JSON file that lists them");
  parser.text("--pack", o->pack, "FILE", "Write kernels into one file, for machines without NVRTC");
  parser.flag("--list", o->list, "Show driver, compiler, cache and kernels");
  parser.flag("--clear", o->clear, "Empty the cache");
  parser.group("Options");
  parser.text("--programs", o->programs, "KERNELS",
              "With --pack: names or a JSON file, as --warm takes them [all]");
  parser.flag("--json", o->json, "Print JSON on stdout instead of text");
  return [o] { return jit(*o); };
}

}  // namespace fa3::cli
