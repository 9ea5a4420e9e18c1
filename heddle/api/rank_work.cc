#include "heddle/api/rank_work.h"

#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

using Json = nlohmann::json;

Json ToJson(const run::Difference& d) {
  return {{"rank", d.rank},         {"held", d.kind ? static_cast<int>(*d.kind) : -1},
          {"param", d.param},       {"element", d.element},
          {"elements", d.elements}, {"differing", d.differing_elements},
          {"first", d.first},       {"second", d.second}};
}

run::Difference DifferenceFrom(const Json& json) {
  run::Difference d;
  d.rank = json["rank"];
  if (json["held"] >= 0) d.kind = static_cast<run::StateKind>(json["held"].get<int>());
  d.param = json["param"];
  d.element = json["element"];
  d.elements = json["elements"];
  d.differing_elements = json["differing"];
  d.first = json["first"];
  d.second = json["second"];
  return d;
}

}  // namespace

Status CheckProcesses(int64_t processes, const Mesh& mesh) {
  if (processes == mesh.ranks()) return Done{};
  return Error(Diag::kMeshSize, "the job has {} {}, the mesh [{}] has {}", processes,
               processes == 1 ? "process" : "processes", Format(mesh),
               Counted(mesh.ranks(), "rank"));
}

Result<run::RankProgramOptions> OwnRank(run::Peers& peers, const Module& module,
                                        c10::Device device) {
  run::RankProgramOptions options;
  options.device = device;
  options.ranks = {peers.rank()};
  HEDDLE_TRY(std::shared_ptr<run::ProcessTransport> transport,
             run::ProcessTransport::Connect(peers, module, device.type()));
  options.transport = transport;
  options.transfers = std::move(transport);
  return options;
}

run::Share<run::Comparison> ShareComparison(run::Peers& peers) {
  return [&peers](const run::Comparison& own) -> Result<run::Comparison> {
    Json json = {{"tensors", own.tensors},
                 {"elements", own.elements},
                 {"differing_bits", own.differing_bits}};
    if (own.first) json["first"] = ToJson(*own.first);
    HEDDLE_TRY(std::vector<std::string> texts, peers.Exchange(json.dump()));
    run::Comparison all;
    for (const std::string& text : texts) {
      json = Json::parse(text);
      all.tensors += json["tensors"].get<int64_t>();
      all.elements += json["elements"].get<int64_t>();
      all.differing_bits += json["differing_bits"].get<int64_t>();
      if (json.contains("first") && !all.first) all.first = DifferenceFrom(json["first"]);
    }
    return all;
  };
}

run::Share<std::optional<run::NodeFinding>> ShareOrigin(run::Peers& peers) {
  return [&peers](const std::optional<run::NodeFinding>& own)
             -> Result<std::optional<run::NodeFinding>> {
    Json json;
    if (own)
      json = {{"step", own->step}, {"rank", own->rank}, {"node", own->node}, {"what", own->what}};
    HEDDLE_TRY(std::vector<std::string> texts,
               peers.Exchange(json.dump(-1, ' ', false, Json::error_handler_t::replace)));
    std::optional<run::NodeFinding> first;
    for (const std::string& text : texts) {
      json = Json::parse(text);
      if (json.is_null() || (first && first->step <= json["step"].get<int64_t>())) continue;
      first = run::NodeFinding{json["step"], json["rank"], json["node"], json["what"]};
    }
    return first;
  };
}

}  // namespace heddle
