#include "heddle/run/aten/error_message.h"

#include <algorithm>

#include <c10/util/Exception.h>

#include "heddle/core/base/text.h"

namespace heddle::run {

std::string AtenErrorMessage(const std::exception& error) {
  const auto* thrown = dynamic_cast<const c10::Error*>(&error);
  std::string text = thrown != nullptr ? thrown->what_without_backtrace() : error.what();
  // Exceptions that pass through autograd contain the trace in their text.
  text = text.substr(0, text.find("\nException raised from "));
  std::ranges::replace(text, '\n', ' ');
  return std::string(Trim(text));
}

}  // namespace heddle::run
