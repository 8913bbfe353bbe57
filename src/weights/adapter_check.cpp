#include "weights/adapter_check.hpp"

#include "base/text.hpp"

namespace rocm_sd {
namespace {

// Sizes of one module's parts, checked against each other and against the weight.
class ModuleCheck {
 public:
  ModuleCheck(const WeightStore& tensors, const AdapterModule& module, const Shape& target)
      : tensors_(tensors), module_(module), target_(target) {}

  void operator()() const {
    switch (module_.kind) {
      case AdapterKind::kLora: lora(); break;
      case AdapterKind::kLoha: loha(); break;
      case AdapterKind::kLokr: lokr(); break;
      case AdapterKind::kIa3: fits(part("ia3").numel() == (module_.on_input ? in() : out()), "ia3"); break;
      case AdapterKind::kDifference: fits(part("diff").numel() == target_.numel(), "diff"); break;
    }
    if (module_.is_dora())
      fits(part("magnitude").numel() == (module_.magnitude_on_input ? in() : out()), "magnitude");
  }

  const Shape& part(const std::string& role) const {
    const auto found = module_.parts.find(role);
    require<FormatError>(found != module_.parts.end(), tensors_.title(), ": ", printable(module_.key),
                         ": the module has ", list_roles(), " and no ", role);
    return tensors_.shape(found->second);
  }

 private:
  int64_t out() const { return target_[0]; }
  int64_t in() const { return target_.rank() > 1 ? target_[1] : 1; }
  int64_t inner() const { return target_.numel() / out(); }  // in * kh * kw
  int64_t pixels() const { return inner() / in(); }

  std::string list_roles() const {
    std::string roles;
    for (const auto& [role, name] : module_.parts) roles += concat(roles.empty() ? "" : ", ", role);
    return roles;
  }
  void fits(bool ok, const std::string& role) const {
    require<ShapeError>(ok, tensors_.title(), ": ", printable(module_.parts.at(role)), " ", part(role),
                        " does not fit ", module_.target, " ", target_,
                        " of this model: was the file made for another base model?");
  }
  void same_rank(int64_t a, int64_t b, const char* first, const char* second) const {
    require<FormatError>(a == b, tensors_.title(), ": ", printable(module_.key), ": ", first, " is of rank ",
                         a, ", ", second, " of rank ", b);
  }
  int64_t dim(const std::string& role, int i) const {
    const Shape& shape = part(role);
    require<FormatError>(shape.rank() >= 2, tensors_.title(), ": ", printable(module_.parts.at(role)),
                         ": expected a matrix or filter, got ", shape);
    return shape[i];
  }
  // [rows,columns...]: columns may be spread over the filter's dimensions.
  void matrix(const std::string& role, int64_t rows, int64_t columns) const {
    fits(dim(role, 0) == rows && part(role).numel() == rows * columns, role);
  }

  void lora() const {
    const int64_t rank = dim("down", 0);
    same_rank(rank, dim("up", 1), "down", "up");
    matrix("up", out(), rank);
    if (!module_.has("mid")) return matrix("down", rank, inner());
    matrix("down", rank, in());
    matrix("mid", rank, rank * pixels());
  }
  void loha() const {
    for (const char* half : {"hada_w1", "hada_w2"}) {
      const std::string a = concat(half, "_a"), b = concat(half, "_b"), t = concat("hada_t", half[6]);
      const int64_t rank = dim(b, 0);
      if (module_.has(t)) {  // Tucker: a [rank,out], b [rank,in], t [rank,rank,kh,kw]
        matrix(a, dim(a, 0), out());
        matrix(b, rank, in());
        matrix(t, dim(a, 0), rank * pixels());
      } else {
        same_rank(dim(a, 1), rank, a.c_str(), b.c_str());
        matrix(a, out(), rank);
        matrix(b, rank, inner());
      }
    }
  }
  void lokr() const {
    const auto rows_columns = [&](const char* side) -> std::pair<int64_t, int64_t> {
      const std::string whole = side, a = concat(side, "_a"), b = concat(side, "_b");
      if (module_.has(whole)) return {dim(whole, 0), part(whole).numel() / dim(whole, 0)};
      if (whole == "lokr_w2" && module_.has("lokr_t2")) {
        matrix("lokr_t2", dim(a, 0), dim(b, 0) * pixels());
        return {dim(a, 1), dim(b, 1) * pixels()};
      }
      same_rank(dim(a, 1), dim(b, 0), a.c_str(), b.c_str());
      return {dim(a, 0), part(b).numel() / dim(b, 0)};
    };
    const auto [rows1, columns1] = rows_columns("lokr_w1");
    const auto [rows2, columns2] = rows_columns("lokr_w2");
    require<ShapeError>(rows1 * rows2 == out() && columns1 * columns2 == inner(), tensors_.title(), ": ",
                        printable(module_.key), ": [", rows1, ",", columns1, "] x [", rows2, ",", columns2,
                        "] does not fit ", module_.target, " ", target_,
                        " of this model: was the file made for another base model?");
  }

  const WeightStore& tensors_;
  const AdapterModule& module_;
  const Shape& target_;
};

}  // namespace

void check_module(const WeightStore& tensors, const AdapterModule& module, const Shape& target) {
  ModuleCheck(tensors, module, target)();
}

bool magnitude_is_on_input(const AdapterModule& module, const WeightStore& tensors) {
  const std::string& name = module.parts.at("magnitude");
  const Shape& shape = tensors.shape(name);
  return name.ends_with(".dora_scale") && shape.rank() > 1 && shape[0] == 1;
}

int64_t rank_of(const AdapterModule& module, const WeightStore& tensors) {
  const auto rows = [&](const char* role) -> int64_t {
    const auto found = module.parts.find(role);
    if (found == module.parts.end()) return 0;
    const Shape& shape = tensors.shape(found->second);
    return shape.rank() > 0 ? shape[0] : 0;
  };
  switch (module.kind) {
    case AdapterKind::kLora: return rows("down");
    case AdapterKind::kLoha: return rows("hada_w1_b");
    case AdapterKind::kLokr: return rows("lokr_w2_b") ? rows("lokr_w2_b") : rows("lokr_w1_b");
    default: return 0;
  }
}

}  // namespace rocm_sd
