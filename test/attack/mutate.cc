#include "test/attack/mutate.h"

#include <algorithm>

#include <fmt/core.h>

#include "test/attack/make_plan.h"

namespace heddle {
namespace {

class Mutator {
 public:
  Mutator(const Corpus& corpus, AttackDice& dice) : corpus_(corpus), dice_(dice) {}

  // Damages most texts only a little: parsers reject heavily damaged texts immediately.
  std::string Run(const std::string& text) {
    tokens_ = Tokenize(text);
    size_t times = 1;
    while (times < 8 && dice_.OneIn(2)) ++times;
    for (size_t i = 0; i < times && tokens_.size() > 1; ++i) Step();
    return heddle::Print(tokens_);
  }

 private:
  void Step() {
    switch (dice_.Below(18)) {
      case 0: Erase(Any(), 1 + dice_.Below(3)); break;
      case 1: Duplicate(); break;
      case 2: std::swap(tokens_[Any()].text, tokens_[Any()].text); break;
      case 3: ReplaceByAny(); break;
      case 4:
      case 5: ReplaceByKind(); break;
      case 6:
      case 7: ReplaceEverywhere(); break;
      case 8: InsertLine(); break;
      case 9:
      case 10: InsertNode(); break;
      case 11: MoveLine(); break;
      case 12: DropTypes(); break;
      case 13: AddRoles(); break;
      case 14: AddScope(); break;
      case 15: ChangeShape(); break;
      case 16: FlipView(); break;
      default: Rewire(); break;
    }
  }

  // Returns a token other than the mark at the end.
  size_t Any() { return dice_.Below(tokens_.size() - 1); }

  void Erase(size_t at, size_t count) {
    auto begin = tokens_.begin() + static_cast<ptrdiff_t>(at);
    count = std::min(count, tokens_.size() - 1 - at);
    tokens_.erase(begin, begin + static_cast<ptrdiff_t>(count));
  }

  void Duplicate() {
    Token copy = tokens_[Any()];
    if (copy.space.empty()) copy.space = " ";
    tokens_.insert(tokens_.begin() + static_cast<ptrdiff_t>(Any()), std::move(copy));
  }

  void ReplaceByAny() {
    auto kind = corpus_.words.begin();
    std::advance(kind, static_cast<ptrdiff_t>(dice_.Below(corpus_.words.size())));
    tokens_[Any()].text = dice_.Pick(kind->second);
  }

  // Returns another token of the same kind, from this text (where it has a meaning) or from any
  // text.
  std::string Other(Token::Kind kind) {
    std::vector<std::string> here;
    for (const Token& token : tokens_) {
      if (token.kind == kind) here.push_back(token.text);
    }
    return here.empty() || dice_.OneIn(2) ? dice_.Pick(corpus_.words.at(kind)) : dice_.Pick(here);
  }

  void ReplaceByKind() {
    Token& token = tokens_[Any()];
    if (token.kind != Token::Kind::kMark || dice_.OneIn(8)) token.text = Other(token.kind);
  }

  // Replaces all occurrences, which keeps sizes consistent and names defined.
  void ReplaceEverywhere() {
    const Token chosen = tokens_[Any()];
    if (chosen.kind == Token::Kind::kMark) return;
    std::string other = Other(chosen.kind);
    for (Token& token : tokens_) {
      if (token.kind == chosen.kind && token.text == chosen.text) token.text = other;
    }
  }

  // Returns the start of a line other than the first.
  size_t LineStart() {
    std::vector<size_t> starts;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (BeginsLine(tokens_[i])) starts.push_back(i);
    }
    return starts.empty() ? tokens_.size() - 1 : dice_.Pick(starts);
  }
  size_t LineEnd(size_t start) {
    size_t end = start + 1;
    while (end < tokens_.size() && !BeginsLine(tokens_[end])) ++end;
    return std::min(end, tokens_.size() - 1);
  }

  // Inserts a line of another text that uses values of this one.
  void InsertLine() {
    Tokens line = Tokenize("\n" + dice_.Pick(corpus_.lines));
    bool define = dice_.OneIn(2);
    for (Token& token : line) {
      if (token.kind == Token::Kind::kValue && define) token.text = Other(token.kind);
    }
    size_t at = LineStart();
    tokens_.insert(tokens_.begin() + static_cast<ptrdiff_t>(at), line.begin(), line.end() - 1);
  }

  // Inserts a node of another text under a new name, with types that follow from its operands here.
  void InsertNode() {
    size_t at = LineStart();
    std::vector<std::string> values;
    for (size_t i = 0; i < at; ++i) {
      if (tokens_[i].kind == Token::Kind::kValue) values.push_back(tokens_[i].text);
    }
    Tokens node = Tokenize("\n  " + dice_.Pick(corpus_.lines));
    node.pop_back();
    if (values.empty() || node.empty() || node[0].kind != Token::Kind::kValue) return;
    bool result = true;
    for (size_t i = 0; i < node.size(); ++i) {
      if (node[i].text == "=") result = false;
      if (node[i].text == ":" || node[i].kind == Token::Kind::kScope) node.resize(i);
      if (i < node.size() && node[i].kind == Token::Kind::kValue)
        node[i].text = result ? fmt::format("%new{}", fresh_++) : dice_.Pick(values);
    }
    if (dice_.OneIn(2)) node.push_back({Token::Kind::kScope, " ", Other(Token::Kind::kScope)});
    tokens_.insert(tokens_.begin() + static_cast<ptrdiff_t>(at), node.begin(), node.end());
  }

  // Gives inputs and outputs roles, so that a plan can place them.
  void AddRoles() {
    auto index_of = [&](std::string_view text, size_t from) {
      while (from < tokens_.size() && tokens_[from].text != text) ++from;
      return from;
    };
    size_t open = index_of("(", 0);
    size_t arrow = index_of(">", open);
    size_t body = index_of("{", arrow);
    if (body >= tokens_.size()) return;
    Tokens out;
    std::string label;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      bool begins = tokens_[i].kind == Token::Kind::kValue;
      bool ends = label.size() > 1 && i < arrow &&
                  (tokens_[i].text == ")" || tokens_[i + 1].text[0] == '%');
      if (ends)
        out.push_back({Token::Kind::kWord, " ", fmt::format("batch \"{}\"", label.substr(1))});
      if (ends) label.clear();
      if (begins && i > arrow && i < body) out.push_back({Token::Kind::kWord, " ", "metric"});
      out.push_back(tokens_[i]);
      if (begins && i < arrow) label = tokens_[i].text;
      if (begins && i > arrow && i < body) out.back().space = " ";
    }
    tokens_ = std::move(out);
  }

  // Puts a node, or all nodes, into a module.
  void AddScope() {
    bool all = dice_.OneIn(2);
    bool in_node = false;
    std::string scope = dice_.OneIn(2) ? "@m" : Other(Token::Kind::kScope);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!BeginsLine(tokens_[i]) || i == 0) continue;
      bool add = in_node && (all || dice_.OneIn(4));
      in_node = tokens_[i].kind == Token::Kind::kValue && tokens_[i].space.ends_with("  ");
      if (!add) continue;
      tokens_.insert(tokens_.begin() + static_cast<ptrdiff_t>(i),
                     {Token::Kind::kScope, " ", scope});
      ++i;
    }
  }

  // Makes a tensor a single number, or one of its sizes symbolic.
  void ChangeShape() {
    std::vector<size_t> opens;
    for (size_t i = 1; i < tokens_.size(); ++i) {
      if (tokens_[i].text == "[" && tokens_[i - 1].kind == Token::Kind::kWord) opens.push_back(i);
    }
    if (opens.empty()) return;
    size_t open = dice_.Pick(opens);
    size_t close = open;
    while (close < tokens_.size() && tokens_[close].text != "]") ++close;
    if (dice_.OneIn(2)) {
      Erase(open + 1, close - open - 1);
    } else if (close > open + 1) {
      Token& size = tokens_[open + 1 + dice_.Below(close - open - 1)];
      if (size.kind == Token::Kind::kNumber) size.text = "t0<=" + size.text;
    }
  }

  void FlipView() {
    for (Token& token : tokens_) {
      if (token.text != "local" && token.text != "global") continue;
      token.text = token.text == "local" ? "global" : "local";
      return;
    }
  }

  void MoveLine() {
    size_t start = LineStart();
    size_t end = LineEnd(start);
    if (end <= start) return;
    Tokens line(tokens_.begin() + static_cast<ptrdiff_t>(start),
                tokens_.begin() + static_cast<ptrdiff_t>(end));
    size_t how = dice_.Below(3);
    if (how != 0) Erase(start, end - start);
    if (how == 1 || tokens_.size() < 2) return;
    tokens_.insert(tokens_.begin() + static_cast<ptrdiff_t>(LineStart()), line.begin(), line.end());
  }

  // Drops types, so that Heddle infers them and a changed size affects all later nodes.
  void DropTypes() {
    bool in_node = false;
    for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
      if (BeginsLine(tokens_[i])) in_node = tokens_[i].kind == Token::Kind::kValue;
      if (!in_node || tokens_[i].text != ":") continue;
      size_t end = i + 1;
      while (end + 1 < tokens_.size() && !BeginsLine(tokens_[end]) &&
             tokens_[end].kind != Token::Kind::kScope && tokens_[end].text != "stream" &&
             tokens_[end].text != "keep" && tokens_[end].text != "}")
        ++end;
      Erase(i, end - i);
    }
  }

  // Changes an operand of a node.
  void Rewire() {
    std::vector<size_t> values;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].kind == Token::Kind::kValue) values.push_back(i);
    }
    if (values.empty()) return;
    tokens_[dice_.Pick(values)].text = tokens_[dice_.Pick(values)].text;
  }

  const Corpus& corpus_;
  AttackDice& dice_;
  Tokens tokens_;
  int fresh_ = 0;
};

}  // namespace

AttackGraph MakeAttackGraph(const Corpus& corpus, AttackDice& dice) {
  const Seed& from = dice.Pick(corpus.seeds);
  // Keeps some graphs valid, to test bad plans.
  return {dice.OneIn(4) ? from.graph : Mutator(corpus, dice).Run(from.graph), &from};
}

std::string MakeAttackProblem(const Corpus& corpus, AttackDice& dice) {
  return Mutator(corpus, dice).Run(dice.Pick(corpus.problems));
}

std::string MakeAttackPlan(const Corpus& corpus, const AttackGraph& graph, AttackDice& dice) {
  Mutator mutator(corpus, dice);
  const std::string& given = graph.from->plan;
  switch (dice.Below(given.empty() ? 4 : 6)) {
    case 0: return mutator.Run(dice.Pick(corpus.plans));
    case 1: return mutator.Run(MakePlan(graph.graph, dice));
    case 4: return given;
    case 5: return mutator.Run(given);
    default: return MakePlan(graph.graph, dice);
  }
}

}  // namespace heddle
