// What the exchanges of divided rows have in common; internal to src/models.
#pragma once

#include <memory>
#include <vector>

#include "kernels/norm/group_bands.hpp"
#include "models/row_split.hpp"

namespace rocm_sd::row_exchange {

// A piece of host memory that the launches of one exchange share, for as long as a graph replays them. It is
// there from the first launch on: a plan launches nothing.
using Buffer = std::shared_ptr<std::vector<char>>;
inline Buffer make_buffer() { return std::make_shared<std::vector<char>>(); }

// What one exchange of a forward remembers from call to call: whether its buffers hold what the others had in
// the call before, and on which channel what they had in the last one comes.
class Passing {
 public:
  template <class Send, class Receive>
  void operator()(const RowSplit& split, const Send& send, const Receive& receive) {
    const uint32_t channel = split.next_channel();
    send(channel);
    if (channel == 0) return receive(0);
    if (image_ != split.image()) filled_ = false;
    if (!split.stale() || !filled_) {
      receive(channel);
      image_ = split.image();
      filled_ = true;
      under_way_ = 0;
      return;
    }
    if (under_way_) receive(under_way_);
    under_way_ = channel;
  }

 private:
  int64_t image_ = 0;
  bool filled_ = false;
  uint32_t under_way_ = 0;
};

// Whether exchanges of this forward are stores of kernels.
inline bool by_windows(const RowSplit& split) { return split.ranks().windows() != nullptr; }

// The own part of what all ranks gather, to each of the others.
inline std::vector<uint64_t> sent_to_all(const RowSplit& split, uint64_t bytes) {
  std::vector<uint64_t> sent(static_cast<size_t>(split.ranks().count()), bytes);
  sent[static_cast<size_t>(split.ranks().rank())] = 0;
  return sent;
}

// The moments of a map of which every rank has some rows: [images,rows of all ranks,groups,3] f32, with this
// rank's from the row own_begin on.
struct SplitMoments {
  Tensor values;
  std::vector<int64_t> rows;  // by rank
  int64_t own_begin = 0;

  int64_t images() const { return values.dim(0); }
  Tensor of(int64_t begin, size_t rank) const { return values.narrow(1, begin, rows[rank]); }
};
// With this rank's moments of x [N,R,W,C] in it.
SplitMoments own_moments(Exec& ex, const RowSplit& split, const Tensor& x, int64_t groups);
// x [N,R,W,C] between the edges' rows, normalised by the moments of all rows, in its own type: [N,R +
// 0..2,W,C].
Tensor normalised(Exec& ex, const SplitMoments& moments, Tensor x, const Norm& norm, Activation act,
                  const EdgeRows& edges = {});

}  // namespace rocm_sd::row_exchange
