// Code objects: what is read from a good one, and that a damaged one is an error, never a crash.
#include "emulator/code_object.hpp"

#include "emulator/translate.hpp"
#include "emulator/wrappers.hpp"
#include "unit_tests/emulator/kernel_test.hpp"

namespace rocm_sd::emu {
namespace {

class CodeObjects : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Builds, CodeObjects, testing::ValuesIn(builds()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CodeObjects);  // builds without AMD targets

TEST_P(CodeObjects, KernelsAndTheirArguments) {
  const auto file = read_object(GetParam(), "basic");
  const CodeImage image = read_code_object(file, "basic");
  EXPECT_EQ(image.target, GetParam().target);
  const Kernel& kernel = image.kernels.at("histogram");
  EXPECT_EQ(kernel.lds_bytes, 256u);
  ASSERT_FALSE(kernel.arguments.empty());
  EXPECT_EQ(kernel.arguments[0].kind, "by_value");
  EXPECT_EQ(kernel.arguments[0].size, 48u);
  EXPECT_EQ(image.kernels.count("vector_add"), 1u);
  EXPECT_GT(image.kernels.at("scratch_sort").scratch_bytes, 0u);
}

TEST_P(CodeObjects, EveryInstructionOfTheTestKernelsIsImplemented) {
  for (const char* name : {"basic", "lanes", "maths", "matrix"}) {
    const CodeObject code = load(name);
    for (const Inst& inst : code.program().code) {
      const std::string& text = code.program().texts[inst.text];
      EXPECT_FALSE(inst.run == run_unknown && !text.empty()) << name << ": " << text;
    }
  }
}

TEST_P(CodeObjects, AnotherTargetIsRefused) {
  Gpu other(GetParam().target == "gfx1100" ? "gfx942" : "gfx1100");
  EXPECT_THROW(other.load(read_object(GetParam(), "basic")), UsageError);
  EXPECT_THROW(Gpu("gfx803"), UsageError);
}

// Truncated anywhere, or with bytes changed: an Error or an image within bounds.
TEST_P(CodeObjects, DamagedFilesAreErrors) {
  const auto file = read_object(GetParam(), "basic");
  size_t refused = 0;
  for (size_t size = 0; size < file.size(); size += 509) try {
      read_code_object(std::span(file).first(size), "truncated");
    } catch (const Error&) {
      ++refused;
    }
  EXPECT_GT(refused, 0u);
  std::mt19937 engine(GetParam().level == "O1" ? 1 : 2);
  refused = 0;
  for (int round = 0; round < 150; ++round) {
    auto bytes = file;
    // The headers and the notes most of all.
    const size_t range = round % 2 ? 1024 : bytes.size();
    for (int i = 0; i < 1 + round % 4; ++i) bytes[engine() % range] = static_cast<std::byte>(engine());
    try {
      const CodeImage image = read_code_object(bytes, "changed");
      for (const auto& [name, kernel] : image.kernels) ASSERT_LT(kernel.entry, image.image.size());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5u);
}

TEST_P(CodeObjects, DeeplyNestedMetadataIsRefused) {
  auto file = read_object(GetParam(), "basic");
  // The map that the metadata begins with becomes arrays of one array each.
  const std::string name("AMDGPU\0", 7);
  const auto* first = reinterpret_cast<const char*>(file.data());
  const size_t at = std::string_view(first, file.size()).find(name);
  ASSERT_NE(at, std::string_view::npos);
  for (size_t i = 0; i < 256; ++i) file[at + 8 + i] = std::byte{0x91};
  EXPECT_THROW(read_code_object(file, "nested"), FormatError);
}

// The negative control: one opcode changed in the machine code changes the result.
TEST_P(CodeObjects, AnotherOpcodeGivesAnotherResult) {
  auto file = read_object(GetParam(), "basic");
  const CodeObject good = gpu.load(file);
  uint32_t from = 0;
  for (const Inst& inst : good.program().code)
    if (good.program().texts[inst.text].starts_with("v_add_f32_e32") && !from)
      std::memcpy(&from, reinterpret_cast<const void*>(inst.address), 4);
  ASSERT_NE(from, 0u);
  const uint32_t to = from + (1u << 25);  // the next opcode of VOP2 subtracts
  for (size_t i = 0; i + 4 <= file.size(); i += 4)
    if (std::memcmp(file.data() + i, &from, 4) == 0) std::memcpy(file.data() + i, &to, 4);
  struct {
    const float *a, *b;
    float* c;
    int n;
  } p{upload(std::vector<float>(64, 5.0f)), upload(std::vector<float>(64, 3.0f)), poisoned<float>(64), 64};
  launch(gpu.load(file), "vector_add", {{1, 1, 1}, {256, 1, 1}}, p);
  EXPECT_EQ(p.c[7], 2.0f);
  launch(good, "vector_add", {{1, 1, 1}, {256, 1, 1}}, p);
  EXPECT_EQ(p.c[7], 8.0f);
}

TEST_P(CodeObjects, UnknownInstructionNamesItself) {
  auto file = read_object(GetParam(), "basic");
  const CodeObject good = gpu.load(file);
  uint32_t from = 0;
  for (const Inst& inst : good.program().code)
    if (good.program().texts[inst.text].starts_with("v_add_f32_e32") && !from)
      std::memcpy(&from, reinterpret_cast<const void*>(inst.address), 4);
  const uint32_t nothing = 0xffffffff;
  for (size_t i = 0; i + 4 <= file.size(); i += 4)
    if (std::memcmp(file.data() + i, &from, 4) == 0) std::memcpy(file.data() + i, &nothing, 4);
  struct {
    const float *a, *b;
    float* c;
    int n;
  } p{upload(std::vector<float>(64, 5.0f)), upload(std::vector<float>(64, 3.0f)), poisoned<float>(64), 64};
  try {
    launch(gpu.load(file), "vector_add", {{1, 1, 1}, {256, 1, 1}}, p);
    FAIL() << "no fault";
  } catch (const KernelFault& fault) {
    const std::string said = fault.what();
    EXPECT_NE(said.find("kernel vector_add, `(no instruction)` at 0x"), std::string::npos) << said;
    EXPECT_NE(said.find("basic.hip:"), std::string::npos)
        << said;  // the sum's line, by the debug information
  }
}

}  // namespace
}  // namespace rocm_sd::emu
