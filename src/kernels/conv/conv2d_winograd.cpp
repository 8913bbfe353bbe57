// conv2d by Winograd's F(4x4, 3x3): a quarter of the multiplications of a 3x3 filter, for four times the
// memory of its weights. The error in float is about 1e-6 of the result's size. A task is a block of tiles:
// its 6x6 pixels are transformed into 36 matrices [tiles, channels], which multiply the 36 transformed
// filters a group of panels at a time, so that the products go back through cache.
#include <omp.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "kernels/conv/conv2d_tiled.hpp"
#include "kernels/conv/winograd.hpp"
#include "kernels/gemm/tile_kernel.hpp"
#include "kernels/host_table.hpp"
#include "runtime/stop_request.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxTiles = 48;  // of a task: a transformed filter is read once for this many
constexpr int64_t kGroupColumns =
    64;                             // outputs whose products stand in cache: 36 x 48 x 64 floats are 442 KB
constexpr int64_t kMaxDepth = 320;  // as in tiled.cpp: a depth block of a panel stays in L1
constexpr int64_t kMaxFilterBytes = 60 << 20;  // transformed; more costs too much memory
constexpr int64_t kMinPixels = 8192;           // fewer do not pay for reading four times the weights
constexpr int64_t kChannelMultiple = 16;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The 36 transformed filters: [36][panels][channels][columns]. The plain filter cannot be had back exactly,
// so it is kept as well.
class WinogradPack final : public Weight::Pack {
 public:
  WinogradPack(const Tensor& plain, const tiled::Layout& l)
      : data_(make_tensor(host_device(), {kWinogradProducts, l.panels(), l.c1 + l.c2, l.columns},
                          DType::kF32)) {
    const int64_t channels = l.c1 + l.c2, matrix = l.panels() * channels * l.columns;
#pragma omp parallel for schedule(static)
    for (int64_t panel = 0; panel < l.panels(); ++panel)
      for (int64_t c = 0; c < channels; ++c)
        for (int j = 0; j < l.columns; ++j) {
          const int64_t output = l.output_at(panel, j);
          float* to = data_.as<float>() + (panel * channels + c) * l.columns + j;
          transform(output < 0 ? nullptr : plain.as<float>() + (output * channels + c) * 9, to, matrix);
        }
  }
  size_t bytes() const override { return data_.bytes(); }
  Tensor unpack() const override { throw InternalError("transformed filters do not give the filter back"); }
  const float* data() const { return data_.as<float>(); }

 private:
  // to[i * stride] = (G g G^T)[i], in double.
  static void transform(const float* g, float* to, int64_t stride) {
    constexpr double a = 0.75, b = 1.5;  // the points of winograd_isa.cpp: 0, a, -a, b, -b, infinity
    constexpr double at_a = 1 / (2 * a * a * (a * a - b * b)), at_b = 1 / (2 * b * b * (b * b - a * a));
    static constexpr double kG[6][3] = {{1 / (a * a * b * b), 0, 0},     {at_a, at_a * a, at_a * a * a},
                                        {at_a, -at_a * a, at_a * a * a}, {at_b, at_b * b, at_b * b * b},
                                        {at_b, -at_b * b, at_b * b * b}, {0, 0, 1}};
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 6; ++j) {
        double sum = 0;
        for (int r = 0; g && r < 3; ++r)
          for (int s = 0; s < 3; ++s) sum += kG[i][r] * g[r * 3 + s] * kG[j][s];
        to[(i * 6 + j) * stride] = static_cast<float>(sum);
      }
  }

  Tensor data_;
};

// One problem, by value, with the cut of its work.
struct Winograd {
  tiled::Product p;
  const float* filters = nullptr;
  int threads = 1;
  int64_t tiles_h = 0, tiles_w = 0, task_tiles = 0, group_panels = 0;
  int64_t image_stride = 0, product_stride = 0;  // floats from one of the 36 matrices to the next
  size_t shared_floats = 0, thread_floats = 0;

  int64_t channels() const { return p.layout.c1 + p.layout.c2; }
  int64_t tiles() const { return p.batch * tiles_h * tiles_w; }

  void cut() {
    threads = host_threads();
    tiles_h = ceil_div(p.out_h, kWinogradOut);
    tiles_w = ceil_div(p.out_w, kWinogradOut);
    const int64_t per_thread = ceil_div(tiles(), 2 * threads);
    task_tiles = std::min(kMaxTiles, ceil_div(per_thread, kStripRows) * kStripRows);
    group_panels = std::max<int64_t>(1, kGroupColumns / p.layout.columns);
    // An odd number of cache lines, so that the 36 streams do not fall into the same cache set.
    image_stride = task_tiles * channels() + 16;
    product_stride = group_panels * task_tiles * p.layout.columns + 16;
    shared_floats = static_cast<size_t>(p.batch * p.layout.panels() * p.layout.columns + channels() + 32);
    shared_floats = (shared_floats + 15) / 16 * 16;
    thread_floats = static_cast<size_t>(kWinogradProducts * (image_stride + product_stride)) +
                    static_cast<size_t>(kWinogradOut * kWinogradOut * p.layout.columns);
  }
  size_t workspace_bytes() const {
    return (shared_floats + static_cast<size_t>(threads) * thread_floats) * sizeof(float);
  }
};

// A tile's place: its image and the first output pixel.
struct Place {
  int64_t image, row, column;
};
Place place_of(const Winograd& w, int64_t tile) {
  return {tile / (w.tiles_h * w.tiles_w), tile / w.tiles_w % w.tiles_h * kWinogradOut,
          tile % w.tiles_w * kWinogradOut};
}

// images[36][task_tiles][channels] of tiles [first, first + count).
void transform_images(const Winograd& w, int64_t first, int64_t count, const float* zeros, float* images) {
  const tiled::Product& p = w.p;
  for (int64_t t = 0; t < count; ++t) {
    const Place place = place_of(w, first + t);
    for (int source : {0, 1}) {
      const int64_t channels = source == 0 ? p.layout.c1 : p.layout.c2;
      if (channels == 0) continue;
      const float* pixels[kWinogradProducts];
      for (int i = 0; i < kWinogradProducts; ++i) {
        const int64_t y = place.row - p.pad_top + i / 6, x = place.column - p.pad_left + i % 6;
        const bool inside = y >= 0 && x >= 0 && y < p.height && x < p.width;
        pixels[i] = inside ? static_cast<const float*>(p.source[source]) +
                                 ((place.image * p.height + y) * p.width + x) * p.pixel_stride[source]
                           : zeros;
      }
      float* to = images + t * w.channels() + (source == 0 ? 0 : p.layout.c1);
      winograd_kernels().input(pixels, channels, to, w.image_stride);
    }
  }
}

// products[36][group_panels][strips * 6][columns] for panels [panel, panel + panels).
void multiply_group(const Winograd& w, int64_t count, int64_t panel, int64_t panels, const float* images,
                    float* products) {
  const tiled::Layout& l = w.p.layout;
  const TileKernels& kernels = tile_kernels();
  const int64_t strips = ceil_div(count, kStripRows), rows = strips * kStripRows;
  const int64_t pieces = ceil_div(w.channels(), kMaxDepth), depth = ceil_div(w.channels(), pieces);
  const void* pointers[kMaxTiles];
  for (int i = 0; i < kWinogradProducts; ++i)
    for (int64_t first = 0; first < w.channels(); first += depth) {
      const int length = static_cast<int>(std::min(depth, w.channels() - first));
      for (int64_t r = 0; r < rows; ++r)
        pointers[r] = images + i * w.image_stride + std::min(r, count - 1) * w.channels() + first;
      for (int64_t j = 0; j < panels; ++j)
        kernels.multiply_wide(
            {.pointers = pointers,
             .pointer_stride = rows,
             .segment_length = &length,
             .segments = 1,
             .strips = static_cast<int>(strips),
             .panel = w.filters + ((i * l.panels() + panel + j) * w.channels() + first) * l.columns,
             .tiles = products + i * w.product_stride + j * rows * l.columns,
             .accumulate = first > 0});
    }
}

// Transforms one panel's products back and writes the output pixels that exist.
void finish_tiles(const Winograd& w, int64_t first, int64_t count, int64_t panel, const float* products,
                  const float* bias, float* pixels) {
  const tiled::Product& p = w.p;
  const int columns = p.layout.columns;
  const int64_t first_output = panel * columns;
  for (int64_t t = 0; t < count; ++t) {
    const Place place = place_of(w, first + t);
    winograd_kernels().output(products + t * columns, w.product_stride, columns, pixels);
    const float* row_bias = bias + (place.image * p.layout.panels() + panel) * columns;
    const float* biases[kWinogradOut] = {row_bias, row_bias, row_bias, row_bias};
    for (int64_t y = 0; y < std::min<int64_t>(kWinogradOut, p.out_h - place.row); ++y) {
      int64_t offsets[kWinogradOut];
      for (int x = 0; x < kWinogradOut; ++x)
        offsets[x] = place.image * p.out_image + (place.row + y) * p.out_row +
                     (place.column + x) * p.out_pixel + first_output;
      tile_kernels().finish(
          {.tiles = pixels + y * kWinogradOut * columns,
           .rows = static_cast<int>(std::min<int64_t>(kWinogradOut, p.out_w - place.column)),
           .columns = columns,
           .valid_columns = static_cast<int>(std::min<int64_t>(columns, p.layout.outputs - first_output)),
           .bias = biases,
           .out_offset = offsets,
           .activation = static_cast<int>(p.act),
           .gated = false,
           .bf16 = false,
           .residual = p.residual,
           .out = p.out});
    }
  }
}

void run(const Winograd& w, float* workspace) {
  const tiled::Layout& l = w.p.layout;
  float* bias = workspace;
  float* zeros = bias + w.p.batch * l.panels() * l.columns;
  tiled::fill_bias(w.p, bias);
  std::fill_n(zeros, w.channels(), 0.0f);
  StopRequest stop;
#pragma omp parallel num_threads(w.threads)
  {
    float* images = workspace + w.shared_floats + static_cast<size_t>(omp_get_thread_num()) * w.thread_floats;
    float* products = images + kWinogradProducts * w.image_stride;
    float* pixels = products + kWinogradProducts * w.product_stride;
#pragma omp for schedule(dynamic, 1)
    for (int64_t first = 0; first < w.tiles(); first += w.task_tiles) {
      if (stop.asked()) continue;
      const int64_t count = std::min(w.task_tiles, w.tiles() - first);
      const int64_t rows = ceil_div(count, kStripRows) * kStripRows;
      transform_images(w, first, count, zeros, images);
      for (int64_t panel = 0; panel < l.panels(); panel += w.group_panels) {
        const int64_t panels = std::min(w.group_panels, l.panels() - panel);
        multiply_group(w, count, panel, panels, images, products);
        for (int64_t j = 0; j < panels; ++j)
          finish_tiles(w, first, count, panel + j, products + j * rows * l.columns, bias, pixels);
      }
    }
  }
}

}  // namespace

const WinogradKernels& winograd_kernels() { return ROCM_SD_HOST_TABLE(kWinogradKernels); }

Refusal conv2d_supports_winograd(const Exec& ex, const ConvProblem& p) {
  if (ex.device().kind() != DeviceKind::kHost) return "the tensors are not on the host";
  if (p.dtype() != DType::kF32) return "it loses too many digits of a 16-bit type";
  if (p.filter_h() != 3 || p.filter_w() != 3 || p.args.stride != 1 || p.args.upsample2x)
    return "not a 3x3 filter of stride 1 on the image as it is";
  if (p.channels() % kChannelMultiple || p.second_channels() % kChannelMultiple)
    return concat("channels that are not a multiple of ", kChannelMultiple);
  if (p.out_channels() < kGroupColumns) return "too few outputs";
  if (p.args.epilogue.channel_scale) return "a scale of channels";
  if (p.args.epilogue.slopes) return "slopes";
  const int64_t pixels = p.batch() * p.out_h() * p.out_w();
  if (pixels < kMinPixels && forced_impl("conv2d") != "winograd") return "too few pixels";
  if (p.w.weight.shape().numel() * 4 * static_cast<int64_t>(sizeof(float)) > kMaxFilterBytes)
    return "its transformed filters would take too much memory";
  if (p.w.weight.is_stored_short() && p.w.weight.shape().numel() * 4 > p.x.numel())
    return "its transformed filters would take more memory than the image, where the weight is stored small";
  return std::nullopt;
}

void conv2d_winograd(Exec& ex, const ConvProblem& p) {
  Winograd w;
  w.p = conv2d_gathered(p);
  w.cut();
  const auto pack = std::dynamic_pointer_cast<const WinogradPack>(p.w.weight.packed(
      "winograd of " + w.p.layout.key(),
      [&](const Tensor& plain) { return std::make_shared<WinogradPack>(plain, w.p.layout); }, true));
  w.filters = pack->data();
  const Tensor workspace = ex.alloc({static_cast<int64_t>(w.workspace_bytes())}, DType::kU8);
  ex.launch(p.info("winograd"),
            [w, pack, memory = workspace.data()] { run(w, static_cast<float*>(memory)); });
}

}  // namespace rocm_sd
