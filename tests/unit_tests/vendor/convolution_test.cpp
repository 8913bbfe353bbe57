// cuDNN and MIOpen on stand-ins that check every call (tests/support/fake_vendor).
#include "vendor/convolution.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/fake_vendor/fake_library.hpp"

namespace rocm_sd::vendor {
namespace {

using testing::HasSubstr;
using Activation = ConvEpilogue::Activation;

class ConvolutionTest : public testing::Test {
 protected:
  ~ConvolutionTest() override { EXPECT_STREQ(fake.complaints(), ""); }
  testing_support::FakeVendor fake{ROCM_SD_FAKE_VENDOR};
};

std::vector<char> randoms(int64_t count, DType type, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = uniform(random);
  std::vector<char> out(values.size() * dtype_size(type));
  convert_elements(values.data(), DType::kF32, out.data(), type, count);
  return out;
}
std::vector<double> loaded(const std::vector<char>& bytes, DType type) {
  std::vector<float> out(bytes.size() / dtype_size(type));
  convert_elements(bytes.data(), type, out.data(), DType::kF32, static_cast<int64_t>(out.size()));
  return {out.begin(), out.end()};
}
template <class E, class Body>
std::string thrown(const Body& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// 2 images of 5x6 with 8 channels to 12, 3x3 with a stride of 2 and other pads on each side.
ConvShape uneven(DType dtype) {
  ConvShape s{
      .batch = 2, .height = 5, .width = 6, .channels = 8, .outputs = 12, .filter_h = 3, .filter_w = 3};
  s.stride = 2;
  s.pad_left = s.pad_bottom = 1;
  s.pad_right = 2;
  s.out_h = 2;
  s.out_w = 4;
  s.dtype = s.result = dtype;
  return s;
}
ConvShape even(DType dtype) {
  ConvShape s{
      .batch = 2, .height = 5, .width = 6, .channels = 8, .outputs = 12, .filter_h = 3, .filter_w = 3};
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = 1;
  s.out_h = 5;
  s.out_w = 6;
  s.dtype = s.result = dtype;
  return s;
}

double activated(double v, Activation act) {
  switch (act) {
    case Activation::kNone: return v;
    case Activation::kSilu: return v / (1 + std::exp(-v));
    case Activation::kGelu: return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
    case Activation::kRelu: return std::max(v, 0.0);
  }
  return v;
}

struct Operands {
  ConvShape shape;
  std::vector<char> x, filter, bias, residual, y, workspace;

  Operands(const ConvShape& s, size_t workspace_bytes) : shape(s), workspace(workspace_bytes) {
    const int64_t outputs = s.batch * s.out_h * s.out_w * s.outputs;
    x = randoms(s.batch * s.height * s.width * s.channels, s.dtype, 1);
    filter = randoms(s.outputs * s.filter_h * s.filter_w * s.channels, s.dtype, 2);
    bias = randoms(s.outputs, DType::kF32, 3);
    residual = randoms(outputs, s.result, 5);
    y.assign(static_cast<size_t>(outputs) * dtype_size(s.result), '\xff');
  }
  ConvOperands pointers() {
    return {.x = x.data(),
            .filter = filter.data(),
            .bias = shape.epilogue.bias ? bias.data() : nullptr,
            .residual = shape.epilogue.residual ? residual.data() : nullptr,
            .y = y.data(),
            .workspace = workspace.empty() ? nullptr : workspace.data()};
  }
  double sum(int64_t n, int64_t p, int64_t q, int64_t k, const std::vector<double>& xs,
             const std::vector<double>& ws) const {
    double out = 0;
    for (int64_t r = 0; r < shape.filter_h; ++r)
      for (int64_t s = 0; s < shape.filter_w; ++s)
        for (int64_t c = 0; c < shape.channels; ++c) {
          const int64_t row = p * shape.stride + r - shape.pad_top,
                        col = q * shape.stride + s - shape.pad_left;
          if (row < 0 || col < 0 || row >= shape.height || col >= shape.width) continue;
          out +=
              xs[static_cast<size_t>(((n * shape.height + row) * shape.width + col) * shape.channels + c)] *
              ws[static_cast<size_t>(((k * shape.filter_h + r) * shape.filter_w + s) * shape.channels + c)];
        }
    return out;
  }
  void expect_right() const {
    const ConvEpilogue& tail = shape.epilogue;
    const auto xs = loaded(x, shape.dtype), ws = loaded(filter, shape.dtype), got = loaded(y, shape.result),
               biases = loaded(bias, DType::kF32), rest = loaded(residual, shape.result);
    const double unit = shape.result == DType::kF32   ? 0x1p-24
                        : shape.result == DType::kF16 ? 0x1p-11
                                                      : 0x1p-8;
    size_t at = 0;
    for (int64_t n = 0; n < shape.batch; ++n)
      for (int64_t p = 0; p < shape.out_h; ++p)
        for (int64_t q = 0; q < shape.out_w; ++q)
          for (int64_t k = 0; k < shape.outputs; ++k, ++at) {
            double want = sum(n, p, q, k, xs, ws);
            if (tail.bias) want += biases[static_cast<size_t>(k)];
            if (tail.residual) want += rest[at];
            want = activated(want, tail.act);
            ASSERT_NEAR(got[at], want, unit * std::fabs(want) + 1e-6)
                << n << " " << p << " " << q << " " << k;
          }
  }
};

void expect_all_right(ConvLibrary& library, const ConvShape& shape, size_t workspace, size_t ways_wanted) {
  const auto ways = library.prepare(shape, 4);
  EXPECT_EQ(ways.size(), ways_wanted);
  for (const auto& way : ways) {
    EXPECT_EQ(way->workspace_bytes(), workspace);
    Operands operands(shape, workspace);
    way->run(nullptr, operands.pointers());
    operands.expect_right();
  }
}

// The stand-in proposes four engines, of which one does not work after all and one sums in any order.
TEST_F(ConvolutionTest, CudnnDoesEveryEpilogue) {
  fake.workspace(640);
  {
    const auto library = open_cudnn();
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
      for (const bool wide : {false, true}) {
        ConvShape shape = uneven(dtype);
        if (wide) shape.result = DType::kF32;
        expect_all_right(*library, shape, 640, 2);
        shape.epilogue.bias = true;
        expect_all_right(*library, shape, 640, 2);
        shape.epilogue.residual = true;
        expect_all_right(*library, shape, 640, 2);
        for (const Activation act : {Activation::kSilu, Activation::kGelu, Activation::kRelu}) {
          shape.epilogue.act = act;
          expect_all_right(*library, shape, 640, 2);
        }
      }
  }
  EXPECT_EQ(fake.live(), 0u);
}

TEST_F(ConvolutionTest, MiopenConvolvesAndRefusesTheRest) {
  fake.workspace(320);
  {
    const auto library = open_miopen();
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
      expect_all_right(*library, even(dtype), 320, 2);
    EXPECT_THAT(thrown<LibraryError>([&] { library->prepare(uneven(DType::kF16), 1); }),
                HasSubstr("both sides"));
    ConvShape with_bias = even(DType::kF16);
    with_bias.epilogue.bias = true;
    EXPECT_THAT(thrown<LibraryError>([&] { library->prepare(with_bias, 1); }), HasSubstr("sums as they are"));
  }
  EXPECT_EQ(fake.live(), 0u);
}

// A search's result comes first from then on.
TEST_F(ConvolutionTest, MiopenKeepsWhatItsSearchFinds) {
  const auto library = open_miopen();
  const ConvShape shape = even(DType::kF16);
  ASSERT_TRUE(library->searches());
  EXPECT_EQ(library->prepare(shape, 1)[0]->name(), "11");
  Operands operands(shape, library->search_workspace(shape) + 16);
  const auto way = library->search(shape, nullptr, operands.pointers());
  EXPECT_EQ(way->name(), "find");
  way->run(nullptr, operands.pointers());
  operands.expect_right();
  EXPECT_EQ(library->prepare(shape, 1)[0]->name(), "42");
  EXPECT_EQ(fake.calls("miopenFindConvolutionForwardAlgorithm"), 1u);
}

TEST_F(ConvolutionTest, NamesTheCallThatFails) {
  {
    const auto cudnn = open_cudnn(), miopen = open_miopen();
    const ConvShape shape = even(DType::kF16);
    Operands operands(shape, 0);
    const auto by_cudnn = cudnn->prepare(shape, 1)[0], by_miopen = miopen->prepare(shape, 1)[0];
    const auto expect = [&](const char* call, Convolution& way) {
      fake.fail(call, 8);
      const std::string error = thrown<LibraryError>([&] { way.run(nullptr, operands.pointers()); });
      EXPECT_THAT(error, HasSubstr(concat(call, ": as the stand-in says (8)")));
      fake.fail(call, 0);
    };
    expect("cudnnBackendExecute", *by_cudnn);
    expect("cudnnSetStream", *by_cudnn);
    expect("cudnnBackendFinalize", *by_cudnn);
    expect("miopenConvolutionForwardImmediate", *by_miopen);
    expect("miopenSetStream", *by_miopen);
    for (const char* call : {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                             "cudnnBackendFinalize", "cudnnBackendGetAttribute"}) {
      const size_t before = fake.live();
      fake.fail(call, 2000);
      EXPECT_THAT(thrown<LibraryError>([&] { cudnn->prepare(shape, 1); }), HasSubstr(call));
      fake.fail(call, 0);
      EXPECT_EQ(fake.live(), before) << call;
    }
    for (const char* call :
         {"miopenCreateTensorDescriptor", "miopenSetTensorDescriptor", "miopenInitConvolutionDescriptor",
          "miopenConvolutionForwardGetSolution", "miopenConvolutionForwardCompileSolution"}) {
      const size_t before = fake.live();
      fake.fail(call, 3);
      EXPECT_THAT(thrown<LibraryError>([&] { miopen->prepare(shape, 1); }), HasSubstr(call));
      fake.fail(call, 0);
      EXPECT_EQ(fake.live(), before) << call;
    }
  }
  EXPECT_EQ(fake.live(), 0u);
}

TEST_F(ConvolutionTest, SaysWhatIsMissing) {
  setenv("ROCM_SD_CUDNN", "libm.so.6", 1);
  EXPECT_THAT(thrown<LibraryError>([] { open_cudnn(); }), HasSubstr("libm.so.6 has no function cudnn"));
  setenv("ROCM_SD_MIOPEN", "/no/such/libMIOpen.so", 1);
  EXPECT_THAT(thrown<LibraryError>([] { open_miopen(); }), HasSubstr("MIOpen: /no/such/libMIOpen.so"));
}

}  // namespace
}  // namespace rocm_sd::vendor
