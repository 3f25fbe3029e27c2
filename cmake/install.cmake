# What `make install` puts where: header, libraries, and how pkg-config and CMake find them. The command, its manual
# page and completion are installed by cli/.
include(CMakePackageConfigHelpers)

install(FILES include/megamoe.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS megamoe EXPORT megamoe-shared)
install(TARGETS megamoe_static EXPORT megamoe-static)

# ${pcfiledir} keeps the file right when the installed tree is moved, as under DESTDIR.
file(RELATIVE_PATH pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
configure_file(cmake/megamoe.pc.in ${PROJECT_BINARY_DIR}/megamoe.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/megamoe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/megamoe)
configure_package_config_file(cmake/megamoeConfig.cmake.in ${PROJECT_BINARY_DIR}/megamoeConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/megamoeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/megamoeConfig.cmake ${PROJECT_BINARY_DIR}/megamoeConfigVersion.cmake
        DESTINATION ${package_dir})
foreach(kind shared static)
  install(EXPORT megamoe-${kind} NAMESPACE megamoe:: FILE megamoe-${kind}.cmake DESTINATION ${package_dir})
endforeach()

# In a wheel the library lies beside the Python modules, which load it by that name.
if(SKBUILD)
  install(FILES $<TARGET_FILE:megamoe> DESTINATION megamoe RENAME libmegamoe.so COMPONENT python)
endif()
