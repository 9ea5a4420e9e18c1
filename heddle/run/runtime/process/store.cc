#include "heddle/run/runtime/process/store.h"

#include <cstdlib>

#include <c10/util/Flags.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

C10_DECLARE_int(caffe2_log_level);

namespace heddle::run {
namespace {

c10d::TCPStoreOptions OptionsFor(int64_t port, bool serve, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = serve;
  options.waitWorkers = false;
  options.timeout = timeout;
  return options;
}

}  // namespace

std::vector<uint8_t> ToStore(std::string_view text) { return {text.begin(), text.end()}; }
std::string FromStore(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

void QuietC10d() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
}

std::string C10dErrorMessage(const std::exception& error) {
  std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

Result<StorePtr> ConnectStore(const PeerAddress& address, bool serve,
                              std::chrono::milliseconds timeout, std::chrono::milliseconds left) {
  try {
    auto store =
        c10::make_intrusive<c10d::TCPStore>(address.host, OptionsFor(address.port, serve, left));
    store->setTimeout(timeout);
    return StorePtr(c10::make_intrusive<c10d::PrefixStore>("heddle", std::move(store)));
  } catch (const std::exception& error) {
    if (serve)
      return Error(Diag::kEnvironment, "rank 0 cannot open a store at {}:{}: {}", address.host,
                   address.port, C10dErrorMessage(error));
    return Error(Diag::kPeers, "rank {} did not reach the store at {}:{}{} within {} ms: {}",
                 address.rank, address.host, address.port,
                 address.rank_0_serves ? ", which rank 0 opens," : "", timeout.count(),
                 C10dErrorMessage(error));
  }
}

Result<OwnStore> OpenStore(std::chrono::milliseconds timeout) {
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(
        "127.0.0.1", OptionsFor(/*port=*/0, /*serve=*/true, timeout));
    int64_t port = store->getPort();
    return OwnStore{StorePtr(std::move(store)), port};
  } catch (const std::exception& error) {
    return Error(Diag::kEnvironment, "cannot open a store: {}", C10dErrorMessage(error));
  }
}

}  // namespace heddle::run
