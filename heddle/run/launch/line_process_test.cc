#include "heddle/run/launch/line_process.h"

#include <gtest/gtest.h>

#include "heddle/core/base/file.h"

namespace heddle::run {
namespace {

class LineProcessTest : public testing::Test {
 protected:
  std::unique_ptr<LineProcess> Start(const std::string& script) {
    auto started = LineProcess::Start({"sh", "-c", script}, errors());
    EXPECT_TRUE(started.ok());
    return *std::move(started);
  }
  std::string errors() const { return folder_.path() + "/errors"; }

  TempDir folder_;
};

TEST_F(LineProcessTest, ReadsLinesAndTheExitCode) {
  auto process = Start("echo one; echo two; echo three >&2; exit 3");
  EXPECT_EQ(process->ReadLine(), "one");
  EXPECT_EQ(process->ReadLine(), "two");
  EXPECT_EQ(process->ReadLine(), std::nullopt);
  EXPECT_EQ(process->Wait(), 3);
  EXPECT_EQ(*ReadFile(errors()), "three\n");
}

TEST_F(LineProcessTest, ReadsLongLines) {
  auto process = Start("head -c 100000 /dev/zero | tr '\\0' x; echo; echo end");
  EXPECT_EQ(process->ReadLine(), std::string(100000, 'x'));
  EXPECT_EQ(process->ReadLine(), "end");
}

TEST_F(LineProcessTest, IsEndedByASignal) {
  auto process = Start("kill -9 $$");
  EXPECT_EQ(process->ReadLine(), std::nullopt);
  EXPECT_EQ(process->Wait(), 128 + 9);
}

// Hangs if the destructor does not end the program.
TEST_F(LineProcessTest, EndsWithItsObject) {
  auto process = Start("echo ready; exec sleep 1000");
  EXPECT_EQ(process->ReadLine(), "ready");
  process.reset();
}

TEST_F(LineProcessTest, FailsForAProgramThatIsAbsent) {
  auto started = LineProcess::Start({"no-such-program"}, errors());
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.diagnostics()[0].message,
            "cannot start `no-such-program`: No such file or directory");
}

}  // namespace
}  // namespace heddle::run
