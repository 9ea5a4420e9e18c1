// heddle tune: measures algorithms for the matrix products of a step on a GPU.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/api/device/tune.h"
#include "heddle/cli/step/compile_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/job_flags.h"
#include "heddle/run/metrics/progress.h"

namespace heddle {
namespace {

struct TuneCommand {
  static constexpr const char* kName = "tune";
  static constexpr const char* kNote =
      "Measures the algorithms of cuBLASLt for each matrix product of a step. Algorithms without "
      "the bits of ATen's product are left out. The fastest is stored in the cache folder, and "
      "`heddle train` uses it. Takes the flags of `heddle train`; products of f32 and f64 are not "
      "tuned.";
  static constexpr const char* kExamples =
      "heddle tune --model=llama3 --training.local_batch_size=8 --training.seq_len=1024\n"
      "heddle tune --config=job.toml";

  TuneOptions options;
  CompileFlags compile;
  std::string job;
  bool json = false;

  void Declare(Flags& flags) {
    DeclareStep(flags, options.model);
    DeclareDeterministic(flags, options.model);
    DeclareParallelism(flags, options.parallel);
    compile.Declare(flags);
    flags.Section("Tuning");
    flags.Switch("--again", options.again, "measure shapes again that were measured before");
    flags.Switch("--json", json, "print JSON; times in microseconds");
    flags.Config(job);
  }
  Status Run(const Streams& streams) const;

 private:
  static void PrintTable(const std::vector<TunedProduct>& products, const Streams& streams);
};

double SavedMs(const TunedProduct& product) {
  return static_cast<double>(product.count) * (product.choice.aten_us - product.choice.best_us) /
         1000;
}

void TuneCommand::PrintTable(const std::vector<TunedProduct>& products, const Streams& streams) {
  streams.out << fmt::format("{:<50} {:>8} {:>10} {:>10} {:>8}\n", "m x n x k", "per step",
                             "ATen us", "best us", "saved ms");
  double aten = 0;
  double saved = 0;
  for (const TunedProduct& product : products) {
    streams.out << fmt::format("{:<50} {:>8} {:>10.1f} {:>10.1f} {:>8.2f}\n",
                               product.shape.Format(), product.count, product.choice.aten_us,
                               product.choice.best_us, SavedMs(product));
    aten += static_cast<double>(product.count) * product.choice.aten_us / 1000;
    saved += SavedMs(product);
  }
  streams.out << fmt::format(
      "\nMatrix products take {:.2f} ms of a step with ATen's algorithms and "
      "{:.2f} ms with the best.\n",
      aten, aten - saved);
}

Status TuneCommand::Run(const Streams& streams) const {
  TuneOptions complete = options;
  complete.compile = compile;
  HEDDLE_TRY(complete.parallel, WithPlan(options.parallel, streams));
  std::optional<run::Progress> progress;
  complete.progress = [&](size_t done, size_t shapes) {
    if (!progress) progress.emplace(streams.err, "shape", static_cast<int64_t>(shapes));
    progress->Show(static_cast<int64_t>(done));
  };
  Result<std::vector<TunedProduct>> products = api::Tune(complete);
  if (progress) progress->Clear();
  if (!products.ok()) return std::move(products).failure();
  if (json) {
    nlohmann::ordered_json entries = nlohmann::ordered_json::array();
    for (const TunedProduct& product : *products)
      entries.push_back({{"m", product.shape.m},
                         {"n", product.shape.n},
                         {"k", product.shape.k},
                         {"a_transposed", product.shape.a_transposed},
                         {"b_transposed", product.shape.b_transposed},
                         {"per_step", product.count},
                         {"aten_us", product.choice.aten_us},
                         {"best_us", product.choice.best_us}});
    PrintJson({{"products", std::move(entries)}}, streams);
    return Done{};
  }
  if (products->empty()) {
    streams.out << "The step has no matrix products of bf16 tensors.\n";
    return Done{};
  }
  PrintTable(*products, streams);
  return Done{};
}

}  // namespace

void AddTune(CommandSet& commands) { commands.Add<TuneCommand>(); }

}  // namespace heddle
