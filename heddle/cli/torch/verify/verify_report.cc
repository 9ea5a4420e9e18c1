#include "heddle/cli/torch/verify/verify_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"
#include "heddle/run/train/exact.h"

namespace heddle {
namespace {

// Steps are printed as they finish, so column widths cannot depend on later ones.
std::string Row(std::string_view step, std::string_view loss, std::string_view hex,
                std::string_view ranks, std::string_view tensors, std::string_view elements,
                std::string_view bits) {
  return fmt::format("{:>4}  {:>9}  {:<15} {:>5}  {:>9}  {:>15}  {:>14}\n", step, loss, hex, ranks,
                     tensors, elements, bits);
}

// `gradient of `norm.weight`` for `norm.weight.grad`.
std::string HashedName(std::string_view name) {
  for (auto [suffix, what] : {std::pair<std::string_view, std::string_view>(".grad", "gradient"),
                              {".exp_avg", "exp_avg"},
                              {".exp_avg_sq", "exp_avg_sq"},
                              {".momentum_buffer", "momentum_buffer"}}) {
    if (name.ends_with(suffix))
      return fmt::format("{} of `{}`", what, name.substr(0, name.size() - suffix.size()));
  }
  bool loss = name == "loss" || name == "validation_loss";
  return loss ? std::string(name == "loss" ? "loss" : "validation loss")
              : fmt::format("`{}`", name);
}

std::string DifferenceText(const run::HashDifference& d, int64_t step) {
  return fmt::format(
      "step {} differs: rank {}, {}; {} of {} hashes differ\n  graph    {}\n  PyTorch  {}\n"
      "--against=eager tells whether the graph differs from Heddle's eager training, too; if it "
      "does not, the fault is in code that both share (docs/verify.md)\n",
      step, d.rank, HashedName(d.name), d.differing, d.compared, d.first, d.second);
}

std::string DifferenceText(const VerifiedJob& job, const run::StepRow& row) {
  if (row.hash_difference) return DifferenceText(*row.hash_difference, row.step);
  const run::Difference& d = *row.comparison.first;
  std::string what = d.kind ? fmt::format("{} of `{}`", Name(*d.kind), job.params[d.param].name)
                            : std::string("loss");
  std::string text = fmt::format("step {} differs: rank {}, {}", row.step, d.rank, what);
  if (d.differing_elements >= 0)
    text += fmt::format(", element {} of {}; {} of them differ", d.element, d.elements,
                        d.differing_elements);
  text += fmt::format("\n  graph  {}\n  {:<6} {}\n", d.first,
                      job.against == "eager" ? "eager" : "other", d.second);
  return text;
}

std::string OriginText(const VerifiedJob& job, const run::VerifyReport& report) {
  std::string text;
  if (!report.finite) {
    text += fmt::format("step {}: the loss is {}\n", report.rows.back().step,
                        run::HexFloat(report.rows.back().loss));
  }
  if (report.origin)
    text += fmt::format("{} is in step {} on rank {}, of node\n  {}\n", report.origin->what,
                        report.origin->step, report.origin->rank, report.origin->node);
  if (report.pass) text += fmt::format("the first pass that changes bits is {}\n", *report.pass);
  // With a single rank, the order of sums over ranks does not matter.
  if (report.differs() && job.against != "pytorch" && job.reducer != "rank" && job.mesh.ranks() > 1)
    text += fmt::format(
        "sums in the order `{}` depend on which tensors are reduced together; those of "
        "--runtime.reducer=rank do not\n",
        job.reducer);
  return text;
}

}  // namespace

std::string FormatHead(const VerifiedJob& job) {
  std::string other = job.against == "none"        ? "alone"
                      : job.against == "eager"     ? "against eager"
                      : job.against == "processes" ? "against lockstep"
                      : job.against == "pytorch"
                          ? fmt::format("against PyTorch {}, one process per rank, over {}",
                                        job.pytorch, job.device == c10::kCPU ? "Gloo" : "NCCL")
                          : "against `" + job.against + "`";
  std::string attention = job.attention.empty() ? "" : fmt::format("; {} attention", job.attention);
  return fmt::format("{} {}, {}, on {}{} [{}]\npipeline `{}` {}; sums in the order `{}`; {}{}\n\n",
                     job.model, job.flavor, job.precision, Counted(job.mesh.ranks(), "rank"),
                     job.processes ? ", a process each," : "", Format(job.mesh), job.pipeline,
                     other, job.reducer, run::ExactMode(job.device), attention) +
         (job.against == "pytorch"
              ? Row("step", "loss", "", "ranks", "", "hashes", "differing hashes")
              : Row("step", "loss", "", "ranks", "tensors", "elements", "differing bits"));
}

std::string FormatStep(const VerifiedJob& job, const run::StepRow& row) {
  if (job.against == "pytorch")
    return Row(std::to_string(row.step), fmt::format("{:.5f}", row.loss), run::HexFloat(row.loss),
               std::to_string(job.mesh.ranks()), "", WithCommas(static_cast<int64_t>(row.hashes)),
               std::to_string(row.hash_difference ? row.hash_difference->differing : 0));
  return Row(std::to_string(row.step), fmt::format("{:.5f}", row.loss), run::HexFloat(row.loss),
             std::to_string(job.mesh.ranks()), WithCommas(row.comparison.tensors),
             WithCommas(row.comparison.elements),
             job.against == "none" ? "not compared" : WithCommas(row.comparison.differing_bits));
}

std::string FormatEnd(const VerifiedJob& job, const run::VerifyReport& report) {
  std::string text;
  if (!report.wrong_weights.empty())
    return fmt::format("the initial weights are wrong: {}\n", report.wrong_weights);
  if (report.differs()) text += DifferenceText(job, report.rows.back());
  text += OriginText(job, report);
  if (report.finite && !report.differs() && job.against != "none")
    text += fmt::format("{} on {}: loss, gradients, moments and parameters have the same bits\n",
                        Counted(report.rows.size(), "step"), Counted(job.mesh.ranks(), "rank"));
  return text;
}

nlohmann::ordered_json ToJson(const VerifiedJob& job, const run::VerifyReport& report) {
  nlohmann::ordered_json out;
  out["model"] = job.model;
  out["flavor"] = job.flavor;
  out["mesh"] = Format(job.mesh);
  out["against"] = job.against;
  out["reducer"] = job.reducer;
  out["steps"] = nlohmann::ordered_json::array();
  for (const run::StepRow& row : report.rows) {
    if (job.against == "pytorch") {
      out["steps"].push_back(
          {{"step", row.step}, {"loss", run::HexFloat(row.loss)}, {"hashes", row.hashes}});
      continue;
    }
    out["steps"].push_back({{"step", row.step},
                            {"loss", run::HexFloat(row.loss)},
                            {"tensors", row.comparison.tensors},
                            {"elements", row.comparison.elements},
                            {"differing_bits", row.comparison.differing_bits}});
  }
  if (!report.wrong_weights.empty()) {
    out["difference"] = {{"weights", report.wrong_weights}};
  } else if (report.differs() && report.rows.back().hash_difference) {
    const run::HashDifference& d = *report.rows.back().hash_difference;
    out["difference"] = {{"step", report.rows.back().step},
                         {"rank", d.rank},
                         {"name", d.name},
                         {"graph", d.first},
                         {"other", d.second},
                         {"differing", d.differing},
                         {"compared", d.compared}};
  } else if (report.differs()) {
    const run::Difference& d = *report.rows.back().comparison.first;
    out["difference"] = {{"step", report.rows.back().step},
                         {"rank", d.rank},
                         {"what", d.kind ? Name(*d.kind) : "loss"},
                         {"name", d.kind ? job.params[d.param].name : ""},
                         {"element", d.element},
                         {"graph", d.first},
                         {"other", d.second}};
  }
  out["finite"] = report.finite;
  if (report.origin)
    out["origin"] = {{"step", report.origin->step},
                     {"rank", report.origin->rank},
                     {"node", report.origin->node}};
  if (report.pass) out["pass"] = *report.pass;
  return out;
}

}  // namespace heddle
