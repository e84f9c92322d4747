// Protobuf messages as bytes that can be compared and hashed.
#pragma once

#include <string>

#include "google/protobuf/message_lite.h"

namespace onepiece::base {

/// Serialises with map entries in order: equal messages give equal bytes.
///
/// Threading: thread-safe.
[[nodiscard]] std::string CanonicalBytes(const google::protobuf::MessageLite& message);

}  // namespace onepiece::base
