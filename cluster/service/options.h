// Merges the flags, the ONEPIECE_* variables and the YAML file of a service program into its
// configuration message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/status.h"
#include "google/protobuf/message.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::service {

/// Exit codes that the services' supervisors rely on (docs/operation.md, "Exit codes").
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitBadConfig = 78;

enum class NodeManagers { kRequired, kNotUsed };

/// Describes a program.
struct ProgramInfo {
  std::string program;      ///< "onepiece-proxy"
  std::string role;         ///< "proxy"
  std::string description;  ///< One sentence for --help.
  NodeManagers nodemanagers = NodeManagers::kRequired;
  bool needs_data_dir = true;  ///< False: node.data_dir has no default.
  /// The field of the configuration that names the device ("cpu", "cuda:0"), for programs of which
  /// a host runs one for each device. Empty: none.
  std::string device_field;
};

/// Reads a program's configuration. A flag takes precedence over an environment variable, that over
/// the file, and the file over the default.
///
/// Ownership: borrows `config`, which must outlive it and have a field `node` of type
/// v1::NodeConfig.
/// Threading: used by one thread.
class ServiceOptions {
 public:
  ServiceOptions(ProgramInfo info, google::protobuf::Message* config);

  /// Adds a flag for a field of the configuration: Bind("--pinned-stage", "pinned_stage", "Serve
  /// …"). `path` may go through messages ("ring.slots"). The field may be a string, an integer, a
  /// boolean (the flag alone means true), an enum, a list of strings (separated by commas), or a
  /// map of strings ("key=value", separated by commas). The environment variable is ONEPIECE_ and
  /// the flag's name: ONEPIECE_PINNED_STAGE.
  void Bind(std::string_view flag, std::string_view path, std::string_view help);

  /// Adds --read-only, for programs whose services obey it. Other programs refuse the setting, also
  /// in the file.
  void BindReadOnly();

  enum class Outcome { kRun, kCheckOnly, kExit };
  struct Parsed {
    Outcome outcome = Outcome::kRun;
    /// Set for kExit, which follows --help, --version, a usage error or a bad file. All output
    /// has been printed.
    int exit_code = kExitOk;
  };
  /// Parses, reads the file, fills in defaults and checks the `node` part.
  Parsed Parse(int argc, const char* const* argv);

  /// Returns the configuration's `node` part with its defaults.
  /// REQUIRES: Parse() was called.
  [[nodiscard]] const v1::NodeConfig& node() { return MutableNode(); }
  [[nodiscard]] const ProgramInfo& info() const { return info_; }

 private:
  struct Binding {
    std::string flag, path, help;
    std::vector<std::string> given;
  };
  v1::NodeConfig& MutableNode();
  absl::Status SetField(const Binding& binding);
  static absl::Status SetMap(const Binding& binding, google::protobuf::Message& message,
                             const google::protobuf::FieldDescriptor& field);
  absl::Status FillAndCheckNode();
  [[nodiscard]] std::string Device() const;

  ProgramInfo info_;
  google::protobuf::Message* config_;
  std::vector<Binding> bindings_;
};

/// The node id of a program that was given none: "{role}-{host}", or for a program with a device
/// "{host}.gpu0" (cuda:0), "{host}.cpu".
std::string DefaultNodeId(const std::string& role, const std::string& host,
                          const std::string& device);

/// Checks "host:port": the port is 0 to 65535, and the host is not empty.
///
/// Errors: INVALID_ARGUMENT (BAD_ADDRESS).
absl::Status CheckAddress(std::string_view field, std::string_view address);

/// Whether only processes of this host can reach host:port. A host name other than localhost is not
/// resolved, and does not count.
bool IsLoopback(std::string_view address);

/// Returns $XDG_STATE_HOME/onepiece, or ~/.local/state/onepiece.
std::string DefaultStateDir();

}  // namespace onepiece::service
