// The tables of share/tuning: whole, marked as what they are, and of kernels that there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "analysis/kernel_counts.hpp"
#include "analysis/paper_gpu.hpp"
#include "base/gpu_family.hpp"
#include "runtime/kernel_archive.hpp"
#include "tuning/table.hpp"

namespace rocm_sd {
namespace {

using tuning::Origin;
using tuning::Record;
using tuning::Table;

std::vector<std::filesystem::path> shipped() {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(ROCM_SD_SOURCE_DIR "/share/tuning"))
    if (entry.path().extension() == ".tsv") out.push_back(entry.path());
  return out;
}

TEST(ShippedTables, AreWholeAndMarked) {
  std::set<std::string> archs;
  for (const auto& path : shipped()) {
    SCOPED_TRACE(path.filename());
    const Table table = Table::read(path);
    EXPECT_EQ(table.bad_lines(), 0u);
    EXPECT_GT(table.size(), 5u);
    archs.insert(path.stem());
    for (const Record& r : table.records()) {
      ASSERT_EQ(r.device.arch, path.stem());
      EXPECT_GT(r.microseconds, 0) << r.problem;
      EXPECT_LE(r.microseconds, r.default_microseconds) << r.problem;
      if (!r.device.arch.starts_with("gfx")) continue;
      // No table of an AMD card was measured so far: such a record belongs to a card in gpu_products().
      EXPECT_EQ(r.origin, Origin::kModel) << r.problem;
      const GpuProduct* product = find_gpu_product(r.device.product);
      ASSERT_NE(product, nullptr) << r.device.product;
      EXPECT_EQ(product->arch, r.device.arch);
      EXPECT_EQ(driver_compute_units(*product), r.device.units);
    }
  }
  EXPECT_THAT(archs, testing::IsSupersetOf({"gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201", "gfx90a",
                                            "gfx942", "sm_90"}));
}

TEST(ShippedTables, NameKernelsOfTheArchives) {
  int looked_up = 0;
  for (const auto& path : shipped()) {
    const std::string arch = path.stem();
    // The targets of a family have the same kernels: one that is built here (ROCM_SD_ARCHS) has them all.
    const auto built = [&](const GpuTarget& target) {
      return target.family == gpu_family(arch) && find_kernel_archive(target.arch);
    };
    if (!arch.starts_with("gfx") || std::ranges::none_of(kGpuTargets, built)) continue;
    const Table table = Table::read(path);
    const auto gpu = make_paper_gpu(*find_gpu_product(table.records().front().device.product));
    for (const Record& r : table.records())
      for (const std::string& choice : {r.choice, r.default_choice}) {
        if (choice.starts_with("gpu gemv")) continue;
        const bool halves = r.problem.find(" geglu") != std::string::npos;
        const std::string kernel =
            kernel_of_problem(concat(r.op, halves ? "_geglu " : " ", choice, " x"), DType::kF16);
        ASSERT_NE(kernel, "") << r.op << " " << r.problem << ": " << choice;
        const std::string name = r.op == "attention" ? kernel.substr(0, kernel.find('/')) : kernel;
        EXPECT_NE(gpu->find_kernel(name), nullptr) << arch << " " << name;
        ++looked_up;
      }
  }
  if (looked_up == 0) GTEST_SKIP() << "this build has no kernel archive (ROCM_SD_ARCHS)";
}

}  // namespace
}  // namespace rocm_sd
