// Elementwise maps on the host's vector units: pieces of rows, shared out among the threads.
#include <algorithm>

#include "kernels/elementwise/map.hpp"
#include "kernels/elementwise/map_chunk.hpp"
#include "kernels/host_table.hpp"

namespace rocm_sd {
namespace {

static_assert(static_cast<int>(Map::kCopy) == 0 && static_cast<int>(Map::kMulGelu) == 6 &&
              static_cast<int>(Map::kRgb8) == 9 && static_cast<int>(Map::kSplit) == 10 &&
              static_cast<int>(Map::kAddScaled) == 11 &&
              static_cast<int>(Map::kPRelu) == 13);  // map_chunk_isa.cpp counts on it

constexpr int64_t kPiece =
    16384;  // elements per task: 64 KB, so that starting a task costs nothing beside it

const void* at(const void* data, DType type, int64_t i) {
  return static_cast<const char*>(data) + i * static_cast<int64_t>(dtype_size(type));
}

void map_piece(const MapProblem& p, int64_t row, int64_t begin, int64_t count) {
  const void* a = at(p.a, p.a_type, row * p.a_stride + begin);
  void* y = const_cast<void*>(at(p.y, p.y_type, row * p.y_stride + begin));
  if (p.map == Map::kCopy && (p.a_type == p.y_type || p.a_type == DType::kF16 || p.y_type == DType::kF16))
    return convert_elements(a, p.a_type, y, p.y_type, count);
  ROCM_SD_HOST_TABLE(kMapKernels)
      .map({.map = static_cast<int>(p.map),
            .a = a,
            .b = p.binary() ? at(p.b, p.b_type, row * p.b_stride + begin) : nullptr,
            .y = y,
            .a_bf16 = p.a_type == DType::kBF16,
            .b_bf16 = p.b_type == DType::kBF16,
            .y_bf16 = p.y_type == DType::kBF16,
            .count = count,
            .p0 = p.factors ? p.factors[row] : p.p0,
            .p1 = p.p1,
            .part_stride = p.part_stride,
            .parts = p.parts});
}

// Long rows are cut into pieces, short ones are dealt out several at a time.
void map_host(const MapProblem& p) {
  if (p.cols == 0) return;
  const int64_t pieces = (p.cols + kPiece - 1) / kPiece;
  const int64_t rows_per_task = std::max<int64_t>(kPiece / p.cols, 1);
  const int64_t groups = (p.rows + rows_per_task - 1) / rows_per_task;
#pragma omp parallel for schedule(static) if (groups * pieces > 1)
  for (int64_t task = 0; task < groups * pieces; ++task) {
    const int64_t first = task / pieces * rows_per_task, begin = task % pieces * kPiece;
    for (int64_t row = first; row < std::min(first + rows_per_task, p.rows); ++row)
      map_piece(p, row, begin, std::min(kPiece, p.cols - begin));
  }
}

}  // namespace

Refusal supports_map_host(const Exec& ex, const MapProblem& p) {
  if (ex.device().kind() != DeviceKind::kHost) return "runs on the host only";
  if (p.map == Map::kSplit && (p.a_type != DType::kF32 || p.y_type != DType::kBF16))
    return "splits f32 into bf16 only";
  if (p.binary() && p.a_type != p.b_type) return "takes operands of one type";
  if (p.map != Map::kCopy && (p.a_type == DType::kF16 || p.y_type == DType::kF16))
    return "computes in f32 and bf16 only";
  return std::nullopt;
}
void run_map_host(Exec& ex, const MapProblem& problem) { launch_problem(ex, problem, "host", map_host); }

}  // namespace rocm_sd
