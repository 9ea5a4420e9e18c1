#include "heddle/import/groups.h"

#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/mesh_flag.h"

namespace heddle {
namespace {

// The argument positions of the number of ranks and of the group's name; -1 for absent arguments.
struct GroupArgs {
  std::string_view name;
  int size;
  int group;
};
constexpr GroupArgs kGroupArgs[] = {
    {"all_gather_into_tensor", 1, 2},          {"all_gather_into_tensor_coalesced", 1, 2},
    {"all_gather_into_tensor_out", 1, 2},      {"reduce_scatter_tensor", 2, 3},
    {"reduce_scatter_tensor_coalesced", 2, 3}, {"all_reduce", -1, 2},
    {"all_reduce_coalesced", -1, 2},           {"all_to_all_single", -1, 3},
};

// More than a mesh has axes, and few enough for a linear search.
constexpr size_t kMostGroups = 64;

// The argument positions of a call's group; null for a call without a group.
const GroupArgs* FindGroupArgs(std::string_view target) {
  std::string_view name = CollectiveName(target);
  auto at = std::ranges::find(kGroupArgs, name, &GroupArgs::name);
  return name.empty() || at == std::end(kGroupArgs) ? nullptr : at;
}

// All groups, first those that the file declares.
std::vector<ForeignGroup> AllGroups(const ForeignProgram& program) {
  std::vector<ForeignGroup> groups = program.groups;
  Table<TargetId, const GroupArgs*> args_of(program.targets.size());
  for (TargetId target : program.targets.ids())
    args_of[target] = FindGroupArgs(program.targets[target]);
  for (const ForeignCall& call : program.calls) {
    const GroupArgs* places = args_of[call.target];
    if (places == nullptr) continue;
    std::span<const ForeignArg> args = program.args_of(call);
    auto argument = [&](int at, std::string_view by_name) -> const ForeignValue* {
      for (const ForeignArg& arg : args) {
        if (program.text(arg.name) == by_name) return &arg.value;
      }
      bool there = at >= 0 && static_cast<size_t>(at) < args.size();
      return there && !args[at].name ? &args[at].value : nullptr;
    };
    const ForeignValue* group = argument(places->group, "group_name");
    const ForeignValue* size = argument(places->size, "group_size");
    if (group == nullptr || group->kind != ForeignValue::Kind::kString) continue;
    if (groups.size() > kMostGroups) return groups;
    auto known = std::ranges::find(groups, group->word, &ForeignGroup::name);
    if (known == groups.end()) known = groups.insert(groups.end(), {group->word, 0});
    if (known->size == 0 && size != nullptr && size->kind == ForeignValue::Kind::kInt)
      known->size = size->integer;
    // The number of split sizes is the number of ranks.
    if (known->size == 0 && places->name == "all_to_all_single" && args.size() > 1)
      known->size = static_cast<int64_t>(program.items(args[1].value).size());
  }
  return groups;
}

// A valid axis name for a group: `g0` for group `0`.
std::string AxisName(std::string_view group) {
  std::string name = "g";
  for (char c : group) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace

std::string_view CollectiveName(std::string_view target) {
  for (std::string_view space :
       {"_c10d_functional.", "_c10d_functional_autograd.", "c10d_functional."}) {
    if (!target.starts_with(space)) continue;
    target.remove_prefix(space.size());
    return target.substr(0, target.find('.'));
  }
  return {};
}

const Axes* GroupAxes::Find(std::string_view group) const {
  auto found = axes_.find(group);
  return found == axes_.end() ? nullptr : &found->second;
}

Status GroupAxes::FromOptions(const ImportOptions& options) {
  HEDDLE_TRY(mesh_, ParseMeshFlag(options.mesh));
  for (const auto& [name, list] : options.groups) {
    Axes axes;
    for (std::string_view word : Split(list, ',')) {
      std::optional<AxisId> axis = mesh_.Find(Trim(word));
      if (!axis || !axes.Add(*axis))
        return Error(Diag::kUnknownAxis, "--group assigns `{}` to group `{}`, but the mesh is [{}]",
                     word, name, Format(mesh_));
    }
    axes_[name] = axes;
  }
  return Done{};
}

// Adds one axis per group, in order, so that the first is the slowest. A group with as many ranks
// as several others together spans all their axes.
Status GroupAxes::FromSizes(const ForeignProgram& program, std::vector<std::string>& remarks) {
  std::vector<ForeignGroup> groups = AllGroups(program);
  const ForeignGroup* whole = nullptr;
  if (groups.size() > 2) {
    auto largest = std::ranges::max_element(groups, {}, &ForeignGroup::size);
    double others = 1;
    for (const ForeignGroup& group : groups) {
      if (&group != &*largest) others *= static_cast<double>(group.size);
    }
    if (others == static_cast<double>(largest->size)) whole = &*largest;
  }
  std::vector<MeshAxis> axes;
  Axes all;
  double ranks = 1;
  for (const ForeignGroup& group : groups) {
    if (&group == whole) continue;
    if (group.size < 1 || group.size > Mesh::kMaxRanks)
      return Error(
          Diag::kMeshSize,
          "the file does not state the number of ranks of group `{}`; give --mesh and --group",
          program.text(group.name));
    ranks *= static_cast<double>(group.size);
    if (axes.size() == Mesh::kMaxAxes || ranks > static_cast<double>(Mesh::kMaxRanks))
      return Error(Diag::kMeshSize,
                   "a mesh cannot have one axis for each of {}; give --mesh and --group",
                   Counted(groups.size(), "process group"));
    auto axis = static_cast<AxisId>(axes.size());
    std::string name = AxisName(program.text(group.name));
    if (std::ranges::find(axes, name, &MeshAxis::name) != axes.end())
      name += fmt::format("_{}", axis);
    axes.push_back({std::move(name), group.size});
    axes_[std::string(program.text(group.name))] = Axes(axis);
    all.Add(axis);
  }
  if (whole != nullptr) axes_[std::string(program.text(whole->name))] = all;
  mesh_ = Mesh(std::move(axes));
  if (groups.size() > 1) {
    remarks.push_back(fmt::format(
        "process groups are assumed to be axes of the mesh [{}], the slowest first{}; use --mesh "
        "and --group to change that",
        Format(mesh_),
        whole == nullptr
            ? ""
            : fmt::format(", and group `{}` to span all of them", program.text(whole->name))));
  }
  return Done{};
}

Result<GroupAxes> GroupAxes::Make(const ForeignProgram& program, const ImportOptions& options,
                                  std::vector<std::string>& remarks) {
  GroupAxes groups;
  if (!options.mesh.empty()) {
    HEDDLE_RETURN_IF_ERROR(groups.FromOptions(options));
  } else if (!options.groups.empty()) {
    return Error(Diag::kUsage, "--group without --mesh");
  } else {
    HEDDLE_RETURN_IF_ERROR(groups.FromSizes(program, remarks));
  }
  return groups;
}

}  // namespace heddle
