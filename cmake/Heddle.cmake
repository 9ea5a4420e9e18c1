# One target per folder: heddle_target(core/base DEPENDS ...) makes heddle_core_base, with the alias heddle::core_base, from the folder's
# .cc files. Files ending in _test.cc go to the folder's test. TORCH marks the folders that may see libtorch.

add_library(heddle_options INTERFACE)
target_compile_options(heddle_options INTERFACE -Wall -Wextra -Werror)
# Products and sums stay apart, so that arithmetic rounds alike on every machine.
target_compile_options(heddle_options INTERFACE -ffp-contract=off)
# Objects name source files relative to the checkout, so that ccache serves every checkout.
target_compile_options(heddle_options INTERFACE $<BUILD_INTERFACE:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 warns of overlapping copies inside std::string that cannot happen (GCC bug 105651).
  target_compile_options(heddle_options INTERFACE -Wno-restrict)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 13 takes the growth of a vector of two-byte structs for a write past its end.
  target_compile_options(heddle_options INTERFACE -Wno-stringop-overflow)
endif()
target_include_directories(heddle_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
if(HEDDLE_SANITIZE)
  target_compile_options(heddle_options INTERFACE
    -fsanitize=${HEDDLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(heddle_options INTERFACE -fsanitize=${HEDDLE_SANITIZE})
endif()

find_program(HEDDLE_MOLD mold)
if(HEDDLE_MOLD)
  target_link_options(heddle_options INTERFACE $<BUILD_INTERFACE:-fuse-ld=mold>)
endif()
find_program(HEDDLE_CCACHE ccache)
if(HEDDLE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HEDDLE_CCACHE})
endif()

# Headers take longer to read than what includes them, so files of a folder are compiled several at a time. Without, every file stands
# alone: a change compiles less, and what a file forgets to include is found.
option(HEDDLE_UNITY "Compile the files of a folder several at a time" ON)
set(CMAKE_UNITY_BUILD ${HEDDLE_UNITY})
if(HEDDLE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ takes a file that another includes for a header, where types of unnamed namespaces would be a mistake.
  target_compile_options(heddle_options INTERFACE -Wno-subobject-linkage)
endif()

# Folders are small: most are compiled at once.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)

# What nearly every file of a kind includes is compiled once: heddle_headers(NAME LINKS targets HEADERS <header>...).
function(heddle_headers name)
  cmake_parse_arguments(ARG "" "" "LINKS;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${name}.cc CONTENT "")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/generated/${name}.cc)
  target_link_libraries(${name} PRIVATE heddle_options ${ARG_LINKS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()
set(headers <algorithm> <map> <optional> <span> <string> <variant> <vector> <fmt/core.h>)
set(torch_headers ${headers} <ATen/core/Tensor.h> <ATen/core/dispatch/Dispatcher.h>)
heddle_headers(heddle_plain_headers LINKS fmt::fmt HEADERS ${headers})
if(HEDDLE_TORCH)
  heddle_headers(heddle_torch_headers LINKS fmt::fmt heddle_torch HEADERS ${torch_headers})
endif()
if(HEDDLE_TESTS)
  # Tests call optimized libraries. Optimizing the tests themselves doubles their compile time and
  # saves less than that when they run.
  add_library(heddle_test_options INTERFACE)
  target_compile_options(heddle_test_options INTERFACE $<$<CONFIG:Release>:-O0>)
  target_link_libraries(heddle_test_options INTERFACE GTest::gtest)
  heddle_headers(heddle_test_headers LINKS fmt::fmt heddle_test_options HEADERS ${headers} <gtest/gtest.h>)
  if(HEDDLE_TORCH)
    heddle_headers(heddle_torch_test_headers LINKS fmt::fmt heddle_torch heddle_test_options HEADERS ${torch_headers} <gtest/gtest.h>)
  endif()
  # Precompiled headers serve files that are compiled alike, and CMake compiles those of programs with -fPIE.
  foreach(name heddle_test_headers heddle_torch_test_headers)
    if(TARGET ${name})
      set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${name} PRIVATE -fPIE)
    endif()
  endforeach()
endif()

function(heddle_target name)
  cmake_parse_arguments(ARG "TORCH" "" "DEPENDS" ${ARGN})
  string(REPLACE "/" "_" target ${name})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  add_library(heddle_${target} STATIC ${sources})
  add_library(heddle::${target} ALIAS heddle_${target})
  set_target_properties(heddle_${target} PROPERTIES EXPORT_NAME ${target})
  target_link_libraries(heddle_${target} PUBLIC heddle_options ${ARG_DEPENDS})
  set_property(GLOBAL APPEND PROPERTY HEDDLE_LIBRARIES heddle_${target})
  if(ARG_TORCH)
    target_link_libraries(heddle_${target} PUBLIC heddle_torch)
  endif()
  if(ARG_TORCH)
    target_precompile_headers(heddle_${target} REUSE_FROM heddle_torch_headers)
  # Fuzzers learn from what reads their texts. Elsewhere, counting every branch would cost more than it tells.
  elseif(HEDDLE_FUZZ AND name MATCHES "^(core/(base|ir|ir/.*|ops)|compile/plan|import|import/read)$")
    target_compile_options(heddle_${target} PRIVATE -fsanitize=fuzzer-no-link)
  else()
    target_precompile_headers(heddle_${target} REUSE_FROM heddle_plain_headers)
  endif()

  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  if(HEDDLE_TESTS AND tests)
    set(torch)
    if(ARG_TORCH)
      set(torch TORCH)
    endif()
    heddle_test(unit.${target} ${target}_test ${torch} SOURCES ${tests} LINKS heddle_${target})
  endif()
endfunction()

# heddle_test(NAME PROGRAM SOURCES files LINKS targets) makes a test of Google's from files. TORCH marks those that may see libtorch.
function(heddle_test name program)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${program} ${ARG_SOURCES})
  target_link_libraries(${program} PRIVATE ${ARG_LINKS} heddle_test_options GTest::gtest_main)
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  if(ARG_TORCH)
    target_precompile_headers(${program} REUSE_FROM heddle_torch_test_headers)
  else()
    target_precompile_headers(${program} REUSE_FROM heddle_test_headers)
  endif()
  add_test(NAME ${name} COMMAND ${program})
endfunction()

# heddle_embed(FILE TEXTS...) writes a table {"name", text}, ... of text files, without their endings, to be included as FILE.
function(heddle_embed output)
  set(table "")
  foreach(file ${ARGN})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND table "{\"${name}\", R\"heddle(${text})heddle\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${output} CONTENT "${table}" @ONLY)
endfunction()
