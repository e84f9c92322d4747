// The rooms of the house and the arrows between them: which folder may include which.
#ifndef ONEPIECE_TESTS_STRUCTURE_ROOMS_H_
#define ONEPIECE_TESTS_STRUCTURE_ROOMS_H_

#include <QMap>
#include <QStringList>

namespace onepiece {

/// A folder may include itself and the folders listed here. `proto` stands for generated code. A
/// folder that is not listed is an error: the table grows with the tree.
///
/// docs/architecture.md draws this table. After a change, run
/// `ONEPIECE_UPDATE_GOLDENS=1 build/release/tests/structure_tests rooms_test`, which draws it
/// again.
inline const QMap<QString, QStringList>& AllowedIncludes() {
  static const QMap<QString, QStringList> allowed = {
      {"cluster/base", {}},
      {"cluster/identity", {"cluster/base"}},
      {"cluster/config", {"cluster/base", "proto"}},
      {"cluster/sqlite", {"cluster/base"}},
      {"cluster/fabric", {"cluster/base"}},
      {"cluster/ring", {"cluster/fabric", "cluster/base"}},
      {"cluster/message", {"cluster/base", "proto"}},
      {"cluster/workflow", {"cluster/base", "cluster/message", "cluster/config", "proto"}},
      {"cluster/capacity", {}},
      {"cluster/media", {"cluster/base"}},
      {"cluster/admission", {"cluster/base", "cluster/capacity", "proto"}},
      {"cluster/rpc", {"cluster/base", "cluster/identity", "proto"}},
      {"cluster/contexts", {"cluster/base", "cluster/config", "cluster/identity", "cluster/rpc"}},
      {"cluster/telemetry", {"cluster/base", "cluster/rpc", "proto"}},
      {"cluster/backup", {"cluster/base", "proto"}},
      {"cluster/service",
       {"cluster/base", "cluster/config", "cluster/identity", "cluster/rpc", "cluster/telemetry",
        "proto"}},
      {"cluster/job", {"cluster/base", "cluster/identity", "proto"}},
      {"cluster/node",
       {"cluster/base", "cluster/fabric", "cluster/identity", "cluster/ring", "cluster/message",
        "cluster/workflow", "cluster/job", "cluster/rpc", "cluster/telemetry", "cluster/values",
        "proto"}},
      {"cluster/values",
       {"cluster/base", "cluster/fabric", "cluster/message", "cluster/rpc", "proto"}},
      {"cluster/proxy",
       {"cluster/base", "cluster/fabric", "cluster/message", "cluster/workflow", "cluster/rpc",
        "cluster/telemetry", "cluster/service", "cluster/job", "cluster/node", "cluster/values",
        "cluster/admission", "proto"}},
      {"cluster/database",
       {"cluster/base", "cluster/fabric", "cluster/identity", "cluster/ring", "cluster/message",
        "cluster/rpc", "cluster/telemetry", "cluster/service", "cluster/job", "cluster/node",
        "cluster/values", "cluster/sqlite", "proto"}},
      {"cluster/client", {"cluster/base", "cluster/job", "cluster/rpc", "proto"}},
      {"cluster/session", {"cluster/base", "cluster/rpc", "cluster/client", "proto"}},
      {"cluster/history",
       {"cluster/session", "cluster/base", "cluster/client", "cluster/config", "cluster/identity",
        "cluster/sqlite", "proto"}},
      {"cluster/local",
       {"cluster/base", "cluster/config", "cluster/contexts", "cluster/fabric", "cluster/identity",
        "cluster/rpc", "cluster/workflow", "cluster/client", "cluster/service", "proto"}},
      {"cluster/terminal", {"cluster/base", "cluster/workflow", "proto"}},
      {"cluster/cli",
       {"cluster/backup", "cluster/base", "cluster/config", "cluster/contexts", "cluster/fabric",
        "cluster/identity", "cluster/ring", "cluster/message", "cluster/workflow", "cluster/rpc",
        "cluster/telemetry", "cluster/service", "cluster/node", "cluster/client", "cluster/local",
        "cluster/terminal", "cluster/session", "cluster/history", "proto"}},
      {"gui/models",
       {"cluster/session", "cluster/history", "cluster/base", "cluster/client", "cluster/identity",
        "cluster/rpc", "cluster/workflow", "proto"}},
      {"gui/views",
       {"gui/models", "cluster/session", "cluster/history", "cluster/base", "cluster/client",
        "cluster/media", "proto"}},
      {"gui/app",
       {"gui/views", "gui/models", "cluster/session", "cluster/history", "cluster/base",
        "cluster/client", "cluster/contexts", "cluster/identity", "cluster/local",
        "cluster/service", "proto"}},
      {"nodemanager/paxos", {"cluster/base"}},
      {"nodemanager/state", {"cluster/base", "cluster/identity", "cluster/workflow", "proto"}},
      {"nodemanager/replication",
       {"nodemanager/paxos", "nodemanager/state", "cluster/backup", "cluster/base", "cluster/rpc",
        "cluster/sqlite", "proto"}},
      {"nodemanager/assignment",
       {"nodemanager/state", "cluster/base", "cluster/workflow", "proto"}},
      {"nodemanager/load", {"cluster/base", "cluster/capacity", "proto"}},
      {"nodemanager/policy", {"cluster/base", "cluster/capacity", "proto"}},
      {"nodemanager/plans",
       {"nodemanager/state", "nodemanager/assignment", "nodemanager/load", "nodemanager/policy",
        "cluster/base", "cluster/capacity", "cluster/workflow", "proto"}},
      {"nodemanager/simulator",
       {"nodemanager/assignment", "nodemanager/load", "nodemanager/plans", "nodemanager/policy",
        "nodemanager/state", "cluster/base", "cluster/capacity", "cluster/history",
        "cluster/session", "cluster/admission", "cluster/config", "cluster/workflow",
        "cluster/local", "cluster/terminal", "proto"}},
      {"nodemanager/service",
       {"nodemanager/paxos", "nodemanager/state", "nodemanager/replication",
        "nodemanager/assignment", "cluster/backup", "nodemanager/load", "nodemanager/policy",
        "nodemanager/plans", "cluster/base", "cluster/capacity", "cluster/config",
        "cluster/identity", "cluster/workflow", "cluster/rpc", "cluster/telemetry",
        "cluster/service", "cluster/node", "proto"}},
      {"nodemanager/regroup",
       {"nodemanager/paxos", "nodemanager/state", "nodemanager/replication", "nodemanager/service",
        "cluster/backup", "cluster/base", "cluster/contexts", "cluster/identity",
        "cluster/terminal", "proto"}},
      {"stages/sdk", {"cluster/base", "cluster/message"}},
      {"stages/runtime", {"stages/sdk", "cluster/base", "cluster/message"}},
      {"stages/tensor", {"stages/sdk", "cluster/base", "cluster/message"}},
      {"stages/device", {"cluster/base"}},
      {"stages/model",
       {"stages/sdk", "stages/runtime", "stages/tensor", "cluster/media", "cluster/base",
        "cluster/config", "cluster/local", "cluster/message", "cluster/terminal",
        "cluster/workflow"}},
      {"stages/wan",
       {"stages/model", "stages/sdk", "stages/tensor", "cluster/media", "cluster/base",
        "cluster/message"}},
      {"stages/finetune", {"stages/wan", "stages/model", "stages/tensor", "cluster/base"}},
      {"stages/instance",
       {"stages/sdk", "stages/runtime", "stages/device", "cluster/base", "cluster/fabric",
        "cluster/job", "cluster/message", "cluster/workflow", "cluster/rpc", "cluster/telemetry",
        "cluster/service", "cluster/node", "cluster/values", "proto"}},
  };
  return allowed;
}

}  // namespace onepiece

#endif  // ONEPIECE_TESTS_STRUCTURE_ROOMS_H_
