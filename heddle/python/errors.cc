#include "heddle/python/errors.h"

#include <chrono>
#include <stdexcept>

#include <nanobind/stl/string.h>

#include "heddle/core/base/text.h"

namespace nb = nanobind;

namespace heddle::python {
namespace {

constexpr auto kLookForSignals = std::chrono::milliseconds(50);

// A failed check on its way through our code.
class FailedCheck : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void SetError(const char* name, const std::string& message, nb::object diagnostics) {
  nb::object type = nb::module_::import_("heddle.errors").attr(name);
  nb::object error = type(message, diagnostics);
  PyErr_SetObject(type.ptr(), error.ptr());
}

// Runs Python's handlers of signals that have arrived; only they may stop a computation.
void LookForSignals() {
  thread_local std::chrono::steady_clock::time_point last;
  auto now = std::chrono::steady_clock::now();
  if (now - last < kLookForSignals) return;
  last = now;
  nb::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace

void Raise(const char* name, const Diagnostics& diagnostics) {
  nb::object type = nb::module_::import_("heddle.errors").attr("Diagnostic");
  nb::list list;
  for (const Diagnostic& d : diagnostics) {
    std::string_view kind = Name(d.kind);
    nb::object file = d.file.empty() ? nb::none() : nb::object(nb::str(d.file.c_str()));
    list.append(
        type(nb::str(kind.data(), kind.size()), d.message, file, d.line, d.column, d.source));
  }
  SetError(name, std::string(Trim(Format(diagnostics))), std::move(list));
  throw nb::python_error();
}

HostScope::HostScope()
    : previous_(SetHost({.check_failed = [](const std::string& text) { throw FailedCheck(text); },
                         .poll = LookForSignals})) {}

void BindErrors(nb::module_& module) {
  module.def(
      "fail_check",
      [](const std::string& message) { Unlocked([&] { HEDDLE_CHECK(false, message); }); },
      nb::arg("message"), "Fails an internal check, so that tests see what happens then.");
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const FailedCheck& failed) {
      SetError("InternalError", failed.what(), nb::list());
    }
  });
}

}  // namespace heddle::python
