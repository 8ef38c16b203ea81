// SPDX-License-Identifier: BSD-3-Clause
// shared_library.cpp — dlopen, dlsym and where a file was loaded from.
#include "core/shared_library.h"

#include <dlfcn.h>
#include <link.h>

namespace fa3 {
namespace {

std::string last_error() {
  const char* text = dlerror();
  return text == nullptr ? "the loader gave no reason" : text;
}

}  // namespace

Result<SharedLibrary> SharedLibrary::open(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return unsupported("{}", last_error());
  link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name != nullptr;
  return SharedLibrary(handle, known ? map->l_name : name);
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
