// CallReader: reads calls of a printed graph.
//
// Layers repeat, so what is called, and with which literals, is mostly what came behind the same few calls before. That is compared with
// the text first, and found in tables only where it is something else.
#pragma once

#include <vector>

#include "heddle/import/read/python_cursor.h"

namespace heddle {

class CallReader {
 public:
  // Both outlive this.
  CallReader(PythonCursor& cursor, ForeignProgram& program) : cursor_(cursor), program_(program) {}

  // Takes what is likely called by a statement of this name, with the parenthesis behind it, if that stands here.
  bool TakeLikelyCallee(std::string_view name) {
    stem_ = StemId();
    return TakeCallee(followers_[history_].callee) || TakeCalleeOfStem(name);
  }
  // What was taken otherwise.
  void SetCallee(std::string_view word);
  // Arguments of what was taken. Sets the target of the call.
  bool ReadArguments(ForeignCall& call) {
    call.target = targets_[callee_.index()];
    if (stem_) stem_callees_[stem_.index()] = callee_;
    LikelyCall& follower = followers_[history_];
    TailId& tail = tails_[callee_.index()];
    if (!cursor_.Arguments({follower.tail, tail}, tail)) return false;
    follower = {callee_, tail};
    // Each call moves those before it by two bits: the last six count.
    history_ = (4 * history_ + callee_.index()) % kHistories;
    return true;
  }

 private:
  // What is called, in the words of the file.
  using CalleeId = Id<struct CalleeTag>;
  // A name without its number.
  using StemId = Id<struct StemTag>;
  using TailId = PythonCursor::TailId;
  static constexpr size_t kHistories = 4096;

  bool TakeCallee(CalleeId likely) {
    if (!likely) return false;
    std::string_view name = callees_[likely];
    std::string_view rest = cursor_.text().substr(cursor_.offset());
    if (rest.size() <= name.size() || rest[name.size()] != '(' || !rest.starts_with(name))
      return false;
    cursor_.set_offset(cursor_.offset() + name.size() + 1);
    callee_ = likely;
    return true;
  }
  // What made the last name that is the same up to its number: `convert_element_type_12` is called after its maker, as are
  // `convert_element_type` and most others.
  bool TakeCalleeOfStem(std::string_view name);

  PythonCursor& cursor_;
  ForeignProgram& program_;
  StringTable<CalleeId> callees_;
  // By callee.
  std::vector<TargetId> targets_;
  std::vector<TailId> tails_;
  StringTable<StemId> stems_;
  // By stem, what made the last one of it.
  std::vector<CalleeId> stem_callees_;
  // By history, what was called next the last time, and how that call ended.
  struct LikelyCall {
    CalleeId callee;
    TailId tail;
  };
  std::vector<LikelyCall> followers_ = std::vector<LikelyCall>(kHistories);
  size_t history_ = 0;
  // Of the statement being read. The stem, if it was asked for.
  CalleeId callee_;
  StemId stem_;
};

}  // namespace heddle
