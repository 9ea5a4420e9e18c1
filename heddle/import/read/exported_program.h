// ExportedProgram: what torch.export writes, as JSON or as an archive (.pt2) that holds it; and the same JSON from other exporters, with a
// header of Heddle's.
//
// Of an archive only `models/*.json` is read. Nothing is unpickled, and no weight is looked at.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/import/read/program.h"

namespace heddle {

Result<ForeignProgram> ReadExportedProgram(const std::string& json, const std::string& file);
// The JSON in an archive.
Result<std::string> ReadModelJson(std::string_view archive, const std::string& file);

}  // namespace heddle
