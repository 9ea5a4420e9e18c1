// Exports a model as a Hugging Face folder, which transformers loads.
#pragma once

#include <string>

#include "heddle/core/base/units.h"
#include "heddle/run/models/model.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

struct HfExportOptions {
  // kF32 or kBF16. Biases of experts are always f32.
  DType dtype = DType::kF32;
  // Maximum bytes of weights per file. A larger tensor has its own file.
  Bytes most_bytes = GiB(5);
};

struct HfExport {
  int64_t tensors = 0;
  int64_t files = 0;
  Bytes bytes;
};

// Writes config.json, the weights, and an index if the weights are in several files. Replaces an
// earlier export in the folder (export_folder.h). Creates missing folders.
Result<HfExport> ExportHf(const Model& model, const ParamSource& params, const std::string& folder,
                          const HfExportOptions& options = {});

}  // namespace heddle::run
