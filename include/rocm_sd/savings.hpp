// Approximations that save time: another picture for less work. All are off unless a request asks for them.
#pragma once

namespace rocm_sd {

struct Savings {
  // DeepCache (Ma et al., arXiv 2312.00858): every so many calls of the UNet one runs whole, and the others
  // take what its deep layers gave. 0 and 1: all run whole.
  int deep_cache = 0;         // 0..100
  int deep_cache_branch = 0;  // the deepest skip connection that these compute themselves; 0: conv_in's
  // T-GATE (Zhang et al., arXiv 2404.02747, its cross-attention half): so many steps run as they are; the
  // others add the mean of what the text's attentions gave in the last of them with and without the prompt,
  // and have no guidance. 0: all run as they are.
  int t_gate = 0;
  // SADA's step skipping (Jiang et al., arXiv 2507.17135): where the steps before foretell a prediction, the
  // UNet is not called. For samplers that draw no noise and call the model once a step.
  bool sada = false;
  // Token merging (Bolya and Hoffman, arXiv 2303.17604): this share of a map's pixels are merged into those
  // that they are most like before self attention, which is the UNet's most costly part at large sizes. As
  // the released tomesd with use_rand=False. 0: none. 0..0.75
  double token_merge = 0;
  int token_merge_downsample = 1;  // 1, 2, 4 or 8: maps that are smaller than the latents by at most this

  bool active() const { return deep_cache > 1 || t_gate > 0 || sada || token_merge > 0; }
  friend bool operator==(const Savings& a, const Savings& b) {  // written out: public headers are C++17
    return a.deep_cache == b.deep_cache && a.deep_cache_branch == b.deep_cache_branch &&
           a.t_gate == b.t_gate && a.sada == b.sada && a.token_merge == b.token_merge &&
           a.token_merge_downsample == b.token_merge_downsample;
  }
};

}  // namespace rocm_sd
