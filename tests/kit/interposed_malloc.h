/* SPDX-License-Identifier: BSD-3-Clause
 * interposed_malloc.h — glibc's malloc and its kin, which fail where fails_now() says so. For one C
 * file of a program or of a preloaded library; that file defines, before it includes this,
 *     static int fails_now(void);   1, with errno set: this allocation fails */
#ifndef FA3_TESTS_KIT_INTERPOSED_MALLOC_H_
#define FA3_TESTS_KIT_INTERPOSED_MALLOC_H_

#include <errno.h>
#include <stddef.h>

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) { return fails_now() ? NULL : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) {
  return fails_now() ? NULL : __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) { return fails_now() ? NULL : __libc_realloc(old, bytes); }
void* memalign(size_t alignment, size_t bytes) {
  return fails_now() ? NULL : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** result, size_t alignment, size_t bytes) {
  void* const made = memalign(alignment, bytes);
  if (made == NULL) return ENOMEM;
  *result = made;
  return 0;
}

#endif /* FA3_TESTS_KIT_INTERPOSED_MALLOC_H_ */
