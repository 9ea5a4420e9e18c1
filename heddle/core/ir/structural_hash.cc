#include "heddle/core/ir/structural_hash.h"

#include <vector>

namespace heddle {
namespace {

// Hashes the meaning of each id of a graph once.
class ContentHashes {
 public:
  explicit ContentHashes(const Graph& graph)
      : graph_(graph), scopes_(graph.scope_count()), ops_(graph.ops().size()) {}

  uint64_t Op(OpId id) {
    uint64_t& hash = ops_[id.index()];
    if (hash == 0) hash = Hash64(graph_.ops()[id].name());
    return hash;
  }
  uint64_t Scope(ScopeId id) {
    if (!id) return 0;
    uint64_t& hash = scopes_[id.index()];
    if (hash == 0) hash = Hash64(graph_.scope_name(id));
    return hash;
  }
  uint64_t Value(ValueId id) const {
    const heddle::Value& value = graph_[id];
    uint64_t hash = graph_.types().content_hash(value.type);
    if (value.placement != PlacementTable::kReplicated)
      hash = MixHash(hash, graph_.placements().content_hash(value.placement));
    return MixHash(hash, static_cast<uint64_t>(value.keep));
  }
  uint64_t Global(const GlobalType& global) const {
    if (!global.type) return 0;
    return MixHash(graph_.types().content_hash(global.type),
                   graph_.placements().content_hash(global.placement));
  }

 private:
  const Graph& graph_;
  std::vector<uint64_t> scopes_;
  std::vector<uint64_t> ops_;
};

void AppendGraph(std::vector<uint64_t>& words, const Graph& graph) {
  ContentHashes content(graph);
  words.reserve(words.size() + 8 * graph.node_count());
  words.push_back(Hash64(graph.name()));
  words.push_back(graph.inputs().size());
  for (const Input& input : graph.inputs()) {
    words.insert(words.end(), {content.Value(input.value), static_cast<uint64_t>(input.role),
                               static_cast<uint64_t>(input.index), Hash64(input.label),
                               Hash64(input.unit), content.Global(input.global)});
  }
  words.push_back(graph.outputs().size());
  for (const Output& output : graph.outputs()) {
    words.insert(words.end(), {output.value.index(), static_cast<uint64_t>(output.role),
                               static_cast<uint64_t>(output.index), output.target.index(),
                               Hash64(output.label), content.Global(output.global)});
  }
  for (const Region& region : graph.regions()) {
    words.insert(words.end(), {content.Scope(region.scope), region.local.bits(),
                               static_cast<uint64_t>(region.why)});
  }
  for (NodeId id : graph.nodes()) {
    const Node& node = graph[id];
    words.push_back(content.Op(node.op));
    words.push_back(graph.attrs_table().content_hash(node.attrs));
    words.push_back(content.Scope(node.scope));
    words.push_back(uint64_t{node.operand_count} << 40 | uint64_t{node.result_count} << 16 |
                    uint64_t{node.stream} << 8 | static_cast<uint64_t>(node.phase));
    // Value ids are positions, which do not depend on how the graph was built.
    for (ValueId operand : graph.operands(id)) words.push_back(operand.index());
    for (ValueId result : graph.results(id)) words.push_back(content.Value(result));
  }
}

}  // namespace

Hash128 StructuralHash(const Graph& graph) {
  std::vector<uint64_t> words;
  AppendGraph(words, graph);
  return HashWords128(words);
}

Hash128 StructuralHash(const Module& module) {
  std::vector<uint64_t> words;
  words.push_back(static_cast<uint64_t>(module.view));
  for (const MeshAxis& axis : module.mesh.axes()) {
    words.push_back(Hash64(axis.name));
    words.push_back(static_cast<uint64_t>(axis.size));
    words.push_back(static_cast<uint64_t>(axis.role));
  }
  for (const Graph& graph : module.graphs) AppendGraph(words, graph);
  return HashWords128(words);
}

}  // namespace heddle
