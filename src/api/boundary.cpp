// SPDX-License-Identifier: BSD-3-Clause
// boundary.cpp — the texts that a thread keeps, and what exceptions mean to a C caller.
#include "api/boundary.h"

#include <pthread.h>

#include <array>
#include <memory>
#include <new>
#include <utility>

#include "core/static_tls.h"

namespace fa3 {
namespace {

constexpr const char kNoMemory[] =
    "out of memory: an allocation failed; free memory, or raise the limit of the process";

struct Texts {
  std::string error;
  std::array<std::string, static_cast<size_t>(Text::kCount)> other;
};

// Two words in the memory that every thread starts with. A thread_local object with a
// destructor, or one in memory that the loader allocates at its first use, would end the process
// where memory runs out.
#define FA3_STATIC_TLS __attribute__((tls_model("initial-exec")))
FA3_STATIC_TLS constinit thread_local Texts* texts = nullptr;
FA3_STATIC_TLS constinit thread_local const char* last_message = "";

void free_texts(void* of_thread) {
  delete static_cast<Texts*>(of_thread);
  texts = nullptr;
  last_message = "";
}

// Frees the texts of each thread that ends; at the end of the process, of the thread that ends it.
// Calls that come later still, of other destructors, get no texts but that of no memory.
class Cleaner {
 public:
  Cleaner() {
    usable_ = pthread_key_create(&key_, free_texts) == 0;
    touch_cxx_tls();
  }
  ~Cleaner() {
    if (usable_) pthread_key_delete(key_);
    usable_ = false;
    free_texts(texts);
  }
  Cleaner(const Cleaner&) = delete;
  Cleaner& operator=(const Cleaner&) = delete;

  // False where the system has no memory or no more keys.
  static bool watch(Texts* of_thread) {
    return usable_ && pthread_setspecific(key_, of_thread) == 0;
  }

 private:
  // Static: they are read when the object is gone.
  static inline constinit pthread_key_t key_{};
  static inline constinit bool usable_ = false;
};
const Cleaner cleaner;

Texts& texts_of_thread() {
  if (texts == nullptr) {
    auto made = std::make_unique<Texts>();
    if (!Cleaner::watch(made.get())) throw std::bad_alloc();
    texts = made.release();
  }
  return *texts;
}

fa3_status record_no_memory() noexcept {
  last_message = kNoMemory;
  return FA3_OUT_OF_MEMORY;
}

}  // namespace

const char* keep_text(Text which, std::string text) {
  std::string& kept = texts_of_thread().other[static_cast<size_t>(which)];
  kept = std::move(text);
  return kept.c_str();
}

fa3_status record(Status&& status) noexcept {
  if (status.ok()) return FA3_OK;
  try {
    std::string& kept = texts_of_thread().error;
    kept = std::move(status.message);
    last_message = kept.c_str();
    return status.code;
  } catch (...) {
    return record_no_memory();
  }
}

fa3_status record_exception() noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return record(Status(error.status()));
    } catch (const std::bad_alloc&) {
      return record_no_memory();
    } catch (const std::exception& error) {
      return record(
          {FA3_INTERNAL, fmt::format("internal: unexpected {}; please report it", error.what())});
    } catch (...) {
      return record({FA3_INTERNAL, "internal: unknown exception; please report it"});
    }
  } catch (...) {
    return record_no_memory();
  }
}

}  // namespace fa3

const char* fa3_last_error(void) { return fa3::last_message; }

const char* fa3_status_name(fa3_status status) {
  switch (status) {
    case FA3_OK:
      return "OK";
    case FA3_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case FA3_UNSUPPORTED:
      return "UNSUPPORTED";
    case FA3_WORKSPACE_TOO_SMALL:
      return "WORKSPACE_TOO_SMALL";
    case FA3_JIT_FAILED:
      return "JIT_FAILED";
    case FA3_CUDA_ERROR:
      return "CUDA_ERROR";
    case FA3_IO_ERROR:
      return "IO_ERROR";
    case FA3_OUT_OF_MEMORY:
      return "OUT_OF_MEMORY";
    case FA3_INTERNAL:
      return "INTERNAL";
    case FA3_CANCELLED:
      return "CANCELLED";
  }
  return "UNKNOWN";
}
