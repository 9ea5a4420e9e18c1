#include "heddle/run/runtime/lockstep_transport.h"

#include <numeric>

#include <ATen/ops/cat.h>

namespace heddle::run {
namespace {

class Finished : public Pending {
 public:
  explicit Finished(std::vector<Tensors> received) : received_(std::move(received)) {}
  std::vector<Tensors> Finish() override { return std::move(received_); }

 private:
  std::vector<Tensors> received_;
};

// Returns the rows of every payload that go to member `to`.
at::Tensor RowsFor(size_t to, const Tensors& payloads, std::span<const Shares> shares) {
  Tensors parts;
  for (size_t from = 0; from < payloads.size(); ++from) {
    const std::vector<int64_t>& sent = shares[from].sent;
    int64_t begin =
        std::accumulate(sent.begin(), sent.begin() + static_cast<ptrdiff_t>(to), int64_t{0});
    parts.push_back(payloads[from].narrow(0, begin, sent[to]));
  }
  return at::cat(parts);
}

}  // namespace

std::unique_ptr<Pending> LockstepTransport::Start(NodeId, CommunicatorId,
                                                  const Collective& collective,
                                                  std::span<const int64_t> ranks,
                                                  std::vector<Tensors> sends,
                                                  std::span<const Shares> shares) {
  size_t members = ranks.size();
  std::vector<Tensors> received(members);
  for (size_t p = 0; p < sends[0].size(); ++p) {
    Tensors payloads;
    for (const Tensors& send : sends) payloads.push_back(send[p]);
    switch (collective.kind()) {
      case CollectiveKind::kAllGather: {
        at::Tensor all = at::cat(payloads);
        for (Tensors& tensors : received) tensors.push_back(all);
        break;
      }
      case CollectiveKind::kAllReduce: {
        at::Tensor sum = reducer_.Reduce(payloads, collective.reduce(), /*rows=*/false);
        for (Tensors& tensors : received) tensors.push_back(sum);
        break;
      }
      case CollectiveKind::kReduceScatter: {
        at::Tensor sum = reducer_.Reduce(payloads, collective.reduce(), /*rows=*/true);
        int64_t row = sum.numel() / static_cast<int64_t>(members);
        for (size_t m = 0; m < members; ++m)
          received[m].push_back(sum.narrow(0, static_cast<int64_t>(m) * row, row));
        break;
      }
      case CollectiveKind::kShift: {
        for (size_t m = 0; m < members; ++m)
          received[m].push_back(
              payloads[static_cast<size_t>(collective.previous(static_cast<int64_t>(m)))]);
        break;
      }
      case CollectiveKind::kAllToAll: {
        if (collective.moves_rows()) {
          for (size_t m = 0; m < members; ++m) received[m].push_back(RowsFor(m, payloads, shares));
          break;
        }
        int64_t row = payloads[0].numel() / static_cast<int64_t>(members);
        for (size_t m = 0; m < members; ++m) {
          Tensors rows;
          for (const at::Tensor& payload : payloads)
            rows.push_back(payload.narrow(0, static_cast<int64_t>(m) * row, row));
          received[m].push_back(at::cat(rows));
        }
        break;
      }
    }
  }
  return std::make_unique<Finished>(std::move(received));
}

}  // namespace heddle::run
