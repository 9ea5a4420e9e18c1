// What ATen says when it throws.
#pragma once

#include <exception>
#include <string>

namespace heddle::run {

// The message on one line, without the stack trace.
std::string SaidByAten(const std::exception& error);

}  // namespace heddle::run
