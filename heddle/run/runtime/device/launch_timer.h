// LaunchTimer: measures the time of each launch of a step on a GPU.
//
//   LaunchTimer timer(device);
//   options.launched = timer.Observer();
//   ... compile the graph
//   timer.Start();
//   ... run the graph
//   timer.Stop();
#pragma once

#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "heddle/core/kernel/launches.h"
#include "heddle/run/runtime/backend.h"

namespace heddle::run {

class LaunchTimer {
 public:
  explicit LaunchTimer(c10::Device device) : device_(device), streams_(device.type()) {}

  // Must not outlive the timer.
  LaunchObserver Observer();
  // Begins a run. The GPU is kept busy first, so that the host is ahead of it and its own time does
  // not count.
  void Start();
  // Waits for the GPU.
  void Stop();

  // Microseconds of each launch of `list`, which has the graph that ran: the median over all runs.
  // Nullopt for a launch that was not measured apart from the one before it.
  std::vector<std::optional<double>> Times(const LaunchList& list) const;

 private:
  // The end of a launch; `step` as for LaunchObserver.
  struct Mark {
    NodeId step;
    c10::Event event;
  };
  void Record(NodeId step);

  c10::Device device_;
  c10::impl::VirtualGuardImpl streams_;
  // One list per run. The first mark is its beginning.
  std::vector<std::vector<Mark>> runs_;
  bool running_ = false;
};

// A step, and the times of its launches in one run.
struct TimedStep {
  NodeId first;
  std::vector<double> micros;
};
// Times of the launches of one run. `steps` are in order. Where ATen runs the nodes of a kernel,
// the kernel's time is the sum over its nodes.
std::vector<std::optional<double>> TimesOfLaunches(const LaunchList& list,
                                                   std::span<const TimedStep> steps);

}  // namespace heddle::run
