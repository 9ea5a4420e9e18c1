// Values of a JSON object that nobody vouches for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "heddle/base/result.h"

namespace heddle {

// An object, with no key twice and no deep nesting.
Result<nlohmann::json> ParseJsonObject(std::string_view text);

// Reads values by key; what is null counts as missing. The first mistake is kept, and a default is given from then on.
class JsonReader {
 public:
  // `prefix` stands before keys in messages. The object must outlive this.
  explicit JsonReader(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  bool Has(const char* key) const { return Find(key) != nullptr; }
  // The value, or nothing.
  const nlohmann::json* Find(const char* key) const;
  // Without a default, the key must be there.
  int64_t Int(const char* key, std::optional<int64_t> missing = std::nullopt);
  double Number(const char* key, std::optional<double> missing = std::nullopt);
  bool Bool(const char* key, bool missing);
  std::string Text(const char* key, std::string_view missing);
  // Notes a mistake of the caller's finding.
  void Fail(std::string message);
  Status status() const;

 private:
  void Expect(const char* key, std::string_view what);

  const nlohmann::json& object_;
  std::string prefix_;
  std::string mistake_;
};

}  // namespace heddle
