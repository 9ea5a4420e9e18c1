#include "heddle/import/read/repro_args.h"

#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/import/read/torch_types.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

class ReproArgs {
 public:
  ReproArgs(std::string_view text, PythonCursor& cursor, ForeignProgram& program)
      : text_(text), cursor_(cursor), program_(program) {}

  bool Read() { return ReadLoadArgs() && ReadGroups(); }

 private:
  // --- load_args: the types of arguments

  bool ReadLoadArgs() {
    constexpr std::string_view kLoad = "def load_args(reader):";
    // It usually follows the graph, but may be elsewhere.
    size_t at = text_.find(kLoad, cursor_.offset());
    if (at == std::string_view::npos) at = text_.find(kLoad);
    if (at == std::string_view::npos) return true;
    cursor_.set_offset(at + kLoad.size());
    size_t next = 0;
    while (true) {
      cursor_.SkipSpace();
      size_t begin = cursor_.offset();
      std::string_view word = cursor_.TakeDotted();
      if (word.empty() || word == "def" || word == "load_args._version" || word == "mod") break;
      if (word == "reader.tensor" || word == "reader.symint") {
        if (next == program_.arguments)
          return cursor_.Fail(begin, word.size(), Diag::kOperandCount,
                              "`load_args` has more arguments than `forward`, which has {}", next);
        if (!ReadArgument(word == "reader.symint", program_.inputs[next++])) return false;
      } else if (!word.starts_with("reader.") && word.find('.') == std::string_view::npos) {
        if (!ReadAssignment(word)) return false;
      } else {
        return cursor_.Fail(begin, word.size(), Diag::kSyntax,
                            "expected `reader.tensor`, `reader.symint`, a storage or a size");
      }
    }
    if (next != program_.arguments)
      return cursor_.Fail(at, kLoad.size(), Diag::kOperandCount,
                          "`load_args` has {}, `forward` has {}", Counted(next, "argument"),
                          program_.arguments);
    return true;
  }

  // `buf0 = reader.storage(...)`, which the tensor's own arguments repeat; `u8 = u9 = 512`.
  bool ReadAssignment(std::string_view name) {
    std::vector<std::string_view> names = {name};
    while (true) {
      if (!cursor_.Expect('=', "after a name")) return false;
      cursor_.SkipBlanks();
      size_t begin = cursor_.offset();
      std::string_view word = cursor_.TakeDotted();
      if (word == "reader.storage") {
        cursor_.SkipLine();
        return true;
      }
      cursor_.SkipBlanks();
      if (!word.empty() && cursor_.Peek() == '=') {
        names.push_back(word);
        continue;
      }
      cursor_.set_offset(begin);
      int64_t size = 0;
      if (!cursor_.Size(sizes_, size)) return false;
      for (std::string_view one : names) sizes_[one] = size;
      return true;
    }
  }

  // `(buf0, (2, 8192), dtype=torch.int64, is_leaf=True)  # primals_1`
  bool ReadArgument(bool is_size, ForeignInput& input) {
    size_t begin = cursor_.offset();
    if (!cursor_.Expect('(', "after the reader")) return false;
    if (is_size) {
      return cursor_.Size(sizes_, input.integer.emplace()) && cursor_.Expect(')', "after a size");
    }
    cursor_.SkipSpace();
    cursor_.TakeName();
    Type type;
    if (!ReadType(begin, input, type)) return false;
    if (input.type != nullptr && *input.type != type)
      return cursor_.Fail(begin, 1, Diag::kShapeMismatch,
                          "input `{}` has a different type in `forward`",
                          program_.text(input.name));
    input.type = &program_.types.emplace_back(std::move(type));
    return true;
  }

  // `, (2, 8192), dtype=torch.int64, is_leaf=True)`, for the argument that begins at `begin`.
  bool ReadType(size_t begin, const ForeignInput& input, Type& type) {
    if (!cursor_.Expect(',', "after the storage")) return false;
    Dims dims;
    if (!ReadSizes(dims)) return false;
    DType dtype = DType::kF32;
    while (cursor_.Take(',')) {
      cursor_.SkipSpace();
      if (cursor_.Peek() == '(') {
        Dims strides;
        if (!ReadSizes(strides)) return false;
        continue;
      }
      std::string_view name = cursor_.TakeName();
      if (name.empty()) break;
      if (!cursor_.Expect('=', "after the name of an argument")) return false;
      size_t at = cursor_.offset();
      ForeignValue value;
      if (!cursor_.Value(value)) return false;
      if (name != "dtype") continue;
      std::string_view word = program_.text(value);
      std::optional<DType> given = ParseTorchDType(word);
      if (!given)
        return cursor_.Fail(at, std::max<size_t>(1, word.size()), Diag::kBadType,
                            "`{}` is not an element type that Heddle supports", word);
      dtype = *given;
    }
    if (!cursor_.Expect(')', "after an argument")) return false;
    if (!CheckedBytes(SymbolTable(), dims, dtype))
      return cursor_.Fail(begin, 1, Diag::kSizeOverflow, "input `{}` exceeds 2^63 bytes",
                          program_.text(input.name));
    type = Type::Tensor(dtype, std::move(dims));
    return true;
  }

  bool ReadSizes(Dims& dims) {
    if (!cursor_.Expect('(', "before sizes")) return false;
    while (!cursor_.Take(')')) {
      cursor_.SkipSpace();
      size_t begin = cursor_.offset();
      int64_t size = 0;
      if (!cursor_.Size(sizes_, size)) return false;
      if (size < 0) return cursor_.Fail(begin, 1, Diag::kBadSize, "a size is {}", size);
      dims.push_back(size);
      if (cursor_.Take(',')) continue;
      if (!cursor_.Expect(')', "or `,` after a size")) return false;
      break;
    }
    return true;
  }

  // --- Process groups: `{'0': {'size': 8, 'rank': 0}}`

  bool ReadGroups() {
    constexpr std::string_view kGroups = "def get_pg_config(";
    size_t at = text_.find(kGroups, cursor_.offset());
    if (at == std::string_view::npos) at = text_.find(kGroups);
    at = at != std::string_view::npos ? text_.find("return", at)
                                      : text_.find("setup_fake_process_groups({");
    if (at == std::string_view::npos) return true;
    at = text_.find('{', at);
    if (at == std::string_view::npos) return true;
    cursor_.set_offset(at);
    ForeignValue groups;
    if (!cursor_.Value(groups)) return false;
    std::span<const ForeignValue> items = program_.items(groups);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      ForeignGroup group{items[i].word, 0};
      std::span<const ForeignValue> facts = program_.items(items[i + 1]);
      for (size_t k = 0; k + 1 < facts.size(); k += 2) {
        if (program_.text(facts[k]) == "size" && facts[k + 1].kind == Kind::kInt)
          group.size = facts[k + 1].integer;
      }
      if (items[i].kind != Kind::kString || group.size < 1 || group.size > Mesh::kMaxRanks)
        return cursor_.Fail(at, 1, Diag::kMeshSize, "process group `{}` has {} ranks",
                            program_.text(group.name), group.size);
      program_.groups.push_back(group);
    }
    return true;
  }

  std::string_view text_;
  PythonCursor& cursor_;
  ForeignProgram& program_;
  // Sizes that `load_args` names.
  PythonCursor::Symbols sizes_;
};

}  // namespace

bool ReadReproArgs(std::string_view text, PythonCursor& cursor, ForeignProgram& program) {
  return ReproArgs(text, cursor, program).Read();
}

}  // namespace heddle
