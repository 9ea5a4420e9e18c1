// Tests of calls to cuBLASLt, with a library that records them.
#include <gtest/gtest.h>

#include "heddle/run/cuda/blas_lt.h"

namespace heddle::run {
namespace {

std::vector<std::string> blas_calls;
int failing_multiply = 0;

template <typename Handle>
Handle* FakeBlas(uintptr_t number) {
  return reinterpret_cast<Handle*>(number);
}

BlasLt RecordingBlas() {
  blas_calls.clear();
  failing_multiply = 0;
  BlasLt b;
  b.descriptor_create = [](BlasLt::Descriptor** made, int, int) {
    *made = FakeBlas<BlasLt::Descriptor>(1);
    return 0;
  };
  b.descriptor_set = [](BlasLt::Descriptor*, int key, const void* value, size_t) {
    blas_calls.push_back(fmt::format("set {} {}", key, *static_cast<const int32_t*>(value)));
    return 0;
  };
  b.descriptor_destroy = [](BlasLt::Descriptor*) { return 0; };
  b.layout_create = [](BlasLt::Layout** made, int type, uint64_t rows, uint64_t columns,
                       int64_t stride) {
    blas_calls.push_back(fmt::format("layout {} {} x {} by {}", type, rows, columns, stride));
    *made = FakeBlas<BlasLt::Layout>(rows);
    return 0;
  };
  b.layout_destroy = [](BlasLt::Layout*) { return 0; };
  b.preference_create = [](BlasLt::Preference** made) {
    *made = FakeBlas<BlasLt::Preference>(3);
    return 0;
  };
  b.preference_set = [](BlasLt::Preference*, int, const void*, size_t) { return 0; };
  b.preference_destroy = [](BlasLt::Preference*) { return 0; };
  b.heuristic = [](BlasLt::Handle*, BlasLt::Descriptor*, BlasLt::Layout*, BlasLt::Layout*,
                   BlasLt::Layout*, BlasLt::Layout*, BlasLt::Preference*, int,
                   BlasLt::Candidate* candidates, int* count) {
    for (size_t i = 0; i < 3; ++i) {
      candidates[i] = {};
      candidates[i].algorithm[0] = i + 10;
      candidates[i].workspace = i * 100;
    }
    candidates[1].state = 15;
    *count = 3;
    return 0;
  };
  b.check = [](BlasLt::Handle*, BlasLt::Descriptor*, BlasLt::Layout*, BlasLt::Layout*,
               BlasLt::Layout*, BlasLt::Layout*, const void*, BlasLt::Candidate* result) {
    result->workspace = 200;
    return 0;
  };
  b.multiply = [](BlasLt::Handle*, BlasLt::Descriptor*, const void* alpha, const void* a,
                  BlasLt::Layout*, const void* b, BlasLt::Layout*, const void* beta, const void*,
                  BlasLt::Layout*, void* d, BlasLt::Layout*, const void*, void*, size_t,
                  CudaStreamHandle*) {
    blas_calls.push_back(fmt::format("{} {} * {} + {} {}", *static_cast<const float*>(alpha),
                                     reinterpret_cast<uintptr_t>(a), reinterpret_cast<uintptr_t>(b),
                                     *static_cast<const float*>(beta),
                                     reinterpret_cast<uintptr_t>(d)));
    return failing_multiply;
  };
  return b;
}

TEST(LtMatmul, SwapsOperandsBecauseMatricesAreStoredByColumns) {
  BlasLt library = RecordingBlas();
  Result<LtMatmul> product =
      LtMatmul::Make(library, {.m = 32, .n = 48, .k = 16, .b_transposed = true});
  ASSERT_TRUE(product.ok());
  EXPECT_EQ(blas_calls,
            (std::vector<std::string>{"set 3 1", "set 4 0", "layout 14 16 x 32 by 16",
                                      "layout 14 16 x 48 by 16", "layout 14 48 x 32 by 48"}));
  blas_calls.clear();
  ASSERT_TRUE(
      product->Run({}, FakeBlas<void>(1), FakeBlas<void>(2), FakeBlas<void>(3), nullptr, nullptr)
          .ok());
  EXPECT_EQ(blas_calls, (std::vector<std::string>{"1 2 * 1 + 0 3"}));
  failing_multiply = 13;
  Status failed = product->Run({}, nullptr, nullptr, nullptr, nullptr, nullptr);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.diagnostics()[0].message, "cublasLtMatmul: status 13");
}

TEST(LtMatmul, OffersAlgorithmsThatFit) {
  BlasLt library = RecordingBlas();
  Result<LtMatmul> product = LtMatmul::Make(library, {.m = 32, .n = 48, .k = 16});
  ASSERT_TRUE(product.ok());
  Result<std::vector<MatmulAlgorithm>> algorithms = product->Algorithms();
  ASSERT_TRUE(algorithms.ok());
  // The second cannot run.
  ASSERT_EQ(algorithms->size(), 2u);
  EXPECT_EQ((*algorithms)[1].words[0], 12u);
  EXPECT_EQ((*algorithms)[1].workspace, 200u);
  EXPECT_TRUE(product->Check((*algorithms)[1]).ok());
  // It needs more than was stored.
  EXPECT_FALSE(product->Check((*algorithms)[0]).ok());
}

}  // namespace
}  // namespace heddle::run
