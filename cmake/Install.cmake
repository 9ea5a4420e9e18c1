# `cmake --install build --prefix P` puts the program, the libraries and the headers there; another project then says
# find_package(heddle) and links heddle::ir, heddle::passes and so on.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY HEDDLE_LIBRARIES)
if(HEDDLE_TORCH)
  list(APPEND libraries heddle_torch)
endif()
install(TARGETS heddle_options ${libraries} EXPORT heddleTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT heddleTargets NAMESPACE heddle:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/heddle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "test" EXCLUDE)

configure_package_config_file(cmake/heddleConfig.cmake.in ${PROJECT_BINARY_DIR}/generated/heddleConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/heddleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/heddleConfig.cmake ${PROJECT_BINARY_DIR}/generated/heddleConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)
