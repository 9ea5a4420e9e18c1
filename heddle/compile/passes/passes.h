// All passes, and the named pipelines of the folder pipelines/.
#pragma once

#include "heddle/compile/manager/pass.h"

namespace heddle::compile {

const PassTable& Passes();

}  // namespace heddle::compile
