// The memory of parsing is bounded by a constant times the size of the text.
#include <atomic>
#include <cstdlib>
#include <new>

#include <malloc.h>

#include <gtest/gtest.h>

#include "heddle/core/ir/text/parse.h"
#include "heddle/core/ops/ops.h"

namespace {
// Bytes allocated and not freed, and their maximum. Counted by the operators below.
std::atomic<size_t> live_bytes = 0;
std::atomic<size_t> peak_bytes = 0;
}  // namespace

void* operator new(size_t size) {
  void* block = std::malloc(size);
  if (block == nullptr) throw std::bad_alloc();
  size_t now = live_bytes += malloc_usable_size(block);
  if (now > peak_bytes) peak_bytes = now;
  return block;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void operator delete(void* block) noexcept {
  if (block != nullptr) live_bytes -= malloc_usable_size(block);
  std::free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { operator delete(block); }

namespace heddle {
namespace {

// Returns the peak memory of parsing a text, in bytes, without the text itself.
size_t ParsingPeak(const std::string& text) {
  std::string copy = text;
  peak_bytes = live_bytes.load();
  size_t before = live_bytes;
  {
    Parsed parsed = ParseText(std::move(copy), "input", Ops());
    (void)parsed;
  }
  return peak_bytes - before;
}

TEST(Memory, IsBoundedByTheInput) {
  (void)Ops();
  auto repeat = [](std::string_view part, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += part;
    return out;
  };
  std::string head = "heddle 1 local\nmesh [dp=4]\ngraph @g(%x: f32[4]) -> () {\n";
  std::vector<std::string> hostile = {
      repeat("(", 100'000),
      head + "  %a = aten.f(" + repeat("[", 100'000),
      head + "  %a = aten.f(a=" + repeat("[", 100'000),
      head + repeat("  %a\n", 50'000) + "}\n",
      head + "  %a = aten.neg(%x) : f32[" + repeat("1,", 50'000) + "1]\n}\n",
      head + "  %a = aten.f(a=[" + repeat("1,", 50'000) + "1]) : f32[4]\n}\n",
      head + "  %a = aten.split.Tensor(%x, split_size=1)\n}\n",
      head +
          "  %b = aten.full(size=[1000000000000], fill_value=1.0)\n  %a = aten.split.Tensor(%b, "
          "split_size=1)\n}\n",
      head + "  %b = aten.full(size=[1000000], fill_value=1.0)\n  %a = aten.unbind.int(%b)\n}\n",
      "heddle 1 local\nmesh [" + repeat("a=2, ", 50'000),
      "heddle 1 local\ngraph @g(" + repeat("%a: f32[t<=9], ", 20'000),
  };
  for (const std::string& text : hostile) {
    // A constant for tables and messages, and a factor per byte of text.
    EXPECT_LT(ParsingPeak(text), (size_t{1} << 20) + 200 * text.size()) << text.substr(0, 120);
  }
}

}  // namespace
}  // namespace heddle
