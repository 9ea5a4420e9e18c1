#include "heddle/api/pytorch_reference.h"

#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"
#include "heddle/run/verify/pytorch_program.h"

namespace heddle {

Failure PyTorchReference::NoTorch(std::string_view why) const {
  return Error(Diag::kUsage,
               "--python={} has no PyTorch ({}); install it with `{} -m pip install torch=={}`, or "
               "give another interpreter",
               python_, why, python_, torch_.substr(0, torch_.find('+')));
}

Result<std::unique_ptr<run::LineProcess>> PyTorchReference::StartPython(
    std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), python_);
  Result<std::unique_ptr<run::LineProcess>> process =
      run::LineProcess::Start(arguments, folder() + "/stderr");
  if (process.ok()) return process;
  return Error(Diag::kUsage, "{}; --python names the interpreter that has PyTorch",
               process.diagnostics()[0].message);
}

Status PyTorchReference::CheckTorch() const {
  HEDDLE_TRY(std::unique_ptr<run::LineProcess> process,
             StartPython({"-c", "import torch; print(torch.__version__)"}));
  if (process->ReadLine()) return Done{};
  process->Wait();
  HEDDLE_TRY(std::string text, ReadFile(folder() + "/stderr"));
  std::vector<std::string_view> lines = Split(Trim(text), '\n');
  return NoTorch(lines.back());
}

Status PyTorchReference::Start() {
  HEDDLE_RETURN_IF_ERROR(run::WritePyTorchProgram(folder()));
  HEDDLE_TRY(process_,
             StartPython({"-B", "-u", folder() + "/reference.py", folder() + "/job.json"}));
  std::optional<std::string> line = process_->ReadLine();
  auto json = nlohmann::json::parse(line.value_or(""), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Ended();
  if (json.contains("missing")) return NoTorch(json["missing"].get<std::string>());
  wrong_weights_ = json.value("initial", "");
  version_ = json.value("torch", "");
  return Done{};
}

Result<run::StepHashes> PyTorchReference::NextStep() {
  run::StepHashes hashes;
  while (std::optional<std::string> line = process_->ReadLine()) {
    if (line->starts_with("{\"end\"")) return hashes;
    HEDDLE_RETURN_IF_ERROR(hashes.Add(*line));
  }
  return Ended();
}

Failure PyTorchReference::Ended() {
  int code = process_->Wait();
  Result<std::string> text = ReadFile(folder() + "/stderr");
  constexpr size_t kMost = 2000;
  std::string last = text.ok() ? std::string(Trim(*text)) : "";
  if (last.size() > kMost) last = "..." + last.substr(last.size() - kMost);
  if (last.empty())
    return Error(Diag::kRunFault,
                 "the Python program ended early, with exit code {}, and printed no error; check "
                 "that --python is an interpreter",
                 code);
  return Error(Diag::kRunFault, "PyTorch ended early, with exit code {}:\n{}", code, last);
}

}  // namespace heddle
