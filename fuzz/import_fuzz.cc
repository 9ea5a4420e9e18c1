#include <cstdint>
#include <string>

#include "heddle/core/base/check.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/import/import.h"

// Every accepted input prints as a graph that reads back the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  // The JSON parser needs spare capacity after the text; ReadFile reserves it, too.
  bytes.reserve(size + 64);
  heddle::Result<heddle::Imported> imported = heddle::Import(bytes, "fuzz", {});
  if (!imported.ok()) return 0;
  std::string text = heddle::Print(imported->module);
  heddle::Result<heddle::Module> again = heddle::ParseModule(text, "printed", heddle::Ops());
  HEDDLE_CHECK(again.ok(), "an imported graph does not read back");
  HEDDLE_CHECK(heddle::Print(*again) == text, "an imported graph reads back as another");
  return 0;
}
