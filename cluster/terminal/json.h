// The JSON that commands print.
#pragma once

#include <nlohmann/json.hpp>

namespace onepiece::terminal {

/// JSON documents keep the order in which their members are added.
using Json = nlohmann::ordered_json;

}  // namespace onepiece::terminal
