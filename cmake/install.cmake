# SPDX-License-Identifier: BSD-3-Clause
# What `cmake --install` lays down: library, headers, the command, a CMake package and a pkg-config file. All of it
# may be moved: paths inside are relative to where the files lie.
include(CMakePackageConfigHelpers)

install(TARGETS fa3 EXPORT fa3Targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/fa3/fa3.h include/fa3/fa3.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fa3)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET fa3_cli)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(fa3_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS fa3_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fa3)
install(EXPORT fa3Targets NAMESPACE fa3:: DESTINATION ${config_dir})
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
install(FILES ${PROJECT_BINARY_DIR}/fa3.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
