#include "pipeline/options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "base/text.hpp"
#include "pipeline/option_tables.hpp"

namespace rocm_sd {
namespace option_tables {

LoadOptions& load_of(OptionTargets& t) {
  require<UsageError>(t.load != nullptr, "is set when the model is loaded, not here");
  return *t.load;
}
Request& request_of(OptionTargets& t) {
  require<UsageError>(t.request != nullptr, "belongs to a request, not to loading");
  return *t.request;
}

bool parse_flag(std::string_view text) {
  if (text.empty() || text == "true" || text == "1" || text == "yes" || text == "on") return true;
  require<UsageError>(text == "false" || text == "0" || text == "no" || text == "off",
                      "expected true or false, got \"", printable(text), "\"");
  return false;
}

std::vector<double> parse_list(std::string_view list) {
  std::vector<double> out;
  for (;;) {
    const size_t comma = std::min(list.find(','), list.size());
    out.push_back(parse_number(list.substr(0, comma), 0, 1e9));
    require<UsageError>(out.size() <= 1001, "at most 1001 sigmas");
    if (comma == list.size()) return out;
    list = list.substr(comma + 1);
  }
}

Image read_picture(std::string_view path) {
  require<UsageError>(!path.empty(), "expected a picture's file, got an empty text");
  return load_image(std::string(path));
}

}  // namespace option_tables

namespace {

const std::vector<OptionRow>& rows() {
  using namespace option_tables;
  static const std::vector<OptionRow> table = [] {
    std::vector<OptionRow> all;
    for (const auto& group :
         {model_options, prompt_options, picture_options, sampling_options, image_to_image_options,
          hires_options, repeated_options, preview_options, control_options, ip_adapter_options, tile_options,
          savings_options, advanced_options})
      for (OptionRow& row : group()) all.push_back(std::move(row));
    return all;
  }();
  return table;
}

// No zeros in front of other digits, and no sign where no number below 0 is taken ("-0").
bool is_plain(std::string_view text, bool unsigned_only) {
  if (text.starts_with('-')) {
    if (unsigned_only) return false;
    text.remove_prefix(1);
  }
  return !(text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9');
}

}  // namespace

int64_t parse_integer(std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && is_plain(text, least >= 0);
  require<UsageError>(whole && value >= least && value <= most, "expected a whole number from ", least,
                      " to ", most, ", got \"", printable(text), "\"");
  return value;
}

uint64_t parse_bytes(std::string_view text) {
  int64_t unit = 1;
  if (!text.empty()) {
    const char last = text.back();
    if (last == 'K' || last == 'k') unit = 1 << 10;
    if (last == 'M' || last == 'm') unit = 1 << 20;
    if (last == 'G' || last == 'g') unit = 1 << 30;
  }
  if (unit > 1) text.remove_suffix(1);
  constexpr int64_t kMax = int64_t{1} << 50;
  return static_cast<uint64_t>(parse_integer(text, 1, kMax / unit) * unit);
}

double parse_number(std::string_view text, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);  // no locale
  const bool whole = error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
                     is_plain(text, least >= 0);
  require<UsageError>(whole && value >= least && value <= most, "expected a number from ", least, " to ",
                      most, ", got \"", printable(text), "\"");
  return value;
}

std::span<const OptionRow> option_rows() { return rows(); }

void set_option(OptionTargets& targets, std::string_view name, std::string_view value) {
  std::vector<std::string> names;
  for (const OptionRow& row : rows()) {
    if (name == row.name) {
      try {
        return row.set(targets, value);
      } catch (const UsageError& e) {
        throw UsageError(concat(name, ": ", e.what()));
      }
    }
    names.emplace_back(row.name);
  }
  throw UsageError(
      concat("unknown option \"", printable(name), "\"; did you mean \"", nearest_name(name, names), "\"?"));
}

}  // namespace rocm_sd
