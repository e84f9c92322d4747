// The context of every verb of `onepiece`: the options that each verb takes, and the cluster that
// they name.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/client/client.h"
#include "cluster/local/data_dir.h"
#include "cluster/terminal/output.h"

namespace onepiece::cli {

using terminal::Json;

/// The options that every verb takes.
///
/// Threading: used by one thread.
class Context : public terminal::Output {
 public:
  std::string data_dir;
  std::vector<std::string> nodemanagers;
  std::vector<std::string> proxies;
  std::string identity;   ///< Folder of a client certificate (--identity).
  bool insecure = false;  ///< Show nothing, and check no server (--insecure).

  /// Finds the cluster that --nodemanager or --data-dir names, and makes this process show it the
  /// identity that --identity names, or else the one of DATA_DIR/identity. A remote cluster has
  /// its NodeManagers only.
  ///
  /// Errors: UNAVAILABLE (no cluster runs), and those of local::ShowIdentity().
  [[nodiscard]] absl::StatusOr<local::ClusterState> FindCluster() const;
  /// Makes a client of the cluster that --nodemanager, --proxy or --data-dir names.
  ///
  /// Errors: UNAVAILABLE (no cluster runs).
  [[nodiscard]] absl::StatusOr<std::unique_ptr<client::Client>> MakeClient() const;
  /// Does the same for verbs that ask the NodeManager. --proxy alone does not name the cluster for
  /// them.
  ///
  /// Errors: INVALID_ARGUMENT (NO_NODEMANAGER: only proxies are given, and no cluster runs here).
  [[nodiscard]] absl::StatusOr<std::unique_ptr<client::Client>> MakeManagerClient() const;
};

/// Runs a verb with a client of the NodeManager and returns the exit code.
using ManagerVerb = std::function<int(client::Client& client)>;

/// Makes `verb` call `run` with a client of the NodeManager.
void OnManager(CLI::App& verb, Context& context, ManagerVerb run);

/// Adds such a verb to `parent`.
CLI::App* AddManagerVerb(CLI::App& parent, Context& context, const std::string& name,
                         const std::string& help, ManagerVerb run);

}  // namespace onepiece::cli
