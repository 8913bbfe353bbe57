// Training schedules, sampling schedules, their names, and bad input.
#include "schedulers/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "schedulers/beta_quantile.hpp"

namespace rocm_sd {
namespace {

TEST(NoiseSchedule, EqualsDiffusers) {
  const auto check = [](const NoiseScheduleArgs& args, const std::vector<double>& want) {
    const NoiseSchedule noise(args);
    const int at[] = {0, 1, 500, 998, 999};
    for (size_t i = 0; i < want.size(); ++i)
      // Floats; the last bits of betas may differ by what a fused multiply-add saves, summed over 1000 steps.
      EXPECT_NEAR(noise.alphas_cumprod()[at[i]], want[i], 1e-6 * want[i]) << at[i];
  };
  check({}, {0x1.ff9096p-1, 0x1.ff20a8p-1, 0x1.1af6e6p-2, 0x1.351d06p-8, 0x1.31676cp-8});
  check({.beta_schedule = BetaSchedule::kSquaredCosine},
        {0x1.fffa96p-1, 0x1.fff48ap-1, 0x1.f81992p-2, 0x1.45fbc6p-19, 0x1.4dcd84p-29});
  const NoiseSchedule noise;
  EXPECT_NEAR(noise.sigma_min(), 0.029167, 1e-6);
  EXPECT_NEAR(noise.sigma_max(), 14.614647, 1e-5);
}

TEST(NoiseSchedule, ReachesZeroTerminalSnr) {
  const NoiseSchedule noise({.zero_terminal_snr = true});
  EXPECT_EQ(noise.alphas_cumprod()[999], 0);
  EXPECT_NEAR(noise.sigma_max(), 4096, 0.001);
  EXPECT_NEAR(noise.alphas_cumprod()[0], 0x1.ff9096p-1, 1e-7);
  EXPECT_NEAR(noise.alphas_cumprod()[500], 0x1.ed9b2ep-3, 1e-6);
  const NoiseLevel last = level_of_timestep(noise, 999);
  EXPECT_EQ(last.alpha_bar, 0);
  EXPECT_TRUE(std::isfinite(last.sigma));
}

TEST(NoiseSchedule, ConvertsBothWays) {
  const NoiseSchedule noise;
  for (int t = 0; t < 1000; ++t) {
    EXPECT_EQ(noise.timestep(noise.sigmas()[t]), t);
    EXPECT_EQ(noise.sigma(t), noise.sigmas()[t]);
  }
  for (const double t : {0.25, 17.5, 500.125, 998.9}) {
    EXPECT_NEAR(noise.timestep(noise.sigma(t)), t, 1e-4);  // logarithms are floats, 4e-3 apart or more
    const size_t low = static_cast<size_t>(t);
    EXPECT_GT(noise.sigma(t), noise.sigmas()[low]);
    EXPECT_LT(noise.sigma(t), noise.sigma_linear(t));  // log sigma is convex in between
    EXPECT_LT(noise.sigma_linear(t), noise.sigmas()[low + 1]);
  }
  EXPECT_EQ(noise.timestep(1e9), 999);
  EXPECT_EQ(noise.timestep(0), 0);
  EXPECT_EQ(noise.sigma(5000), noise.sigma_max());
  EXPECT_EQ(noise.sigma(-3), noise.sigma_min());
}

TEST(NoiseSchedule, RefusesBadBetas) {
  const auto refused = [](const NoiseScheduleArgs& args) { EXPECT_THROW(NoiseSchedule{args}, UsageError); };
  refused({.train_steps = 0});
  refused({.train_steps = -5});
  refused({.train_steps = 1'000'000'000});
  refused({.beta_start = 0});
  refused({.beta_start = NAN});
  refused({.beta_end = 1});
  refused({.trained_betas = {0.1, NAN}});
  refused({.trained_betas = {0.1, -0.1}});
  refused({.trained_betas = {1e-30}});
  refused({.trained_betas = std::vector<double>(2000, 0.5)});  // alpha_bar underflows
  refused({.train_steps = 1, .zero_terminal_snr = true});
  EXPECT_EQ(NoiseSchedule({.trained_betas = {0.1, 0.2}}).train_steps(), 2);
}

TEST(BetaQuantile, EqualsScipy) {
  EXPECT_NEAR(beta_quantile(0.001, 0.6, 0.6), 1.855873851745199e-05, 1e-16);
  EXPECT_NEAR(beta_quantile(0.1, 0.6, 0.6), 0.03958440558878085, 1e-13);
  EXPECT_NEAR(beta_quantile(0.37, 0.6, 0.6), 0.3227940020973615, 1e-13);
  EXPECT_NEAR(beta_quantile(0.75, 0.6, 0.6), 0.824319621347305, 1e-13);
  EXPECT_NEAR(beta_quantile(0.999, 0.6, 0.6), 0.9999814412614826, 1e-13);
  EXPECT_NEAR(beta_quantile(0.3, 2, 5), 0.18180347131894917, 1e-13);
  EXPECT_EQ(beta_quantile(0, 0.6, 0.6), 0);
  EXPECT_EQ(beta_quantile(1, 0.6, 0.6), 1);
}

class EverySchedule : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Schedule, EverySchedule, testing::ValuesIn(schedule_names()),
                         [](const auto& info) { return info.param; });

TEST_P(EverySchedule, FallsFromNoiseToZero) {
  const NoiseSchedule noise;
  const ScheduleKind kind = *parse_schedule(GetParam());
  for (const int steps : {1, 2, 3, 10, 11, 20, 47, 50, 333, 999, 1000}) {
    if (kind == ScheduleKind::kLcm && steps > 50) continue;
    for (const TimestepGrid grid :
         {TimestepGrid::kFractional, TimestepGrid::kSolver, TimestepGrid::kRounded}) {
      if (grid == TimestepGrid::kSolver && steps == 1000 && kind == ScheduleKind::kLeading) continue;
      const Schedule schedule =
          make_schedule(noise, {.kind = kind, .steps = steps, .grid = grid, .steps_offset = 1});
      ASSERT_GE(schedule.steps(), 1);
      // These count in strides of timesteps, and may make more; repeated timesteps are dropped.
      if (kind != ScheduleKind::kDdimUniform && kind != ScheduleKind::kDdim) {
        EXPECT_LE(schedule.steps(), steps);
        const int dropped = kind == ScheduleKind::kBetaTimesteps ? 2 : 0;
        EXPECT_GE(schedule.steps(), steps <= 50 ? steps - dropped : 1);
      }
      for (int i = 0; i < schedule.steps(); ++i) {
        const NoiseLevel &level = schedule.levels[i], &next = schedule.levels[i + 1];
        EXPECT_GT(level.sigma, next.sigma);
        EXPECT_NEAR(level.alpha_bar, 1 / (1 + level.sigma * level.sigma), 1e-6);
        EXPECT_GE(level.timestep, 0);
        EXPECT_LE(level.timestep, 999);
      }
      EXPECT_EQ(schedule.levels.back().sigma, 0);
      EXPECT_EQ(schedule.levels.back().alpha_bar, 1);
    }
  }
}

TEST(Schedule, HoldsKnownValues) {
  const NoiseSchedule noise;
  const auto sigmas = [&](ScheduleKind kind, int steps) {
    return make_schedule(noise, {.kind = kind, .steps = steps}).sigmas();
  };
  const std::vector<double> karras = sigmas(ScheduleKind::kKarras, 10);
  const auto formula = [&](double x) {
    const double a = std::pow(noise.sigma_max(), 1 / 7.0), b = std::pow(noise.sigma_min(), 1 / 7.0);
    return std::pow(a + x * (b - a), 7);
  };
  for (int i = 0; i < 10; ++i) EXPECT_FLOAT_EQ(karras[i], formula(i / 9.0));
  const std::vector<double> aligned = sigmas(ScheduleKind::kAlignYourSteps, 11);
  const double table[] = {14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152, 0.029, 0};
  for (int i = 0; i < 12; ++i) EXPECT_NEAR(aligned[i], table[i], 1e-6);
  EXPECT_NE(make_schedule(noise, {.kind = ScheduleKind::kAlignYourSteps, .steps = 11, .sdxl = true}).sigmas(),
            aligned);
  const Schedule ddim = make_schedule(noise, {.kind = ScheduleKind::kDdim, .steps = 20});
  EXPECT_EQ(ddim.levels[0].timestep, 951);
  EXPECT_EQ(ddim.levels[19].timestep, 1);
  EXPECT_EQ(make_schedule(noise, {.kind = ScheduleKind::kDdim, .steps = 15}).steps(), 16);  // as A1111
  const Schedule lcm = make_schedule(noise, {.kind = ScheduleKind::kLcm, .steps = 4});
  const double lcm_timesteps[] = {999, 759, 499, 259};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(lcm.levels[i].timestep, lcm_timesteps[i]);
}

TEST(Schedule, PenultimateSigmaCanBeLeftOut) {
  const NoiseSchedule noise;
  const Schedule longer = make_schedule(noise, {.kind = ScheduleKind::kKarras, .steps = 11});
  const Schedule discarded =
      make_schedule(noise, {.kind = ScheduleKind::kKarras, .steps = 10, .discard_penultimate = true});
  EXPECT_EQ(discarded.steps(), 10);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(discarded.levels[i].sigma, longer.levels[i].sigma);
}

TEST(Schedule, StrengthKeepsTheEnd) {
  const NoiseSchedule noise;
  const Schedule full = make_schedule(noise, {.steps = 20});
  const auto kept = [&](double strength, StrengthRule rule) {
    return truncate_for_strength(noise, full, strength, rule).steps();
  };
  EXPECT_EQ(kept(1, StrengthRule::kDiffusers), 20);
  EXPECT_EQ(kept(0.75, StrengthRule::kDiffusers), 15);
  EXPECT_EQ(kept(0.8, StrengthRule::kDiffusers), 16);
  EXPECT_EQ(kept(0.07, StrengthRule::kDiffusers), 1);
  EXPECT_EQ(kept(0.75, StrengthRule::kA1111), 16);
  EXPECT_EQ(kept(1, StrengthRule::kA1111), 20);
  EXPECT_EQ(kept(0, StrengthRule::kA1111), 1);
  EXPECT_EQ(truncate_for_strength(noise, full, 0.5, StrengthRule::kDiffusers).levels[0].sigma,
            full.levels[10].sigma);
  for (const double bad : {-0.1, 1.1, std::nan(""), 0.01})
    EXPECT_THROW(kept(bad, StrengthRule::kDiffusers), UsageError) << bad;
}

TEST(Schedule, RefusesBadInput) {
  const NoiseSchedule noise, few({.trained_betas = std::vector<double>(10, 0.1)});
  const auto refused = [](const NoiseSchedule& n, const ScheduleArgs& args) {
    EXPECT_THROW(make_schedule(n, args), UsageError);
  };
  for (const int steps : {0, -1, 1001, 1'000'000'000}) refused(noise, {.steps = steps});
  refused(few, {.kind = ScheduleKind::kSimple, .steps = 11});
  refused(few, {.kind = ScheduleKind::kLeading, .steps = 11});
  refused(few, {.kind = ScheduleKind::kDdim, .steps = 11});
  refused(noise, {.kind = ScheduleKind::kLcm, .steps = 51});
  refused(few, {.kind = ScheduleKind::kLcm, .steps = 4});
  refused(noise, {.kind = ScheduleKind::kKarras, .rho = NAN});
  refused(noise, {.sigma_min = 20});
  refused(noise, {.beta_a = 0});
  for (const std::vector<double>& sigmas : std::vector<std::vector<double>>{
           {}, {0}, {1, 1}, {1, 2}, {1, -1}, {1, NAN}, {INFINITY, 1}, std::vector<double>(2000, 1)})
    refused(noise, {.kind = ScheduleKind::kExplicit, .sigmas = sigmas});
  EXPECT_EQ(make_schedule(noise, {.kind = ScheduleKind::kExplicit, .sigmas = {3, 1}}).sigmas(),
            (std::vector<double>{3, 1, 0}));
  EXPECT_EQ(make_schedule(few, {.kind = ScheduleKind::kKarras, .steps = 30}).steps(), 30);
}

TEST(ScheduleNames, OfEveryProject) {
  const std::pair<const char*, ScheduleKind> kWant[] = {{"Karras", ScheduleKind::kKarras},
                                                        {"SGM Uniform", ScheduleKind::kSgmUniform},
                                                        {"sgm_uniform", ScheduleKind::kSgmUniform},
                                                        {"KL Optimal", ScheduleKind::kKlOptimal},
                                                        {"Align Your Steps", ScheduleKind::kAlignYourSteps},
                                                        {"ays", ScheduleKind::kAlignYourSteps},
                                                        {"discrete", ScheduleKind::kNormal},
                                                        {"Uniform", ScheduleKind::kNormal},
                                                        {"NORMAL", ScheduleKind::kNormal},
                                                        {"use_karras_sigmas", ScheduleKind::kKarras},
                                                        {"ddim_uniform", ScheduleKind::kDdimUniform},
                                                        {"DDIM", ScheduleKind::kDdimUniform},
                                                        {"trailing", ScheduleKind::kTrailing}};
  for (const auto& [name, kind] : kWant) EXPECT_EQ(parse_schedule(name), kind) << name;
  EXPECT_EQ(parse_schedule("automatic"), std::nullopt);
  EXPECT_EQ(parse_schedule("Automatic"), std::nullopt);
  EXPECT_EQ(parse_schedule(""), std::nullopt);
  for (const std::string& name : schedule_names()) {
    EXPECT_EQ(to_string(*parse_schedule(name)), name);
    EXPECT_EQ(parse_schedule(schedule_label(*parse_schedule(name))), parse_schedule(name));
  }
  try {
    parse_schedule("karas");
    FAIL();
  } catch (const UsageError& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find("did you mean \"karras\"?"), std::string::npos) << message;
    for (const std::string& name : schedule_names()) EXPECT_NE(message.find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace rocm_sd
