// Ranks that are processes: they meet, pass messages of any size, and say which of them was killed, stopped
// or has left; requests that they divide are drawn once each. The processes are forked before anything else
// runs in them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "scaling/claims.hpp"
#include "scaling/link_test.hpp"
#include "scaling/shared_hub.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

std::string job() {
  static int number = 0;
  return board_path(concat("test-", static_cast<int64_t>(::getpid()), "-", ++number));
}

class Processes {
 public:
  // body(rank) -> what the process prints; errors' texts are that, too.
  Processes(int count, const std::function<std::string(int)>& body) {
    for (int rank = 0; rank < count; ++rank) {
      int ends[2];
      if (::pipe(ends) != 0) std::abort();
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(ends[0]);
        std::string told;
        try {
          told = body(rank);
        } catch (const std::exception& e) {
          told = e.what();
        }
        const ssize_t written = ::write(ends[1], told.data(), told.size());
        ::_exit(written == static_cast<ssize_t>(told.size()) ? 0 : 1);
      }
      ::close(ends[1]);
      pids_.push_back(pid);
      pipes_.push_back(ends[0]);
    }
  }
  ~Processes() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
    for (const int pipe : pipes_) ::close(pipe);
  }
  void signal(int rank, int number) { ::kill(pids_[static_cast<size_t>(rank)], number); }
  // Until it ends.
  std::string told(int rank) {
    std::string out;
    char bytes[512];
    for (ssize_t got; (got = ::read(pipes_[static_cast<size_t>(rank)], bytes, sizeof bytes)) > 0;)
      out.append(bytes, static_cast<size_t>(got));
    return out;
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> pipes_;
};

std::string all_gather_at_random(SharedHub& hub, int rank, int rounds) {
  HubRanks ranks(hub, rank);
  std::mt19937 random(11);
  hub.begin_call(rank);
  ranks.begin();
  for (int round = 0; round < rounds; ++round) {
    std::vector<size_t> ends;  // some parts are larger than a ring
    for (int r = 0; r < hub.count(); ++r)
      ends.push_back((ends.empty() ? 0 : ends.back()) + random() % (round % 5 == 4 ? 9'000'000 : 3000));
    std::vector<unsigned char> want(ends.back()), all(ends.back(), 0xee);
    for (size_t i = 0; i < want.size(); ++i)
      want[i] = static_cast<unsigned char>(i * 7 + i / 251 + static_cast<size_t>(round));
    const auto own = static_cast<size_t>(rank);
    const size_t begin = own ? ends[own - 1] : 0;
    std::copy_n(want.begin() + static_cast<ptrdiff_t>(begin), ends[own] - begin,
                all.begin() + static_cast<ptrdiff_t>(begin));
    all_gather(ranks, all.data(), ends);
    if (all != want) return concat("round ", round, ": other bytes");
  }
  const LinkTest test = test_links(ranks);
  hub.end_call(rank);
  return test.bytes_per_second > 0 && test.seconds > 0 ? "well" : "no figures";
}

TEST(ProcessRanks, PassMessagesOfAnySize) {
  for (const int count : {2, 3, 4}) {
    const std::string path = job();
    Processes processes(count, [&](int rank) {
      SharedHub hub(path, rank, count, "cpu", {});
      return all_gather_at_random(hub, rank, 10);
    });
    for (int rank = 0; rank < count; ++rank) EXPECT_EQ(processes.told(rank), "well") << count;
    EXPECT_FALSE(std::filesystem::exists(path)) << "nothing is left";
  }
}

TEST(ProcessRanks, ChannelsAreApart) {
  const std::string path = job();
  Processes processes(2, [&](int rank) -> std::string {
    SharedHub hub(path, rank, 2, "cpu", {});
    hub.begin_call(rank);
    hub.begin(rank);
    int value = 0;
    if (rank == 0) {
      for (int i : {1, 2, 3}) hub.send(0, 1, &i, sizeof i, static_cast<uint32_t>(i % 2));
      hub.receive(1, 0, &value, sizeof value);
      return std::to_string(value);
    }
    std::string order;
    for (const uint32_t channel : {0u, 1u, 1u}) {
      hub.receive(0, 1, &value, sizeof value, channel);
      order += std::to_string(value);
    }
    hub.send(1, 0, &value, sizeof value);
    return order;
  });
  EXPECT_EQ(processes.told(1), "213");
  EXPECT_EQ(processes.told(0), "3");
}

// Rank 1 comes to grief while the others wait for it, or compute.
TEST(ProcessRanks, ALostRankIsNamedWithItsReason) {
  for (const int number : {SIGKILL, SIGSTOP, 0}) {
    const std::string path = job();
    Processes processes(3, [&](int rank) -> std::string {
      SharedHub hub(path, rank, 3, concat("device ", rank), {.first = 60, .later = 60});
      hub.begin_call(rank);
      hub.begin(rank);
      int value = rank;
      for (int to = 0; to < 3; ++to)
        if (to != rank) hub.send(rank, to, &value, sizeof value);
      for (int from = 0; from < 3; ++from)
        if (from != rank) hub.receive(from, rank, &value, sizeof value);
      if (rank == 1) {
        if (number == 0) return "left";
        ::raise(number);
      }
      if (rank == 2)
        while (!hub.failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      hub.receive(1, rank, &value, sizeof value);
      return "went on";
    });
    const auto begin = std::chrono::steady_clock::now();
    for (const int rank : {0, 2}) {
      const std::string told = processes.told(rank);
      EXPECT_THAT(told, HasSubstr("rank 1 (device 1): its process"));
      EXPECT_THAT(told, HasSubstr(number == SIGKILL   ? "killed"
                                  : number == SIGSTOP ? "stopped"
                                                      : "has ended"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    if (number != SIGSTOP) continue;
    processes.signal(1, SIGCONT);
    EXPECT_THAT(processes.told(1), HasSubstr("stopped")) << "it finds out";
  }
}

TEST(ProcessRanks, AHungRankIsGivenUp) {
  const std::string path = job();
  Processes processes(2, [&](int rank) -> std::string {
    SharedHub hub(path, rank, 2, "cpu", {.first = 0.5, .later = 0.5});
    hub.begin_call(rank);
    hub.begin(rank);
    int value = 0;
    if (rank == 1)
      while (!hub.failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // without a beat
    hub.receive(1 - rank, rank, &value, sizeof value);
    return "went on";
  });
  EXPECT_THAT(processes.told(0), HasSubstr("rank 1 (cpu): no sign of life for 0.5 s"));
}

TEST(ProcessRanks, WhoDoesNotComeIsNamed) {
  const std::string path = job();
  Processes alone(1, [&](int) { return SharedHub(path, 0, 2, "cpu", {.first = 0.3}).name(0); });
  EXPECT_THAT(alone.told(0), HasSubstr("rank 1 of 2 has not come within 0.3 s"));
  EXPECT_FALSE(std::filesystem::exists(path));
  Processes other(1, [&](int) { return SharedHub(path, 1, 2, "cpu", {.first = 0.3}).name(0); });
  EXPECT_THAT(other.told(0), HasSubstr("rank 0 has not come within 0.3 s"));
  Processes unlike(2,
                   [&](int rank) { return SharedHub(path, rank, 2 + rank, "cpu", {.first = 0.5}).name(0); });
  EXPECT_THAT(unlike.told(1), HasSubstr("rank 0 was started as one of 2, rank 1 as one of 3"));
}

// What a job that was killed before all had come has left does not stand in the way.
TEST(ProcessRanks, AnOldFileIsPassedOver) {
  const std::string path = job();
  {
    Processes killed(1, [&](int) { return SharedHub(path, 0, 2, "cpu", {.first = 60}).name(0); });
    while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ASSERT_TRUE(std::filesystem::exists(path));
  Processes processes(2, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    SharedHub hub(path, rank, 2, "cpu", {.first = 20});
    return all_gather_at_random(hub, rank, 2);
  });
  EXPECT_EQ(processes.told(0), "well");
  EXPECT_EQ(processes.told(1), "well");
}

// Every request is handed over once, whoever is killed when.
TEST(ProcessRanks, RequestsOfALostRankGoToTheOthers) {
  constexpr size_t kRequests = 40;
  const std::string path = job();
  Processes processes(3, [&](int rank) -> std::string {
    SharedHub hub(path, rank, 3, "cpu", {.first = 60});
    const auto claimed = hub.claims(rank);
    Claims& claims = *claimed;
    std::string drawn;
    const auto draw = [&](size_t i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (rank == 1 && drawn.size() >= 6) ::raise(SIGKILL);
      if (!claims.begin_handing_over(i)) return;
      drawn += concat(i, " ");
      claims.finish(i);
    };
    for (size_t i = 0; i < kRequests; ++i)
      if (claims.take(i)) draw(i);
    for (bool all_done = false; !all_done;) {
      all_done = true;
      for (size_t i = 0; i < kRequests; ++i) {
        if (claims.done(i)) continue;
        all_done = false;
        const int owner = claims.owner(i);
        if (owner >= 0 && owner != rank && !hub.why_lost(owner).empty() && claims.take_over(i, owner))
          draw(i);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return drawn;
  });
  std::vector<int> times(kRequests, 0);
  size_t sum = 0;
  for (const int rank : {0, 2}) {
    std::istringstream told(processes.told(rank));
    for (size_t i; told >> i; ++sum) ++times.at(i);
  }
  for (const int n : times) EXPECT_LE(n, 1);
  EXPECT_GE(sum, kRequests - 4) << "all but those that rank 1 has done";
  EXPECT_LT(sum, kRequests) << "it has done some";
}

TEST(Claims, HaveOneOwner) {
  const BoardMemory memory(2);
  BoardClaims first(memory.board(), 0), second(memory.board(), 1);
  EXPECT_TRUE(first.take(7));
  EXPECT_FALSE(second.take(7));
  EXPECT_EQ(second.owner(7), 0);
  EXPECT_TRUE(second.take_over(7, 0));
  EXPECT_FALSE(first.begin_handing_over(7)) << "it was given up";
  EXPECT_TRUE(second.begin_handing_over(7));
  EXPECT_EQ(first.owner(7), 1);
  EXPECT_TRUE(first.take_over(7, 1)) << "killed while its file was written";
  EXPECT_FALSE(second.finish(7));
  EXPECT_TRUE(first.begin_handing_over(7));
  EXPECT_TRUE(first.finish(7));
  EXPECT_TRUE(second.done(7));
  EXPECT_FALSE(second.take(7));
}

}  // namespace
}  // namespace rocm_sd
