// A request's IP-Adapters: defaults, rules, embeddings from files, and their line in the infotext.
#pragma once

#include <string>
#include <vector>

#include "pipeline/image_stage.hpp"
#include "pipeline/request.hpp"
#include "pipeline/unet_images.hpp"

namespace rocm_sd {

// Embeddings [images,...], or with those of conditions without the prompt first [2,images,...]; the only
// tensor of a .safetensors file. Throws FileError and FormatError.
ImageEmbeds load_image_embeds(const std::string& path);

// [2,images,...]: those without the prompt first, zeros where the embeddings have none. half: values of each.
std::vector<float> both_embeds(const ImageEmbeds& embeds, size_t half);

// What each adapter at work is and how many images it sees. Throws UsageError for embeddings of another
// shape.
ImageUnit image_unit(const ResolvedRequest& r, size_t index, const LoadedImageModel& adapter,
                     const LoadedImageModel* encoder);

// How many images one image of the batch sees.
size_t images_of(const IpAdapterUse& use);

// What the request asks of each adapter.
std::vector<ImageSetting> image_settings(const ResolvedRequest& r);

// "Model: NAME [hash], Weight: 0.7, Start: 0, End: 1".
std::string describe_ip_adapter(const ResolvedIpAdapter& use, const LoadedImageModel& model);

}  // namespace rocm_sd
