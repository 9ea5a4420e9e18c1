#include "heddle/run/verify/pytorch_program.h"

#include <string_view>

#include "heddle/core/base/file.h"

namespace heddle::run {
namespace {

struct PythonFile {
  std::string_view name;
  std::string_view text;
};
constexpr PythonFile kPythonFiles[] = {
#include "heddle/run/verify/pytorch_program.inc"
};

}  // namespace

Status WritePyTorchProgram(const std::string& folder) {
  for (const PythonFile& file : kPythonFiles)
    HEDDLE_RETURN_IF_ERROR(WriteFile(fmt::format("{}/{}.py", folder, file.name), file.text));
  return Done{};
}

}  // namespace heddle::run
