// What the emulator counted in the main loops of the matrix kernels: share/counts/<target>.json, written by
// `make kernel-counts` (tests/performance_tests/bench_emulated.cpp) and read here, so that a prediction runs
// no kernel.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "base/gpu_products.hpp"

namespace rocm_sd {

struct KernelCount {
  // What matrix instructions take of the main loop's bound of issue cycles, above 0 and at most 1: the loop
  // cannot come nearer to the matrix rate than this.
  double matrix_share = 1;
  std::string limit;  // the unit that bounds the loop: "matrix", "vector", "lds", "memory", ...
};

struct KernelCounts {
  std::string target;  // that was counted
  std::map<std::string, KernelCount, std::less<>> kernels;
};

// Throws FormatError naming the file and the field, FileError where it cannot be read.
KernelCounts read_kernel_counts(const std::filesystem::path& path);

// The counts for a card: of its own target, or of one of the same family whose compute units multiply as
// fast. Nothing where no such target was counted.
std::optional<KernelCounts> kernel_counts_for(const GpuProduct& gpu);

// The matrix kernel that a planned problem ("op detail", PlannedProblems) launches: "gemm_f16_128x128x32".
// Empty where it is none.
std::string kernel_of_problem(std::string_view problem, DType dtype);

// The share of the plain convolution's multiplications that the kernel makes: 4/9 for Winograd's F(2x2, 3x3),
// whose problems count the plain ones; 1 for all others.
double multiplied_share(std::string_view kernel);

}  // namespace rocm_sd
