#include "weights/block_weights.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "base/error.hpp"
#include "base/text.hpp"
#include "weights/name_map.hpp"

namespace rocm_sd {
namespace {

constexpr double kMaxFactor = 100;
constexpr int kFirstIn = 1, kMiddle = 13, kFirstOut = 14, kBlocksEachWay = 12;

// Positions among the 26 that the shorter lists name.
constexpr int kOfLora[] = {0, 2, 3, 5, 6, 8, 9, 13, 17, 18, 19, 20, 21, 22, 23, 24, 25};
constexpr int kOfXlLora[] = {0, 5, 6, 8, 9, 13, 14, 15, 16, 17, 18, 19};
constexpr int kOfXl[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22};

// Of the extension's own list: which blocks of kOfLora have the factor.
struct Preset {
  std::string_view name;
  double factor;
  std::string_view blocks;
};
constexpr Preset kPresets[] = {{"NONE", 0, "11111111111111111"},   {"ALL", 1, "11111111111111111"},
                               {"INS", 1, "11110000000000000"},    {"IND", 1, "10001110000000000"},
                               {"INALL", 1, "11111110000000000"},  {"MIDD", 1, "10001111111100000"},
                               {"OUTD", 1, "10000000111100000"},   {"OUTS", 1, "10000000000011111"},
                               {"OUTALL", 1, "10000000111111111"}, {"ALL0.5", 0.5, "11111111111111111"}};

const Preset* find_preset(std::string_view name) {
  const auto* found = std::ranges::find(kPresets, name, &Preset::name);
  return found == std::end(kPresets) ? nullptr : found;
}

std::string_view without_spaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::vector<double> numbers_of(std::string_view text) {
  std::vector<double> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = without_spaces(text.substr(begin, end - begin));
    double value = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    require<UsageError>(error == std::errc() && stop == part.data() + part.size() && std::isfinite(value) &&
                            std::abs(value) <= kMaxFactor,
                        "block weights: expected numbers from ", -kMaxFactor, " to ", kMaxFactor,
                        ", found \"", printable(part, 40), "\"");
    out.push_back(value);
    begin = end + 1;
  }
  return out;
}

BlockWeights spread(std::span<const int> places, std::span<const double> values) {
  BlockWeights out{std::vector<double>(kLoraBlocks, 0.0)};
  for (size_t i = 0; i < places.size(); ++i) out.factors[static_cast<size_t>(places[i])] = values[i];
  return out;
}

BlockWeights of_preset(const Preset& preset) {
  std::vector<double> values;
  for (const char c : preset.blocks) values.push_back(c == '1' ? preset.factor : 0.0);
  return spread(kOfLora, values);
}

}  // namespace

int lora_block(Component component, std::string_view ldm_name) {
  if (component != Component::kUnet) return 0;
  if (ldm_name.starts_with("middle_block.")) return kMiddle;
  for (const bool in : {true, false}) {
    const auto block = numbered(ldm_name, in ? "input_blocks." : "output_blocks.");
    if (block && block->number < kBlocksEachWay) return (in ? kFirstIn : kFirstOut) + block->number;
  }
  return -1;
}

BlockWeights parse_block_weights(std::string_view text, ModelKind kind) {
  if (const Preset* preset = find_preset(text)) return of_preset(*preset);
  const bool list = text.find(',') != text.npos;
  if (!list) {
    std::vector<std::string> names;
    for (const Preset& preset : kPresets) names.emplace_back(preset.name);
    throw UsageError(concat("block weights: expected numbers with commas between them or one of ",
                            listed_names(names, names.size()), ", got \"", printable(text, 40), "\""));
  }
  const bool xl = kind == ModelKind::kSdxl || kind == ModelKind::kSdxlRefiner;
  const std::vector<double> values = numbers_of(text);
  if (!xl && values.size() == std::size(kOfLora)) return spread(kOfLora, values);
  if (!xl && values.size() == kLoraBlocks) return {values};
  if (xl && values.size() == std::size(kOfXlLora)) return spread(kOfXlLora, values);
  if (xl && values.size() == std::size(kOfXl)) return spread(kOfXl, values);
  throw UsageError(concat("block weights: a ", model_kind_name(kind), " model takes ",
                          xl ? "12 or 20" : "17 or 26", " of them, got ", values.size()));
}

}  // namespace rocm_sd
