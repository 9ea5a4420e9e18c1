// SHA-256, computed by OpenSSL.
#pragma once

#include <cstddef>
#include <string>

namespace heddle::run {

// Returns 64 hexadecimal digits.
std::string Sha256(const void* data, size_t size);

}  // namespace heddle::run
