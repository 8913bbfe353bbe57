// The trace of several ranks: each has its operations, its exchanges on a track of their own, and every
// message that it took of another, from the moment when it was sent.
#include "scaling/rank_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "rocm_sd/multi.hpp"

namespace rocm_sd {
namespace {

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";

struct Event {
  std::string name, category;
  int process = 0, track = 0;
  double begin = 0, end = 0;
};

struct Trace {
  std::vector<Event> events;  // complete ones
  std::vector<Event> flights;
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> tracks;
  std::map<int, uint64_t> sent, received;  // bytes, by process

  std::vector<Event> of(int process, const std::string& category) const {
    std::vector<Event> out;
    for (const Event& e : events)
      if (e.process == process && e.category == category) out.push_back(e);
    return out;
  }
};

Trace trace_of(const std::string& split, const std::string& devices) {
  MultiPipeline pipeline =
      MultiPipeline::load({.model = kModel, .devices = devices, .split = split, .dtype = "f32"});
  pipeline.enable_profiling();
  GenerateRequest request;
  request.prompt = "a red apple";
  request.width = 64;
  request.height = 128;
  request.steps = 3;
  request.seed = 3;
  pipeline.generate(request);
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("rocm_sd_trace_" + std::to_string(::getpid()) + ".json");
  pipeline.write_profile_trace(path);
  const nlohmann::json json = parse_json_file(path, {.max_bytes = 1u << 30, .max_values = 100'000'000});
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".rank"));
  std::filesystem::remove(path);
  Trace out;
  std::map<int, Event> open;
  for (const nlohmann::json& e : json.at("traceEvents")) {
    const std::string phase = e.at("ph"), name = e.at("name");
    const int process = e.at("pid"), track = e.at("tid");
    if (phase == "M") {
      const std::string title = e.at("args").at("name");
      if (name == "process_name")
        out.processes[process] = title;
      else
        out.tracks[{process, track}] = title;
      continue;
    }
    const double at = e.at("ts");
    if (phase == "b") open[e.at("id")] = {name, e.at("cat"), process, track, at, 0};
    if (phase == "e") {
      Event& flight = open.at(e.at("id"));
      flight.end = at;
      out.flights.push_back(flight);
    }
    if (phase != "X") continue;
    const std::string category = e.at("cat");
    out.events.push_back({name, category, process, track, at, at + e.at("dur").get<double>()});
    if (category == "send") out.sent[process] += e.at("args").at("bytes").get<uint64_t>();
    if (category == "receive") out.received[process] += e.at("args").at("bytes").get<uint64_t>();
  }
  return out;
}

class RankTraces : public testing::TestWithParam<const char*> {};

TEST_P(RankTraces, HaveExchangesOfEveryRankOnATrackOfTheirOwn) {
  const Trace trace = trace_of(GetParam(), "cpu,cpu");
  ASSERT_EQ(trace.processes.size(), 2u);
  uint64_t sent = 0, received = 0;
  size_t messages = 0;
  for (const auto& [process, title] : trace.processes) {
    EXPECT_EQ(title, "rank " + std::to_string(process - 1) + " (cpu)");
    EXPECT_GT(trace.of(process, "op").size(), 100u);
    const std::vector<Event> exchanges = trace.of(process, "exchange");
    EXPECT_GT(exchanges.size(), 20u);
    for (const Event& e : exchanges) {
      EXPECT_EQ((trace.tracks.at({process, e.track})), "exchanges") << e.name;
      EXPECT_GE(e.end, e.begin);
    }
    for (const Event& e : trace.of(process, "op"))
      EXPECT_EQ((trace.tracks.at({process, e.track})), "operations") << e.name;
    messages += trace.of(process, "receive").size();
    sent += trace.sent.at(process);
    received += trace.received.at(process);
  }
  EXPECT_EQ(trace.flights.size(), messages) << "each has been sent by somebody";
  for (const Event& flight : trace.flights) EXPECT_GE(flight.end, flight.begin) << "sent before it was taken";
  EXPECT_GE(sent, received);
  EXPECT_EQ(sent == received, !std::string(GetParam()).starts_with("displaced"))
      << "what the last call sent nobody reads";
}

INSTANTIATE_TEST_SUITE_P(Splits, RankTraces, testing::Values("rows", "tensor", "displaced:1"),
                         [](const auto& info) { return std::string(info.param).substr(0, 6); });

// What displaced rows are for: a message is under way while its receiver computes, for longer than any
// message of exact rows, each of which is taken within the exchange that it was sent in.
TEST(RankTraces, ShowMessagesThatOverlapComputation) {
  const auto operations_in_flight = [](const Trace& trace) {
    size_t most = 0;
    for (const Event& flight : trace.flights) {
      size_t within = 0;
      for (const Event& op : trace.of(flight.process, "op"))
        within += op.begin >= flight.begin && op.end <= flight.end;
      most = std::max(most, within);
    }
    return most;
  };
  // A call of the UNet has hundreds of operations between an exchange and the same one of the next call.
  EXPECT_GT(operations_in_flight(trace_of("displaced:1", "cpu,cpu")), 200u);
}

TEST(RankTraces, HaveDevicesThatDrawAlone) {
  const Trace trace = trace_of("images", "cpu,cpu");
  EXPECT_EQ(trace.processes.at(1), "cpu");
  EXPECT_EQ(trace.processes.size(), 2u);
  EXPECT_GT(trace.of(1, "op").size() + trace.of(2, "op").size(), 100u);
  EXPECT_TRUE(trace.flights.empty());
}

}  // namespace
}  // namespace rocm_sd
