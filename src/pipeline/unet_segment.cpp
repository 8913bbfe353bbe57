#include "pipeline/unet_segment.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace rocm_sd {

UnetSegment::UnetSegment(const UNet& unet, Ranks& ranks, Arena& arena, const SegmentShape& shape,
                         Forward forward)
    : unet_(unet), ranks_(ranks), arena_(arena), shape_(shape), forward_(std::move(forward)) {
  const std::vector<UNetLayer> layers = unet_layers(unet.config());
  const std::vector<LayerRange> ranges = divide_layers(unet.config(), ranks.count());
  const UNetMaps maps = unet_maps(unet.config(), layers, shape.height, shape.width);
  const LayerRange& own = unet.own_layers();
  require<InternalError>(ranges.at(static_cast<size_t>(ranks.rank())) == own,
                         "split: pipeline: the UNet was loaded for another rank");
  const DType dtype = unet.input_dtype();
  in_ = make_map(maps.read[own.begin], dtype);
  out_ = is_last() ? make_map({shape.height, shape.width, unet.config().out_channels}, DType::kF32)
                   : make_map(maps.read[own.end], dtype);
  skips_ = maps.skips.size();
  const auto rank_of = [&](size_t layer) {
    return static_cast<int>(std::ranges::find_if(ranges, [&](const LayerRange& r) { return r.has(layer); }) -
                            ranges.begin());
  };
  for (size_t skip = 0; skip < skips_; ++skip) {
    size_t giver = 0, taker = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].gives == skip) giver = i;
      if (layers[i].takes == skip) taker = i;
    }
    if (rank_of(giver) == rank_of(taker)) continue;
    if (own.has(taker)) taken_.push_back({skip, rank_of(giver), make_map(maps.skips[skip], dtype)});
    if (own.has(giver)) given_.push_back({skip, rank_of(taker), make_map(maps.skips[skip], dtype)});
  }
  // All ranks receive and send in this order: none waits for one that waits for it.
  for (std::vector<Passed>* list : {&taken_, &given_}) std::ranges::stable_sort(*list, {}, &Passed::rank);
}

Tensor UnetSegment::make_map(const MapSize& size, DType dtype) const {
  return make_tensor(arena_.device(), {shape_.rows, size.height, size.width, size.channels}, dtype);
}

void UnetSegment::forward(Exec& ex, uint32_t variant, int64_t first) {
  std::vector<Tensor> skips(skips_);
  for (const Passed& taken : taken_) skips[taken.skip] = taken.map;
  const Tensor x = forward_(ex, variant, first, in_, skips);
  copy_into(ex, x, out_);
  for (const Passed& given : given_) copy_into(ex, skips[given.skip], given.map);
}

void UnetSegment::add(uint32_t variant) {
  for (int64_t batch = 0; batch < shape_.batches; ++batch) {
    const int64_t first = batch * shape_.rows;
    std::unique_ptr<Program>& program = programs_[{variant, first}];
    if (!program)
      program = std::make_unique<Program>("unet layers", arena_,
                                          [this, variant, first](Exec& ex) { forward(ex, variant, first); });
  }
}

std::vector<Program*> UnetSegment::programs() {
  std::vector<Program*> out;
  for (const auto& [key, program] : programs_) out.push_back(program.get());
  return out;
}

uint64_t UnetSegment::buffer_bytes() const {
  uint64_t bytes = in_.bytes() + out_.bytes();
  for (const auto* list : {&taken_, &given_})
    for (const Passed& passed : *list) bytes += passed.map.bytes();
  return bytes;
}

void UnetSegment::receive(int from, const Tensor& map) {
  host_.resize(map.bytes());
  ranks_.receive(from, host_.data(), host_.size());
  arena_.device().copy_to_device(map.data(), host_.data(), host_.size());
}

void UnetSegment::send(int to, const Tensor& map) {
  host_.resize(map.bytes());
  arena_.device().copy_to_host(host_.data(), map.data(), host_.size());
  ranks_.send(to, host_.data(), host_.size());
}

// Of the last rank, to all.
void UnetSegment::send_output(const Tensor& output) {
  const int last = ranks_.count() - 1;
  if (!is_last()) return receive(last, output);
  host_.resize(output.bytes());
  arena_.device().copy_to_host(host_.data(), output.data(), host_.size());
  for (int to = 0; to < last; ++to) ranks_.send(to, host_.data(), host_.size());
}

void UnetSegment::run(Exec& ex, uint32_t variant, const std::vector<const Tensor*>& inputs,
                      const Tensor& output, const RunWatch& watch) {
  add(variant);
  const int own = ranks_.rank();
  for (int64_t batch = 0; batch < shape_.batches; ++batch) {
    const int64_t first = batch * shape_.rows;
    int64_t channel = 0;
    for (const Tensor* input : inputs) {
      if (!is_first()) break;
      copy_into(ex, input->narrow(0, first, shape_.rows), in_.narrow(3, channel, input->dim(3)));
      channel += input->dim(3);
    }
    for (const Passed& taken : taken_) receive(taken.rank, taken.map);
    if (!is_first()) receive(own - 1, in_);
    programs_.at({variant, first})->run(watch.profiler, watch.cancel);
    if (is_last()) {
      copy_into(ex, out_, output.narrow(0, first, shape_.rows));
      continue;
    }
    // As the next rank receives them.
    const auto next = std::ranges::upper_bound(given_, own + 1, {}, &Passed::rank);
    for (auto given = given_.begin(); given != next; ++given) send(given->rank, given->map);
    send(own + 1, out_);
    for (auto given = next; given != given_.end(); ++given) send(given->rank, given->map);
  }
  send_output(output);
}

}  // namespace rocm_sd
