// The journal: what it was told comes back, in order, after the store or the process ended at any moment.
#include "server/journal.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "server/job_store.hpp"

namespace rocm_sd::server {
namespace {

namespace fs = std::filesystem;

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("rocm_sd_journal_" + random_id());
    fs::create_directory(folder_);
    path = (folder_ / "jobs.sqlite").string();
  }
  void TearDown() override { fs::remove_all(folder_); }
  // As a killed process leaves it: the files, without the end of a connection.
  std::string copy() {
    const std::string to = (folder_ / (random_id() + ".sqlite")).string();
    for (const char* ending : {"", "-wal"})
      if (fs::exists(path + ending)) fs::copy_file(path + ending, to + ending);
    return to;
  }
  fs::path folder_;
  std::string path;
};

JobRequest request(const std::string& prompt) {
  JobRequest r;
  r.model = "m";
  r.options = {{"prompt", prompt}, {"seed", "3"}};
  r.files = {{"init-image", std::string("a\0b\xff", 4)}, {"ip-image", "two", true}};
  r.rounds = 2;
  r.format = "webp";
  r.inverts_mask = true;
  return r;
}

TEST_F(JournalTest, GoesOnWithQueuedAndRunningJobsAndKeepsResults) {
  std::string done, failed, running, first, second, front, awaited;
  const uint64_t seed = ~uint64_t{0} - 5;
  Journal journal(path);
  JobStore store({}, &journal);
  done = store.submit(request("done"), "a");
  failed = store.submit(request("failed"), "b");
  running = store.submit(request("running"), "a");
  first = store.submit(request("first"), "a");
  second = store.submit(request("second \xc3\xa9"), "a");
  front = store.submit(request("front"), "a", QueuePlace::kFront);
  JobRequest waits = request("awaited");
  waits.awaited = true;
  awaited = store.submit(waits, "a");
  ASSERT_EQ(store.take("cpu")->id, front);
  store.cancel(front);
  store.cancelled(front);
  ASSERT_EQ(store.take("cpu")->id, done);
  store.add_image(done, {std::string("x\0y", 3), seed, 8, 16, "text"});
  store.complete(done, {"a warning"});
  store.take("cpu");
  store.fail(failed, {422, "type", "message"});
  ASSERT_EQ(store.take("cpu")->id, running);
  store.add_image(running, {"half", 1, 8, 8, ""});

  Journal again(copy());
  JobStore next({}, &again);
  EXPECT_EQ(next.take("cpu")->id, running);  // before those that waited
  EXPECT_TRUE(next.view(running)->images.empty());
  const auto work = next.take("cpu");
  ASSERT_EQ(work->id, first);
  EXPECT_EQ(work->request->options, request("first").options);
  ASSERT_EQ(work->request->files.size(), 2u);
  EXPECT_EQ(work->request->files[0].bytes, request("").files[0].bytes);
  EXPECT_TRUE(work->request->files[1].joins && !work->request->files[0].joins);
  EXPECT_TRUE(work->request->rounds == 2 && work->request->format == "webp" && work->request->inverts_mask);
  EXPECT_EQ(next.take("cpu")->id, second);
  EXPECT_FALSE(next.take("cpu").has_value());
  EXPECT_FALSE(next.view(awaited).has_value());
  const JobView kept = *next.view(done);
  ASSERT_EQ(kept.images.size(), 1u);
  EXPECT_TRUE(kept.state == JobState::kCompleted && kept.images[0]->bytes == std::string("x\0y", 3));
  EXPECT_TRUE(kept.images[0]->seed == seed && kept.images[0]->height == 16 && kept.warnings.size() == 1);
  EXPECT_EQ(next.view(failed)->error.message, "message");
  EXPECT_EQ(next.view(failed)->error.status, 422);
  EXPECT_EQ(next.view(front)->state, JobState::kCancelled);
  EXPECT_EQ(next.counts().result_bytes, 3u);
}

TEST_F(JournalTest, AnEndOfTheServerIsNoCancel) {
  std::string running, wanted, queued;
  {
    Journal journal(path);
    JobStore store({}, &journal);
    running = store.submit(request("running"), "a");
    wanted = store.submit(request("cancelled by its client"), "a");
    queued = store.submit(request("queued"), "a");
    store.take("cpu");
    store.take("cuda");
    store.cancel(wanted);
    store.close("ends");
    EXPECT_FALSE(store.idle());
    EXPECT_FALSE(store.take("cpu").has_value());
    store.stop_running();
    EXPECT_TRUE(store.cancel_asked(running));
    store.cancelled(running);
    store.cancelled(wanted);
    EXPECT_TRUE(store.idle());
  }
  Journal journal(path);
  JobStore store({}, &journal);
  EXPECT_EQ(store.take("cpu")->id, running);
  EXPECT_EQ(store.take("cpu")->id, queued);
  EXPECT_EQ(store.view(wanted)->state, JobState::kCancelled);
}

TEST_F(JournalTest, AJobThatRanAtEachDeathFails) {
  std::string id, from = path;
  std::vector<std::string> states;
  for (int death = 0; death < 11; ++death) {
    Journal journal(from);
    JobStore store({}, &journal);
    if (death == 0) id = store.submit(request("poison"), "a");
    states.emplace_back(to_string(store.view(id)->state));
    store.take("cpu");
    path = from;
    from = copy();
  }
  EXPECT_EQ(std::ranges::count(states, "queued"), 10);
  EXPECT_EQ(states.back(), "failed");
}

TEST_F(JournalTest, ForgetsWhatIsDropped) {
  {
    Journal journal(path);
    JobStore store({.keep_bytes = 5}, &journal);
    for (int i = 0; i < 3; ++i) {
      const std::string id = store.submit(request("a"), "a");
      store.take("cpu");
      store.add_image(id, {"1234", 1, 8, 8, ""});
      store.complete(id, {});
    }
  }
  Journal journal(path);
  EXPECT_EQ(journal.read().size(), 1u);
}

TEST_F(JournalTest, IsForItsOwnerAndForOneServer) {
  Journal journal(path);
  struct stat status{};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THROW(Journal second(path), UsageError);
}

TEST_F(JournalTest, RefusesOtherFiles) {
  EXPECT_THROW(Journal journal(folder_.string()), FileError);
  EXPECT_THROW(Journal journal((folder_ / "none" / "x").string()), FileError);
  std::ofstream(path) << "this is no database, but text of some length that goes on for a while";
  EXPECT_THROW(Journal journal(path), FormatError);
  fs::remove(path);
  {
    Journal journal(path);
  }
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (size_t at = 0; at < bytes.size(); at += 531) {  // any byte changed: a value, or an error that is known
    std::string broken = bytes;
    broken[at] = static_cast<char>(broken[at] ^ 0x5a);
    const std::string file = (folder_ / "broken").string();
    std::ofstream(file, std::ios::binary) << broken;
    try {
      Journal journal(file);
      journal.read();
    } catch (const Error&) {
    }
    for (const char* ending : {"", "-wal", "-shm", "-journal"}) fs::remove(file + ending);
  }
}

}  // namespace
}  // namespace rocm_sd::server
