# `cmake --install build --prefix P` installs the program, the libraries and the headers. Another
# project then uses find_package(heddle) and links heddle::core_ir, heddle::compile_passes and so
# on.
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
")
install(FILES ${shells}/heddle.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${shells}/heddle DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${shells}/_heddle DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${shells}/heddle.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
