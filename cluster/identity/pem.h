// The outside of PEM texts: which blocks there are, and whether the last one is whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::identity {

/// More bytes or blocks than any file of ours has.
inline constexpr std::size_t kMaxPemBytes = 64 << 10;
inline constexpr std::size_t kMaxPemBlocks = 16;

/// A block from its BEGIN line to its END line.
struct PemBlock {
  std::string label;  ///< "CERTIFICATE".
  std::string_view text;
};

/// Splits `pem` into its blocks. Text between blocks is passed over. The views are of `pem`.
///
/// Errors: FAILED_PRECONDITION (HALF_WRITTEN: it is empty, or ends inside of a block; BAD_PEM: it
/// has no block, or too many; TOO_LARGE).
absl::StatusOr<std::vector<PemBlock>> SplitPem(std::string_view pem);

/// Returns the blocks whose label ends in `label`: "PRIVATE KEY" finds "EC PRIVATE KEY" too.
///
/// Errors: those of SplitPem(), and FAILED_PRECONDITION (BAD_PEM: it has only others, which the
/// message names).
absl::StatusOr<std::vector<PemBlock>> FindPem(std::string_view pem, std::string_view label);

}  // namespace onepiece::identity
