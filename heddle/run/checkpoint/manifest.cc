#include "heddle/run/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "heddle/core/base/json_fields.h"
#include "heddle/core/base/text.h"
#include "heddle/run/checkpoint/safetensors_header.h"

namespace heddle::run {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "heddle-checkpoint";
constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kPartialInfix = ".partial-";

Failure Damaged(std::string_view what) { return Error(Diag::kCheckpointDamaged, "{}", what); }

// Whether the bytes of a tensor fit into 64 bits.
bool IsShape(const TensorInfo& tensor) {
  int64_t bytes = ItemSize(tensor.dtype);
  for (int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return false;
  }
  return true;
}

DType ReadDType(JsonFields& fields) {
  return ParseSafetensorsType(fields.Text("dtype")).value_or(DType::kNone);
}

FileHash ReadFileHash(JsonFields& fields) {
  return {fields.Count("bytes", 0, INT64_MAX),
          ParseHash128(fields.Text("hash")).value_or(Hash128())};
}

// Parses `[rank, offset, shape]`.
PlacedPiece ReadPiece(JsonValue piece, JsonMistakes& mistakes) {
  std::vector<JsonValue> parts;
  for (JsonValue part : piece.items()) parts.push_back(part);
  if (parts.size() == 3 && parts[0].is_int())
    return {parts[0].integer(), {ReadCounts(parts[1], mistakes), ReadCounts(parts[2], mistakes)}};
  if (!mistakes.full()) mistakes.Add(piece, "`{}` is not [rank, offset, shape]", piece.path());
  return {};
}

Manifest ReadManifest(JsonFields fields, JsonMistakes& mistakes) {
  Manifest manifest;
  manifest.step = fields.Count("step", 0, INT64_MAX);
  if (std::optional<JsonValue> state = fields.Find("state"))
    manifest.state = state->raw();
  else
    fields.Wrong("state", "is missing");
  for (JsonFields& file : fields.Objects("files")) manifest.files.push_back(ReadFileHash(file));
  JsonFields tensors = fields.Object("tensors");
  for (const auto& [name, value] : tensors.fields()) {
    JsonFields tensor(value, mistakes);
    Manifest::Tensor& added = manifest.tensors.emplace_back();
    added.info = {std::string(name), ReadDType(tensor), tensor.Counts("shape")};
    std::optional<JsonValue> pieces = tensor.Find("pieces");
    if (!pieces || !pieces->is_array()) tensor.Wrong("pieces", "is not a list");
    if (!pieces) continue;
    for (JsonValue piece : pieces->items()) added.pieces.push_back(ReadPiece(piece, mistakes));
  }
  return manifest;
}

// Appends a value without spaces and with sorted keys. The hash is computed over this text.
void AppendSorted(JsonValue value, std::string& out) {
  std::string_view separator;
  if (value.is_array()) {
    out += '[';
    for (JsonValue item : value.items()) {
      out += std::exchange(separator, ",");
      AppendSorted(item, out);
    }
    out += ']';
  } else if (value.is_object()) {
    std::map<std::string_view, JsonValue> sorted;
    for (auto [key, field] : value.fields()) sorted.emplace(key, field);
    out += '{';
    for (const auto& [key, field] : sorted) {
      out += std::exchange(separator, ",");
      out += Json(key).dump() + ":";
      AppendSorted(field, out);
    }
    out += '}';
  } else {
    out += value.raw();
  }
}

// Checks the tensors and pieces, then builds the grids.
Status Complete(Manifest& manifest) {
  auto ranks = static_cast<int64_t>(manifest.files.size());
  if (ranks == 0) return Damaged("has no files");
  for (Manifest::Tensor& tensor : manifest.tensors) {
    bool right = tensor.info.dtype != DType::kNone && IsShape(tensor.info);
    for (const PlacedPiece& piece : tensor.pieces)
      right = right && piece.rank >= 0 && piece.rank < ranks &&
              IsInside(piece.slice, tensor.info.shape) && CountOf(piece.slice.shape) > 0;
    if (!right)
      return Damaged(fmt::format("has an invalid type, shape or piece of `{}`", tensor.info.name));
    HEDDLE_TRY(tensor.grid, Grid::Make(tensor.info, tensor.pieces));
  }
  return Done{};
}

}  // namespace

std::string RankFileName(int64_t rank) { return fmt::format("rank-{:05}.safetensors", rank); }
std::string RankMarkName(int64_t rank) { return fmt::format("rank-{:05}.json", rank); }
std::string StepFolderName(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<int64_t> ParseStepFolderName(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  std::string_view digits = name.substr(kStepPrefix.size());
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  // Also rejects a sign and another number of leading zeros.
  if (step < 0 || StepFolderName(step) != name) return std::nullopt;
  return step;
}

std::string PartialFolderName(int64_t step, const std::string& run) {
  return fmt::format("{}{}{}", StepFolderName(step), kPartialInfix, run);
}

bool IsPartialFolderName(std::string_view name) {
  size_t at = name.find(kPartialInfix);
  return at != std::string_view::npos && ParseStepFolderName(name.substr(0, at));
}

std::string FormatMark(const RankRecord& record) {
  Json pieces = Json::array();
  for (const HeldPiece& piece : record.pieces)
    pieces.push_back({{"name", piece.tensor.name},
                      {"dtype", *SafetensorsTypeName(piece.tensor.dtype)},
                      {"whole", piece.tensor.shape},
                      {"offset", piece.slice.offset},
                      {"shape", piece.slice.shape}});
  return Json{{"bytes", record.file.bytes},
              {"hash", Format(record.file.hash)},
              {"pieces", std::move(pieces)}}
      .dump();
}

std::string FormatFailureMark(std::string_view why) {
  return Json{{"error", why}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<RankRecord> ParseMark(std::string_view text) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(text), "", Diag::kFileRead));
  JsonMistakes mistakes(document, Diag::kCheckpointDamaged);
  JsonFields fields(document.root(), mistakes);
  if (fields.Has("error")) return Error(Diag::kFileWrite, "{}", fields.Text("error"));
  RankRecord record{ReadFileHash(fields), {}};
  for (JsonFields& piece : fields.Objects("pieces"))
    record.pieces.push_back({{piece.Text("name"), ReadDType(piece), piece.Counts("whole")},
                             {piece.Counts("offset"), piece.Counts("shape")}});
  if (!mistakes.empty()) return mistakes.failure();
  return record;
}

Result<Manifest> MakeManifest(int64_t step, const std::string& state,
                              const std::vector<RankRecord>& ranks) {
  Manifest manifest{.step = step, .state = state, .files = {}, .tensors = {}};
  std::map<std::string, Manifest::Tensor> tensors;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    manifest.files.push_back(ranks[rank].file);
    for (const HeldPiece& piece : ranks[rank].pieces) {
      Manifest::Tensor& tensor = tensors[piece.tensor.name];
      if (tensor.info.name.empty()) tensor.info = piece.tensor;
      if (tensor.info != piece.tensor)
        return Error(Diag::kCheckpoint, "`{}` is {} {} on one rank, {} {} on rank {}",
                     piece.tensor.name, Name(tensor.info.dtype), FormatSizes(tensor.info.shape),
                     Name(piece.tensor.dtype), FormatSizes(piece.tensor.shape), rank);
      if (CountOf(piece.slice.shape) > 0)
        tensor.pieces.push_back({static_cast<int64_t>(rank), piece.slice});
    }
  }
  for (auto& [name, tensor] : tensors) manifest.tensors.push_back(std::move(tensor));
  HEDDLE_RETURN_IF_ERROR(Complete(manifest));
  return manifest;
}

std::string FormatManifest(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileHash& file : manifest.files)
    files.push_back({{"bytes", file.bytes}, {"hash", Format(file.hash)}});
  Json tensors = Json::object();
  for (const Manifest::Tensor& tensor : manifest.tensors) {
    Json pieces = Json::array();
    for (const PlacedPiece& piece : tensor.pieces)
      pieces.push_back({piece.rank, piece.slice.offset, piece.slice.shape});
    tensors[tensor.info.name] = {{"dtype", *SafetensorsTypeName(tensor.info.dtype)},
                                 {"shape", tensor.info.shape},
                                 {"pieces", std::move(pieces)}};
  }
  Json content{{"step", manifest.step},
               {"state", Json::parse(manifest.state)},
               {"files", std::move(files)},
               {"tensors", std::move(tensors)}};
  // The hash covers the content as printed here, so spaces in the file do not matter.
  std::string text = content.dump();
  std::string hash = Format(HashBytes128(text.data(), text.size()));
  return fmt::format("{{\"format\":\"{}\",\"version\":{},\"hash\":\"{}\",\n\"manifest\":{}}}\n",
                     kFormat, kCheckpointVersion, hash, text);
}

Result<Manifest> ParseManifest(std::string_view text) {
  HEDDLE_TRY(JsonDocument document,
             JsonDocument::Parse(std::string(text), "", Diag::kCheckpointDamaged, kStateDepth + 4));
  JsonMistakes mistakes(document, Diag::kCheckpointDamaged);
  JsonFields fields(document.root(), mistakes);
  if (fields.Text("format", "") != kFormat)
    return Damaged(fmt::format("does not have the format `{}`", kFormat));
  int64_t version = fields.Count("version", 1, INT64_MAX);
  if (version > kCheckpointVersion)
    return Error(Diag::kVersion,
                 "has version {}, but this heddle reads versions up to {}; use a newer heddle",
                 version, kCheckpointVersion);
  std::string said = fields.Text("hash");
  JsonFields content = fields.Object("manifest");
  if (!mistakes.empty()) return mistakes.failure();
  std::string body;
  AppendSorted(*fields.Find("manifest"), body);
  std::string hash = Format(HashBytes128(body.data(), body.size()));
  if (said != hash) return Damaged(fmt::format("has hash {}, but specifies {}", hash, said));
  Manifest manifest = ReadManifest(std::move(content), mistakes);
  if (!mistakes.empty()) return mistakes.failure();
  Status complete = Complete(manifest);
  if (!complete.ok()) return Damaged(complete.diagnostics()[0].message);
  return manifest;
}

}  // namespace heddle::run
