// SPDX-License-Identifier: BSD-3-Clause
// shared_library.h — a shared library opened at run time, for good: libraries that start threads
// of their own, as CUDA's do, must not be unmapped.
#pragma once

#include <string>

#include "core/status.h"

namespace fa3 {

class SharedLibrary {
 public:
  // A file name alone is searched for as the system's loader does; a path is taken as it is.
  // UNSUPPORTED with the loader's reason.
  static Result<SharedLibrary> open(const std::string& name);

  // A library that is installed with this one: in own_folder(), in ../lib, or where the system
  // looks. UNSUPPORTED with the reason of each.
  static Result<SharedLibrary> open_beside(const std::string& file);

  // The loader's name of the file, with its folder where it is known.
  const std::string& path() const { return path_; }

  // The function's address. UNSUPPORTED naming library and function when there is none.
  Result<void*> find(const char* function) const;

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  void* handle_;
  std::string path_;
};

// The folder of the file that this code lies in: libfa3.so, or a program with it inside. "" when
// the loader does not say.
std::string own_folder();

}  // namespace fa3
