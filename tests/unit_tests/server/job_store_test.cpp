// The queue and the results: order, bounds, events, expiry.
#include "server/job_store.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "server/http.hpp"
#include "server/job_joining.hpp"

namespace rocm_sd::server {
namespace {

JobRequest request(int rounds = 1) {
  JobRequest r;
  r.model = "m";
  r.rounds = rounds;
  return r;
}
JobImage image(size_t bytes) { return {std::string(bytes, 'x'), 1, 8, 8, "text"}; }

TEST(JobStore, GivesJobsInOrderAndKeepsResults) {
  JobStore store({});
  const std::string first = store.submit(request(2), "a"), second = store.submit(request(), "a");
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(store.view(second)->position, 1u);
  ASSERT_EQ(store.take("cpu")->id, first);
  EXPECT_EQ(store.view(second)->position, 0u);
  store.progress(first, {"sample", 5, 10, 1});
  EXPECT_DOUBLE_EQ(store.view(first)->fraction(), 0.75);
  store.add_image(first, image(10));
  store.complete(first, {"a warning"});
  const JobView done = *store.view(first);
  EXPECT_EQ(done.state, JobState::kCompleted);
  EXPECT_EQ(done.images.size(), 1u);
  EXPECT_EQ(done.fraction(), 1);
  EXPECT_EQ(store.take("cpu")->id, second);
  EXPECT_FALSE(store.take("cpu").has_value());
  EXPECT_FALSE(store.view("nothing").has_value());
}

TEST(JobStore, RefusesMoreThanTheQueueHolds) {
  JobStore store({.queued = 3, .queued_per_client = 2});
  store.submit(request(), "a");
  store.submit(request(), "a");
  const auto status = [&](const char* client) {
    try {
      store.submit(request(), client);
    } catch (const RequestError& e) {
      return e.error().status;
    }
    return 0;
  };
  EXPECT_EQ(status("a"), 429);  // its share
  EXPECT_EQ(status("b"), 0);
  EXPECT_EQ(status("c"), 429);  // all
  EXPECT_EQ(store.counts().rejected, 2u);
  store.take("cpu");
  EXPECT_EQ(status("c"), 0);
  store.close("ends");
  EXPECT_EQ(status("d"), 503);
}

TEST(JobStore, CancelsOnceAndForAll) {
  JobStore store({});
  const std::string queued = store.submit(request(), "a"), running = store.submit(request(), "a");
  EXPECT_EQ(store.cancel(queued), JobState::kCancelled);
  EXPECT_EQ(store.cancel(queued), JobState::kCancelled);
  ASSERT_EQ(store.take("cpu")->id, running);
  EXPECT_EQ(store.cancel(running), JobState::kRunning);
  EXPECT_TRUE(store.cancel_asked(running));
  store.cancelled(running);
  EXPECT_EQ(store.view(running)->state, JobState::kCancelled);
  EXPECT_EQ(store.cancel("nothing"), std::nullopt);
  EXPECT_EQ(store.counts().cancelled, 2u);
}

TEST(JobStore, TellsWatchersEachChange) {
  JobStore store({});
  const std::string id = store.submit(request(), "a");
  std::vector<std::string> told;
  const auto watcher = [&](const std::string& what, const std::string& text, bool is_final) {
    EXPECT_NE(text.find("\"id\":\"" + id), std::string::npos);
    told.push_back(what + (is_final ? "!" : ""));
  };
  ASSERT_TRUE(store.watch(id, 1, watcher));
  store.take("cpu");
  store.progress(id, {"sample", 1, 2, 0});
  store.fail(id, {500, "type", "message"});
  store.progress(id, {"sample", 2, 2, 0});  // nobody listens any more
  EXPECT_EQ(told, (std::vector<std::string>{"queued", "running", "progress", "failed!"}));
  told.clear();
  ASSERT_TRUE(store.watch(id, 2, watcher));
  EXPECT_EQ(told, std::vector<std::string>{"failed!"});
  EXPECT_FALSE(store.watch("nothing", 3, watcher));
}

TEST(JobStore, DropsTheOldestResultsFirst) {
  JobStore store({.keep_bytes = 25});
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(store.submit(request(), "a"));
    store.take("cpu");
    store.add_image(ids.back(), image(10));
    store.complete(ids.back(), {});
  }
  EXPECT_FALSE(store.view(ids[0]) || store.view(ids[1]));
  EXPECT_TRUE(store.was_known(ids[0]) && !store.was_known("nothing"));
  EXPECT_TRUE(store.view(ids[2]) && store.view(ids[3]));
  EXPECT_EQ(store.counts().result_bytes, 20u);
  EXPECT_TRUE(store.remove(ids[3]));
  EXPECT_FALSE(store.remove(ids[3]));
  EXPECT_EQ(store.counts().result_bytes, 10u);
}

TEST(JobStore, DropsResultsThatAreTooOld) {
  JobStore store({.keep_results = std::chrono::seconds(0)});
  const std::string id = store.submit(request(), "a");
  store.take("cpu");
  store.complete(id, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  store.expire();
  EXPECT_FALSE(store.view(id).has_value());
}

TEST(JobStore, AsksForPreviewsWhileSomebodyLooks) {
  JobStore store({});
  const std::string id = store.submit(request(), "a");
  store.take("cpu");
  EXPECT_FALSE(store.take_look(id));  // nobody does
  store.look(id);
  EXPECT_TRUE(store.take_look(id));
  EXPECT_FALSE(store.take_look(id));
  store.add_preview(id, {"first", 8, 8, 1, 4});
  EXPECT_FALSE(store.take_look(id));
  EXPECT_EQ(store.view(id)->preview->bytes, "first");
  std::vector<std::string> seen;
  ASSERT_TRUE(store.watch_previews(id, 1, [&](const JobPreview& p) { seen.push_back(p.bytes); }));
  EXPECT_TRUE(store.take_look(id));
  store.add_preview(id, {"second", 8, 8, 2, 4});
  EXPECT_TRUE(store.take_look(id));  // a watcher goes on looking
  store.unwatch(id, 1);
  store.add_preview(id, {"third", 8, 8, 3, 4});
  EXPECT_FALSE(store.take_look(id));
  EXPECT_EQ(seen, std::vector<std::string>{"second"});
  store.complete(id, {});
  EXPECT_EQ(store.view(id)->preview, nullptr);
  EXPECT_FALSE(store.watch_previews(id, 2, [](const JobPreview&) {}));
}

JobRequest drawn(const std::string& prompt, std::vector<std::pair<std::string, std::string>> more = {}) {
  JobRequest r = request();
  r.options = std::move(more);
  r.options.emplace_back("prompt", prompt);
  return r;
}

TEST(JobJoining, AsksForTheSameModelSizeAndMergedLoras) {
  const JoiningRules rules{.default_size = [](const std::string&) { return std::pair{128, 64}; }};
  const auto key = [&](const JobRequest& r) { return joining_key(r, rules); };
  const std::string plain = key(drawn("a", {{"steps", "4"}, {"seed", "1"}}));
  EXPECT_FALSE(plain.empty());
  for (const JobRequest& same :
       {drawn("b [c|d] AND e",
              {{"steps", "5"}, {"sampler", "heun"}, {"cfg-scale", "3"}, {"negative-prompt", "n"}}),
        drawn("a", {{"width", "128"}, {"height", "64"}}), drawn("a", {{"width", "128"}}),
        drawn("a", {{"tiling", "false"}, {"pag-scale", "0"}, {"variation-strength", "0.5"}, {"batch", "2"}}),
        drawn("a <lora:b:1>", {{"lora-mode", "runtime"}}), drawn("a <lora:b:1>", {{"plain-prompt", "true"}})})
    EXPECT_EQ(key(same), plain) << same.options.front().first;
  JobRequest other = drawn("a"), several = drawn("a"), looks = drawn("a"), jpeg = drawn("a");
  other.model = "other";
  several.rounds = 2;
  looks.partials = 1;
  jpeg.format = "jpeg";
  for (const JobRequest& same : {several, looks, jpeg}) EXPECT_EQ(key(same), plain);
  EXPECT_NE(key(other), plain);
  EXPECT_NE(key(drawn("a", {{"width", "64"}})), plain);
  const std::string merged = key(drawn("a <lora:b:0.5>"));
  EXPECT_NE(merged, plain);
  EXPECT_EQ(merged, key(drawn("<lora:b:0.50> c")));
  EXPECT_NE(merged, key(drawn("a <lora:b:0.6>")));
  EXPECT_NE(merged, key(drawn("a", {{"lora", "/b:0.5:0.5"}})));
  EXPECT_EQ(joining_key(drawn("a <lora:b:1>"), {.lora_mode = "runtime"}), joining_key(drawn("a"), {}));
}

TEST(JobJoining, LeavesOutWhatIsDrawnAlone) {
  JobRequest enlarged = drawn("a"), masked = drawn("a"), started = drawn("a");
  enlarged.enlargement.upscaler = "lanczos";
  masked.files = {{"init-image", "x"}, {"mask", "y"}};
  started.files = {{"init-image", "x"}};  // whose size nobody knows here
  for (const JobRequest& alone :
       {enlarged, masked, started, drawn("a", {{"hires-scale", "2"}}), drawn("a", {{"tiling", "true"}}),
        drawn("a", {{"freeu", "1,1,1,1"}}), drawn("a", {{"control", "/c"}}), drawn("a", {{"region", "b"}})})
    EXPECT_EQ(joining_key(alone, {}), "");
  started.options.insert(started.options.end(), {{"width", "64"}, {"height", "64"}});
  EXPECT_NE(joining_key(started, {}), "");
}

TEST(JobStore, GivesJobsThatJoinAndEachAloneOnceTheirWorkerEnded) {
  JobStore store({});
  const std::string a = store.submit(drawn("a"), "c"),
                    other = store.submit(drawn("x", {{"width", "64"}}), "c"),
                    b = store.submit(drawn("b", {{"steps", "9"}}), "c"), c = store.submit(drawn("c"), "c");
  const std::optional<Work> first = store.take("cpu");
  ASSERT_TRUE(first && first->id == a && !first->key.empty());
  EXPECT_TRUE(store.take_joining("cpu", first->key, 0).empty());
  std::vector<Work> works = store.take_joining("cpu", first->key, 1);
  ASSERT_EQ(works.size(), 1u);
  EXPECT_EQ(works[0].id, b);
  EXPECT_EQ(store.view(b)->state, JobState::kRunning);
  store.add_image(a, image(5));
  store.separate({a, b});
  EXPECT_EQ(store.view(a)->state, JobState::kQueued);
  EXPECT_EQ(store.counts().result_bytes, 0u);
  for (const std::string& id : {a, b, other, c}) {  // each by itself, in their order
    const std::optional<Work> work = store.take("cpu");
    ASSERT_TRUE(work && work->id == id);
    EXPECT_EQ(work->key.empty(), id == a || id == b);
    store.complete(id, {});
  }
  EXPECT_FALSE(store.take("cpu").has_value());
}

TEST(JobStore, NobodyIsPassedForEver) {
  JobStore store({.queued = 100, .queued_per_client = 100, .overtaken = 3});
  store.submit(drawn("first"), "c");
  const std::string key = store.take("cpu")->key;
  JobRequest four = drawn("four images");  // it could join, if there were room
  four.batch = 4;
  const std::string other = store.submit(drawn("x", {{"width", "64"}}), "c");
  std::vector<std::string> joining;
  for (int i = 0; i < 2; ++i) joining.push_back(store.submit(drawn("a"), "c"));
  const std::string large = store.submit(four, "c");
  for (int i = 0; i < 5; ++i) joining.push_back(store.submit(drawn("a"), "c"));
  std::vector<std::string> got;
  for (int i = 0; i < 20; ++i)
    for (const Work& work : store.take_joining("cpu", key, 1)) got.push_back(work.id);
  EXPECT_EQ(got, std::vector<std::string>(joining.begin(), joining.begin() + 3));
  EXPECT_EQ(store.take("cpu")->id, other);  // the batch has ended
  const std::vector<Work> works = store.take_joining("cpu", key, 8);
  ASSERT_EQ(works.size(), 5u);
  EXPECT_EQ(works[0].id, large);
}

TEST(JobStore, LeavesJobsToWorkersThatAreFree) {
  JobStore store({});
  int one = 0, two = 0;
  store.submit(drawn("first"), "c");
  const std::string key = store.take("cpu")->key;
  store.set_free(&one, true);
  store.set_free(&two, true);
  for (int i = 0; i < 3; ++i) store.submit(drawn("a"), "c");
  EXPECT_EQ(store.take_joining("cpu", key, 8).size(), 1u);
  store.set_free(&one, false);
  EXPECT_EQ(store.take_joining("cpu", key, 8).size(), 1u);
  store.set_free(&two, false);
  EXPECT_EQ(store.take_joining("cpu", key, 8).size(), 1u);
}

TEST(JobStore, SkipsTheRunningOnly) {
  JobStore store({});
  const std::string running = store.submit(request(), "a"), queued = store.submit(request(), "a");
  store.take("cpu");
  store.skip_running();
  EXPECT_TRUE(store.take_skip(running));
  EXPECT_FALSE(store.take_skip(running));
  EXPECT_FALSE(store.take_skip(queued));
}

}  // namespace
}  // namespace rocm_sd::server
