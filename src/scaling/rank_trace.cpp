#include "scaling/rank_trace.hpp"

#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;

// Tracks of a rank; the profile's own are the first two.
enum Track { kStages, kOperations, kExchanges, kSent, kReceived };

bool is_exchange(std::string_view op) {
  constexpr std::array<std::string_view, 2> kBegins = {"exchange", "gather"};
  for (const std::string_view begin : kBegins)
    if (op.starts_with(begin)) return true;
  return false;
}

class TraceWriter {
 public:
  explicit TraceWriter(MessageEvent::Clock::time_point begin) : begin_(begin) {}

  void add(const std::vector<TracedRank>& group, const std::string& scratch) {
    const int first = processes_ + 1;
    for (size_t rank = 0; rank < group.size(); ++rank) {
      const int process = ++processes_;
      const TracedRank& traced = group[rank];
      name(process, "process_name", 0,
           traced.messages ? concat("rank ", rank, " (", traced.name, ")") : traced.name);
      for (const auto& [track, title] : {std::pair{kStages, "stages"},
                                         {kOperations, "operations"},
                                         {kExchanges, "exchanges"},
                                         {kSent, "messages sent"},
                                         {kReceived, "messages waited for"}})
        if (traced.messages || track <= kOperations) name(process, "thread_name", track, title);
      add_profile(process, traced, scratch);
      if (traced.messages) add_messages(process, traced);
    }
    for (size_t rank = 0; rank < group.size(); ++rank)
      if (group[rank].messages) add_flights(group, static_cast<int>(rank), first);
  }

  void write(const std::string& path) const {
    AtomicFile file(path);
    file.write(json{{"traceEvents", events_}, {"displayTimeUnit", "ms"}}.dump(
        -1, ' ', false, json::error_handler_t::replace));
    file.commit();
  }

 private:
  double us(MessageEvent::Clock::time_point at) const {
    return std::chrono::duration<double, std::micro>(at - begin_).count();
  }

  void name(int process, const char* what, int track, const std::string& title) {
    events_.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", track}, {"args", {{"name", title}}}});
  }

  // What the rank's pipeline wrote itself, at its place in time.
  void add_profile(int process, const TracedRank& traced, const std::string& scratch) {
    traced.pipeline->write_profile_trace(scratch);
    // Our own file, as long as the run was.
    const json own = parse_json_file(scratch, {.max_bytes = UINT64_MAX, .max_values = UINT64_MAX});
    std::filesystem::remove(scratch);
    const double offset = us(traced.begin);
    for (json event : own.at("traceEvents")) {
      event["pid"] = process;
      event["ts"] = event.at("ts").get<double>() + offset;
      if (event.at("cat") == "op" && is_exchange(event.at("name").get<std::string>())) {
        event["tid"] = kExchanges;
        event["cat"] = "exchange";
      }
      events_.push_back(std::move(event));
    }
  }

  void add_messages(int process, const TracedRank& traced) {
    for (const MessageEvent& message : *traced.messages)
      events_.push_back({{"name", concat(message.sent ? "to rank " : "from rank ", message.other)},
                         {"cat", message.sent ? "send" : "receive"},
                         {"ph", "X"},
                         {"pid", process},
                         {"tid", message.sent ? kSent : kReceived},
                         {"ts", us(message.begin)},
                         {"dur", us(message.end) - us(message.begin)},
                         {"args", {{"bytes", message.bytes}, {"channel", message.channel}}}});
  }

  // The n-th message of a channel that a rank took of another is the n-th that this one sent there.
  void add_flights(const std::vector<TracedRank>& group, int to, int first) {
    std::map<std::pair<int, uint32_t>, std::vector<const MessageEvent*>> sent;
    for (size_t from = 0; from < group.size(); ++from)
      if (group[from].messages)
        for (const MessageEvent& message : *group[from].messages)
          if (message.sent && message.other == to)
            sent[{static_cast<int>(from), message.channel}].push_back(&message);
    std::map<std::pair<int, uint32_t>, size_t> taken;
    for (const MessageEvent& message : *group[static_cast<size_t>(to)].messages) {
      if (message.sent) continue;
      const std::pair key{message.other, message.channel};
      const std::vector<const MessageEvent*>& of_channel = sent[key];
      const size_t number = taken[key]++;
      if (number >= of_channel.size()) continue;
      const int id = ++flights_;
      for (const auto& [phase, at] : {std::pair{"b", of_channel[number]->begin}, {"e", message.end}})
        events_.push_back({{"name", concat("message of rank ", message.other)},
                           {"cat", "message"},
                           {"ph", phase},
                           {"id", id},
                           {"pid", first + to},
                           {"tid", kReceived},
                           {"ts", us(at)},
                           {"args", {{"bytes", message.bytes}, {"channel", message.channel}}}});
    }
  }

  MessageEvent::Clock::time_point begin_;
  int processes_ = 0, flights_ = 0;
  json events_ = json::array();
};

}  // namespace

void write_rank_trace(const std::string& path, const std::vector<std::vector<TracedRank>>& groups) {
  TraceWriter writer(groups.at(0).at(0).begin);
  for (const std::vector<TracedRank>& group : groups) writer.add(group, path + ".rank");
  writer.write(path);
}

}  // namespace rocm_sd
