// The signature of an ExportedProgram's JSON: what its inputs and outputs are for.
#pragma once

#include <vector>

#include "heddle/import/read/json_walk.h"
#include "heddle/import/read/program.h"

namespace heddle {

class ExportSignature {
 public:
  struct Input {
    InputRole role = InputRole::kPlain;
    WordId label = {};
  };
  struct Output {
    OutputRole role = OutputRole::kPlain;
    // The parameter or input that it belongs to.
    WordId target = {};
  };

  // Both outlive this. Words go to `program`.
  ExportSignature(JsonWalk& walk, ForeignProgram& program) : walk_(walk), program_(program) {}

  // False if something could not be read, which `walk` has.
  bool Read(JsonValue signature);
  // One for each of the graph's, where the signature has them.
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }

 private:
  template <typename OnTag, typename OnText>
  bool ReadSpec(JsonValue spec, OnTag&& on_tag, OnText&& on_text);
  bool ReadInput(JsonValue spec);
  bool ReadOutput(JsonValue spec);

  JsonWalk& walk_;
  ForeignProgram& program_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
};

}  // namespace heddle
