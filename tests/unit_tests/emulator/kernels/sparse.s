// One kernel per matrix instruction that clang has no short way to: sparse ones, and those with their lanes or blocks
// changed. A lane reads 16 dwords into v[4:19] (operands) and 16 into v[20:35] (the sum), and writes v[20:35].
// Arguments: in [lanes][32], out [lanes][16].
.amdhsa_code_object_version 5

.if .amdgcn.gfx_generation_number >= 10
  .set WIDE, 0
.else
  .set WIDE, 1
.endif

.macro WAIT
  .if .amdgcn.gfx_generation_number >= 12
    s_wait_loadcnt 0x0
    s_wait_kmcnt 0x0
  .else
    s_waitcnt vmcnt(0) lgkmcnt(0)
  .endif
.endm

.macro LOAD first, last, offset
  .if WIDE
    global_load_dwordx4 v[\first:\last], v1, s[4:5] offset:\offset
  .else
    global_load_b128 v[\first:\last], v1, s[4:5] offset:\offset
  .endif
.endm
.macro STORE first, last, offset
  .if WIDE
    global_store_dwordx4 v1, v[\first:\last], s[6:7] offset:\offset
  .else
    global_store_b128 v1, v[\first:\last], s[6:7] offset:\offset
  .endif
.endm

.macro MATRIX name, code:vararg
.text
.globl \name
.p2align 8
.type \name,@function
\name:
  .if WIDE
    s_load_dwordx4 s[4:7], s[0:1], 0x0
  .else
    s_load_b128 s[4:7], s[0:1], 0x0
  .endif
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 7, v0
  WAIT
  LOAD 4, 7, 0
  LOAD 8, 11, 16
  LOAD 12, 15, 32
  LOAD 16, 19, 48
  LOAD 20, 23, 64
  LOAD 24, 27, 80
  LOAD 28, 31, 96
  LOAD 32, 35, 112
  WAIT
  \code
  v_lshlrev_b32_e32 v1, 6, v0
  s_nop 15
  STORE 20, 23, 0
  STORE 24, 27, 16
  STORE 28, 31, 32
  STORE 32, 35, 48
  s_endpgm
.L\name\()_end:
.size \name, .L\name\()_end-\name
.rodata
.p2align 6
.if WIDE
  .amdhsa_kernel \name
    .amdhsa_kernarg_size 16
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_next_free_vgpr 64
    .amdhsa_next_free_sgpr 32
    .amdhsa_float_denorm_mode_32 3
    .amdhsa_accum_offset 64
  .end_amdhsa_kernel
.else
  .amdhsa_kernel \name
    .amdhsa_kernarg_size 16
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_next_free_vgpr 64
    .amdhsa_next_free_sgpr 32
    .amdhsa_float_denorm_mode_32 3
    .amdhsa_wavefront_size32 1
  .end_amdhsa_kernel
.endif
.endm

.if .amdgcn.gfx_generation_number >= 12
MATRIX swmmac_f16, v_swmmac_f32_16x16x32_f16 v[20:27], v[4:7], v[8:15], v16
MATRIX swmmac_f16_key, v_swmmac_f32_16x16x32_f16 v[20:27], v[4:7], v[8:15], v16 index_key:1
MATRIX swmmac_half_sum, v_swmmac_f16_16x16x32_f16 v[20:23], v[4:7], v[8:15], v16 index_key:1
MATRIX swmmac_iu8, v_swmmac_i32_16x16x32_iu8 v[20:27], v[4:5], v[8:11], v16 index_key:1 neg_lo:[1,0,0]
MATRIX swmmac_iu4, v_swmmac_i32_16x16x64_iu4 v[20:27], v[4:5], v[8:11], v16 neg_lo:[0,1,0] clamp
.endif

.if WIDE
MATRIX lanes_1, v_mfma_f32_32x32x8f16 v[20:35], v[4:5], v[6:7], v[20:35] blgp:1
MATRIX lanes_2, v_mfma_f32_32x32x8f16 v[20:35], v[4:5], v[6:7], v[20:35] blgp:2
MATRIX lanes_3, v_mfma_f32_32x32x8f16 v[20:35], v[4:5], v[6:7], v[20:35] blgp:3
MATRIX lanes_4, v_mfma_f32_32x32x8f16 v[20:35], v[4:5], v[6:7], v[20:35] blgp:4
MATRIX lanes_7, v_mfma_f32_32x32x8f16 v[20:35], v[4:5], v[6:7], v[20:35] blgp:7
MATRIX blocks, v_mfma_f32_4x4x4f16 v[20:23], v[4:5], v[6:7], v[20:23] cbsz:2 abid:3
MATRIX too_many_blocks, v_mfma_f32_4x4x4f16 v[20:23], v[4:5], v[6:7], v[20:23] cbsz:2 abid:4
.if .amdgcn.gfx_generation_minor >= 4
MATRIX xf32, v_mfma_f32_16x16x8_xf32 v[20:23], v[4:5], v[6:7], v[20:23]
MATRIX smfmac_16, v_smfmac_f32_16x16x32_f16 v[20:23], v[4:5], v[8:11], v16 abid:2
MATRIX smfmac_32, v_smfmac_f32_32x32x16_f16 v[20:35], v[4:5], v[8:11], v16 cbsz:1 abid:2
MATRIX smfmac_i8, v_smfmac_i32_16x16x64_i8 v[20:23], v[4:5], v[8:11], v16 abid:1
.else
MATRIX old_bf16, v_mfma_f32_16x16x2bf16 v[20:35], v4, v6, v[20:35]
.endif
.endif
