// Claims of ranks that share no memory: the table's rules, and the library that is not Open MPI. Ranks under
// mpirun are in tests/integration_tests/test_mpi_ranks.py.
#include "scaling/mpi_claims.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

#include "base/error.hpp"
#include "scaling/mpi_api.hpp"
#include "scaling/rank_board.hpp"

namespace rocm_sd {
namespace {

TEST(MpiClaims, FollowTheRulesOfTheBoard) {
  ClaimTable table;
  const auto pass = [&](size_t request, uint8_t from, uint8_t to) { return table.pass(request, from, to); };
  const auto state = [&](size_t request) { return table.state(request); };
  MpiClaims first(0, pass, state), second(1, pass, state);
  EXPECT_EQ(first.owner(7), -1);
  EXPECT_TRUE(first.take(7));
  EXPECT_TRUE(first.take(7)) << "asked twice, where the answer was lost";
  EXPECT_FALSE(second.take(7));
  EXPECT_EQ(second.owner(7), 0);
  EXPECT_TRUE(second.take_over(7, 0));
  EXPECT_FALSE(first.begin_handing_over(7)) << "it was given up";
  EXPECT_TRUE(second.begin_handing_over(7));
  EXPECT_TRUE(first.take_over(7, 1)) << "killed while its file was written";
  EXPECT_FALSE(second.finish(7));
  EXPECT_TRUE(first.begin_handing_over(7));
  EXPECT_TRUE(first.finish(7));
  EXPECT_TRUE(second.done(7));
  EXPECT_FALSE(second.take(7));
  EXPECT_FALSE(second.done(1 << 19)) << "beyond the table";
}

TEST(MpiApi, AnotherLibraryIsRefused) {
  const auto refused = [](const char* file) -> std::string {
    setenv("ROCM_SD_MPI", file, 1);
    std::string told = "taken";
    try {
      mpi::load_api();
    } catch (const DeviceError& e) {
      told = e.what();
    }
    unsetenv("ROCM_SD_MPI");
    return told;
  };
  EXPECT_THAT(refused("/nowhere/libmpi.so.40"), testing::HasSubstr("Open MPI is not there"));
  EXPECT_THAT(refused("libc.so.6"), testing::HasSubstr("libc.so.6 is not Open MPI"));
}

}  // namespace
}  // namespace rocm_sd
