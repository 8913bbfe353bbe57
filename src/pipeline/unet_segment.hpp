// A rank's layers of the UNet at work (--split pipeline): micro-batches go from rank to rank, and while one
// rank computes on the second of them the next has the first. Maps pass between programs, so that a GPU
// replays a graph for each micro-batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "models/unet.hpp"
#include "pipeline/stage.hpp"
#include "runtime/ranks.hpp"

namespace rocm_sd {

struct SegmentShape {
  int64_t rows = 1;               // of a micro-batch
  int64_t batches = 1;            // micro-batches of a call
  int64_t height = 0, width = 0;  // of the latents
};

class UnetSegment {
 public:
  // The layers on rows [first, first + shape.rows) of a call: x and skips as UNet::run_layers() has them.
  // variant: what acts beside the UNet.
  using Forward = std::function<Tensor(Exec& ex, uint32_t variant, int64_t first, const Tensor& x,
                                       std::vector<Tensor>& skips)>;
  // Everything must outlive the segment.
  UnetSegment(const UNet& unet, Ranks& ranks, Arena& arena, const SegmentShape& shape, Forward forward);

  // Made where it is asked for first.
  void add(uint32_t variant);
  std::vector<Program*> programs();
  uint64_t buffer_bytes() const;

  // inputs: of all rows, the latents and further channels, [rows*batches,h,w,.] each; they count on the first
  // rank. -> output [rows*batches,h,w,out_channels] f32, on every rank.
  void run(Exec& ex, uint32_t variant, const std::vector<const Tensor*>& inputs, const Tensor& output,
           const RunWatch& watch);

 private:
  // A map that another rank makes or reads.
  struct Passed {
    size_t skip = 0;
    int rank = 0;
    Tensor map;
  };
  bool is_first() const { return ranks_.rank() == 0; }
  bool is_last() const { return ranks_.rank() + 1 == ranks_.count(); }
  Tensor make_map(const MapSize& size, DType dtype) const;
  void forward(Exec& ex, uint32_t variant, int64_t first);
  void receive(int from, const Tensor& map);
  void send(int to, const Tensor& map);
  void send_output(const Tensor& output);

  const UNet& unet_;
  Ranks& ranks_;
  Arena& arena_;
  SegmentShape shape_;
  Forward forward_;
  size_t skips_ = 0;
  Tensor in_, out_;
  std::vector<Passed> taken_, given_;                                          // by rank
  std::map<std::pair<uint32_t, int64_t>, std::unique_ptr<Program>> programs_;  // by variant and first row
  std::vector<char> host_;
};

}  // namespace rocm_sd
