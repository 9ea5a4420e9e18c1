// Traced tensors: a shape, an element type, and the value of the graph that they refer to.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "heddle/core/ir/graph.h"

namespace heddle::run {

// The device of traced tensors. It is otherwise unused. Autograd does not treat it as an
// accelerator, so it does not ask for its streams.
inline constexpr c10::DeviceType kTracedDevice = c10::DeviceType::IPU;
inline constexpr c10::DispatchKey kTracedKey = c10::DispatchKey::IPU;

// State that the views of one storage share: the number of writes to it. A tensor is stale if it
// has not seen the last write.
struct AliasGroup {
  uint32_t writes = 0;
  // The input that owns the storage; invalid if no input does. Inputs are never written to.
  ValueId input;
};

class TracedImpl final : public c10::TensorImpl {
 public:
  // `meta` has the sizes and strides.
  TracedImpl(at::Tensor meta, ValueId value, std::shared_ptr<AliasGroup> group);

  const at::Tensor& meta() const { return meta_; }
  ValueId value() const { return value_; }
  const std::shared_ptr<AliasGroup>& group() const { return group_; }
  bool stale() const { return seen_writes_ != group_->writes; }
  // Records a write to the storage through this tensor, which now refers to `value`.
  void Written(ValueId value);

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version, bool allow_metadata_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version, bool allow_metadata_change) const override;

 private:
  c10::intrusive_ptr<c10::TensorImpl> Copy(const c10::VariableVersion& version,
                                           bool allow_metadata_change) const;

  at::Tensor meta_;
  ValueId value_;
  std::shared_ptr<AliasGroup> group_;
  uint32_t seen_writes_;
};

at::Tensor MakeTraced(at::Tensor meta, ValueId value, std::shared_ptr<AliasGroup> group);
// Returns the traced tensor of `tensor`, or null.
TracedImpl* AsTraced(const at::Tensor& tensor);

}  // namespace heddle::run
