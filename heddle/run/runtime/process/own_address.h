// OwnAddresses: the network interfaces over which the ranks of a job exchange tensors on CPUs.
#pragma once

#include <string>
#include <vector>

#include "heddle/run/runtime/process/peers.h"

namespace heddle::run {

// Returns the addresses at which this rank accepts connections of the others. They are those of the
// interfaces in GLOO_SOCKET_IFNAME (`eth0` or `eth0,eth1`), or else the one from which this machine
// reaches MASTER_ADDR. Fails on every rank if one rank has no address that the others can reach.
// All ranks must call this together.
Result<std::vector<std::string>> OwnAddresses(Peers& peers);

// Returns the address from which this machine sends to a host; sends nothing. Fails if the host has
// no address, or no interface a route to it. Asks the name server, so it may take long.
Result<std::string> AddressTowards(const std::string& host);

}  // namespace heddle::run
