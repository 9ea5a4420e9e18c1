# heddle_torch: the libtorch inside a Python installation, as a target to link.
#
# HEDDLE_TORCH_PYTHON names the interpreter: the one of .venv, or any that has torch >= 2.11.
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
