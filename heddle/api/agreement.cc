#include "heddle/api/agreement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// Flags that change only what a rank prints or writes for itself, or how many cores it uses. Every
// other flag, also one that is added later, must be the same on all ranks.
constexpr std::string_view kOwnFlags[] = {
    "--metrics.", "--runtime.threads=", "--remarks=", "--time=", "--dump-dir=", "--json="};

std::string SharedFlags(std::string_view flags) {
  std::string shared;
  for (std::string_view line : Split(flags, '\n')) {
    bool own = std::ranges::any_of(kOwnFlags, [&](auto name) { return line.starts_with(name); });
    if (!own) shared += fmt::format("{}\n", line);
  }
  return shared;
}

}  // namespace

Status AgreeOnJob(run::Peers& peers, std::string_view flags, const std::string& facts) {
  // Checked first, because other versions may have other flags.
  HEDDLE_RETURN_IF_ERROR(
      peers.Agree("program", "heddle " HEDDLE_VERSION ", torch " HEDDLE_TORCH_VERSION));
  return peers.Agree("job", SharedFlags(flags) + facts);
}

run::ParamSource StateHash::Adding(run::ParamSource source) {
  return [this, source = std::move(source)](size_t param) -> Result<at::Tensor> {
    HEDDLE_TRY(at::Tensor tensor, source(param));
    Add(tensor);
    return tensor;
  };
}

run::SavedState StateHash::Adding(run::SavedState saved) {
  run::SavedState adding;
  adding.steps = saved.steps;
  adding.param_state = [this, param_state = std::move(saved.param_state)](
                           run::StateKind kind, size_t param) -> Result<at::Tensor> {
    HEDDLE_TRY(at::Tensor tensor, param_state(kind, param));
    Add(tensor);
    return tensor;
  };
  adding.buffer =
      [this, buffer = std::move(saved.buffer)](const std::string& name) -> Result<at::Tensor> {
    HEDDLE_TRY(at::Tensor tensor, buffer(name));
    Add(tensor);
    return tensor;
  };
  return adding;
}

void StateHash::Add(const at::Tensor& tensor) {
  at::Tensor bytes = tensor.to(at::kCPU).contiguous();
  hasher_.Add(bytes.const_data_ptr(), bytes.nbytes());
}

// Ranks may read for a long time, and not equally long: Exchange waits while they are alive.
Status StateHash::Agree(run::Peers& peers, const std::string& from, int64_t group) const {
  HEDDLE_TRY(std::vector<std::string> all,
             peers.Exchange(fmt::format("{} {}", group, Format(hasher_.Get()))));
  // The first rank of each group, and its hash.
  std::map<std::string, std::pair<size_t, std::string>> first;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    size_t space = all[rank].find(' ');
    std::string hash = all[rank].substr(space + 1);
    const auto& [other, expected] =
        first.try_emplace(all[rank].substr(0, space), rank, hash).first->second;
    if (hash == expected) continue;
    return Error(Diag::kPeers,
                 "ranks {} and {} begin with different tensors, both from {}: their hashes are {} "
                 "and {}; all ranks must see the same files",
                 rank, other, from, hash, expected);
  }
  return Done{};
}

}  // namespace heddle
