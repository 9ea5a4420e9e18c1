#include "test/attack/finding.h"

#include <algorithm>
#include <cctype>
#include <chrono>

#include "heddle/core/base/file.h"
#include "test/attack/judge.h"

namespace heddle {
namespace {

std::string ShellQuoted(const std::string& word) {
  if (word.find_first_of(" '\"{}*()[]\\$\n;&|<>") == std::string::npos) return word;
  std::string out = "'";
  for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

class Minimizer {
 public:
  Minimizer(Found& finding, const Limits& limits, double seconds)
      : finding_(finding),
        signature_(Signature(finding.fault)),
        limits_(limits),
        seconds_(seconds) {}

  void Run() {
    for (bool smaller = true; smaller;) {
      smaller = false;
      for (const auto& [name, text] : std::map(finding_.files)) {
        smaller |= Shrink(name, Lines(text));
        smaller |= Shrink(name, Tokenize(finding_.files[name]));
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Splits a text into lines, as tokens.
  static Tokens Lines(const std::string& text) {
    Tokens lines;
    for (const Token& token : Tokenize(text)) {
      if (lines.empty() || BeginsLine(token)) {
        lines.push_back({token.kind, token.space, token.text});
      } else {
        lines.back().text += token.space + token.text;
      }
    }
    return lines;
  }

  // Drops runs of decreasing length.
  bool Shrink(const std::string& name, Tokens tokens) {
    bool any = false;
    for (size_t run = (tokens.size() + 1) / 2; run > 0; run /= 2) {
      for (size_t at = 0; at + run <= tokens.size();) {
        Tokens fewer = tokens;
        fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(at),
                    fewer.begin() + static_cast<ptrdiff_t>(at + run));
        if (Keeps(name, Print(fewer))) {
          tokens = std::move(fewer);
          any = true;
        } else {
          at += run;
        }
      }
    }
    return any;
  }

  bool Keeps(const std::string& name, std::string text) {
    if (std::chrono::duration<double>(Clock::now() - began_).count() > seconds_) return false;
    std::map<std::string, std::string> files = finding_.files;
    files[name] = std::move(text);
    std::string fault = RunAlone(finding_.args, files, limits_);
    if (Signature(fault) != signature_) return false;
    finding_.files = std::move(files);
    finding_.fault = std::move(fault);
    return true;
  }

  Found& finding_;
  std::string signature_;
  const Limits& limits_;
  double seconds_;
  Clock::time_point began_ = Clock::now();
};

}  // namespace

std::string Signature(const std::string& fault) {
  std::string out;
  Tokens tokens = Tokenize(fault);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& text = tokens[i].text;
    bool has_digit = std::ranges::any_of(
        text, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
    if (!tokens[i].space.empty()) out += ' ';
    if (text == "`") {
      // Skips to the closing quote.
      while (i + 1 < tokens.size() && tokens[i + 1].text != "`") ++i;
      ++i;
      out += "``";
    } else if (tokens[i].kind == Token::Kind::kString) {
      out += "\"\"";
    } else if (tokens[i].kind == Token::Kind::kValue || tokens[i].kind == Token::Kind::kScope) {
      out += text[0];
    } else if (!has_digit) {
      out += text;
    } else if (!out.ends_with("#")) {
      out += '#';
    }
  }
  return out;
}

std::string RunAlone(const Args& args, const std::map<std::string, std::string>& files,
                     const Limits& limits) {
  TempDir directory;
  for (const auto& [name, text] : files) {
    if (!WriteFile(directory.path() + "/" + name, text).ok()) return "";
  }
  std::string fault;
  std::string death = Watch(
      directory.path(), limits,
      [&](const Reporter& report) {
        bool accepted = false;
        report(Judge(args, accepted));
      },
      [&](std::string_view line) { fault = line; });
  return death.empty() ? fault : death;
}

Found Minimize(Found finding, const Limits& limits, double seconds) {
  Minimizer(finding, limits, seconds).Run();
  return finding;
}

Status WriteFinding(const Found& finding, const std::string& directory) {
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(directory));
  for (const auto& [name, text] : finding.files)
    HEDDLE_RETURN_IF_ERROR(WriteFile(directory + "/" + name, text));
  std::string command = "heddle";
  for (const std::string& arg : finding.args) command += " " + ShellQuoted(arg);
  return WriteFile(directory + "/README", fmt::format("{}\n\n{}\n", command, finding.fault));
}

}  // namespace heddle
