// The file that holds the state of a NodeManager, so that a new group can begin with it
// (docs/operation.md, "When everything is lost").
//
//   16 bytes  "onepiece-backup\n"
//    4 bytes  the format, little endian: 1
//    4 bytes  the length of the header, little endian
//             the header: BackupHeader
//             the state: NodeManagerState, as StateMachine::Serialize() makes it
//   32 bytes  SHA-256 of all that comes before
//
// Whatever is changed, missing or added is noticed. The state holds the cluster's secret.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "onepiece/v1/consensus.pb.h"

namespace onepiece::backup {

/// More than any state has. A file that is larger is no backup.
inline constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

struct Backup {
  v1::BackupHeader header;
  std::string state;
};

/// The bytes of the file.
std::string Encode(const Backup& backup);
/// Takes the bytes of a whole file apart.
///
/// Errors: FAILED_PRECONDITION (NOT_A_BACKUP; NEWER_FORMAT: a newer program wrote it), DATA_LOSS
/// (BACKUP_DAMAGED: it is cut short, or was changed).
absl::StatusOr<Backup> Decode(std::string_view bytes);

/// Reads and checks a file.
///
/// Blocking: reads the file.
/// Errors: those of Decode(), NOT_FOUND (NO_FILE), FAILED_PRECONDITION (CANNOT_READ).
absl::StatusOr<Backup> ReadFile(const std::string& path);

/// A backup that is on the disk.
struct Written {
  std::string path;
  v1::BackupHeader header;
  std::uint64_t bytes = 0;
  std::string sha256;  ///< Of the whole file, in hexadecimal digits.
};

using Sink = absl::FunctionRef<absl::Status(std::string_view chunk)>;

/// Calls `receive` with a sink for the bytes of a backup, and makes them a file that only its owner
/// may read. The bytes go to PATH.part, are synced, read back and checked. Only then does the file
/// get its name, and replaces an earlier one. An error leaves nothing behind.
///
/// Blocking: as long as `receive`, and waits for the disk.
/// Errors: those of `receive` and of Decode(), FAILED_PRECONDITION (CANNOT_WRITE).
absl::StatusOr<Written> WriteFile(const std::string& path,
                                  absl::FunctionRef<absl::Status(Sink sink)> receive);

}  // namespace onepiece::backup
