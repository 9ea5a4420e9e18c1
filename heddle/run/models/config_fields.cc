// The fields of ModelConfig that users can set by name.
#include <set>

#include "heddle/core/base/text.h"
#include "heddle/run/models/config.h"

namespace heddle::run {
namespace {

constexpr std::string_view kTruth[] = {"false", "true"};
constexpr std::string_view kScalings[] = {"none", "llama", "yarn", "linear"};
constexpr std::string_view kScores[] = {"softmax", "sigmoid"};
constexpr std::string_view kGroupScores[] = {"max", "top2"};

#define HEDDLE_SIZE(name, field)                             \
  {                                                          \
    name, [](ModelConfig& c) -> int64_t& { return c.field; } \
  }
#define HEDDLE_NUMBER(name, field)                                   \
  {                                                                  \
    name, nullptr, [](ModelConfig& c) -> double& { return c.field; } \
  }
#define HEDDLE_LORA(key, kind, type, field, summary)                                           \
  {                                                                                            \
    .name = key, .kind = [](ModelConfig& c) -> type& { return c.lora.field; }, .help = summary \
  }
#define HEDDLE_CHOICE(name, field, choices)                                                     \
  {                                                                                             \
    name, nullptr, nullptr,                                                                     \
        [](ModelConfig& c, size_t i) { c.field = static_cast<decltype(c.field)>(i); }, choices, \
        [](const ModelConfig& c) { return static_cast<size_t>(c.field); }                       \
  }

constexpr ConfigField kFields[] = {
    HEDDLE_SIZE("dim", dim),
    HEDDLE_SIZE("n_layers", n_layers),
    HEDDLE_SIZE("n_heads", n_heads),
    HEDDLE_SIZE("n_kv_heads", n_kv_heads),
    HEDDLE_SIZE("head_dim", head_dim),
    HEDDLE_SIZE("ffn_dim", ffn_dim),
    HEDDLE_SIZE("vocab_size", vocab_size),
    HEDDLE_SIZE("max_length", max_length),
    HEDDLE_SIZE("window", window),
    HEDDLE_SIZE("global_every", global_every),
    HEDDLE_SIZE("query_scalar", query_scalar),
    HEDDLE_NUMBER("attention_softcap", attention_softcap),
    HEDDLE_NUMBER("logit_softcap", logit_softcap),
    HEDDLE_CHOICE("tied", tied, kTruth),
    HEDDLE_NUMBER("norm_eps", norm_eps),
    HEDDLE_NUMBER("rope_theta", rope.theta),
    HEDDLE_NUMBER("rope_local_theta", rope.local_theta),
    HEDDLE_CHOICE("rope_scaling.kind", rope.scaling, kScalings),
    HEDDLE_NUMBER("rope_scaling.factor", rope.factor),
    HEDDLE_SIZE("rope_scaling.original_length", rope.original_length),
    HEDDLE_NUMBER("rope_scaling.low_freq", rope.low_freq),
    HEDDLE_NUMBER("rope_scaling.high_freq", rope.high_freq),
    HEDDLE_NUMBER("rope_scaling.fast", rope.fast),
    HEDDLE_NUMBER("rope_scaling.slow", rope.slow),
    HEDDLE_CHOICE("rope_scaling.truncate", rope.truncate, kTruth),
    HEDDLE_NUMBER("rope_scaling.attention_factor", rope.attention_factor),
    HEDDLE_SIZE("moe.experts", moe.experts),
    HEDDLE_SIZE("moe.top_k", moe.top_k),
    HEDDLE_SIZE("moe.ffn_dim", moe.ffn_dim),
    HEDDLE_SIZE("moe.shared_experts", moe.shared_experts),
    HEDDLE_SIZE("moe.dense_layers", moe.dense_layers),
    HEDDLE_CHOICE("moe.score", moe.score, kScores),
    HEDDLE_CHOICE("moe.normalize", moe.normalize, kTruth),
    HEDDLE_NUMBER("moe.route_scale", moe.route_scale),
    HEDDLE_SIZE("moe.groups", moe.groups),
    HEDDLE_SIZE("moe.limited_groups", moe.limited_groups),
    HEDDLE_CHOICE("moe.group_score", moe.group_score, kGroupScores),
    HEDDLE_CHOICE("moe.bias", moe.bias, kTruth),
    HEDDLE_NUMBER("moe.bias_rate", moe.bias_rate),
    HEDDLE_SIZE("mla.q_rank", mla.q_rank),
    HEDDLE_SIZE("mla.kv_rank", mla.kv_rank),
    HEDDLE_SIZE("mla.nope_dim", mla.nope_dim),
    HEDDLE_SIZE("mla.rope_dim", mla.rope_dim),
    HEDDLE_SIZE("mla.v_dim", mla.v_dim),
    HEDDLE_NUMBER("mla.mscale", mla.mscale),
    HEDDLE_NUMBER("mla.norm_eps", mla.norm_eps),
    HEDDLE_LORA("lora.rank", size, int64_t, rank,
                "train adapters of this rank instead of the weights; 0: train the weights"),
    HEDDLE_LORA("lora.alpha", number, double, alpha,
                "scale of adapters: they are multiplied by alpha / rank (default: 16)"),
    HEDDLE_LORA("lora.targets", text, std::string, targets,
                "weights with adapters, separated by commas: wq, wk, wv, wo, w1, w2 and w3, or "
                "q_proj, k_proj, v_proj, o_proj, gate_proj, down_proj and up_proj (default: all)"),
};

// Counts members by structured bindings, which fail to compile when a struct gets another member.
// Add the member to kFields, then here: checkpoints do not store constants that kFields lacks.
constexpr size_t MemberCount(const ModelConfig& config) {
  [[maybe_unused]] const auto& [family, flavor, dim, layers, heads, kv_heads, head_dim, ffn, vocab,
                                length, window, global_every, query_scalar, attention_softcap,
                                logit_softcap, tied, eps, rope, moe, mla, lora] = config;
  [[maybe_unused]] const auto& [theta, local_theta, scaling, factor, original, low, high, fast,
                                slow, truncate, attention] = rope;
  [[maybe_unused]] const auto& [experts, top_k, moe_ffn, shared, dense, score, normalize, scale,
                                groups, limited, group_score, bias, rate] = moe;
  [[maybe_unused]] const auto& [q_rank, kv_rank, nope, rope_dim, v_dim, mscale, mla_eps] = mla;
  [[maybe_unused]] const auto& [rank, alpha, targets] = lora;
  constexpr size_t kOwn = 21 - 6;  // Without family, flavor, rope, moe, mla and lora.
  return kOwn + 11 + 13 + 7 + 3;
}
static_assert(MemberCount({}) == std::size(kFields), "kFields lacks a member of ModelConfig");

Result<const ConfigField*> Find(std::string_view name, bool (*fits)(const ConfigField&),
                                std::string_view kind) {
  std::vector<std::string_view> names;
  for (const ConfigField& field : kFields) {
    if (!fits(field)) continue;
    if (field.name == name) return &field;
    names.push_back(field.name);
  }
  return Error(Diag::kModelSize, "models have no {} `{}`{}", kind, name, NearestHint(name, names));
}

struct LoraTarget {
  std::string_view ours;
  std::string_view theirs;
};
constexpr LoraTarget kTargets[] = {{"wq", "q_proj"}, {"wk", "k_proj"},    {"wv", "v_proj"},
                                   {"wo", "o_proj"}, {"w1", "gate_proj"}, {"w2", "down_proj"},
                                   {"w3", "up_proj"}};

// Returns our names of the weights in a list, in the order of kTargets.
Result<std::string> OurTargets(std::string_view list) {
  std::set<std::string_view> named;
  std::vector<std::string_view> known;
  for (std::string_view name : Split(list, ',')) named.insert(Trim(name));
  std::string ours;
  for (const LoraTarget& target : kTargets) {
    known.push_back(target.ours);
    known.push_back(target.theirs);
    if (named.erase(target.ours) + named.erase(target.theirs) == 0) continue;
    ours += fmt::format("{}{}", ours.empty() ? "" : ",", target.ours);
  }
  if (named.empty()) return ours;
  return Error(Diag::kBadChoice, "lora.targets has `{}`{}; weights with adapters are {}",
               *named.begin(), NearestHint(*named.begin(), known), Join(known, ", "));
}

}  // namespace

std::span<const ConfigField> ConfigFields() { return kFields; }

std::string ConfigField::flag() const {
  return fmt::format("{}{}", name.starts_with("lora.") ? "--" : "--model.", name);
}

Status OverrideSize(ModelConfig& config, std::string_view name, int64_t value) {
  auto fits = [](const ConfigField& field) { return field.size != nullptr; };
  HEDDLE_TRY(const ConfigField* field, Find(name, fits, "size"));
  field->size(config) = value;
  return Done{};
}

Status OverrideNumber(ModelConfig& config, std::string_view name, double value) {
  auto fits = [](const ConfigField& field) { return field.number != nullptr; };
  HEDDLE_TRY(const ConfigField* field, Find(name, fits, "number"));
  field->number(config) = value;
  return Done{};
}

Status OverrideChoice(ModelConfig& config, std::string_view name, std::string_view value) {
  auto fits = [](const ConfigField& field) {
    return field.choose != nullptr || field.text != nullptr;
  };
  HEDDLE_TRY(const ConfigField* field, Find(name, fits, "choice"));
  if (field->text != nullptr) {
    HEDDLE_TRY(field->text(config), OurTargets(value));
    return Done{};
  }
  for (size_t i = 0; i < field->choices.size(); ++i) {
    if (field->choices[i] != value) continue;
    field->choose(config, i);
    return Done{};
  }
  return Error(Diag::kBadChoice, "{} is `{}`{}; it is one of {}", name, value,
               NearestHint(value, field->choices), Join(field->choices, ", "));
}

}  // namespace heddle::run
