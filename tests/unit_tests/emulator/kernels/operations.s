// One kernel per operation under test, as one_operation.inc says.
.include "one_operation.inc"

// ---- float ----
.macro MIN3 d, a, b
  .if .amdgcn.gfx_generation_number >= 12
    v_min_num_f32_e32 \d, \a, \b
  .else
    v_min_f32_e32 \d, \a, \b
  .endif
.endm
.macro MAX3 d, a, b
  .if .amdgcn.gfx_generation_number >= 12
    v_max_num_f32_e32 \d, \a, \b
  .else
    v_max_f32_e32 \d, \a, \b
  .endif
.endm
.macro MINMAX
  MIN3 v10, v2, v3
  MAX3 v11, v2, v3
.endm
TEST t_minmax, MINMAX
.macro MODIFIERS
  v_add_f32_e64 v10, -v2, |v3| clamp
  v_mul_f32_e64 v11, v2, v3 mul:2
  v_fma_f32 v12, -|v2|, s16, v3 div:2
  v_add_f32_e64 v13, v2, s17
.endm
TEST t_modifiers, MODIFIERS
.macro CONVERT
  v_cvt_i32_f32_e32 v10, v2
  v_cvt_u32_f32_e32 v11, v2
  v_cvt_f16_f32_e32 v12, v2
  v_cvt_f32_ubyte2_e32 v13, v2
.endm
TEST t_convert, CONVERT
.macro PACKS
  v_cvt_pkrtz_f16_f32 v10, v2, v3
  v_cvt_pk_u16_u32 v11, v4, v5
  v_cvt_pk_i16_i32 v12, v4, v5
  v_pack_b32_f16 v13, v4, v5 op_sel:[1,0]
.endm
TEST t_packs, PACKS
.macro SPLIT
  v_frexp_mant_f32_e32 v10, v2
  v_frexp_exp_i32_f32_e32 v11, v2
  v_ldexp_f32 v12, v2, v4
  v_fract_f32_e32 v13, v2
.endm
TEST t_split, SPLIT
.macro CLASSES32
  v_mov_b32_e32 v10, 0
  .irp bit, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
    v_mov_b32_e32 v12, 1 << \bit
    v_cmp_class_f32_e64 vcc_lo, v2, v12
    v_cndmask_b32_e64 v11, 0, v12, vcc_lo
    v_or_b32_e32 v10, v10, v11
  .endr
.endm
.macro CLASSES64
  v_mov_b32_e32 v10, 0
  .irp bit, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
    v_mov_b32_e32 v12, 1 << \bit
    v_cmp_class_f32_e64 vcc, v2, v12
    v_cndmask_b32_e64 v11, 0, v12, vcc
    v_or_b32_e32 v10, v10, v11
  .endr
.endm
.if WIDE
TEST t_classes, CLASSES64
.else
TEST t_classes, CLASSES32
.endif
.macro DOUBLES
  .if WIDE
    s_mov_b32 s20, 0
    s_mov_b32 s21, 0x40590000
    v_add_f64 v[10:11], v[2:3], s[20:21]
  .elseif .amdgcn.gfx_generation_number >= 12
    v_add_f64_e32 v[10:11], 0x40590000, v[2:3]
  .else
    v_add_f64 v[10:11], v[2:3], 0x40590000
  .endif
  v_mul_f64 v[12:13], v[2:3], 0.5
.endm
TEST t_doubles, DOUBLES
.macro TRANSCENDENTALS
  v_exp_f32_e32 v10, v2
  v_log_f32_e32 v11, v3
  v_rcp_f32_e32 v12, v2
  v_rsq_f32_e32 v13, v3
.endm
TEST t_transcendentals, TRANSCENDENTALS

// ---- 16-bit halves ----
.macro HALVES
  v_pk_add_f16 v10, v2, v3 op_sel:[1,0] op_sel_hi:[0,1]
  v_pk_mul_f16 v11, v2, v3 neg_lo:[1,0] neg_hi:[0,1]
  v_pk_add_u16 v12, v4, v5
  v_pk_lshlrev_b16 v13, 3, v4 op_sel_hi:[0,1]
.endm
TEST t_halves, HALVES
.if WIDE
.macro OPSEL
  v_mad_u16 v10, v4, v5, v4
  v_add_f16_e32 v11, v2, v3
  v_mov_b32_e32 v12, v4
  v_mov_b32_e32 v13, v5
.endm
.else
.macro OPSEL
  v_add_nc_u16 v10, v4, v5 op_sel:[1,0,1]
  v_add_f16_e32 v11, v2, v3
  v_add_nc_u16 v12, v4, v5 op_sel:[0,1,0]
  v_mul_lo_u16 v13, v4, v5
.endm
.endif
TEST t_opsel, OPSEL
.macro MIX
  v_fma_mix_f32 v10, v2, v4, v3 op_sel:[0,1,0] op_sel_hi:[0,1,0]
  v_fma_mixlo_f16 v11, v2, v3, v2
  v_fma_mixhi_f16 v12, v2, v3, v2
.endm
TEST t_mix, MIX

// ---- integers ----
.macro FIELDS
  v_bfe_u32 v10, v4, v5, v6
  v_bfe_i32 v11, v4, v5, v6
  v_bfi_b32 v12, v4, v5, v6
  v_alignbit_b32 v13, v4, v5, v6
.endm
TEST t_fields, FIELDS
.macro SHIFTS
  v_lshlrev_b32_e32 v10, v5, v4
  v_ashrrev_i32_e32 v11, v5, v4
  v_lshrrev_b64 v[12:13], v6, v[4:5]
.endm
TEST t_shifts, SHIFTS
.macro COUNTS
  v_bcnt_u32_b32 v10, v4, v5
  v_bfrev_b32_e32 v11, v4
  .if WIDE
    v_ffbh_u32_e32 v12, v4
    v_ffbh_i32_e32 v13, v4
  .else
    v_clz_i32_u32_e32 v12, v4
    v_cls_i32_e32 v13, v4
  .endif
.endm
TEST t_counts, COUNTS
.macro PERM
  v_perm_b32 v10, v4, v5, v6
  v_mad_u32_u24 v11, v4, v5, v6
  v_mul_hi_i32_i24_e32 v12, v4, v5
  v_med3_i32 v13, v4, v5, v6
.endm
TEST t_perm, PERM
.if WIDE
.macro SATURATE
  v_add_u32_e64 v10, v4, v5 clamp
  v_sub_u32_e64 v11, v4, v5 clamp
  v_add_i32 v12, v4, v5 clamp
  v_sub_i32 v13, v4, v5 clamp
.endm
.macro WIDEMUL
  v_mad_u64_u32 v[10:11], s[20:21], v4, v5, v[6:7]
  v_cndmask_b32_e64 v12, 0, 1, s[20:21]
  v_add_co_u32_e32 v13, vcc, v4, v5
  v_addc_co_u32_e32 v13, vcc, v6, v7, vcc
.endm
.macro SELECT
  v_cndmask_b32_e32 v10, v2, v3, vcc
  v_cmp_lt_i32_e64 s[20:21], v4, v5
  v_cndmask_b32_e64 v11, -v2, |v3|, s[20:21]
.endm
.else
.macro SATURATE
  v_add_nc_u32_e64 v10, v4, v5 clamp
  v_sub_nc_u32_e64 v11, v4, v5 clamp
  v_add_nc_i32 v12, v4, v5 clamp
  v_sub_nc_i32 v13, v4, v5 clamp
.endm
.macro WIDEMUL
  .if .amdgcn.gfx_generation_number >= 12
    v_mad_co_u64_u32 v[10:11], s20, v4, v5, v[6:7]
  .else
    v_mad_u64_u32 v[10:11], s20, v4, v5, v[6:7]
  .endif
  v_cndmask_b32_e64 v12, 0, 1, s20
  v_add_co_u32 v13, vcc_lo, v4, v5
  v_add_co_ci_u32_e32 v13, vcc_lo, v6, v7, vcc_lo
.endm
.macro SELECT
  v_cndmask_b32_e32 v10, v2, v3, vcc_lo
  v_cmp_lt_i32_e64 s20, v4, v5
  v_cndmask_b32_e64 v11, -v2, |v3|, s20
.endm
.endif
TEST t_saturate, SATURATE
TEST t_widemul, WIDEMUL
TEST t_select, SELECT

// ---- lanes: the destination is the source; inactive lanes ----
.macro INPLACE
  v_mov_b32_e32 v10, v4
  v_mov_b32_e32 v11, v4
  v_mov_b32_e32 v12, v4
  s_nop 4
  v_mov_b32_dpp v10, v10 row_shr:1 row_mask:0xf bank_mask:0xf
  v_mov_b32_dpp v11, v11 row_ror:3 row_mask:0xf bank_mask:0xf
  v_add_nc_u32_dpp_ v12
.endm
.macro v_add_nc_u32_dpp_ d
  .if WIDE
    v_add_u32_dpp \d, \d, \d quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
  .else
    v_add_nc_u32_dpp \d, \d, \d quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
  .endif
.endm
TEST t_inplace, INPLACE
.macro LANES
  v_mbcnt_lo_u32_b32 v10, -1, 5
  v_mbcnt_hi_u32_b32 v10, -1, v10
  v_readlane_b32 s20, v4, 9
  s_add_i32 s20, s20, 1
  v_mov_b32_e32 v11, s20
  s_movk_i32 s21, 0x55
  v_writelane_b32 v12, s21, 3
.endm
TEST t_lanes, LANES

// ---- LDS ----
.macro LDS
  v_lshlrev_b32_e32 v20, 4, v0
  .if WIDE
    ds_write_b128 v20, v[2:5]
    s_waitcnt lgkmcnt(0)
    ds_read2_b32 v[10:11], v20 offset0:1 offset1:3
    ds_add_u32 v20, v6
    ds_read_b32 v12, v20
    ds_add_rtn_u32 v13, v20, v6 offset:8
  .else
    ds_store_b128 v20, v[2:5]
    WAIT
    ds_load_2addr_b32 v[10:11], v20 offset0:1 offset1:3
    ds_add_u32 v20, v6
    ds_load_b32 v12, v20
    ds_add_rtn_u32 v13, v20, v6 offset:8
  .endif
.endm
TEST t_lds, LDS

// ---- scalars, written by every lane ----
.macro SCALARS
  s_mov_b32 s20, 0xf0f0f0f0
  s_bfe_i32 s21, s20, 0x80004
  v_mov_b32_e32 v10, s21
  s_add_u32 s22, s20, s20
  s_addc_u32 s23, s20, 0
  v_mov_b32_e32 v11, s23
  s_cmp_lt_i32 s20, 0
  s_cselect_b32 s24, 17, 34
  s_movk_i32 s25, 0x8000
  s_mul_hi_u32 s25, s25, s20
  s_xor_b32 s24, s24, s25
  v_mov_b32_e32 v12, s24
  s_lshl_b64 s[26:27], s[20:21], 36
  v_mov_b32_e32 v13, s27
.endm
TEST t_scalars, SCALARS

// ---- what the checks find: waits ----
.macro LDS_LOADS
  v_lshlrev_b32_e32 v20, 3, v0
  .if WIDE
    ds_write_b64 v20, v[2:3]
    ds_read_b32 v10, v20
    ds_read_b32 v11, v20 offset:4
  .else
    ds_store_b64 v20, v[2:3]
    ds_load_b32 v10, v20
    ds_load_b32 v11, v20 offset:4
  .endif
.endm
.macro ONE_LEFT
  .if .amdgcn.gfx_generation_number >= 12
    s_wait_dscnt 0x1
  .else
    s_waitcnt lgkmcnt(1)
  .endif
.endm
.macro WAIT_FIRST
  LDS_LOADS
  ONE_LEFT
  v_mov_b32_e32 v12, v10
.endm
.macro WAIT_SECOND
  LDS_LOADS
  ONE_LEFT
  v_mov_b32_e32 v12, v11
.endm
.macro WAIT_NONE
  LDS_LOADS
  v_mov_b32_e32 v10, 0
.endm
TEST c_wait_first, WAIT_FIRST
TEST c_wait_second, WAIT_SECOND
TEST c_wait_overwrite, WAIT_NONE
.macro WAIT_SCALAR
  .if WIDE
    s_load_dword s20, s[0:1], 0x0
  .else
    s_load_b32 s20, s[0:1], 0x0
  .endif
  LDS_LOADS
  ONE_LEFT
  v_mov_b32_e32 v12, s20
.endm
TEST c_wait_scalar, WAIT_SCALAR
// Loads to LDS: two of a dword a lane; of the wave's own, and of another wave's behind a barrier.
.if .amdgcn.gfx_generation_number < 12
.macro TO_LDS offset
  .if WIDE
    buffer_load_dword v20, s[8:11], 0 offen offset:\offset lds
  .else
    buffer_load_lds_b32 v20, s[8:11], 0 offen offset:\offset
  .endif
.endm
.macro LOADS_TO_LDS
  s_mov_b32 s8, s4
  s_mov_b32 s9, s5
  s_mov_b32 s10, 0x80000000
  s_mov_b32 s11, 0x27000
  v_lshlrev_b32_e32 v20, 2, v0
  v_readfirstlane_b32 s24, v20
  s_mov_b32 m0, s24
  s_nop 0
  TO_LDS 0
  TO_LDS 1024
.endm
.macro READ_LDS offset
  .if WIDE
    ds_read_b32 v10, v20 offset:\offset
  .else
    ds_load_b32 v10, v20 offset:\offset
  .endif
.endm
.macro OWN_LOAD left, offset
  LOADS_TO_LDS
  s_waitcnt vmcnt(\left)
  READ_LDS \offset
.endm
TEST c_own_load_first, OWN_LOAD 1, 0
TEST c_own_load_second, OWN_LOAD 1, 1024
TEST c_own_load_waited, OWN_LOAD 0, 1024
.macro OVER_LOAD
  LOADS_TO_LDS
  .if WIDE
    ds_write_b32 v20, v2 offset:1024
  .else
    ds_store_b32 v20, v2 offset:1024
  .endif
.endm
TEST c_over_load, OVER_LOAD
.macro OTHERS_LOAD left, offset
  LOADS_TO_LDS
  s_waitcnt vmcnt(\left)
  s_barrier
  v_xor_b32_e32 v20, 256, v20
  READ_LDS \offset
.endm
TEST c_others_load_first, OTHERS_LOAD 1, 0
TEST c_others_load_second, OTHERS_LOAD 1, 1024
TEST c_others_load_waited, OTHERS_LOAD 0, 1024
// Each wave loads over what another has read, behind a barrier.
.macro LOAD_OVER_READ left
  OTHERS_LOAD 0, 0
  s_waitcnt lgkmcnt(\left)
  s_barrier
  TO_LDS 0
.endm
TEST c_load_over_read_waited, LOAD_OVER_READ 0
TEST c_load_over_read, LOAD_OVER_READ 1
.endif
.macro MISALIGNED
  LDS_LOADS
  WAIT
  v_and_b32_e32 v20, -16, v20
  .if WIDE
    ds_read_b64 v[10:11], v20 offset:4
  .else
    ds_load_b64 v[10:11], v20 offset:4
  .endif
.endm
TEST c_misaligned, MISALIGNED
.macro MISALIGNED_ATOMIC
  LDS_LOADS
  WAIT
  ds_add_u64 v20, v[2:3] offset:4
.endm
TEST c_misaligned_atomic, MISALIGNED_ATOMIC

// ---- what the checks find: a product of a product's result ----
.macro PRODUCTS gap:vararg
  .if .amdgcn.gfx_generation_number == 11
    v_wmma_f32_16x16x16_f16 v[24:31], v[32:39], v[40:47], v[24:31]
    \gap
    v_wmma_f32_16x16x16_f16 v[48:55], v[24:31], v[40:47], v[48:55]
  .elseif .amdgcn.gfx_generation_number == 12
    v_wmma_f32_16x16x16_f16 v[24:31], v[32:35], v[40:43], v[24:31]
    \gap
    v_wmma_f32_16x16x16_f16 v[48:55], v[24:27], v[40:43], v[48:55]
  .else
    v_mfma_f32_16x16x16f16 v[24:27], v[32:33], v[40:41], v[24:27]
    \gap
    v_mfma_f32_16x16x16f16 v[48:51], v[24:25], v[40:41], v[48:51]
  .endif
.endm
.macro PRODUCTS_AT_ONCE
  PRODUCTS
.endm
.macro PRODUCTS_TOO_SOON
  PRODUCTS s_nop 5
.endm
.macro NOPS
  v_nop
  s_nop 9
.endm
.macro PRODUCTS_APART
  PRODUCTS NOPS
.endm
TEST c_products_at_once, PRODUCTS_AT_ONCE
TEST c_products_too_soon, PRODUCTS_TOO_SOON
TEST c_products_apart, PRODUCTS_APART
.macro PRODUCT_THEN_READ
  .if WIDE
    v_mfma_f32_16x16x16f16 v[24:27], v[32:33], v[40:41], v[24:27]
    v_mfma_f32_16x16x16f16 v[24:27], v[32:33], v[40:41], v[24:27]
  .endif
  v_mov_b32_e32 v10, v24
.endm
TEST c_product_then_read, PRODUCT_THEN_READ
