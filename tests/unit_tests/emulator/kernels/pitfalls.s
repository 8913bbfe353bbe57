// Where interpreters of this machine code went wrong, a kernel each, as one_operation.inc says; and instructions that
// compilers emit only where they are asked to.
.include "one_operation.inc"

// ---- what does nothing but take time ----
.macro NO_OPERATIONS
  s_nop 3
  s_setprio 2
  s_sleep 1
  .if !WIDE
    s_delay_alu instid0(VALU_DEP_1)
    s_clause 0x1
    global_load_b32 v10, v1, s[4:5] offset:8
    global_load_b32 v11, v1, s[4:5] offset:12
  .else
    global_load_dword v10, v1, s[4:5] offset:8
    global_load_dword v11, v1, s[4:5] offset:12
  .endif
  s_setprio 0
.endm
TEST t_no_operations, NO_OPERATIONS

// ---- a loop that lanes leave one after the other: v4 & 7 turns ----
.macro LEAVING_LOOP
  v_and_b32_e32 v20, 7, v4
  v_mov_b32_e32 v10, 0
  v_mov_b32_e32 v11, 0
  .if WIDE
    s_mov_b64 s[24:25], exec
1:  v_cmp_lt_u32_e32 vcc, v10, v20
    s_and_b64 exec, exec, vcc
    s_cbranch_execz 2f
    v_add_u32_e32 v10, 1, v10
    s_branch 1b
2:  s_mov_b64 exec, s[24:25]
  .else
    s_mov_b32 s24, exec_lo
1:  v_cmp_lt_u32_e32 vcc_lo, v10, v20
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz 2f
    v_add_nc_u32_e32 v10, 1, v10
    s_branch 1b
2:  s_mov_b32 exec_lo, s24
  .endif
  v_mov_b32_e32 v11, v20
.endm
TEST t_leaving_loop, LEAVING_LOOP

// ---- addresses: a scalar and an offset, 64 bits in registers, a negative offset; lanes that are not in exec point nowhere ----
.macro ADDRESSES
  v_mov_b32_e32 v20, 0x7fffff00
  .if WIDE
    v_cndmask_b32_e32 v20, v20, v1, vcc
    s_mov_b64 s[24:25], exec
    v_mad_u64_u32 v[24:25], s[28:29], v20, 1, s[4:5]
    v_add_u32_e32 v26, 16, v20
    s_mov_b64 exec, vcc
    global_load_dword v10, v20, s[4:5] offset:8
    global_load_dword v11, v[24:25], off offset:12
    global_load_dword v12, v26, s[4:5] offset:-16
    s_mov_b64 exec, s[24:25]
  .else
    v_cndmask_b32_e32 v20, v20, v1, vcc_lo
    s_mov_b32 s24, exec_lo
    .if .amdgcn.gfx_generation_number >= 12
      v_mad_co_u64_u32 v[24:25], s28, v20, 1, s[4:5]
    .else
      v_mad_u64_u32 v[24:25], s28, v20, 1, s[4:5]
    .endif
    v_add_nc_u32_e32 v26, 16, v20
    s_mov_b32 exec_lo, vcc_lo
    global_load_b32 v10, v20, s[4:5] offset:8
    global_load_b32 v11, v[24:25], off offset:12
    global_load_b32 v12, v26, s[4:5] offset:-16
    s_mov_b32 exec_lo, s24
  .endif
.endm
TEST t_addresses, ADDRESSES

// ---- registers above v127 in the encodings that reach them ----
.macro HIGH_REGISTERS
  v_mov_b32_e32 v200, 0x11111111
  v_cvt_f16_f32_e64 v200, v2
  v_add_f32_e64 v255, v2, -v3
  v_mov_b32_e32 v10, v200
  v_mov_b32_e32 v11, v255
  v_mad_u32_u24 v129, v4, v5, v6
  v_mov_b32_e32 v12, v129
.endm
TEST t_high_registers, HIGH_REGISTERS

// ---- matrix instructions: f16 denormals count, and the addend may be an inline constant ----
.macro DENORMAL_PRODUCTS
  .irp r, 32, 33, 34, 35, 36, 37, 38, 39
    v_mov_b32_e32 v\r, 0x00010001
  .endr
  .irp r, 40, 41, 42, 43, 44, 45, 46, 47
    v_mov_b32_e32 v\r, 0x3c003c00
  .endr
  .if .amdgcn.gfx_generation_number == 11
    v_wmma_f32_16x16x16_f16 v[48:55], v[32:39], v[40:47], 0
    v_wmma_f32_16x16x16_f16 v[56:63], v[32:39], v[40:47], 0.5
  .elseif .amdgcn.gfx_generation_number == 12
    v_wmma_f32_16x16x16_f16 v[48:55], v[32:35], v[40:43], 0
    v_wmma_f32_16x16x16_f16 v[56:63], v[32:35], v[40:43], 0.5
  .else
    s_nop 7
    v_mfma_f32_16x16x16f16 v[48:51], v[32:33], v[40:41], 0
    v_mfma_f32_16x16x16f16 v[56:59], v[32:33], v[40:41], 0.5
    s_nop 15
    s_nop 15
  .endif
  v_mov_b32_e32 v10, v48
  v_mov_b32_e32 v11, v57
.endm
TEST t_denormal_products, DENORMAL_PRODUCTS

// ---- LDS: strides of 64 elements; an atomic without a result leaves registers alone ----
.macro LDS_STRIDES
  v_lshlrev_b32_e32 v20, 2, v0
  .if WIDE
    ds_write2st64_b32 v20, v2, v3 offset0:1 offset1:3
    s_waitcnt lgkmcnt(0)
    ds_read_b32 v10, v20 offset:256
    ds_read_b32 v11, v20 offset:768
    ds_max_u32 v20, v4 offset:256
    ds_read_b32 v12, v20 offset:256
  .else
    ds_store_2addr_stride64_b32 v20, v2, v3 offset0:1 offset1:3
    WAIT
    ds_load_b32 v10, v20 offset:256
    ds_load_b32 v11, v20 offset:768
    ds_max_u32 v20, v4 offset:256
    ds_load_b32 v12, v20 offset:256
  .endif
.endm
TEST t_lds_strides, LDS_STRIDES

// ---- a barrier in two parts where there is one: a store before it is there behind it ----
.macro BARRIERS
  v_lshlrev_b32_e32 v20, 2, v0
  v_xor_b32_e32 v21, 128, v20
  .if WIDE
    ds_write_b32 v20, v4
    WAIT
    s_barrier
    ds_read_b32 v10, v21
  .else
    ds_store_b32 v20, v4
    WAIT
    .if .amdgcn.gfx_generation_number >= 12
      s_barrier_signal -1
      v_mov_b32_e32 v11, v5
      s_barrier_wait -1
    .else
      s_barrier
    .endif
    ds_load_b32 v10, v21
  .endif
  v_mov_b32_e32 v11, v5
.endm
TEST t_barriers, BARRIERS

// ---- a trap is the end, with its name ----
.macro TRAP
  s_trap 2
.endm
TEST t_trap, TRAP

// ---- sums of products and of differences ----
.macro DOTS
  .if WIDE
    v_dot2_i32_i16 v10, v4, v5, v6
    v_dot2_u32_u16 v11, v4, v5, v6
  .else
    v_dot2_f16_f16 v10, v4, v5, v6
    v_dot2_bf16_bf16 v11, v4, v5, v6
  .endif
  v_sad_u16 v12, v4, v5, v6
  v_msad_u8 v13, v4, v5, v6
.endm
TEST t_dots, DOTS
.macro SADS
  v_sad_hi_u8 v10, v4, v5, v6
  v_lerp_u8 v11, v4, v5, v6
  .if .amdgcn.gfx_generation_number >= 12
    v_dot4_f32_fp8_bf8 v12, v4, v5, 1.0
  .endif
.endm
TEST t_sads, SADS

// ---- loads whose data goes to LDS: a dword a lane behind M0 and the offset; behind the buffer's end they are zeros ----
.if .amdgcn.gfx_generation_number < 12
.macro FIRST_SLOT at
  v_readfirstlane_b32 s24, v0
  s_lshl_b32 s24, s24, 2
  s_add_u32 m0, s24, \at
.endm
.macro LOADS_TO_LDS
  s_mov_b32 s8, s4
  s_mov_b32 s9, s5
  s_mov_b32 s10, 1280
  s_mov_b32 s11, 0x27000
  v_lshlrev_b32_e32 v20, 2, v0
  FIRST_SLOT 64
  .if WIDE
    buffer_load_dword v1, s[8:11], 0 offen offset:8 lds
    .if .amdgcn.gfx_generation_minor >= 4
      FIRST_SLOT 1024
      global_load_lds_dword v1, s[4:5] offset:12
      FIRST_SLOT 2048
      global_load_lds_ushort v1, s[4:5] offset:16
      FIRST_SLOT 3072
      global_load_lds_sshort v1, s[4:5] offset:16
    .endif
    s_waitcnt vmcnt(0)
    ds_read_b32 v10, v20 offset:72
    .if .amdgcn.gfx_generation_minor >= 4
      ds_read_b32 v11, v20 offset:1036
      ds_read_b32 v12, v20 offset:2064
      ds_read_b32 v13, v20 offset:3088
    .endif
  .else
    buffer_load_lds_b32 v1, s[8:11], 0 offen offset:8
    s_waitcnt vmcnt(0)
    ds_load_b32 v10, v20 offset:72
  .endif
.endm
TEST t_loads_to_lds, LOADS_TO_LDS
.endif
