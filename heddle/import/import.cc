#include "heddle/import/import.h"

#include "heddle/core/base/file.h"
#include "heddle/core/base/mapped_file.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/check/check_module.h"
#include "heddle/import/graph_builder.h"
#include "heddle/import/read/exported_program.h"
#include "heddle/import/read/fx_reader.h"
#include "heddle/import/read/zip.h"
#include "heddle/import/roles.h"

namespace heddle {
namespace {

Result<Imported> ImportText(const std::string& text, const std::string& file,
                            const ImportOptions& options) {
  bool json = Trim(std::string_view(text).substr(0, 64)).starts_with('{');
  HEDDLE_TRY(ForeignProgram program, json ? ReadExportedProgram(text, file) : ReadFx(text, file));
  SourceText source(file, text);
  Result<Imported> imported = BuildGraph(program, source, options);
  Status verified = Done{};
  if (imported.ok()) {
    verified = SetRoles(program, options, *imported);
    if (verified.ok()) verified = Verify(imported->module);
    if (verified.ok()) return imported;
  }
  Failure failure = imported.ok() ? std::move(verified).failure() : std::move(imported).failure();
  for (Diagnostic& diagnostic : failure.diagnostics) {
    if (diagnostic.file.empty() && diagnostic.kind != Diag::kUsage) diagnostic.file = file;
  }
  return failure;
}

}  // namespace

Result<Imported> ImportFile(const std::string& path, const ImportOptions& options) {
  HEDDLE_TRY(std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
  if (!IsZip(mapped->bytes())) {
    HEDDLE_TRY(std::string text, ReadFile(path));
    return ImportText(text, path, options);
  }
  HEDDLE_TRY(std::string json, ReadModelJson(mapped->bytes(), path));
  return ImportText(json, path, options);
}

Result<Imported> Import(const std::string& bytes, const std::string& file,
                        const ImportOptions& options) {
  if (!IsZip(bytes)) return ImportText(bytes, file, options);
  HEDDLE_TRY(std::string json, ReadModelJson(bytes, file));
  return ImportText(json, file, options);
}

}  // namespace heddle
