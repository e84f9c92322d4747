// Contexts: the clusters that a person uses, by name, and which of them is the current one. They
// are kept in one file, as kubectl's are:
//
//   current: films
//   contexts:
//     - name: films
//       nodemanagers: [nm-1.example.org:7000, nm-2.example.org:7000]
//       identity: /home/ann/films       # admin.key, admin.pem and ca.pem
//     - name: ci
//       nodemanagers: [nm-1.example.org:7000]
//       ca: /home/ann/ci/ca.pem
//       token_file: /home/ann/ci/token
//
// The file has no secrets, but whoever writes it says whom its owner's programs believe. So it is a
// secret file in a secret folder (cluster/identity/secret_files.h): wider modes are refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/contexts/credentials.h"

namespace onepiece::contexts {

/// A cluster that somebody uses. A value.
struct ClusterContext {
  std::string name;  ///< 1 to 64 letters, digits, '-', '_', '.' and '@'.
  /// host:port of NodeManager replicas; at least one.
  std::vector<std::string> nodemanagers;
  Credentials credentials;

  bool operator==(const ClusterContext&) const = default;
};

/// The contexts of one file. A value.
///
/// Threading: thread-safe to read.
class Contexts {
 public:
  /// More than people have. The file stays small enough to be read each time.
  static constexpr std::size_t kMax = 256;

  /// Sorted by name.
  [[nodiscard]] const std::vector<ClusterContext>& all() const { return all_; }
  /// The name of the current context. Empty: none is.
  [[nodiscard]] const std::string& current() const { return current_; }

  /// Adds a context. Paths become absolute, because the next command runs elsewhere. Where there
  /// was no context before, the new one becomes the current one.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_CONTEXT, which names the part), ALREADY_EXISTS (CONTEXT_EXISTS),
  /// RESOURCE_EXHAUSTED (TOO_MANY_CONTEXTS).
  absl::Status Add(ClusterContext context);
  /// Makes a context the current one.
  ///
  /// Errors: NOT_FOUND (CONTEXT_UNKNOWN, which lists those that there are).
  absl::Status Use(std::string_view name);
  /// Forgets a context; its files stay. When it was the current one, none is afterwards.
  ///
  /// Errors: as Use().
  absl::Status Remove(std::string_view name);
  /// Returns the context of this name, and for an empty name the current one.
  ///
  /// Errors: NOT_FOUND (CONTEXT_UNKNOWN; NO_CONTEXT: none is current).
  [[nodiscard]] absl::StatusOr<ClusterContext> Find(std::string_view name) const;

  /// The text of a file, and back. Errors call the text `name`.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_CONFIG), with line and column.
  [[nodiscard]] std::string ToYaml() const;
  static absl::StatusOr<Contexts> FromYaml(std::string_view text, std::string_view name);

 private:
  std::vector<ClusterContext> all_;
  std::string current_;
};

/// $ONEPIECE_CONTEXTS, or contexts.yaml in the folder onepiece of $XDG_CONFIG_HOME or of ~/.config.
std::string DefaultPath();

/// Reads the contexts. There are none when there is no file.
///
/// Blocking: reads a file.
/// Errors: those of identity::CheckSecretFolder(), identity::ReadSecretFile() and FromYaml().
absl::StatusOr<Contexts> Load(const std::string& path);
/// Replaces the file in one step. Who changes contexts at the same time loses the change of the
/// first one.
///
/// Blocking: waits for the disk.
/// Errors: those of identity::EnsureSecretFolder() and identity::WriteSecretFile().
absl::Status Save(const std::string& path, const Contexts& contexts);

// All functions are thread-safe.

}  // namespace onepiece::contexts
