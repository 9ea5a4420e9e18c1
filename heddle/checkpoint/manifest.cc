#include "heddle/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>

#include "heddle/base/text.h"
#include "heddle/checkpoint/json.h"
#include "heddle/checkpoint/safetensors_header.h"

namespace heddle {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "heddle-checkpoint";
constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kPartialInfix = ".partial-";

Failure Damaged(std::string_view what) { return Error(Diag::kCheckpointDamaged, "{}", what); }

// Whether the shape of a tensor makes a number of bytes that exists.
bool IsShape(const TensorInfo& tensor) {
  int64_t bytes = ItemSize(tensor.dtype);
  for (int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return false;
  }
  return true;
}

DType DTypeAt(const Json& json) {
  return ParseSafetensorsType(json.get_ref<const std::string&>()).value_or(DType::kNone);
}

FileHash FileHashAt(const Json& json) {
  return {json.at("bytes").get<int64_t>(),
          ParseHash128(json.at("hash").get_ref<const std::string&>()).value_or(Hash128())};
}

// Reads a manifest whose hash is right; throws where it is none all the same.
Manifest ReadManifest(const Json& json) {
  Manifest manifest;
  manifest.step = json.at("step").get<int64_t>();
  manifest.state = json.at("state").dump();
  for (const Json& file : json.at("files")) manifest.files.push_back(FileHashAt(file));
  for (const auto& [name, tensor] : json.at("tensors").items()) {
    Manifest::Tensor& added = manifest.tensors.emplace_back();
    added.info = {name, DTypeAt(tensor.at("dtype")), tensor.at("shape").get<Sizes>()};
    for (const Json& piece : tensor.at("pieces"))
      added.pieces.push_back(
          {piece.at(0).get<int64_t>(), {piece.at(1).get<Sizes>(), piece.at(2).get<Sizes>()}});
  }
  return manifest;
}

// What must hold before anything is made of it; then the grids.
Status Complete(Manifest& manifest) {
  auto ranks = static_cast<int64_t>(manifest.files.size());
  if (manifest.step < 0 || ranks == 0) return Damaged("says nothing of its step or its files");
  for (Manifest::Tensor& tensor : manifest.tensors) {
    bool right = tensor.info.dtype != DType::kNone && IsShape(tensor.info);
    for (const PlacedPiece& piece : tensor.pieces)
      right = right && piece.rank >= 0 && piece.rank < ranks &&
              IsInside(piece.slice, tensor.info.shape) && CountOf(piece.slice.shape) > 0;
    if (!right)
      return Damaged(
          fmt::format("says of `{}` what cannot be: its type, shape, or where a piece "
                      "lies",
                      tensor.info.name));
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
  // Also refuses a sign, and other numbers of zeros.
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
  HEDDLE_TRY(Json json, ParseJsonStrictly(text, "the mark of a rank", /*most_depth=*/4));
  try {
    if (json.contains("error"))
      return Error(Diag::kFileWrite, "{}", json.at("error").get_ref<const std::string&>());
    RankRecord record{FileHashAt(json), {}};
    for (const Json& piece : json.at("pieces"))
      record.pieces.push_back({{piece.at("name").get<std::string>(), DTypeAt(piece.at("dtype")),
                                piece.at("whole").get<Sizes>()},
                               {piece.at("offset").get<Sizes>(), piece.at("shape").get<Sizes>()}});
    return record;
  } catch (const Json::exception& error) {
    return Damaged(fmt::format("is not the mark of a rank: {}", JsonFault(error)));
  }
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
  // The hash is that of the content as it is printed here, whatever spaces the file has.
  std::string text = content.dump();
  std::string hash = Format(HashBytes128(text.data(), text.size()));
  return fmt::format("{{\"format\":\"{}\",\"version\":{},\"hash\":\"{}\",\n\"manifest\":{}}}\n",
                     kFormat, kCheckpointVersion, hash, text);
}

Result<Manifest> ParseManifest(std::string_view text) {
  Result<Json> parsed = ParseJsonStrictly(text, "the manifest", kStateDepth + 4);
  if (!parsed.ok()) return Damaged(parsed.diagnostics()[0].message);
  try {
    if (parsed->value("format", "") != kFormat)
      return Damaged(fmt::format("does not say that its format is `{}`", kFormat));
    auto version = parsed->at("version").get<int64_t>();
    if (version > kCheckpointVersion)
      return Error(Diag::kVersion, "has version {}; this heddle reads up to version {}", version,
                   kCheckpointVersion);
    const Json& content = parsed->at("manifest");
    std::string body = content.dump();
    std::string hash = Format(HashBytes128(body.data(), body.size()));
    if (version < 1 || parsed->at("hash") != hash)
      return Damaged(fmt::format("has hash {}, and says {}", hash, parsed->at("hash").dump()));
    Manifest manifest = ReadManifest(content);
    Status complete = Complete(manifest);
    if (!complete.ok()) return Damaged(complete.diagnostics()[0].message);
    return manifest;
  } catch (const Json::exception& error) {
    return Damaged(fmt::format("is not a manifest: {}", JsonFault(error)));
  }
}

}  // namespace heddle
