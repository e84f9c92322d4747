// SHA-256: of bytes, of files, of what identifies a component or a computation.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::model {

/// 64 hexadecimal digits.
std::string Sha256Hex(std::span<const std::byte> bytes);

/// Sha256Hex over `parts`, with their lengths: different parts never give the same text.
std::string HashOfParts(std::initializer_list<std::string_view> parts);

/// One hash of what these files hold, in this order; their names do not count. Files are read on
/// several threads, and only when they are not the ones (device, inode, size, time of change) that
/// this process has read before. Thread-safe. Errors: NOT_FOUND MODEL_NOT_FOUND.
absl::StatusOr<std::string> HashOfFiles(const std::vector<std::string>& paths);

/// HashOfFiles of config.json and every weight file of a component folder. Errors: as
/// ComponentFiles::Open.
absl::StatusOr<std::string> ComponentHash(const std::string& dir);

}  // namespace onepiece::model
