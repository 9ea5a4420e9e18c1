#include "heddle/run/launch/launcher.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heddle/core/base/file.h"

namespace heddle::run {
namespace {

using std::chrono::milliseconds;

struct Ran {
  JobEnd end;
  std::string out;
  std::string err;
};

// Runs a shell script on every rank, and returns its output.
Ran RunScript(const std::string& script, int64_t processes,
              milliseconds grace = milliseconds(500)) {
  Ran ran;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    SignalGate gate;
    Job job{.program = "/bin/sh",
            .args = {"-c", script},
            .processes = processes,
            .environment = {{"COLOR", "red"}},
            .grace = grace};
    Result<JobEnd> end = RunJob(job, gate);
    EXPECT_TRUE(end.ok());
    if (end.ok()) ran.end = *end;
  }
  ran.out = testing::internal::GetCapturedStdout();
  ran.err = testing::internal::GetCapturedStderr();
  return ran;
}

TEST(Launcher, ProcessesKnowWhoTheyAre) {
  Ran ran = RunScript("echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $COLOR", 3);
  EXPECT_TRUE(ran.end.ok());
  EXPECT_EQ(ran.out, "0/3 0/3 red\n");
  EXPECT_NE(ran.err.find("[rank 1] 1/3 1/3 red\n"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("[rank 2] 2/3 2/3 red\n"), std::string::npos) << ran.err;
}

TEST(Launcher, LinesAreNotTorn) {
  Ran ran = RunScript("if [ $RANK = 1 ]; then printf one; sleep 0.1; printf '|two\nthree'; fi", 2);
  EXPECT_EQ(ran.err, "[rank 1] one|two\n[rank 1] three\n");
}

TEST(Launcher, TheFirstFailureCounts) {
  Ran ran = RunScript("[ $RANK = 1 ] && exit 7; sleep 30; echo slept", 3);
  EXPECT_EQ(ran.end.rank, 1);
  EXPECT_EQ(ran.end.code, 7);
  // The launcher ended the others before they were done.
  EXPECT_EQ(ran.out + ran.err, "");
}

TEST(Launcher, OthersMaySayWhatTheySaw) {
  Ran ran = RunScript("[ $RANK = 1 ] && kill -9 $$; sleep 0.2; echo lost rank 1; exit 4", 2,
                      milliseconds(5000));
  EXPECT_EQ(ran.end.rank, 1);
  EXPECT_EQ(ran.end.signal, SIGKILL);
  EXPECT_EQ(ran.out, "lost rank 1\n");
}

TEST(Launcher, KillsWhatDoesNotListen) {
  Ran ran = RunScript("trap '' TERM; [ $RANK = 0 ] && exit 3; sleep 30; echo slept", 2);
  EXPECT_EQ(ran.end.code, 3);
  EXPECT_EQ(ran.out + ran.err, "");
}

// Only SIGKILL ends a stopped process. If the launcher sent another signal, it would wait forever.
TEST(Launcher, KillsAStoppedProcess) {
  Ran ran = RunScript("[ $RANK = 0 ] && exit 3; kill -STOP $$", 2);
  EXPECT_EQ(ran.end.code, 3);
}

TEST(Launcher, PassesSignalsOn) {
  Ran ran =
      RunScript("trap 'echo told; exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.05; done", 1);
  EXPECT_TRUE(ran.end.ok());
  EXPECT_EQ(ran.end.stopped, SIGTERM);
  EXPECT_EQ(ran.out, "told\n");
}

TEST(Launcher, AStopDuringTheGraceIsRemembered) {
  Ran ran = RunScript("[ $RANK = 1 ] && kill -9 $$; sleep 0.2; kill -INT $PPID; sleep 30", 2,
                      milliseconds(2000));
  EXPECT_EQ(ran.end.rank, 1);
  EXPECT_EQ(ran.end.signal, SIGKILL);
  EXPECT_EQ(ran.end.stopped, SIGINT);
}

TEST(Launcher, AStopBeforeTheStartStartsNothing) {
  TempDir dir;
  std::string note = dir.path() + "/started";
  SignalGate gate;
  ::kill(::getpid(), SIGTERM);
  Result<JobEnd> end =
      RunJob({.program = "/bin/sh", .args = {"-c", "touch " + note}, .environment = {}}, gate);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->stopped, SIGTERM);
  EXPECT_EQ(end->signal, SIGTERM);
  EXPECT_FALSE(ReadFile(note).ok());
}

TEST(Launcher, ASignalEndsThePreparation) {
  pid_t launcher = ::fork();
  if (launcher == 0) {
    SignalGate gate;
    SetupGuard setup(gate);
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(30));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(Launcher, SaysThatItCannotStartAProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  Diagnostics said;
  {
    SignalGate gate;
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(gate.fd()) + 2;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    Result<JobEnd> end = RunJob({.program = "/bin/true", .args = {}, .environment = {}}, gate);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_FALSE(end.ok());
    said = end.diagnostics();
  }
  EXPECT_EQ(said[0].kind, Diag::kLaunch);
  EXPECT_EQ(said[0].message, "cannot start the process of rank 0: Too many open files");
}

TEST(Launcher, NoProcessOutlivesIt) {
  TempDir dir;
  std::string note = dir.path() + "/pid";
  std::string slept = dir.path() + "/slept";
  pid_t launcher = ::fork();
  if (launcher == 0) {
    SignalGate gate;
    Job job{.program = "/bin/sh",
            .args = {"-c", "echo $$ >" + note + ".new; mv " + note + ".new " + note +
                               "; sleep 30; touch " + slept},
            .processes = 1,
            .environment = {}};
    [[maybe_unused]] Result<JobEnd> end = RunJob(job, gate);
    ::_exit(0);
  }
  pid_t child = 0;
  while (child == 0) {
    std::this_thread::sleep_for(milliseconds(20));
    std::ifstream(note) >> child;
  }
  ::kill(launcher, SIGKILL);
  bool gone = false;
  while (!gone) {
    std::this_thread::sleep_for(milliseconds(20));
    std::string stat;
    std::ifstream file("/proc/" + std::to_string(child) + "/stat");
    std::getline(file, stat);
    gone = stat.empty() || stat.find(") Z") != std::string::npos;
  }
  // The launcher ended it early.
  EXPECT_FALSE(ReadFile(slept).ok());
}

}  // namespace
}  // namespace heddle::run
