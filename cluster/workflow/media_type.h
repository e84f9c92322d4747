// Finds out the media type of a file, for programs that send it with a job.
#pragma once

#include <string_view>

namespace onepiece::workflow {

/// Returns the media type by the first bytes of the file, else by its extension, else
/// application/octet-stream.
///
/// Threading: may be called from any thread.
std::string_view MediaTypeOf(std::string_view bytes, std::string_view path);

}  // namespace onepiece::workflow
