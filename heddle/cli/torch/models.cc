// heddle models: lists the models that can be captured.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/torch/commands.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/run/models/model.h"

namespace heddle {
namespace {

struct ModelsCommand {
  static constexpr const char* kName = "models";
  static constexpr const char* kNote = "";
  static constexpr const char* kExamples = "heddle models";

  bool json = false;

  void Declare(Flags& flags) {
    flags.Switch("--json", json, "print JSON: [{model, flavor, layers, parameters}]");
  }
  Status Run(const Streams& streams) const;
};

Status ModelsCommand::Run(const Streams& streams) const {
  auto list = nlohmann::ordered_json::array();
  TextTable table({"model", "flavor", "layers>", "parameters>"});
  for (const run::ModelConfig& config : run::AllModels()) {
    HEDDLE_TRY(run::Model model, run::MakeModel(config, {.batch = 1, .seq_len = 1}, {}));
    int64_t parameters = model.parameter_count();
    list.push_back({{"model", config.family->name},
                    {"flavor", config.flavor},
                    {"layers", config.n_layers},
                    {"parameters", parameters}});
    table.AddRow({std::string(config.family->name), config.flavor, std::to_string(config.n_layers),
                  WithCommas(parameters)});
  }
  if (json) {
    PrintJson(list, streams);
  } else {
    streams.out << table.Format();
  }
  return Done{};
}

}  // namespace

void AddModels(CommandSet& commands) { commands.Add<ModelsCommand>(); }

}  // namespace heddle
