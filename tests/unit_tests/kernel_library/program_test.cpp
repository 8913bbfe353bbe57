// Planned launches against what the ops launch on real addresses: the same kernels with the same parameters,
// byte for byte, once the operands, the workspace and the prepared weight are where the op had its own.
#include "kernel_library/program.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.hpp"
#include "kernel_library/plan.hpp"
#include "unit_tests/kernel_library/recording_gpu.hpp"

namespace rocm_sd::library {
namespace {

struct Case {
  std::string name;
  Problem problem;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

rocm_sd_kernels_attention attention_of(int64_t batch, int64_t heads, int64_t queries, int64_t keys,
                                       int64_t dim) {
  return {.size = sizeof(rocm_sd_kernels_attention),
          .dtype = ROCM_SD_KERNELS_F16,
          .batch = batch,
          .heads = heads,
          .queries = queries,
          .keys = keys,
          .head_dim = dim};
}

std::vector<Case> cases() {
  std::vector<Case> out;
  out.push_back({"attention_self", attention_problem(attention_of(2, 8, 4096, 4096, 40))});
  out.push_back({"attention_split", attention_problem(attention_of(1, 2, 64, 4096, 64))});
  auto masked = attention_of(2, 5, 100, 77, 64);
  masked.masked = 1;
  masked.mask_strides[0] = 77;
  out.push_back({"attention_masked", attention_problem(masked)});
  auto packed = attention_of(2, 8, 256, 256, 80);
  packed.q = packed.k = packed.v = {256 * 3 * 640, 80, 3 * 640};
  out.push_back({"attention_packed_qkv", attention_problem(packed)});
  auto matrices = attention_of(2, 10, 256, 77, 64);
  matrices.q = matrices.y = {10 * 256 * 64, 256 * 64, 64};
  matrices.k = matrices.v = {10 * 77 * 64, 77 * 64, 64};
  out.push_back({"attention_heads_as_matrices", attention_problem(matrices)});
  out.push_back({"attention_odd_head_dim", attention_problem(attention_of(1, 3, 50, 60, 72))});

  rocm_sd_kernels_linear linear{};
  linear.dtype = ROCM_SD_KERNELS_F16;
  linear.rows = 512;
  linear.in = linear.out = 1280;
  linear.has_bias = linear.has_residual = 1;
  out.push_back({"linear_split", linear_problem(linear)});
  linear.rows = 2;
  linear.has_residual = 0;
  linear.activation = ROCM_SD_KERNELS_SILU;
  out.push_back({"linear_few_rows", linear_problem(linear)});
  linear.rows = 8192;
  linear.in = 320;
  linear.activation = ROCM_SD_KERNELS_NO_ACTIVATION;
  linear.gated = 1;
  linear.dtype = ROCM_SD_KERNELS_BF16;
  out.push_back({"linear_geglu", linear_problem(linear)});

  rocm_sd_kernels_conv2d conv{};
  conv.dtype = ROCM_SD_KERNELS_F16;
  conv.batch = 2;
  conv.height = conv.width = 8;
  conv.channels = 1280;
  conv.out_channels = 1280;
  conv.filter_h = conv.filter_w = 3;
  conv.pad_top = conv.pad_left = conv.pad_bottom = conv.pad_right = 1;
  conv.has_bias = conv.has_channel_shift = conv.has_residual = 1;
  out.push_back({"conv_split", conv2d_problem(conv)});
  conv.second_channels = 640;
  out.push_back({"conv_second", conv2d_problem(conv)});
  conv.second_channels = 0;
  conv.has_channel_shift = conv.has_residual = 0;
  conv.upsample2x = 1;
  out.push_back({"conv_doubled", conv2d_problem(conv)});
  conv.upsample2x = 0;
  conv.channels = 4;  // padded in front of the convolution
  conv.height = conv.width = 64;
  out.push_back({"conv_padded_input", conv2d_problem(conv)});

  rocm_sd_kernels_group_norm group{};
  group.dtype = ROCM_SD_KERNELS_F16;
  group.batch = 2;
  group.pixels = 64 * 64;
  group.channels = 320;
  group.groups = 32;
  group.eps = 1e-5f;
  group.activation = ROCM_SD_KERNELS_SILU;
  out.push_back({"group_norm_parts", group_norm_problem(group)});
  group.pixels = 64;
  group.second_channels = 640;
  out.push_back({"group_norm_second", group_norm_problem(group)});
  rocm_sd_kernels_layer_norm layer{};
  layer.dtype = ROCM_SD_KERNELS_BF16;
  layer.rows = 8192;
  layer.channels = 640;
  layer.eps = 1e-5f;
  out.push_back({"layer_norm", layer_norm_problem(layer)});
  layer.has_residual = 1;
  out.push_back({"layer_norm_residual", layer_norm_problem(layer)});
  rocm_sd_kernels_geglu geglu{};
  geglu.dtype = ROCM_SD_KERNELS_F16;
  geglu.rows = 100;
  geglu.channels = 2560;
  out.push_back({"geglu", geglu_problem(geglu)});
  return out;
}

struct Block {
  uint64_t begin = 0;
  size_t bytes = 0;
  bool holds(uint64_t address) const { return address >= begin && address - begin <= bytes; }
};

// A GPU that remembers which blocks it gave, in order, and gives none of them back before the test ends.
class RememberingGpu final : public GpuDevice {
 public:
  explicit RememberingGpu(const std::string& arch) : gpu_(traits_of(arch)) {}
  ~RememberingGpu() override {
    for (const Block& block : blocks) gpu_.free(reinterpret_cast<void*>(block.begin), block.bytes);
  }
  std::vector<Block> blocks;
  RecordingGpu& recording() { return gpu_; }

  DeviceKind kind() const override { return gpu_.kind(); }
  std::string name() const override { return gpu_.name(); }
  MemoryInfo memory() const override { return {}; }
  const GpuTraits& traits() const override { return gpu_.traits(); }
  DType preferred_dtype() const override { return DType::kF16; }
  const GpuKernel* find_kernel(std::string_view name) override { return gpu_.find_kernel(name); }
  void* allocate(size_t bytes) override {
    void* data = gpu_.allocate(bytes);
    blocks.push_back({reinterpret_cast<uint64_t>(data), bytes});
    return data;
  }
  void free(void*, size_t) noexcept override {}
  void launch(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds, const void* params,
              size_t bytes) override {
    gpu_.launch(kernel, grid, threads, lds, params, bytes);
  }
  void synchronize() override {}
  void copy_to_device(void*, const void*, size_t) override { std::abort(); }
  void copy_to_host(void*, const void*, size_t) override { std::abort(); }
  void copy_on_device(void*, const void*, size_t) override { std::abort(); }
  void fill_zero(void*, size_t) override { std::abort(); }
  void begin_capture() override { std::abort(); }
  std::unique_ptr<GpuGraph> end_capture() override { std::abort(); }
  std::unique_ptr<GpuEvent> make_event() override { std::abort(); }

 private:
  RecordingGpu gpu_;
};

uint64_t word(const RecordedLaunch& launch, size_t i) {
  uint64_t out = 0;
  std::memcpy(&out, launch.params.data() + 8 * i, std::min<size_t>(8, launch.params.size() - 8 * i));
  return out;
}

class LaunchProgramTest : public ::testing::TestWithParam<std::tuple<std::string, Case>> {};

TEST_P(LaunchProgramTest, LaunchesWhatTheOpLaunches) {
  const auto& [arch, c] = GetParam();
  RememberingGpu gpu(arch);

  // The op itself, twice over one weight, on real addresses.
  Operands operands;
  Pointers pointers{};
  for (const Operand& operand : c.problem.operands) {
    if (operand.output) continue;
    auto storage = std::make_shared<Storage>(gpu.allocate(operand.bytes()), operand.bytes());
    pointers[static_cast<size_t>(operand.role)] = storage->data();
    operands.emplace(operand.role, Tensor(std::move(storage), operand.shape, operand.strides, operand.dtype));
  }
  const size_t inputs = gpu.blocks.size();
  const Weight weight = operands.contains(Role::kWeight) ? Weight(operands.at(Role::kWeight)) : Weight();
  Arena arena(gpu);
  Exec ex(arena);
  c.problem.run(ex, operands, weight);
  const size_t first = gpu.recording().launches.size(), first_blocks = gpu.blocks.size();
  const std::vector<Result> results = c.problem.run(ex, operands, weight);
  const std::vector<RecordingGpu::Launch> all = std::exchange(gpu.recording().launches, {});
  ASSERT_GT(all.size(), first);

  // The plan, with its outputs where the op had them and a workspace and a prepared weight of its own.
  const LaunchProgram program = plan_launches(gpu, c.problem);
  ASSERT_TRUE(gpu.recording().launches.empty()) << "planning launched something";
  std::vector<char> workspace(program.workspace_bytes + 1), prepared(program.prepared_bytes + 1);
  for (const Result& result : results) pointers[static_cast<size_t>(result.role)] = result.tensor.data();
  pointers[static_cast<size_t>(Role::kWorkspace)] = workspace.data();
  pointers[static_cast<size_t>(Role::kPrepared)] = prepared.data();
  int stream = 0;
  start(gpu.recording(), program.prepare, pointers, &stream);
  EXPECT_EQ(gpu.recording().launches.size(), program.prepare.size());
  EXPECT_EQ(first + program.run.size(), all.size());
  EXPECT_EQ(first, program.run.size() + program.prepare.size());
  gpu.recording().launches.clear();
  start(gpu.recording(), program.run, pointers, &stream);
  const auto& planned = gpu.recording().launches;
  ASSERT_EQ(planned.size(), program.run.size());

  const Block work{reinterpret_cast<uint64_t>(workspace.data()), program.workspace_bytes},
      ready{reinterpret_cast<uint64_t>(prepared.data()), program.prepared_bytes};
  std::map<uint64_t, uint64_t> moved;  // block of the op -> where the plan has it
  for (size_t i = 0; i < planned.size(); ++i) {
    const RecordedLaunch &want = all[first + i].launch, &got = planned[i].launch;
    EXPECT_EQ(planned[i].stream, &stream);
    EXPECT_EQ(got.kernel, want.kernel) << got.kernel->name << ", " << want.kernel->name;
    EXPECT_EQ(std::tie(got.grid.x, got.grid.y, got.grid.z, got.threads, got.lds_bytes),
              std::tie(want.grid.x, want.grid.y, want.grid.z, want.threads, want.lds_bytes));
    ASSERT_EQ(got.params.size(), want.params.size());
    for (size_t w = 0; 8 * w < want.params.size(); ++w) {
      const uint64_t a = word(want, w), b = word(got, w);
      if (a == b) continue;
      // Else a temporary of the second run, which the plan keeps in the workspace, or the packed weight.
      size_t block = inputs;
      while (block < gpu.blocks.size() && !gpu.blocks[block].holds(a)) ++block;
      ASSERT_LT(block, gpu.blocks.size())
          << want.kernel->name << ": word " << w << " differs and is no address";
      const Block& home = block < first_blocks ? ready : work;
      const uint64_t begin = b - (a - gpu.blocks[block].begin);
      EXPECT_TRUE(home.holds(begin) && home.holds(begin + gpu.blocks[block].bytes))
          << want.kernel->name << ": word " << w;
      EXPECT_EQ(moved.emplace(gpu.blocks[block].begin, begin).first->second, begin);
    }
  }
  // What was moved does not overlap.
  for (const auto& [a, to_a] : moved)
    for (const auto& [b, to_b] : moved) {
      if (a >= b) continue;
      const auto bytes = [&](uint64_t begin) {
        for (const Block& block : gpu.blocks)
          if (block.begin == begin) return block.bytes;
        return size_t{0};
      };
      EXPECT_TRUE(to_a + bytes(a) <= to_b || to_b + bytes(b) <= to_a);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Families, LaunchProgramTest,
    ::testing::Combine(::testing::Values("gfx1100", "gfx1201", "gfx942", "sm_80", "sm_90"),
                       ::testing::ValuesIn(cases())),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

// An op that gives a kernel something made of an address, or whose kernels change with it.
Problem strange_problem(const std::function<void(Exec&, uint64_t address)>& launch) {
  Problem problem;
  problem.op = "strange";
  problem.operands = {dense(Role::kX, {16}, DType::kF32), dense(Role::kY, {16}, DType::kF32, true)};
  problem.run = [launch](Exec& ex, const Operands& in, const Weight&) {
    launch(ex, reinterpret_cast<uint64_t>(in.at(Role::kX).data()));
    return std::vector<Result>{{Role::kY, 0, ex.alloc({16}, DType::kF32)}};
  };
  return problem;
}

TEST(LaunchProgram, FindsOutParametersThatAreMadeOfAddresses) {
  RecordingGpu gpu(traits_of("gfx1100"));
  const auto launch = [](Exec& ex, uint64_t word, uint32_t groups) {
    auto& device = static_cast<GpuDevice&>(ex.device());
    device.launch(*device.find_kernel("strange"), {groups}, 32, 0, &word, sizeof(word));
  };
  const std::vector<std::function<void(Exec&, uint64_t)>> strange = {
      [&](Exec& ex, uint64_t x) { launch(ex, 2 * x, 1); },
      [&](Exec& ex, uint64_t x) { launch(ex, x >> 12, 1); },
      [&](Exec& ex, uint64_t x) { launch(ex, x + (1 << 20), 1); },  // behind every block
      [&](Exec& ex, uint64_t x) { launch(ex, 0, static_cast<uint32_t>(x >> 42)); },
      [&](Exec& ex, uint64_t x) {
        if (x >> 43 & 1) launch(ex, 0, 1);
      },
  };
  for (const auto& op : strange) EXPECT_THROW(plan_launches(gpu, strange_problem(op)), InternalError);
  EXPECT_NO_THROW(plan_launches(gpu, strange_problem([&](Exec& ex, uint64_t x) { launch(ex, x + 8, 1); })));
}

TEST(Plan, ChecksOperandsAndKeepsTheThreadsContext) {
  RecordingGpu gpu(traits_of("gfx1100"));
  gpu.context = &gpu + 1;
  Plan plan(gpu, attention_problem(attention_of(1, 2, 64, 4096, 64)));
  EXPECT_EQ(gpu.context, &gpu + 1);
  ASSERT_GT(plan.workspace_bytes(true), 0u);
  EXPECT_NE(plan.explanation().find("launches flash_f16_d64"), std::string::npos) << plan.explanation();
  std::vector<char> workspace(plan.workspace_bytes(true));
  alignas(16) char data[64];
  Pointers pointers{};
  for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kY}) pointers[static_cast<size_t>(role)] = data;
  pointers[static_cast<size_t>(Role::kWorkspace)] = workspace.data();
  plan.launch(pointers, workspace.size(), nullptr);
  EXPECT_EQ(gpu.context, &gpu + 1);
  EXPECT_EQ(gpu.launches.size(), static_cast<size_t>(plan.launches()));
  EXPECT_THROW(plan.launch(pointers, workspace.size() - 1, nullptr), ShapeError);
  const auto refuse = [&](Role role, const void* value) {
    Pointers wrong = pointers;
    wrong[static_cast<size_t>(role)] = value;
    EXPECT_THROW(plan.launch(wrong, workspace.size(), nullptr), ShapeError) << role_name(role);
  };
  refuse(Role::kQ, nullptr);
  refuse(Role::kK, data + 8);
  refuse(Role::kMask, data);
  refuse(Role::kPrepared, data);
  refuse(Role::kWorkspace, nullptr);
  EXPECT_EQ(gpu.launches.size(), static_cast<size_t>(plan.launches()));
  EXPECT_THROW(plan.prepare(data, data, nullptr), ShapeError);
}

TEST(Plan, SaysWhyNoKernelTakesAProblem) {
  RecordingGpu gpu(traits_of("gfx1100"));
  gpu.missing = "attention_";  // attention_wave, and Composable Kernel's
  try {
    Plan(gpu, attention_problem(attention_of(1, 2, 64, 64, 72)));
    FAIL() << "took it";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("head_dim 72"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace rocm_sd::library
