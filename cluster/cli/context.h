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
  std::string identity;  ///< Folder of a client certificate (--identity).
  std::string context;   ///< Of contexts.yaml (--context); empty: the current one.

  /// Finds the cluster that a verb means, and makes this process show it what it should see. It is
  /// the cluster of --nodemanager or --proxy; else that of --context; else that of a --data-dir
  /// which is not the default; else that of the current context; else the embedded cluster of the
  /// default data directory. A remote cluster has its NodeManagers only. Without --identity and
  /// without a context the identity is that of DATA_DIR/identity.
  ///
  /// Errors: UNAVAILABLE (no cluster runs), NOT_FOUND (CONTEXT_UNKNOWN), and those of
  /// contexts::Load(), contexts::Present() and local::ShowIdentity().
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
