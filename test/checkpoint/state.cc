#include "test/checkpoint/state.h"

#include <cstring>
#include <numeric>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/text.h"

namespace heddle {

void Fill(State& state, uint64_t seed) {
  for (StateTensor& tensor : state.tensors) {
    tensor.bytes.resize(static_cast<size_t>(run::BytesOf(tensor.info.dtype, tensor.info.shape)));
    uint64_t word = MixHash(seed, Hash64(tensor.info.name));
    for (size_t i = 0; i < tensor.bytes.size(); ++i) {
      if (i % 8 == 0) word = MixHash(word, i);
      tensor.bytes[i] = static_cast<char>(word >> (8 * (i % 8)));
    }
  }
}

std::string Cut(const run::TensorInfo& info, const std::string& whole, const run::Slice& slice) {
  // Copies element by element, independently of the tested code.
  auto item = static_cast<size_t>(ItemSize(info.dtype));
  std::string out;
  int64_t count = run::CountOf(slice.shape);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0, factor = 1;
    for (size_t d = slice.shape.size(); d-- > 0;) {
      at += (slice.offset[d] + rest % slice.shape[d]) * factor;
      rest /= slice.shape[d];
      factor *= info.shape[d];
    }
    out.append(whole, static_cast<size_t>(at) * item, item);
  }
  return out;
}

run::Snapshot SnapshotOf(const State& state, int64_t step, const std::vector<int64_t>& ranks) {
  run::Snapshot snapshot;
  snapshot.step = step;
  snapshot.state = fmt::format("{{\"step\":{}}}", step);
  for (int64_t rank : ranks) {
    for (const StateTensor& tensor : state.tensors) {
      if (!run::IsFirstHolder(tensor.placement, state.mesh, rank)) continue;
      run::Slice slice = run::SliceOf(tensor.info.shape, tensor.placement, state.mesh, rank);
      snapshot.pieces.push_back({tensor.info, slice, rank, [&tensor, slice](void* to) {
                                   std::string cut = Cut(tensor.info, tensor.bytes, slice);
                                   std::memcpy(to, cut.data(), cut.size());
                                 }});
    }
  }
  return snapshot;
}

std::vector<int64_t> AllRanks(const Mesh& mesh) {
  std::vector<int64_t> ranks(static_cast<size_t>(mesh.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string Differences(const State& state, const run::Checkpoint& checkpoint) {
  std::vector<run::TensorInfo> infos;
  for (const StateTensor& tensor : state.tensors) infos.push_back(tensor.info);
  Status same = checkpoint.CheckTensors(infos);
  if (!same.ok()) return Format(same.diagnostics());
  for (const StateTensor& tensor : state.tensors) {
    for (int64_t rank : AllRanks(state.mesh)) {
      run::Slice slice = run::SliceOf(tensor.info.shape, tensor.placement, state.mesh, rank);
      std::string expected = Cut(tensor.info, tensor.bytes, slice);
      // Adds a byte on each side, which must not change.
      std::string found(expected.size() + 2, '#');
      Status read = checkpoint.Read(tensor.info.name, slice, found.data() + 1);
      if (!read.ok()) return Format(read.diagnostics());
      if (found != "#" + expected + "#")
        return fmt::format("`{}` differs on rank {}", tensor.info.name, rank);
    }
  }
  return "";
}

StateTensor MakeTensor(const Mesh& mesh, const std::string& name, const run::Sizes& shape,
                       const std::vector<std::string>& axes, DType dtype) {
  StateTensor tensor{{name, dtype, shape}, {}, {}};
  for (const std::string& split : axes) {
    Axes& added = tensor.placement.splits.emplace_back();
    for (std::string_view axis : Split(split, ',')) {
      if (!axis.empty()) added.Add(*mesh.Find(axis));
    }
  }
  tensor.placement.Normalize();
  return tensor;
}

}  // namespace heddle
