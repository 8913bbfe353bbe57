#include "pipeline/adapter_stage.hpp"

#include "base/error.hpp"

namespace rocm_sd {

AdapterStage::AdapterStage(const ControlUnit& unit, Arena& arena, const ControlShape& shape,
                           const TimeInputs&)
    : ControlStage(arena), unit_(unit), model_(*unit.model->adapter()), shape_(shape) {
  const T2iConfig& config = model_.config();
  const int64_t d = config.downscale;
  int64_t height = (windowed() ? shape.height * kPixelsPerLatent : shape.image_height) / d;
  int64_t width = (windowed() ? shape.width * kPixelsPerLatent : shape.image_width) / d;
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

bool AdapterStage::windowed() const {
  return shape_.height * kPixelsPerLatent < shape_.image_height ||
         shape_.width * kPixelsPerLatent < shape_.image_width;
}

uint64_t AdapterStage::buffer_bytes() const {
  uint64_t bytes = squares_.bytes();
  const uint64_t copies = windowed() ? 1 + static_cast<uint64_t>(shape_.windows) : 1;
  for (const Tensor& t : made_) bytes += copies * t.bytes();
  for (const ScaledMap& added : added_) bytes += added.map.bytes() + added.factors.bytes();
  return bytes;
}

// pixels: [height,width,3] each -> made_.
void AdapterStage::make_maps(const std::vector<std::vector<float>>& pixels, int64_t height, int64_t width,
                             const RunWatch& watch) {
  std::vector<float> all;
  for (const std::vector<float>& image : pixels) {
    const std::vector<float> squares = model_.unshuffled(image, height, width);
    all.insert(all.end(), squares.begin(), squares.end());
  }
  upload(device(), squares_, all.data(), static_cast<int64_t>(all.size()));
  program_->run(watch.profiler, watch.cancel);
}

bool AdapterStage::set(const ControlSetting& setting, const RunWatch& watch) {
  windows_.clear();
  setting_ = setting;
  watch_ = watch;
  if (!windowed()) make_maps(setting.views.at(0).pixels, shape_.image_height, shape_.image_width, watch);
  for (size_t level = 0; level < made_.size(); ++level) {
    const ScaledMap& added = added_[level];
    for (int64_t row = 0; !windowed() && row < shape_.rows(); ++row) {
      const Tensor from = made_[level].narrow(0, row % unit_.images, 1);
      device().copy_on_device(added.map.narrow(0, row, 1).data(), from.data(), from.bytes());
    }
    std::vector<float> factors(static_cast<size_t>(shape_.rows()), static_cast<float>(setting.strength));
    if (unit_.masked && windowed()) continue;  // cut_hint() brings them
    if (unit_.masked)
      factors = masked_factors(factors, setting.mask, shape_, added.map.dim(1), added.map.dim(2));
    upload(device(), added.factors, factors.data(), added.factors.numel());
  }
  return false;
}

const AdapterStage::Window& AdapterStage::window_at(int64_t top, int64_t left) {
  for (const Window& known : windows_)
    if (known.top == top && known.left == left) return known;
  std::vector<std::vector<float>> pixels;
  for (const std::vector<float>& image : setting_.views.at(0).pixels)
    pixels.push_back(window_of(image, shape_, top, left, 3));
  make_maps(pixels, shape_.height * kPixelsPerLatent, shape_.width * kPixelsPerLatent, watch_);
  Window made{top, left, {}, {}};
  for (const Tensor& map : made_) {
    made.maps.push_back(make_tensor(device(), map.shape(), map.dtype()));
    device().copy_on_device(made.maps.back().data(), map.data(), map.bytes());
    if (unit_.masked)
      made.factors.push_back(masked_factors({static_cast<float>(setting_.strength)},
                                            window_of(setting_.mask, shape_, top, left, 1),
                                            window_shape(shape_), map.dim(1), map.dim(2)));
  }
  return windows_.emplace_back(std::move(made));
}

void AdapterStage::cut_hint(Exec&, int64_t row, int64_t top, int64_t left) {
  if (!windowed()) return;
  const Window& window = window_at(top, left);
  for (size_t level = 0; level < made_.size(); ++level) {
    const Tensor from = window.maps[level].narrow(0, row % unit_.images, 1);
    device().copy_on_device(added_[level].map.narrow(0, row, 1).data(), from.data(), from.bytes());
    if (!unit_.masked) continue;
    const auto cells = static_cast<int64_t>(window.factors[level].size());
    upload(device(), added_[level].factors.narrow(0, row * cells, cells), window.factors[level].data(),
           cells);
  }
}

void AdapterStage::add_to_blocks(std::vector<std::vector<ScaledMap>>& blocks, int64_t rows) const {
  for (size_t i = 0; i < added_.size(); ++i)
    blocks.at(i).push_back({leading_rows(added_[i].map, shape_.rows(), rows),
                            leading_rows(added_[i].factors, shape_.rows(), rows)});
}

}  // namespace rocm_sd
