#include "weights/pickle.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace rocm_sd {
namespace {

using Kind = PickledValue::Kind;

constexpr size_t kMaxValues = 4'000'000;
constexpr size_t kMaxArguments = 16;   // of a call; the functions of the allow-list take at most 8
constexpr size_t kMaxDimensions = 64;  // of a tensor; its reader wants fewer
constexpr size_t kMaxKeyBytes = 256;   // of a storage

// How a class or function of the allow-list is understood where a pickle calls it (REDUCE, NEWOBJ).
enum class Meaning : uint8_t {
  kDict,       // of its argument: pairs, or nothing
  kTensor,     // torch._utils._rebuild_tensor*
  kParameter,  // its first argument is the tensor
  kSame,       // as its first argument: a tuple as torch.Size, a list as set, a text as bytes
  kOther       // an object that is not looked into
};

struct AllowedGlobal {
  std::string_view name;
  Meaning meaning;
};

constexpr AllowedGlobal kAllowed[] = {
    {"collections.OrderedDict", Meaning::kDict},
    {"torch._utils._rebuild_tensor", Meaning::kTensor},
    {"torch._utils._rebuild_tensor_v2", Meaning::kTensor},
    {"torch._utils._rebuild_tensor_v3", Meaning::kTensor},
    {"torch._utils._rebuild_parameter", Meaning::kParameter},
    {"torch._utils._rebuild_parameter_with_state", Meaning::kParameter},
    {"torch.nn.parameter.Parameter", Meaning::kParameter},
    {"torch.Size", Meaning::kSame},
    {"builtins.set", Meaning::kSame},
    {"_codecs.encode", Meaning::kSame},
    // Dictionaries of parameters: textual inversions of the original repository.
    {"torch.nn.modules.container.ParameterDict", Meaning::kOther},
    // What trainers put beside the weights. Nothing of it is made or called.
    {"torch.device", Meaning::kOther},
    {"numpy.dtype", Meaning::kOther},
    {"numpy.core.multiarray.scalar", Meaning::kOther},
    {"numpy._core.multiarray.scalar", Meaning::kOther},
    {"pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint", Meaning::kOther},
    {"pytorch_lightning.callbacks.ModelCheckpoint", Meaning::kOther},
};

struct NamedDtype {
  std::string_view name;
  DType dtype;
};
constexpr NamedDtype kStorages[] = {
    {"torch.FloatStorage", DType::kF32},  {"torch.HalfStorage", DType::kF16},
    {"torch.DoubleStorage", DType::kF64}, {"torch.BFloat16Storage", DType::kBF16},
    {"torch.LongStorage", DType::kI64},   {"torch.IntStorage", DType::kI32},
    {"torch.ShortStorage", DType::kI16},  {"torch.CharStorage", DType::kI8},
    {"torch.ByteStorage", DType::kU8},    {"torch.BoolStorage", DType::kBool},
};
constexpr std::string_view kUntyped = "torch.storage.UntypedStorage";
constexpr NamedDtype kDtypes[] = {
    {"torch.float32", DType::kF32},
    {"torch.float16", DType::kF16},
    {"torch.float64", DType::kF64},
    {"torch.bfloat16", DType::kBF16},
    {"torch.float8_e4m3fn", DType::kF8E4M3},
    {"torch.float8_e5m2", DType::kF8E5M2},
    {"torch.int64", DType::kI64},
    {"torch.int32", DType::kI32},
    {"torch.int16", DType::kI16},
    {"torch.int8", DType::kI8},
    {"torch.uint8", DType::kU8},
    {"torch.bool", DType::kBool},
};

template <size_t N>
std::optional<DType> named_dtype(const NamedDtype (&table)[N], std::string_view name) {
  for (const NamedDtype& row : table)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

const AllowedGlobal* find_allowed(std::string_view name) {
  for (const AllowedGlobal& row : kAllowed)
    if (row.name == name) return &row;
  return nullptr;
}

// Python 2's names, which protocol 2 writes.
std::string modern_name(std::string name) {
  constexpr std::string_view kOld = "__builtin__.";
  if (name.starts_with(kOld)) name = concat("builtins.", name.substr(kOld.size()));
  return name;
}

class Interpreter {
 public:
  Interpreter(std::string_view bytes, size_t position, std::string_view what)
      : bytes_(bytes), position_(position), what_(what) {}

  PickledObjects run() {
    while (step()) {
    }
    check(stack_.size() == 1 && marks_.empty(), "the pickle leaves ", stack_.size(), " values, expected one");
    out_.root = stack_.front();
    return std::move(out_);
  }
  size_t position() const { return position_; }

 private:
  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    if (!ok) [[unlikely]]
      throw FormatError(concat(what_, ": pickle, byte ", at_, ": ", parts...));
  }

  std::string_view take(uint64_t count) {
    check(count <= bytes_.size() - position_, "cut off: ", count, " bytes are needed, ",
          bytes_.size() - position_, " are left");
    const std::string_view out = bytes_.substr(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return out;
  }
  template <class T>
  T integer() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', position_);
    check(end != bytes_.npos, "cut off inside a name");
    const std::string_view out = take(end - position_);
    take(1);
    return out;
  }

  uint32_t add(PickledValue value) {
    check(out_.values.size() < kMaxValues, "more than ", kMaxValues, " values");
    out_.values.push_back(std::move(value));
    return static_cast<uint32_t>(out_.values.size() - 1);
  }
  void push(PickledValue value) { stack_.push_back(add(std::move(value))); }
  void push_number(int64_t number) { push({.kind = Kind::kNumber, .number = number}); }
  void push_unicode(std::string_view text) {
    check(is_valid_utf8(text), "a text that is not valid UTF-8");
    push_text(text);
  }
  void push_text(std::string_view text) { push({.kind = Kind::kText, .text = std::string(text)}); }
  void push_items(Kind kind, std::vector<uint32_t> items) { push({.kind = kind, .items = std::move(items)}); }

  // The stack above the last mark is what a list, a tuple or a dictionary under construction takes.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  uint32_t pop() {
    check(stack_.size() > floor(), "the stack is empty");
    const uint32_t out = stack_.back();
    stack_.pop_back();
    return out;
  }
  std::vector<uint32_t> pop_many(size_t count) {
    check(stack_.size() - floor() >= count, "the stack has less than ", count, " values");
    std::vector<uint32_t> out(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return out;
  }
  std::vector<uint32_t> pop_to_mark() {
    check(!marks_.empty(), "no mark on the stack");
    std::vector<uint32_t> out(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  PickledValue& top() {
    check(stack_.size() > floor(), "the stack is empty");
    return out_.values[stack_.back()];
  }

  void memoize(uint64_t slot) {
    top();
    check(slot < kMaxValues, "memo entry ", slot, " is above ", kMaxValues);
    memo_[slot] = stack_.back();
  }
  void recall(uint64_t slot) {
    const auto it = memo_.find(slot);
    check(it != memo_.end(), "memo entry ", slot, " was never written");
    stack_.push_back(it->second);
  }

  void extend(Kind kind, const std::vector<uint32_t>& items) {
    PickledValue& value = top();
    if (value.kind == Kind::kOther) return;
    check(value.kind == kind,
          kind == Kind::kDict ? "items for what is no dictionary" : "items for what is no list");
    check(kind != Kind::kDict || items.size() % 2 == 0, "a dictionary's key without a value");
    value.items.insert(value.items.end(), items.begin(), items.end());
  }

  void push_global(std::string name) {
    name = modern_name(std::move(name));
    const bool known =
        find_allowed(name) || named_dtype(kStorages, name) || named_dtype(kDtypes, name) || name == kUntyped;
    check(known, "names \"", printable(name),
          "\", which is not on the list of what a file of tensors may name: "
          "such a file can run code in Python, and is not read; save the model as safetensors");
    push({.kind = Kind::kGlobal, .text = std::move(name)});
  }

  // ('storage', class, key, location, elements[, view])
  void push_storage() {
    const uint32_t index = pop();
    std::vector<uint32_t> parts = out_.at(index).items;
    check(out_.at(index).kind == Kind::kList && (parts.size() == 5 || parts.size() == 6),
          "a persistent id that is no tuple of a storage");
    const bool named = out_.at(parts[0]).kind == Kind::kText && out_.at(parts[0]).text == "storage" &&
                       out_.at(parts[1]).kind == Kind::kGlobal && out_.at(parts[2]).kind == Kind::kText &&
                       out_.at(parts[4]).kind == Kind::kNumber && out_.at(parts[4]).number >= 0;
    check(named, "a persistent id other than ('storage', class, key, location, elements)");
    check(out_.at(parts[2]).text.size() <= kMaxKeyBytes, "a storage whose key has more than ", kMaxKeyBytes,
          " bytes");
    check(parts.size() == 5 || out_.at(parts[5]).kind == Kind::kNone,
          "a storage that is a view of another one: written by PyTorch before 0.4; save it again");
    push_items(Kind::kStorage, std::move(parts));
  }

  std::vector<int64_t> sizes(uint32_t index, std::string_view name) const {
    const PickledValue& value = out_.at(index);
    check(value.kind == Kind::kList && value.items.size() <= kMaxDimensions, "a tensor's ", name,
          " is no tuple of at most ", kMaxDimensions);
    std::vector<int64_t> out;
    for (const uint32_t item : value.items) {
      check(out_.at(item).kind == Kind::kNumber && out_.at(item).number >= 0, "a tensor's ", name,
            " has an entry that is no integer >= 0");
      out.push_back(out_.at(item).number);
    }
    return out;
  }

  // (storage, offset, shape, stride, ...); v3 has a dtype at 6.
  void push_tensor(const std::vector<uint32_t>& arguments, bool has_dtype) {
    check(arguments.size() >= (has_dtype ? 7u : 4u), "a tensor of ", arguments.size(), " arguments");
    const PickledValue& storage = out_.at(arguments[0]);
    check(storage.kind == Kind::kStorage, "a tensor without a storage");
    PickledTensor tensor;
    tensor.storage = out_.at(storage.items[2]).text;
    tensor.storage_count = static_cast<uint64_t>(out_.at(storage.items[4]).number);
    const std::string& type = out_.at(storage.items[1]).text;
    tensor.untyped = type == kUntyped;
    std::optional<DType> dtype = named_dtype(kStorages, type);
    if (has_dtype) {
      const PickledValue& named = out_.at(arguments[6]);
      check(tensor.untyped && named.kind == Kind::kGlobal, "a tensor's dtype is missing");
      dtype = named_dtype(kDtypes, named.text);
    }
    check(dtype.has_value(), "a tensor of ", printable(type), ", whose elements have no known type");
    tensor.dtype = *dtype;
    const PickledValue& offset = out_.at(arguments[1]);
    check(offset.kind == Kind::kNumber && offset.number >= 0, "a tensor's offset is no integer >= 0");
    tensor.offset = static_cast<uint64_t>(offset.number);
    tensor.shape = sizes(arguments[2], "shape");
    tensor.stride = sizes(arguments[3], "stride");
    check(tensor.shape.size() == tensor.stride.size(), "a tensor of ", tensor.shape.size(),
          " dimensions with ", tensor.stride.size(), " strides");
    out_.tensors.push_back(std::move(tensor));
    push({.kind = Kind::kTensor, .number = static_cast<int64_t>(out_.tensors.size() - 1)});
  }

  // class or function (arguments), on the stack in this order.
  void call() {
    const uint32_t arguments_index = pop(), function_index = pop();
    check(out_.at(arguments_index).kind == Kind::kList &&
              out_.at(arguments_index).items.size() <= kMaxArguments,
          "arguments that are no tuple of at most ", kMaxArguments);
    const std::vector<uint32_t> arguments = out_.at(arguments_index).items;
    const PickledValue& function = out_.at(function_index);
    check(function.kind == Kind::kGlobal, "a call of what is no class or function");
    const std::string name = function.text;
    const AllowedGlobal* allowed = find_allowed(name);
    check(allowed != nullptr, "a call of ", name, ", which is none");
    const auto first = [&]() -> uint32_t {
      check(!arguments.empty(), name, " without arguments");
      return arguments[0];
    };
    switch (allowed->meaning) {
      case Meaning::kDict: return push_dict(arguments, name);
      case Meaning::kTensor: return push_tensor(arguments, name.ends_with("_v3"));
      case Meaning::kParameter:
        check(out_.at(first()).kind == Kind::kTensor, name, " of what is no tensor");
        return stack_.push_back(arguments[0]);
      case Meaning::kSame: return stack_.push_back(first());
      case Meaning::kOther: return push({.kind = Kind::kOther, .text = name});
    }
  }

  void push_dict(const std::vector<uint32_t>& arguments, std::string_view name) {
    std::vector<uint32_t> items;
    if (!arguments.empty()) {
      check(out_.at(arguments[0]).kind == Kind::kList, name, " of what is no list of pairs");
      for (const uint32_t pair : out_.at(arguments[0]).items) {
        check(out_.at(pair).kind == Kind::kList && out_.at(pair).items.size() == 2, name,
              " of what is no list of pairs");
        items.insert(items.end(), out_.at(pair).items.begin(), out_.at(pair).items.end());
      }
    }
    note_copied(items.size());
    push_items(Kind::kDict, std::move(items));
  }

  // An object's attributes: of a dictionary they are no entries; of a ParameterDict they hold them.
  void build() {
    const uint32_t state = pop();
    PickledValue& object = top();
    if (object.kind == Kind::kDict) return;
    check(object.kind == Kind::kOther, "attributes of what is no known object");
    if (object.text != "torch.nn.modules.container.ParameterDict") return;
    check(out_.at(state).kind == Kind::kDict, "a ParameterDict without attributes");
    const std::optional<uint32_t> parameters = out_.find(state, "_parameters");
    const PickledValue& entries = out_.at(parameters.value_or(state));
    check(entries.kind == Kind::kDict, "a ParameterDict whose parameters are no dictionary");
    std::vector<uint32_t> items = entries.items;
    note_copied(items.size());
    object.kind = Kind::kDict;
    object.items = std::move(items);
  }

  // A few bytes of a pickle can copy what thousands of others made: bounded by what real files need.
  void note_copied(size_t items) {
    copied_ += items;
    check(copied_ <= 2 * kMaxValues, "copies of more than ", kMaxValues, " entries");
  }

  void push_long(uint64_t count) {
    const std::string_view digits = take(count);
    if (digits.size() > 8) return push({.kind = Kind::kOther, .text = "a large integer"});
    uint64_t value = !digits.empty() && (digits.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    std::memcpy(&value, digits.data(), digits.size());
    push_number(static_cast<int64_t>(value));
  }

  // One opcode; false after STOP. Their letters are pickletools'.
  bool step() {
    at_ = position_;
    const auto opcode = static_cast<unsigned char>(take(1).front());
    switch (opcode) {
      case '.': return false;  // STOP
      case 0x80: {             // PROTO
        const auto protocol = integer<uint8_t>();
        check(protocol >= 2 && protocol <= 5, "protocol ", protocol, ", expected 2 to 5");
        break;
      }
      case 0x95: take(8); break;  // FRAME
      case '(': marks_.push_back(stack_.size()); break;
      case '0': pop(); break;
      case 'N': push({}); break;
      case 0x88: push_number(1); break;  // True
      case 0x89: push_number(0); break;  // False
      case 'J': push_number(integer<int32_t>()); break;
      case 'K': push_number(integer<uint8_t>()); break;
      case 'M': push_number(integer<uint16_t>()); break;
      case 0x8a: push_long(integer<uint8_t>()); break;  // LONG1
      case 'G':                                         // BINFLOAT
        take(8);
        push({.kind = Kind::kOther, .text = "a float"});
        break;
      case 'X': push_unicode(take(integer<uint32_t>())); break;   // BINUNICODE
      case 0x8c: push_unicode(take(integer<uint8_t>())); break;   // SHORT_BINUNICODE
      case 0x8d: push_unicode(take(integer<uint64_t>())); break;  // BINUNICODE8
      case 'U': push_text(take(integer<uint8_t>())); break;       // SHORT_BINSTRING
      case 'C': push_text(take(integer<uint8_t>())); break;       // SHORT_BINBYTES
      case 'B': push_text(take(integer<uint32_t>())); break;      // BINBYTES
      case ')': push_items(Kind::kList, {}); break;
      case ']': push_items(Kind::kList, {}); break;
      case 0x8f: push_items(Kind::kList, {}); break;  // EMPTY_SET
      case '}': push_items(Kind::kDict, {}); break;
      case 0x85: push_items(Kind::kList, pop_many(1)); break;  // TUPLE1
      case 0x86: push_items(Kind::kList, pop_many(2)); break;
      case 0x87: push_items(Kind::kList, pop_many(3)); break;
      case 't': push_items(Kind::kList, pop_to_mark()); break;
      case 'a': extend(Kind::kList, pop_many(1)); break;
      case 'e': extend(Kind::kList, pop_to_mark()); break;
      case 0x90: extend(Kind::kList, pop_to_mark()); break;  // ADDITEMS
      case 's': extend(Kind::kDict, pop_many(2)); break;
      case 'u': extend(Kind::kDict, pop_to_mark()); break;
      case 'q': memoize(integer<uint8_t>()); break;
      case 'r': memoize(integer<uint32_t>()); break;
      case 0x94: memoize(memo_.size()); break;  // MEMOIZE
      case 'h': recall(integer<uint8_t>()); break;
      case 'j': recall(integer<uint32_t>()); break;
      case 'c': {
        const std::string_view module = line(), name = line();
        push_global(concat(module, ".", name));
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const std::vector<uint32_t> names = pop_many(2);
        check(out_.at(names[0]).kind == Kind::kText && out_.at(names[1]).kind == Kind::kText,
              "a class without a name");
        push_global(concat(out_.at(names[0]).text, ".", out_.at(names[1]).text));
        break;
      }
      case 'R': call(); break;
      case 0x81: call(); break;  // NEWOBJ
      case 'b': build(); break;
      case 'Q': push_storage(); break;
      default: check(false, "opcode ", static_cast<int>(opcode), ", which files of tensors do not need");
    }
    return true;
  }

  std::string_view bytes_;
  size_t position_ = 0, at_ = 0;  // of the next byte; of the opcode
  size_t copied_ = 0;
  std::string_view what_;
  PickledObjects out_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, uint32_t> memo_;
};

}  // namespace

std::optional<uint32_t> PickledObjects::find(uint32_t dict, std::string_view key) const {
  const PickledValue& value = at(dict);
  if (value.kind != PickledValue::Kind::kDict) return std::nullopt;
  // The last entry of a key counts, as in Python.
  for (size_t i = value.items.size(); i >= 2; i -= 2) {
    const PickledValue& name = at(value.items[i - 2]);
    if (name.kind == PickledValue::Kind::kText && name.text == key) return value.items[i - 1];
  }
  return std::nullopt;
}

PickledObjects read_pickle(std::string_view bytes, size_t& position, std::string_view what) {
  Interpreter interpreter(bytes, position, what);
  PickledObjects out = interpreter.run();
  position = interpreter.position();
  return out;
}

}  // namespace rocm_sd
