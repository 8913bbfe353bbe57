// What `rocm-sd emu` is made of: arguments as text, their layout, listings, traces and stops.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "emulator/offload_bundle.hpp"
#include "emulator/report.hpp"
#include "emulator/tool/bound_arguments.hpp"
#include "emulator/tool/listing.hpp"
#include "emulator/tool/registers.hpp"
#include "unit_tests/emulator/kernel_test.hpp"

namespace rocm_sd::emu {
namespace {

template <class T>
T value_of(const std::string& text) {
  const ArgumentText a = parse_argument(text);
  T out;
  EXPECT_EQ(a.value.size(), sizeof(T)) << text;
  std::memcpy(&out, a.value.data(), sizeof(T));
  return out;
}

TEST(EmuArguments, ScalarsKeepTheirBits) {
  EXPECT_EQ(value_of<int8_t>("i8:-128"), -128);
  EXPECT_EQ(value_of<uint8_t>("u8:255"), 255);
  EXPECT_EQ(value_of<int8_t>("i8:0xff"), -1);
  EXPECT_EQ(value_of<int16_t>("i16:32767"), 32767);
  EXPECT_EQ(value_of<int32_t>("i32:-2147483648"), INT32_MIN);
  EXPECT_EQ(value_of<uint32_t>("u32:0xdeadbeef"), 0xdeadbeef);
  EXPECT_EQ(value_of<int64_t>("i64:-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(value_of<uint64_t>("u64:18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(value_of<float>("f32:-1.5e-3"), -1.5e-3f);
  EXPECT_EQ(value_of<double>("f64:inf"), HUGE_VAL);
  EXPECT_EQ(value_of<uint16_t>("f16:1"), 0x3c00);
  EXPECT_EQ(value_of<uint16_t>("bf16:-2"), 0xc000);
  EXPECT_EQ(value_of<uint8_t>("bool:true"), 1);
  EXPECT_EQ(value_of<uint64_t>("null"), 0u);
}

TEST(EmuArguments, BadTextIsAnError) {
  for (const char* text : {"",
                           "i32",
                           "i32:",
                           "i32:x",
                           "i32:1.5",
                           "i32:2147483648",
                           "i8:-129",
                           "u8:256",
                           "u8:-1",
                           "bool:2",
                           "f32:1e99",
                           "f32:1x",
                           "q32:1",
                           "out:f32",
                           "out:f32[",
                           "out:f32[2",
                           "out:f32[2]x",
                           "out:f32[2]:",
                           "out:f32[-1]",
                           "out:f32[a]",
                           "out:zz[2]",
                           "out:f64[99999999999]",
                           "in:",
                           "inout:",
                           "inout:a.npy:",
                           "{i32:1",
                           "{}",
                           "{i32:1,}",
                           "{{i32:1}",
                           "pad:x",
                           "pad:99999999",
                           "i32:0x",
                           "u64:99999999999999999999",
                           "{i32:1]}"})
    EXPECT_THROW(parse_argument(text), Error) << text;
  std::string deep = "i32:1";
  for (int i = 0; i < 1000; ++i) deep = "{" + deep + "}";
  EXPECT_THROW(parse_argument(deep), UsageError);
  EXPECT_THROW(parse_argument("out:f64[4294967296,4294967296,4294967296]"), Error);
}

TEST(EmuArguments, StructsAreLaidOutAsInCpp) {
  struct Inner {
    uint8_t a;
    double b;
    uint8_t c;
  };
  struct Outer {
    uint8_t x;
    Inner inner;
    uint8_t y;
    uint16_t z;
    float w;
  };
  Kernel kernel;
  kernel.name = "k";
  kernel.kernarg_bytes = sizeof(Outer);
  kernel.arguments.push_back({"", "by_value", 0, sizeof(Outer)});
  Gpu gpu("gfx1100");
  const std::string text = "{u8:1,{u8:2,f64:3,u8:4},u8:5,u16:6,f32:7}";
  const BoundArguments bound(gpu, kernel, {parse_argument(text)});
  ASSERT_EQ(bound.bytes().size(), sizeof(Outer));
  Outer out;
  std::memcpy(&out, bound.bytes().data(), sizeof(out));
  EXPECT_EQ(out.x, 1);
  EXPECT_EQ(out.inner.a, 2);
  EXPECT_EQ(out.inner.b, 3.0);
  EXPECT_EQ(out.inner.c, 4);
  EXPECT_EQ(out.y, 5);
  EXPECT_EQ(out.z, 6);
  EXPECT_EQ(out.w, 7.0f);
  kernel.arguments[0].size = 8;
  EXPECT_THROW(BoundArguments(gpu, kernel, {parse_argument(text)}), UsageError);
  EXPECT_THROW(BoundArguments(gpu, kernel, {}), UsageError);
  kernel.arguments[0].kind = "global_buffer";
  EXPECT_THROW(BoundArguments(gpu, kernel, {parse_argument("i32:1")}), UsageError);
  EXPECT_NO_THROW(BoundArguments(gpu, kernel, {parse_argument("null")}));
  kernel.arguments.clear();  // no metadata: one after the other
  const BoundArguments plain(gpu, kernel, {parse_argument("u8:1"), parse_argument("u64:2")});
  EXPECT_EQ(plain.bytes().size(), sizeof(Outer));
  EXPECT_EQ(plain.bytes()[8], std::byte{2});
}

TEST(OffloadBundles, ObjectsByTarget) {
  const std::string magic = "__CLANG_OFFLOAD_BUNDLE__";
  const std::string ids[] = {"host-x86_64-unknown-linux--", "hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+",
                             "hip-amdgcn-amd-amdhsa--gfx1100"};
  std::string file = magic;
  const auto number = [](uint64_t v) { return std::string(reinterpret_cast<const char*>(&v), 8); };
  file += number(3);
  for (uint64_t i = 0; i < 3; ++i) file += number(200 + 10 * i) + number(i) + number(ids[i].size()) + ids[i];
  file.resize(256, 'x');
  const auto bytes = std::as_bytes(std::span(file));
  EXPECT_TRUE(is_offload_bundle(bytes));
  const auto objects = read_offload_bundle(bytes, "bundle");
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0].target, "gfx90a");
  EXPECT_EQ(objects[1].target, "gfx1100");
  EXPECT_EQ(objects[1].bytes.data(), bytes.data() + 220);
  EXPECT_EQ(objects[1].bytes.size(), 2u);
  for (size_t size = 0; size < 222; ++size)
    EXPECT_THROW(read_offload_bundle(bytes.first(size), "cut"), FormatError);
  EXPECT_THROW(read_offload_bundle(std::as_bytes(std::span(std::string_view("CCOB----"))), "packed"),
               FormatError);
}

class EmuTool : public KernelTest {
 protected:
  // vector_add of 64 threads and 40 elements.
  struct Params {
    const float *a, *b;
    float* c;
    int n;
  };
  Params params() {
    return {upload(std::vector<float>(40, 5.0f)), upload(std::vector<float>(40, 3.0f)), poisoned<float>(40),
            40};
  }
  uint32_t line_of(std::string_view code) {
    const std::string text =
        read_file(std::string(ROCM_SD_SOURCE_DIR) + "/tests/unit_tests/emulator/kernels/basic.hip", 1 << 20);
    const size_t at = text.find(code);
    EXPECT_NE(at, std::string::npos);
    return static_cast<uint32_t>(
               std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) +
           1;
  }
};
INSTANTIATE_TEST_SUITE_P(Builds, EmuTool, testing::ValuesIn(builds()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmuTool);  // builds without AMD targets

TEST_P(EmuTool, FaultsNameTheSourceLine) {
  const CodeObject code = load("basic");
  EXPECT_TRUE(code.lines().damage().empty()) << code.lines().damage();
  Params p = params();
  p.n = 64;  // more than the buffers hold
  try {
    launch(code, "vector_add", {{1, 1, 1}, {64, 1, 1}}, p);
    FAIL();
  } catch (const KernelFault& e) {
    const std::string place = concat("basic.hip:", line_of("p.c[i] = p.a[i] + p.b[i]"), ")");
    EXPECT_NE(std::string(e.what()).find(place), std::string::npos) << e.what();
  }
}

TEST_P(EmuTool, PlacesByLineAndAddress) {
  const CodeObject code = load("basic");
  const std::string line = std::to_string(line_of("p.c[i] = p.a[i] + p.b[i]"));
  const auto places = find_places(code, "basic.hip:" + line);
  ASSERT_FALSE(places.empty());
  const Kernel& kernel = code.kernel("vector_add");
  for (const uint64_t place : places) {
    EXPECT_GE(place, kernel.entry);
    EXPECT_LT(place, kernel.entry + kernel.code_bytes);
  }
  EXPECT_EQ(find_places(code, fmt::format("{:#x}", places[0])), std::vector<uint64_t>{places[0]});
  for (const char* bad :
       {"", "x", "0x", "0x1", "0xffffffffff", "basic.hip:", "other.hip:12", "999999", "-1", ":"})
    EXPECT_THROW(find_places(code, bad), UsageError) << bad;
}

TEST_P(EmuTool, TheTraceShowsEachChange) {
  const CodeObject code = load("basic");
  const Kernel& kernel = code.kernel("vector_add");
  std::string text;
  WaveTracer tracer(code, kernel, {0, 0, 0}, 0, [&](const std::string& line) { text += line + "\n"; });
  gpu.options().before = [&](const Wave& w, const Inst&, std::string_view) { tracer.before(w); };
  gpu.options().trace = [&](const Wave& w, const Inst& in, std::string_view t) { tracer.after(w, in, t); };
  gpu.options().count = true;
  const Params p = params();
  const Counters counters = launch(code, "vector_add", {{1, 1, 1}, {64, 1, 1}}, p);
  EXPECT_TRUE(tracer.seen());
  EXPECT_NE(text.find(" = 40a00000"), std::string::npos) << text;  // 5.0 was loaded
  EXPECT_NE(text.find(" = 41000000"), std::string::npos) << text;  // 8.0 was computed
  EXPECT_NE(text.find("basic.hip:"), std::string::npos);
  EXPECT_NE(text.find("s_endpgm"), std::string::npos);
  // The listing counts the same instructions, once for each wave that came there.
  const std::string listing = disassembly(code, kernel, counters.executed);
  EXPECT_NE(listing.find("vector_add:"), std::string::npos);
  const std::string entry = fmt::format("{:>12} {:>8x}:", counters.waves, kernel.entry);
  EXPECT_NE(listing.find(entry), std::string::npos) << listing;
  const auto report = to_json(counters, code, kernel, {{1, 1, 1}, {64, 1, 1}});
  EXPECT_EQ(report["waves"], counters.waves);
  uint64_t sum = 0;
  for (const auto& [name, count] : report["by_class"].items()) sum += count.get<uint64_t>();
  EXPECT_EQ(sum, counters.instructions);
}

TEST_P(EmuTool, RegistersAtAStop) {
  const CodeObject code = load("basic");
  const Kernel& kernel = code.kernel("vector_add");
  std::string text;
  struct Stop {};
  gpu.options().before = [&](const Wave& w, const Inst& in, std::string_view) {
    if (in.address - code.base() == kernel.entry) {
      text = all_registers(w, code, kernel);
      throw Stop();
    }
  };
  const Params p = params();
  EXPECT_THROW(launch(code, "vector_add", {{1, 1, 1}, {64, 1, 1}}, p), Stop);
  EXPECT_NE(text.find("group (0, 0, 0) wave 0 before "), std::string::npos);
  EXPECT_NE(text.find("exec_lo = ffffffff"), std::string::npos);
  EXPECT_NE(text.find("v0 = 00000000 00000001 00000002 00000003"), std::string::npos) << text;
  EXPECT_EQ(static_cast<uint32_t>(p.c[0]),
            static_cast<uint32_t>(poisoned<float>(1)[0]));  // nothing was stored
}

TEST_P(EmuTool, BuffersFromAndToFiles) {
  const auto folder = std::filesystem::temp_directory_path() / concat("rocm_sd_emu_tool_", ::getpid());
  std::filesystem::create_directories(folder);
  const std::vector<float> a = random_floats(40, -1, 1, 5), b = random_floats(40, -1, 1, 6);
  const uint64_t shape[] = {8, 5};
  const std::string path = folder.string();
  write_npy(path + "/a.npy", {'f', 4}, shape, std::as_bytes(std::span(a)));
  write_npy(path + "/b.npy", {'f', 4}, shape, std::as_bytes(std::span(b)));
  const CodeObject code = load("basic");
  const BoundArguments bound(gpu, code.kernel("vector_add"),
                             {parse_argument("{in:" + path + "/a.npy,inout:" + path + "/b.npy:" + path +
                                             "/b2.npy,out:f32[5,8]:" + path + "/c.npy,i32:40}")});
  gpu.launch(code, "vector_add", {{1, 1, 1}, {64, 1, 1}}, bound.bytes());
  EXPECT_EQ(bound.store().size(), 2u);
  const NpyArray c = read_npy(path + "/c.npy"), b2 = read_npy(path + "/b2.npy");
  EXPECT_EQ(c.shape, (std::vector<uint64_t>{5, 8}));
  EXPECT_EQ(b2.shape, (std::vector<uint64_t>{8, 5}));
  for (size_t i = 0; i < 40; ++i) {
    float sum;
    std::memcpy(&sum, c.data.data() + 4 * i, 4);
    EXPECT_EQ(sum, a[i] + b[i]);
  }
  EXPECT_EQ(std::memcmp(b2.data.data(), b.data(), 160), 0);
  std::filesystem::remove_all(folder);
}

TEST_P(EmuTool, ListsKernels) {
  const CodeImage image = read_code_object(read_object(GetParam(), "basic"), "basic");
  const std::string text = kernels_text(image);
  EXPECT_NE(text.find("vector_add(0: 32 bytes)"), std::string::npos) << text;
  const auto json = kernels_json(image);
  EXPECT_EQ(json["target"], GetParam().target);
  EXPECT_EQ(json["source_lines"], true);
  EXPECT_EQ(json["kernels"].size(), image.kernels.size());
  for (const auto& kernel : json["kernels"]) {
    EXPECT_EQ(kernel["wave"], is_cdna() ? 64 : 32);
    EXPECT_GT(kernel["vgprs"].get<int>(), 0);
    EXPECT_GT(kernel["code_bytes"].get<int>(), 0);
  }
}

}  // namespace
}  // namespace rocm_sd::emu
