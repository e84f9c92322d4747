// The file of one spilled result. Internal to cluster/database. docs/database.md has the layout.
//
// The file is a header (format, owner, and for each artifact its size, SHA-256 and CRC-32C) and
// then the artifacts. Each part begins at a multiple of 4096, so that a mapping of the file is
// aligned.
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

/// The result that a file belongs to.
struct SpillOwner {
  base::Uid uid;
  std::uint64_t cluster = 0;  ///< The ClusterHash of its cluster.
};

struct SpillHeader {
  SpillOwner owner;
  v1::JobResult result;                  ///< Describes the artifacts.
  std::vector<std::uint32_t> checksums;  ///< The CRC-32C of each artifact.
  std::int64_t header_bytes = 0;
  std::int64_t file_bytes = 0;
};

std::uint64_t ClusterHash(const std::string& cluster_id);
/// Returns the size of a file with these artifacts.
std::int64_t SpillFileBytes(std::span<const StoredArtifact> artifacts);
/// Writes a file, past the page cache if the file system can, and overwrites an existing one. The
/// content is durable when this returns OK; the name is not. After an error an incomplete file may
/// be left.
///
/// Errors: those of DiskError.
absl::Status WriteSpillFile(const std::string& path, const SpillOwner& owner,
                            std::span<const StoredArtifact> artifacts);
/// Reads a header, and checks everything but the bytes of the artifacts.
///
/// Errors: NOT_FOUND, DATA_LOSS (SPILL_DAMAGED: truncated, damaged, or not a spilled result),
/// FAILED_PRECONDITION (NEWER_FORMAT), those of DiskError.
absl::StatusOr<SpillHeader> ReadSpillHeader(const std::string& path);
/// Maps the artifacts of a file. They keep the mapping alive.
///
/// Errors: those of ReadSpillHeader; DATA_LOSS also when the file belongs to another result.
absl::StatusOr<std::vector<StoredArtifact>> MapSpillFile(const std::string& path,
                                                         const SpillOwner& owner);
/// Does what MapSpillFile does, and checks every byte.
absl::StatusOr<std::vector<StoredArtifact>> CheckSpillFile(const std::string& path,
                                                           const SpillOwner& owner);

}  // namespace onepiece::database
