// The file of one spilled result. Internal to cluster/database; layout: docs/database.md.
//
// A header (what it is, whose, its artifacts with sizes, SHA-256 and CRC-32C), then the artifacts;
// each part begins at a multiple of 4096, so that a mapping of the file is aligned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/ids.h"
#include "cluster/database/result_bundle.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::database {

/// Whose a file is.
struct SpillOwner {
  base::Uid uid;
  std::uint64_t cluster = 0;  ///< ClusterHash.
};

struct SpillHeader {
  SpillOwner owner;
  v1::JobResult result;                  ///< What the artifacts are.
  std::vector<std::uint32_t> checksums;  ///< CRC-32C of each.
  std::int64_t header_bytes = 0;
  std::int64_t file_bytes = 0;
};

std::uint64_t ClusterHash(const std::string& cluster_id);
/// Bytes that the file of these artifacts takes.
std::int64_t SpillFileBytes(std::span<const StoredArtifact> artifacts);
/// Writes a file that is durable (its name is not) when this returns OK, past the page cache where
/// the file system can. One that is there is overwritten.
/// Errors: those of DiskError; what was written is left.
absl::Status WriteSpillFile(const std::string& path, const SpillOwner& owner,
                            std::span<const StoredArtifact> artifacts);
/// Checks all but the artifacts' bytes.
/// Errors: NOT_FOUND, DATA_LOSS (SPILL_DAMAGED: truncated, damaged, or no such file at all),
/// FAILED_PRECONDITION (NEWER_FORMAT), those of DiskError.
absl::StatusOr<SpillHeader> ReadSpillHeader(const std::string& path);
/// The artifacts, mapped; they keep the mapping alive.
/// Errors: those of ReadSpillHeader; DATA_LOSS also when it is another result's.
absl::StatusOr<std::vector<StoredArtifact>> MapSpillFile(const std::string& path,
                                                         const SpillOwner& owner);
/// MapSpillFile, and every byte is checked.
absl::StatusOr<std::vector<StoredArtifact>> CheckSpillFile(const std::string& path,
                                                           const SpillOwner& owner);

}  // namespace onepiece::database
