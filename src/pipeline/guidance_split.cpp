#include "pipeline/guidance_split.hpp"

#include <vector>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "pipeline/state.hpp"

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
  if (draws_alone() || divides_rows()) return {0, r.conditions, r.conditions};
  return share_conditions(r.conditions, ranks_->rank(), ranks_->count());
}

// Outside of the captured step: a graph waits for nobody. The copy to the host waits for the step, and the
// stream for the copy back, so that the next call may overwrite `predicted`.
Tensor Pipeline::State::gather_predictions(Exec& ex, const ResolvedRequest& r,
                                           const Tensor& predicted) const {
  if (draws_alone()) return predicted;
  if (const RowSplit* rows = unet->shape().rows) {
    const int64_t batch = predicted.dim(0), width = predicted.dim(2), channels = predicted.dim(3);
    const Tensor all =
        gather_pixels(ex, *rows, predicted.reshape({batch, predicted.dim(1) * width, channels}));
    return all.reshape({batch, r.latent_height, width, channels});
  }
  const ConditionShare own = own_conditions(r);
  const int64_t images = predicted.dim(0) / own.count;
  Shape shape = predicted.shape();
  shape[0] = own.all * images;
  const Tensor all = ex.alloc(shape, predicted.dtype());  // [K*N,h,w,4]
  const size_t condition_bytes = predicted.bytes() / static_cast<size_t>(own.count);
  std::vector<size_t> ends;
  for (int rank = 0; rank < ranks_->count(); ++rank) {
    const ConditionShare share = share_conditions(own.all, rank, ranks_->count());
    ends.push_back(static_cast<size_t>(share.first + share.count) * condition_bytes);
  }
  std::vector<char> host(all.bytes());
  Device& device = ex.device();
  const size_t begin = static_cast<size_t>(own.first) * condition_bytes;
  device.copy_to_host(host.data() + begin, predicted.data(), predicted.bytes());
  all_gather(*ranks_, host.data(), ends);
  device.copy_to_device(all.data(), host.data(), host.size());
  return all;
}

void Pipeline::State::end_together() const {
  char done = 1;
  if (ranks_->rank() > 0) return ranks_->receive(0, &done, sizeof done);
  for (int to = 1; to < ranks_->count(); ++to) ranks_->send(to, &done, sizeof done);
}

}  // namespace rocm_sd
