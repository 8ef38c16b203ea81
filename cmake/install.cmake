# SPDX-License-Identifier: BSD-3-Clause
# What `cmake --install` lays down: libraries, headers, the command, a CMake package, a pkg-config file and a list of
# all that, for scripts/uninstall. All of it may be moved: paths inside are relative to where the files lie.
include(CMakePackageConfigHelpers)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fa3)
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(include_dir ${CMAKE_INSTALL_INCLUDEDIR}/fa3)
set(man_dir ${CMAKE_INSTALL_MANDIR}/man1)
set(bash_dir ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
set(fish_dir ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# The scripts see these variables; the first one runs before a file is installed, the last one after all of them.
install(CODE "
  set(fa3_bin_dir \"${CMAKE_INSTALL_BINDIR}\")
  set(fa3_lib_dir \"${CMAKE_INSTALL_LIBDIR}\")
  set(fa3_doc_dir \"${CMAKE_INSTALL_DOCDIR}\")
  set(fa3_dirs \"${CMAKE_INSTALL_BINDIR};${config_dir};${pc_dir};${include_dir};${CMAKE_INSTALL_DOCDIR};${man_dir}\")
  list(APPEND fa3_dirs \"${bash_dir}\" \"${fish_dir}\")
  set(fa3_soname \"libfa3.so.${PROJECT_VERSION_MAJOR}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_begin.cmake)

install(TARGETS fa3 EXPORT fa3Targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES
  include/fa3/fa3.h include/fa3/base.h include/fa3/combine.h include/fa3/context.h include/fa3/info.h include/fa3/jit.h
  include/fa3/quantize.h include/fa3/selftest.h
  include/fa3/fa3.hpp include/fa3/conformance.h
  DESTINATION ${include_dir})
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(installed fa3 fa3_conformance)

# Opened on demand. In a list of targets of its own, so that a package may leave it out: find_package looks for every
# file of a list.
install(TARGETS fa3_conformance EXPORT fa3ConformanceTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

if(TARGET fa3_cli)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(fa3_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS fa3_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  list(APPEND installed fa3_cli)
  set(manual ${PROJECT_BINARY_DIR}/tools/cli/manual)
  install(FILES ${manual}/fa3.1 DESTINATION ${man_dir})
  install(FILES ${manual}/fa3 DESTINATION ${bash_dir})
  install(FILES ${manual}/fa3.fish DESTINATION ${fish_dir})
endif()

# libfa3 opens it on demand, too. The tests configure it too, perhaps without having built it.
if(TARGET fa3_sim)
  install(TARGETS fa3_sim LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
  list(APPEND installed fa3_sim)
endif()
add_custom_target(fa3_installed DEPENDS ${installed})  # what `make install` brings up to date

install(EXPORT fa3Targets NAMESPACE fa3:: DESTINATION ${config_dir})
install(EXPORT fa3ConformanceTargets NAMESPACE fa3:: DESTINATION ${config_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/fa3Config.cmake.in
  ${PROJECT_BINARY_DIR}/fa3Config.cmake INSTALL_DESTINATION ${config_dir})
# Below 1.0 a minor version may break the ABI, from 1.0 on a major one.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fa3ConfigVersion.cmake COMPATIBILITY ${compatibility})
install(FILES ${PROJECT_BINARY_DIR}/fa3Config.cmake ${PROJECT_BINARY_DIR}/fa3ConfigVersion.cmake
  DESTINATION ${config_dir})

file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/fa3.pc.in ${PROJECT_BINARY_DIR}/fa3.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fa3.pc DESTINATION ${pc_dir})

install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_end.cmake)
