// Sharded files: what an index may say, and every way in which it may lie.
#include "weights/tensor_set.hpp"

#include <gmock/gmock.h>

#include "unit_tests/weights/safetensors_files.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

struct BadIndex {
  std::string name, text, says;
};
void PrintTo(const BadIndex& index, std::ostream* out) { *out << index.name; }

std::string map_to(std::string_view shard) { return concat(R"({"weight_map":{"a":")", shard, R"("}})"); }

std::string million_shards() {
  std::string text = R"({"weight_map":{)";
  for (int i = 0; i < 1'000'000; ++i) text += concat(i ? "," : "", '"', i, "\":\"", i, ".safetensors\"");
  return text + "}}";
}

std::vector<BadIndex> bad_indices() {
  return {
      {"AbsolutePath", map_to("/etc/passwd"), "plain file name"},
      {"ParentFolder", map_to("../x.safetensors"), "plain file name"},
      {"Backslash", map_to("..\\\\x.safetensors"), "plain file name"},
      {"DotDot", map_to(".."), "plain file name"},
      {"SubFolder", map_to("a/b.safetensors"), "plain file name"},
      {"EmptyName", map_to(""), "no .safetensors or .bin file"},
      {"ControlByte", map_to("a\\u001b.safetensors"), "control byte"},
      {"Nul", map_to("a\\u0000.safetensors"), "control byte"},
      {"LongName", map_to(std::string(300, 'x') + ".safetensors"), "plain file name"},
      {"OtherFile", map_to("model.onnx"), "no .safetensors or .bin file"},
      {"Itself", map_to("model.safetensors.index.json"), "names itself"},
      {"Missing", map_to("absent.safetensors"), "No such file"},
      {"WrongShard", R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"}})",
       "does not list it"},
      {"NotInShard", R"({"weight_map":{"a":"one.safetensors","x":"one.safetensors"}})",
       "is not in its shard"},
      {"RepeatedName", R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})", "duplicate key"},
      {"NoMap", R"({"metadata":{}})", "weight_map"},
      {"EmptyMap", R"({"weight_map":{}})", "empty"},
      {"MapIsList", R"({"weight_map":[]})", "weight_map"},
      {"NumberForName", R"({"weight_map":{"a":1}})", "expected a shard's name"},
      {"Array", "[]", "weight_map"},
      {"Deep", std::string(100'000, '['), "nested deeper"},
      {"NotJson", "{", "not valid JSON"},
      {"NulByte", std::string("{}\0{}", 5), "NUL byte"},
      {"MillionShards", million_shards(), "more than 1"},
  };
}

class BadShardIndex : public testing::TestWithParam<BadIndex> {};

TEST_P(BadShardIndex, IsRefusedWithASentence) {
  const TemporaryFolder folder;
  write_random(folder / "one.safetensors", {{"a", {2}}});
  write_random(folder / "two.safetensors", {{"b", {2}}});
  const auto path = folder.write("model.safetensors.index.json", GetParam().text);
  EXPECT_THAT(error_of([&] { TensorSet::open(path); }), HasSubstr(GetParam().says));
}
INSTANTIATE_TEST_SUITE_P(All, BadShardIndex, testing::ValuesIn(bad_indices()),
                         [](const auto& info) { return info.param.name; });

TEST(TensorSet, JoinsShards) {
  const TemporaryFolder folder;
  write_random(folder / "one.safetensors", {{"a", {2}}, {"b", {3}}});
  write_random(folder / "two.safetensors", {{"c", {4}}});
  const auto path = folder.write("model.safetensors.index.json",
                                 R"({"metadata":{"total_size":36},"weight_map":{"a":"one.safetensors",)"
                                 R"("b":"one.safetensors","c":"two.safetensors"}})");
  const TensorSet set = TensorSet::open(path);
  EXPECT_EQ(set.tensors().size(), 3u);
  EXPECT_EQ(set.find("c")->shape, Shape({4}));
  EXPECT_EQ(set.ref("c").file->path(), folder / "two.safetensors");
  EXPECT_EQ(set.find("d"), nullptr);
}

}  // namespace
}  // namespace rocm_sd
