#include "heddle/run/runtime/reducer.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include "heddle/core/base/division.h"
#include "heddle/core/base/text.h"

namespace heddle::run {
namespace {

constexpr std::string_view kOrders[] = {"rank", "gloo", "ring:C", "tree"};
constexpr int64_t kMostChannels = 64;

int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// Elements per block, so that a sum over many ranks stays in the cache.
constexpr int64_t kBlock = 2048;

template <typename T>
void AddBlocks(std::span<const at::Tensor> payloads, const Reducer::Segment& segment,
               at::Tensor& out) {
  T* sum = out.mutable_data_ptr<T>();
  for (int64_t begin = segment.begin; begin < segment.end; begin += kBlock) {
    int64_t end = std::min(begin + kBlock, segment.end);
    const T* first = payloads[static_cast<size_t>(segment.order[0])].const_data_ptr<T>();
    std::copy(first + begin, first + end, sum + begin);
    for (size_t k = 1; k < segment.order.size(); ++k) {
      const T* next = payloads[static_cast<size_t>(segment.order[k])].const_data_ptr<T>();
      for (int64_t i = begin; i < end; ++i) sum[i] = sum[i] + next[i];
    }
  }
}

// Adds common types with our own loops. Returns false if ATen must add.
bool AddOnCpu(std::span<const at::Tensor> payloads, const Reducer::Segment& segment,
              at::Tensor& out) {
  if (!out.is_cpu()) return false;
  switch (out.scalar_type()) {
    case at::kFloat: AddBlocks<float>(payloads, segment, out); return true;
    case at::kDouble: AddBlocks<double>(payloads, segment, out); return true;
    case at::kBFloat16: AddBlocks<at::BFloat16>(payloads, segment, out); return true;
    case at::kHalf: AddBlocks<at::Half>(payloads, segment, out); return true;
    default: return false;
  }
}

void Combine(at::Tensor& sum, const at::Tensor& part, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: sum.add_(part); return;
    case ReduceOp::kMax: at::maximum_out(sum, sum, part); return;
    case ReduceOp::kMin: at::minimum_out(sum, sum, part); return;
    case ReduceOp::kProduct: sum.mul_(part); return;
  }
}

void ReduceSegment(std::span<const at::Tensor> payloads, const Reducer::Segment& segment,
                   ReduceOp op, at::Tensor& out) {
  bool sum = op == ReduceOp::kSum || op == ReduceOp::kAvg;
  if (sum && AddOnCpu(payloads, segment, out)) return;
  int64_t size = segment.end - segment.begin;
  at::Tensor to = out.narrow(0, segment.begin, size);
  auto part = [&](size_t k) {
    return payloads[static_cast<size_t>(segment.order[k])].narrow(0, segment.begin, size);
  };
  to.copy_(part(0));
  for (size_t k = 1; k < segment.order.size(); ++k) Combine(to, part(k), op);
}

at::Tensor ReduceTree(std::span<const at::Tensor> payloads, ReduceOp op) {
  if (payloads.size() == 1) return payloads[0].clone();
  size_t half = (payloads.size() + 1) / 2;
  at::Tensor sum = ReduceTree(payloads.first(half), op);
  Combine(sum, ReduceTree(payloads.subspan(half), op), op);
  return sum;
}

// Returns the ring of a channel. Each step that is coprime with the number of ranks gives a ring;
// channel 0 uses step 1: 0, 1, 2, ...
std::vector<int64_t> RingOf(int64_t channel, int64_t ranks) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step < std::max<int64_t>(ranks, 2); ++step) {
    if (std::gcd(step, ranks) == 1) steps.push_back(step);
  }
  int64_t step = steps[static_cast<size_t>(channel) % steps.size()];
  std::vector<int64_t> ring;
  for (int64_t i = 0; i < ranks; ++i) ring.push_back(i * step % ranks);
  return ring;
}

// Returns the ring's ranks from the one after position `owner` to `owner` itself.
std::vector<int64_t> Around(const std::vector<int64_t>& ring, size_t owner) {
  std::vector<int64_t> order;
  for (size_t k = 1; k <= ring.size(); ++k) order.push_back(ring[(owner + k) % ring.size()]);
  return order;
}

std::vector<Reducer::Segment> GlooSegments(int64_t count, int64_t item_size, int64_t ranks) {
  int64_t bytes = count * item_size;
  int64_t most = item_size * std::max<int64_t>(1, (int64_t{1} << 20) / item_size);
  int64_t pieces = RoundUp(std::max(CeilDiv(bytes, most), 2 * ranks), ranks);
  int64_t piece = RoundUp(CeilDiv(bytes, pieces), item_size);
  int64_t chunk = pieces / ranks * piece / item_size;
  std::vector<Reducer::Segment> segments;
  for (int64_t c = 0; c < ranks && c * chunk < count; ++c) {
    Reducer::Segment segment{c * chunk, std::min(count, (c + 1) * chunk), {}};
    for (int64_t k = ranks; k-- > 0;) segment.order.push_back((c + k) % ranks);
    segments.push_back(std::move(segment));
  }
  return segments;
}

std::vector<Reducer::Segment> RingSegments(int64_t count, int64_t ranks, int64_t channels,
                                           bool rows) {
  std::vector<Reducer::Segment> segments;
  auto add = [&](int64_t begin, int64_t end, std::vector<int64_t> order) {
    if (begin < end) segments.push_back({begin, end, std::move(order)});
  };
  std::vector<std::vector<int64_t>> rings;
  for (int64_t c = 0; c < channels; ++c) rings.push_back(RingOf(c, ranks));
  auto position = [](const std::vector<int64_t>& ring, int64_t rank) {
    return static_cast<size_t>(std::ranges::find(ring, rank) - ring.begin());
  };
  if (rows) {
    int64_t row = count / ranks;
    int64_t part = CeilDiv(row, channels);
    for (int64_t r = 0; r < ranks; ++r) {
      for (int64_t c = 0; c < channels; ++c) {
        const std::vector<int64_t>& ring = rings[static_cast<size_t>(c)];
        add(r * row + std::min(row, c * part), r * row + std::min(row, (c + 1) * part),
            Around(ring, position(ring, r)));
      }
    }
    return segments;
  }
  int64_t part = CeilDiv(count, channels);
  int64_t chunk = CeilDiv(part, ranks);
  for (int64_t c = 0; c < channels; ++c) {
    int64_t end = std::min(count, (c + 1) * part);
    for (int64_t k = 0; k < ranks; ++k) {
      int64_t begin = c * part + k * chunk;
      add(begin, std::min(end, begin + chunk),
          Around(rings[static_cast<size_t>(c)], static_cast<size_t>(k)));
    }
  }
  return segments;
}

}  // namespace

Result<Reducer> Reducer::Parse(std::string_view text) {
  if (text == "rank") return Reducer(Order::kRank);
  if (text == "gloo") return Reducer(Order::kGloo);
  if (text == "tree") return Reducer(Order::kTree);
  if (text.starts_with("ring:")) {
    std::string_view number = text.substr(5);
    int64_t channels = 0;
    auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), channels);
    if (error == std::errc() && end == number.data() + number.size() && channels >= 1 &&
        channels <= kMostChannels)
      return Reducer(Order::kRing, channels);
    return Error(Diag::kBadChoice, "`{}` needs a number of channels from 1 to {}", text,
                 kMostChannels);
  }
  return Error(Diag::kBadChoice, "`{}` is not a reducer; expected one of {}{}", text,
               Join(kOrders, ", "), NearestHint(text, kOrders));
}

std::string Reducer::Format() const {
  if (order_ == Order::kRing) return fmt::format("ring:{}", channels_);
  return std::string(kOrders[static_cast<size_t>(order_)]);
}

std::vector<Reducer::Segment> Reducer::Segments(int64_t count, int64_t item_size, int64_t ranks,
                                                bool rows) const {
  if (order_ == Order::kGloo) return GlooSegments(count, item_size, ranks);
  if (order_ == Order::kRing) return RingSegments(count, ranks, channels_, rows);
  Segment all{0, count, std::vector<int64_t>(static_cast<size_t>(ranks))};
  std::iota(all.order.begin(), all.order.end(), 0);
  return {std::move(all)};
}

at::Tensor Reducer::Reduce(std::span<const at::Tensor> payloads, ReduceOp op, bool rows) const {
  auto ranks = static_cast<int64_t>(payloads.size());
  for (const at::Tensor& payload : payloads) {
    TORCH_CHECK(payload.numel() == payloads[0].numel(), "payloads of ", payload.numel(), " and ",
                payloads[0].numel(), " elements in one group");
  }
  at::Tensor out;
  if (order_ == Order::kTree) {
    out = ReduceTree(payloads, op);
  } else {
    out = at::empty_like(payloads[0]);
    for (const Segment& segment :
         Segments(out.numel(), static_cast<int64_t>(out.element_size()), ranks, rows))
      ReduceSegment(payloads, segment, op, out);
  }
  if (op == ReduceOp::kAvg) out.div_(ranks);
  return out;
}

}  // namespace heddle::run
