# heddle_torch: the libtorch inside a Python installation, as a target to link.
#
# HEDDLE_TORCH_PYTHON names the interpreter: the one in .venv, or any other with torch >= 2.11.
set(HEDDLE_TORCH_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python3 CACHE STRING "The Python whose torch is used")

execute_process(
  COMMAND ${HEDDLE_TORCH_PYTHON} -c "import torch; print(torch.__version__); print(torch.__path__[0])"
  OUTPUT_VARIABLE torch_facts ERROR_VARIABLE torch_error RESULT_VARIABLE torch_missing OUTPUT_STRIP_TRAILING_WHITESPACE)
if(torch_missing)
  message(FATAL_ERROR "no torch in ${HEDDLE_TORCH_PYTHON}: run `make`, which sets it up, or configure with "
    "-DHEDDLE_TORCH_PYTHON=python3 if that one has it, or with -DHEDDLE_TORCH=OFF.\n${torch_error}")
endif()
string(REPLACE "\n" ";" torch_facts "${torch_facts}")
list(GET torch_facts 0 HEDDLE_TORCH_VERSION)
list(GET torch_facts 1 torch_root)
string(REGEX MATCH "^[0-9.]+" torch_number "${HEDDLE_TORCH_VERSION}")
if(torch_number VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${HEDDLE_TORCH_VERSION} in ${HEDDLE_TORCH_PYTHON}; Heddle needs 2.11 or newer")
endif()
message(STATUS "torch ${HEDDLE_TORCH_VERSION} of ${HEDDLE_TORCH_PYTHON}")

add_library(heddle_torch INTERFACE)
# An installed target must not refer to headers in the source tree (.venv), so heddleConfig.cmake
# names them again.
set(HEDDLE_TORCH_INCLUDES ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
target_include_directories(heddle_torch SYSTEM INTERFACE "$<BUILD_INTERFACE:${HEDDLE_TORCH_INCLUDES}>")
target_compile_definitions(heddle_torch INTERFACE AT_PER_OPERATOR_HEADERS)
# libtorch includes headers of its own fmt without the library. Ours must come first.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
list(GET fmt_include 0 fmt_include)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/system_fmt)
file(CREATE_LINK ${fmt_include}/fmt ${PROJECT_BINARY_DIR}/system_fmt/fmt SYMBOLIC)
target_include_directories(heddle_torch BEFORE INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/system_fmt>)
foreach(name torch torch_cpu c10)
  find_library(heddle_lib_${name} ${name} PATHS ${torch_root}/lib NO_DEFAULT_PATH REQUIRED NO_CACHE)
  target_link_libraries(heddle_torch INTERFACE ${heddle_lib_${name}})
endforeach()
# A libtorch with CUDA registers its kernels when this library is loaded. No symbol refers to it.
find_library(heddle_lib_torch_cuda torch_cuda PATHS ${torch_root}/lib NO_DEFAULT_PATH NO_CACHE)
if(heddle_lib_torch_cuda)
  find_library(heddle_lib_c10_cuda c10_cuda PATHS ${torch_root}/lib NO_DEFAULT_PATH REQUIRED NO_CACHE)
  target_link_libraries(heddle_torch INTERFACE -Wl,--no-as-needed ${heddle_lib_torch_cuda} ${heddle_lib_c10_cuda} -Wl,--as-needed)
  # Headers for ranks that are processes on GPUs, from libtorch's packages or the system.
  file(GLOB nvidia_includes ${torch_root}/../nvidia/*/include)
  find_path(HEDDLE_NCCL_INCLUDE nccl.h HINTS ${nvidia_includes} NO_CACHE)
  # libtorch's packages have cuda_runtime_api.h, but not crt/host_defines.h, which it includes.
  find_path(HEDDLE_CUDA_INCLUDE crt/host_defines.h HINTS ENV CUDA_HOME ${nvidia_includes} /usr/local/cuda PATH_SUFFIXES include NO_CACHE)
  if(HEDDLE_NCCL_INCLUDE AND HEDDLE_CUDA_INCLUDE)
    set(HEDDLE_NCCL_INCLUDES ${HEDDLE_NCCL_INCLUDE} ${HEDDLE_CUDA_INCLUDE})
  endif()
  message(STATUS "NCCL: ${HEDDLE_NCCL_INCLUDES}")
endif()
# An installed program has its own copy of libtorch, but not of CUDA, which is several GB.
if(heddle_lib_torch_cuda)
  set(bundle OFF)
else()
  set(bundle ON)
endif()
option(HEDDLE_BUNDLE_TORCH "Install libtorch together with the program" ${bundle})
set(HEDDLE_TORCH_ROOT ${torch_root})
