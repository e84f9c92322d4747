// Files that only their owner may read: keys, certificates, tokens.
//
// A secret is a regular file with mode 0600 in a folder with mode 0700, and both belong to the user
// who runs this program. What is wider is refused, not mended: somebody may have read it already,
// and only people know whether the secret must be made anew. The message has the command that mends
// it: "chmod 600 /etc/onepiece/node.key".
//
// A file gets its name only when its bytes are on the disk. While it is written it is NAME.part,
// which nothing reads. So a file is old or new after a crash, never half of one; the next write
// replaces a NAME.part that a crash left.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onepiece::identity {

/// Larger secrets are refused: a bundle of certificates has some KiB.
inline constexpr std::size_t kMaxSecretBytes = 64 << 10;

enum class Protection {
  /// Mode 0600 or less, owned by the user who runs this program.
  kSecret,
  /// Others may read it but not write it. It belongs to that user or to root. For certificates.
  kPublic,
};

/// Makes the folder, and those above it that are missing, with mode 0700. Checks one that exists
/// as CheckSecretFolder() does.
///
/// Blocking: waits for the disk.
/// Errors: those of CheckSecretFolder(), FAILED_PRECONDITION (CANNOT_WRITE).
absl::Status EnsureSecretFolder(const std::string& path);

/// Checks that `path` is a folder, no symbolic link, owned by the user who runs this program, and
/// closed to all others.
///
/// Errors: NOT_FOUND (NO_FILE), FAILED_PRECONDITION (MODE_TOO_WIDE, OTHER_OWNER, NOT_A_FOLDER,
/// CANNOT_READ).
absl::Status CheckSecretFolder(const std::string& path);

/// Makes sure that others cannot reach a file or folder that exists and belongs to this user. When
/// its mode is too wide but a folder above it is closed, nobody has reached it, and the mode is
/// mended. Otherwise it is refused.
///
/// Errors: those of CheckSecretFolder() and ReadSecretFile(), FAILED_PRECONDITION (CANNOT_WRITE).
absl::Status EnsureClosed(const std::string& path);

/// Writes a file with mode 0600 and syncs it, its name included. Replaces an earlier one unless
/// that is too wide or is another's.
///
/// Blocking: waits for the disk.
/// Errors: those of CheckSecretFolder() for the folder of `path`; FAILED_PRECONDITION
/// (MODE_TOO_WIDE, OTHER_OWNER, NOT_A_FILE, CANNOT_WRITE), INVALID_ARGUMENT (TOO_LARGE), ABORTED
/// (BEING_WRITTEN: another process writes the same file at this moment).
absl::Status WriteSecretFile(const std::string& path, std::string_view bytes);

/// Reads a whole file. Follows no symbolic link in the last component of `path`. Does not check the
/// folder.
///
/// Errors: NOT_FOUND (NO_FILE; NOT_WRITTEN_YET: only NAME.part is there), FAILED_PRECONDITION
/// (MODE_TOO_WIDE, OTHER_OWNER, NOT_A_FILE, TOO_LARGE, CANNOT_READ, HALF_WRITTEN: it is empty).
absl::StatusOr<std::string> ReadSecretFile(const std::string& path,
                                           Protection protection = Protection::kSecret);

/// The path as a word of a shell's command, quoted where it must be.
std::string ShellWord(std::string_view path);

// All functions are thread-safe, and safe against other processes that call them.

}  // namespace onepiece::identity
