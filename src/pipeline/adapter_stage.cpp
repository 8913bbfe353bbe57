#include "pipeline/adapter_stage.hpp"

#include "base/error.hpp"

namespace rocm_sd {

AdapterStage::AdapterStage(const ControlUnit& unit, Arena& arena, const ControlShape& shape,
                           const TimeInputs&)
    : ControlStage(arena), unit_(unit), model_(*unit.model->adapter()), shape_(shape) {
  const T2iConfig& config = model_.config();
  const int64_t d = config.downscale;
  int64_t height = shape.image_height / d, width = shape.image_width / d;
  squares_ = make_tensor(device(), {unit.images, height, width, config.in_channels * d * d}, DType::kF32);
  for (int64_t level = 0; level < config.levels(); ++level) {
    if (config.halves(level)) height = halved(height, 1), width = halved(width, 1);
    const int64_t channels = config.channels_of(level);
    made_.push_back(make_tensor(device(), {unit.images, height, width, channels}, unit.model->maps));
    const int64_t factors = shape.rows() * (unit.masked ? height * width : 1);
    added_.push_back({make_tensor(device(), {shape.rows(), height, width, channels}, unit.model->maps),
                      make_tensor(device(), {factors}, DType::kF32)});
  }
  program_ = std::make_unique<Program>("adapter", arena, [this](Exec& ex) {
    const std::vector<Tensor> maps = model_(ex, squares_, unit_.model->maps);
    for (size_t i = 0; i < maps.size(); ++i) copy_into(ex, maps[i], made_[i]);
  });
}

uint64_t AdapterStage::buffer_bytes() const {
  uint64_t bytes = squares_.bytes();
  for (const Tensor& t : made_) bytes += t.bytes();
  for (const ScaledMap& added : added_) bytes += added.map.bytes() + added.factors.bytes();
  return bytes;
}

bool AdapterStage::set(const ControlSetting& setting, const RunWatch& watch) {
  std::vector<float> all;
  for (const std::vector<float>& pixels : setting.views.at(0).pixels) {
    const std::vector<float> squares = model_.unshuffled(pixels, shape_.image_height, shape_.image_width);
    all.insert(all.end(), squares.begin(), squares.end());
  }
  upload(device(), squares_, all.data(), static_cast<int64_t>(all.size()));
  program_->run(watch.profiler, watch.cancel);
  for (size_t level = 0; level < made_.size(); ++level) {
    const ScaledMap& added = added_[level];
    for (int64_t row = 0; row < shape_.rows(); ++row) {
      const Tensor from = made_[level].narrow(0, row % unit_.images, 1);
      device().copy_on_device(added.map.narrow(0, row, 1).data(), from.data(), from.bytes());
    }
    std::vector<float> factors(static_cast<size_t>(shape_.rows()), static_cast<float>(setting.strength));
    if (unit_.masked)
      factors = masked_factors(factors, setting.mask, shape_, added.map.dim(1), added.map.dim(2));
    upload(device(), added.factors, factors.data(), added.factors.numel());
  }
  return false;
}

void AdapterStage::cut_hint(Exec&, int64_t, int64_t, int64_t) {}  // not under tiles: plan_controls()

void AdapterStage::add_to_blocks(std::vector<std::vector<ScaledMap>>& blocks) const {
  for (size_t i = 0; i < added_.size(); ++i) blocks.at(i).push_back(added_[i]);
}

}  // namespace rocm_sd
