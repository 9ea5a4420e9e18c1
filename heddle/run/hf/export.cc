#include "heddle/run/hf/export.h"

#include <map>

#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/hf/config.h"
#include "heddle/run/hf/export_folder.h"
#include "heddle/run/hf/names.h"
#include "heddle/run/train/safetensors.h"

namespace heddle::run {
namespace {

// A weight of the model.
struct Part {
  HfWeight weight;
  std::function<Result<at::Tensor>()> read;
};

// A unit of the export: the tensors of one weight, or one tensor whose rows are several weights.
struct Piece {
  std::vector<Part> parts;
  at::ScalarType type = at::kFloat;
  int64_t bytes = 0;

  const std::vector<std::string>& names() const { return parts[0].weight.names; }
};

int64_t BytesOf(std::span<const int64_t> shape, at::ScalarType type) {
  auto bytes = static_cast<int64_t>(c10::elementSize(type));
  for (int64_t size : shape) bytes *= size;
  return bytes;
}

std::vector<Piece> Pieces(const Model& model, const ParamSource& params, at::ScalarType type) {
  std::vector<Piece> pieces;
  // Positions of pieces of several weights.
  std::map<std::string, size_t> shared;
  for (size_t i = 0; i < model.params.size(); ++i) {
    const ParamSpec& param = model.params[i];
    HfWeight weight = HfWeightOf(model.config, param.name);
    size_t at = pieces.size();
    if (weight.rows.all > 0) at = shared.emplace(weight.names[0], at).first->second;
    if (at == pieces.size()) pieces.push_back({{}, type, 0});
    pieces[at].bytes += BytesOf(param.shape, type);
    pieces[at].parts.push_back({std::move(weight), [&params, i] { return params(i); }});
  }
  auto* buffers = model.config.family->hf.buffers;
  if (buffers == nullptr) return pieces;
  for (const StepInput& buffer : buffers(model.config)) {
    auto read = [&model, buffer]() -> Result<at::Tensor> { return MakeBuffer(model, buffer); };
    pieces.push_back({.parts = {{HfWeightOf(model.config, buffer.name), read}},
                      .bytes = BytesOf(buffer.shape, at::kFloat)});
  }
  return pieces;
}

// Divides the pieces into files: consecutive pieces, as many as fit.
std::vector<std::span<const Piece>> Files(std::span<const Piece> pieces, int64_t most) {
  std::vector<std::span<const Piece>> files;
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i > begin && bytes + pieces[i].bytes > most) {
      files.push_back(pieces.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += pieces[i].bytes;
  }
  files.push_back(pieces.subspan(begin));
  return files;
}

Status WritePieces(std::span<const Piece> pieces, const std::string& path) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const Piece& piece : pieces) {
    std::vector<at::Tensor> theirs;
    for (const Part& part : piece.parts) {
      HEDDLE_TRY(at::Tensor whole, part.read());
      ToHf(part.weight, whole.to(piece.type), theirs);
    }
    for (size_t i = 0; i < theirs.size(); ++i) tensors.emplace_back(piece.names()[i], theirs[i]);
  }
  // Older versions of transformers reject files without this field.
  HEDDLE_TRY(std::string content, FormatSafetensors(tensors, {{"format", "pt"}}));
  return WriteFile(path, content);
}

}  // namespace

Result<HfExport> ExportHf(const Model& model, const ParamSource& params, const std::string& folder,
                          const HfExportOptions& options) {
  at::ScalarType type = ToScalarType(options.dtype);
  HEDDLE_TRY(std::string config,
             FormatHfConfig(model.config, type == at::kFloat ? "float32" : "bfloat16"));
  HEDDLE_TRY(ExportFolder target, ExportFolder::Open(folder));
  std::vector<Piece> pieces = Pieces(model, params, type);
  std::vector<std::span<const Piece>> files = Files(pieces, options.most_bytes.value);
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  int64_t bytes = 0;
  std::vector<std::string> names = {std::string(kHfConfig)};
  HEDDLE_RETURN_IF_ERROR(WriteFile(target.PathOf(kHfConfig), config));
  for (size_t f = 0; f < files.size(); ++f) {
    names.push_back(files.size() == 1 ? std::string(kHfWhole) : HfShardName(f + 1, files.size()));
    HEDDLE_RETURN_IF_ERROR(WritePieces(files[f], target.PathOf(names.back())));
    for (const Piece& piece : files[f]) {
      bytes += piece.bytes;
      for (const std::string& tensor : piece.names()) map[tensor] = names.back();
    }
  }
  if (files.size() > 1) {
    nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
    names.emplace_back(kHfIndex);
    HEDDLE_RETURN_IF_ERROR(WriteFile(target.PathOf(kHfIndex), index.dump(2) + "\n"));
  }
  HEDDLE_RETURN_IF_ERROR(target.Commit(names));
  return HfExport{static_cast<int64_t>(map.size()), static_cast<int64_t>(files.size()), {bytes}};
}

}  // namespace heddle::run
