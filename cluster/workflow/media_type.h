// What kind of file a job brings, for whoever sends it.
#pragma once

#include <string_view>

namespace onepiece::workflow {

/// By the first bytes of the file, else by its extension, else application/octet-stream.
/// Thread-safe.
std::string_view MediaTypeOf(std::string_view bytes, std::string_view path);

}  // namespace onepiece::workflow
