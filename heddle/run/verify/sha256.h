// SHA-256, by OpenSSL. Nothing else of it is used.
#pragma once

#include <cstddef>
#include <string>

namespace heddle::run {

// 64 hexadecimal digits.
std::string Sha256(const void* data, size_t size);

}  // namespace heddle::run
