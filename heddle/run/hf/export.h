// A model as a Hugging Face folder, which transformers loads.
#pragma once

#include <string>

#include "heddle/core/base/units.h"
#include "heddle/run/models/model.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

struct HfExportOptions {
  // kF32 or kBF16. Biases of experts are f32 always.
  DType dtype = DType::kF32;
  // Weights are cut into files of at most so many bytes; a larger tensor has a file of its own.
  Bytes most_bytes = GiB(5);
};

struct HfExport {
  int64_t tensors = 0;
  int64_t files = 0;
  Bytes bytes;
};

// Writes config.json, the weights, and their index if they are in several files, in place of an
// export that the folder may have (export_folder.h). The folder and those above it are made.
Result<HfExport> ExportHf(const Model& model, const ParamSource& params, const std::string& folder,
                          const HfExportOptions& options = {});

}  // namespace heddle::run
