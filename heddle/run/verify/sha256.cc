#include "heddle/run/verify/sha256.h"

#include <openssl/evp.h>

#include "heddle/core/base/check.h"

namespace heddle::run {

std::string Sha256(const void* data, size_t size) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  HEDDLE_CHECK(EVP_Digest(data, size, digest, &length, EVP_sha256(), nullptr) == 1,
               "OpenSSL has no SHA-256");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

}  // namespace heddle::run
