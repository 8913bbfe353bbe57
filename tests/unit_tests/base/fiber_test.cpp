#include "base/fiber.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

struct Note {
  std::string& to;
  char what;
  ~Note() { to += what; }
};

TEST(Fiber, TakesTurnsWithItsCaller) {
  std::string seen;
  Fiber fiber([&] {
    for (const char c : {'a', 'b', 'c'}) {
      seen += c;
      fiber.suspend();
    }
  });
  EXPECT_EQ(seen, "") << "nothing runs before the first resume";
  while (!fiber.done()) {
    fiber.resume();
    seen += '.';
  }
  EXPECT_EQ(seen, "a.b.c..");
}

TEST(Fiber, HandsOnWhatTheBodyThrows) {
  Fiber fiber([&] {
    fiber.suspend();
    throw UsageError("of the body");
  });
  fiber.resume();
  EXPECT_FALSE(fiber.done());
  try {
    fiber.resume();
    FAIL() << "expected a UsageError";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "of the body");
  }
  EXPECT_TRUE(fiber.done());
}

TEST(Fiber, KeepsHandlersOfItsOwnApart) {
  Fiber fiber([&] {
    for (int i = 0; i < 3; ++i) {
      std::string text;
      try {
        throw std::runtime_error(std::to_string(i));
      } catch (const std::runtime_error& e) {
        text = e.what();
      }
      fiber.suspend();
      EXPECT_EQ(text, std::to_string(i));
    }
  });
  for (int i = 0; !fiber.done(); ++i) {
    fiber.resume();
    EXPECT_THROW(throw UsageError("of the caller"), UsageError);
  }
}

TEST(Fiber, UnwindsWhatHasNotEnded) {
  std::string ended;
  {
    Fiber never([&] { const Note note{ended, 'n'}; });
    Fiber fiber([&] {
      const Note first{ended, '1'};
      const Note second{ended, '2'};
      fiber.suspend();
      ended += 'x';
    });
    fiber.resume();
    EXPECT_EQ(ended, "");
  }
  EXPECT_EQ(ended, "21");
}

TEST(Fiber, ManyAtOnceHaveStacksOfTheirOwn) {
  constexpr int kFibers = 40, kDepth = 200;
  std::vector<std::unique_ptr<Fiber>> fibers(kFibers);
  std::vector<int> sums(kFibers, 0);
  for (int i = 0; i < kFibers; ++i) {
    fibers[static_cast<size_t>(i)] = std::make_unique<Fiber>([&, i] {
      const std::function<int(int)> down = [&](int depth) -> int {
        volatile char room[4096];
        room[0] = static_cast<char>(depth);
        if (depth == 0) {
          fibers[static_cast<size_t>(i)]->suspend();
          return i;
        }
        return down(depth - 1) + (room[0] == static_cast<char>(depth) ? 1 : 1000);
      };
      sums[static_cast<size_t>(i)] = down(kDepth);
    });
  }
  for (int round = 0; round < 2; ++round)
    for (const auto& fiber : fibers) fiber->resume();
  for (int i = 0; i < kFibers; ++i) {
    EXPECT_TRUE(fibers[static_cast<size_t>(i)]->done());
    EXPECT_EQ(sums[static_cast<size_t>(i)], i + kDepth);
  }
}

TEST(Fiber, TheBodysThingsGoWithItsEnd) {
  auto held = std::make_shared<int>(1);
  Fiber fiber([held] { EXPECT_EQ(*held, 1); });
  EXPECT_EQ(held.use_count(), 2);
  fiber.resume();
  EXPECT_EQ(held.use_count(), 1);
}

// What gets the addresses of a stack that is gone may write to all of them: AddressSanitizer once took arenas
// there for the stack.
TEST(Fiber, ItsStackLeavesNothingBehind) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const bool whole : {true, false}) {
    uintptr_t inside = 0;
    {
      Fiber fiber([&] {
        char here[64];
        inside = reinterpret_cast<uintptr_t>(std::memset(here, 1, sizeof here));
        fiber.suspend();
      });
      fiber.resume();
      if (whole) fiber.resume();
    }
    for (uintptr_t at = inside / page * page, pages = 0; pages < 2; at += page, ++pages) {
      void* const there = mmap(reinterpret_cast<void*>(at), page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      if (there == MAP_FAILED) continue;  // somebody else has it
      std::memset(there, 2, page);
      munmap(there, page);
    }
  }
}

}  // namespace
}  // namespace rocm_sd
