// ExportedProgram: the format of torch.export, as JSON or in an archive (.pt2), and the same JSON
// from other exporters with Heddle's header.
//
// Reads only `models/*.json` of an archive. It unpickles nothing and reads no weights.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/import/read/program.h"

namespace heddle {

Result<ForeignProgram> ReadExportedProgram(const std::string& json, const std::string& file);
// The JSON of the program in an archive.
Result<std::string> ReadModelJson(std::string_view archive, const std::string& file);

}  // namespace heddle
