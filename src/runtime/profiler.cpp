#include "runtime/profiler.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/format.hpp"

namespace rocm_sd {
namespace {

struct Total {
  int calls = 0;
  double us = 0, flops = 0, bytes = 0;
};

void append_totals(std::string& out, const std::string& title, const std::map<std::string, Total>& totals,
                   size_t most) {
  std::vector<std::pair<std::string, Total>> rows(totals.begin(), totals.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  double all = 0;
  for (const auto& [name, total] : rows) all += total.us;
  fmt::format_to(std::back_inserter(out), "{:<64} {:>6} {:>10} {:>6} {:>9} {:>7}\n", title, "calls", "ms",
                 "share", "GFLOP/s", "GB/s");
  for (size_t i = 0; i < std::min(rows.size(), most); ++i) {
    const auto& [name, t] = rows[i];
    fmt::format_to(std::back_inserter(out), "{:<64} {:>6} {:>10.2f} {:>5.1f}% {:>9.1f} {:>7.1f}\n",
                   name.substr(0, 64), t.calls, t.us / 1e3, all > 0 ? 100 * t.us / all : 0,
                   t.us > 0 ? t.flops / t.us / 1e3 : 0, t.us > 0 ? t.bytes / t.us / 1e3 : 0);
  }
}

}  // namespace

void Profiler::add(Event event, Clock::time_point begin, Clock::time_point end) {
  event.begin_us = std::chrono::duration<double, std::micro>(begin - start_).count();
  event.duration_us = std::chrono::duration<double, std::micro>(end - begin).count();
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

void Profiler::record(const OpInfo& info, Clock::time_point begin, Clock::time_point end) {
  add({info, false}, begin, end);
}

void Profiler::record_span(const std::string& name, Clock::time_point begin, Clock::time_point end) {
  add({{"span", name}, true}, begin, end);
}

std::string Profiler::table() const {
  std::map<std::string, Total> by_op, by_problem;
  {
    const std::lock_guard lock(mutex_);
    for (const Event& e : events_) {
      if (e.span) continue;
      for (Total* t : {&by_op[e.info.op], &by_problem[concat(e.info.op, " ", e.info.detail)]}) {
        ++t->calls;
        t->us += e.duration_us;
        t->flops += e.info.flops;
        t->bytes += e.info.bytes;
      }
    }
  }
  std::string out;
  append_totals(out, "op", by_op, by_op.size());
  out += '\n';
  append_totals(out, "problem", by_problem, 30);
  return out;
}

void Profiler::write_chrome_trace(const std::string& path) const {
  nlohmann::json events = nlohmann::json::array();
  {
    const std::lock_guard lock(mutex_);
    for (const Event& e : events_)
      events.push_back(
          {{"name", e.span ? e.info.detail : e.info.op},
           {"cat", e.span ? "stage" : "op"},
           {"ph", "X"},
           {"pid", 1},
           {"tid", e.span ? 0 : 1},
           {"ts", e.begin_us},
           {"dur", e.duration_us},
           {"args", {{"detail", e.info.detail}, {"flops", e.info.flops}, {"bytes", e.info.bytes}}}});
  }
  AtomicFile file(path);
  file.write(nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace));
  file.commit();
}

}  // namespace rocm_sd
