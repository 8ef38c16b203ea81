// SPDX-License-Identifier: BSD-3-Clause
// tuning_file.cpp — reads a tuning file.
#include "backend/tuning_file.h"

#include <fcntl.h>

#include <cerrno>
#include <optional>

#include "core/atomic_file.h"
#include "core/json.h"
#include "fa3/fa3.h"

namespace fa3 {
namespace {

constexpr uint64_t kMostBytes = 64 << 20;

template <class... Args>
Status refuse(const std::string& path, fmt::format_string<Args...> why, Args&&... args) {
  return invalid("environment: FA3_TUNING={}: {}; make it with `fa3 tune -o FILE`, or unset it",
                 path, fmt::format(why, std::forward<Args>(args)...));
}

Result<std::string> read_text(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe of that name would block until it has a writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.open()) return refuse(path, "cannot be opened: {}", system_error_text(errno));
  const std::optional<uint64_t> bytes = size_of(file);
  if (!bytes || *bytes > kMostBytes) return refuse(path, "is no file of at most 64 MiB");
  std::optional<std::string> text = read_part(file, 0, *bytes);
  if (!text) return refuse(path, "cannot be read");
  return *std::move(text);
}

// The text member of an object; nullptr where there is none.
const std::string* text_of(const Json& object, const char* name) {
  const Json* const member = object.find(name);
  return member == nullptr ? nullptr : member->text();
}

}  // namespace

Result<std::shared_ptr<const Tuning>> read_tuning(const std::string& path, const std::string& gpu,
                                                  const Logger& logger) {
  FA3_TRY(const std::string text, read_text(path));
  const std::optional<Json> json = Json::parse(text);
  const Json* const problems = json ? json->find("problems") : nullptr;
  const std::string* const made_for = json ? text_of(*json, "gpu") : nullptr;
  const std::string* const made_by = json ? text_of(*json, "fa3") : nullptr;
  const Json* const format = json ? json->find("fa3_tuning") : nullptr;
  if (format == nullptr || made_for == nullptr || made_by == nullptr)
    return refuse(path, "is not a tuning file: need an object with fa3_tuning, fa3, gpu, problems");
  // The rest of another version's file may be of another form.
  const std::string version = fa3_version();
  if ((!gpu.empty() && *made_for != gpu) || *made_by != version) {
    logger.log(FA3_LOG_WARNING,
               "context: FA3_TUNING={} is of fa3 {} on {}, here fa3 {} on {}: it is not used; tune "
               "again with `fa3 tune`",
               path, *made_by, *made_for, version, gpu);
    return std::shared_ptr<const Tuning>();
  }
  if (format->dump_line() != "1")
    return refuse(path, "fa3_tuning is {}, need 1", format->dump_line());
  if (problems == nullptr || !problems->is_array())
    return refuse(path, "is not a tuning file: need an array problems");
  auto tuning = std::make_shared<Tuning>();
  for (size_t i = 0; i < problems->items().size(); ++i) {
    const Json& entry = problems->items()[i];
    const std::string *const problem = text_of(entry, "problem"), *const row =
                                                                      text_of(entry, "row");
    if (problem == nullptr || row == nullptr)
      return refuse(path, "problems[{}] lacks the text problem or row", i);
    tuning->rows[*problem] = *row;
  }
  return std::shared_ptr<const Tuning>(std::move(tuning));
}

}  // namespace fa3
