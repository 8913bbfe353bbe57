// One name per operation: gfx9's, gfx11's and gfx12's spellings fold to the names of the operation tables.
#pragma once

#include <string>
#include <string_view>

namespace rocm_sd::emu {

// "v_add_u32_e32" of gfx9 -> "v_add_nc_u32"; encodings (_e32, _e64, _dpp, _sdwa) and v_dual_ are dropped.
std::string operation_name(std::string_view mnemonic);

}  // namespace rocm_sd::emu
