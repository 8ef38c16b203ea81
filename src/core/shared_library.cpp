// SPDX-License-Identifier: BSD-3-Clause
// shared_library.cpp — dlopen, dlsym and where a file was loaded from.
#include "core/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <new>

namespace fa3 {
namespace {

std::string last_error() {
  const char* text = dlerror();
  return text == nullptr ? "the loader gave no reason" : text;
}

// The loader reports it in no other way. Such a library may be there at the next call.
bool lacks_memory(const std::string& reason) {
  return reason.find(std::strerror(ENOMEM)) != std::string::npos ||
         reason.find("out of memory") != std::string::npos;
}

// The loader's path of the file that this code lies in; nullptr when it does not say.
const char* own_file() {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 ? nullptr : info.dli_fname;
}

// Where that path is relative, its folder as it is while this is loaded. The program may go to
// another folder later, whose files are not of this library.
struct FolderAtLoad {
  char path[PATH_MAX] = "";

  FolderAtLoad() noexcept {
    const char* const file = own_file();
    const char* const slash = file == nullptr || *file == '/' ? nullptr : std::strrchr(file, '/');
    if (slash == nullptr || slash - file >= PATH_MAX) return;
    char folder[PATH_MAX] = "";
    std::memcpy(folder, file, static_cast<size_t>(slash - file));
    if (realpath(folder, path) == nullptr) path[0] = '\0';
  }
};
const FolderAtLoad folder_at_load;

}  // namespace

Result<SharedLibrary> SharedLibrary::open(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string reason = last_error();
    if (lacks_memory(reason)) throw std::bad_alloc();
    return unsupported("{}", reason);
  }
  link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name != nullptr;
  return SharedLibrary(handle, known ? map->l_name : name);
}

Result<SharedLibrary> SharedLibrary::open_beside(const std::string& file) {
  std::string reasons;
  const std::string folder = own_folder();
  for (const std::string& path :
       {fmt::format("{}/{}", folder, file), fmt::format("{}/../lib/{}", folder, file), file}) {
    Result<SharedLibrary> library = open(path);
    if (library.ok()) return library;
    reasons += (reasons.empty() ? "" : "; ") + library.status().message;
  }
  return unsupported("{}", reasons);
}

Result<void*> SharedLibrary::find(const char* function) const {
  void* address = dlsym(handle_, function);
  if (address == nullptr) return unsupported("{} has no function {}", path_, function);
  return address;
}

std::string own_folder() {
  const char* const path = own_file();
  if (path == nullptr || *path != '/') return folder_at_load.path;
  const std::string file = path;
  return file.substr(0, file.rfind('/'));
}

}  // namespace fa3
