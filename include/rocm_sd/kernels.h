/* C interface of librocm_sd_kernels: the kernels of rocm-sd on a caller's stream and pointers, without the
 * engine.
 *
 *   rocm_sd_kernels_open("cuda:current", &context);                  // once per device
 *   rocm_sd_kernels_plan_attention(context, &problem, &plan);        // once per problem: chooses, loads code
 *   rocm_sd_kernels_launch(plan, &operands, stream);                 // as often as wanted
 *
 * A launch on a GPU starts kernels on the caller's stream and returns: it allocates nothing, waits for
 * nothing and may be captured into a graph. What it needs beside its operands is the caller's workspace, of
 * the size that the plan names. Planning may load code: do it outside of captures. On "cpu" a launch computes
 * before it returns and may allocate. The thread's current device is the same after a call as before it.
 *
 * Functions that can fail return a rocm_sd_kernels_status; rocm_sd_kernels_last_error() then has one line for
 * this thread. Contexts and plans may be used from several threads at once, and plans launched on several
 * streams, each with a workspace of its own. Structs begin with their size, so that they can grow: set it to
 * sizeof, and every field that is not used to zero. Extents and strides count elements; a stride of 0 stands
 * for the dense layout that the field's comment names. Strings are UTF-8. */
#ifndef ROCM_SD_KERNELS_H
#define ROCM_SD_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/* A caller may set a field to any int; it is refused by value. In C++ a plain enum could not hold it. */
#define ROCM_SD_KERNELS_ANY_INT : int
#else
#define ROCM_SD_KERNELS_ANY_INT
#endif

typedef enum ROCM_SD_KERNELS_ANY_INT {
  ROCM_SD_KERNELS_OK = 0,
  ROCM_SD_KERNELS_INVALID = 2,   /* an argument that no device would take: shapes that do not fit, NULL */
  ROCM_SD_KERNELS_FILE = 3,      /* an archive of kernels cannot be read */
  ROCM_SD_KERNELS_NO_DEVICE = 4, /* no such device, none of its kernels are here, or the driver failed */
  ROCM_SD_KERNELS_OUT_OF_MEMORY = 5,
  ROCM_SD_KERNELS_UNSUPPORTED = 7, /* a sound problem that no kernel takes; the message has every refusal */
  ROCM_SD_KERNELS_INTERNAL = 70
} rocm_sd_kernels_status;

typedef enum ROCM_SD_KERNELS_ANY_INT {
  ROCM_SD_KERNELS_F32 = 0,
  ROCM_SD_KERNELS_F16 = 1,
  ROCM_SD_KERNELS_BF16 = 2
} rocm_sd_kernels_dtype;

typedef enum ROCM_SD_KERNELS_ANY_INT {
  ROCM_SD_KERNELS_NO_ACTIVATION = 0,
  ROCM_SD_KERNELS_SILU = 1,
  ROCM_SD_KERNELS_GELU = 2,       /* the erf form */
  ROCM_SD_KERNELS_QUICK_GELU = 3, /* x * sigmoid(1.702 x) */
  ROCM_SD_KERNELS_RELU = 4
} rocm_sd_kernels_activation;

typedef enum ROCM_SD_KERNELS_ANY_INT {
  ROCM_SD_KERNELS_ON_HOST = 0,
  ROCM_SD_KERNELS_ON_HIP = 1,
  ROCM_SD_KERNELS_ON_CUDA = 2,
  ROCM_SD_KERNELS_ON_EMULATOR = 3
} rocm_sd_kernels_device_kind;

/* A device whose kernels can be used. */
typedef struct rocm_sd_kernels_context rocm_sd_kernels_context;
/* A problem on a device, with the kernels that were chosen for it. */
typedef struct rocm_sd_kernels_plan rocm_sd_kernels_plan;

/* "0.1.0" of the library that was loaded. */
const char* rocm_sd_kernels_version(void);
/* The message of this thread's last failure; "" if there was none. Valid until its next failing call. */
const char* rocm_sd_kernels_last_error(void);

/* Opens a device: "cpu"; "hip:1", "cuda:0" by ordinal, in the runtime's primary context, which runtime-API
 * programs and PyTorch use; "hip:current", "cuda:current": what the calling thread has made current,
 * whichever context that is; "auto": the first GPU with kernels, else the CPU. Opening a device again is
 * cheap. *out is NULL on failure. */
rocm_sd_kernels_status rocm_sd_kernels_open(const char* device, rocm_sd_kernels_context** out);
/* Its plans must be freed first. */
void rocm_sd_kernels_close(rocm_sd_kernels_context* context);

typedef struct {
  size_t size;
  rocm_sd_kernels_device_kind kind;
  const char* name;  /* as a person reads it; lives as long as the context, like arch */
  const char* arch;  /* "gfx1100", "sm_90": the target whose kernels run; "" on the host */
  int lanes;         /* of a wave; 1 on the host */
  int compute_units; /* of the host: threads */
} rocm_sd_kernels_device;
rocm_sd_kernels_status rocm_sd_kernels_describe(const rocm_sd_kernels_context* context,
                                                rocm_sd_kernels_device* device);

/* softmax(scale * q k^T + mask) v. q [batch,queries,heads,head_dim], k and v [batch,keys,heads,head_dim] by
 * their strides, the channels of a head contiguous. Scores, softmax and sums in float. */
typedef struct {
  int64_t batch, head, row; /* 0, 0, 0: dense [batch,rows,heads,head_dim] */
} rocm_sd_kernels_head_strides;
typedef struct {
  size_t size;
  rocm_sd_kernels_dtype dtype; /* of q, k, v and y */
  int64_t batch, heads, queries, keys, head_dim;
  rocm_sd_kernels_head_strides q, k, v;
  rocm_sd_kernels_head_strides
      y;                   /* dense as [batch,queries,heads,head_dim] or [batch,heads,queries,head_dim] */
  float scale;             /* 0: 1 / sqrt(head_dim) */
  int causal;              /* a query sees the keys up to its own number */
  int masked;              /* adds mask, f32, to the scores */
  int64_t mask_strides[3]; /* of image, head and query; 0 broadcasts. Keys are contiguous */
} rocm_sd_kernels_attention;

/* y = activation(x w^T + bias + residual), or value * gelu(gate) with value and gate the halves of x w^T +
 * bias. */
typedef struct {
  size_t size;
  rocm_sd_kernels_dtype dtype; /* of x, weight, residual and y; sums in float, bias f32 */
  int64_t rows, in, out;       /* x [rows,in], weight [out,in] ([2*out,in] under gated) -> y [rows,out] */
  int64_t x_stride;            /* of a row; 0: in */
  int gated;                   /* GEGLU: takes no residual and no activation */
  int has_bias, has_residual;  /* bias [out] ([2*out]) f32, residual [rows,out] */
  rocm_sd_kernels_activation activation;
} rocm_sd_kernels_linear;

/* y = activation(conv(x, weight) + bias + channel_shift + residual) on NHWC. weight [out_channels,
 * channels + second_channels, filter_h, filter_w]. Image rows and columns are padded with zeros. */
typedef struct {
  size_t size;
  rocm_sd_kernels_dtype dtype; /* of x, second, weight, residual and y; sums in float, bias and shift f32 */
  int64_t batch, height, width, channels; /* x [batch,height,width,channels] */
  int64_t second_channels; /* second [batch,height,width,second_channels]: convolves both, joined */
  int64_t out_channels, filter_h, filter_w;
  int stride; /* 0: 1 */
  int pad_top, pad_left, pad_bottom, pad_right;
  int upsample2x;                                /* convolves x doubled by nearest neighbour */
  int has_bias, has_channel_shift, has_residual; /* [out_channels], [batch,out_channels], y's shape */
  rocm_sd_kernels_activation activation;
} rocm_sd_kernels_conv2d;

/* Group norm over whole images, NHWC: y = activation(norm(x joined with second) * weight + bias). */
typedef struct {
  size_t size;
  rocm_sd_kernels_dtype dtype; /* of x, second and y; weight and bias [all channels] f32 */
  int64_t batch, pixels, channels, second_channels; /* x [batch,pixels,channels] */
  int64_t groups;
  float eps;
  rocm_sd_kernels_activation activation; /* none or SiLU */
} rocm_sd_kernels_group_norm;

/* Layer norm of rows: y = norm(x) * weight + bias, or of s = x + residual, which is written to sum. */
typedef struct {
  size_t size;
  rocm_sd_kernels_dtype dtype; /* of x, residual, sum and y; weight and bias [channels] f32 */
  int64_t rows, channels;
  float eps;
  int has_residual;
} rocm_sd_kernels_layer_norm;

/* value * gelu(gate), erf form: x [rows,2*channels], values first -> y [rows,channels]. */
typedef struct {
  size_t size;
  rocm_sd_kernels_dtype dtype;
  int64_t rows, channels;
} rocm_sd_kernels_geglu;

/* Choose kernels for a problem and load their code. *out is NULL on failure. */
rocm_sd_kernels_status rocm_sd_kernels_plan_attention(rocm_sd_kernels_context* context,
                                                      const rocm_sd_kernels_attention* problem,
                                                      rocm_sd_kernels_plan** out);
rocm_sd_kernels_status rocm_sd_kernels_plan_linear(rocm_sd_kernels_context* context,
                                                   const rocm_sd_kernels_linear* problem,
                                                   rocm_sd_kernels_plan** out);
rocm_sd_kernels_status rocm_sd_kernels_plan_conv2d(rocm_sd_kernels_context* context,
                                                   const rocm_sd_kernels_conv2d* problem,
                                                   rocm_sd_kernels_plan** out);
rocm_sd_kernels_status rocm_sd_kernels_plan_group_norm(rocm_sd_kernels_context* context,
                                                       const rocm_sd_kernels_group_norm* problem,
                                                       rocm_sd_kernels_plan** out);
rocm_sd_kernels_status rocm_sd_kernels_plan_layer_norm(rocm_sd_kernels_context* context,
                                                       const rocm_sd_kernels_layer_norm* problem,
                                                       rocm_sd_kernels_plan** out);
rocm_sd_kernels_status rocm_sd_kernels_plan_geglu(rocm_sd_kernels_context* context,
                                                  const rocm_sd_kernels_geglu* problem,
                                                  rocm_sd_kernels_plan** out);
/* The same for a problem as text: an op that `rocm-sd bench` knows ("attention", "dequantize") and what the
 * op says of a problem ("i8 to f16 [320,1280]"). rocm_sd_kernels_explain() lists the operands of an op that
 * has no struct above, in their order: they are inputs[0], inputs[1], ... and outputs[0] of a launch. */
rocm_sd_kernels_status rocm_sd_kernels_plan_op(rocm_sd_kernels_context* context, const char* op,
                                               const char* problem, rocm_sd_kernels_plan** out);
void rocm_sd_kernels_plan_free(rocm_sd_kernels_plan* plan);

typedef struct {
  size_t size;
  size_t workspace_bytes;          /* that a launch needs; 0: none */
  size_t prepared_bytes;           /* of the weight as the kernels read it; 0: they read it as it is given */
  size_t prepared_workspace_bytes; /* that a launch with a prepared weight needs */
  int launches;                    /* kernels that such a launch starts */
} rocm_sd_kernels_plan_info;
rocm_sd_kernels_status rocm_sd_kernels_inspect(const rocm_sd_kernels_plan* plan,
                                               rocm_sd_kernels_plan_info* info);
/* The problem, the kernels that run, their grids and what refused before them; lines. Lives as long as the
 * plan. */
const char* rocm_sd_kernels_explain(const rocm_sd_kernels_plan* plan);

/* Pointers of one launch, into the device's memory, multiples of 16 bytes on a GPU. Those that the problem
 * does not have must be NULL. An output may not overlap an input. */
typedef struct {
  size_t size;
  const void *q, *k, *v; /* attention */
  const float* mask;     /* attention, masked */
  const void* x;         /* everything else */
  const void* second;    /* conv2d and group_norm with second_channels */
  const void* weight;    /* dtype for linear and conv2d; f32 for norms */
  const float* bias;
  const float* channel_shift; /* conv2d */
  const void* residual;       /* linear, conv2d, layer_norm */
  void* sum;                  /* layer_norm with a residual: x + residual */
  void* y;
  const void* prepared; /* of prepared_bytes, by rocm_sd_kernels_prepare; weight may then be NULL. NULL: every
                           launch prepares the weight in its workspace anew */
  void* workspace;      /* of workspace_bytes; contents do not matter before or after */
  size_t workspace_bytes; /* that workspace has */
  const void* inputs[8];  /* of rocm_sd_kernels_plan_op, where the op has no struct of its own */
  void* outputs[4];
} rocm_sd_kernels_operands;

/* Writes the weight to `prepared` in the layout that the plan's kernels read, once per weight. Only for plans
 * with prepared_bytes. Another plan reads the same layout where its filter, both channel counts and
 * upsampling do not differ. */
rocm_sd_kernels_status rocm_sd_kernels_prepare(const rocm_sd_kernels_plan* plan, const void* weight,
                                               void* prepared, void* stream);
/* Starts the plan's kernels. stream: a hipStream_t or CUstream of the context's device; NULL: its default
 * stream. */
rocm_sd_kernels_status rocm_sd_kernels_launch(const rocm_sd_kernels_plan* plan,
                                              const rocm_sd_kernels_operands* operands, void* stream);

/* For programs that have no HIP or CUDA of their own. Copies have finished when they return; they do not wait
 * for streams: synchronize first. */
rocm_sd_kernels_status rocm_sd_kernels_allocate(rocm_sd_kernels_context* context, size_t bytes, void** out);
void rocm_sd_kernels_deallocate(rocm_sd_kernels_context* context, void* data, size_t bytes);
rocm_sd_kernels_status rocm_sd_kernels_copy_to_device(rocm_sd_kernels_context* context, void* to,
                                                      const void* from, size_t bytes);
rocm_sd_kernels_status rocm_sd_kernels_copy_to_host(rocm_sd_kernels_context* context, void* to,
                                                    const void* from, size_t bytes);
/* Waits for what was launched on the stream so far. */
rocm_sd_kernels_status rocm_sd_kernels_synchronize(rocm_sd_kernels_context* context, void* stream);

#ifdef __cplusplus
}
#endif
#endif
