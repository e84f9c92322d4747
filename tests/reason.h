// The reason of an error, for comparing.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cluster/base/status.h"

namespace onepiece {

inline std::string Reason(const absl::Status& status) { return base::GetReason(status).reason; }

}  // namespace onepiece
