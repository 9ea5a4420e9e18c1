// What commands that run a model say about the device they run on.
#include "heddle/cli/torch/model_flags.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(ModelFlags, SaysThatTheCpuRunsAlthoughThereIsAGpu) {
  ModelFlags flags;
  EXPECT_EQ(flags.DeviceNote(/*machine_has_gpu=*/true),
            "note: running on the CPU, the default; this machine has a GPU, which "
            "--runtime.device=cuda uses");
  EXPECT_EQ(flags.DeviceNote(/*machine_has_gpu=*/false), "");
  EXPECT_EQ(*flags.ChooseTarget(), run::Target::kCpu);
  flags.device = "cpu";
  EXPECT_EQ(flags.DeviceNote(/*machine_has_gpu=*/true), "") << "the user chose the CPU";
}

}  // namespace
}  // namespace heddle
