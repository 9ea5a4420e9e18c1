# One target per folder: heddle_target(base DEPENDS ...) makes heddle_base, with the alias heddle::base, from the folder's
# .cc files. Files ending in _test.cc go to the folder's test. TORCH marks the folders that may see libtorch.

add_library(heddle_options INTERFACE)
target_compile_options(heddle_options INTERFACE -Wall -Wextra -Werror)
# Products and sums stay apart, so that arithmetic rounds alike on every machine.
target_compile_options(heddle_options INTERFACE -ffp-contract=off)
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

# One precompiled header for all: what nearly every file includes. Those that see libtorch have another, of heddle_aten.
set(standard_headers <algorithm> <map> <optional> <span> <string> <variant> <vector> <fmt/core.h>)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/standard.cc CONTENT "")
add_library(heddle_standard OBJECT ${PROJECT_BINARY_DIR}/generated/standard.cc)
target_link_libraries(heddle_standard PRIVATE heddle_options fmt::fmt)
target_precompile_headers(heddle_standard PRIVATE ${standard_headers})

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
  # What every text passes through is optimized even under sanitizers: damaged texts are many.
  if(name MATCHES "^(base|ir|ops|cost/cluster)$" AND HEDDLE_SANITIZE)
    target_compile_options(heddle_${target} PRIVATE -O1)
  elseif(name STREQUAL "aten")
    target_precompile_headers(heddle_aten PRIVATE ${standard_headers} <ATen/core/Tensor.h> <ATen/core/dispatch/Dispatcher.h>)
  elseif(ARG_TORCH)
    target_precompile_headers(heddle_${target} REUSE_FROM heddle_aten)
  else()
    target_precompile_headers(heddle_${target} REUSE_FROM heddle_standard)
  endif()

  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  if(HEDDLE_TESTS AND tests)
    find_package(GTest REQUIRED)
    add_executable(${target}_test ${tests})
    target_link_libraries(${target}_test PRIVATE heddle_${target} GTest::gtest_main)
    set_target_properties(${target}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
    add_test(NAME unit.${target} COMMAND ${target}_test)
  endif()
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
