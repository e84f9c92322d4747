// SHA-256 of files, and of what identifies a component or a computation.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::model {

/// Returns base::Sha256Hex over `parts` and their lengths, so that different parts never give the
/// same input.
std::string HashOfParts(std::initializer_list<std::string_view> parts);

/// Returns one hash of the contents of these files, in this order. Their names do not count. Reads
/// the files on several threads, and skips files that this process has read before and that have
/// not changed (device, inode, size, time of change).
///
/// Threading: may be called from any thread.
///
/// Errors: NOT_FOUND MODEL_NOT_FOUND.
absl::StatusOr<std::string> HashOfFiles(const std::vector<std::string>& paths);

/// Returns HashOfFiles of config.json and every weight file of a component folder.
///
/// Errors: those of ComponentFiles::Open.
absl::StatusOr<std::string> ComponentHash(const std::string& dir);

}  // namespace onepiece::model
