// Precision: how many bits the layers of a model in bf16 are computed with. A table of patterns over layers'
// paths (precision_table.cpp) says which layers need more than bf16, and why; the loader applies it.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

// What a matrix or filter is stored as when the model computes in bf16, whose 8 bits are too few for some; in
// every other type it is stored in that type.
// kSplitInput: in bf16, twice, for an input that comes as the sum of two bf16: [out,2 in,...]; kSplit: as
// such a sum itself: [out,3 in,...]. See split_bf16.
enum class Precision { kCompute, kSplitInput, kSplit, kHalf, kFloat };  // the last two are f16 and f32
std::string_view precision_name(Precision precision);                   // "compute", "split_input", ...

// What the loader does with a layer's matrix.
struct LayerPrecision {
  Precision precision = Precision::kCompute;
  bool eight_bit = true;  // whether it may be stored in 8 bits where the model is loaded so
  friend bool operator==(const LayerPrecision&, const LayerPrecision&) = default;
};

enum class Network { kUnet, kControlNet, kT2iAdapter, kVae };  // a ControlNet has the UNet's rows, too
enum class Widths { kAll, kWide, kNarrow };                    // of models: see is_narrow()
enum class EightBit { kAllowed, kNever };

struct PrecisionRow {
  Network network = Network::kUnet;
  Widths widths = Widths::kAll;
  std::string_view pattern;
  Precision precision = Precision::kCompute;
  EightBit eight_bit = EightBit::kAllowed;
  std::string_view reason;
};

// Every row, general ones before exceptions: of the rows that match a layer the last one decides.
std::span<const PrecisionRow> precision_table();
// Those that apply to a network of this width.
std::vector<PrecisionRow> precision_rows(Network network, bool narrow);

// Paths of all layers of a model that have a matrix: "down_blocks.0.resnets.1.conv1".
class LayerPaths {
 public:
  void add(std::string_view path);
  bool has(const std::string& prefix) const { return prefixes_.contains(prefix); }  // a layer, or a group
  // The highest number among the members of a group: 3 for "up_blocks" of SD 1; -1 where it has none.
  int last(const std::string& group) const;

 private:
  std::set<std::string> prefixes_;
  std::map<std::string, int> last_;
};

// A pattern over paths, segment by segment:
//   *      one or more segments
//   last   the highest number among its siblings: "up_blocks.last"
//   a[b]   the segment a (or *) where a layer or group b is beneath it: "*[to_kv].to_out.0"
// Anything else matches itself.
class PathPattern {
 public:
  explicit PathPattern(std::string_view text);  // throws InternalError for an empty segment or a lone bracket
  bool matches(std::string_view path, const LayerPaths& all) const;

 private:
  struct Segment {
    std::string name, child;
  };
  bool match(size_t segment, std::span<const std::string> path, size_t begin, const LayerPaths& all) const;

  std::vector<Segment> segments_;
};

// Rows at work on one model.
class PrecisionRules {
 public:
  PrecisionRules(std::span<const PrecisionRow> rows, LayerPaths paths);
  // The last matching row's precision; 8 bits unless one of the matching rows forbids them.
  LayerPrecision of(std::string_view path) const;

 private:
  std::vector<std::pair<PathPattern, PrecisionRow>> rows_;
  LayerPaths paths_;
};

}  // namespace rocm_sd
