#include "heddle/compile/plan/decisions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

// Formats bytes in the largest unit that divides them: `60GiB`.
std::string ExactBytes(Bytes bytes) {
  struct Unit {
    int64_t bytes;
    std::string_view name;
  };
  constexpr Unit kUnits[] = {
      {int64_t{1} << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}};
  for (const Unit& unit : kUnits) {
    if (bytes.value % unit.bytes == 0)
      return fmt::format("{}{}", bytes.value / unit.bytes, unit.name);
  }
  return fmt::format("{}B", bytes.value);
}

}  // namespace

std::string Format(const PlanBatch& batch) {
  std::string out = fmt::format("{} x {}", batch.sequences, batch.seq_len);
  if (batch.micro_batches > 1) out += fmt::format(" in {} micro-batches", batch.micro_batches);
  return out;
}

std::string Format(const PlanStages& stages) {
  std::string out = fmt::format("{} schedule {} in {} micro-batches", FormatPositions(stages),
                                Quoted(stages.schedule), stages.micro_batches);
  if (stages.gather_every > 0) out += fmt::format(" gather every {}", stages.gather_every);
  if (stages.reduce_every > 0) out += fmt::format(" reduce every {}", stages.reduce_every);
  return out;
}

std::string FormatPositions(const PlanStages& stages) {
  return fmt::format("{}", fmt::join(stages.first_positions, "/"));
}

std::string FormatDecisions(const PlanDecisions& decisions) {
  std::string out;
  auto text = [&](std::string_view statement, const std::optional<std::string>& value) {
    if (value) out += fmt::format("{} {}\n", statement, Quoted(*value));
  };
  if (decisions.batch) out += fmt::format("batch {}\n", Format(*decisions.batch));
  if (decisions.norms_apart)
    out += fmt::format("norms {}\n", *decisions.norms_apart ? "apart" : "shared");
  text("cluster", decisions.cluster);
  if (decisions.budget) out += fmt::format("budget {}\n", ExactBytes(*decisions.budget));
  text("pipeline", decisions.pipeline);
  text("reshard", decisions.reshard);
  if (decisions.reduce_first)
    out += fmt::format("reduce-first {}\n", *decisions.reduce_first ? "true" : "false");
  if (decisions.expert_buffers)
    out += fmt::format("expert-rows {}\n", *decisions.expert_buffers ? "bound" : "exact");
  if (decisions.stages) out += fmt::format("stages {}\n", Format(*decisions.stages));
  text("checkpoint", decisions.checkpoint);
  for (const PlanMark& mark : decisions.marks) {
    out += fmt::format("keep {} {} {} {}", Quoted(mark.pattern), mark.op, Name(mark.phase),
                       mark.number);
    if (mark.result != 0) out += fmt::format(" result {}", mark.result);
    out += fmt::format(" {}\n", Name(mark.keep));
  }
  return out;
}

}  // namespace heddle::compile
