#include "heddle/core/base/host.h"

#include <utility>

namespace heddle {
namespace {
thread_local Host current_host;
}  // namespace

Host SetHost(Host host) { return std::exchange(current_host, host); }

const Host& CurrentHost() { return current_host; }

}  // namespace heddle
