#include "heddle/verify/hashes.h"

#include <nlohmann/json.hpp>

#include "heddle/verify/compare.h"
#include "heddle/verify/sha256.h"

namespace heddle {
namespace {

using Json = nlohmann::ordered_json;

std::string Line(Json line) {
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string HashLines(const TrainingRun& run, std::span<const ParamSpec> params, bool gradients) {
  std::string lines;
  for (size_t at = 0; at < run.ranks().size(); ++at) {
    Json start = {{"step", run.steps()}, {"rank", run.ranks()[at]}};
    Json loss = start;
    loss["loss"] = HexFloat(run.loss(at).item<double>());
    lines += Line(std::move(loss));
    auto add = [&](Held held, std::string_view suffix) {
      for (size_t i = 0; i < params.size(); ++i) {
        at::Tensor tensor = run.held(held, at, i);
        if (!tensor.defined()) continue;
        tensor = tensor.cpu().contiguous();
        Json line = start;
        line["name"] = params[i].name + std::string(suffix);
        line["shape"] = tensor.sizes().vec();
        line["sha256"] = Sha256(tensor.data_ptr(), tensor.nbytes());
        lines += Line(std::move(line));
      }
    };
    add(Held::kParam, "");
    if (gradients) add(Held::kGrad, ".grad");
  }
  return lines;
}

}  // namespace heddle
