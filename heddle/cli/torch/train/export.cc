// heddle export: writes weights for other programs.
#include "heddle/run/hf/export.h"

#include <ostream>

#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/train/saved_job.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

struct ExportCommand {
  static constexpr const char* kName = "export";
  static constexpr const char* kNote =
      "Writes config.json and the weights, in one file or in several with an index, for "
      "LlamaForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM or DeepseekV3ForCausalLM of "
      "transformers. Models that none of these classes computes are refused.";
  static constexpr const char* kExamples =
      "heddle export --checkpoint=runs/8b --hf=out --dtype=bf16";

  ModelOptions model;
  std::string folder;
  std::string checkpoint;
  std::optional<int64_t> step;
  DType dtype = DType::kF32;
  int64_t shard_mib = 5 * 1024;

  void Declare(Flags& flags) {
    flags.Required("--hf=FOLDER", folder, "folder to write");
    flags.Option("--checkpoint=FOLDER", checkpoint,
                 "folder of checkpoints: export the newest, as the model of its job.toml");
    flags.Option("--step", step, "export the checkpoint of this step instead of the newest");
    flags.Choice<DType>("--dtype", dtype, "type of the exported weights: f32 or bf16",
                        {{"f32", DType::kF32}, {"bf16", DType::kBF16}});
    flags.Option("--shard-size", shard_mib, "maximum size of a weight file, in MiB",
                 {.least = 1, .most = 1 << 20});
    DeclareModel(flags, model);
    for (const char* section : {"Model", "Model sizes"})
      flags.Excludes("--checkpoint", section, "its job.toml describes the model");
    flags.Requires("--step", "--checkpoint");
  }
  Status Run(const Streams& streams) const;
  Result<run::HfExport> Export(const Streams& streams) const;
};

Result<run::HfExport> ExportCommand::Export(const Streams& streams) const {
  run::HfExportOptions options{.dtype = dtype, .most_bytes = MiB(shard_mib)};
  if (!checkpoint.empty()) {
    HEDDLE_TRY(SavedJob job, OpenSavedJob(checkpoint, step));
    for (const std::string& note : job.notes) streams.err << note << "\n";
    return run::ExportHf(*job.model, job.params, folder, options);
  }
  if (model.load_path.empty())
    return Error(Diag::kUsage,
                 "no weights to export; give --checkpoint or --checkpoint.initial_load_path");
  HEDDLE_TRY(run::Model made, model.Make());
  HEDDLE_TRY(run::ParamSource params, model.Params(made, /*seed=*/0));
  return run::ExportHf(made, params, folder, options);
}

Status ExportCommand::Run(const Streams& streams) const {
  HEDDLE_TRY(run::HfExport done, Export(streams));
  streams.out << fmt::format("{} in {}, {}, to {}\n", Counted(done.tensors, "tensor"),
                             Counted(done.files, "file"), Format(done.bytes), folder);
  return Done{};
}

}  // namespace

void AddExport(CommandSet& commands) { commands.Add<ExportCommand>(); }

}  // namespace heddle
