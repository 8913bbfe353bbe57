// cuDNN of the stand-in: descriptors hold what was set, a plan is its graph walked in order. Numbers are the
// library's, written from its documentation and not shared with src/vendor.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "fake_vendor.hpp"
#include "state.hpp"

using namespace fake_vendor;

namespace {

constexpr int kInvalid = 3;

int invalid(const char* function, const char* what) {
  complain(std::string(function) + ": " + what);
  return kInvalid;
}

using Extents = std::array<int64_t, 4>;  // N C H W

}  // namespace

namespace {

struct Backend {
  int kind;
  bool finalized = false;
  struct Attribute {
    int type;
    int64_t count;
    std::vector<char> bytes;
  };
  std::map<int, Attribute> attributes;
  Backend* graph = nullptr;  // of an engine's configuration and of a plan

  template <class T>
  std::vector<T> all(int name) const {
    const auto found = attributes.find(name);
    std::vector<T> out;
    if (found == attributes.end()) return out;
    out.resize(found->second.bytes.size() / sizeof(T));
    std::memcpy(out.data(), found->second.bytes.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  T one(int name, T otherwise = T()) const {
    const auto values = all<T>(name);
    return values.empty() ? otherwise : values[0];
  }
  Backend* part(int name) const { return one<Backend*>(name); }
};

size_t bytes_of(int type) {  // of an attribute's value
  switch (type) {
    case 2: return 1;  // a truth
    case 3:
    case 5: return 8;  // a large number
    case 0:
    case 6:
    case 15: return sizeof(void*);  // a pointer
    default: return 4;              // a small number, an enumerator
  }
}

Extents extents_of(const Backend& tensor, int name) {
  Extents out{};
  const auto values = tensor.all<int64_t>(name);
  for (size_t i = 0; i < 4 && i < values.size(); ++i) out[i] = values[i];
  return out;
}
DType tensor_type(const Backend& tensor) {
  const int type = tensor.one<int>(901);
  return type == 0 ? DType::kF32 : type == 2 ? DType::kF16 : DType::kBF16;
}

using Memory = std::map<int64_t, void*>;  // by a tensor's number
using Virtual = std::map<int64_t, std::vector<double>>;

// Index i of a tensor of these extents, in the order N H W C.
Extents place_of(int64_t i, const Extents& e) {
  return {i / (e[1] * e[2] * e[3]), i % e[1], i / (e[1] * e[3]) % e[2], i / e[1] % e[3]};
}
// The element of a tensor at a place, extents of 1 repeated.
double element(const Backend& tensor, const Memory& memory, const Virtual& sums, const Extents& at) {
  const auto id = tensor.one<int64_t>(906);
  const Extents e = extents_of(tensor, 902), strides = extents_of(tensor, 903);
  Extents in = at;
  for (size_t i = 0; i < 4; ++i) in[i] = e[i] == 1 ? 0 : at[i];
  if (const auto found = sums.find(id); found != sums.end())
    return found->second[static_cast<size_t>(((in[0] * e[2] + in[2]) * e[3] + in[3]) * e[1] + in[1])];
  int64_t place = 0;
  for (size_t i = 0; i < 4; ++i) place += in[i] * strides[i];
  return load(memory.at(id), tensor_type(tensor), place);
}

void put(const Backend& tensor, const Memory& memory, Virtual& sums, int64_t index, double value,
         int64_t count) {
  const auto id = tensor.one<int64_t>(906);
  if (tensor.one<char>(907)) {
    auto& values = sums[id];
    values.resize(static_cast<size_t>(count));
    values[static_cast<size_t>(index)] = value;
    return;
  }
  const Extents at = place_of(index, extents_of(tensor, 902)), strides = extents_of(tensor, 903);
  int64_t place = 0;
  for (size_t i = 0; i < 4; ++i) place += at[i] * strides[i];
  store(memory.at(id), tensor_type(tensor), place, value);
}

// What an operation makes of each place of its result.
template <class Make>
void fill(const Backend& y, const Memory& memory, Virtual& sums, const Make& make) {
  const Extents e = extents_of(y, 902);
  const int64_t count = e[0] * e[1] * e[2] * e[3];
  for (int64_t i = 0; i < count; ++i) put(y, memory, sums, i, make(place_of(i, e)), count);
}

void run_forward(const Backend& operation, const Memory& memory, Virtual& sums) {
  const Backend &x = *operation.part(704), &w = *operation.part(703), &y = *operation.part(705),
                &conv = *operation.part(702);
  const Extents xe = extents_of(x, 902), we = extents_of(w, 902), ye = extents_of(y, 902);
  const auto before = conv.all<int64_t>(105), stride = conv.all<int64_t>(103);
  const Correlation correlation{xe[0],
                                xe[2],
                                xe[3],
                                xe[1],
                                we[0],
                                we[2],
                                we[3],
                                ye[2],
                                ye[3],
                                stride[0],
                                stride[1],
                                before[0],
                                before[1],
                                tensor_type(x),
                                memory.at(x.one<int64_t>(906)),
                                memory.at(w.one<int64_t>(906))};
  const int64_t count = ye[0] * ye[1] * ye[2] * ye[3];
  correlation.run([&](int64_t i, double sum) { put(y, memory, sums, i, sum, count); });
}

void run_pointwise(const Backend& operation, const Memory& memory, Virtual& sums) {
  const Backend &x = *operation.part(751), &y = *operation.part(753);
  const Backend* second = operation.part(752);
  const int mode = operation.part(750)->one<int>(0);
  fill(y, memory, sums, [&](const Extents& at) {
    const double v = element(x, memory, sums, at), b = second ? element(*second, memory, sums, at) : 0;
    switch (mode) {
      case 0: return v + b;
      case 1: return v * b;
      case 6: return v / b;
      case 9: return v - b;
      case 13: return std::exp(v);
      case 15: return std::log(v);
      case 100: return std::max(v, 0.0);
      case 104: return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
      case 106: return v / (1 + std::exp(-v));
      default: complain("cudnnBackendExecute: an unknown pointwise mode"); return v;
    }
  });
}

void run_matmul(const Backend& operation, const Memory& memory, Virtual& sums) {
  const Backend &a = *operation.part(1520), &b = *operation.part(1521);
  const int64_t depth = extents_of(a, 902)[3];
  fill(*operation.part(1522), memory, sums, [&](const Extents& at) {
    double sum = 0;
    for (int64_t k = 0; k < depth; ++k)
      sum += element(a, memory, sums, {at[0], at[1], at[2], k}) *
             element(b, memory, sums, {at[0], at[1], k, at[3]});
    return sum;
  });
}

// Over the columns, the only reduction that attention has.
void run_reduction(const Backend& operation, const Memory& memory, Virtual& sums) {
  const Backend& x = *operation.part(1610);
  const int op = operation.part(1612)->one<int>(1600);
  const int64_t columns = extents_of(x, 902)[3];
  fill(*operation.part(1611), memory, sums, [&](const Extents& at) {
    double value = op == 3 ? -HUGE_VAL : 0;
    for (int64_t c = 0; c < columns; ++c) {
      const double v = element(x, memory, sums, {at[0], at[1], at[2], c});
      value = op == 3 ? std::max(value, v) : value + v;
    }
    return value;
  });
}

bool is_two_operand(int mode) { return mode == 0 || mode == 1 || mode == 6 || mode == 9; }

const char* problem_of(const Backend& b) {
  const auto has = [&](std::initializer_list<int> names) {
    return std::all_of(names.begin(), names.end(), [&](int name) { return b.attributes.contains(name); });
  };
  switch (b.kind) {
    case 0: return has({0, 1}) ? nullptr : "a pointwise operation without a mode";
    case 1: return has({100, 101, 102, 103, 104, 105, 106}) ? nullptr : "an incomplete convolution";
    case 4: return has({200, 201}) ? nullptr : "incomplete heuristics";
    case 5: return has({400, 401}) ? nullptr : "an incomplete plan";
    case 10: return has({700, 701, 702, 703, 704, 705}) ? nullptr : "an incomplete forward convolution";
    case 13:
      if (!has({750, 751, 753})) return "an incomplete pointwise operation";
      return is_two_operand(b.part(750)->one<int>(0)) && !has({752}) ? "an operand is missing" : nullptr;
    case 15: return has({800, 801}) ? nullptr : "an incomplete graph";
    case 16: return has({1000, 1001, 1003}) ? nullptr : "an incomplete pack";
    case 17:
      if (!has({900, 901, 902, 903, 906})) return "an incomplete tensor";
      return b.one<int64_t>(900) % 16 ? "an alignment that nobody promised" : nullptr;
    case 18: return has({1500}) ? nullptr : "a product without a precision";
    case 19: return has({1520, 1521, 1522, 1523}) ? nullptr : "an incomplete product";
    case 21: return has({1600, 1601}) ? nullptr : "an incomplete reduction";
    case 22: return has({1610, 1611, 1612}) ? nullptr : "an incomplete reduction of a tensor";
    default: return "an unknown kind";
  }
}

}  // namespace

extern "C" {

struct CudnnHandle {
  void* stream = nullptr;
};

int cudnnCreate(CudnnHandle** handle) {
  ENTER();
  *handle = created(new CudnnHandle);
  return 0;
}
int cudnnDestroy(CudnnHandle* handle) { return destroyed(__func__, handle); }
int cudnnSetStream(CudnnHandle* handle, void* stream) {
  ENTER();
  handle->stream = stream;
  return 0;
}
const char* cudnnGetErrorString(int) { return "as the stand-in says"; }
int cudnnBackendCreateDescriptor(int kind, Backend** out) {
  ENTER();
  *out = created(new Backend{kind});
  return 0;
}
int cudnnBackendDestroyDescriptor(Backend* backend) { return destroyed(__func__, backend); }
int cudnnBackendSetAttribute(Backend* backend, int name, int type, int64_t count, const void* values) {
  ENTER();
  if (!is_live(__func__, backend)) return kInvalid;
  if (backend->finalized) return invalid(__func__, "of what is finalized");
  if (type == 15)
    for (int64_t i = 0; i < count; ++i) {
      Backend* part = static_cast<Backend* const*>(values)[i];
      if (!is_live(__func__, part)) return kInvalid;
      if (!part->finalized && part->kind != 3) return invalid(__func__, "a part that is not finalized");
    }
  const auto* bytes = static_cast<const char*>(values);
  backend->attributes[name] = {type, count, {bytes, bytes + static_cast<size_t>(count) * bytes_of(type)}};
  return 0;
}
int cudnnBackendFinalize(Backend* backend) {
  ENTER();
  if (!is_live(__func__, backend)) return kInvalid;
  if (const char* problem = problem_of(*backend)) return invalid(__func__, problem);
  if (backend->kind == 4) backend->graph = backend->part(201);
  if (backend->kind == 5) {
    backend->graph = backend->part(401)->graph;
    if (backend->part(401)->one<int>(-1) == 1) return 3000;  // the second that is proposed does not work
  }
  backend->finalized = true;
  return 0;
}
int cudnnBackendGetAttribute(Backend* backend, int name, int, int64_t asked, int64_t* count, void* to) {
  ENTER();
  if (!is_live(__func__, backend) || !backend->finalized)
    return invalid(__func__, "of what is not finalized");
  if (backend->kind == 4 && name == 202) {
    *count = std::min<int64_t>(asked, 4);
    for (int64_t i = 0; i < *count; ++i) {
      Backend* config = static_cast<Backend**>(to)[i];
      if (!is_live(__func__, config) || config->kind != 3) return invalid(__func__, "no configuration");
      config->graph = backend->graph;
      const int rank = static_cast<int>(i);
      const auto* bytes = reinterpret_cast<const char*>(&rank);
      config->attributes[-1] = {23, 1, {bytes, bytes + sizeof(rank)}};
      config->finalized = true;
    }
    return 0;
  }
  if (backend->kind == 3 && name == 300) {  // its engine, which has the configuration's number
    Backend* engine = *static_cast<Backend**>(to);
    if (!is_live(__func__, engine) || engine->kind != 2) return invalid(__func__, "no engine");
    engine->attributes[-1] = backend->attributes[-1];
    engine->finalized = true;
    *count = 1;
    return 0;
  }
  if (backend->kind == 2 && name == 1303) {  // the fourth sums in any order
    const std::array<int, 2> notes = {3, 4};
    *count = backend->one<int>(-1) == 3 ? 2 : 1;
    std::memcpy(to, notes.data(), static_cast<size_t>(*count) * sizeof(int));
    return 0;
  }
  if (backend->kind != 5 || name != 402) return invalid(__func__, "an unknown attribute");
  *count = 1;
  const auto bytes = static_cast<int64_t>(state().workspace);
  std::memcpy(to, &bytes, sizeof(bytes));
  return 0;
}
int cudnnBackendExecute(CudnnHandle* handle, Backend* plan, Backend* pack) {
  ENTER();
  if (!is_live(__func__, plan) || !plan->finalized || !is_live(__func__, pack) || !pack->finalized)
    return invalid(__func__, "of what is not finalized");
  const auto ids = pack->all<int64_t>(1000);
  const auto pointers = pack->all<void*>(1001);
  if (ids.size() != pointers.size()) return invalid(__func__, "as many pointers as tensors are wanted");
  Memory memory;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!pointers[i]) return invalid(__func__, "a null operand");
    memory[ids[i]] = pointers[i];
  }
  // Numbers are read now, memory when the stream comes to it.
  std::map<int64_t, std::shared_ptr<float>> numbers;
  const auto operations = plan->graph->all<Backend*>(801);
  for (const Backend* operation : operations)
    if (const Backend* number = operation->part(752); number && number->one<char>(908)) {
      const auto id = number->one<int64_t>(906);
      numbers[id] = std::make_shared<float>(*static_cast<const float*>(memory.at(id)));
      memory[id] = numbers[id].get();
    }
  auto* workspace = pack->one<void*>(1003);
  const size_t bytes = state().workspace;
  if (bytes > 0 && !workspace) return invalid(__func__, "no workspace");
  start(handle->stream, [=] {
    (void)numbers;  // alive as long as this
    use_workspace(workspace, bytes);
    Virtual sums;
    for (const Backend* operation : operations) switch (operation->kind) {
        case 10: run_forward(*operation, memory, sums); break;
        case 13: run_pointwise(*operation, memory, sums); break;
        case 19: run_matmul(*operation, memory, sums); break;
        case 22: run_reduction(*operation, memory, sums); break;
        default: complain("cudnnBackendExecute: an unknown operation");
      }
  });
  return 0;
}

}  // extern "C"
