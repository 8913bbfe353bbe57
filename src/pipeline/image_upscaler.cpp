#include "pipeline/image_upscaler.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/step/step.hpp"
#include "kernels/windows/windows.hpp"
#include "models/store_source.hpp"
#include "pipeline/model_checks.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/tile_grid.hpp"
#include "weights/upscaler_weights.hpp"

namespace rocm_sd {
namespace {

constexpr int kLeastTile = 16;
constexpr int64_t kMaxSide = 32768, kMaxPixels = int64_t{1} << 28;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// Place `i` of a line of `length` that is reflected at its end without repeating the last value.
int64_t reflected(int64_t i, int64_t length) {
  return i < length ? i : std::max<int64_t>(2 * (length - 1) - i, 0);
}

// Colours of an image as the network reads them: squares of `side` pixels as channels, the colour slowest.
// Beyond the image it is reflected.
class Cells {
 public:
  // multiple: of which the numbers of rows and columns are multiples.
  Cells(const Image& image, int64_t side, int64_t multiple)
      : rgb_(opaque_rgb(image)),
        width_(image.width),
        height_(image.height),
        side_(side),
        multiple_(multiple) {}
  int64_t rows() const { return groups(height_) * multiple_; }
  int64_t cols() const { return groups(width_) * multiple_; }
  // 0..1 of colour c.
  float colour(int64_t y, int64_t x, int64_t c) const {
    const int64_t pixel = reflected(y, height_) * width_ + reflected(x, width_);
    return static_cast<float>(rgb_[at(3 * pixel + c)]) / 255.0f;
  }
  // Cells [top, top + h) x [left, left + w) -> [h,w,3*side^2].
  void window(int64_t top, int64_t left, int64_t h, int64_t w, float* to) const {
    const int64_t channels = 3 * side_ * side_;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < h; ++i)
      for (int64_t j = 0; j < w; ++j)
        for (int64_t k = 0; k < channels; ++k) {
          const int64_t inside = k % (side_ * side_), y = (top + i) * side_ + inside / side_,
                        x = (left + j) * side_ + inside % side_;
          to[(i * w + j) * channels + k] = colour(y, x, k / (side_ * side_));
        }
  }

 private:
  int64_t groups(int64_t pixels) const { return (pixels + side_ * multiple_ - 1) / (side_ * multiple_); }

  std::vector<uint8_t> rgb_;
  int64_t width_, height_, side_, multiple_;
};

uint8_t to_byte(float v) {
  return static_cast<uint8_t>(std::nearbyint(std::clamp(v, 0.0f, 1.0f) * 255.0f));  // NaN was refused
}

// The weighted sum of windows from the top, whose finished rows become bytes.
class Canvas {
 public:
  Canvas(Image& image, int64_t rows) : image_(image), sums_(at(rows * image.width * 3), 0.0f) {}

  // values [rows,columns,3] of a window at column `left`, by the weights of its rows and columns.
  void add(int64_t left, const std::vector<float>& down, const std::vector<float>& across,
           const std::vector<float>& values) {
    const int64_t width = image_.width, columns = std::ssize(across);
#pragma omp parallel for schedule(static)
    for (int64_t y = 0; y < std::ssize(down); ++y)
      for (int64_t x = 0; x < std::min(columns, width - left); ++x) {
        const float weight = down[at(y)] * across[at(x)];
        if (weight == 0) continue;
        for (int64_t c = 0; c < 3; ++c)
          sums_[at((y * width + left + x) * 3 + c)] += weight * values[at((y * columns + x) * 3 + c)];
      }
  }
  // The first `rows` rows are finished.
  void flush(int64_t rows) {
    const int64_t line = int64_t{image_.width} * 3, finished = std::min(rows, image_.height - done_) * line;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < finished; ++i) image_.rgb[at(done_ * line + i)] = to_byte(sums_[at(i)]);
    done_ += rows;
    const auto end = sums_.begin() + rows * line;
    std::move(end, sums_.end(), sums_.begin());
    std::fill(sums_.end() - rows * line, sums_.end(), 0.0f);
  }

 private:
  Image& image_;
  std::vector<float> sums_;  // [rows,width,3]
  int64_t done_ = 0;
};

// Its pages by several threads, before one alone fills it: that took longer than small networks.
void resize_by_threads(std::vector<uint8_t>& bytes, size_t size) {
  constexpr int64_t kPage = 4096;
  bytes.reserve(size);
  volatile uint8_t* const at = bytes.data();
#pragma omp parallel for schedule(static) num_threads(std::min(8, host_threads()))
  for (int64_t page = 0; page < static_cast<int64_t>(size) / kPage; ++page) at[page * kPage] = 0;
  bytes.resize(size);
}

void check_tiles(const UpscaleTiles& tiles) {
  require<UsageError>(tiles.size == 0 || tiles.size >= kLeastTile, "tile: expected at least ", kLeastTile,
                      " pixels, or 0 for none, got ", tiles.size);
  require<UsageError>(tiles.size == 0 || (tiles.overlap >= 0 && tiles.overlap <= tiles.size / 2),
                      "tile-overlap: expected 0 to half of the tile, ", tiles.size / 2, ", got ",
                      tiles.overlap);
}

// What a window counts at each place by its overlap with the neighbour: distance from the window's edge.
float rise(int64_t distance, int64_t overlap) {
  if (overlap <= 0) return 1;
  const double quarter = static_cast<double>(overlap) / 4;
  const double place = (static_cast<double>(distance) + 0.5 - quarter) / (2 * quarter);
  return static_cast<float>(std::clamp(place, 0.0, 1.0));
}

}  // namespace

WindowAxis window_axis(int64_t length, int64_t tile, int64_t overlap, int64_t scale) {
  if (tile == 0 || tile > length) tile = length;
  WindowAxis axis{tile * scale, tile_begins(length, tile, std::min(overlap, tile - 1)), {}};
  for (int64_t& begin : axis.begins) begin *= scale;
  std::vector<double> sums(at(length * scale), 0.0);
  for (size_t i = 0; i < axis.begins.size(); ++i) {
    const int64_t begin = axis.begins[i], end = begin + axis.length;
    const int64_t before = i > 0 ? axis.begins[i - 1] + axis.length - begin : 0;
    const int64_t after = i + 1 < axis.begins.size() ? end - axis.begins[i + 1] : 0;
    std::vector<float> weights;
    for (int64_t k = 0; k < axis.length; ++k) {
      const float left = i > 0 ? rise(k, before) : 1.0f;
      const float right = i + 1 < axis.begins.size() ? rise(axis.length - 1 - k, after) : 1.0f;
      weights.push_back(std::min(left, right));
      sums[at(begin + k)] += static_cast<double>(weights.back());
    }
    axis.weights.push_back(std::move(weights));
  }
  for (size_t i = 0; i < axis.begins.size(); ++i)
    for (size_t k = 0; k < axis.weights[i].size(); ++k)
      axis.weights[i][k] =
          static_cast<float>(static_cast<double>(axis.weights[i][k]) / sums[at(axis.begins[i]) + k]);
  return axis;
}

DType upscaler_dtype(const Device& device, const std::string& name) {
  const bool host = device.kind() == DeviceKind::kHost;
  if (name == "auto") return host ? DType::kF32 : DType::kF16;
  if (name == "f32" || name == "fp32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  require<UsageError>(name == "f16" || name == "fp16", "dtype: expected auto, f16, bf16 or f32, got \"",
                      printable(name), "\"");
  require<UsageError>(!host, "dtype: f16 is for GPUs; on the CPU expected bf16 or f32");
  return DType::kF16;
}

ImageUpscaler::ImageUpscaler(Device& device, const std::filesystem::path& file, DType dtype)
    : device_(device),
      name_(file.stem().string()),
      store_(open_upscaler(file)),
      net_(upscaler_config(store_)),
      arena_(device) {
  require_complete(store_, list_parameters(net_), concat("an ", net_.config().name()).c_str());
  require_finite(store_);
  net_.load(device_, StoreSource(store_), dtype);
}

void ImageUpscaler::prepare(int64_t height, int64_t width, bool alone) {
  if (input_ && input_.dim(1) == height && input_.dim(2) == width && alone == static_cast<bool>(bytes_))
    return;
  const UpscalerConfig& c = config();
  const int64_t scale = c.growth_of_map() * c.shuffle;
  const Shape made{1, height * scale, width * scale, 3};
  program_.reset();
  input_ = make_tensor(device_, {1, height, width, c.in_channels()}, DType::kF32);
  output_ = alone ? Tensor() : make_tensor(device_, made, DType::kF32);
  bytes_ = alone ? make_tensor(device_, made, DType::kU8) : Tensor();
  nonfinite_ = make_tensor(device_, {1}, DType::kI64);
  const std::vector<float> ones(at(c.shuffle * c.shuffle), 1.0f);
  ones_ = tensor_from(device_, {c.shuffle * c.shuffle}, ones.data());
  net_.prepare(device_, height * width);
  program_ = std::make_unique<Program>("upscaler", arena_, [this](Exec& ex) { forward(ex); });
}

void ImageUpscaler::forward(Exec& ex) {
  const UpscalerConfig& c = config();
  Tensor made = net_(ex, dtype() == DType::kF32 ? input_ : cast(ex, input_, dtype()));
  if (c.adds_image()) {  // a pixel's colour to all of its square
    if (dtype() != DType::kF32) made = cast(ex, made, DType::kF32);
    const Tensor squares = made.reshape({input_.numel(), made.numel() / input_.numel()});
    add_scaled_into(ex, squares, ones_, input_.reshape({input_.numel()}), squares);
  }
  if (c.shuffle > 1) made = pixel_shuffle(ex, made, c.shuffle);  // [1,H,W,3]
  copy_into(ex, count_nonfinite(ex, made), nonfinite_);
  if (bytes_)
    copy_into(ex, to_rgb8(ex, made, 1, 0), bytes_);
  else
    copy_into(ex, made, output_);
}

void ImageUpscaler::release_memory() {
  program_.reset();
  input_ = output_ = bytes_ = nonfinite_ = ones_ = {};
  net_.prepare(device_, 1);
  arena_.release();
}

void ImageUpscaler::check_finite() {
  int64_t bad = 0;
  device_.copy_to_host(&bad, nonfinite_.data(), sizeof bad);
  if (bad > 0) throw NotFinite{"upscaler", bad, (bytes_ ? bytes_ : output_).numel()};
}

// The only window's bytes into the image, which may have fewer rows and columns.
void ImageUpscaler::fetch_bytes(Image& image) const {
  const int64_t row = bytes_.dim(2) * 3, line = int64_t{image.width} * 3;
  if (row == line) {
    device_.copy_to_host(image.rgb.data(), bytes_.data(), image.rgb.size());
    return;
  }
  std::vector<uint8_t> all(at(bytes_.numel()));
  device_.copy_to_host(all.data(), bytes_.data(), all.size());
  for (int64_t y = 0; y < image.height; ++y)
    std::copy_n(all.begin() + y * row, line, image.rgb.begin() + y * line);
}

Image ImageUpscaler::attempt(const Image& image, const UpscaleTiles& tiles, const RunWatch& watch,
                             const OnWindow& step) {
  const UpscalerConfig& c = config();
  const int64_t side = c.unshuffle, factor = c.factor(), unit = c.multiple();
  const Cells cells(image, side, unit);
  // In units of `unit` cells, where the network's own windows begin.
  const int64_t tile = tiles.size > 0 ? std::max<int64_t>(tiles.size / side / unit, 1) : 0;
  const int64_t overlap = (tiles.overlap / side + unit - 1) / unit;
  const WindowAxis rows = window_axis(cells.rows() / unit, tile, overlap, side * factor * unit),
                   cols = window_axis(cells.cols() / unit, tile, overlap, side * factor * unit);
  const int64_t cell = side * factor;  // pixels of the result that a cell becomes
  const int64_t h = rows.length / cell, w = cols.length / cell;
  const bool alone = rows.begins.size() == 1 && cols.begins.size() == 1;
  prepare(h, w, alone);
  Image out{static_cast<int>(image.width * factor), static_cast<int>(image.height * factor), {}, {}};
  const auto make_room = [&] { resize_by_threads(out.rgb, at(int64_t{out.width} * out.height * 3)); };
  std::vector<float> pixels(at(input_.numel()));
  const auto start = [&](int64_t top, int64_t left) {
    cells.window(top, left, h, w, pixels.data());
    upload(device_, input_, pixels.data(), input_.numel());
    program_->run(watch.profiler, watch.cancel);
  };
  if (alone) {
    start(0, 0);
    make_room();  // while a GPU works
    check_finite();
    fetch_bytes(out);
    require<CancelledError>(!step || step(1, 1), "cancelled");
    return out;
  }
  make_room();
  Canvas canvas(out, rows.length);
  const int64_t all = std::ssize(rows.begins) * std::ssize(cols.begins);
  int64_t done = 0;
  for (size_t i = 0; i < rows.begins.size(); ++i) {
    for (size_t j = 0; j < cols.begins.size(); ++j) {
      start(rows.begins[i] / cell, cols.begins[j] / cell);
      check_finite();
      canvas.add(cols.begins[j], rows.weights[i], cols.weights[j], to_floats(device_, output_));
      require<CancelledError>(!step || step(++done, all), "cancelled");
    }
    const bool last = i + 1 == rows.begins.size();
    canvas.flush(last ? rows.length : rows.begins[i + 1] - rows.begins[i]);
  }
  return out;
}

Image ImageUpscaler::pass(const Image& image, const UpscaleTiles& tiles, const RunWatch& watch,
                          const OnWindow& step) {
  check_tiles(tiles);
  const int64_t width = image.width * config().factor(), height = image.height * config().factor();
  require<UsageError>(image.width > 0 && image.height > 0 && width <= kMaxSide && height <= kMaxSide &&
                          width * height <= kMaxPixels,
                      "upscale: a picture of ", image.width, " x ", image.height, " would become ", width,
                      " x ", height, ", expected at most ", kMaxSide, " on a side and ", kMaxPixels,
                      " pixels");
  for (;;) {
    try {
      return attempt(image, tiles, watch, step);
    } catch (const NotFinite& found) {
      require<GenerationError>(dtype() == DType::kF16, name_, ": ", found.count, " of ", found.of,
                               " values of the picture are not finite");
    }
    log().warn("{}: values overflow in f16; it goes on in f32", name_);
    net_.load(device_, StoreSource(store_), DType::kF32);
    input_ = {};
  }
}

}  // namespace rocm_sd
