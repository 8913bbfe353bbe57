#include "kernels/gemm/tiled.hpp"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/gemm/tile_kernel.hpp"
#include "runtime/stop_request.hpp"

namespace rocm_sd::tiled {
namespace {

// The numbers that tile_kernel_isa.cpp gives the activations.
static_assert(static_cast<int>(Activation::kSilu) == 1 && static_cast<int>(Activation::kGelu) == 2 &&
              static_cast<int>(Activation::kQuickGelu) == 3 && static_cast<int>(Activation::kRelu) == 4);

constexpr int64_t kMaxBlockRows = 132;     // 132 rows of a depth block are 170 KB: they stay in L2
constexpr int64_t kMaxDepth = 320;         // a panel of 16 columns is then 20 KB: it stays in L1
constexpr int64_t kTileBytes = 256 << 10;  // a task's accumulators: they stay in L2
constexpr int64_t kTasksPerThread = 4;     // so that a thread that lost its core does not hold up the rest

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Pairs of bf16 take half the space.
int64_t max_depth(const Layout& l) { return l.paired ? 2 * kMaxDepth : kMaxDepth; }
bool converts_rows(const Product& p) { return p.dtype != DType::kF32 && !p.layout.paired; }
bool converts_panels(const Product& p) { return p.weight_dtype != DType::kF32 && !p.layout.paired; }

// A run of channels of one tap of one source.
struct Segment {
  int source;
  int64_t tap, first, length;
};
// Segments first..last (exclusive) are multiplied in one go; `row` is their first row of the packed panel.
struct DepthBlock {
  size_t first, last;
  int64_t row, depth;
};

std::vector<Segment> cut_depth(const Layout& l) {
  std::vector<Segment> segments;
  for (const int source : {0, 1}) {
    const int64_t channels = source == 0 ? l.c1 : l.c2;
    if (channels == 0) continue;
    const int64_t pieces = ceil_div(channels, max_depth(l));
    const int64_t length = ceil_div(ceil_div(channels, pieces), 2) * 2;  // even, for pairs
    for (int64_t tap = 0; tap < l.taps; ++tap)
      for (int64_t first = 0; first < channels; first += length)
        segments.push_back({source, tap, first, std::min(length, channels - first)});
  }
  return segments;
}

std::vector<DepthBlock> group_segments(const Layout& l, const std::vector<Segment>& segments) {
  std::vector<DepthBlock> blocks;
  int64_t row = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (blocks.empty() || blocks.back().depth + segments[i].length > max_depth(l))
      blocks.push_back({i, i, row, 0});
    blocks.back().last = i + 1;
    blocks.back().depth += segments[i].length;
    row += segments[i].length;
  }
  return blocks;
}

size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Hands out pieces of a block of memory, or, without one, only counts.
struct Carver {
  char* base = nullptr;
  size_t used = 0;
  template <class T>
  T* take(int64_t count) {
    T* out = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += rounded(static_cast<size_t>(count) * sizeof(T));
    return out;
  }
};

// What one thread works in.
struct Scratch {
  float* tiles;           // [chunk_panels][block_rows][columns]
  const char** pixel;     // [2][taps][block_rows]: the row's pixel, or null outside the image
  const void** pointers;  // [segments of a block][block_rows]
  const float** bias;     // [block_rows]
  int64_t* out_offset;    // [block_rows]
  int* lengths;           // [segments of a block]
  float* rows;            // bf16: the depth block of all rows as float
  float* panel;           // 16-bit weights: the panel's depth block as float

  static size_t bytes(const Product& p, const Plan& plan) {
    Carver counting;
    Scratch scratch;
    scratch.carve(counting, p, plan);
    return counting.used;
  }
  void carve(Carver& carver, const Product& p, const Plan& plan) {
    const int64_t rows_count = plan.block_rows, segments = p.layout.taps * 2 + 1;
    tiles = carver.take<float>(plan.chunk_panels * rows_count * p.layout.columns);
    pixel = carver.take<const char*>(2 * p.layout.taps * rows_count);
    pointers = carver.take<const void*>(segments * rows_count);
    bias = carver.take<const float*>(rows_count);
    out_offset = carver.take<int64_t>(rows_count);
    lengths = carver.take<int>(segments);
    rows = carver.take<float>(converts_rows(p) ? rows_count * plan.max_depth : 0);
    panel = carver.take<float>(converts_panels(p) ? plan.max_depth * p.layout.columns : 0);
  }
};

// What all tasks of a product share.
struct Shared {
  const Product& p;
  const Plan& plan;
  const TileKernels& kernels;
  std::vector<Segment> segments;
  std::vector<DepthBlock> blocks;
  float* bias;         // [batch][panels * columns], bias and shift summed, in packed order
  const float* zeros;  // [max_depth]
  size_t element;      // bytes of the images'
  size_t weight;       // bytes of the weights'
};

// Fills the task's row tables: where each row reads, writes and finds its bias. Rows beyond the last repeat
// it.
void locate_rows(const Shared& s, int64_t first, int64_t count, int64_t padded, Scratch& scratch) {
  const Product& p = s.p;
  const int64_t scale = p.doubled ? 2 : 1, bias_row = p.layout.panels() * p.layout.columns;
  for (int64_t i = 0; i < padded; ++i) {
    const int64_t m = first + std::min(i, count - 1);
    const int64_t q = m % p.out_w, row = m / p.out_w % p.out_h, n = m / (p.out_w * p.out_h);
    scratch.out_offset[i] = p.out_first + n * p.out_image + row * p.out_row + q * p.out_pixel;
    scratch.bias[i] = s.bias + n * bias_row;
    int64_t tap = 0;
    for (int64_t r = 0; r < p.filter_h; ++r)
      for (int64_t t = 0; t < p.filter_w; ++t, ++tap) {
        const int64_t iy = row * p.stride + r - p.pad_top, ix = q * p.stride + t - p.pad_left;
        const bool inside = iy >= 0 && ix >= 0 && iy < scale * p.height && ix < scale * p.width;
        const int64_t pixel = (n * p.height + iy / scale) * p.width + ix / scale;
        for (const int source : {0, 1})
          scratch.pixel[(source * p.layout.taps + tap) * padded + i] =
              inside && p.source[source] ? static_cast<const char*>(p.source[source]) +
                                               static_cast<size_t>(pixel * p.pixel_stride[source]) * s.element
                                         : nullptr;
      }
  }
}

// Points the kernel at a depth block of the images; returns the number of segments.
int point_at_rows(const Shared& s, const DepthBlock& block, int64_t padded, Scratch& scratch) {
  int count = 0;
  for (size_t i = block.first; i < block.last; ++i, ++count) {
    const Segment& segment = s.segments[i];
    const char** pixel = scratch.pixel + (segment.source * s.p.layout.taps + segment.tap) * padded;
    for (int64_t r = 0; r < padded; ++r)
      scratch.pointers[count * padded + r] = pixel[r]
                                                 ? pixel[r] + static_cast<size_t>(segment.first) * s.element
                                                 : static_cast<const void*>(s.zeros);
    scratch.lengths[count] = static_cast<int>(segment.length);
  }
  return count;
}

// The same for bf16 images: a float copy of the block, in which all segments are one.
int convert_rows(const Shared& s, const DepthBlock& block, int64_t padded, Scratch& scratch) {
  for (int64_t r = 0; r < padded; ++r) {
    float* to = scratch.rows + r * block.depth;
    scratch.pointers[r] = to;
    for (size_t i = block.first; i < block.last; ++i) {
      const Segment& segment = s.segments[i];
      const char* pixel = scratch.pixel[(segment.source * s.p.layout.taps + segment.tap) * padded + r];
      if (pixel)
        s.kernels.bf16_to_float(reinterpret_cast<const uint16_t*>(pixel) + segment.first, to, segment.length);
      else
        std::memset(to, 0, static_cast<size_t>(segment.length) * sizeof(float));
      to += segment.length;
    }
  }
  scratch.lengths[0] = static_cast<int>(block.depth);
  return 1;
}

void finish_panel(const Shared& s, const Scratch& scratch, int64_t panel, int64_t rows, const float* tiles,
                  const float** bias) {
  const Product& p = s.p;
  const int useful = p.layout.useful_columns();
  const int64_t outputs = p.layout.gated ? p.layout.outputs / 2 : p.layout.outputs, first = panel * useful;
  for (int64_t r = 0; r < rows; ++r) bias[r] = scratch.bias[r] + panel * p.layout.columns;
  const size_t skip = static_cast<size_t>(first) * dtype_size(p.out_dtype);
  s.kernels.finish({.tiles = tiles,
                    .rows = static_cast<int>(rows),
                    .columns = p.layout.columns,
                    .valid_columns = static_cast<int>(std::min<int64_t>(useful, outputs - first)),
                    .bias = bias,
                    .out_offset = scratch.out_offset,
                    .activation = static_cast<int>(p.act),
                    .gated = p.layout.gated,
                    .bf16 = p.out_dtype == DType::kBF16,
                    .residual = p.residual ? static_cast<const char*>(p.residual) + skip : nullptr,
                    .out = static_cast<char*>(p.out) + skip});
}

void run_task(const Shared& s, int64_t row_block, int64_t chunk, Scratch& scratch) {
  const Product& p = s.p;
  const Layout& l = p.layout;
  const int64_t first_row = row_block * s.plan.block_rows;
  const int64_t rows = std::min(s.plan.block_rows, p.rows() - first_row);
  const int64_t strips = ceil_div(rows, kStripRows), padded = strips * kStripRows;
  const int64_t first_panel = chunk * s.plan.chunk_panels;
  const int64_t panels = std::min(s.plan.chunk_panels, l.panels() - first_panel);
  const bool wide = l.columns == s.kernels.wide;
  const auto multiply = l.paired ? (wide ? s.kernels.multiply_wide_paired : s.kernels.multiply_narrow_paired)
                                 : (wide ? s.kernels.multiply_wide : s.kernels.multiply_narrow);
  locate_rows(s, first_row, rows, padded, scratch);
  for (const DepthBlock& block : s.blocks) {
    const int segments =
        converts_rows(p) ? convert_rows(s, block, padded, scratch) : point_at_rows(s, block, padded, scratch);
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t panel = first_panel + i, at = (panel * l.depth() + block.row) * l.columns;
      const void* weights = static_cast<const char*>(p.weights) + static_cast<size_t>(at) * s.weight;
      if (converts_panels(p)) {
        const auto widen = p.weight_dtype == DType::kF16 ? s.kernels.f16_to_float : s.kernels.bf16_to_float;
        widen(static_cast<const uint16_t*>(weights), scratch.panel, block.depth * l.columns);
        weights = scratch.panel;
      }
      float* tiles = scratch.tiles + i * padded * l.columns;
      multiply({.pointers = scratch.pointers,
                .pointer_stride = padded,
                .segment_length = scratch.lengths,
                .segments = segments,
                .strips = static_cast<int>(strips),
                .panel = weights,
                .tiles = tiles,
                .accumulate = block.row > 0});
      if (&block == &s.blocks.back()) {
        const float* bias[kMaxBlockRows];
        finish_panel(s, scratch, panel, rows, tiles, bias);
      }
    }
  }
}

}  // namespace

void fill_bias(const Product& p, float* out) {
  const Layout& l = p.layout;
  const auto shift_at = [&](int64_t n, int64_t output) {
    const int64_t i = n * p.shift_stride + output;
    return p.shift_dtype == DType::kF32 ? static_cast<const float*>(p.shift)[i]
                                        : bf16_to_float(static_cast<const uint16_t*>(p.shift)[i]);
  };
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t panel = 0; panel < l.panels(); ++panel)
      for (int j = 0; j < l.columns; ++j) {
        const int64_t output = l.output_at(panel, j);
        float v = 0;
        if (output >= 0 && p.bias) v = p.bias[output];
        if (output >= 0 && p.shift) v += shift_at(n, output);
        *out++ = v;
      }
}

Plan plan(const Product& p) {
  const Layout& l = p.layout;
  Plan out;
  out.threads = host_threads();
  const int64_t wanted = kTasksPerThread * out.threads;
  out.row_blocks = ceil_div(p.rows(), kMaxBlockRows);
  out.block_rows = ceil_div(ceil_div(p.rows(), out.row_blocks), kStripRows) * kStripRows;
  out.row_blocks = ceil_div(p.rows(), out.block_rows);
  const int64_t by_memory =
      std::max<int64_t>(1, kTileBytes / (4 * static_cast<int64_t>(out.block_rows) * l.columns));
  out.chunks =
      std::min(l.panels(), std::max(ceil_div(l.panels(), by_memory), ceil_div(wanted, out.row_blocks)));
  out.chunk_panels = ceil_div(l.panels(), out.chunks);
  out.chunks = ceil_div(l.panels(), out.chunk_panels);
  out.max_depth = std::min(max_depth(l), l.depth());
  out.bytes_per_thread = rounded(Scratch::bytes(p, out));
  out.shared_bytes = rounded(static_cast<size_t>(p.batch * l.panels() * l.columns) * sizeof(float)) +
                     rounded(static_cast<size_t>(out.max_depth) * sizeof(float));
  return out;
}

void run(const Product& p, const Plan& plan, void* workspace) {
  Carver shared_memory{static_cast<char*>(workspace)};
  auto* bias = shared_memory.take<float>(p.batch * p.layout.panels() * p.layout.columns);
  auto* zeros = shared_memory.take<float>(plan.max_depth);
  std::fill_n(zeros, plan.max_depth, 0.0f);
  fill_bias(p, bias);
  Shared shared{p,    plan,  tile_kernels(),      cut_depth(p.layout),       {},
                bias, zeros, dtype_size(p.dtype), dtype_size(p.weight_dtype)};
  shared.blocks = group_segments(p.layout, shared.segments);
  char* per_thread = static_cast<char*>(workspace) + plan.shared_bytes;
  StopRequest stop;
#pragma omp parallel num_threads(plan.threads)
  {
    Carver carver{per_thread + static_cast<size_t>(omp_get_thread_num()) * plan.bytes_per_thread};
    Scratch scratch;
    scratch.carve(carver, p, plan);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < plan.chunks * plan.row_blocks; ++task)
      if (!stop.asked()) run_task(shared, task % plan.row_blocks, task / plan.row_blocks, scratch);
  }
}

}  // namespace rocm_sd::tiled
