// Messages of ATen's exceptions.
#pragma once

#include <exception>
#include <string>

namespace heddle::run {

// Returns the message on one line, without the stack trace.
std::string AtenErrorMessage(const std::exception& error);

}  // namespace heddle::run
