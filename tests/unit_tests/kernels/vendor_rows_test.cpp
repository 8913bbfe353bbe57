// linear and conv2d by the vendors' libraries, on stand-ins for these and for HIP: the rows' choices, what is
// fused, graphs, and what happens where a library is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "kernels/conv/conv2d.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/select.hpp"
#include "runtime/devices.hpp"
#include "runtime/exec.hpp"
#include "runtime/gpu_driver.hpp"
#include "support/code_objects.hpp"
#include "support/fake_hip/fake_hip.hpp"
#include "support/fake_vendor/fake_library.hpp"
#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSubsetOf;
using testing::Not;

// The kernels beside the libraries' products. On the stand-in they are checked and do nothing.
std::vector<CodeObjectKernel> helpers() {
  std::vector<CodeObjectKernel> out;
  for (const char* type : {"f16", "bf16", "f32"})
    for (const char* name : {"gemm_reduce_", "conv_pack_", "conv_pad_", "conv_reduce_", "conv_unpack_"})
      out.push_back({concat(name, type), 256, 0, 0, 0});
  return out;
}

class VendorRowsTest : public testing::Test {
 protected:
  VendorRowsTest() {
    setenv("ROCM_SD_HIP_LIBRARY", ROCM_SD_FAKE_HIP_6, 1);
    setenv("ROCM_SD_KERNELS", folder.path().c_str(), 1);
    setenv("ROCM_SD_TUNING", "off", 1);
    hip = dlopen(ROCM_SD_FAKE_HIP_6, RTLD_NOW | RTLD_LOCAL);
    fake.queue(reinterpret_cast<Queue*>(dlsym(hip, "fake_hip_enqueue")));
    write_kernel_archive(folder.path() / "kernels_gfx1100.rsk", "gfx1100", "by hand",
                         {{"helpers.co", amd_code_object(helpers())}});
    gpu = make_gpu_device(open_hip(0));
  }
  ~VendorRowsTest() override {
    gpu.reset();
    EXPECT_STREQ(fake.complaints(), "");
    EXPECT_STREQ(reinterpret_cast<decltype(fake_hip_complaints)*>(dlsym(hip, "fake_hip_complaints"))(), "");
    EXPECT_EQ(fake.live(), 0u);  // what the libraries made went with the device
  }

  Tensor random(const Shape& shape, DType dtype, uint64_t seed, float scale = 1) {
    const Tensor host = random_tensor(shape, dtype, seed, scale);
    const Tensor out = make_tensor(*gpu, shape, dtype);
    gpu->copy_to_device(out.data(), host.data(), host.bytes());
    gpu->synchronize();
    return out;
  }
  LinearWeight linear_weight(int64_t out, int64_t in, DType dtype, bool bias,
                             DType bias_values = DType::kF16) {
    LinearWeight w{Weight(random({out, in}, dtype, 2)), std::nullopt};
    if (bias) {  // values that the type holds, stored as f32
      const Tensor rounded = random_tensor({out}, bias_values, 3);
      w.bias = tensor_from(*gpu, {out}, to_floats(host_device(), rounded).data());
    }
    return w;
  }
  // What could compute it, by the names of choices.
  std::vector<std::string> candidates(const char* op, const std::function<void(Exec&)>& forward) {
    Arena arena(*gpu);
    Exec ex(arena, Mode::kPlan);
    const CandidateRecord record(op);
    arena.begin_plan();
    try {
      forward(ex);
    } catch (const UsageError&) {  // nothing takes it
    }
    arena.end_plan();
    return record.candidates();
  }
  // Planned, captured and replayed as a graph under the choice; the result of each.
  std::vector<std::vector<float>> runs(const char* op, const char* choice,
                                       const std::function<Tensor(Exec&)>& forward, int64_t count,
                                       DType dtype) {
    Arena arena(*gpu);
    const Tensor kept = make_tensor(*gpu, {count}, dtype);
    Program program(op, arena, [&](Exec& ex) {
      const ForcedImpl forced(op, choice);
      const Tensor y = forward(ex);
      const void* from = y.data();
      ex.launch({"keep", "test"},
                [this, from, &kept] { gpu->copy_on_device(kept.data(), from, kept.bytes()); });
    });
    std::vector<std::vector<float>> out;
    for (int i = 0; i < 3; ++i) {
      program.run();
      gpu->synchronize();
      out.push_back(to_floats(*gpu, kept));
    }
    return out;
  }

  using Queue = void(void*, void (*)(void*), void*);
  TemporaryFolder folder;
  FakeVendor fake{ROCM_SD_FAKE_VENDOR};
  void* hip = nullptr;
  std::unique_ptr<GpuDevice> gpu;
};

// y = x w^T + bias + residual from the operands' rounded values.
std::vector<double> expected(GpuDevice& gpu, const Tensor& x, const LinearWeight& w, const Tensor* residual) {
  const auto xs = to_floats(gpu, x), ws = to_floats(gpu, w.weight.plain());
  const int64_t rows = x.dim(0), in = x.dim(1), out = w.weight.dim(0);
  std::vector<double> y;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < out; ++c) {
      double sum = w.bias ? static_cast<double>(to_floats(gpu, *w.bias)[static_cast<size_t>(c)]) : 0;
      for (int64_t k = 0; k < in; ++k)
        sum += static_cast<double>(xs[static_cast<size_t>(r * in + k)]) *
               static_cast<double>(ws[static_cast<size_t>(c * in + k)]);
      if (residual) sum += static_cast<double>(to_floats(gpu, *residual)[static_cast<size_t>(r * out + c)]);
      y.push_back(sum);
    }
  return y;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, DType dtype) {
  const double unit = dtype == DType::kF32 ? 0x1p-23 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], unit * std::fabs(want[i]) + 1e-5) << i;
}

TEST_F(VendorRowsTest, LinearIsDoneWholeWhereTheLibraryCan) {
  fake.workspace(4096);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    const Tensor x = random({6, 32}, dtype, 1), residual = random({6, 24}, dtype, 4);
    for (const char* choice : {"hipblaslt", "hipblaslt 1", "rocblas", "rocblas 0"})
      for (const bool bias : {false, true})
        for (const bool with_residual : {false, true}) {
          if (bias && choice[0] == 'r') continue;  // rocBLAS adds none: our kernel's work
          const LinearWeight w = linear_weight(24, 32, dtype, bias);
          const Epilogue epilogue{.residual = with_residual ? &residual : nullptr};
          const auto got =
              runs("linear", choice, [&](Exec& ex) { return linear(ex, x, w, epilogue); }, 6 * 24, dtype);
          const auto want = expected(*gpu, x, w, with_residual ? &residual : nullptr);
          for (const auto& y : got) expect_near(y, want, dtype);
        }
  }
}

// Our kernel finishes what the library does not add; the library's part is then stored as float.
TEST_F(VendorRowsTest, TheRestOfTheEpilogueIsOurs) {
  const Tensor x = random({6, 32}, DType::kF16, 1);
  const auto launches = [&](const char* choice, const LinearWeight& w, const Epilogue& epilogue, bool gated) {
    Arena arena(*gpu);
    Program program("linear", arena, [&](Exec& ex) {
      const ForcedImpl forced(gated ? "linear" : "linear", choice);
      gated ? linear_geglu(ex, x, w) : linear(ex, x, w, epilogue);
    });
    program.plan();
    program.run();  // under the stand-ins' checks
    gpu->synchronize();
    std::vector<std::string> out;
    for (const auto& [problem, work] : program.problems()) out.push_back(problem);
    return out;
  };
  const LinearWeight w = linear_weight(24, 32, DType::kF16, true);
  const auto one_of = [](const char* text) { return Contains(HasSubstr(text)); };
  EXPECT_THAT(launches("hipblaslt", w, {}, false), Not(one_of("gpu epilogue")));
  EXPECT_THAT(launches("rocblas", w, {}, false), one_of("gpu epilogue"));
  EXPECT_THAT(launches("hipblaslt", w, {.act = Activation::kGelu}, false), one_of("gpu epilogue"));
  EXPECT_THAT(launches("hipblaslt", w, {}, true), one_of("gpu epilogue"));
}

TEST_F(VendorRowsTest, AreCandidatesAfterOurOwn) {
  const Tensor x = random({6, 32}, DType::kF16, 1);
  const LinearWeight w = linear_weight(24, 32, DType::kF16, true);
  const auto found = candidates("linear", [&](Exec& ex) { linear(ex, x, w); });
  EXPECT_EQ(found,
            (std::vector<std::string>{"hipblaslt 0", "hipblaslt 1", "rocblas 0"}));  // no "gpu" kernels here
  const Tensor image = random({1, 6, 5, 16}, DType::kF16, 1);
  const ConvWeight filter{Weight(random({8, 16, 3, 3}, DType::kF16, 2)), std::nullopt};
  const auto conv =
      candidates("conv2d", [&](Exec& ex) { conv2d(ex, image, filter, {.pad = Padding::same(1)}); });
  EXPECT_EQ(conv, (std::vector<std::string>{"miopen 11", "miopen 42", "miopen find"}));
}

TEST_F(VendorRowsTest, ConvolvesInGraphs) {
  fake.workspace(1024);
  const Tensor image = random({1, 6, 5, 16}, DType::kF16, 1);
  // 1x1: the filter's layouts agree, so the stand-in's idle conv_pack kernel may leave its copy alone. The
  // packed copy is what runs, so here it is only that all calls and graphs are sound.
  const ConvWeight filter{Weight(random({8, 16, 1, 1}, DType::kF16, 2)), std::nullopt};
  const char *const run = "miopenConvolutionForwardImmediate", *const find =
                                                                   "miopenFindConvolutionForwardAlgorithm";
  const auto runs_before = fake.calls(run),
             finds_before = fake.calls(find);  // of other tests of this process
  for (const char* choice : {"miopen", "miopen 42", "miopen find"}) {
    const auto got =
        runs("conv2d", choice, [&](Exec& ex) { return conv2d(ex, image, filter); }, 30 * 8, DType::kF16);
    EXPECT_EQ(got.size(), 3u);
  }
  EXPECT_GE(fake.calls(run) - runs_before, 3u);
  EXPECT_EQ(fake.calls(find) - finds_before, 1u);
}

TEST_F(VendorRowsTest, RefuseWithASentence) {
  const Tensor x = random({6, 32}, DType::kF16, 1), odd = random({6, 9}, DType::kF16, 1);
  const LinearWeight w = linear_weight(24, 32, DType::kF16, false),
                     narrow = linear_weight(24, 9, DType::kF16, false);
  Arena arena(*gpu);
  Exec ex(arena);
  const auto refusal = [&](const char* choice, const Tensor& input, const LinearWeight& weight) {
    const ForcedImpl forced("linear", choice);
    return message_of<UsageError>([&] { linear(ex, input, weight); });
  };
  EXPECT_THAT(refusal("cublaslt", x, w), HasSubstr("runs on NVIDIA GPUs only"));
  EXPECT_THAT(refusal("hipblaslt 7", x, w), HasSubstr("the library has no such algorithm"));
  EXPECT_THAT(refusal("hipblaslt first", x, w), HasSubstr("the library has no such algorithm"));
  EXPECT_THAT(refusal("hipblaslt", odd, narrow), HasSubstr("16-byte pieces"));
  fake.fail("rocblas_create_handle", 1);
  EXPECT_THAT(refusal("rocblas", x, w), HasSubstr("rocBLAS: rocblas_create_handle"));
  fake.fail("rocblas_create_handle", 0);
  setenv("ROCM_SD_MIOPEN", "/no/such/libMIOpen.so", 1);
  const Tensor image = random({1, 6, 5, 16}, DType::kF16, 1);
  const ConvWeight filter{Weight(random({8, 16, 1, 1}, DType::kF16, 2)), std::nullopt};
  const ForcedImpl forced("conv2d", "miopen");
  EXPECT_THAT(message_of<UsageError>([&] { conv2d(ex, image, filter); }), HasSubstr("/no/such/libMIOpen.so"));
}

TEST_F(VendorRowsTest, ACallThatFailsNamesItself) {
  const Tensor x = random({6, 32}, DType::kF16, 1);
  const LinearWeight w = linear_weight(24, 32, DType::kF16, false);
  Arena arena(*gpu);
  Exec ex(arena);
  const ForcedImpl forced("linear", "hipblaslt");
  fake.fail("hipblasLtMatmul", 6);
  EXPECT_THAT(message_of<Error>([&] { linear(ex, x, w); }), HasSubstr("hipBLASLt: Matmul: status 6"));
  fake.fail("hipblasLtMatmul", 0);
}

}  // namespace
}  // namespace rocm_sd
