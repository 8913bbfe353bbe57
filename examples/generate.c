/* One picture through the C interface: generate MODEL PROMPT FILE.png */
#include <rocm_sd/rocm_sd.h>
#include <stdio.h>

static int show_progress(void* user, const char* stage, int step, int total, double seconds) {
  (void)user;
  fprintf(stderr, "%s %d/%d, %.1f s\n", stage, step, total, seconds);
  return 0; /* anything else cancels */
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: generate MODEL PROMPT FILE.png\n");
    return ROCM_SD_USAGE;
  }
  const rocm_sd_option model[] = {{"model", argv[1]}, {NULL, NULL}};
  const rocm_sd_option request[] = {{"prompt", argv[2]}, {"steps", "12"}, {"seed", "1"}, {NULL, NULL}};
  const rocm_sd_callbacks callbacks = {show_progress, NULL, NULL, NULL};

  rocm_sd_pipeline* pipeline = NULL;
  rocm_sd_result* result = NULL;
  rocm_sd_status status = rocm_sd_create(model, &callbacks, &pipeline);
  if (status == ROCM_SD_OK) status = rocm_sd_generate(pipeline, request, &callbacks, &result);
  if (status == ROCM_SD_OK) status = rocm_sd_save(&result->pictures[0], argv[3], 95);
  if (status != ROCM_SD_OK) fprintf(stderr, "error: %s\n", rocm_sd_last_error());
  rocm_sd_result_free(result);
  rocm_sd_free(pipeline);
  return status;
}
