#include "models/precision.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

std::vector<std::string> segments_of(std::string_view path) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    out.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string joined(std::span<const std::string> segments) {
  std::string out;
  for (const std::string& segment : segments) out += concat(out.empty() ? "" : ".", segment);
  return out;
}

int number_of(std::string_view text) {  // -1: it is none
  int out = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() ? out : -1;
}

}  // namespace

std::string_view precision_name(Precision precision) {
  switch (precision) {
    case Precision::kCompute: return "compute";
    case Precision::kSplitInput: return "split_input";
    case Precision::kSplit: return "split";
    case Precision::kHalf: return "half";
    case Precision::kFloat: return "float";
  }
  return "?";
}

std::vector<PrecisionRow> precision_rows(Network network, bool narrow) {
  const auto applies = [&](const PrecisionRow& row) {
    const bool same =
        row.network == network || (network == Network::kControlNet && row.network == Network::kUnet);
    return same && (row.widths == Widths::kAll || (row.widths == Widths::kNarrow) == narrow);
  };
  std::vector<PrecisionRow> out;
  std::ranges::copy_if(precision_table(), std::back_inserter(out), applies);
  return out;
}

void LayerPaths::add(std::string_view path) {
  const std::vector<std::string> segments = segments_of(path);
  for (size_t i = 0; i < segments.size(); ++i) {
    prefixes_.insert(joined(std::span(segments).first(i + 1)));
    int& last = last_.try_emplace(joined(std::span(segments).first(i)), -1).first->second;
    last = std::max(last, number_of(segments[i]));
  }
}

int LayerPaths::last(const std::string& group) const {
  const auto found = last_.find(group);
  return found == last_.end() ? -1 : found->second;
}

PathPattern::PathPattern(std::string_view text) {
  for (const std::string& segment : segments_of(text)) {
    const size_t open = segment.find('['), end = segment.size();
    const bool has_child = open != std::string::npos;
    require<InternalError>(!segment.empty() && open != 0 && has_child == segment.ends_with(']') &&
                               (!has_child || open + 2 < end),
                           "precision: pattern \"", text,
                           "\": expected segments like conv1, *, last or *[to_kv]");
    segments_.push_back({segment.substr(0, open), has_child ? segment.substr(open + 1, end - open - 2) : ""});
  }
}

bool PathPattern::match(size_t at, std::span<const std::string> path, size_t begin,
                        const LayerPaths& all) const {
  if (at == segments_.size()) return begin == path.size();
  const Segment& segment = segments_[at];
  const auto goes_on = [&](size_t end) {  // with `segment` being what ends there
    const bool fits = segment.child.empty() || all.has(concat(joined(path.first(end)), ".", segment.child));
    return fits && match(at + 1, path, end, all);
  };
  if (segment.name == "*") {
    for (size_t end = begin + 1; end <= path.size(); ++end)
      if (goes_on(end)) return true;
    return false;
  }
  if (begin == path.size()) return false;
  const bool same = segment.name == "last" ? number_of(path[begin]) == all.last(joined(path.first(begin)))
                                           : segment.name == path[begin];
  return same && goes_on(begin + 1);
}

bool PathPattern::matches(std::string_view path, const LayerPaths& all) const {
  const std::vector<std::string> segments = segments_of(path);
  return match(0, segments, 0, all);
}

PrecisionRules::PrecisionRules(std::span<const PrecisionRow> rows, LayerPaths paths)
    : paths_(std::move(paths)) {
  for (const PrecisionRow& row : rows) rows_.emplace_back(PathPattern(row.pattern), row);
}

LayerPrecision PrecisionRules::of(std::string_view path) const {
  LayerPrecision out;
  for (const auto& [pattern, row] : rows_) {
    if (!pattern.matches(path, paths_)) continue;
    out.precision = row.precision;
    if (row.eight_bit == EightBit::kNever) out.eight_bit = false;
  }
  return out;
}

}  // namespace rocm_sd
