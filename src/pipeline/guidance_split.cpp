#include "pipeline/guidance_split.hpp"

#include <vector>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/window_exchange.hpp"
#include "pipeline/state.hpp"
#include "runtime/peer_windows.hpp"

namespace rocm_sd {

Tensor ConditionShare::of(const Tensor& rows) const {
  if (!rows || count == all) return rows;
  const int64_t images = rows.dim(0) / all;
  return rows.narrow(0, first * images, count * images);
}

ConditionShare share_conditions(int64_t conditions, int rank, int ranks) {
  require<UsageError>(conditions >= ranks, "split: guidance: a step of this request has ", conditions,
                      conditions == 1 ? " prediction" : " predictions", ", which ", ranks,
                      " devices cannot divide (a cfg-scale of 1 leaves the negative prompt out); expected "
                      "guidance, or --split images");
  const int64_t first = conditions * rank / ranks;
  return {first, conditions * (rank + 1) / ranks - first, conditions};
}

ConditionShare Pipeline::State::own_conditions(const ResolvedRequest& r) const {
  if (draws_alone() || divides_layers() || divides_tensors() || ranks_->division() == Division::kRows)
    return {0, r.conditions, r.conditions};
  if (pair_) return share_conditions(r.conditions, pair_->rank(), pair_->count());
  return share_conditions(r.conditions, ranks_->rank(), ranks_->count());
}

namespace {

// own: of some conditions [share.count*N,h,w,4] -> of all that the ranks have [share.all*N,h,w,4].
Tensor gather_conditions(Exec& ex, Ranks& ranks, const ConditionShare& share, const Tensor& own) {
  const int64_t images = own.dim(0) / share.count;
  Shape shape = own.shape();
  shape[0] = share.all * images;
  const Tensor all = ex.alloc(shape, own.dtype());  // [K*N,h,w,4]
  if (ranks.windows() && ex.device().kind() != DeviceKind::kHost) {
    WindowExchange exchange(ranks);
    for (int rank = 0; rank < ranks.count(); ++rank) {
      const ConditionShare other = share_conditions(share.all, rank, ranks.count());
      const Tensor of_rank = all.narrow(0, other.first * images, other.count * images);
      if (rank == ranks.rank()) {
        exchange.copy(own, of_rank);
      } else {
        exchange.send(rank, own);
        exchange.receive(rank, of_rank);
      }
    }
    exchange.run(ex, Waits::kHaveMet);
    return all;
  }
  const size_t condition_bytes = own.bytes() / static_cast<size_t>(share.count);
  std::vector<size_t> ends;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    const ConditionShare other = share_conditions(share.all, rank, ranks.count());
    ends.push_back(static_cast<size_t>(other.first + other.count) * condition_bytes);
  }
  std::vector<char> host(all.bytes());
  Device& device = ex.device();
  const size_t begin = static_cast<size_t>(share.first) * condition_bytes;
  device.copy_to_host(host.data() + begin, own.data(), own.bytes());
  all_gather(ranks, host.data(), ends);
  device.copy_to_device(all.data(), host.data(), host.size());
  return all;
}

}  // namespace

// Outside of the captured step, which is the same where nobody draws along. By messages the copy to the host
// waits for the step, and the stream for the copy back, so that the next call may overwrite `predicted`; by
// windows nobody's host waits.
Tensor Pipeline::State::gather_predictions(Exec& ex, const ResolvedRequest& r,
                                           const Tensor& predicted) const {
  if (draws_alone() || divides_layers() || divides_tensors()) return predicted;
  const RowSplit* rows = unet->shape().rows;
  if (!rows) return gather_conditions(ex, *ranks_, own_conditions(r), predicted);
  const Tensor part = pair_ ? gather_conditions(ex, *pair_, own_conditions(r), predicted) : predicted;
  const int64_t batch = part.dim(0), width = part.dim(2), channels = part.dim(3);
  const Tensor all =
      gather_pixels(ex, *rows, part.reshape({batch, part.dim(1) * width, channels}), Waits::kHaveMet);
  return all.reshape({batch, r.latent_height, width, channels});
}

void Pipeline::State::begin_together() const {
  ranks_->begin();
  if (PeerWindows* windows = ranks_->windows()) windows->begin();
}

void Pipeline::State::check_windows() const {
  if (PeerWindows* windows = ranks_ ? ranks_->windows() : nullptr) windows->check();
}

void Pipeline::State::end_together() const {
  char done = 1;
  if (ranks_->rank() > 0) return ranks_->receive(0, &done, sizeof done);
  for (int to = 1; to < ranks_->count(); ++to) ranks_->send(to, &done, sizeof done);
}

}  // namespace rocm_sd
