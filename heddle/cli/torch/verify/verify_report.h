// What `heddle verify` found, for people and as JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/models/model.h"
#include "heddle/verify/verify.h"

namespace heddle {

// What was trained, and what it was held against.
struct VerifiedJob {
  std::string model;
  std::string flavor;
  std::string precision;
  Mesh mesh;
  // A process for each rank.
  bool processes = false;
  std::string pipeline;
  // As --against says it.
  std::string against;
  std::string reducer;
  // The attention kernel; empty for a model without attention.
  std::string attention;
  // The version of PyTorch that it is compared with, if it is.
  std::string pytorch;
  c10::DeviceType device;
  std::span<const ParamSpec> params;
};

// Whether --against names a pipeline, and nothing else.
bool IsPipeline(std::string_view against);

// What is compared, then a line for each step, then what came out.
std::string FormatHead(const VerifiedJob& job);
std::string FormatStep(const VerifiedJob& job, const StepRow& row);
std::string FormatEnd(const VerifiedJob& job, const VerifyReport& report);
nlohmann::ordered_json ToJson(const VerifiedJob& job, const VerifyReport& report);

}  // namespace heddle
