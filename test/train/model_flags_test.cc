// Notes of commands about the device on which they run a model.
#include "heddle/api/model_options.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(ModelOptions, SaysThatTheCpuRunsAlthoughThereIsAGpu) {
  ModelOptions options;
  EXPECT_EQ(options.DeviceNote(/*machine_has_gpu=*/true),
            "note: running on the CPU, the default; this machine has a GPU, which "
            "--runtime.device=cuda uses");
  EXPECT_EQ(options.DeviceNote(/*machine_has_gpu=*/false), "");
  EXPECT_EQ(*options.ChooseTarget(), run::Target::kCpu);
  options.device = run::Target::kCpu;
  EXPECT_EQ(options.DeviceNote(/*machine_has_gpu=*/true), "") << "the user chose the CPU";
}

}  // namespace
}  // namespace heddle
