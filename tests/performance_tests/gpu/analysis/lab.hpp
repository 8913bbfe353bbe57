// What the cases of bench_analysis_gpu share: the device twice (with the archive of analysis.hip, and with
// the library's kernels), the measure, and the rows that it writes.
#pragma once

#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "performance_tests/gpu/graph_time.hpp"
#include "runtime/gpu.hpp"
#include "support/count_file.hpp"

namespace rocm_sd::analysis {

using nlohmann::ordered_json;

class Lab {
 public:
  // counts: where the devices are emulated, which are counted and not timed; else null.
  Lab(GpuDevice& demo, GpuDevice& library, bench::CountFile* counts)
      : demo(demo), library(library), counts_(counts) {}

  GpuDevice& demo;
  GpuDevice& library;
  bool emulated() const { return counts_ != nullptr; }
  const ordered_json& rows() const { return rows_; }
  int wrong() const { return wrong_; }  // rows whose results are

  // lds: as the kernel declares it; NVIDIA's is the launch's to give.
  template <class Params>
  void launch(const char* name, GpuGrid grid, uint32_t threads, uint32_t lds, const Params& params) {
    const GpuKernel* kernel = demo.find_kernel(name);
    require<DeviceError>(kernel != nullptr, "the archive of the analysis has no ", name);
    demo.launch(*kernel, grid, threads, demo.traits().family == GpuFamily::kNvidia ? lds : 0, &params,
                sizeof(params));
  }

  // Microseconds of once(i), the median over replays of a graph of `launches` of them; or what one was
  // counted.
  ordered_json measure(int launches, const std::function<void(int)>& once) {
    if (!counts_) return {{"us", bench::median_us(demo, launches, once)}};
    return count(demo, [&] { once(0); });
  }
  ordered_json measure_op(int launches, const std::function<void(Exec&)>& op) {
    if (!counts_) return {{"us", bench::median_us(library, launches, [&](Exec& ex, int) { op(ex); })}};
    Arena arena(library);
    return count(library, [&] {
      Exec ex(arena);
      op(ex);
    });
  }

  // A row: what was done, the bytes and operations that the work itself needs, and the largest error of
  // samples.
  void add(const std::string& group, const std::string& name, ordered_json facts,
           const ordered_json& measured, double error) {
    const double most = allowed(group);
    ordered_json row = {{"group", group}, {"name", name}};
    row.update(facts);
    row.update(measured);
    row["error"] = error;
    if (!(error <= most)) {
      std::printf("WRONG: %s %s: off by %g, at most %g\n", group.c_str(), name.c_str(), error, most);
      ++wrong_;
    }
    std::printf("%-12s %-28s %s\n", group.c_str(), name.c_str(), row.dump().c_str());
    std::fflush(stdout);
    rows_.push_back(std::move(row));
  }

 private:
  // Errors: sums of small integers and copies are exact; results of f16 in -8..8 are rounded to 2^-9, two
  // launches round twice, and tiles of a picture lack its statistics.
  static double allowed(const std::string& group) {
    if (group == "product" || group == "attention") return 0x1p-8;
    if (group == "fusion") return 0x1p-4;
    return group == "vae" ? 1 : 0;
  }

  ordered_json count(GpuDevice& device, const std::function<void()>& work) {
    (void)counts_->take();
    work();
    device.synchronize();
    uint64_t lines64 = 0, lines128 = 0, useful = 0, lds = 0, conflicts = 0, instructions = 0;
    double bound = 0;
    for (const nlohmann::json& j : counts_->take()) {
      lines64 += j["global"]["lines64"].get<uint64_t>();
      lines128 += j["global"]["lines128"].get<uint64_t>();
      useful += j["global"]["bytes_useful"].get<uint64_t>();
      lds += j["lds"]["cycles"].get<uint64_t>();
      conflicts += j["lds"]["conflict_cycles"].get<uint64_t>();
      instructions += j["instructions"].get<uint64_t>();
      bound += j["bound"]["microseconds"].get<double>();
    }
    return {{"instructions", instructions},
            {"lines64", lines64},
            {"lines128", lines128},
            {"bytes_asked_for", useful},
            {"lds_cycles", lds},
            {"lds_conflict_cycles", conflicts},
            {"bound_us", bound}};
  }

  bench::CountFile* counts_;
  int wrong_ = 0;
  ordered_json rows_ = ordered_json::array();
};

}  // namespace rocm_sd::analysis
