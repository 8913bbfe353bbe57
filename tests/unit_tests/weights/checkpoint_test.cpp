// Checkpoint: what is no model, parts that do not belong together, and broken Diffusers folders. That real
// layouts are understood is tested against Diffusers in tests/integration_tests/test_weights.py.
#include "weights/checkpoint.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "unit_tests/weights/safetensors_files.hpp"
#include "weights/convert.hpp"
#include "weights/inspect.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

std::string refusal(const std::filesystem::path& path, const CheckpointOptions& options = {}) {
  return error_of([&] { Checkpoint::open(path, options); });
}

// The smallest UNet that counts as one: two levels with a residual block each, attention in the first.
std::vector<NamedShape> unet_tensors(int64_t context, int64_t channels = 4) {
  std::vector<NamedShape> out = {{"conv_in.weight", {32, channels, 3, 3}},
                                 {"time_embedding.linear_1.weight", {128, 32}},
                                 {"conv_out.weight", {4, 32, 3, 3}}};
  for (const char* block : {"down_blocks.0.", "down_blocks.1.", "up_blocks.0.", "up_blocks.1."})
    out.push_back({concat(block, "resnets.0.conv1.weight"), {32, 32, 3, 3}});
  const std::string attention = "down_blocks.0.attentions.0.";
  out.push_back({attention + "norm.weight", {32}});
  out.push_back({attention + "proj_in.weight", {32, 32, 1, 1}});
  out.push_back({attention + "transformer_blocks.0.norm1.weight", {32}});
  out.push_back({attention + "transformer_blocks.0.attn2.to_k.weight", {32, context}});
  return out;
}
std::vector<NamedShape> text_tensors(int64_t width) {
  return {{"text_model.embeddings.token_embedding.weight", {100, width}},
          {"text_model.embeddings.position_embedding.weight", {77, width}},
          {"text_model.encoder.layers.0.layer_norm1.weight", {width}},
          {"text_model.encoder.layers.0.mlp.fc1.weight", {4 * width, width}}};
}

// A Diffusers folder with a UNet and a text encoder, to be damaged.
void write_folder(const TemporaryFolder& folder, int64_t context, int64_t width) {
  folder.write("model_index.json",
               R"({"_class_name":"StableDiffusionPipeline","unet":["diffusers","UNet2DConditionModel"],
      "text_encoder":["transformers","CLIPTextModel"],"vae":[null,null]})");
  folder.write("unet/config.json", R"({"_class_name":"UNet2DConditionModel"})");
  folder.write("text_encoder/config.json",
               R"({"architectures":["CLIPTextModel"],"hidden_act":"quick_gelu"})");
  write_random(folder / "unet/diffusion_pytorch_model.safetensors", unet_tensors(context));
  write_random(folder / "text_encoder/model.safetensors", text_tensors(width));
}

TEST(Checkpoint, SaysWhatAForeignFileIs) {
  struct Foreign {
    const char *key, *says;
  };
  for (const auto& [key, says] : {Foreign{"lora_unet_down_blocks_0.lora_down.weight", "a LoRA"},
                                  {"model.diffusion_model.joint_blocks.0.x_block.w", "Stable Diffusion 3"},
                                  {"double_blocks.0.img_attn.w", "FLUX"},
                                  {"control_model.input_blocks.0.0.weight", "a ControlNet"},
                                  {"emb_params", "textual inversion"},
                                  {"something.else", "no part of a Stable Diffusion model"}}) {
    const TemporaryFolder folder;
    write_random(folder / "f.safetensors", {{key, {2, 2}}});
    EXPECT_THAT(refusal(folder / "f.safetensors"), HasSubstr(says));
    EXPECT_NO_THROW(inspect(folder / "f.safetensors"));
  }
}

TEST(Checkpoint, OpensAFolder) {
  const TemporaryFolder folder;
  write_folder(folder, 48, 48);
  folder.write("scheduler/scheduler_config.json",
               R"({"prediction_type":"v_prediction","rescale_betas_zero_snr":true})");
  folder.write("tokenizer/vocab.json", "{}");
  folder.write("tokenizer/merges.txt", "");
  const Checkpoint model = Checkpoint::open(folder.path());
  EXPECT_TRUE(model.is_folder());
  EXPECT_EQ(model.kind(), ModelKind::kSd1);
  EXPECT_EQ(model.prediction(), Prediction::kV);
  EXPECT_EQ(model.prediction_source(), "scheduler_config.json");
  EXPECT_TRUE(model.zero_terminal_snr());
  EXPECT_EQ(model.in_channels(), 4);
  EXPECT_EQ(model.tokenizer_folder(Component::kTextEncoder), folder / "tokenizer");
  EXPECT_EQ(model.tokenizer_folder(Component::kTextEncoder2), std::nullopt);
  EXPECT_FALSE(model.config_is_derived(Component::kUnet));
  EXPECT_EQ(model.find(Component::kVae), nullptr);
  EXPECT_THAT(error_of<FormatError>([&] { model.store(Component::kVae); }), HasSubstr("has no vae"));
  EXPECT_EQ(Checkpoint::open(folder / "model_index.json").kind(), ModelKind::kSd1);
}

TEST(Checkpoint, RefusesPartsOfDifferentModels) {
  const TemporaryFolder folder;
  write_folder(folder, 48, 64);
  const std::string text = error_of<ShapeError>([&] { Checkpoint::open(folder.path()); });
  for (const char* part : {"48", "64", "different models"}) EXPECT_THAT(text, HasSubstr(part));
  write_random(folder / "other.safetensors", text_tensors(48));
  const Checkpoint model = Checkpoint::open(folder.path(), {.text_encoder = folder / "other.safetensors"});
  EXPECT_THAT(model.notes(), testing::Contains(HasSubstr("other.safetensors")));
}

TEST(Checkpoint, RefusesBrokenFolders) {
  struct Damage {
    const char *file, *text, *says;
  };
  for (const auto& [file, text, says] :
       {Damage{"model_index.json", "[]", "expected a JSON object"},
        {"model_index.json", "{}", "_class_name"},
        {"model_index.json", R"({"_class_name":"FluxPipeline"})", "FluxPipeline"},
        {"model_index.json", R"({"_class_name":"StableDiffusion3Pipeline","a":1})", "not supported"},
        {"model_index.json", R"({"_class_name":"StableDiffusionPipeline","unet":"x"})",
         "expected [library, class]"},
        {"model_index.json",
         R"({"_class_name":"StableDiffusionPipeline","vae":["diffusers","AutoencoderKL"]})", "no folder"},
        {"model_index.json", "{\"a\":1,\"a\":2}", "duplicate key"},
        {"model_index.json", R"({"_class_name":"StableDiffusionPipeline","scheduler":[]})",
         "scheduler: expected [library, class]"},
        {"model_index.json", "\xff", "UTF-8"},
        {"unet/config.json", "[1]", "expected a JSON object"},
        {"unet/config.json", "{", "not valid JSON"},
        {"unet/diffusion_pytorch_model.safetensors", "", "empty"},
        {"unet/diffusion_pytorch_model.safetensors", "version https://git-lfs.github.com/spec/v1\n",
         "git-LFS"},
        {"scheduler/scheduler_config.json", R"({"prediction_type":"flow"})", "prediction_type"},
        {"scheduler/scheduler_config.json", R"({"prediction_type":[1]})", "prediction_type"},
        {"scheduler/scheduler_config.json", R"({"_class_name":5})", "_class_name: expected a string"},
        {"scheduler/scheduler_config.json", "7", "expected a JSON object"}}) {
    const TemporaryFolder folder;
    write_folder(folder, 48, 48);
    folder.write(file, text);
    EXPECT_THAT(refusal(folder.path()), HasSubstr(says)) << file << " = " << text;
  }
}

// What a Diffusers model names must be there, and numbers must be numbers.
TEST(Checkpoint, SchedulersOfFolders) {
  const TemporaryFolder folder;
  write_folder(folder, 48, 48);
  EXPECT_THAT(Checkpoint::open(folder.path()).notes(), testing::Contains(HasSubstr("assumed are epsilon")));
  const std::string scheduler = R"("scheduler":["diffusers","PNDMScheduler"])";
  folder.write("model_index.json", concat(R"({"_class_name":"StableDiffusionPipeline",
      "unet":["diffusers","UNet2DConditionModel"],"text_encoder":["transformers","CLIPTextModel"],)",
                                          scheduler, "}"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("scheduler/scheduler_config.json: is missing"));
  folder.write("scheduler/scheduler_config.json", R"({"beta_start": NaN, "lambda_min_clipped": -Infinity})");
  const Checkpoint model = Checkpoint::open(folder.path());
  EXPECT_EQ(model.scheduler_config()->at("beta_start"), "NaN");
  EXPECT_EQ(model.scheduler_config()->at("lambda_min_clipped"), "-Infinity");
}

TEST(Checkpoint, FilesOfTorchAreTakenWhereThereAreNoSafetensors) {
  const TemporaryFolder folder;
  write_folder(folder, 48, 48);
  folder.write("unet/diffusion_pytorch_model.bin", "x");
  EXPECT_NO_THROW(Checkpoint::open(folder.path())) << "the safetensors are taken";
  std::filesystem::remove(folder / "unet/diffusion_pytorch_model.bin");
  std::filesystem::remove(folder / "unet/diffusion_pytorch_model.safetensors");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("no diffusion_pytorch_model.safetensors"));
  folder.write("unet/diffusion_pytorch_model.bin", "x");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("diffusion_pytorch_model.bin: 1 bytes, too short"));
}

TEST(Checkpoint, SaysWhichVariantItTook) {
  const TemporaryFolder folder;
  write_folder(folder, 48, 48);
  write_random(folder / "unet/diffusion_pytorch_model.fp16.safetensors", unet_tensors(48), DType::kF16);
  const Checkpoint plain = Checkpoint::open(folder.path());
  EXPECT_EQ(plain.store(Component::kUnet).dtype("conv_in.weight"), DType::kF32);
  EXPECT_THAT(plain.notes(), testing::Contains(HasSubstr("left diffusion_pytorch_model.fp16.safetensors")));
  const Checkpoint half = Checkpoint::open(folder.path(), {.variant = "fp16"});
  EXPECT_EQ(half.store(Component::kUnet).dtype("conv_in.weight"), DType::kF16);
  std::filesystem::remove(folder / "unet/diffusion_pytorch_model.safetensors");
  EXPECT_EQ(Checkpoint::open(folder.path()).store(Component::kUnet).dtype("conv_in.weight"), DType::kF16);
  EXPECT_THROW(Checkpoint::open(folder.path(), {.variant = "../x"}), UsageError);
}

TEST(Checkpoint, RefusesAReplacementOfAnotherKind) {
  const TemporaryFolder folder;
  write_folder(folder, 48, 48);
  write_random(folder / "text.safetensors", text_tensors(48));
  EXPECT_THAT(refusal(folder.path(), {.vae = folder / "text.safetensors"}),
              HasSubstr("expected a vae, found text_encoder"));
  write_random(folder / "lora.safetensors", {{"x.lora_down.weight", {2, 2}}});
  EXPECT_THAT(refusal(folder.path(), {.unet = folder / "lora.safetensors"}), HasSubstr("a LoRA"));
}

TEST(Checkpoint, TellsBareUnetsApart) {
  const TemporaryFolder folder;
  for (const auto& [context, kind] : {std::pair(768, ModelKind::kSd1), std::pair(1024, ModelKind::kSd2)}) {
    write_random(folder / "u.safetensors", unet_tensors(context, 9));
    const Checkpoint model = Checkpoint::open(folder / "u.safetensors");
    EXPECT_EQ(model.kind(), kind);
    EXPECT_EQ(model.in_channels(), 9);
    EXPECT_TRUE(model.config_is_derived(Component::kUnet));
    EXPECT_EQ(model.config(Component::kUnet)["cross_attention_dim"], context);
  }
  write_random(folder / "u.safetensors", unet_tensors(33));
  EXPECT_THAT(refusal(folder / "u.safetensors"), HasSubstr("width 33"));
}

TEST(Checkpoint, PredictionMarkersOfSingleFiles) {
  const TemporaryFolder folder;
  const auto path = folder / "u.safetensors";
  write_random(path, unet_tensors(768), DType::kF32, {{"modelspec.prediction_type", "v"}});
  EXPECT_EQ(Checkpoint::open(path).prediction(), Prediction::kV);
  EXPECT_EQ(Checkpoint::open(path).prediction_source(), "metadata modelspec.prediction_type");
  std::vector<NamedShape> marked = unet_tensors(768);
  marked.push_back({"v_pred", {0}});
  marked.push_back({"ztsnr", {0}});
  write_random(path, marked);
  EXPECT_EQ(Checkpoint::open(path).prediction_source(), "key v_pred");
  EXPECT_TRUE(Checkpoint::open(path).zero_terminal_snr());
  write_random(path, unet_tensors(768));
  EXPECT_EQ(Checkpoint::open(path).prediction_source(), "default");
}

TEST(Inspect, EscapesWhatFilesSay) {
  const TemporaryFolder folder;
  write_random(folder / "f.safetensors", {{"w", {2}}}, DType::kF16, {{"title", "red \x1b[31m\nSteps: 1"}});
  const auto report = inspect(folder / "f.safetensors");
  EXPECT_EQ(report["metadata"]["title"], "red \x1b[31m\nSteps: 1");
  const std::string text = inspect_text(report);
  EXPECT_THAT(text, HasSubstr("red \\x1b[31m\\x0aSteps: 1"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(report["components"][0]["dtypes"]["f16"]["bytes"], 4);
}

TEST(Inspect, NamesWhatTheInputsSay) {
  const std::pair<int64_t, const char*> kVariants[] = {
      {4, "text to image"}, {5, "depth"}, {8, "instruct-pix2pix"}, {9, "inpainting"}};
  for (const auto& [channels, variant] : kVariants) {
    const TemporaryFolder folder;
    write_random(folder / "unet.safetensors", unet_tensors(768, channels));
    EXPECT_EQ(inspect(folder / "unet.safetensors")["variant"], variant);
  }
}

// With StableDiffusionPipeline, Diffusers would not draw with a UNet of 5 inputs.
TEST(Convert, WritesThePipelineOfDepthModels) {
  const TemporaryFolder folder;
  write_folder(folder, 48, 48);
  write_random(folder / "unet/diffusion_pytorch_model.safetensors", unet_tensors(48, 5));
  convert(folder.path(), folder / "new", {});
  const auto index = nlohmann::json::parse(read_file(folder / "new/model_index.json", 1 << 20));
  EXPECT_EQ(index["_class_name"], "StableDiffusionDepth2ImgPipeline");
  EXPECT_TRUE(index.contains("depth_estimator") && !index.contains("safety_checker"));
}

TEST(Convert, ACancelledRunLeavesNothing) {
  for (const char* target : {"new.safetensors", "new"}) {
    const TemporaryFolder folder;
    write_folder(folder, 48, 48);
    int pieces = 0;
    EXPECT_THROW(convert(folder.path(), folder / target, {.cancelled = [&] { return ++pieces > 3; }}),
                 CancelledError);
    EXPECT_EQ(pieces, 4);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with("new")) << entry.path();
    // And the whole run may follow, into a folder that is there already, too.
    convert(folder.path(), folder / target, {});
    convert(folder.path(), folder / target, {.overwrite = true});
    EXPECT_TRUE(std::filesystem::exists(folder / target));
  }
}

TEST(Convert, RefusesTargetsThatExistAndOddTypes) {
  const TemporaryFolder folder;
  write_folder(folder, 48, 48);
  folder.write("there.safetensors", "old");
  EXPECT_THROW(convert(folder.path(), folder / "there.safetensors", {}), UsageError);
  EXPECT_THROW(convert(folder.path(), folder / "new.safetensors", {.dtype = DType::kI8}), UsageError);
  EXPECT_EQ(read_file(folder / "there.safetensors", 10), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "new.safetensors"));
}

}  // namespace
}  // namespace rocm_sd
