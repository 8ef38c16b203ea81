// SPDX-License-Identifier: BSD-3-Clause
// shared_library.cpp — dlopen, dlsym and where a file was loaded from.
#include "core/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cerrno>
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
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash);
}

}  // namespace fa3
