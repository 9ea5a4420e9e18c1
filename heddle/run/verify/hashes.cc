#include "heddle/run/verify/hashes.h"

#include <nlohmann/json.hpp>

#include "heddle/run/verify/compare.h"
#include "heddle/run/verify/sha256.h"

namespace heddle::run {
namespace {

using Json = nlohmann::ordered_json;

std::string Line(Json line) {
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string HashLine(int64_t step, int64_t rank, const std::string& name,
                     const at::Tensor& tensor) {
  at::Tensor plain = tensor.cpu().contiguous();
  return Line({{"step", step},
               {"rank", rank},
               {"name", name},
               {"shape", plain.sizes().vec()},
               {"sha256", Sha256(plain.data_ptr(), plain.nbytes())}});
}

std::string HashLines(const TrainingRun& run, std::span<const ParamSpec> params, bool gradients,
                      bool moments) {
  std::string lines;
  for (size_t at = 0; at < run.ranks().size(); ++at) {
    int64_t rank = run.ranks()[at];
    lines += Line(
        {{"step", run.steps()}, {"rank", rank}, {"loss", HexFloat(run.loss(at).item<double>())}});
    auto add = [&](StateKind kind, std::string_view suffix) {
      for (size_t i = 0; i < params.size(); ++i) {
        at::Tensor tensor = run.state(kind, at, i);
        if (!tensor.defined()) continue;
        lines += HashLine(run.steps(), rank, params[i].name + std::string(suffix), tensor);
      }
    };
    add(StateKind::kParam, "");
    if (gradients) add(StateKind::kGrad, ".grad");
    if (!moments) continue;
    for (StateKind kind : kMomentKinds) add(kind, fmt::format(".{}", Name(kind)));
  }
  return lines;
}

}  // namespace heddle::run
