# `cmake --install build --prefix P` installs the program, the libraries and the headers. Another
# project then uses find_package(heddle) and links heddle::core_ir, heddle::compile_passes and so
# on. `--component program` (`make install`) leaves out the libraries and the headers, and so does the
# Debian package.
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

# The program prints the man page and the completions from its table of flags.
set(shells ${PROJECT_BINARY_DIR}/generated/shells)
install(CODE "
  file(MAKE_DIRECTORY \"${shells}\")
  foreach(page \"heddle.1|doc man\" \"heddle|completion bash\" \"_heddle|completion zsh\" \"heddle.fish|completion fish\")
    string(REGEX REPLACE \"[|].*\" \"\" file \"\${page}\")
    string(REGEX REPLACE \".*[|]\" \"\" arguments \"\${page}\")
    separate_arguments(arguments)
    execute_process(COMMAND \"$<TARGET_FILE:heddle>\" \${arguments} OUTPUT_FILE \"${shells}/\${file}\"
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
" COMPONENT program)
install(FILES ${shells}/heddle.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${shells}/heddle DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES ${shells}/_heddle DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
install(FILES ${shells}/heddle.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

# Copies what heddle-torch loads from the Python installation, with the folders that its libraries
# expect to find each other in.
if(HEDDLE_TORCH AND HEDDLE_BUNDLE_TORCH)
  cmake_path(GET HEDDLE_TORCH_ROOT PARENT_PATH site)
  install(CODE "
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES \"$<TARGET_FILE:heddle-torch>\" RESOLVED_DEPENDENCIES_VAR found
      POST_INCLUDE_REGEXES \"^${site}/\" POST_EXCLUDE_REGEXES \".*\")
    foreach(library IN LISTS found)
      file(RELATIVE_PATH relative \"${site}\" \"\${library}\")
      cmake_path(GET relative PARENT_PATH folder)
      file(INSTALL \"\${library}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/heddle/\${folder}\"
        TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN)
    endforeach()
  " COMPONENT program)
endif()

set(CPACK_PACKAGE_CONTACT "the authors of Heddle")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "graph compiler and runtime for distributed training")
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME heddle)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${HEDDLE_TORCH_ROOT}/lib)
include(CPack)
