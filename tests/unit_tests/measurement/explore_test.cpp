// The tuner on the host: what it keeps, that it goes on where it ended, and that tables cannot make it wrong.
#include "measurement/explore.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "kernels/choice_record.hpp"
#include "kernels/select.hpp"
#include "measurement/tunable_op.hpp"

namespace rocm_sd::measurement {
namespace {

namespace fs = std::filesystem;
using tuning::Origin;
using tuning::Record;
using tuning::Table;

const std::vector<PlannedWorkload> kProblems = {{"linear", "64x64x64 f32 bias", 3},
                                                {"conv2d", "1x16x16x32->32 3x3 s1 p1,1,1,1 f32 bias", 2},
                                                {"attention", "f32 [1,2,64x64,40]", 1},
                                                {"layer_norm", "f32 [12,320]", 1},   // one candidate only
                                                {"apply_guidance", "whatever", 1}};  // nothing to tune

class ExploreTest : public testing::Test {
 protected:
  ExploreTest() {
    std::string name = (fs::temp_directory_path() / "explore.XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~ExploreTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  fs::path table() const { return folder_ / "host.tsv"; }
  TuneOptions quick() {
    return {.per_problem = 0.01, .note = [this](const std::string& line) { notes_.push_back(line); }};
  }
  fs::path folder_;
  std::vector<std::string> notes_;
};

TEST_F(ExploreTest, KeepsAChoiceForEachProblemThatHasOne) {
  tuning::Journal journal(table());
  std::vector<std::string> seen;
  TuneOptions options = quick();
  options.progress = [&](const TuneProgress& p) { seen.push_back(concat(p.done, "/", p.all)); };
  const TuneReport report = tune(host_device(), kProblems, journal, options);
  EXPECT_EQ(report.problems, 3u);
  EXPECT_EQ(report.done, 3u);
  EXPECT_EQ(report.left, 0u);
  EXPECT_EQ(report.wrong, 0u);
  EXPECT_GT(report.tuned_seconds, 0);
  EXPECT_LE(report.tuned_seconds, report.default_seconds);
  EXPECT_THAT(seen, testing::ElementsAre("0/4", "1/4", "2/4", "3/4", "4/4"));
  EXPECT_TRUE(notes_.empty()) << notes_[0];
  const Table read = Table::read(table());
  ASSERT_EQ(read.size(), 3u);
  for (const Record& r : read.records()) {
    EXPECT_EQ(r.device, tuning::identity_of(host_device()));
    EXPECT_EQ(r.origin, Origin::kMeasured);
    EXPECT_GT(r.microseconds, 0);
    EXPECT_LE(r.microseconds, r.default_microseconds);
    EXPECT_EQ(verify(host_device(), r).verdict, Verdict::kRight);
  }
}

TEST_F(ExploreTest, GoesOnWhereItEnded) {
  {
    tuning::Journal journal(table());
    TuneOptions options = quick();
    int asked = 0;
    options.cancelled = [&] { return ++asked > 3; };
    const TuneReport report = tune(host_device(), kProblems, journal, options);
    EXPECT_TRUE(report.cancelled);
    EXPECT_LT(report.done, 3u);
    EXPECT_GT(report.left, 0u);
  }
  tuning::Journal journal(table());
  const size_t before = journal.table().size();
  const TuneReport report = tune(host_device(), kProblems, journal, quick());
  EXPECT_EQ(report.kept, before);
  EXPECT_EQ(report.kept + report.done, 3u);
  const TuneReport third = tune(host_device(), kProblems, journal, quick());
  EXPECT_EQ(third.kept, 3u);
  EXPECT_EQ(third.done, 0u);
  TuneOptions again = quick();
  again.again = true;
  EXPECT_EQ(tune(host_device(), kProblems, journal, again).done, 3u);
}

TEST_F(ExploreTest, ABudgetEndsIt) {
  tuning::Journal journal(table());
  TuneOptions options = quick();
  options.seconds = 1e-9;
  const TuneReport report = tune(host_device(), kProblems, journal, options);
  EXPECT_EQ(report.done, 0u);
  EXPECT_EQ(report.left, 4u);
}

TEST_F(ExploreTest, TheCandidateThatARunDiedInIsLeftOut) {
  tuning::Journal(table()).trying("linear\t64x64x64 f32 bias\tonednn");
  tuning::Journal journal(table());
  const TuneReport report = tune(host_device(), {{"linear", "64x64x64 f32 bias", 1}}, journal, quick());
  EXPECT_EQ(report.done, 0u);  // tiled alone is no choice
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr("the run before ended")));
  tuning::Journal next(table());
  EXPECT_EQ(tune(host_device(), {{"linear", "64x64x64 f32 bias", 1}}, next, quick()).done, 1u);
}

// Chosen implementation and result of a problem under a table that names `choice` for it.
std::pair<std::string, Accuracy> under_table(const std::string& choice, const Workload& workload) {
  Table table;
  table.add({tuning::identity_of(host_device()), workload.op, workload.text, choice, "", 1, 1,
             Origin::kMeasured, ""});
  const Inputs inputs(host_device(), workload);
  Arena arena(host_device());
  const Weight weight = inputs.weight();
  const tuning::TuningScope scope(&table);
  const ChoiceRecord record;
  Runner runner(arena, workload, inputs, weight, "");
  const Accuracy accuracy = check_output(workload, inputs, runner.output());
  return {record.choices().at(0).impl, accuracy};
}

TEST(TunedSelection, FollowsATableThatCanBeFollowed) {
  const Workload workload = parse_workload("linear", "64x64x64 f32 bias");
  for (const std::string choice : {"onednn", "tiled", "ref"}) {
    const auto [impl, accuracy] = under_table(choice, workload);
    EXPECT_EQ(impl, choice);
    EXPECT_TRUE(accuracy.ok());
  }
}

TEST(TunedSelection, NoTableMakesItWrong) {
  const Workload linear = parse_workload("linear", "64x64x64 f32 bias");
  const Workload conv = parse_workload("conv2d", "1x8x8x32->32 1x1 s1 p0,0,0,0 f32 bias");
  for (const std::string choice : {"gpu", "gpu 128x128x64", "tiled 128x128x64", "", " ", "tiled ", "nonsense",
                                   "winograd", "../../ref", "onednn\n"}) {
    const auto [impl, accuracy] = under_table(choice, linear);
    EXPECT_EQ(impl, "tiled") << choice;
    EXPECT_TRUE(accuracy.ok());
  }
  EXPECT_EQ(under_table("winograd", conv).first, "tiled");  // which refuses filters of 1x1
}

TEST(TunedSelection, AForcedChoiceComesFirst) {
  const ForcedImpl forced("linear", "ref");
  EXPECT_EQ(under_table("onednn", parse_workload("linear", "64x64x64 f32 bias")).first, "ref");
}

TEST(Verify, RefusesWhatItCannotRun) {
  const auto verdict = [](const std::string& op, const std::string& problem, const std::string& choice) {
    return verify(host_device(), {{}, op, problem, choice, "", 1, 1, Origin::kMeasured, ""}).verdict;
  };
  EXPECT_EQ(verdict("linear", "64x64x64 f32", "tiled"), Verdict::kRight);
  EXPECT_EQ(verdict("linear", "64x64x64 f32", "gpu 128x128x64"), Verdict::kRefused);
  EXPECT_EQ(verdict("linear", "64x64 f32", "tiled"), Verdict::kRefused);
  EXPECT_EQ(verdict("shell", "rm", "tiled"), Verdict::kRefused);
  EXPECT_EQ(verdict("linear", "1000000000x1000000000x1000000000 f32", "tiled"), Verdict::kRefused);
  EXPECT_EQ(verdict("attention", "f32 [1,1,1000000000x1000000000,40]", "host"), Verdict::kRefused);
}

TEST(TunableOp, ListsTheMatrixProducts) {
  EXPECT_EQ(tunable_op_csv({"8192x320x640 f16", "8192x320x640 f16", "77x2560x320 bf16 bias geglu", "nonsense",
                            "1x320x1280 f32 bias silu"}),
            "GemmAndBiasTunableOp_BFloat16_TN,tn_2560_77_320_ld_320_320_2560\n"
            "GemmAndBiasTunableOp_float_TN,tn_320_1_1280_ld_1280_1280_320\n"
            "GemmTunableOp_Half_TN,tn_320_8192_640_ld_640_640_320\n");
}

}  // namespace
}  // namespace rocm_sd::measurement
