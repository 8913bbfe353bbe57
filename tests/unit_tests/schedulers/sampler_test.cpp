// Samplers on a problem with a known answer: order of convergence, variance of the stochastic ones, hooks,
// batches, counts of UNet calls, names and bad input.
#include "schedulers/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

// Data are normal with mean kMean and deviation kSpread in every element. The best denoiser is linear, and
// the probability-flow ODE has a closed form (Karras et al. 2022, appendix B.6).
constexpr double kMean = 0.3, kSpread = 0.5;

double exact_denoised(double x, double sigma) {
  const double data = kSpread * kSpread;
  return kMean + data / (data + sigma * sigma) * (x - kMean);
}
double exact_path(double x, double from, double to) {
  return kMean + (x - kMean) * std::hypot(kSpread, to) / std::hypot(kSpread, from);
}

class Problem {
 public:
  explicit Problem(SamplingRequest request, const NoiseScheduleArgs& args = {},
                   std::vector<uint64_t> seeds = {1}, Shape shape = {1, 4, 4, 4})
      : noise(args), plan(plan_sampling(noise, request)), shape_(shape) {
    for (const uint64_t seed : seeds) seeds_.push_back({seed});
    shape_[0] = static_cast<int64_t>(seeds.size());
    // The toy model has to know sigma exactly, also between timesteps: it is told by the hook that sees each
    // level.
    hooks.before_denoise = [this](Exec&, const Tensor& x, const NoiseLevel& level, LatentSpace) {
      level_ = level;
      return x;
    };
    hooks.on_step = [this](const StepReport& report) {
      trajectory.push_back(to_floats(host_device(), report.latents));
      reported_total = report.total;
      return true;
    };
  }

  std::vector<float> run() {
    calls = 0;
    trajectory.clear();
    const Denoiser denoiser(
        [this](Exec& e, const Tensor& input, double) {
          ++calls;
          const Tensor out = e.alloc_like(input);
          const bool exploding = plan.sampler->space == LatentSpace::kVarianceExploding;
          const double sigma = exploding ? level_.sigma : std::sqrt(1 / level_.alpha_bar - 1);
          for (int64_t i = 0; i < input.numel(); ++i)
            out.as<float>()[i] = static_cast<float>(
                exact_denoised(input.as<float>()[i] * std::sqrt(1 + sigma * sigma), sigma));
          return out;
        },
        {.prediction = Prediction::kSample, .cfg_scale = 1});
    Arena arena(host_device());
    Exec ex(arena);
    BatchNoise source(NoiseKind::kPhilox, seeds_, shape_[3], shape_[1], shape_[2]);
    const std::vector<float> first = source.next();
    const Tensor x = start_from_noise(ex, plan, tensor_from(host_device(), shape_, first.data()));
    start = to_floats(host_device(), x);
    return to_floats(host_device(), run_sampler(ex, noise, plan, denoiser, &source, x, hooks));
  }

  NoiseSchedule noise;
  SamplingPlan plan;
  SamplerHooks hooks;
  std::vector<std::vector<float>> trajectory;
  std::vector<float> start;
  int calls = 0, reported_total = 0;

 private:
  Shape shape_;
  std::vector<ImageSeed> seeds_;
  NoiseLevel level_;
};

// Error at sigma 0.2 after n steps from sigma 8, root mean square over elements.
double error_of(const std::string& sampler, const SamplerOptions& options, int n) {
  SamplingRequest request{.sampler = sampler, .options = options};
  for (int i = 0; i <= n; ++i) request.sigmas.push_back(8 * std::pow(0.2 / 8, static_cast<double>(i) / n));
  Problem problem(request);
  problem.run();
  const bool preserving = problem.plan.sampler->space == LatentSpace::kVariancePreserving;
  const double scale_in = preserving ? std::sqrt(1 + 64.0) : 1,
               scale_out = preserving ? std::sqrt(1 + 0.04) : 1;
  // The step after the n-th goes to sigma 0. DPM fast ends at its last sigma above 0 by steps of its own.
  const auto& end =
      sampler == "dpm_fast" ? problem.trajectory.back() : problem.trajectory[static_cast<size_t>(n - 1)];
  double square = 0;
  for (size_t i = 0; i < end.size(); ++i)
    square += std::pow(end[i] * scale_out - exact_path(problem.start[i] * scale_in, 8, 0.2), 2);
  return std::sqrt(square / static_cast<double>(end.size()));
}

struct OrderCase {
  const char* sampler;
  SamplerOptions options;
  double order;        // least observed order: error ~ steps^-order
  double error_at_32;  // and size, which tells a right high order from a right low one
};
// Where the error changes its sign between 16 and 32 steps on this problem, or the last step's order hangs on
// the number of steps: its size alone counts.
constexpr double kSizeOnly = -HUGE_VAL;

class ConvergenceOrder : public testing::TestWithParam<OrderCase> {};

TEST_P(ConvergenceOrder, IsThatOfTheMethod) {
  const OrderCase& p = GetParam();
  const double coarse = error_of(p.sampler, p.options, 16), fine = error_of(p.sampler, p.options, 32);
  EXPECT_GE(std::log2(coarse / fine), p.order) << coarse << " " << fine;
  EXPECT_LE(fine, p.error_at_32);
}

SamplerOptions with_eta(double eta) { return {.eta = eta}; }
SamplerOptions with_order(int order) { return {.order = order}; }
INSTANTIATE_TEST_SUITE_P(
    Sampler, ConvergenceOrder,
    testing::Values(
        OrderCase{"euler", {}, 0.8, 0.1}, OrderCase{"euler_a", with_eta(0), 0.8, 0.1},
        OrderCase{"ddim", {}, 0.8, 0.1}, OrderCase{"heun", {}, 1.7, 0.01}, OrderCase{"dpm2", {}, 1.7, 0.01},
        OrderCase{"dpm2_a", with_eta(0), 1.7, 0.01}, OrderCase{"dpmpp_2s_a", with_eta(0), 1.7, 0.01},
        OrderCase{"dpmpp_sde", with_eta(0), 1.7, 0.01}, OrderCase{"dpmpp_2m", with_order(1), 0.8, 0.1},
        OrderCase{"dpmpp_2m", with_order(2), kSizeOnly, 2e-4},
        OrderCase{"dpmpp_2m_v2", {}, kSizeOnly, 2e-4},  // the steps here are equal: 2M itself
        OrderCase{"dpmpp_2m", with_order(3), 1.6, 0.01},
        OrderCase{"dpmpp_2m", {.solver = SolverType::kHeun}, 1.6, 0.02},
        OrderCase{"dpmpp_2s", with_order(2), 1.6, 0.05}, OrderCase{"dpmpp_2s", with_order(3), 1.6, 0.05},
        OrderCase{"dpmpp_2m_sde", with_eta(0), kSizeOnly, 2e-4},
        OrderCase{"dpmpp_3m_sde", with_eta(0), 1.6, 0.01}, OrderCase{"res_multistep", {}, 1.6, 0.02},
        OrderCase{"lms", with_order(2), 1.5, 0.03}, OrderCase{"lms", with_order(4), 1.5, 0.02},
        OrderCase{"deis", with_order(2), 1.5, 0.03}, OrderCase{"deis", with_order(3), 1.5, 0.02},
        OrderCase{"uni_pc", with_order(2), 1.6, 0.01}, OrderCase{"uni_pc", with_order(3), 1.6, 0.01},
        OrderCase{"uni_pc_bh2", with_order(2), 1.6, 0.01}, OrderCase{"uni_pc_bh2", with_order(3), 1.6, 0.01},
        OrderCase{"ipndm", with_order(2), 0.8, 0.05}, OrderCase{"dpm_fast", with_eta(0), kSizeOnly, 0.005}),
    [](const auto& info) { return std::string(info.param.sampler) + "_" + std::to_string(info.index); });

class EverySampler : public testing::TestWithParam<std::string> {};
std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const SamplerRow& row : samplers()) out.emplace_back(row.name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Sampler, EverySampler, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

TEST_P(EverySampler, CallsTheUnetAsOftenAsItSays) {
  for (const int steps : {1, 2, 3, 4, 7, 20, 37}) {
    Problem problem({.sampler = GetParam(), .steps = steps});
    const auto out = problem.run();
    EXPECT_TRUE(std::ranges::all_of(out, [](float v) { return std::isfinite(v); })) << steps;
    EXPECT_EQ(problem.calls, problem.plan.unet_calls()) << steps;
    EXPECT_EQ(static_cast<int>(problem.trajectory.size()), problem.reported_total) << steps;
  }
}

// From pure noise to samples of the data: right mean and variance, which a wrong noise coefficient would
// miss.
TEST_P(EverySampler, ReachesTheDistributionOfTheData) {
  if (GetParam() == "lcm" || GetParam() == "tcd")
    return;  // for distilled models: a denoiser's mean is no sample
  // By timesteps, the last level is 0.03 and not 0: its noise is part of the result.
  Problem problem({.sampler = GetParam(), .schedule = "karras", .steps = 60}, {}, {1, 2}, {1, 32, 32, 4});
  const auto out = problem.run();
  double mean = 0, square = 0;
  for (const double v : out) mean += v / static_cast<double>(out.size());
  for (const double v : out) square += (v - mean) * (v - mean) / static_cast<double>(out.size());
  // 8192 values: standard errors 0.0055 and 0.008 of the deviation. Starting at sigma 14.6 without the data's
  // own share costs 0.1% of the spread; first-order solvers at 60 steps some percent.
  EXPECT_NEAR(mean, kMean, 0.03);
  // DPM++ 2S SDE evaluates its second prediction on noise that the step then drops: of first order in the
  // spread.
  EXPECT_NEAR(std::sqrt(square), kSpread, GetParam() == "dpmpp_2s_sde" ? 0.06 : 0.045);
}

TEST_P(EverySampler, GivesTheSameBitsAgainAndInAnyBatch) {
  const SamplingRequest request{.sampler = GetParam(), .steps = 6};
  Problem batch(request, {}, {5, 9}), again(request, {}, {5, 9}), alone(request, {}, {9});
  const auto both = batch.run();
  EXPECT_EQ(both, again.run());
  const auto one = alone.run();
  EXPECT_TRUE(std::equal(one.begin(), one.end(), both.begin() + static_cast<int64_t>(one.size())));
}

TEST_P(EverySampler, StartsFromAPicture) {
  Problem problem({.sampler = GetParam(), .steps = 20, .strength = 0.5});
  EXPECT_LE(problem.plan.schedule.steps(), 11);
  Arena arena(host_device());
  Exec ex(arena);
  const std::vector<float> ones(64, 1.0f), halves(64, 0.5f);
  const Tensor latents = tensor_from(host_device(), {1, 4, 4, 4}, ones.data());
  const Tensor noise = tensor_from(host_device(), {1, 4, 4, 4}, halves.data());
  const auto x = to_floats(host_device(), start_from_latents(ex, problem.plan, latents, noise));
  const NoiseLevel& level = problem.plan.schedule.levels[0];
  const double want = problem.plan.sampler->space == LatentSpace::kVarianceExploding
                          ? 1 + 0.5 * level.sigma
                          : std::sqrt(level.alpha_bar) + 0.5 * std::sqrt(1 - level.alpha_bar);
  EXPECT_NEAR(x[0], want, 1e-6 * want);
  problem.run();
}

TEST_P(EverySampler, StopsWhenAsked) {
  Problem problem({.sampler = GetParam(), .steps = 12});
  int reports = 0;
  problem.hooks.on_step = [&](const StepReport& report) { return ++reports, report.step < 2; };
  EXPECT_THROW(problem.run(), CancelledError);
  EXPECT_EQ(reports, 2);
}

TEST_P(EverySampler, HooksReplaceWhatTheyAreGiven) {
  Problem problem({.sampler = GetParam(), .steps = 5});
  problem.hooks.after_denoise = [](Exec& ex, const Tensor& denoised, const NoiseLevel&) {
    return linear_combination(ex, {{0, denoised}});
  };
  problem.hooks.on_step = [](const StepReport& report) {
    for (const float v : to_floats(host_device(), report.denoised)) EXPECT_NEAR(v, 0, 1e-4);
    return true;
  };
  if (GetParam() == "dpm_fast") return;  // adds noise down to its last sigma, not 0
  const auto out = problem.run();
  const NoiseLevel& last = problem.plan.schedule.levels.back();
  const double left =
      last.sigma + (problem.plan.sampler->name == "tcd" ? 0.03 : 0);  // TCD lands on timestep 0
  for (const float v : out) EXPECT_NEAR(v, 0, 1e-3 + 5 * left);
}

// With denoising_end a run is the first part of the whole one, whatever orders and noise its last steps have.
TEST_P(EverySampler, CutShortGoesTheSameWay) {
  if (GetParam() == "dpm_fast") return;  // steps of its own between the ends
  const SamplingRequest request{.sampler = GetParam(), .steps = 12};
  Problem whole(request), part(request);
  whole.run();
  part.plan.cut_steps = 5;
  part.plan.schedule.levels.resize(whole.plan.schedule.levels.size() - 5);
  EXPECT_EQ(part.run(), whole.trajectory[whole.trajectory.size() - 6]);
}

TEST(Sampler, RestartEndsWhereItsScheduleDoes) {
  Problem problem({.sampler = "restart", .steps = 30});
  problem.plan.cut_steps = 5;
  problem.plan.schedule.levels.resize(26);
  double last = 0;
  problem.hooks.before_denoise = [&, inner = problem.hooks.before_denoise](
                                     Exec& ex, const Tensor& x, const NoiseLevel& level, LatentSpace space) {
    last = level.sigma;
    return inner(ex, x, level, space);
  };
  problem.run();
  EXPECT_NEAR(last, problem.plan.schedule.levels.back().sigma, 1e-6);
}

// A value that is no number counts as the largest: the others' order, and memory, stay whole.
TEST(Sampler, ThresholdingSurvivesNoNumbers) {
  const NoiseSchedule noise;
  const SamplingPlan plan = plan_sampling(
      noise, {.sampler = "euler", .steps = 1, .options = {.thresholding = Thresholding{0.5, 100}}});
  std::vector<float> values;
  for (int i = 0; i < 64; ++i) values.push_back(i % 8 == 3 ? NAN : static_cast<float>(64 - i));
  const Tensor clean = tensor_from(host_device(), {1, 4, 4, 4}, values.data());
  const Denoiser denoiser([&](Exec&, const Tensor&, double) { return clean; },
                          {.prediction = Prediction::kSample, .cfg_scale = 1});
  Arena arena(host_device());
  Exec ex(arena);
  std::vector<float> got;
  run_sampler(ex, noise, plan, denoiser, nullptr, clean, {.on_step = [&](const StepReport& report) {
                got = to_floats(host_device(), report.denoised);
                return true;
              }});
  ASSERT_EQ(got.size(), 64u);
  EXPECT_EQ(got[0], 1);
  EXPECT_TRUE(std::isnan(got[19]));
  EXPECT_NEAR(got[63], 1 / 37.0, 1e-6);  // between 36 and 38; 37 is none
}

TEST(Sampler, WithoutEtaNoNoiseIsDrawn) {
  for (const char* name : {"euler_a", "dpm2_a", "dpmpp_2s_a", "dpmpp_sde", "dpmpp_2m_sde", "dpmpp_3m_sde",
                           "dpmpp_2s_sde", "sa_solver", "dpm_fast"}) {
    const NoiseSchedule noise;
    const SamplingPlan plan = plan_sampling(noise, {.sampler = name, .steps = 4, .options = {.eta = 0}});
    Arena arena(host_device());
    Exec ex(arena);
    const Denoiser denoiser(
        [](Exec& e, const Tensor& x, double) { return linear_combination(e, {{0.5, x}}); },
        {.prediction = Prediction::kSample, .cfg_scale = 1});
    const std::vector<float> values(16, 1.0f);
    const Tensor x = tensor_from(host_device(), {1, 2, 2, 4}, values.data());
    EXPECT_NO_THROW(run_sampler(ex, noise, plan, denoiser, nullptr, x)) << name;
    const SamplingPlan noisy = plan_sampling(noise, {.sampler = name, .steps = 4});
    EXPECT_THROW(run_sampler(ex, noise, noisy, denoiser, nullptr, x), InternalError) << name;
  }
}

TEST(Sampler, StepNoiseCanBeThatOfAPathOrFresh) {
  SamplingRequest request{.sampler = "dpmpp_2m_sde", .steps = 8};
  const auto path = Problem(request).run();
  request.options.step_noise = StepNoise::kIndependent;
  EXPECT_NE(Problem(request).run(), path);
}

TEST(SamplerNames, OfEveryProject) {
  const std::pair<const char*, const char*> kWant[] = {{"Euler a", "euler_a"},
                                                       {"euler_ancestral", "euler_a"},
                                                       {"k_euler_a", "euler_a"},
                                                       {"EulerAncestralDiscreteScheduler", "euler_a"},
                                                       {"EulerDiscrete", "euler"},
                                                       {"DPM++ 2M", "dpmpp_2m"},
                                                       {"dpm++2m", "dpmpp_2m"},
                                                       {"dpm++2mv2", "dpmpp_2m_v2"},
                                                       {"dpmpp_2m", "dpmpp_2m"},
                                                       {"dpm++2s_a", "dpmpp_2s_a"},
                                                       {"dpmpp_2m_sde_gpu", "dpmpp_2m_sde"},
                                                       {"dpm++2m_sde_bt", "dpmpp_2m_sde"},
                                                       {"DPM++ 3M SDE", "dpmpp_3m_sde"},
                                                       {"uni_pc_bh2", "uni_pc_bh2"},
                                                       {"UniPC", "uni_pc"},
                                                       {"PNDMScheduler", "plms"},
                                                       {"PLMS", "plms"},
                                                       {"ddim_trailing", "ddim_trailing"},
                                                       {"DDIM", "ddim"},
                                                       {"ipndm_v", "ipndm_v"},
                                                       {"LCMScheduler", "lcm"},
                                                       {"k_lcm", "lcm"},
                                                       {"DDIMParallelScheduler", "ddim"},
                                                       {"DPMSolverSDEScheduler", "dpmpp_sde"},
                                                       {"KDPM2AncestralDiscreteScheduler", "dpm2_a"}};
  for (const auto& [name, row] : kWant) EXPECT_EQ(find_sampler(name).name, row) << name;
  try {
    find_sampler("Eular a");
    FAIL();
  } catch (const UsageError& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find("did you mean \"Euler a\"?"), std::string::npos) << message;
    for (const SamplerRow& row : samplers()) EXPECT_NE(message.find(row.label), std::string::npos);
  }
}

TEST(SamplerNames, MayEndInASchedule) {
  const NoiseSchedule noise;
  const struct {
    const char *name, *sampler;
    ScheduleKind schedule;
  } kWant[] = {{"DPM++ 2M Karras", "dpmpp_2m", ScheduleKind::kKarras},
               {"DPM++ 2M SDE Exponential", "dpmpp_2m_sde", ScheduleKind::kExponential},
               {"DPM++ 2M SDE Heun Karras", "dpmpp_2m_sde_heun", ScheduleKind::kKarras},
               {"DPM++ 2M SDE Karras", "dpmpp_2m_sde", ScheduleKind::kKarras},
               {"LMS Karras", "lms", ScheduleKind::kKarras},
               {"k_dpmpp_2m_ka", "dpmpp_2m", ScheduleKind::kKarras},
               {"k_dpmpp_2m_sde_exp", "dpmpp_2m_sde", ScheduleKind::kExponential},
               {"Euler", "euler", ScheduleKind::kNormal},
               {"DPM2", "dpm2", ScheduleKind::kKarras}};
  for (const auto& want : kWant) {
    const SamplingPlan plan = plan_sampling(noise, {.sampler = want.name});
    EXPECT_EQ(plan.sampler->name, want.sampler) << want.name;
    EXPECT_EQ(plan.schedule_kind, want.schedule) << want.name;
  }
  // A schedule that is named by itself wins.
  EXPECT_EQ(plan_sampling(noise, {.sampler = "DPM++ 2M Karras", .schedule = "simple"}).schedule_kind,
            ScheduleKind::kSimple);
  EXPECT_THROW(plan_sampling(noise, {.sampler = "Nonsense Karras"}), UsageError);
}

TEST(SamplingPlan, RefusesBadOptions) {
  const NoiseSchedule noise;
  const auto message = [&](SamplingRequest request) -> std::string {
    try {
      plan_sampling(noise, request);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "accepted";
  };
  const auto refused = [&](const std::string& part, const SamplingRequest& request) {
    EXPECT_NE(message(request).find(part), std::string::npos) << message(request);
  };
  for (const int steps : {0, -1, 1001, 1'000'000'000}) refused("steps", {.steps = steps});
  for (const double eta : {-1.0, std::nan(""), HUGE_VAL, 1e9}) refused("eta", {.options = {.eta = eta}});
  refused("eta", {.sampler = "DDIM", .options = {.eta = 1.5}});
  refused("eta", {.sampler = "TCD", .options = {.eta = 1.5}});
  refused("s_churn", {.options = {.s_churn = -1}});
  refused("s_churn", {.options = {.s_churn = std::nan("")}});
  refused("s_tmin", {.options = {.s_tmin = 5, .s_tmax = 1}});
  refused("s_noise", {.options = {.s_noise = -1}});
  refused("order", {.sampler = "LMS", .options = {.order = 0}});
  refused("order", {.sampler = "LMS", .options = {.order = 5}});
  refused("strength", {.strength = std::nan("")});
  refused("sigmas", {.sigmas = {1, 2}});
  EXPECT_EQ(message({.steps = 1000}), "accepted");
}

}  // namespace
}  // namespace rocm_sd
