#include "heddle/run/runtime/process/own_address.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include "heddle/core/base/text.h"

namespace heddle::run {
namespace {

constexpr const char* kVariable = "GLOO_SOCKET_IFNAME";
// In an exchanged text, precedes the reason why a rank has no address.
constexpr std::string_view kNone = "none: ";

socklen_t SizeOf(const sockaddr& address) {
  return address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

std::string Numeric(const sockaddr& address) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(&address, SizeOf(address), text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool IsLoopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

struct Interface {
  std::string name;
  std::string address;
};

// The interfaces that are up, each with its IPv4 address, or else its IPv6 address.
std::vector<Interface> Interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, ::freeifaddrs);
  std::vector<Interface> found;
  for (int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family) continue;
      bool known = std::ranges::find(found, at->ifa_name, &Interface::name) != found.end();
      if (!known && (at->ifa_flags & IFF_UP) != 0)
        found.push_back({at->ifa_name, Numeric(*at->ifa_addr)});
    }
  }
  return found;
}

Result<std::vector<std::string>> AddressesOf(std::string_view names) {
  std::vector<Interface> interfaces = Interfaces();
  std::vector<std::string> addresses;
  for (std::string_view name : Split(names, ',')) {
    auto found = std::ranges::find(interfaces, name, &Interface::name);
    if (found == interfaces.end()) {
      std::vector<std::string> known;
      for (const Interface& interface : interfaces) known.push_back(interface.name);
      return Error(Diag::kEnvironment,
                   "{} is `{}`, but no interface `{}` is up with an address; these are: {}",
                   kVariable, names, name, fmt::join(known, ", "));
    }
    addresses.push_back(found->address);
  }
  return addresses;
}

Result<std::vector<std::string>> Addresses(const std::string& host) {
  const char* names = std::getenv(kVariable);
  if (names != nullptr && *names != '\0') return AddressesOf(names);
  HEDDLE_TRY(std::string address, AddressTowards(host));
  return std::vector{address};
}

}  // namespace

Result<std::string> AddressTowards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  // A datagram socket needs a port to connect, and any will do.
  int error = ::getaddrinfo(host.c_str(), "9", &hints, &first);
  if (error != 0)
    return Error(Diag::kEnvironment, "MASTER_ADDR `{}` has no address: {}", host,
                 ::gai_strerror(error));
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(first, ::freeaddrinfo);
  for (const addrinfo* at = first; at != nullptr; at = at->ai_next) {
    int fd = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* address = reinterpret_cast<sockaddr*>(&own);
    bool known = fd >= 0 && ::connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
                 ::getsockname(fd, address, &size) == 0;
    if (fd >= 0) ::close(fd);
    if (known) return Numeric(*address);
  }
  return Error(Diag::kEnvironment, "no interface of this machine has a route to MASTER_ADDR `{}`",
               host);
}

Result<std::vector<std::string>> OwnAddresses(Peers& peers) {
  Result<std::vector<std::string>> own = Addresses(peers.host());
  HEDDLE_TRY(std::vector<std::string> texts,
             peers.Exchange(own.ok() ? fmt::format("{}", fmt::join(*own, ","))
                                     : fmt::format("{}{}", kNone, own.diagnostics()[0].message)));
  auto reachable = std::ranges::find_if(
      texts, [](const std::string& text) { return !text.starts_with(kNone) && !IsLoopback(text); });
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string& text = texts[rank];
    std::string self = peers.watch().NameOf(static_cast<int64_t>(rank));
    if (text.starts_with(kNone))
      return Error(Diag::kEnvironment, "{}: {}", self, text.substr(kNone.size()));
    if (reachable != texts.end() && IsLoopback(text))
      return Error(
          Diag::kEnvironment,
          "{} accepts connections only from its own machine, at {}, but {} is at {}; set {} "
          "to the interface that the other machines reach, such as eth0, or MASTER_ADDR, "
          "here `{}`, to its address",
          self, text, peers.watch().NameOf(reachable - texts.begin()), *reachable, kVariable,
          peers.host());
  }
  return own;
}

}  // namespace heddle::run
