#include "heddle/run/runtime/process/peer_address.h"

#include <charconv>
#include <cstdlib>

namespace heddle::run {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

// Returns the number in an environment variable; nullopt if it is not set.
Result<std::optional<int64_t>> Number(const char* name, int64_t least, int64_t most) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::optional<int64_t>();
  std::string_view view(text);
  int64_t value = 0;
  auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < least || value > most)
    return Error(Diag::kEnvironment, "{} is `{}`, expected a number from {} to {}", name, view,
                 least, most);
  return std::optional(value);
}

}  // namespace

Result<std::optional<PeerAddress>> PeerAddress::FromEnvironment() {
  PeerAddress address;
  HEDDLE_TRY(std::optional<int64_t> rank, Number("RANK", 0, kMostRanks - 1));
  if (!rank) return std::optional<PeerAddress>();
  HEDDLE_TRY(std::optional<int64_t> world, Number("WORLD_SIZE", 1, kMostRanks));
  if (!world) return Error(Diag::kEnvironment, "RANK is {}, but WORLD_SIZE is not set", *rank);
  if (*rank >= *world)
    return Error(Diag::kEnvironment, "RANK is {}, but WORLD_SIZE is {}", *rank, *world);
  HEDDLE_TRY(std::optional<int64_t> local, Number("LOCAL_RANK", 0, kMostRanks - 1));
  HEDDLE_TRY(std::optional<int64_t> port, Number("MASTER_PORT", 1, 65535));
  address.rank = *rank;
  address.world_size = *world;
  address.local_rank = local.value_or(*rank);
  if (port) address.port = *port;
  if (const char* host = std::getenv("MASTER_ADDR")) address.host = host;
  if (const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE"))
    address.rank_0_serves = std::string_view(agent) != "True";
  return std::optional(address);
}

}  // namespace heddle::run
