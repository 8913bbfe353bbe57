// rocm-sd tune --modelled: tables for GPUs that are not here, marked as a model's.
#include <fmt/format.h>

#include "analysis/modelled_time.hpp"
#include "analysis/paper_gpu.hpp"
#include "apps/cli/tuning_problems.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "measurement/modelled.hpp"

namespace rocm_sd::cli {
namespace {

std::vector<GpuProduct> products_named(const std::string& name) {
  if (const GpuProduct* gpu = find_gpu_product(name)) return {*gpu};
  std::vector<GpuProduct> out;
  for (const GpuProduct& gpu : gpu_products())
    if (gpu.arch == name) out.push_back(gpu);
  if (!out.empty()) return out;
  std::vector<std::string> names;
  for (const GpuProduct& gpu : gpu_products()) names.push_back(gpu.name);
  throw UsageError(concat("gpu \"", printable(name), "\" is neither a product (", nearest_name(name, names),
                          "?) nor an architecture of one; `rocm-sd predict` lists them"));
}

// Nothing is stored there, so that what does not fit the card can be planned as well.
std::unique_ptr<GpuDevice> roomy_paper_gpu(GpuProduct gpu) {
  gpu.memory_gb = std::max(gpu.memory_gb, 1024.0);
  return make_paper_gpu(gpu);
}

}  // namespace

measurement::LaunchModel bound_model(const GpuProduct& product) {
  const KernelCounts counts = kernel_counts_for(product).value_or(KernelCounts{});
  return
      [product, counts](const measurement::Workload& workload, const PlannedProblems& launches, int splits) {
        const OutputExtent& extent = workload.extent;
        const TiledOutput output{extent.copies, extent.rows, extent.columns};
        return modelled_seconds(product, counts, launches, output, splits, workload.dtype);
      };
}

void run_modelled_tune(const ProblemSource& source, const std::string& gpu, const std::filesystem::path& path,
                       bool quiet) {
  tuning::Table table;
  if (path_exists(path)) table = tuning::Table::read(path);
  for (const GpuProduct& product : products_named(gpu)) {
    const auto device = roomy_paper_gpu(product);
    const measurement::LaunchModel seconds = bound_model(product);
    size_t choices = 0, changed = 0, refused = 0;
    double before = 0, after = 0;
    for (const measurement::PlannedWorkload& problem : problems_of(source, *device)) {
      if (!measurement::is_workload_op(problem.op)) continue;
      try {
        const measurement::Workload workload = measurement::parse_workload(problem.op, problem.text);
        const auto record = measurement::modelled_choice(*device, workload, seconds);
        if (!record) continue;
        table.add(*record);
        ++choices;
        changed += record->choice != record->default_choice ? 1 : 0;
        before += problem.launches * record->default_microseconds * 1e-3;
        after += problem.launches * record->microseconds * 1e-3;
      } catch (const UsageError& error) {  // no kernel of ours takes it on this architecture
        ++refused;
        if (!quiet)
          fmt::print(stderr, "note: {} {}: {}\n", problem.op, printable(problem.text, 60), error.what());
      }
    }
    fmt::print(
        "{} ({}): {} choices, {} other than untuned, {} problems left out; a picture's launches of them: "
        "{:.3f} ms "
        "untuned, {:.3f} ms, by the model: nothing was run\n",
        product.name, product.arch, choices, changed, refused, before, after);
  }
  table.write(path);
  fmt::print("{} choices in {}\n", table.size(), printable_path(path));
}

}  // namespace rocm_sd::cli
