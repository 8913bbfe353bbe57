// Pictures through the C++ interface: generate MODEL PROMPT FILE.png
#include <cstdio>
#include <rocm_sd/pipeline.hpp>

int main(int argc, char** argv) try {
  if (argc != 4) throw rocm_sd::UsageError("usage: generate MODEL PROMPT FILE.png");
  rocm_sd::LoadOptions load;
  load.model = argv[1];
  rocm_sd::Pipeline pipeline = rocm_sd::Pipeline::load(load);

  rocm_sd::GenerateRequest request;
  request.prompt = argv[2];
  request.steps = 12;
  request.seed = 1;
  std::printf("this will take %.0f MB\n", static_cast<double>(pipeline.plan(request).total()) / 1e6);
  const rocm_sd::GenerateResult result = pipeline.generate(request);

  rocm_sd::ImageWriteOptions write;
  write.parameters = result.pictures[0].parameters;
  rocm_sd::save_image(result.pictures[0].image, argv[3], write);
  return 0;
} catch (const rocm_sd::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return static_cast<int>(e.exit_code());
}
