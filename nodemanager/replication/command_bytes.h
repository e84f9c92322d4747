// Commands as the bytes that the log holds. Private to this folder.
#pragma once

#include <string>

#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Returns false when no program up to this version can apply the command.
inline bool ReadCommand(const std::string& payload, v1::Command& command) {
  return command.ParseFromString(payload) && command.change_case() != v1::Command::CHANGE_NOT_SET;
}

}  // namespace onepiece::nodemanager
