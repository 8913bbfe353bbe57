#include "emulator/names.hpp"

#include <unordered_map>

namespace rocm_sd::emu {

namespace {

const std::unordered_map<std::string_view, std::string_view>& aliases() {
  static const std::unordered_map<std::string_view, std::string_view> map = {
      // vector arithmetic of gfx9
      {"v_add_u32", "v_add_nc_u32"},
      {"v_sub_u32", "v_sub_nc_u32"},
      {"v_subrev_u32", "v_subrev_nc_u32"},
      {"v_add_i32", "v_add_nc_i32"},
      {"v_sub_i32", "v_sub_nc_i32"},
      {"v_add_u16", "v_add_nc_u16"},
      {"v_sub_u16", "v_sub_nc_u16"},
      {"v_subrev_u16", "v_subrev_nc_u16"},
      {"v_add_i16", "v_add_nc_i16"},
      {"v_sub_i16", "v_sub_nc_i16"},
      {"v_addc_co_u32", "v_add_co_ci_u32"},
      {"v_subb_co_u32", "v_sub_co_ci_u32"},
      {"v_subbrev_co_u32", "v_subrev_co_ci_u32"},
      {"v_mad_mix_f32", "v_fma_mix_f32"},
      {"v_mad_mixlo_f16", "v_fma_mixlo_f16"},
      {"v_mad_mixhi_f16", "v_fma_mixhi_f16"},
      {"v_accvgpr_read_b32", "v_mov_b32"},
      {"v_accvgpr_write_b32", "v_mov_b32"},
      {"v_accvgpr_mov_b32", "v_mov_b32"},
      // vector arithmetic of gfx11 and gfx12
      {"v_clz_i32_u32", "v_ffbh_u32"},
      {"v_ctz_i32_b32", "v_ffbl_b32"},
      {"v_cls_i32", "v_ffbh_i32"},
      {"v_cvt_pk_rtz_f16_f32", "v_cvt_pkrtz_f16_f32"},
      {"v_cvt_nearest_i32_f32", "v_cvt_rpi_i32_f32"},
      {"v_cvt_floor_i32_f32", "v_cvt_flr_i32_f32"},
      {"v_cvt_pk_norm_i16_f32", "v_cvt_pknorm_i16_f32"},
      {"v_cvt_pk_norm_u16_f32", "v_cvt_pknorm_u16_f32"},
      {"v_mad_co_u64_u32", "v_mad_u64_u32"},
      {"v_mad_co_i64_i32", "v_mad_i64_i32"},
      // scalar arithmetic
      {"s_andn2_b32", "s_and_not1_b32"},
      {"s_andn2_b64", "s_and_not1_b64"},
      {"s_orn2_b32", "s_or_not1_b32"},
      {"s_orn2_b64", "s_or_not1_b64"},
      {"s_andn1_saveexec_b64", "s_and_not0_saveexec_b64"},
      {"s_andn2_saveexec_b64", "s_and_not1_saveexec_b64"},
      {"s_orn1_saveexec_b64", "s_or_not0_saveexec_b64"},
      {"s_orn2_saveexec_b64", "s_or_not1_saveexec_b64"},
      {"s_andn1_wrexec_b64", "s_and_not0_wrexec_b64"},
      {"s_andn2_wrexec_b64", "s_and_not1_wrexec_b64"},
      {"s_ctz_i32_b32", "s_ff1_i32_b32"},
      {"s_ctz_i32_b64", "s_ff1_i32_b64"},
      {"s_clz_i32_u32", "s_flbit_i32_b32"},
      {"s_clz_i32_u64", "s_flbit_i32_b64"},
      {"s_cls_i32", "s_flbit_i32"},
      {"s_cls_i32_i64", "s_flbit_i32_i64"},
      {"s_add_co_u32", "s_add_u32"},
      {"s_sub_co_u32", "s_sub_u32"},
      {"s_add_co_i32", "s_add_i32"},
      {"s_sub_co_i32", "s_sub_i32"},
      {"s_add_co_ci_u32", "s_addc_u32"},
      {"s_sub_co_ci_u32", "s_subb_u32"},
      {"s_addk_co_i32", "s_addk_i32"},
  };
  return map;
}

// The last words of gfx9's loads and stores, by what they move.
const std::unordered_map<std::string_view, std::string_view>& widths() {
  static const std::unordered_map<std::string_view, std::string_view> map = {
      {"load_lds_dword", "load_lds_b32"},
      {"load_lds_ubyte", "load_lds_u8"},
      {"load_lds_sbyte", "load_lds_i8"},
      {"load_lds_ushort", "load_lds_u16"},
      {"load_lds_sshort", "load_lds_i16"},
      {"load_dword", "load_b32"},
      {"load_dwordx2", "load_b64"},
      {"load_dwordx3", "load_b96"},
      {"load_dwordx4", "load_b128"},
      {"load_dwordx8", "load_b256"},
      {"load_dwordx16", "load_b512"},
      {"load_ubyte", "load_u8"},
      {"load_sbyte", "load_i8"},
      {"load_ushort", "load_u16"},
      {"load_sshort", "load_i16"},
      {"load_ubyte_d16", "load_d16_u8"},
      {"load_ubyte_d16_hi", "load_d16_hi_u8"},
      {"load_sbyte_d16", "load_d16_i8"},
      {"load_sbyte_d16_hi", "load_d16_hi_i8"},
      {"load_short_d16", "load_d16_b16"},
      {"load_short_d16_hi", "load_d16_hi_b16"},
      {"store_dword", "store_b32"},
      {"store_dwordx2", "store_b64"},
      {"store_dwordx3", "store_b96"},
      {"store_dwordx4", "store_b128"},
      {"store_byte", "store_b8"},
      {"store_short", "store_b16"},
      {"store_byte_d16_hi", "store_d16_hi_b8"},
      {"store_short_d16_hi", "store_d16_hi_b16"},
      {"load_u8_d16", "load_d16_u8"},
      {"load_u8_d16_hi", "load_d16_hi_u8"},
      {"load_i8_d16", "load_d16_i8"},
      {"load_i8_d16_hi", "load_d16_hi_i8"},
      {"load_u16_d16", "load_d16_b16"},
      {"load_u16_d16_hi", "load_d16_hi_b16"},
      {"store_b8_d16_hi", "store_d16_hi_b8"},
      {"store_b16_d16_hi", "store_d16_hi_b16"},
  };
  return map;
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

}  // namespace

std::string operation_name(std::string_view mnemonic) {
  for (const std::string_view suffix : {"_e64_dpp", "_dpp", "_sdwa", "_e32", "_e64"})
    if (mnemonic.ends_with(suffix)) {
      mnemonic.remove_suffix(suffix.size());
      break;
    }
  std::string name(mnemonic);
  if (name.starts_with("v_dual_")) name.erase(2, 5);
  if (name.starts_with("ds_read")) {
    replace(name, "ds_read2st64", "ds_load_2addr_stride64");
    replace(name, "ds_read2", "ds_load_2addr");
    replace(name, "ds_read", "ds_load");
  } else if (name.starts_with("ds_write")) {
    replace(name, "ds_write2st64", "ds_store_2addr_stride64");
    replace(name, "ds_write2", "ds_store_2addr");
    replace(name, "ds_write", "ds_store");
  }
  replace(name, "_num_", "_");  // gfx12: v_min_num_f32
  for (const std::string_view verb : {"load_", "store_"})
    if (const size_t at = name.find(verb); at != std::string::npos) {
      const auto found = widths().find(std::string_view(name).substr(at));
      if (found != widths().end()) name.replace(at, std::string::npos, found->second);
    }
  const auto found = aliases().find(name);
  return found == aliases().end() ? name : std::string(found->second);
}

}  // namespace rocm_sd::emu
