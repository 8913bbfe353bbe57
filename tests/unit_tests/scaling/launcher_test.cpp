// Ranks by the environments of launchers, and by what --split says.
#include "scaling/launcher.hpp"

#include <gmock/gmock.h>

#include <map>

#include "base/error.hpp"
#include "scaling/split.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch_in(const Variables& variables) {
  return find_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launchers, TellRanksByTheirVariables) {
  EXPECT_FALSE(launch_in({}).has_value());
  EXPECT_FALSE(launch_in({{"RANK", "0"}}).has_value()) << "no count";
  const Variables torchrun = {{"RANK", "5"},
                              {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"MASTER_ADDR", "10.0.0.1"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RUN_ID", "a/b"},
                              {"TORCHELASTIC_RESTART_COUNT", "2"}};
  const Launch torch = *launch_in(torchrun);
  EXPECT_EQ(torch.launcher, "torchrun");
  EXPECT_EQ(torch.rank, 5);
  EXPECT_EQ(torch.count, 8);
  EXPECT_EQ(torch.local_rank, 1);
  EXPECT_EQ(torch.local_count, 4);
  EXPECT_EQ(torch.job, "torchrun-a_b-10.0.0.1-29500-2");

  Variables mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "2"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                   {"PMIX_NAMESPACE", "4077322241"},
                   {"SLURM_PROCID", "0"},
                   {"SLURM_NTASKS", "1"}};
  EXPECT_EQ(launch_in(mpi)->launcher, "mpirun") << "within an allocation";
  EXPECT_EQ(launch_in(mpi)->rank, 1);

  Variables slurm = {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"},  {"SLURM_LOCALID", "3"},
                     {"SLURM_JOB_ID", "9"}, {"SLURM_STEP_ID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}};
  EXPECT_EQ(launch_in(slurm)->job, "srun-9-1");
  EXPECT_EQ(launch_in(slurm)->local_count, 4);
  slurm["SLURM_STEP_TASKS_PER_NODE"] = "2(x2)";
  EXPECT_LT(launch_in(slurm)->local_count, 4);

  const Launch plain = *launch_in({{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"ROCM_SD_JOB", "mine"}});
  EXPECT_EQ(plain.local_rank, 1);
  EXPECT_EQ(plain.local_count, 3);
  EXPECT_EQ(plain.job, "mine");
}

TEST(Launchers, RefuseNumbersThatCannotBe) {
  for (const auto& [rank, count] : {std::pair("2", "2"), {"-1", "2"}, {"0", "0"}, {"x", "2"}, {"0", "1000"}})
    try {
      launch_in({{"RANK", rank}, {"WORLD_SIZE", count}});
      ADD_FAILURE() << rank << " of " << count;
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(), testing::AnyOf(HasSubstr("RANK: "), HasSubstr("WORLD_SIZE: ")));
    }
}

TEST(Launchers, EveryRankHasADevice) {
  Launch launch;
  launch.local_rank = 3;
  EXPECT_EQ(device_of_rank("ranks", launch, "cuda"), "cuda:3");
  EXPECT_EQ(device_of_rank("ranks", launch, "cpu"), "cpu");
  EXPECT_EQ(device_of_rank("ranks:hip", launch, ""), "hip:3");
  EXPECT_EQ(device_of_rank("ranks:cuda:0", launch, ""), "cuda:0");
  EXPECT_THROW(device_of_rank("ranks:", launch, ""), UsageError);
  EXPECT_THROW(device_of_rank("ranks:cpu,cpu", launch, ""), UsageError);
  EXPECT_TRUE(asks_for_ranks("ranks:cpu"));
  EXPECT_FALSE(asks_for_ranks("ranksx"));
}

TEST(Launchers, TakeMpiOnSeveralHosts) {
  const auto takes = [](const char* launcher, int local_count, const char* set) {
    return takes_mpi({.launcher = launcher, .count = 4, .local_count = local_count},
                     [&](const char*) { return set; });
  };
  EXPECT_FALSE(takes("mpirun", 4, nullptr));
  EXPECT_FALSE(takes("torchrun", 4, ""));
  EXPECT_TRUE(takes("mpirun", 2, nullptr));
  EXPECT_TRUE(takes("srun", 2, "mpi")) << "as srun --mpi=pmix has it";
  EXPECT_TRUE(takes("mpirun", 4, "mpi"));
  for (const auto& [launcher, set] :
       {std::pair{"torchrun", ""}, std::pair{"srun", ""}, std::pair{"mpirun", "shared"}})
    try {
      takes(launcher, 2, set);
      ADD_FAILURE() << launcher;
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(), HasSubstr("start them with Open MPI's mpirun"));
    }
  EXPECT_THROW(takes("mpirun", 4, "nccl"), UsageError);
}

TEST(Splits, AreReadStrictly) {
  EXPECT_FALSE(parse_split("images").division.has_value());
  EXPECT_EQ(parse_split("guidance").group_size(4), 2u);
  EXPECT_EQ(parse_split("rows").group_size(3), 3u);
  EXPECT_EQ(parse_split("guidance-rows").group_size(6), 6u);
  EXPECT_EQ(parse_split("tensor").group_size(3), 3u);
  EXPECT_EQ(parse_split("displaced").division->exact_calls, 4);
  EXPECT_EQ(parse_split("displaced:7").division->exact_calls, 7);
  EXPECT_FALSE(parse_split("rows").division->exact_calls.has_value());
  EXPECT_EQ(parse_split("guidance-displaced:7").division->what, Division::kBoth);
  EXPECT_EQ(parse_split("guidance-displaced:7").division->exact_calls, 7);
  EXPECT_EQ(parse_split("displaced:7").division->what, Division::kRows);
  EXPECT_TRUE(parse_split("displaced:7:check").checks);
  EXPECT_TRUE(parse_split("displaced:check").checks);
  for (const char* bad :
       {"", "row", "rows:2", "images:", "displaced:0", "displaced:x", "displaced:1:2", "displaced:check:2"})
    EXPECT_THROW(parse_split(bad), UsageError) << bad;
  EXPECT_THROW(parse_split("guidance").group_size(3), UsageError);
  EXPECT_THROW(parse_split("guidance-rows").group_size(2), UsageError);
  EXPECT_THROW(parse_split("guidance-displaced").group_size(2), UsageError);
  EXPECT_THROW(parse_split("displaced").group_size(1), UsageError);
}

}  // namespace
}  // namespace rocm_sd
