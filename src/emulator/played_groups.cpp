#include "emulator/played_groups.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>

namespace rocm_sd::emu {

namespace {

constexpr double kAlike = 0.1;  // groups whose instructions differ by less are alike
constexpr double kSame = 0.02;  // and by less than this the same, at other places of a grid

double instructions_of(const GroupRecord& record) {
  size_t count = 0;
  for (const auto& wave : record.waves) count += wave.size();
  return static_cast<double>(count);
}
// Whether the group's work may depend on what other groups have done: then it says nothing of others' work,
// and it changes when the group is run again.
bool exchanges(const LaunchPlan& plan, const GroupRecord& record) {
  const auto atomic = [&](const Step& s) {  // on memory: those on LDS are the group's own
    const Inst& in = plan.program.code[s.inst];
    return in.cls == Class::kVmem && in.flags & kAtomic;
  };
  return std::ranges::any_of(record.waves,
                             [&](const auto& wave) { return std::ranges::any_of(wave, atomic); });
}
bool alike(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance * std::max(a, b); }

// A processor's groups where a launch's groups are alike: some of them, or all where its last ones are others
// than its first, as where a launch's last groups have parts of tiles only.
PlayedGroups even_groups(const LaunchPlan& plan, const Dispatch& dispatch, uint32_t recorded, uint64_t begin,
                         std::map<uint64_t, GroupRecord> records) {
  constexpr uint64_t kMaxPlayed = 64;
  const uint64_t most = (plan.groups() + dispatch.processors - 1) / dispatch.processors;
  PlayedGroups out{.records = std::move(records),
                   .of_processor = static_cast<double>(most),
                   .of_launch = static_cast<double>(plan.groups())};
  const auto record = [&](uint64_t turn) -> const GroupRecord& {  // each group runs once
    const uint64_t group = begin + turn * dispatch.processors;
    const auto [at, fresh] = out.records.try_emplace(group);
    if (fresh) at->second = record_group(plan, group);
    return at->second;
  };
  const double first = instructions_of(record(0));
  const auto differs = [&](uint64_t turn) {
    return std::abs(instructions_of(record(turn)) - first) > kAlike * first;
  };
  std::vector<uint64_t> turns;
  if (most > 1 && most <= kMaxPlayed && differs(most - 1)) {
    uint64_t alike = 1, other = most - 1;  // groups like the first; one that is not
    while (alike < other) {
      const uint64_t middle = (alike + other) / 2;
      if (differs(middle))
        other = middle;
      else
        alike = middle + 1;
    }
    const uint64_t rest = most - alike, count = std::min<uint64_t>(rest, recorded);
    turns.assign(alike, 0);
    for (uint64_t i = 0; i < rest; ++i) {
      const uint64_t piece = i * count / rest;  // of the rest, each played by one of its groups
      turns.push_back(piece + 1 < count ? alike + piece * (rest - 1) / (count - 1) : most - 1);
    }
  } else {
    const auto few = std::min<uint64_t>(most, std::max<uint64_t>(4, 2 * dispatch.resident));
    const auto count = std::min<uint64_t>(few, recorded);
    for (uint64_t i = 0; i < few; ++i) turns.push_back(i % count);
  }
  for (const uint64_t turn : turns) out.order.push_back(&record(turn));
  std::erase_if(out.records,
                [&](const auto& r) { return std::ranges::find(out.order, &r.second) == out.order.end(); });
  return out;
}

// How many groups make one period of the works that are known so far, if they repeat.
std::optional<uint64_t> period_of(const std::vector<double>& works) {
  constexpr size_t kLeast = 16;  // works that have to repeat
  for (size_t period = 1; period + kLeast <= works.size(); ++period) {
    bool repeats = true;
    for (size_t i = period; i < works.size() && repeats; ++i)
      repeats = alike(works[i], works[i - period], kSame);
    if (repeats) return period;
  }
  return std::nullopt;
}

// Of the busiest processor's groups at most kMaxPlayed, and of these at most kRecorded are run: one of each
// part of them by work, which plays the part.
PlayedGroups uneven_groups(const LaunchPlan& plan, const Dispatch& dispatch,
                           const std::vector<double>& works) {
  constexpr size_t kMaxPlayed = 48, kRecorded = 12;
  const std::vector<uint64_t> stream = busiest_stream(works, dispatch);
  const size_t count = std::min(stream.size(), kMaxPlayed), parts = std::min(count, kRecorded);
  std::vector<uint64_t> some;
  for (size_t i = 0; i < count; ++i) some.push_back(stream[i * stream.size() / count]);
  // By work; of equal ones, neighbours come into different parts: played at once, they are to share no more
  // lines than they do.
  std::vector<size_t> by_work(count);
  std::iota(by_work.begin(), by_work.end(), size_t{0});
  std::ranges::sort(by_work, {}, [&](size_t i) { return std::tuple(works[some[i]], i % parts, i); });

  PlayedGroups out{.uneven = true};
  out.order.resize(count);
  double played = 0;
  for (size_t part = 0; part < parts; ++part) {
    const size_t from = part * count / parts, to = (part + 1) * count / parts;
    const uint64_t group = some[by_work[(from + to) / 2]];
    const GroupRecord& record = out.records.try_emplace(group, record_group(plan, group)).first->second;
    for (size_t i = from; i < to; ++i) out.order[by_work[i]] = &record;
    played += static_cast<double>(to - from) * instructions_of(record);
  }
  const auto all_of = [&](const auto& groups, const auto& work) {
    return std::accumulate(groups.begin(), groups.end(), 0.0,
                           [&](double sum, auto g) { return sum + work(g); });
  };
  const double mean = played / static_cast<double>(count);
  out.of_processor = all_of(stream, [&](uint64_t group) { return works[group]; }) / mean;
  out.of_launch = all_of(works, [](double work) { return work; }) / mean;
  return out;
}

}  // namespace

std::vector<double> works_of_groups(uint64_t groups, const std::function<double(uint64_t)>& work) {
  constexpr uint64_t kMaxRun = 2048;
  std::vector<double> known;
  const auto repeats_at = [&](uint64_t period) {    // the same far away
    constexpr double kGolden = 0.6180339887498949;  // its multiples fall upon no grid's pieces
    for (int i = 1; i <= 5; ++i) {
      const auto far = static_cast<uint64_t>(std::fmod(i * kGolden, 1.0) * static_cast<double>(groups));
      if (!alike(work(far), known[far % period], kSame)) return false;
    }
    return true;
  };
  std::vector<double> works(groups);
  uint64_t refused = 0;
  while (known.size() < std::min(groups, kMaxRun)) {
    known.push_back(work(known.size()));
    const std::optional<uint64_t> period = period_of(known);
    if (!period || *period == refused) continue;
    refused = *period;
    if (!repeats_at(*period)) continue;
    for (uint64_t g = 0; g < groups; ++g) works[g] = known[g % *period];
    return works;
  }
  if (known.size() == groups) return known;
  const uint64_t step = (groups + kMaxRun - 1) / kMaxRun;
  for (uint64_t g = 0; g < groups; ++g) works[g] = g % step == 0 ? work(g) : works[g - 1];
  return works;
}

std::vector<uint64_t> busiest_stream(const std::vector<double>& works, const Dispatch& dispatch) {
  const uint32_t dies = std::min(dispatch.dies, dispatch.processors);
  std::vector<std::vector<uint64_t>> streams(dispatch.processors);
  double last = -1;
  uint32_t busiest = 0;
  for (uint32_t die = 0; die < dies; ++die) {
    const uint32_t processors = (dispatch.processors - die + dies - 1) / dies;
    using Place = std::pair<double, uint32_t>;  // free from, its number: round by round over the processors
    std::priority_queue<Place, std::vector<Place>, std::greater<>> places;
    for (uint32_t i = 0; i < processors * dispatch.resident; ++i) places.emplace(0.0, i);
    for (uint64_t group = die; group < works.size(); group += dies) {
      const auto [from, place] = places.top();
      places.pop();
      const uint32_t processor = die + place % processors * dies;
      const double end = from + works[group];
      streams[processor].push_back(group);
      places.emplace(end, place);
      if (end > last) {
        last = end;
        busiest = processor;
      }
    }
  }
  return streams[busiest];
}

PlayedGroups played_groups(const LaunchPlan& plan, const Dispatch& dispatch, uint32_t recorded) {
  const uint64_t groups = plan.groups(), processors = dispatch.processors;
  const uint64_t most = (groups + processors - 1) / processors;
  const uint64_t begin = std::min<uint64_t>(processors, groups - (most - 1) * processors) / 2;
  std::map<uint64_t, GroupRecord> records;
  const GroupRecord& first = records.try_emplace(begin, record_group(plan, begin)).first->second;
  bool even = true, exchanging = exchanges(plan, first);
  // Groups that start together with the first, near and far; odd distances, as pieces of grids are even.
  const uint64_t together = std::min(groups, processors * dispatch.resident);
  for (const uint64_t distance : {uint64_t{1}, uint64_t{23}, together / 3 | 1, together * 2 / 5 | 1}) {
    if (exchanging || !even) break;
    const GroupRecord other = record_group(plan, (begin + distance) % together);
    even = alike(instructions_of(other), instructions_of(first), kAlike);
    exchanging = exchanges(plan, other);
  }
  if (even || exchanging) return even_groups(plan, dispatch, recorded, begin, std::move(records));
  return uneven_groups(plan, dispatch, works_of_groups(groups, [&](uint64_t group) {
                         return instructions_of(record_group(plan, group));
                       }));
}

}  // namespace rocm_sd::emu
