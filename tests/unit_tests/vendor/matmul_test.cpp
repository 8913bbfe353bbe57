// cuBLASLt, hipBLASLt and rocBLAS on stand-ins that check every call (tests/support/fake_vendor).
#include "vendor/matmul.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/fake_vendor/fake_library.hpp"

namespace rocm_sd::vendor {
namespace {

using testing::HasSubstr;

struct Opened {
  const char* name;
  const char* prefix;  // of its functions
  std::shared_ptr<MatmulLibrary> (*open)();
  const char* variable;
};
const Opened kLibraries[] = {{"cuBLASLt", "cublasLt", open_cublaslt, "ROCM_SD_CUBLASLT"},
                             {"hipBLASLt", "hipblasLt", open_hipblaslt, "ROCM_SD_HIPBLASLT"},
                             {"rocBLAS", "rocblas_", open_rocblas, "ROCM_SD_ROCBLAS"}};

class MatmulTest : public testing::TestWithParam<Opened> {
 protected:
  ~MatmulTest() override { EXPECT_STREQ(fake.complaints(), ""); }
  bool is_rocblas() const { return std::string_view(GetParam().name) == "rocBLAS"; }
  std::string failing_call() const {
    return is_rocblas() ? "rocblas_gemm_ex" : concat(GetParam().prefix, "Matmul");
  }

  testing_support::FakeVendor fake{ROCM_SD_FAKE_VENDOR};
};

std::vector<char> stored(const std::vector<float>& values, DType type) {
  std::vector<char> out(values.size() * dtype_size(type));
  convert_elements(values.data(), DType::kF32, out.data(), type, static_cast<int64_t>(values.size()));
  return out;
}
std::vector<float> loaded(const std::vector<char>& bytes, DType type) {
  std::vector<float> out(bytes.size() / dtype_size(type));
  convert_elements(bytes.data(), type, out.data(), DType::kF32, static_cast<int64_t>(out.size()));
  return out;
}
std::vector<float> randoms(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out) v = uniform(random);
  return out;
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

// Operands in memory, and the product by its definition.
struct Operands {
  MatmulShape shape;
  std::vector<char> x, w, bias, residual, y, workspace;

  Operands(const MatmulShape& s, size_t workspace_bytes) : shape(s), workspace(workspace_bytes) {
    x = stored(randoms(s.rows * s.x_stride, 1), s.dtype);
    w = stored(randoms(s.columns * s.depth, 2), s.dtype);
    bias = stored(randoms(s.columns, 3), s.bias.value_or(DType::kF32));
    residual = stored(randoms(s.rows * s.columns, 4), s.result);
    y.assign(static_cast<size_t>(s.rows * s.columns) * dtype_size(s.result), '\xff');
  }
  MatmulOperands pointers() {
    return {.x = x.data(),
            .w = w.data(),
            .bias = shape.bias ? bias.data() : nullptr,
            .residual = shape.residual ? residual.data() : nullptr,
            .y = y.data(),
            .workspace = workspace.empty() ? nullptr : workspace.data()};
  }
  void expect_right() const {
    const auto xs = loaded(x, shape.dtype), ws = loaded(w, shape.dtype), got = loaded(y, shape.result);
    const auto biases = loaded(bias, shape.bias.value_or(DType::kF32)), rest = loaded(residual, shape.result);
    const double unit = shape.result == DType::kF32   ? 0x1p-24
                        : shape.result == DType::kF16 ? 0x1p-11
                                                      : 0x1p-8;
    for (int64_t r = 0; r < shape.rows; ++r)
      for (int64_t c = 0; c < shape.columns; ++c) {
        double want = 0;
        for (int64_t k = 0; k < shape.depth; ++k)
          want += static_cast<double>(xs[static_cast<size_t>(r * shape.x_stride + k)]) *
                  static_cast<double>(ws[static_cast<size_t>(c * shape.depth + k)]);
        const auto at = static_cast<size_t>(r * shape.columns + c);
        if (shape.bias) want += static_cast<double>(biases[static_cast<size_t>(c)]);
        if (shape.residual) want += static_cast<double>(rest[at]);
        ASSERT_NEAR(static_cast<double>(got[at]), want, unit * std::fabs(want) + 1e-6) << r << ", " << c;
      }
  }
};

TEST_P(MatmulTest, MultipliesEveryForm) {
  fake.workspace(1000);
  {
    const auto library = GetParam().open();
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
      for (const bool wide : {false, true})
        for (const bool bias : {false, true})
          for (const bool residual : {false, true}) {
            MatmulShape shape{.rows = 5, .columns = 16, .depth = 24, .x_stride = 32, .dtype = dtype};
            shape.result = wide ? DType::kF32 : dtype;
            if (bias) shape.bias = library->bias_type(shape.result);
            shape.residual = residual;
            const auto ways = library->prepare(shape, 4);
            ASSERT_FALSE(ways.empty());
            for (const auto& way : ways) {
              EXPECT_EQ(way->workspace_bytes(), 1000u);
              Operands operands(shape, 1000);
              way->run(nullptr, operands.pointers());
              operands.expect_right();
            }
          }
  }
  EXPECT_EQ(fake.live(), 0u);
}

// Of the four that the stand-in proposes one asks for too much and one is marked bad.
TEST_P(MatmulTest, LeavesOutWhatTheLibraryMarksAsBad) {
  const auto library = GetParam().open();
  const auto ways = library->prepare({.rows = 2, .columns = 8, .depth = 8, .x_stride = 8}, 8);
  EXPECT_EQ(ways.size(), is_rocblas() ? 1u : 2u);
  EXPECT_EQ(library->prepare({.rows = 2, .columns = 8, .depth = 8, .x_stride = 8}, 1).size(), 1u);
}

TEST_P(MatmulTest, NamesTheCallThatFails) {
  {
    const auto library = GetParam().open();
    const MatmulShape shape{.rows = 2, .columns = 8, .depth = 8, .x_stride = 8};
    const auto ways = library->prepare(shape, 1);
    fake.fail(failing_call().c_str(), 14);
    Operands operands(shape, 0);
    const std::string error = thrown<LibraryError>([&] { ways[0]->run(nullptr, operands.pointers()); });
    EXPECT_THAT(error, HasSubstr(GetParam().name));
    EXPECT_THAT(error, HasSubstr(is_rocblas() ? "rocblas_gemm_ex" : "Matmul"));
    EXPECT_THAT(error, HasSubstr("14"));
    fake.fail(failing_call().c_str(), 0);
    if (!is_rocblas()) {
      // Whatever fails on the way, nothing stays behind.
      for (const char* call :
           {"MatmulDescCreate", "MatmulDescSetAttribute", "MatrixLayoutCreate", "MatmulPreferenceCreate",
            "MatmulPreferenceSetAttribute", "MatmulAlgoGetHeuristic"}) {
        const std::string name = concat(GetParam().prefix, call);
        const size_t before = fake.live();
        fake.fail(name.c_str(), 3);
        EXPECT_THAT(thrown<LibraryError>([&] { library->prepare(shape, 1); }), HasSubstr(call));
        fake.fail(name.c_str(), 0);
        EXPECT_EQ(fake.live(), before) << call;
      }
    }
  }
  EXPECT_EQ(fake.live(), 0u);
  const std::string create = is_rocblas() ? "rocblas_create_handle" : concat(GetParam().prefix, "Create");
  fake.fail(create.c_str(), 1);
  EXPECT_THAT(thrown<LibraryError>([&] { GetParam().open(); }), HasSubstr("reate"));
  fake.fail(create.c_str(), 0);
}

TEST_P(MatmulTest, SaysWhatIsMissing) {
  setenv(GetParam().variable, "/no/such/library.so", 1);
  EXPECT_THAT(thrown<LibraryError>([&] { GetParam().open(); }), HasSubstr("/no/such/library.so"));
  setenv(GetParam().variable, "libm.so.6", 1);
  const std::string error = thrown<LibraryError>([&] { GetParam().open(); });
  EXPECT_THAT(error, HasSubstr(concat("libm.so.6 has no function ", GetParam().prefix)));
}

INSTANTIATE_TEST_SUITE_P(Libraries, MatmulTest, testing::ValuesIn(kLibraries),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RocblasLibrary, RefusesABias) {
  const testing_support::FakeVendor fake(ROCM_SD_FAKE_VENDOR);
  const auto library = open_rocblas();
  EXPECT_EQ(library->bias_type(DType::kF16), std::nullopt);
  EXPECT_THAT(thrown<LibraryError>([&] {
                library->prepare({.rows = 2, .columns = 8, .depth = 8, .x_stride = 8, .bias = DType::kF16},
                                 1);
              }),
              HasSubstr("adds no bias"));
}

}  // namespace
}  // namespace rocm_sd::vendor
