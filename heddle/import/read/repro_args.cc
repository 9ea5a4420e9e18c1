#include "heddle/import/read/repro_args.h"

#include <algorithm>

#include "heddle/base/text.h"
#include "heddle/import/read/torch_types.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

class ReproArgs {
 public:
  ReproArgs(std::string_view text, PythonCursor& cursor, ForeignProgram& program)
      : text_(text), cursor_(cursor), program_(program) {}

  Status Read() {
    HEDDLE_RETURN_IF_ERROR(ReadLoadArgs());
    return ReadGroups();
  }

 private:
  // --- load_args: what the arguments are

  Status ReadLoadArgs() {
    constexpr std::string_view kLoad = "def load_args(reader):";
    size_t at = text_.find(kLoad);
    if (at == std::string_view::npos) return Done{};
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
        HEDDLE_RETURN_IF_ERROR(ReadArgument(word == "reader.symint", program_.inputs[next++]));
      } else if (!word.starts_with("reader.") && word.find('.') == std::string_view::npos) {
        HEDDLE_RETURN_IF_ERROR(ReadAssignment(word));
      } else {
        return cursor_.Fail(begin, word.size(), Diag::kSyntax,
                            "expected `reader.tensor`, `reader.symint`, a storage or a size");
      }
    }
    if (next != program_.arguments)
      return cursor_.Fail(at, kLoad.size(), Diag::kOperandCount,
                          "`load_args` has {}, `forward` has {}", Counted(next, "argument"),
                          program_.arguments);
    return Done{};
  }

  // `buf0 = reader.storage(...)`, whose tensor says everything; `u8 = u9 = 512`.
  Status ReadAssignment(std::string_view name) {
    std::vector<std::string_view> names = {name};
    while (true) {
      HEDDLE_RETURN_IF_ERROR(cursor_.Expect('=', "after a name"));
      cursor_.SkipBlanks();
      size_t begin = cursor_.offset();
      std::string_view word = cursor_.TakeDotted();
      if (word == "reader.storage") {
        cursor_.SkipLine();
        return Done{};
      }
      cursor_.SkipBlanks();
      if (!word.empty() && cursor_.Peek() == '=') {
        names.push_back(word);
        continue;
      }
      cursor_.set_offset(begin);
      HEDDLE_TRY(int64_t size, cursor_.Size(sizes_));
      for (std::string_view one : names) sizes_[one] = size;
      return Done{};
    }
  }

  // `(buf0, (2, 8192), dtype=torch.int64, is_leaf=True)  # primals_1`
  Status ReadArgument(bool is_size, ForeignInput& input) {
    size_t begin = cursor_.offset();
    HEDDLE_RETURN_IF_ERROR(cursor_.Expect('(', "after the reader"));
    if (is_size) {
      HEDDLE_TRY(input.integer, cursor_.Size(sizes_));
      return cursor_.Expect(')', "after a size");
    }
    cursor_.SkipSpace();
    cursor_.TakeName();
    HEDDLE_RETURN_IF_ERROR(cursor_.Expect(',', "after the storage"));
    HEDDLE_TRY(Dims dims, ReadSizes());
    DType dtype = DType::kF32;
    while (cursor_.Take(',')) {
      cursor_.SkipSpace();
      if (cursor_.Peek() == '(') {
        HEDDLE_TRY(Dims strides, ReadSizes());
        continue;
      }
      std::string_view name = cursor_.TakeName();
      if (name.empty()) break;
      HEDDLE_RETURN_IF_ERROR(cursor_.Expect('=', "after the name of an argument"));
      size_t at = cursor_.offset();
      HEDDLE_TRY(ForeignValue value, cursor_.Value());
      if (name != "dtype") continue;
      std::optional<DType> given = ParseTorchDType(value.text);
      if (!given)
        return cursor_.Fail(at, std::max<size_t>(1, value.text.size()), Diag::kBadType,
                            "`{}` is not an element type that Heddle has", value.text);
      dtype = *given;
    }
    HEDDLE_RETURN_IF_ERROR(cursor_.Expect(')', "after an argument"));
    if (!CheckedBytes(SymbolTable(), dims, dtype))
      return cursor_.Fail(begin, 1, Diag::kSizeOverflow, "input `{}` exceeds 2^63 bytes",
                          input.name);
    Type type = Type::Tensor(dtype, std::move(dims));
    if (input.type && *input.type != type)
      return cursor_.Fail(begin, 1, Diag::kShapeMismatch,
                          "input `{}` has another type here than in `forward`", input.name);
    input.type = std::move(type);
    return Done{};
  }

  Result<Dims> ReadSizes() {
    Dims dims;
    HEDDLE_RETURN_IF_ERROR(cursor_.Expect('(', "before sizes"));
    while (!cursor_.Take(')')) {
      cursor_.SkipSpace();
      size_t begin = cursor_.offset();
      HEDDLE_TRY(int64_t size, cursor_.Size(sizes_));
      if (size < 0) return cursor_.Fail(begin, 1, Diag::kBadSize, "a size is {}", size);
      dims.push_back(size);
      if (cursor_.Take(',')) continue;
      HEDDLE_RETURN_IF_ERROR(cursor_.Expect(')', "or `,` after a size"));
      break;
    }
    return dims;
  }

  // --- Process groups: `{'0': {'size': 8, 'rank': 0}}`

  Status ReadGroups() {
    size_t at = text_.find("def get_pg_config(");
    at = at != std::string_view::npos ? text_.find("return", at)
                                      : text_.find("setup_fake_process_groups({");
    if (at == std::string_view::npos) return Done{};
    at = text_.find('{', at);
    if (at == std::string_view::npos) return Done{};
    cursor_.set_offset(at);
    HEDDLE_TRY(ForeignValue groups, cursor_.Value());
    std::span<const ForeignValue> items = program_.items(groups);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      ForeignGroup group{items[i].text, 0};
      std::span<const ForeignValue> facts = program_.items(items[i + 1]);
      for (size_t k = 0; k + 1 < facts.size(); k += 2) {
        if (facts[k].text == "size") group.size = facts[k + 1].integer;
      }
      if (items[i].kind != Kind::kString || group.size < 1 || group.size > Mesh::kMaxRanks)
        return cursor_.Fail(at, 1, Diag::kMeshSize, "process group `{}` has {} ranks", group.name,
                            group.size);
      program_.groups.push_back(group);
    }
    return Done{};
  }

  std::string_view text_;
  PythonCursor& cursor_;
  ForeignProgram& program_;
  // Sizes that `load_args` gives by name.
  PythonCursor::Symbols sizes_;
};

}  // namespace

Status ReadReproArgs(std::string_view text, PythonCursor& cursor, ForeignProgram& program) {
  return ReproArgs(text, cursor, program).Read();
}

}  // namespace heddle
