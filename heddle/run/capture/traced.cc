#include "heddle/run/capture/traced.h"

namespace heddle::run {

TracedImpl::TracedImpl(at::Tensor meta, ValueId value, std::shared_ptr<AliasGroup> group)
    : c10::TensorImpl(c10::DispatchKeySet(kTracedKey), meta.dtype(), c10::Device(kTracedDevice, 0)),
      meta_(std::move(meta)),
      value_(value),
      group_(std::move(group)),
      seen_writes_(group_->writes) {
  set_sizes_and_strides(meta_.sizes(), meta_.strides(), meta_.storage_offset());
  // Conjugation is lazy in ATen: views carry the bit.
  _set_conj(meta_.is_conj());
  _set_neg(meta_.is_neg());
}

void TracedImpl::Written(ValueId value) {
  value_ = value;
  seen_writes_ = ++group_->writes;
}

c10::intrusive_ptr<c10::TensorImpl> TracedImpl::Copy(const c10::VariableVersion& version,
                                                     bool allow_metadata_change) const {
  auto copy = c10::make_intrusive<TracedImpl>(meta_, value_, group_);
  copy->seen_writes_ = seen_writes_;
  copy->set_version_counter(version);
  copy->set_allow_tensor_metadata_change(allow_metadata_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TracedImpl::shallow_copy_and_detach(
    const c10::VariableVersion& version, bool allow_metadata_change) const {
  return Copy(version, allow_metadata_change);
}

c10::intrusive_ptr<c10::TensorImpl> TracedImpl::shallow_copy_and_detach(
    c10::VariableVersion&& version, bool allow_metadata_change) const {
  return Copy(version, allow_metadata_change);
}

at::Tensor MakeTraced(at::Tensor meta, ValueId value, std::shared_ptr<AliasGroup> group) {
  return at::Tensor(c10::make_intrusive<TracedImpl>(std::move(meta), value, std::move(group)));
}

TracedImpl* AsTraced(const at::Tensor& tensor) {
  return dynamic_cast<TracedImpl*>(tensor.unsafeGetTensorImpl());
}

}  // namespace heddle::run
