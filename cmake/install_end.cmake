# SPDX-License-Identifier: BSD-3-Clause
# Runs inside cmake --install, after all files are installed: leaves the manifest that scripts/uninstall reads, and sees
# to it that the loader finds the library, or says what to do.

# What an older installation in the same place has left belongs to it as well.
set(fa3_manifest "${CMAKE_INSTALL_PREFIX}/${fa3_doc_dir}/install_manifest.txt")
set(fa3_lines ${fa3_new_dirs})
if(EXISTS "$ENV{DESTDIR}${fa3_manifest}")
  file(STRINGS "$ENV{DESTDIR}${fa3_manifest}" fa3_old_lines)
  list(APPEND fa3_lines ${fa3_old_lines})
endif()
foreach(file ${CMAKE_INSTALL_MANIFEST_FILES} "${fa3_manifest}")
  file(RELATIVE_PATH line "${fa3_root}" "${file}")
  list(APPEND fa3_lines "${line}")
endforeach()
list(SORT fa3_lines)
list(REMOVE_DUPLICATES fa3_lines)
list(JOIN fa3_lines "\n" fa3_text)
file(WRITE "$ENV{DESTDIR}${fa3_manifest}" "${fa3_text}\n")
list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${fa3_manifest}")

set(fa3_lib "${CMAKE_INSTALL_PREFIX}/${fa3_lib_dir}")
if(NOT "$ENV{DESTDIR}" STREQUAL "")
  message(STATUS "fa3: staged in $ENV{DESTDIR}; run ldconfig where it is unpacked")
  return()
endif()

# The folders that the loader searches, by ldconfig -v without its changes (-N, -X).
find_program(FA3_LDCONFIG ldconfig PATHS /sbin /usr/sbin)
set(fa3_searched "")
if(FA3_LDCONFIG)
  execute_process(COMMAND ${FA3_LDCONFIG} -v -N -X OUTPUT_VARIABLE fa3_searched ERROR_QUIET)
endif()
get_filename_component(fa3_real_lib "${fa3_lib}" REALPATH)
set(fa3_is_searched FALSE)
string(REGEX MATCHALL "(^|\n)/[^:\n]+" fa3_searched "${fa3_searched}")
foreach(dir ${fa3_searched})
  string(STRIP "${dir}" dir)
  get_filename_component(dir "${dir}" REALPATH)
  if(dir STREQUAL fa3_real_lib)
    set(fa3_is_searched TRUE)
  endif()
endforeach()
execute_process(COMMAND id -u OUTPUT_VARIABLE fa3_user OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT fa3_is_searched)
  message(STATUS "fa3: the loader does not search ${fa3_lib}. Programs find ${fa3_soname} there when linked\n"
    "   with:            -Wl,-rpath,'${fa3_lib}'\n"
    "   or started with: LD_LIBRARY_PATH='${fa3_lib}'\n"
    "   and builds by:   PKG_CONFIG_PATH='${fa3_lib}/pkgconfig' or -DCMAKE_PREFIX_PATH='${fa3_root}'\n"
    "   The command ${CMAKE_INSTALL_PREFIX}/${fa3_bin_dir}/fa3 runs as it is.")
elseif(fa3_user STREQUAL "0")
  execute_process(COMMAND ${FA3_LDCONFIG} RESULT_VARIABLE fa3_status)
  if(fa3_status EQUAL 0)
    message(STATUS "fa3: ran ldconfig; the loader finds ${fa3_soname} in ${fa3_lib}")
  else()
    message(WARNING "fa3: ${FA3_LDCONFIG} failed (${fa3_status}); until it runs, programs do not find ${fa3_soname}")
  endif()
else()
  message(STATUS "fa3: the loader finds ${fa3_soname} in ${fa3_lib} once root has run: ldconfig")
endif()
