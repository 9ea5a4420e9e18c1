// Reads rows of a dataset, and prints the time. bench/data_bench.py compares it with PyTorch's
// DataLoader.
//
//   heddle-data-speed DATASET SEQ_LEN BATCH STEPS
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "heddle/core/base/clock.h"
#include "heddle/run/data/dataset.h"

namespace heddle {
namespace {

struct Rows {
  std::vector<int64_t> tokens;
  std::vector<int64_t> labels;
};

// A sum that does not depend on the order of rows. Tokens and labels count by their positions.
uint64_t SumOf(const Rows& rows, size_t length) {
  uint64_t sum = 0;
  for (size_t i = 0; i < rows.tokens.size(); ++i)
    sum += static_cast<uint64_t>(rows.tokens[i] + 3 * rows.labels[i]) * (i % length + 1);
  return sum;
}

Status Measure(const std::string& source, int64_t length, int64_t batch, int64_t steps) {
  run::DatasetOptions options;
  options.source = source;
  options.vocab = 65536;
  options.seq_len = length;
  options.global_batch = batch;
  options.seed = 1;
  HEDDLE_TRY(std::unique_ptr<run::Dataset> data, run::Dataset::Open(options));
  auto cells = static_cast<size_t>(batch * length);
  Rows rows{std::vector<int64_t>(cells), std::vector<int64_t>(cells)};
  auto read = [&](int64_t step) {
    return data->Read(run::DataSplit::kTrain, step, 0, batch, rows.tokens, rows.labels);
  };
  uint64_t sum = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    HEDDLE_RETURN_IF_ERROR(read(step));
    sum += SumOf(rows, static_cast<size_t>(length));
  }
  Clock clock;
  for (int64_t step = 1; step <= steps; ++step) HEDDLE_RETURN_IF_ERROR(read(step));
  std::printf("{\"seconds\": %.6f, \"sum\": %llu}\n", Seconds(clock.Elapsed()),
              static_cast<unsigned long long>(sum));
  return Done{};
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 5) return 1;
  heddle::Status measured =
      heddle::Measure(argv[1], std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]));
  if (measured.ok()) return 0;
  std::fputs(Format(measured.diagnostics()).c_str(), stderr);
  return 1;
}
