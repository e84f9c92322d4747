// Flags, ONEPIECE_* variables and the YAML file of a service program, merged into its configuration
// message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/status.h"
#include "google/protobuf/message.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::service {

/// Exit codes that the services' supervisors rely on (DESIGN §13).
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitBadConfig = 78;

enum class NodeManagers { kRequired, kNotUsed };

/// What a program is.
struct ProgramInfo {
  std::string program;      ///< "onepiece-proxy"
  std::string role;         ///< "proxy"; default node id is "{role}-{host name}".
  std::string description;  ///< One sentence for --help.
  NodeManagers nodemanagers = NodeManagers::kRequired;
  bool needs_data_dir = true;  ///< False: node.data_dir stays empty where nobody sets it.
};

/// Reads a program's configuration. Precedence: flag, environment variable, file, default.
///
/// Ownership  Borrows `config`, which holds a field `node` of type v1::NodeConfig.
/// Threading  Thread-confined.
class ServiceOptions {
 public:
  ServiceOptions(ProgramInfo info, google::protobuf::Message* config);

  /// Adds a flag for a field of the configuration: Bind("--pinned-stage", "pinned_stage", "Serve
  /// …"). `path` may go through messages ("ring.slots"); strings, integers, booleans (the flag
  /// alone is true), enums and lists of strings (comma separated) can be bound. The environment
  /// variable is ONEPIECE_ and the flag's name: ONEPIECE_PINNED_STAGE.
  void Bind(std::string_view flag, std::string_view path, std::string_view help);

  /// Adds --read-only, for programs whose services heed it; the others refuse it, from the file
  /// too.
  void BindReadOnly();

  enum class Outcome { kRun, kCheckOnly, kExit };
  struct Parsed {
    Outcome outcome = Outcome::kRun;
    int exit_code =
        kExitOk;  ///< For kExit: --help, --version, a usage error or a bad file; all is printed.
  };
  /// Parses, reads the file, fills in defaults and checks the `node` part.
  Parsed Parse(int argc, const char* const* argv);

  /// The configuration's `node` part, defaults filled in. REQUIRES: Parse() was called.
  [[nodiscard]] const v1::NodeConfig& node() { return MutableNode(); }
  [[nodiscard]] const ProgramInfo& info() const { return info_; }

 private:
  struct Binding {
    std::string flag, path, help;
    std::vector<std::string> given;
  };
  v1::NodeConfig& MutableNode();
  absl::Status SetField(const Binding& binding);
  absl::Status FillAndCheckNode();

  ProgramInfo info_;
  google::protobuf::Message* config_;
  std::vector<Binding> bindings_;
};

/// Checks "host:port" (port 0 to 65535, host not empty). Errors: INVALID_ARGUMENT (BAD_ADDRESS).
absl::Status CheckAddress(std::string_view field, std::string_view address);

/// $XDG_STATE_HOME/onepiece, or ~/.local/state/onepiece.
std::string DefaultStateDir();

}  // namespace onepiece::service
