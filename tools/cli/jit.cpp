// SPDX-License-Identifier: BSD-3-Clause
// jit.cpp — `fa3 jit`: GPU kernels compiled ahead of time.
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands.h"
#include "error.h"
#include "outline.h"
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

// The text of the file of programs; nothing for "all".
std::optional<std::string> programs_of(const std::string& name) {
  if (name == "all") return std::nullopt;
  return read_text(name);
}

const char* pointer(const std::optional<std::string>& text) {
  return text ? text->c_str() : nullptr;
}

// Throws unless OK; what is wrong in a list of programs is said of its file.
void check_list(fa3_status status, const std::string& name) {
  if (status == FA3_INVALID_ARGUMENT && name != "all") {
    fail(kBadInput, "{}: {}", name, fa3_last_error());
  }
  check_status(status);
}

void warm(fa3_context* context, const JitOptions& o) {
  const std::optional<std::string> programs = programs_of(*o.warm);
  const char* report = nullptr;
  check_list(fa3_jit_warm(context, pointer(programs), &report), *o.warm);
  const Json rows = Json::parse(report);
  if (o.json) return print(rows.dump(2) + "\n");
  for (const Json& row : rows) {
    print(fmt::format("{:<9} {:>8.1f} ms {:>9}  {}\n", row.value("source", "?"),
                      row.value("ms", 0.0), size_text(row.value("bytes", int64_t{0})),
                      row.value("expression", "?")));
  }
}

void pack(fa3_context* context, const JitOptions& o) {
  if (o.pack->empty()) fail(kUsage, "--pack is empty; name the file to write");
  const std::string list = o.programs.value_or("all");
  const std::optional<std::string> programs = programs_of(list);
  check_list(fa3_jit_pack(context, pointer(programs), o.pack->c_str()), list);
  if (o.json) {
    print(Json{{"pack", *o.pack}}.dump(2) + "\n");
  } else {
    print(fmt::format("{} written; use it with FA3_KERNEL_PACK or the option kernel_pack\n",
                      *o.pack));
  }
}

void clear(fa3_context* context, const JitOptions& o) {
  check_status(fa3_jit_clear(context));
  if (o.json) {
    print("{\"cleared\": true}\n");
  } else {
    print("the cache of kernels is empty\n");
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
  if (o.json) return print(document.dump(2) + "\n");
  for (const char* name : {"driver", "nvrtc", "cache", "pack"}) {
    print(place_text(name, document[name]));
  }
  for (const Json& program : document["programs"]) {
    const Json& kept = program["kept"];
    print(fmt::format("{:<7} {}\n", kept.is_null() ? "-" : kept.get<std::string>(),
                      program.value("expression", "")));
  }
}

int jit(const JitOptions& o) {
  if (int{o.list} + int{o.clear} + int{o.warm.has_value()} + int{o.pack.has_value()} != 1) {
    fail(kUsage, "need exactly one of --warm, --pack, --list, --clear; see fa3 jit --help");
  }
  if (o.programs && !o.pack) {
    fail(kUsage, "--programs goes with --pack; --warm and --list take no other list");
  }
  const Session session("auto", 0, false);
  fa3_context* const context = session.context();
  if (o.warm) warm(context, o);
  if (o.pack) pack(context, o);
  if (o.list) list(context, o);
  if (o.clear) clear(context, o);
  return kDone;
}

}  // namespace

Action add_jit(Parser& parser) {
  auto o = std::make_shared<JitOptions>();
  parser.group("What to do");
  parser.text(
      "--warm", o->warm, "FILE",
      "Compile the kernels that this JSON file lists, or 'all' that the library knows, into "
      "the cache");
  parser.text("--pack", o->pack, "FILE", "Write kernels into one file, for machines without NVRTC");
  parser.flag("--list", o->list, "Show driver, compiler, cache and kernels");
  parser.flag("--clear", o->clear, "Empty the cache");
  parser.group("Options");
  parser.text("--programs", o->programs, "FILE",
              "With --pack: the JSON file that lists the kernels, or 'all' (the default)");
  parser.flag("--json", o->json, "Print JSON on stdout instead of text");
  return [o] { return jit(*o); };
}

}  // namespace fa3::cli
