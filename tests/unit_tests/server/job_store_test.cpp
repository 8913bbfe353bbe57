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

TEST(JobJoining, DiffersInTextsAndSeedAlone) {
  const std::string key = joining_key(drawn("a", {{"steps", "4"}, {"seed", "1"}}));
  EXPECT_FALSE(key.empty());
  EXPECT_EQ(key, joining_key(drawn("b", {{"seed", "9"}, {"steps", "4"}})));
  EXPECT_EQ(key, joining_key(drawn("b", {{"steps", "4"}})));
  EXPECT_NE(key, joining_key(drawn("a", {{"steps", "5"}})));
  EXPECT_NE(key, joining_key(drawn("a", {{"steps", "4"}, {"negative-prompt", ""}})));
  EXPECT_EQ(joining_key(drawn("a", {{"negative-prompt", "x"}})),
            joining_key(drawn("a", {{"negative-prompt", ""}})));
  JobRequest other = drawn("a", {{"steps", "4"}});
  other.format = "jpeg";
  EXPECT_NE(key, joining_key(other));
  JobRequest several = drawn("a"), pictures = drawn("a"), looks = drawn("a"), large = drawn("a");
  several.rounds = 2;
  pictures.files = {{"init-image", "x"}};
  looks.partials = 1;
  large.enlargement.upscaler = "lanczos";
  for (const JobRequest& alone :
       {several, pictures, looks, large, drawn("a <lora:b:1>"), drawn("a AND b"),
        drawn("a", {{"hires-scale", "2"}}), drawn("a", {{"variation-strength", "0.5"}}),
        drawn("a", {{"image-prompt", "x"}})})
    EXPECT_EQ(joining_key(alone), "");
  const JoinedTexts texts = joined_texts(drawn("a", {{"seed", "18"}, {"negative-prompt", "n"}}));
  EXPECT_TRUE(texts.prompt == "a" && texts.negative_prompt == "n" && texts.seed == 18);
  EXPECT_FALSE(joined_texts(drawn("a", {{"seed", "-1"}})).seed.has_value());
}

TEST(JobStore, GivesAlikeJobsTogetherAndApartOnceTheyFailed) {
  JobStore store({});
  const std::string a = store.submit(drawn("a"), "c"),
                    other = store.submit(drawn("x", {{"steps", "9"}}), "c"),
                    b = store.submit(drawn("b"), "c"), c = store.submit(drawn("c"), "c");
  std::vector<Work> works = store.take_together("cpu", 2);
  ASSERT_EQ(works.size(), 2u);
  EXPECT_TRUE(works[0].id == a && works[1].id == b);
  EXPECT_EQ(store.view(b)->state, JobState::kRunning);
  store.add_image(a, image(5));
  store.separate({a, b});
  EXPECT_EQ(store.view(a)->state, JobState::kQueued);
  EXPECT_EQ(store.counts().result_bytes, 0u);
  for (const std::string& id : {a, b, other, c}) {  // each by itself, in their order
    works = store.take_together("cpu", 8);
    ASSERT_EQ(works.size(), 1u);
    EXPECT_EQ(works[0].id, id);
    store.complete(id, {});
  }
  EXPECT_TRUE(store.take_together("cpu", 8).empty());
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
