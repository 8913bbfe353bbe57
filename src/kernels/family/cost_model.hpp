// The fitted numbers by which estimates compare a GPU's kernels: share/cost/<family>.json, which the build
// embeds. ROCM_SD_COST names a folder with other files of these names, for fitting.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

// Where a number comes from: a key of the file's "sources".
struct CostSource {
  std::string origin;  // "measured", "modelled" or "guessed"
  std::string device, driver, date, commit, command, note;
};

// Relative costs of attention's algorithms against its kernels by waves, by the names of attention_map.hpp.
struct AttentionCosts {
  struct Entry {
    double cost = 1;
    std::string source;
  };
  std::map<std::string, Entry, std::less<>> relative;

  const Entry& entry(std::string_view name) const;  // throws InternalError for a name that the file lacks
  double of(std::string_view name) const { return entry(name).cost; }
};

// Cycles of one compute unit.
struct GemmCosts {
  std::string source;
  double mma_per_cycle = 0;    // by the matrix units, 16-bit
  double wgmma_per_cycle = 0;  // by warpgroup MMA; 0: there is none
  double f32_per_cycle = 0;
  double load_bytes_per_cycle = 0;    // from the last cache to a compute unit
  double workgroup_cycles = 0;        // outside its loop
  double step_cycles = 0;             // of a step that neither MMA nor loads hide
  double element_cycles = 0;          // of a lane per element of the output
  double partial_element_factor = 0;  // of that, where the output is partial sums, which have no epilogue
  double overlap_loss = 0;            // of the lesser of MMA and loads, what the greater does not hide
  double reduce_launch_cycles = 0;
  double partial_byte_cycles = 0;  // of all compute units
};
struct EightBitCosts {
  std::string source;
  double mma_per_cycle = 0, workgroup_cycles = 0, reduce_launch_cycles = 0, partial_byte_cycles = 0;
};

// Rough rates; only their ratios decide.
struct ConvRates {
  double mma_per_ns = 0;    // of one compute unit
  double bytes_per_ns = 0;  // of the whole device's memory and last cache, for partial sums
  double reduce_ns = 0;     // the reduction's launch
};
struct ConvCosts {
  std::string source;
  ConvRates f16, f32;
};
// Of convolutions by warpgroup MMA.
struct ConvWgmmaCosts {
  struct Step {  // of 64 of the depth
    int rows = 0, columns = 0;
    double alone_ns = 0, shared_ns = 0;  // alone on a compute unit; as many as fit share it
  };
  std::string source;
  std::vector<Step> steps;
  double launch_ns = 0, round_ns = 0, reduce_ns = 0, output_bytes_per_ns = 0, partial_bytes_per_ns = 0;
};

// Where TMA takes the rows of a step from: a matrix, pixels one by one, boxes of them, boxes for all taps.
enum class TmaRows { kMatrix, kGathered, kBoxes, kHalo };
inline constexpr int kTmaRows = 4;
// Of kernels whose tiles come by TMA; arrays are by the columns of a tile: 64, 128, 160, 256.
struct TmaCosts {
  struct Rows {
    std::array<double, 4> step_ns{};    // of 64 of the depth
    double tile_ns = 0, column_ns = 0;  // of a tile's begin and end: always, and per column
    double multicast_factor = 1;        // of a step where two tiles share weights
    double split_ns = 0;                // per part of the depth beyond the first
    double exchanged_byte_ns = 0;       // of sums that change workgroups
  };
  std::string source;
  double launch_ns = 0, multicast_ns = 0, gathered_multicast_ns = 0;
  std::array<double, 4> geglu_tile_ns{};
  std::array<Rows, kTmaRows> rows;
};
// Two tiles in a workgroup, one's epilogue beside the other's steps; arrays by 64, 128, 160 columns.
struct TmaPingPongCosts {
  struct Tile {
    double step_ns = 0, epilogue_ns = 0;
    double tile_ns = 0;  // that no other tile's steps hide
  };
  std::string source;
  double multicast_factor = 1;
  Tile geglu;
  std::array<std::array<Tile, 3>, kTmaRows> rows;
};

// Of convolutions that keep their filter in LDS.
struct TmaResidentCosts {
  std::string source;
  double launch_ns = 0, filter_byte_ns = 0;
  // By the columns of a tile, 32 and 64: of a box of pixels, 64 channels under a tap; besides.
  std::array<double, 2> step_ns{}, box_ns{};
};

// The Winograd convolution against the implicit product, in cycles of one compute unit that is full of
// workgroups.
struct ConvWinogradCosts {
  std::string source;
  double step_cycles = 0,
         workgroup_cycles = 0;        // of a workgroup: of a step of 32 channels; outside its steps
  double implicit_mma_per_cycle = 0;  // multiply-adds of the implicit product's best tile
};

// One kernel on the card whose time was modelled (docs/explanation/time-model.md), nanoseconds of a
// workgroup: where it has a compute unit to itself, and where `resident` workgroups, as many as fit, share
// one.
struct KernelTime {
  int64_t resident = 1;
  double alone_ns = 0, alone_step_ns = 0;  // outside its main loop; of a step of the loop
  double full_ns = 0, full_step_ns = 0;    // until all that share the compute unit have ended
};
struct ModelledCosts {
  std::string source;
  double launch_ns = 0, memory_bytes_per_ns = 0;           // the gap before a launch; for partial sums
  std::map<std::string, KernelTime, std::less<>> kernels;  // by name; bf16's have the times of f16's
};

struct CostModel {
  std::string family;
  std::map<std::string, CostSource, std::less<>> sources;
  AttentionCosts attention;
  GemmCosts gemm;
  std::optional<EightBitCosts> gemm_eight_bit;
  ConvCosts conv;
  std::optional<ConvWgmmaCosts> conv_wgmma;
  std::optional<ConvWinogradCosts> conv_winograd;  // none: it is never chosen untuned
  std::optional<TmaCosts> tma;
  std::optional<TmaPingPongCosts> tma_ping_pong;
  std::optional<TmaResidentCosts> tma_resident;
  std::map<std::string, ModelledCosts, std::less<>> time_model;  // by target; empty: nothing was modelled

  // Those of the target or, where its code was not played, of the family's last: their ratios are alike. Null
  // where nothing was modelled.
  const ModelledCosts* modelled_for(std::string_view target) const;
};

// Null where the kernel was not modelled.
const KernelTime* find_kernel_time(const ModelledCosts& costs, std::string_view kernel);
// Nanoseconds of a launch, without the gap before it: `groups` workgroups of `steps` steps on so many compute
// units.
double launch_ns(const KernelTime& kernel, int64_t groups, int64_t compute_units, double steps);
// The same of tiles of which the first `whole` have a workgroup each, and `splits` share each other one and
// sum its parts themselves.
struct SharedLaunch {
  int64_t tiles = 0, whole = 0;
  int splits = 1;
  double steps = 0, part_steps = 0;  // of a whole tile; of a part
  double tile_floats = 0;            // accumulators of a workgroup
};
double shared_launch_ns(const ModelledCosts& costs, const KernelTime& kernel, int64_t compute_units,
                        const SharedLaunch& launch);
// What it costs to add up `splits` partial sums of so many floats: a launch, which reads what was written.
double reduce_ns(const ModelledCosts& costs, double floats, int splits);

// The family's numbers, read once. Throws FormatError naming the file and the field where they are damaged,
// FileError where ROCM_SD_COST's folder lacks the file, InternalError for a family without a file.
const CostModel& cost_model(std::string_view family);

// Throws FormatError; what: the file's name in messages.
CostModel parse_cost_model(std::string_view text, std::string_view what);
// The embedded files, by family.
const std::map<std::string_view, std::string_view>& embedded_costs();

}  // namespace rocm_sd
