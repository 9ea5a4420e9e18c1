#include "heddle/price/trace/kernel_class.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "heddle/core/ops/families.h"
#include "heddle/core/ops/ops.h"

namespace heddle::price {
namespace {

struct NamePart {
  std::string_view text;
  std::string_view kernel_class;
};
// The first part that a kernel's name contains, in lower case, decides. Flash attention comes
// before the matrix products of CUTLASS that it is built from.
constexpr NamePart kParts[] = {
    {"nccl", "collective"},
    {"flash", "attention"},
    {"fmha", "attention"},
    {"sdpa", "attention"},
    {"attention", "attention"},
    {"compute_dot_do_o", "attention"},
    {"convert_dq", "attention"},
    {"nvjet", "matmul"},
    {"gemm", "matmul"},
    {"gemv", "matmul"},
    {"xmma", "matmul"},
    {"triton_mm", "matmul"},
    {"cutlass", "matmul"},
    {"cublas", "matmul"},
    {"splitk", "matmul"},
    {"adam", "optimizer"},
    {"multi_tensor", "optimizer"},
    {"squared_norm", "reduce"},
    {"nll_loss", "loss"},
    {"softmax", "loss"},
    {"embedding", "embedding"},
    {"radix_sort", "embedding"},
    {"segment", "embedding"},
    {"compute_grad_weight", "embedding"},
    {"sum_and_scatter", "embedding"},
    {"layer_norm", "norm"},
    {"rms_norm", "norm"},
    {"norm_weight", "norm"},
    // Its name contains `ReduceAdd`.
    {"indexfunc", "index"},
    {"indexselect", "index"},
    {"indexing_backward", "index"},
    {"index_elementwise", "index"},
    {"reduce", "reduce"},
    {"copy", "move"},
    {"elementwise", "pointwise"},
};
// Kernels of Heddle's own.
constexpr NamePart kOwn[] = {
    {"elements", "pointwise"}, {"casts", "pointwise"}, {"rows", "norm"},
    {"loss", "loss"},          {"fill", "move"},
};

bool IsFamily(std::string_view name) {
#define HEDDLE_FAMILY(family) \
  if (name == #family) return true;
  HEDDLE_FAMILIES(HEDDLE_FAMILY)
#undef HEDDLE_FAMILY
  return false;
}

// Families of the ops of ATen, by name without overload: traces do not state it.
std::map<std::string_view, std::string_view> AtenFamilies() {
  std::map<std::string_view, std::string_view> families;
  constexpr std::string_view kAten = "aten.";
  for (OpId id : Ops().ids()) {
    std::string_view name = Ops()[id].name();
    if (!name.starts_with(kAten)) continue;
    name.remove_prefix(kAten.size());
    families.emplace(name.substr(0, name.find('.')), Ops()[id].family);
  }
  return families;
}

std::string ClassOfAtenOp(std::string_view name) {
  static const std::map<std::string_view, std::string_view> families = AtenFamilies();
  auto at = families.find(name);
  // `mul_` is `mul` in place.
  if (at == families.end() && name.ends_with('_'))
    at = families.find(name.substr(0, name.size() - 1));
  if (at != families.end()) return std::string(at->second);
  return name.find("adam") != std::string_view::npos ? "optimizer" : "other";
}

}  // namespace

std::string KernelClass(std::string_view category, std::string_view name) {
  if (category == "collective" || IsFamily(category)) return std::string(category);
  if (category.starts_with("gpu_mem")) return "copy";
  // Simulations name both after the node.
  if (category == "wait") return "wait";
  if (category == "unpack") return "move";
  if (name.starts_with("aten::")) return ClassOfAtenOp(name.substr(6));
  for (const NamePart& own : kOwn) {
    if (name == own.text) return std::string(own.kernel_class);
  }
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const NamePart& part : kParts) {
    if (lower.find(part.text) != std::string::npos) return std::string(part.kernel_class);
  }
  return "other";
}

}  // namespace heddle::price
