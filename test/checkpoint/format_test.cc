// Texts of the format are read back, and invalid contents are rejected even if their hash is right.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/run/checkpoint/manifest.h"

namespace heddle {
namespace {

TEST(CheckpointFormatTest, NamesOfFolders) {
  EXPECT_EQ(run::StepFolderName(10), "step-00000010");
  EXPECT_EQ(run::ParseStepFolderName("step-00000010"), 10);
  EXPECT_EQ(run::ParseStepFolderName("step-123456789"), 123456789);
  for (const char* name : {"step-10", "step-", "step--0000001", "step-00000010 ", "step-0000001x",
                           "step-000000010", "step-99999999999999999999", "stop-00000010"})
    EXPECT_FALSE(run::ParseStepFolderName(name)) << name;
  EXPECT_TRUE(run::IsPartialFolderName(run::PartialFolderName(3, "run-1")));
  EXPECT_FALSE(run::IsPartialFolderName("step-00000010"));
  EXPECT_FALSE(run::IsPartialFolderName("other.partial-x"));
}

run::RankRecord Record() {
  run::RankRecord record;
  record.file = {100, {1, 2}};
  record.pieces = {{{"w", DType::kF32, {4, 2}}, {{0, 0}, {4, 2}}},
                   {{"none", DType::kBF16, {0}}, {{0}, {0}}}};
  return record;
}

TEST(CheckpointFormatTest, Marks) {
  run::RankRecord read = *run::ParseMark(run::FormatMark(Record()));
  EXPECT_EQ(run::FormatMark(read), run::FormatMark(Record()));
  EXPECT_EQ(run::ParseMark(run::FormatFailureMark("no room")).diagnostics()[0].message, "no room");
  EXPECT_EQ(run::ParseMark("{}").diagnostics()[0].message, "`bytes` is missing");
  EXPECT_EQ(run::ParseMark("{\"bytes\":1e999}").diagnostics()[0].message,
            "not JSON: the number exceeds the range of a double");
  EXPECT_FALSE(run::ParseMark("{\"bytes\":").ok());
}

TEST(CheckpointFormatTest, Manifests) {
  run::Manifest manifest =
      *run::MakeManifest(3, R"({"seed":18446744073709551615,"lr":0.1})", {Record()});
  std::string text = run::FormatManifest(manifest);
  run::Manifest read = *run::ParseManifest(text);
  EXPECT_EQ(run::FormatManifest(read), text);
  EXPECT_EQ(nlohmann::json::parse(read.state)["seed"].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(nlohmann::json::parse(read.state)["lr"].get<double>(), 0.1);
  // Spaces and the order of keys do not change the hash.
  EXPECT_EQ(run::FormatManifest(*run::ParseManifest(nlohmann::ordered_json::parse(text).dump(2))),
            text);
  size_t files = text.find("{\"files\":");
  size_t state = text.find(",\"state\":");
  ASSERT_LT(files, state);
  std::string swapped = text.substr(0, files + 1) + text.substr(state + 1);
  size_t end = swapped.rfind("}}");
  swapped.insert(end, "," + text.substr(files + 1, state - files - 1));
  EXPECT_EQ(run::FormatManifest(*run::ParseManifest(swapped)), text);
}

// Returns the error of a manifest after an edit, with a corrected hash.
std::string SaidAfter(const std::function<void(nlohmann::json&)>& edit) {
  auto json = nlohmann::json::parse(run::FormatManifest(*run::MakeManifest(3, "{}", {Record()})));
  edit(json["manifest"]);
  std::string body = json["manifest"].dump();
  json["hash"] = Format(HashBytes128(body.data(), body.size()));
  Result<run::Manifest> parsed = run::ParseManifest(json.dump());
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.diagnostics()[0].kind, Diag::kCheckpointDamaged);
  return parsed.diagnostics()[0].message;
}

TEST(CheckpointFormatTest, ManifestsThatLie) {
  using Json = nlohmann::json;
  const char* wrong = "has an invalid type, shape or piece of `w`";
  EXPECT_EQ(SaidAfter([](Json&) {}), "");
  EXPECT_EQ(SaidAfter([](Json& m) { m["step"] = -1; }),
            "`manifest.step` is -1, expected a whole number from 0 on");
  EXPECT_EQ(SaidAfter([](Json& m) { m["files"].clear(); }), "has no files");
  EXPECT_EQ(SaidAfter([](Json& m) { m.erase("tensors"); }), "`manifest.tensors` is missing");
  EXPECT_EQ(SaidAfter([](Json& m) { m["tensors"] = 3; }),
            "`manifest.tensors` is 3, expected an object");
  auto w = [](auto edit) { return SaidAfter([&](Json& m) { edit(m["tensors"]["w"]); }); };
  EXPECT_EQ(w([](Json& t) { t["dtype"] = "F7"; }), wrong);
  EXPECT_EQ(w([](Json& t) { t["shape"] = {4, INT64_MAX}; }), wrong);
  EXPECT_EQ(w([](Json& t) {
              t["shape"] = {4, -2};
            }),
            "`manifest.tensors.w.shape[1]` is -2, expected a whole number of at least 0");
  EXPECT_EQ(w([](Json& t) { t["pieces"][0][0] = 1; }), wrong);
  EXPECT_EQ(w([](Json& t) { t["pieces"][0][1] = {1, 0}; }), wrong);
  EXPECT_EQ(w([](Json& t) { t["pieces"][0][2] = {0, 2}; }), wrong);
  EXPECT_EQ(w([](Json& t) { t["pieces"][0][2] = {4}; }), wrong);
  EXPECT_EQ(w([](Json& t) { t["pieces"].clear(); }), "`w` of [4,2] has no pieces");
  EXPECT_EQ(w([](Json& t) {
              t["pieces"][0][2] = {3, 2};
            }),
            "`w` of [4,2] has pieces that end at 3 of dimension 0");
  EXPECT_EQ(w([](Json& t) { t["pieces"].push_back(t["pieces"][0]); }),
            "`w` of [4,2] has 2 pieces, which do not cover each element exactly once");
  EXPECT_EQ(w([](Json& t) { t["pieces"][0] = Json::array(); }),
            "`manifest.tensors.w.pieces[0]` is not [rank, offset, shape]");
}

TEST(CheckpointFormatTest, GridsThatAreNone) {
  run::TensorInfo tensor{"w", DType::kF32, {4, 4}};
  auto said = [&](std::vector<run::Slice> slices) {
    std::vector<run::PlacedPiece> pieces;
    for (const run::Slice& slice : slices)
      pieces.push_back({static_cast<int64_t>(pieces.size()), slice});
    Result<run::Grid> grid = run::Grid::Make(tensor, pieces);
    return grid.ok() ? "" : grid.diagnostics()[0].message;
  };
  EXPECT_EQ(said({{{0, 0}, {4, 1}}, {{0, 1}, {4, 3}}}), "");
  EXPECT_EQ(said({{{0, 0}, {1, 4}}, {{1, 0}, {3, 4}}}), "");
  EXPECT_EQ(said({{{0, 0}, {2, 4}}, {{2, 0}, {2, 2}}, {{2, 2}, {2, 2}}}),
            "`w` of [4,4] has pieces of 4 and of 2 that both begin at 0 of dimension 1");
  EXPECT_EQ(said({{{0, 0}, {2, 4}}, {{1, 0}, {3, 4}}}),
            "`w` of [4,4] has pieces that end at 2 and pieces that begin at 1 of dimension 0; they "
            "must meet");
  EXPECT_EQ(said({{{0, 0}, {2, 2}}, {{0, 2}, {2, 2}}, {{2, 0}, {2, 2}}, {{2, 0}, {2, 2}}}),
            "`w` of [4,4] has two pieces at [2,0], from ranks 2 and 3");
  EXPECT_EQ(said({{{0, 0}, {2, 2}}, {{2, 2}, {2, 2}}}),
            "`w` of [4,4] has 2 pieces, which do not cover each element exactly once");
}

}  // namespace
}  // namespace heddle
