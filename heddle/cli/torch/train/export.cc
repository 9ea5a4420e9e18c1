// heddle export: writes weights for other programs.
#include "heddle/run/hf/adapters.h"

#include <ostream>

#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/train/saved_job.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/run/data/files_below.h"
#include "heddle/run/tokenizer/tokenizer.h"

namespace heddle {
namespace {

struct ExportCommand {
  static constexpr const char* kName = "export";
  static constexpr const char* kNote =
      "Writes config.json and the weights, in one file or in several with an index, for the "
      "family's class of transformers. Models that no class computes are refused. Copies the "
      "tokenizer.";
  static constexpr const char* kExamples =
      "heddle export --checkpoint=runs/8b --hf=out --dtype=bf16";

  ModelOptions model;
  std::string folder;
  std::string checkpoint;
  std::optional<int64_t> step;
  DType dtype = DType::kF32;
  int64_t shard_mib = 5 * 1024;
  std::string tokenizer;
  bool merge = true;

  void Declare(Flags& flags) {
    flags.Required("--hf=FOLDER", folder, "folder to write");
    flags.Option("--checkpoint=FOLDER", checkpoint,
                 "folder of checkpoints: export the newest, as the model of its job.toml");
    flags.Option("--step", step, "export the checkpoint of this step instead of the newest");
    flags.Choice<DType>("--dtype", dtype, "type of the exported weights: f32 or bf16",
                        {{"f32", DType::kF32}, {"bf16", DType::kBF16}});
    flags.Option("--shard-size", shard_mib, "maximum size of a weight file, in MiB",
                 {.least = 1, .most = 1 << 20});
    flags.Option("--tokenizer=FOLDER", tokenizer,
                 "folder whose tokenizer to copy (default: that of the job, or of the initial "
                 "weights)");
    flags.Switch(
        "--lora.merge", merge,
        "add adapters to the weights; =false writes the adapters only, as a folder of PEFT");
    DeclareModel(flags, model);
    for (const char* section : {"Model", "Model sizes"})
      flags.Excludes("--checkpoint", section, "its job.toml describes the model");
    flags.Requires("--step", "--checkpoint");
  }
  Status Run(const Streams& streams) const;
  Result<run::HfExport> Export(const Streams& streams) const;
  using Tokenizer = std::shared_ptr<const run::Tokenizer>;
  // The tokenizer at --tokenizer, or else at `path`, or null.
  Result<Tokenizer> OpenTokenizer(const std::string& path, int64_t vocab) const;
  Status CopyTokenizer(const run::Tokenizer& from) const;
  Result<run::HfExport> ExportWith(const run::Model& model, const run::ParamSource& params,
                                   const std::string& tokenizer_path,
                                   const std::string& base) const;
  Result<run::HfExport> ExportWeights(const run::Model& model, const run::ParamSource& params,
                                      const std::string& base) const;
};

Result<ExportCommand::Tokenizer> ExportCommand::OpenTokenizer(const std::string& path,
                                                              int64_t vocab) const {
  if (tokenizer.empty() && path.empty()) return Tokenizer();
  HEDDLE_TRY(Tokenizer opened, run::Tokenizer::Open(tokenizer.empty() ? path : tokenizer));
  HEDDLE_RETURN_IF_ERROR(opened->CheckFits(vocab));
  return opened;
}

Status ExportCommand::CopyTokenizer(const run::Tokenizer& from) const {
  std::string source = from.file().substr(0, from.file().rfind('/') + 1);
  HEDDLE_TRY(std::string json, ReadFile(from.file()));
  HEDDLE_RETURN_IF_ERROR(WriteFile(folder + "/" + run::kTokenizerFile, json));
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}) {
    if (!run::IsFile(source + name)) continue;
    HEDDLE_TRY(std::string content, ReadFile(source + name));
    HEDDLE_RETURN_IF_ERROR(WriteFile(folder + "/" + name, content));
  }
  return Done{};
}

Result<run::HfExport> ExportCommand::ExportWeights(const run::Model& made,
                                                   const run::ParamSource& params,
                                                   const std::string& base) const {
  run::HfExportOptions options{.dtype = dtype, .most_bytes = MiB(shard_mib)};
  if (made.config.lora.rank == 0) {
    if (merge) return run::ExportHf(made, params, folder, options);
    return Error(Diag::kUsage, "--lora.merge=false needs a model with adapters (--lora.rank)");
  }
  if (!merge) return run::ExportAdapters(made, params, base, folder, dtype);
  HEDDLE_TRY(run::Model merged, run::WithoutAdapters(made));
  return run::ExportHf(merged, run::MergedParams(made, params), folder, options);
}

Result<run::HfExport> ExportCommand::ExportWith(const run::Model& made,
                                                const run::ParamSource& params,
                                                const std::string& tokenizer_path,
                                                const std::string& base) const {
  // Before the weights, which take long.
  HEDDLE_TRY(Tokenizer opened, OpenTokenizer(tokenizer_path, made.config.vocab_size));
  HEDDLE_TRY(run::HfExport done, ExportWeights(made, params, base));
  if (opened != nullptr) HEDDLE_RETURN_IF_ERROR(CopyTokenizer(*opened));
  return done;
}

Result<run::HfExport> ExportCommand::Export(const Streams& streams) const {
  if (!checkpoint.empty()) {
    HEDDLE_TRY(SavedJob job, OpenSavedJob(checkpoint, step));
    for (const std::string& note : job.notes) streams.err << note << "\n";
    return ExportWith(*job.model, job.params, job.tokenizer, job.flags->options.model.load_path);
  }
  if (model.load_path.empty())
    return Error(Diag::kUsage,
                 "no weights to export; give --checkpoint or --checkpoint.initial_load_path");
  // Weights do not depend on the length of sequences, which a window may limit.
  ModelOptions shortest = model;
  shortest.seq_len = 1;
  HEDDLE_TRY(run::Model made, shortest.Make());
  HEDDLE_TRY(run::ParamSource params, model.Params(made, /*seed=*/0));
  bool has_tokenizer = run::IsFile(model.load_path + "/" + run::kTokenizerFile);
  return ExportWith(made, params, has_tokenizer ? model.load_path : "", model.load_path);
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
