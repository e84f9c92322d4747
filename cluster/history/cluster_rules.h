// Follows the alert rules of a cluster's configuration. Private to cluster/history.
//
// Threading: News() needs external synchronisation. A look may end on any thread, also after the
// object is gone.
// Blocking: never.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/history/alerts.h"
#include "cluster/session/session.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::history {

class ClusterRules {
 public:
  /// The configuration, when its revision is not the known one.
  using Answer = absl::StatusOr<std::optional<v1::ConfigRevision>>;
  /// Looks on another thread for a revision that is not `known`, and hands the answer to `done`.
  /// Returns false when it cannot begin now.
  using Look = std::function<bool(std::uint64_t known, std::function<void(Answer)> done)>;

  /// A look begins at the first call of News() and then once in this time.
  static constexpr base::Duration kInterval = std::chrono::seconds(10);

  explicit ClusterRules(Look look, base::Clock& clock = base::SystemClock());

  /// Returns the rules when they have changed since the last call. Empty ones say that the
  /// configuration has none, or some that this program cannot read. A cluster that does not answer
  /// keeps its rules.
  std::optional<std::vector<Rule>> News();

 private:
  struct Shared;
  const Look look_;
  base::Clock& clock_;
  base::MonotonicTime next_look_;
  std::uint64_t known_ = 0;
  const std::shared_ptr<Shared> shared_;
};

/// Looks with a client of the session. The session ends what is under way when it ends itself.
ClusterRules::Look LookIn(session::Session& session);

}  // namespace onepiece::history
