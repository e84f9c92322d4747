// The JSON that commands print.
#pragma once

#include <nlohmann/json.hpp>

namespace onepiece::terminal {

/// A JSON document. An object keeps the order in which members are added, so that output is stable
/// and reads well. Print it with Output::Print(), which replaces bytes that are not UTF-8.
using Json = nlohmann::ordered_json;

}  // namespace onepiece::terminal
