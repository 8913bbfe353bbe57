// Plan, run and capture of one forward; cancellation; the profiler's outputs.
#include "runtime/exec.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "runtime/stop_request.hpp"

namespace rocm_sd {
namespace {

// y = x * factor through a temporary, as an op would.
void scale_twice(Exec& ex, const Tensor& x, const Tensor& y, int* launches) {
  const Tensor middle = ex.alloc_like(x);
  const auto scale = [&](const Tensor& from, const Tensor& to) {
    const float* in = from.as<float>();
    float* out = to.as<float>();
    const int64_t n = from.numel();
    ex.launch({"scale", "test", static_cast<double>(n), 8.0 * static_cast<double>(n)}, [=] {
      ++*launches;
      for (int64_t i = 0; i < n; ++i) out[i] = 2 * in[i];
    });
  };
  scale(x, middle);
  scale(middle, y);
}

class ProgramTest : public testing::Test {
 protected:
  Arena arena{host_device()};
  Tensor x = make_tensor(host_device(), {8}, DType::kF32);
  Tensor y = make_tensor(host_device(), {8}, DType::kF32);
  int launches = 0;
  Program program{"scale", arena, [this](Exec& ex) { scale_twice(ex, x, y, &launches); }};
};

TEST_F(ProgramTest, PlansThenCapturesThenReplays) {
  program.plan();
  EXPECT_EQ(launches, 0);
  EXPECT_EQ(program.arena_bytes(), 64u);
  EXPECT_EQ(program.flops(), 16);
  EXPECT_EQ(program.problems().at("scale test").launches, 2);
  EXPECT_EQ(program.problems().at("scale test").op, "scale");
  for (int round = 1; round <= 3; ++round) {
    std::vector<float> values(8, static_cast<float>(round));
    upload(host_device(), x, values.data(), 8);
    program.run();
    EXPECT_EQ(to_floats(host_device(), y)[7], 4.0f * round);
    EXPECT_EQ(launches, 2 * round);
  }
  arena.reserve(
      1 << 16);  // the arena moves: the graph must be captured again, not replayed into freed memory
  program.run();
  EXPECT_EQ(to_floats(host_device(), y)[0], 12.0f);
}

// A long launch on the host looks at the request itself; what it leaves undone is never used.
TEST(StopRequest, IsSeenInsideALaunch) {
  Arena arena(host_device());
  Exec ex(arena);
  int asked = 0, done = 0;
  const CancelCheck check = [&] { return ++asked > 10; };
  const auto body = [&] {
    StopRequest stop;
    for (int i = 0; i < 1000; ++i)
      if (!stop.asked()) ++done;
  };
  ex.launch({"long", "test", 1, 1}, body);
  EXPECT_EQ(done, 1000) << "nobody can ask";
  done = 0;
  ex.cancel = &check;
  EXPECT_THROW(ex.launch({"long", "test", 1, 1}, body), CancelledError);
  EXPECT_EQ(done, 9);  // one question came before the launch
  ex.cancel = nullptr;
  done = 0;
  ex.launch({"long", "test", 1, 1}, body);
  EXPECT_EQ(done, 1000) << "the request ended with its launch";
}

TEST_F(ProgramTest, StopsWhenCancelled) {
  const CancelCheck cancel = [] { return true; };
  EXPECT_THROW(program.run(nullptr, &cancel), CancelledError);
  EXPECT_EQ(launches, 0);
  program.run();
  EXPECT_EQ(launches, 2);
}

TEST_F(ProgramTest, Profiles) {
  Profiler profiler;
  program.run(&profiler);
  EXPECT_NE(profiler.table().find("scale"), std::string::npos);
  const std::string path = testing::TempDir() + "rocm_sd_trace.json";
  profiler.write_chrome_trace(path);
  const auto trace = nlohmann::json::parse(std::ifstream(path));
  EXPECT_EQ(trace["traceEvents"].size(), 3u);  // two launches and their span
  EXPECT_EQ(trace["traceEvents"][0]["args"]["flops"], 8.0);
  std::remove(path.c_str());
  EXPECT_THROW(profiler.write_chrome_trace("/nonexistent/trace.json"), FileError);
}

TEST(Tensor, ViewsShareMemory) {
  const float values[6] = {0, 1, 2, 3, 4, 5};
  const Tensor t = tensor_from(host_device(), {2, 3}, values);
  const Tensor column = t.narrow(1, 1, 2);
  EXPECT_FALSE(column.is_contiguous());
  EXPECT_EQ(column.as<float>()[column.stride(0)], 4.0f);
  EXPECT_EQ(t.narrow(0, 1, 1).reshape({3}).as<float>()[0], 3.0f);
  EXPECT_THROW(t.narrow(1, 2, 2), ShapeError);
  EXPECT_THROW(column.reshape({4}), ShapeError);
}

TEST(Tensor, ConvertsOnTheWay) {
  const float values[3] = {1.0f, -2.5f, 1.00390625f};
  const Tensor t = tensor_from(host_device(), {3}, values, DType::kBF16);
  EXPECT_EQ(to_floats(host_device(), t), (std::vector<float>{1.0f, -2.5f, 1.0f}));
}

}  // namespace
}  // namespace rocm_sd
