/* C interface of rocm-sd: create a pipeline, generate pictures, free them. Strings are UTF-8.
 *
 * Functions that can fail return a rocm_sd_status; rocm_sd_last_error() then has one line for this thread.
 * A pipeline may be used from several threads: it serves one call at a time, or with the option "devices" as
 * many as rocm_sd_drawers() says, and the other calls wait. */
#ifndef ROCM_SD_H
#define ROCM_SD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The exit codes of the command line. */
typedef enum {
  ROCM_SD_OK = 0,
  ROCM_SD_GENERATION_FAILED = 1,
  ROCM_SD_USAGE = 2,
  ROCM_SD_FILE = 3,
  ROCM_SD_NO_DEVICE = 4,
  ROCM_SD_OUT_OF_MEMORY = 5,
  ROCM_SD_CANCELLED = 6,
  ROCM_SD_INTERNAL = 70
} rocm_sd_status;

typedef struct rocm_sd_pipeline rocm_sd_pipeline;

/* Options are name = value pairs with the names of the command line's long options: "model", "vae", "dtype",
 * ... and "prompt", "steps", "cfg-scale", ... A list ends with a pair whose name is NULL. Unknown names are
 * an error, so that a program built for a newer library cannot be misunderstood by an older one. */
typedef struct {
  const char* name;
  const char* value;
} rocm_sd_option;

/* 8-bit RGB, rows from the top. Owned by the result. */
typedef struct {
  int width, height;
  const uint8_t* rgb; /* [height,width,3] */
  uint64_t seed;
  const char* parameters; /* A1111's infotext */
  const float* latents;   /* [4,height/8,width/8] as x0 + sigma * noise, where "denoising-end" or
                             "keep-latents" asked for them; else NULL */
  size_t latents_count;   /* their elements */
} rocm_sd_picture;

typedef struct {
  size_t count;
  const rocm_sd_picture* pictures;
} rocm_sd_result;

/* Called on the calling thread (with the option "split" = "guidance" on another one) as stages advance; a
 * result other than 0 cancels. stage: "load", "text", "encode", "sample", "decode". */
typedef int (*rocm_sd_progress_fn)(void* user, const char* stage, int step, int total, double seconds);

/* Called on the calling thread where the option "preview" asks for looks at the picture between steps: image
 * of the batch, rgb [height,width,3], which is valid until it returns; seconds that making it took. */
typedef void (*rocm_sd_preview_fn)(void* user, int image, int step, int total, int width, int height,
                                   const uint8_t* rgb, double seconds);

typedef struct {
  rocm_sd_progress_fn progress; /* may be NULL */
  void* user;
  const volatile int* cancel; /* may be NULL; another thread sets it to non-zero to stop within a step */
  rocm_sd_preview_fn preview; /* may be NULL */
} rocm_sd_callbacks;

/* Changes whenever a struct or a function of this header does: a program that reads the structs by itself
 * (ctypes, FFI) compares rocm_sd_abi_version() with the number that it was written for before it calls
 * anything else. */
#define ROCM_SD_ABI_VERSION 7
int rocm_sd_abi_version(void);

const char* rocm_sd_version(void);
/* The message of this thread's last failure; "" if there was none. Valid until its next failing call. */
const char* rocm_sd_last_error(void);

/* Loads a model. *out is NULL on failure. callbacks may be NULL. */
rocm_sd_status rocm_sd_create(const rocm_sd_option* options, const rocm_sd_callbacks* callbacks,
                              rocm_sd_pipeline** out);
void rocm_sd_free(rocm_sd_pipeline* pipeline);
/* How many calls the pipeline serves at the same time: 1, or with "devices" how many draw images and have not
 * failed. 0 for NULL, and where all have failed. */
int rocm_sd_drawers(rocm_sd_pipeline* pipeline);

/* A tensor of a live model in host memory, row-major, under its name in the component's state (Diffusers' and
 * transformers' names). component: "unet", "vae", "text_encoder", "text_encoder_2"; dtype: "F32", "F16",
 * "BF16". */
typedef struct {
  const char* component;
  const char* name;
  const char* dtype;
  int rank;
  const int64_t* shape; /* [rank] */
  const void* data;
} rocm_sd_tensor;

/* rocm_sd_create with tensors in place of weight files: the option "model" names a Diffusers folder with
 * configurations and tokenizers. On the CPU they are used where they lie wherever the kernels take that
 * layout and type: their memory must outlive the pipeline. */
rocm_sd_status rocm_sd_create_live(const rocm_sd_option* options, const rocm_sd_tensor* tensors, size_t count,
                                   const rocm_sd_callbacks* callbacks, rocm_sd_pipeline** out);

/* Bytes that a request will take in all: weights, arena and buffers. */
rocm_sd_status rocm_sd_plan(rocm_sd_pipeline* pipeline, const rocm_sd_option* options, uint64_t* bytes);

/* Generates; *out is NULL on failure and is freed with rocm_sd_result_free. callbacks may be NULL. */
rocm_sd_status rocm_sd_generate(rocm_sd_pipeline* pipeline, const rocm_sd_option* options,
                                const rocm_sd_callbacks* callbacks, rocm_sd_result** out);

/* A picture for a ControlNet or an IP-Adapter, or where it acts. */
typedef struct {
  int width, height;
  const uint8_t* rgb; /* [height,width,3], or NULL: none from memory */
} rocm_sd_control_image;

/* What an IP-Adapter sees: images, or in their place what an image encoder or a face model gave of them. */
typedef struct {
  const rocm_sd_control_image* images; /* or NULL */
  size_t images_count;
  size_t
      images_each; /* 0: all of them are one prompt; N: N in a row are the prompt of one image of the batch */
  const rocm_sd_control_image* masks; /* one for each image of a prompt, white is where it acts; or NULL */
  size_t masks_count;
  const float* embeds; /* [images,width] or [images,tokens,width], or a pair with those of the negative prompt
                          first; or NULL */
  const int64_t* embeds_shape;
  int embeds_rank;
} rocm_sd_ip_image;

/* Pictures and noise that a request takes from memory in place of files. */
typedef struct {
  int width, height;       /* of init_rgb and mask */
  const uint8_t* init_rgb; /* [height,width,3], or NULL */
  const uint8_t* mask;     /* [height,width], white is repainted, or NULL */
  const float*
      initial_noise; /* [batch,4,height/8,width/8] standard normal in place of seeded noise, or NULL */
  size_t initial_noise_count; /* its elements */
  const float* init_latents;  /* [batch,4,height/8,width/8] in place of an init image's latents; with the
                                 option  "denoising-start" as another model left them; or NULL */
  size_t init_latents_count;  /* their elements */
  int depth_width, depth_height;
  const uint8_t* depth; /* [depth_height,depth_width], near is bright, for depth models; or NULL */
  const rocm_sd_control_image* control_images; /* for the first "control" option, the second, ...; or NULL */
  size_t control_images_count;
  size_t control_images_each; /* 0 or 1: one picture for each option; N: N in a row, one for each image of the
                                 batch */
  const rocm_sd_control_image*
      control_masks; /* in the same order, one each: white is where it acts; or NULL */
  size_t control_masks_count;
  const rocm_sd_ip_image* ip_images; /* for the first "ip-adapter" option, the second, ...; or NULL */
  size_t ip_images_count;
} rocm_sd_inputs;

/* rocm_sd_generate with inputs from memory, which are copied before this returns. inputs may be NULL. */
rocm_sd_status rocm_sd_generate_from(rocm_sd_pipeline* pipeline, const rocm_sd_option* options,
                                     const rocm_sd_inputs* inputs, const rocm_sd_callbacks* callbacks,
                                     rocm_sd_result** out);
void rocm_sd_result_free(rocm_sd_result* result);

/* Writes a picture as PNG, JPEG or WebP by the path's ending, with its parameters; quality 1..100. */
rocm_sd_status rocm_sd_save(const rocm_sd_picture* picture, const char* path, int quality);

/* What enlarges pictures: a network (RRDBNet, SRVGGNetCompact, SPAN) or a filter. One call at a time. */
typedef struct rocm_sd_upscaler rocm_sd_upscaler;

/* Options: "upscaler" (a .safetensors or .pth file, or lanczos, bicubic, nearest), "device", "dtype". *out is
 * NULL on failure. */
rocm_sd_status rocm_sd_upscaler_create(const rocm_sd_option* options, rocm_sd_upscaler** out);
void rocm_sd_upscaler_free(rocm_sd_upscaler* upscaler);

/* A picture [height,width,3], larger. Options: "factor", or "width" and "height" of the result; "tile",
 * "tile-overlap". options may be NULL: the network's own factor. The result has one picture and is freed with
 * rocm_sd_result_free. callbacks may be NULL; stage "upscale", a step for each window. */
rocm_sd_status rocm_sd_upscale(rocm_sd_upscaler* upscaler, const rocm_sd_option* options, int width,
                               int height, const uint8_t* rgb, const rocm_sd_callbacks* callbacks,
                               rocm_sd_result** out);

#ifdef __cplusplus
}
#endif
#endif
