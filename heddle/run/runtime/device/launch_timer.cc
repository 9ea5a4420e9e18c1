#include "heddle/run/runtime/device/launch_timer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace heddle::run {

LaunchObserver LaunchTimer::Observer() {
  return [this](NodeId step) {
    if (running_) Record(step);
  };
}

void LaunchTimer::Start() {
  constexpr int64_t kSize = 8192;
  constexpr int kProducts = 60;
  at::NoGradGuard no_grad;
  at::Tensor busy = at::zeros({kSize, kSize}, at::TensorOptions(at::kBFloat16).device(device_));
  for (int i = 0; i < kProducts; ++i) at::mm(busy, busy);
  runs_.emplace_back();
  running_ = true;
  Record(NodeId());
}

void LaunchTimer::Stop() {
  running_ = false;
  runs_.back().back().event.synchronize();
}

void LaunchTimer::Record(NodeId step) {
  Mark mark{step, c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT)};
  mark.event.record(streams_.getStream(device_));
  runs_.back().push_back(std::move(mark));
}

std::vector<std::optional<double>> LaunchTimer::Times(const LaunchList& list) const {
  std::vector<std::vector<double>> samples(list.launches.size());
  for (const std::vector<Mark>& marks : runs_) {
    std::vector<TimedStep> steps;
    std::vector<double> open;
    for (size_t i = 1; i < marks.size(); ++i) {
      open.push_back(marks[i - 1].event.elapsedTime(marks[i].event) * 1000);
      if (!marks[i].step) continue;
      steps.push_back({marks[i].step, std::move(open)});
      open = {};
    }
    std::vector<std::optional<double>> times = TimesOfLaunches(list, steps);
    for (size_t l = 0; l < times.size(); ++l) {
      if (times[l]) samples[l].push_back(*times[l]);
    }
  }
  std::vector<std::optional<double>> medians;
  for (std::vector<double>& sample : samples) {
    std::ranges::sort(sample);
    medians.push_back(sample.empty() ? std::nullopt : std::optional(sample[sample.size() / 2]));
  }
  return medians;
}

std::vector<std::optional<double>> TimesOfLaunches(const LaunchList& list,
                                                   std::span<const TimedStep> steps) {
  std::vector<std::vector<size_t>> launches_at(list.graph.node_count());
  for (size_t l = 0; l < list.launches.size(); ++l) {
    for (NodeId node : list.launches[l].nodes) launches_at[node.index()].push_back(l);
  }
  std::vector<std::optional<double>> times(list.launches.size());
  for (size_t s = 0; s < steps.size(); ++s) {
    size_t end = s + 1 < steps.size() ? steps[s + 1].first.index() : launches_at.size();
    std::set<size_t> launches;
    for (size_t node = steps[s].first.index(); node < end; ++node)
      launches.insert(launches_at[node].begin(), launches_at[node].end());
    const std::vector<double>& micros = steps[s].micros;
    if (launches.size() == micros.size()) {
      size_t i = 0;
      for (size_t l : launches) times[l] = times[l].value_or(0) + micros[i++];
    } else if (!launches.empty()) {
      std::optional<double>& first = times[*launches.begin()];
      first = std::accumulate(micros.begin(), micros.end(), first.value_or(0));
    }
  }
  return times;
}

}  // namespace heddle::run
