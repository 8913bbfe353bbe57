#include "emulator/launch_time.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>

#include "base/error.hpp"
#include "emulator/analysis.hpp"
#include "emulator/played_groups.hpp"

namespace rocm_sd::emu {

namespace {

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kMaxShared = 640;  // groups of which the first accesses are compared

using Lines = std::unordered_set<uint64_t>;

bool is_rdna(const Machine& m) { return m.target.starts_with("gfx1"); }

// gfx1100's code on gfx1101's machine: the same instructions at the same rates.
bool same_family(std::string_view a, std::string_view b) { return a.substr(0, 5) == b.substr(0, 5); }

ProcessorPlan processor_plan(const LaunchPlan& plan, const Machine& m, const CardRates& rates,
                             uint32_t& waves_per_simd) {
  ProcessorPlan out{.lanes = plan.lanes};
  out.has_last_level = m.last_level_mb > 0;
  out.units = is_rdna(m) ? 2 : 1;
  out.spans = is_rdna(m) && plan.kernel.rsrc1 >> 29 & 1;
  const auto simds = static_cast<uint32_t>(m.simds) * (out.spans ? out.units : 1);
  const Occupancy occupancy =
      occupancy_of(plan.program.target, plan.kernel, rates, plan.lds_bytes, plan.waves);
  const uint32_t slots = simds * std::min(occupancy.by_registers, static_cast<uint32_t>(m.waves_per_simd));
  out.resident = std::max(1u, slots / plan.waves);
  const double lds = m.lds_kib * 1024 / (out.units == 2 && !out.spans ? 2 : 1);
  if (plan.lds_bytes > 0)
    out.resident = std::min(out.resident, std::max(1u, static_cast<uint32_t>(lds / plan.lds_bytes)));
  waves_per_simd = std::max(1u, out.resident * plan.waves / simds);
  return out;
}

// Calls f with the lines of each store, or of each other access.
template <class F>
void for_lines(const LaunchPlan& plan, const GroupRecord& record, bool of_stores, F f) {
  for (const auto& wave : record.waves)
    for (const Step& s : wave) {
      const Inst& in = plan.program.code[s.inst];
      const bool stores = in.flags & kStores && !(in.flags & kAtomic);
      if (!s.access || stores != of_stores) continue;
      const RecordedAccess& a = record.accesses[s.access - 1];
      for (uint32_t i = 0; i < a.lines; ++i) f(record.lines[a.first + i]);
    }
}

// The buffer that a line begins in, as an index into the plan's ranges; their number for lines of none.
size_t buffer_of(const LaunchPlan& plan, uint64_t line) {
  const auto after =
      std::upper_bound(plan.ranges.begin(), plan.ranges.end(), line * kLineBytes + kLineBytes - 1,
                       [](uint64_t a, const Range& r) { return a < r.begin; });
  return after == plan.ranges.begin() ? plan.ranges.size()
                                      : static_cast<size_t>(after - plan.ranges.begin() - 1);
}

// Distinct lines by the buffer that they lie in.
std::vector<double> by_buffer(const LaunchPlan& plan, const Lines& lines) {
  std::vector<double> out(plan.ranges.size() + 1);
  for (const uint64_t line : lines) ++out[buffer_of(plan, line)];
  return out;
}
void add(std::vector<double>& sums, const std::vector<double>& of) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += of[i];
}

// Which lines of a buffer groups that run at once have in common, by their first accesses: distinct ones by
// group, by processor, by second-level cache, and of the card.
struct Sharing {
  std::vector<double> groups, processors, l2s, card;  // by buffer
  uint64_t count = 0;                                 // of groups compared
  double footprint = 0;                               // lines of the buffers that were read
};

Sharing sharing_of(const LaunchPlan& plan, const Machine& m, uint32_t processors, uint64_t at_once) {
  const std::vector<double> none(plan.ranges.size() + 1);
  Sharing out{none, none, none, none};
  out.count = std::min({plan.groups(), at_once, kMaxShared});
  const auto dies = static_cast<uint64_t>(m.l2s);
  std::vector<Lines> by_processor(std::min<uint64_t>(processors, out.count)), by_l2(dies);
  Lines card;
  const RecordLimits first{.steps = 6000, .accesses = 24, .cut = true};
  for (uint64_t g = 0; g < out.count; ++g) {
    const GroupRecord record = record_group(plan, g, first);
    Lines own;
    for_lines(plan, record, false, [&](uint64_t line) { own.insert(line); });
    add(out.groups, by_buffer(plan, own));
    for (const uint64_t line : own) {
      by_processor[g % by_processor.size()].insert(line);
      by_l2[g % dies].insert(line);
      card.insert(line);
    }
  }
  for (const Lines& l : by_processor) add(out.processors, by_buffer(plan, l));
  for (const Lines& l : by_l2) add(out.l2s, by_buffer(plan, l));
  out.card = by_buffer(plan, card);
  for (size_t i = 0; i < plan.ranges.size(); ++i)
    if (out.card[i] > 0)
      out.footprint += std::ceil(static_cast<double>(plan.ranges[i].end - plan.ranges[i].begin) / kLineBytes);
  return out;
}

// What a group reads and writes in all.
struct GroupLines {
  std::vector<double> loaded;              // distinct lines, by buffer
  double stored = 0, distinct_stored = 0;  // lines of stores, and those among them that are not the same
};

GroupLines lines_of(const LaunchPlan& plan, const std::map<uint64_t, GroupRecord>& records) {
  GroupLines out{.loaded = std::vector<double>(plan.ranges.size() + 1)};
  const auto all = static_cast<double>(records.size());
  for (const auto& [turn, record] : records) {
    Lines loaded, stored;
    for_lines(plan, record, false, [&](uint64_t line) { loaded.insert(line); });
    for_lines(plan, record, true, [&](uint64_t line) {
      out.stored += 1 / all;
      stored.insert(line);
    });
    add(out.loaded, by_buffer(plan, loaded));
    out.distinct_stored += static_cast<double>(stored.size()) / all;
  }
  for (double& count : out.loaded) count /= all;
  return out;
}

// Shares of misses, from what groups share, what a group reads in all (its distinct lines of each buffer, and
// those that its vector cache misses), and what the caches hold. A group's first accesses say how much of
// each buffer is shared, not how much of each it reads: a kernel may begin with more of one than of the
// other.
void set_shares(MemoryShare& share, const Sharing& s, const Machine& m, double groups,
                const GroupLines& of_group, double missed, bool warm) {
  const std::vector<double>& lines = of_group.loaded;
  // Of a group, the lines that its processor, its second-level cache and the card had not yet.
  double of_processor = 0, of_l2 = 0, of_card = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool known = s.groups[i] > 0;  // what comes late alone is taken for the group's own
    of_processor += lines[i] * (known ? s.processors[i] / s.groups[i] : 1);
    of_l2 += lines[i] * (known ? s.l2s[i] / s.groups[i] : 1);
    of_card += lines[i] * (known ? s.card[i] / s.groups[i] : 1);
  }
  const auto count = static_cast<double>(s.count);
  const double set = of_card * count;  // what the groups at once read from their start to their end
  share.past_l2 = of_processor > 0 ? of_l2 / of_processor : 1;
  share.past_last_level = of_l2 > 0 ? of_card / of_l2 : 1;
  const double l2 = m.l2_mb * 1e6 / kLineBytes, last = m.last_level_mb * 1e6 / kLineBytes;
  // Lines that are asked for again.
  const double again = missed > 0 ? std::min(1.0, of_processor / missed) : 1;
  (set * m.l2s <= l2 || last == 0 ? share.past_l2 : share.past_last_level) *= again;
  const double asked = std::max(1.0, groups * missed);
  if (s.footprint * m.l2s <= l2)
    share.past_l2 = std::min(share.past_l2, warm ? 0 : s.footprint * m.l2s / asked);
  // Lines come from the memory once; what is read of them later, in so far as the last level has lost them.
  // Of what does not fit it keeps its share: groups read again at all distances, up to the whole.
  const double behind = std::max(1.0, asked * share.past_l2);
  if (last > 0 && s.footprint > 0) {
    const double once = warm ? 0 : std::min(share.past_last_level, s.footprint / behind);
    const double kept = std::min(1.0, last / s.footprint);
    share.past_last_level = once + (share.past_last_level - once) * (1 - kept);
  }
  share.stores_past = last > 0 && s.footprint <= last && warm ? 0 : 1;
  // Pieces of a line come together in the cache, as far as it holds what the groups at once write.
  if (of_group.distinct_stored * count <= l2)
    share.stores_past *= of_group.distinct_stored / std::max(1.0, of_group.stored);
}

struct Load {
  std::string name;
  double cycles;  // of one of the units
};
Load busiest_of(const ProcessorTime& t, const ProcessorPlan& plan, const Machine& m, const CardRates& rates) {
  const double units = plan.units, simds = units * m.simds;
  std::vector<Load> all = {{"vector", (t.vector + (rates.own_matrix ? 0 : t.matrix)) / simds},
                           {"matrix", t.matrix / simds},
                           {"transcendental", t.transcendental / simds},
                           {"scalar", t.scalar / simds},
                           {"lds", t.lds / units},
                           {"vector cache", t.l0 / units}};
  if (!rates.own_matrix && t.matrix >= t.vector) all[0].name = "matrix";
  return *std::max_element(all.begin(), all.end(),
                           [](const Load& a, const Load& b) { return a.cycles < b.cycles; });
}

}  // namespace

LaunchTime time_launch(const LaunchPlan& plan, const Machine& m, const TimeOptions& options) {
  const std::string& target = plan.program.target.name;
  require<UsageError>(same_family(target, m.target), "kernel ", plan.kernel.name, " is made for ", target,
                      ", ", m.name, " is a ", m.target);
  const CardRates* found = find_rates(target);
  require<InternalError>(found != nullptr, "no rates of ", target);
  const CardRates& rates = *found;
  LaunchTime out;
  const ProcessorPlan processor = processor_plan(plan, m, rates, out.waves_per_simd);
  out.groups = plan.groups();
  out.processors = static_cast<uint32_t>(m.compute_units) / processor.units;
  out.resident = processor.resident * (processor.spans ? 1 : processor.units);
  out.groups_each = std::ceil(static_cast<double>(out.groups) / out.processors);
  const Sharing sharing = sharing_of(plan, m, out.processors, uint64_t{out.processors} * out.resident);
  const PlayedGroups groups =
      played_groups(plan, {static_cast<uint32_t>(m.l2s), out.processors, out.resident}, options.recorded);
  const std::vector<const GroupRecord*>& order = groups.order;
  const size_t played = order.size();
  const GroupLines lines = lines_of(plan, groups.records);

  const double active = std::min<double>(out.processors, static_cast<double>(out.groups));
  out.gigahertz = m.gigahertz;
  // Lines of a group that its vector cache lacks: a first guess.
  double missed = std::accumulate(lines.loaded.begin(), lines.loaded.end(), 0.0);
  constexpr int kPasses = 3;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double per_cycle = 1 / (out.gigahertz * active);  // bytes a cycle for each GB/s
    MemoryShare& s = out.share;
    s = {.l2_bytes = m.l2_bytes / active,
         .last_level_bytes = std::max(m.last_level_gb * per_cycle, 1e-3),
         .memory_bytes = m.memory_gb * per_cycle,
         .l2_latency = m.l2_latency * out.gigahertz,
         .last_level_latency = m.last_level_latency * out.gigahertz,
         .memory_latency = m.memory_latency * out.gigahertz,
         .write_room = m.l2_mb * 1e6 / active};
    set_shares(s, sharing, m, groups.of_launch, lines, missed, options.warm);
    out.processor = run_processor(plan.program, m, rates, order, processor, s,
                                  pass == kPasses - 1 ? options.watch : IssueWatch());
    const double now = out.processor.missed / static_cast<double>(played), end = out.processor.ends.back();
    double clock = m.gigahertz;
    if (m.limited_share > 0) {
      // Power of the matrix units goes with the share of the time that they are busy and about with the cube
      // of the clock.
      const double share = out.processor.matrix / (end * processor.units * m.simds);
      if (share > 0) clock = std::min(clock, m.limited_gigahertz * std::cbrt(m.limited_share / share));
    }
    const bool settled = std::abs(now - missed) <= 0.05 * std::max(missed, 1.0) &&
                         std::abs(clock - out.gigahertz) <= 0.02 * clock;
    missed = now;
    out.gigahertz = clock;
    if (settled && !options.watch) break;
  }

  const std::vector<double>& ends = out.processor.ends;
  const size_t filled = std::min<size_t>(out.resident, played);
  out.cycles = ends.back();
  // Of groups that differ, those that end first are not the first.
  out.group_cycles = played > filled && !groups.uneven
                         ? (ends.back() - ends[filled - 1]) / static_cast<double>(played - filled)
                         : ends.back() / static_cast<double>(played);
  const Load busiest = busiest_of(out.processor, processor, m, rates);
  // Groups that began together end together: what the busiest unit needs for each is the least.
  out.group_cycles = std::max(out.group_cycles, busiest.cycles / static_cast<double>(played));
  out.cycles += (groups.of_processor - static_cast<double>(played)) * out.group_cycles;
  out.busiest = busiest.name;
  out.busy = busiest.cycles / ends.back();
  const double each = groups.of_launch / static_cast<double>(played);
  out.memory_bytes =
      kLineBytes * each * (out.processor.from_memory + out.processor.stored * out.share.stores_past);
  const double units =
      busiest.cycles / static_cast<double>(played) * groups.of_processor / (m.gigahertz * 1e9);
  out.bound_seconds = std::max(units, out.memory_bytes / (m.memory_gb * 1e9));
  out.seconds = m.launch_us * 1e-6 + m.group_start / (out.gigahertz * 1e9) +
                std::max(out.cycles / (out.gigahertz * 1e9), out.memory_bytes / (m.memory_gb * 1e9));
  return out;
}

nlohmann::ordered_json to_json(const LaunchTime& t) {
  nlohmann::ordered_json out = {
      {"microseconds", t.seconds * 1e6},
      {"bound_microseconds", t.bound_seconds * 1e6},
      {"gigahertz", t.gigahertz},
      {"groups", t.groups},
      {"processors", t.processors},
      {"resident_groups", t.resident},
      {"waves_per_simd", t.waves_per_simd},
      {"groups_of_busiest", t.groups_each},
      {"group_cycles", t.group_cycles},
      {"cycles", t.cycles},
      {"memory_bytes", t.memory_bytes},
      {"busiest", t.busiest},
      {"busy", t.busy},
      {"past_vector_cache", t.processor.lines > 0 ? t.processor.missed / t.processor.lines : 0},
      {"past_l2", t.share.past_l2},
      {"past_last_level", t.share.past_last_level}};
  nlohmann::ordered_json stalls = nlohmann::ordered_json::object();
  for (size_t i = 1; i < kStalls; ++i)
    if (t.processor.stalls[i] > 0)
      stalls[std::string(stall_name(static_cast<Stall>(i)))] =
          t.processor.stalls[i] / t.processor.wave_cycles;
  out["stalls"] = stalls;
  return out;
}

}  // namespace rocm_sd::emu
