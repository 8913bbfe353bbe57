// require_complete: of single files of SD 1, 2 and XL and of a Diffusers folder every tensor, every pair of
// weight and bias and every block is taken away in turn, and unknown tensors are added: each must be named in
// an error.
#include "models/completeness.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/model_keys.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Whether a name may be missing: what no model reads, or what says by its absence that a half is not there.
using MayMiss = std::function<bool(std::string_view name)>;

std::string problem_of(const Checkpoint& model) {
  for (const Component component : {Component::kUnet, Component::kVae}) model.store(component);
  const bool sdxl = model.kind() == ModelKind::kSdxl;
  model.store(sdxl ? Component::kTextEncoder2 : Component::kTextEncoder);
  model.store(Component::kTextEncoder);
  require_complete(model);
  return "";
}
std::string problem_of(const ModelKeys& keys) {
  try {
    return problem_of(Checkpoint::open(TensorSet::of(file_of_keys(keys))));
  } catch (const Error& error) {
    return error.what();
  }
}

ModelKeys without(const ModelKeys& keys, const std::function<bool(const std::string&)>& gone) {
  ModelKeys out;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(out),
               [&](const ModelKey& key) { return !gone(key.name); });
  return out;
}

bool is_leftover(std::string_view name) {
  return name.find("model_ema") == 0 || name.find('.') == name.npos || name.ends_with("position_ids") ||
         name.ends_with("logit_scale");
}

// The stems under which a model's names are grouped: "a.b.0." of "a.b.0.c.weight" and so on, below
// `prefixes`.
std::set<std::string> stems(const ModelKeys& keys, const std::vector<std::string>& prefixes) {
  std::set<std::string> out;
  for (const ModelKey& key : keys)
    for (const std::string& prefix : prefixes)
      if (key.name.starts_with(prefix))
        for (size_t dot = key.name.find('.', prefix.size()); dot != key.name.npos;
             dot = key.name.find('.', dot + 1))
          out.insert(key.name.substr(0, dot + 1));
  return out;
}

// Whether the error names the group of names, or a larger one that it is all of.
testing::AssertionResult names_block(const std::string& problem, const std::string& stem) {
  if (problem.find(stem.substr(0, stem.size() - 1)) != problem.npos) return testing::AssertionSuccess();
  const std::string gap = "no tensor of ";
  const size_t at = problem.find(gap);
  if (at != problem.npos &&
      stem.starts_with(problem.substr(at + gap.size(), problem.find(',', at) - at - gap.size())))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << stem << " is not named: " << problem;
}

struct SingleFile {
  const char* name;
  size_t step;  // every so many tensors are taken away in turn
  ModelKeys keys;
  std::vector<std::string> prefixes;
  MayMiss may_miss;
};

const std::vector<SingleFile>& single_files() {
  static const std::vector<SingleFile> files = {
      {"sd1",
       1,
       sd1_keys(),
       {"model.diffusion_model.", "first_stage_model.", "cond_stage_model.transformer.text_model."},
       is_leftover},
      {"sd2",
       5,
       sd2_keys(),
       {"model.diffusion_model.", "first_stage_model.", "cond_stage_model.model."},
       [](std::string_view name) {
         return is_leftover(name) || name.find(".resblocks.23.") != name.npos ||
                name.ends_with(".text_projection");
       }},
      // Transformers of depth 2 and 3 in place of 2 and 10: the same structure in half the names.
      {"sdxl",
       3,
       sdxl_keys(2, 3),
       {"model.diffusion_model.", "first_stage_model.", "conditioner.embedders.0.transformer.text_model.",
        "conditioner.embedders.1.model."},
       is_leftover},
  };
  return files;
}

class Removals : public testing::TestWithParam<size_t> {
 protected:
  const SingleFile& file() const { return single_files()[GetParam()]; }
};

TEST_P(Removals, WholeFilesHaveNoProblem) {
  EXPECT_EQ(problem_of(file().keys), "");
  EXPECT_EQ(problem_of(without(file().keys, is_leftover)), "");
}

TEST_P(Removals, EveryTensorIsNamed) {
  for (size_t i = 0; i < file().keys.size(); i += file().step) {
    const ModelKey& key = file().keys[i];
    const std::string problem =
        problem_of(without(file().keys, [&](const std::string& name) { return name == key.name; }));
    if (file().may_miss(key.name))
      ASSERT_EQ(problem, "") << key.name;
    else
      ASSERT_THAT(problem, HasSubstr(key.name));
  }
}

// Weight and bias of one layer ("a.b.weight" and "a.b.bias"), and every larger group of names.
TEST_P(Removals, EveryBlockIsNamed) {
  for (const std::string& stem : stems(file().keys, file().prefixes)) {
    const std::string problem =
        problem_of(without(file().keys, [&](const std::string& name) { return name.starts_with(stem); }));
    const bool half = stem == "first_stage_model.encoder.";  // a VAE that only decodes
    // Without a whole side there is no UNet any more.
    const bool side = stem.ends_with("input_blocks.") || stem.ends_with("output_blocks.");
    const bool layers = stem.ends_with("encoder.layers.") || stem.ends_with(".resblocks.") ||
                        stem.ends_with("transformer.") || stem.ends_with("encoder.") ||
                        stem.ends_with("embeddings.");
    if (half || file().may_miss(stem))
      ASSERT_EQ(problem, "") << stem;
    else if (side || layers)
      ASSERT_NE(problem, "") << stem;
    else
      ASSERT_TRUE(names_block(problem, stem));
  }
}

TEST_P(Removals, UnknownTensorsOfAComponentAreNamed) {
  for (const std::string& prefix : file().prefixes)
    for (const char* name :
         {"foo.weight", "foo", "input_blocks.1.0.extra.weight", "decoder.up.0.block.9.conv1.weight",
          "encoder.layers.90.layer_norm1.weight", "transformer.resblocks.90.ln_1.weight",
          "output_blocks.1.1.transformer_blocks.0.attn1.to_k_ip.weight"}) {
      ModelKeys keys = file().keys;
      keys.push_back({prefix + name, {8}});
      ASSERT_THAT(problem_of(keys), testing::AnyOf(HasSubstr(prefix + name), HasSubstr("no tensor of")))
          << prefix << name;
    }
  // Beside the components it is none of the model's business.
  ModelKeys keys = file().keys;
  keys.push_back({"something.else", {8}});
  EXPECT_EQ(problem_of(keys), "");
}

TEST_P(Removals, IntegersAndShapesAreNamed) {
  for (const DType type : {DType::kI8, DType::kI64, DType::kBool}) {
    ModelKeys keys = file().keys;
    keys[100].dtype = type;
    EXPECT_THAT(problem_of(keys), HasSubstr(keys[100].name));
    EXPECT_THAT(problem_of(keys), HasSubstr("floating-point"));
  }
  ModelKeys keys = file().keys;
  keys[100].shape = {3};
  EXPECT_THAT(problem_of(keys), HasSubstr(keys[100].name));
}

INSTANTIATE_TEST_SUITE_P(SingleFiles, Removals, testing::Range<size_t>(0, 3),
                         [](const auto& param) { return std::string(single_files()[param.param].name); });

// SD 2's converters leave the 24th layer out: the same 23 are used.
TEST(Completeness, Sd2TextWithoutItsUnusedLayer) {
  const Checkpoint model = Checkpoint::open(TensorSet::of(file_of_keys(sd2_keys(23))));
  EXPECT_EQ(problem_of(model), "");
  EXPECT_EQ(model.config(Component::kTextEncoder).at("num_hidden_layers"), 23);
  EXPECT_THAT(model.notes(), testing::Contains(HasSubstr("23 layers")));
  const Checkpoint usual = Checkpoint::open(TensorSet::of(file_of_keys(sd2_keys(24))));
  EXPECT_EQ(usual.config(Component::kTextEncoder).at("num_hidden_layers"), 23);
  EXPECT_NE(problem_of(sd2_keys(22)), "");
}

// The depths that only SSD-1B and Vega have within a level are not taken for removals.
TEST(Completeness, DistilledModelsOfIrregularDepths) {
  for (const bool ssd : {true, false}) {
    UNetConfig unet = configs::unet_sdxl();
    unet.down[1].transformer_layers = std::vector<int>(2, ssd ? 2 : 1);
    unet.down[2].transformer_layers = std::vector<int>(2, ssd ? 4 : 2);
    unet.up[0].transformer_layers = ssd ? std::vector<int>{4, 4, 10} : std::vector<int>{2, 2, 2};
    unet.up[1].transformer_layers = ssd ? std::vector<int>{2, 1, 1} : std::vector<int>{1, 1, 1};
    unet.mid->transformer_layers.clear();
    ModelKeys keys;
    add_ldm_unet(keys, unet);
    const auto problem = [](const ModelKeys& some) -> std::string {
      try {
        require_complete(Checkpoint::open(TensorSet::of(file_of_keys(some))), Component::kUnet);
        return "";
      } catch (const Error& error) {
        return error.what();
      }
    };
    EXPECT_EQ(problem(keys), "") << ssd;
    const std::string block = "model.diffusion_model.output_blocks.1.1.transformer_blocks.1.";
    EXPECT_NE(problem(without(keys, [&](const std::string& name) { return name.starts_with(block); })), "");
  }
}

// Files in a folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = testing::TempDir() + "rocm_sd_models_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }

 private:
  std::filesystem::path path_;
};

// A Diffusers folder: its configurations say what is expected.
class Folder {
 public:
  Folder() {
    const Checkpoint single = Checkpoint::open(TensorSet::of(file_of_keys(sd1_keys())));
    folder_.write("model_index.json",
                  R"({"_class_name":"StableDiffusionPipeline","unet":["diffusers","UNet2DConditionModel"],
                      "vae":["diffusers","AutoencoderKL"],"text_encoder":["transformers","CLIPTextModel"]})");
    for (const Component component : {Component::kUnet, Component::kVae, Component::kTextEncoder}) {
      folder_.write(concat(component_name(component), "/config.json"), single.config(component).dump());
      for (const auto& [name, tensor] : single.store(component).weights())
        keys_[component].push_back({name, tensor.shape});
    }
  }
  const std::map<Component, ModelKeys>& keys() const { return keys_; }
  const TemporaryFolder& folder() const { return folder_; }

  std::string problem(Component changed, const ModelKeys& keys) const {
    CheckpointOptions options;
    for (const auto& [component, whole] : keys_)
      options.live[component] = file_of_keys(component == changed ? keys : whole);
    try {
      return problem_of(Checkpoint::open(folder_.path(), options));
    } catch (const Error& error) {
      return error.what();
    }
  }

 private:
  TemporaryFolder folder_;
  std::map<Component, ModelKeys> keys_;
};

TEST(Completeness, EveryTensorOfAFolderIsNamed) {
  const Folder folder;
  for (const auto& [component, keys] : folder.keys()) {
    ASSERT_EQ(folder.problem(component, keys), "");
    // Every seventh name: all kinds of names, in all blocks.
    for (size_t i = 0; i < keys.size(); i += 7)
      ASSERT_THAT(
          folder.problem(component, without(keys, [&](const std::string& n) { return n == keys[i].name; })),
          HasSubstr(keys[i].name));
    ModelKeys more = keys;
    more.push_back({"foo.weight", {8}});
    EXPECT_THAT(folder.problem(component, more), HasSubstr("foo.weight"));
  }
}

TEST(Completeness, ConfigurationsOfAFolderAreAskedFor) {
  for (const char* component : {"unet", "vae", "text_encoder"}) {
    const Folder folder;
    const std::string path = concat(component, "/config.json");
    std::filesystem::remove(folder.folder().path() / path);
    EXPECT_THAT(folder.problem(Component::kUnet, folder.keys().at(Component::kUnet)),
                testing::AllOf(HasSubstr(path), HasSubstr("is missing")));
    folder.folder().write(path, R"({"_class_name":"SomethingElse"})");
    EXPECT_THAT(folder.problem(Component::kUnet, folder.keys().at(Component::kUnet)),
                testing::AllOf(HasSubstr(path), HasSubstr("describes no")));
  }
}

}  // namespace
}  // namespace rocm_sd
