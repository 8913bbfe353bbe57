// Several devices behind one queue: the demo model on two and three parts of the host.
#include "rocm_sd/multi.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "scaling/load_multi.hpp"
#include "support/failing_device.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;
using testing_support::FailingDevice;

LoadOptions demo(const std::string& devices = "") {
  return {.model = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo", .devices = devices, .dtype = "f32"};
}

// Requests that differ in size, sampler, batch and prompt, so that a stage is made anew now and then.
std::vector<GenerateRequest> requests() {
  std::vector<GenerateRequest> out;
  for (int i = 0; i < 7; ++i) {
    GenerateRequest request;
    request.prompt = i % 2 ? "a red apple" : "a smiling cat, blue";
    request.negative_prompt = "a car";
    request.width = i % 3 == 2 ? 80 : 64;
    request.height = i == 4 ? 48 : 64;
    request.steps = 2 + i % 2;
    request.seed = 10 + i;
    request.batch = i == 3 ? 2 : 1;
    if (i > 4) request.sampler = "Euler a";
    out.push_back(request);
  }
  return out;
}

using Pictures = std::vector<std::vector<uint8_t>>;

Pictures alone() {
  Pipeline pipeline = Pipeline::load(demo());
  Pictures out;
  for (const GenerateRequest& request : requests())
    for (const Picture& picture : pipeline.generate(request).pictures) out.push_back(picture.image.rgb);
  return out;
}

Pictures drawn_by(MultiPipeline& pipeline) {
  const std::vector<GenerateRequest> all = requests();
  Pictures out;
  pipeline.generate_each([&](size_t i) { return i < all.size() ? std::optional(all[i]) : std::nullopt; },
                         [&](size_t i, const GenerateResult& result) {
                           EXPECT_EQ(result.pictures.at(0).seed, static_cast<uint64_t>(all[i].seed));
                           EXPECT_FALSE(result.device.empty());
                           for (const Picture& picture : result.pictures) out.push_back(picture.image.rgb);
                         });
  return out;
}

int64_t drawn(const MultiPipeline& pipeline) {
  int64_t sum = 0;
  for (const DrawerInfo& drawer : pipeline.drawers()) sum += drawer.requests;
  return sum;
}

TEST(MultiPipelines, DrawWhatOneDeviceDraws) {
  const Pictures want = alone();
  for (const char* devices : {"cpu,cpu", "cpu,cpu,cpu"}) {
    MultiPipeline pipeline = MultiPipeline::load(demo(devices));
    EXPECT_EQ(drawn_by(pipeline), want) << devices;
    EXPECT_EQ(drawn(pipeline), static_cast<int64_t>(requests().size()));
    for (const DrawerInfo& drawer : pipeline.drawers()) EXPECT_GT(drawer.requests, 0) << devices;
  }
}

TEST(MultiPipelines, OneDeviceIsAListToo) {
  MultiPipeline plain = MultiPipeline::load(demo());
  ASSERT_EQ(plain.drawers().size(), 1u);
  const GenerateRequest request = requests()[0];
  const GenerateResult got = plain.generate(request);
  EXPECT_EQ(got.device, "");
  EXPECT_EQ(plain.plans(request).size(), 1u);
  EXPECT_GT(plain.plan(request).total(), got.plan.weights);
  EXPECT_EQ(plain.default_request().steps, 20);
}

TEST(MultiPipelines, CallsFromManyThreads) {
  const Pictures want = alone();
  MultiPipeline pipeline = MultiPipeline::load(demo("cpu,cpu"));
  const std::vector<GenerateRequest> all = requests();
  std::vector<Pictures> got(all.size());
  std::mutex mutex;
  std::set<std::string> at_work;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      Callbacks callbacks;
      callbacks.progress = [&](const Progress& p) {
        const std::lock_guard lock(mutex);
        at_work.insert(p.device);
        return true;
      };
      for (const Picture& picture : pipeline.generate(all[i], callbacks).pictures)
        got[i].push_back(picture.image.rgb);
    });
  for (std::thread& thread : threads) thread.join();
  Pictures flat;
  for (const Pictures& one : got) flat.insert(flat.end(), one.begin(), one.end());
  EXPECT_EQ(flat, want);
  EXPECT_EQ(at_work, std::set<std::string>{"cpu"});
}

TEST(MultiPipelines, ADeviceThatFailsIsTakenOut) {
  const Pictures want = alone();
  for (const int copy : {1, 5, 12}) {
    FailingDevice good("good"), bad("bad");
    MultiPipeline pipeline = load_multi_pipeline(demo(), {{"good", &good, 1}, {"bad", &bad, 1}});
    bad.fail_copy(copy);
    EXPECT_EQ(drawn_by(pipeline), want) << copy;
    const std::vector<DrawerInfo> drawers = pipeline.drawers();
    EXPECT_EQ(drawers[0].taken_out, "");
    EXPECT_THAT(drawers[1].taken_out, HasSubstr("lost, as asked"));
    EXPECT_EQ(drawn(pipeline), static_cast<int64_t>(want.size()) - 1) << "one request had two pictures";
    EXPECT_EQ(pipeline.plans(requests()[0]).size(), 1u);
  }
}

TEST(MultiPipelines, WhereAllFailTheReasonsAreTold) {
  FailingDevice one("one"), other("other");
  MultiPipeline pipeline = load_multi_pipeline(demo(), {{"one", &one, 1}, {"other", &other, 1}});
  one.fail_copy(2);
  other.fail_copy(3);
  std::vector<size_t> taken;
  const std::vector<GenerateRequest> all = requests();
  try {
    pipeline.generate_each([&](size_t i) { return std::optional(all[i % all.size()]); },
                           [&](size_t i, const GenerateResult&) { taken.push_back(i); });
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), HasSubstr("one: lost, as asked"));
    EXPECT_THAT(e.what(), HasSubstr("other: lost, as asked"));
  }
  EXPECT_THROW(pipeline.generate(all[0]), DeviceError);
  EXPECT_THROW(pipeline.plan(all[0]), DeviceError);
}

TEST(MultiPipelines, ADeviceAloneIsNotTakenOut) {
  FailingDevice device("one");
  MultiPipeline pipeline = load_multi_pipeline(demo(), {{"one", &device, 1}});
  device.fail_copy(1);
  EXPECT_THROW(pipeline.generate(requests()[0]), DeviceError);
  EXPECT_EQ(pipeline.generate(requests()[0]).pictures.size(), 1u);
}

TEST(MultiPipelines, FilesThatChangeWhileTheyAreLoadedAreRefused) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("rocm_sd_multi_" + std::to_string(::getpid()));
  std::filesystem::copy(demo().model, folder, std::filesystem::copy_options::recursive);
  std::filesystem::path weights;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "unet"))
    if (entry.path().extension() == ".safetensors") weights = entry.path();
  FailingDevice one("one"), other("other");
  other.on_allocate = [&] {
    std::filesystem::last_write_time(weights, std::filesystem::file_time_type::clock::now());
  };
  LoadOptions options = demo();
  options.model = folder.string();
  try {
    load_multi_pipeline(options, {{"one", &one, 1}, {"other", &other, 1}});
    ADD_FAILURE();
  } catch (const FormatError& e) {
    EXPECT_THAT(e.what(), HasSubstr("one and other have loaded different weights"));
  }
  std::filesystem::remove_all(folder);
}

TEST(MultiPipelines, BadListsAndBadRequests) {
  LoadOptions both = demo("cpu,cpu");
  both.device = "cpu";
  EXPECT_THROW(MultiPipeline::load(both), UsageError);
  EXPECT_THROW(MultiPipeline::load(demo("cpu,nothing")), UsageError);
  EXPECT_THROW(Pipeline::load(demo("cpu,cpu")), UsageError);
  LoadOptions split = demo("cpu,cpu");
  split.split = "pictures";
  EXPECT_THROW(MultiPipeline::load(split), UsageError);

  MultiPipeline pipeline = MultiPipeline::load(demo("cpu,cpu"));
  std::vector<GenerateRequest> all = requests();
  all[3].sampler = "no such sampler";
  std::vector<size_t> taken;
  EXPECT_THROW(pipeline.generate_each([&](size_t i) { return i < 7 ? std::optional(all[i]) : std::nullopt; },
                                      [&](size_t i, const GenerateResult&) { taken.push_back(i); }),
               UsageError);
  EXPECT_EQ(taken, (std::vector<size_t>{0, 1, 2}));
  for (const DrawerInfo& drawer : pipeline.drawers())
    EXPECT_EQ(drawer.taken_out, "") << "its request was bad";

  std::atomic<bool> stop = false;
  Callbacks callbacks;
  callbacks.cancelled = [&] { return stop.load(); };
  callbacks.progress = [&](const Progress&) { return stop = true, true; };
  EXPECT_THROW(pipeline.generate_each([&](size_t) { return std::optional(all[0]); },
                                      [](size_t, const GenerateResult&) {}, callbacks),
               CancelledError);
  EXPECT_EQ(pipeline.generate(all[0]).pictures.size(), 1u) << "usable after cancelling";
}

TEST(MultiPipelines, RandomSeedsDiffer) {
  MultiPipeline pipeline = MultiPipeline::load(demo("cpu,cpu"));
  GenerateRequest request = requests()[0];
  request.seed = -1;
  request.steps = 1;
  std::set<uint64_t> seeds;
  pipeline.generate_each([&](size_t i) { return i < 4 ? std::optional(request) : std::nullopt; },
                         [&](size_t, const GenerateResult& r) { seeds.insert(r.pictures.at(0).seed); });
  EXPECT_EQ(seeds.size(), 4u);
}

// Within a kernel, say: nobody waits for its thread, and the others draw its images.
TEST(MultiPipelines, ADeviceThatHangsIsTakenOut) {
  const Pictures want = alone();
  auto* left = new FailingDevice("left");  // a thread that hung keeps its pipeline
  auto* right = new FailingDevice("right");
  MultiPipeline pipeline = load_multi_pipeline(demo(), {{"left", left, 1}, {"right", right, 1}},
                                               {.first = 60, .later = 60, .alone = 4});
  right->hang(9);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(drawn_by(pipeline), want);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_EQ(pipeline.drawers()[0].taken_out, "");
  EXPECT_THAT(pipeline.drawers()[1].taken_out, HasSubstr("right: no sign of life for 4 s"));
  EXPECT_EQ(drawn(pipeline), static_cast<int64_t>(requests().size())) << "none twice";
  right->let_go();
}

}  // namespace
}  // namespace rocm_sd
