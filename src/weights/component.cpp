#include "weights/component.hpp"

namespace rocm_sd {

std::string_view component_name(Component component) {
  switch (component) {
    case Component::kUnet: return "unet";
    case Component::kVae: return "vae";
    case Component::kTextEncoder: return "text_encoder";
    case Component::kTextEncoder2: return "text_encoder_2";
    case Component::kTinyVae: return "tiny_vae";
  }
  return "?";
}

std::string_view model_kind_name(ModelKind kind) {
  switch (kind) {
    case ModelKind::kSd1: return "sd1";
    case ModelKind::kSd2: return "sd2";
    case ModelKind::kSdxl: return "sdxl";
    case ModelKind::kSdxlRefiner: return "sdxl_refiner";
  }
  return "?";
}

std::string_view unet_variant(int64_t in_channels) {
  switch (in_channels) {
    case 9: return "inpainting";
    case 8: return "instruct-pix2pix";
    case 5: return "depth";
    default: return "";
  }
}

std::string_view prediction_name(Prediction prediction) {
  switch (prediction) {
    case Prediction::kEpsilon: return "epsilon";
    case Prediction::kV: return "v_prediction";
    case Prediction::kSample: return "sample";
  }
  return "?";
}

}  // namespace rocm_sd
