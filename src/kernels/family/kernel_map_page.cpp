#include "kernels/family/kernel_map_page.hpp"

#include <map>

#include "base/error.hpp"
#include "kernels/attention/attention_map.hpp"
#include "kernels/family/cost_model.hpp"
#include "kernels/family/explanation.hpp"
#include "kernels/family/gemm_map.hpp"

namespace rocm_sd {
namespace {

constexpr const char* kHead =
    R"(# Kernel map

Which kernel does my shape get, and why. This page is written by `make kernel-map` from the tables that the code reads
(`attention_map.cpp` and `gemm_map.cpp` in `src/kernels`, the families' files in `src/composable_kernels/families`, the costs in
`share/cost`); `ctest` compares it.

For one shape, `rocm-sd bench --explain "attention f16 [2,8,4096x4096,40]"` prints the row, the chosen configuration, the estimates of
the other candidates and the refusals; `--gpu "RX 7900 XTX"` asks for a GPU that is not here. A choice of a
[tuning table](../howto/tuning.md) comes before all of this.

The configurations of an algorithm (tiles, waves, stages) are rows of the family's file; each that fits the problem is a candidate, and
the one with the least estimated cost is taken.
)";

std::string row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += concat(" ", cell, " |");
  return text + "\n";
}

// "0.66 (`attention`)" for all families of the row alike, or one for each kind; in brackets the source.
std::string costs_of(const AttentionMapRow& r) {
  std::map<std::string, std::string> families;  // by text
  for (const KernelTables& family : all_kernel_tables()) {
    if (!r.families.has(family.index)) continue;
    const CostModel& model = cost_model(family.name);
    const AttentionCosts::Entry& entry = model.attention.entry(r.cost);
    std::string& names = families[concat(entry.cost, " (`", entry.source, "`)")];
    names += concat(names.empty() ? "" : ", ", family.name);
  }
  if (families.size() == 1) return families.begin()->first;
  std::string text;
  for (const auto& [cost, names] : families) text += concat(text.empty() ? "" : "; ", names, ": ", cost);
  return text;
}

std::string attention_section() {
  std::string text = R"(
## Attention

The first row that matches gives a kernel of this algorithm its relative cost: the estimated time of its MMA against kernels by waves
(`flash_plan.cpp` adds what tiles, splits and occupancy cost). In brackets: its source, a row of the last table.

)";
  text += row({"families", "problems and tiles", "algorithm", "relative cost", "why"});
  text += "|---|---|---|---|---|\n";
  for (const AttentionMapRow& r : attention_map())
    text += row({to_text(r.families), conditions_of(r), concat("`", to_text(r.algorithm), "`"), costs_of(r),
                 r.reason});
  return text;
}

std::string gemm_section(const char* head, std::span<const GemmMapRow> map) {
  std::string text = head;
  text += row({"families", "problems", "algorithm", "rank", "why"});
  text += "|---|---|---|---|---|\n";
  for (const GemmMapRow& r : map)
    text += row({to_text(r.families), conditions_of(r), concat("`", to_text(r.algorithm), "`"),
                 concat(r.rank), r.reason});
  return text;
}

std::string configurations_section() {
  std::string text = R"(
## Configurations

How many each family compiles of a 16-bit type.

)";
  text +=
      row({"family", "attention", "attention, any mask", "linear", "GEGLU", "convolution", "8-bit linear"});
  text += "|---|---|---|---|---|---|---|\n";
  for (const KernelTables& f : all_kernel_tables())
    text +=
        row({std::string(f.name),
             concat(f.flash.size() + f.flash_wgmma.size() + f.flash_tma.size() +
                    f.flash_single_tile_kv.size() + f.flash_large_d.size() + f.flash_wgmma_large_d.size()),
             concat(f.flash_any_mask.size() + f.flash_large_d.size()), concat(f.gemm.size()),
             concat(f.geglu.size()), concat(f.conv.size()), concat(f.eight_bit_gemm.size())});
  return text;
}

std::string sources_section() {
  std::string text = R"(
## Where the costs come from

`share/cost/<family>.json` holds every fitted number with its source; the build embeds the files. `benchmarks/fit_costs.py` writes
them anew from records of `rocm-sd bench`, `tools/report/model_costs.py` those of the time model (`time_model_...`), which have precedence.

)";
  text += row({"family", "source", "origin", "what"});
  text += "|---|---|---|---|\n";
  for (const KernelTables& family : all_kernel_tables())
    for (const auto& [name, source] : cost_model(family.name).sources)
      text += row({std::string(family.name), concat("`", name, "`"), to_text(source), source.note});
  return text;
}

}  // namespace

std::string kernel_map_page() {
  return concat(kHead, attention_section(),
                gemm_section(R"(
## Linear layers

Of the algorithms that take a problem, those of the least rank are compared by their estimated time.

)",
                             linear_map()),
                gemm_section(R"(
## Convolutions

As implicit matrix products: rows are pixels, columns output channels.

)",
                             conv_map()),
                configurations_section(), sources_section());
}

}  // namespace rocm_sd
