#include "heddle/price/sim/timeline/engine.h"

#include <algorithm>

namespace heddle::price {
namespace {

template <typename Event>
void Push(std::vector<Event>& heap, Event event) {
  heap.push_back(event);
  std::push_heap(heap.begin(), heap.end());
}

template <typename Event>
Event Pop(std::vector<Event>& heap) {
  std::pop_heap(heap.begin(), heap.end());
  Event event = heap.back();
  heap.pop_back();
  return event;
}

}  // namespace

Engine::Engine(const SimGraph& graph, const SimOptions& options)
    : graph_(graph),
      share_links_(options.share_links),
      done_(graph.size()),
      streams_(graph.streams().size()),
      next_(graph.size()) {}

void Engine::Reset() {
  Restore({}, {0});
  std::ranges::fill(done_, uint8_t{0});
}

void Engine::CountSharing() {
  auto node = static_cast<int64_t>(flows_[0].heap.size());
  auto network = static_cast<int64_t>(flows_[1].heap.size());
  auto both = static_cast<int64_t>(flows_[2].heap.size());
  int64_t sharing[3] = {node + both, network + both, std::max(node, network) + both};
  for (size_t i = 0; i < flows_.size(); ++i) {
    Flow& flow = flows_[i];
    if (flow.heap.empty()) {
      flow.clock = {};
      flow.carry = 0;
    }
    // Less than a nanosecond of work is lost when the number of sharing transfers changes.
    if (flow.sharing != sharing[i]) flow.carry = 0;
    flow.sharing = sharing[i];
  }
}

void Engine::MoveClocks(Nanos time) {
  for (Flow& flow : flows_) {
    if (flow.heap.empty()) continue;
    int64_t passed = (time - now_).value + flow.carry;
    flow.clock += {passed / flow.sharing};
    flow.carry = passed % flow.sharing;
  }
  now_ = time;
}

Nanos Engine::EndOf(const Flow& flow) const {
  return now_ + (flow.heap.front().at - flow.clock) * flow.sharing - Nanos{flow.carry};
}

Nanos Engine::NextEvent() const {
  Nanos next = kNever;
  if (!plain_.empty()) next = plain_.front().at;
  for (const Flow& flow : flows_) {
    if (!flow.heap.empty()) next = std::min(next, EndOf(flow));
  }
  return next;
}

void Engine::AdvanceTo(Nanos time) {
  while (busy()) {
    Nanos next = NextEvent();
    if (next > time) break;
    HandleEventsAt(next);
  }
  if (time > now_) MoveClocks(time);
}

void Engine::HandleEventsAt(Nanos time) {
  MoveClocks(time);
  while (!plain_.empty() && plain_.front().at <= time) {
    uint32_t task = Pop(plain_).task;
    if (Shares(task)) {
      BeginTransfer(task);
    } else {
      End(task);
    }
  }
  for (Flow& flow : flows_) {
    while (!flow.heap.empty() && flow.heap.front().at <= flow.clock) End(Pop(flow.heap).task);
  }
  CountSharing();
}

void Engine::BeginTransfer(uint32_t task) {
  const Task& what = graph_.tasks()[task];
  Flow& flow = flows_[FlowOf(what.links)];
  Push(flow.heap, {flow.clock + what.transfer, task});
}

void Engine::Begin(uint32_t task) {
  if (Coupled(task)) {
    notices_.push_back({task, false});
  } else {
    BeginWork(task);
  }
}

void Engine::Open(uint32_t task) {
  BeginWork(task);
  CountSharing();
}

void Engine::BeginWork(uint32_t task) {
  const Task& what = graph_.tasks()[task];
  if (times_ != nullptr) times_->begin[task] = now_;
  if (!Shares(task)) {
    Push(plain_, {now_ + what.alone(), task});
  } else if (what.before.value > 0) {
    Push(plain_, {now_ + what.before, task});
  } else {
    BeginTransfer(task);
  }
}

void Engine::End(uint32_t task) {
  if (Coupled(task)) {
    notices_.push_back({task, true});
  } else {
    LeaveStream(task);
  }
}

void Engine::Close(uint32_t task) {
  LeaveStream(task);
  CountSharing();
}

void Engine::LeaveStream(uint32_t task) {
  done_[task] = 1;
  if (times_ != nullptr) times_->end[task] = now_;
  Stream& stream = streams_[graph_.tasks()[task].stream];
  if (stream.head != stream.tail) {
    stream.head = next_[task];
    Begin(stream.head);
    return;
  }
  stream.head = stream.tail = Task::kNone;
  streams_[busy_.back()].busy_at = stream.busy_at;
  busy_[stream.busy_at] = busy_.back();
  busy_.pop_back();
}

bool Engine::Enqueue(uint32_t task) {
  done_[task] = 0;
  uint32_t number = graph_.tasks()[task].stream;
  Stream& stream = streams_[number];
  if (stream.head != Task::kNone) {
    next_[stream.tail] = task;
    stream.tail = task;
    return false;
  }
  stream.head = stream.tail = task;
  stream.busy_at = static_cast<uint32_t>(busy_.size());
  busy_.push_back(number);
  return true;
}

void Engine::Launch(uint32_t task, Nanos time) {
  AdvanceTo(time);
  if (!Enqueue(task)) return;
  Begin(task);
  CountSharing();
}

Nanos Engine::Finish(uint32_t task) {
  while (!done(task)) {
    HEDDLE_CHECK(busy(), "a wait stands before the start that it waits for");
    HandleEventsAt(NextEvent());
  }
  return now_;
}

Nanos Engine::Drain() {
  while (busy()) HandleEventsAt(NextEvent());
  return now_;
}

Engine::State Engine::Save() const {
  State state;
  for (const Event& event : plain_) state.active.push_back({event.task, false, event.at - now_});
  for (size_t i = 0; i < flows_.size(); ++i) {
    for (const Event& event : flows_[i].heap)
      state.active.push_back({event.task, true, event.at - flows_[i].clock});
    state.carry[i] = flows_[i].carry;
  }
  const std::vector<Task>& tasks = graph_.tasks();
  std::ranges::sort(state.active, {}, [&](const State::Active& a) { return tasks[a.task].stream; });
  for (const State::Active& active : state.active) {
    uint32_t tail = streams_[tasks[active.task].stream].tail;
    for (uint32_t task = active.task; task != tail;) {
      task = next_[task];
      state.queued.push_back(task);
    }
  }
  return state;
}

void Engine::Restore(const State& state, Nanos now) {
  for (uint32_t stream : busy_) streams_[stream] = {};
  busy_.clear();
  plain_.clear();
  for (Flow& flow : flows_) flow = {};
  now_ = now;
  for (const State::Active& active : state.active) {
    Enqueue(active.task);
    if (active.flows) {
      Push(flows_[FlowOf(graph_.tasks()[active.task].links)].heap, {active.left, active.task});
    } else {
      Push(plain_, {now + active.left, active.task});
    }
  }
  for (uint32_t task : state.queued) Enqueue(task);
  CountSharing();
  for (size_t i = 0; i < flows_.size(); ++i) flows_[i].carry = state.carry[i];
}

void Engine::Abandon() {
  for (uint32_t number : busy_) {
    const Stream& stream = streams_[number];
    for (uint32_t task = stream.head; task != stream.tail; task = next_[task]) done_[task] = 1;
    done_[stream.tail] = 1;
  }
  Restore({}, now_);
}

}  // namespace heddle::price
