// The programs of a module: the graphs that its ranks run.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "heddle/core/ir/graph.h"

namespace heddle {

// The mesh axis whose coordinates have programs of their own: the pipeline axis of a local module
// with one graph per coordinate, in order. None if all ranks run the first graph.
inline std::optional<AxisId> ProgramAxis(const Module& module) {
  for (size_t i = 0; i < module.mesh.axes().size(); ++i) {
    const MeshAxis& axis = module.mesh.axes()[i];
    if (axis.role == AxisRole::kPipeline && axis.size > 1 && module.view == View::kLocal &&
        static_cast<size_t>(axis.size) == module.graphs.size())
      return static_cast<AxisId>(i);
  }
  return std::nullopt;
}

// The program of a rank.
inline const Graph& ProgramOf(const Module& module, int64_t rank) {
  std::optional<AxisId> axis = ProgramAxis(module);
  return module.graphs[axis ? static_cast<size_t>(module.mesh.Coordinate(rank, *axis)) : 0];
}

// The label of a batch input of one micro-batch, in a program that runs several: `tokens.3`.
inline std::string MicroBatchLabel(std::string_view label, int64_t micro_batch) {
  return fmt::format("{}.{}", label, micro_batch);
}

// The program that all ranks share, for code that describes, plans or checks a whole step.
inline const Graph& SharedProgram(const Module& module) { return module.graphs[0]; }
inline Graph& SharedProgram(Module& module) { return module.graphs[0]; }

}  // namespace heddle
