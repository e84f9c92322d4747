// What the reports of nodes say about identities. Only the leader takes them, and keeps them in
// memory. Private to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// Which table and which CA each node goes by, and what tenants have used since the last batch.
///
/// Bounds: an entry for each node, and kMaxUses sums. Uses beyond are left out.
/// Threading: thread-safe. It takes no other lock while it holds its own.
class IdentityReports {
 public:
  static constexpr std::size_t kMaxNodes = 2 * StateMachine::kMaxNodes, kMaxUses = 4096;

  /// Forgets the nodes, when this replica begins to lead. It keeps the uses: whoever took them must
  /// get them into the log.
  void Clear();
  /// Takes a report of the present incarnation.
  void Take(const v1::ReportNodeRequest& request);
  /// Adds what a proxy says that tenants used. Leaves out hours that are more than two days from
  /// `now`: no proxy has waited so long.
  void TakeUses(const v1::ReportNodeRequest& request, base::WallTime now);
  /// The sums since the last call.
  [[nodiscard]] v1::AddUses CollectUses();
  /// Gives back what could not be committed.
  void ReturnUses(const v1::AddUses& uses);

  /// The live nodes that have not said that they go by a table of `epoch` or a later one.
  [[nodiscard]] std::vector<std::string> WithoutTable(const StateMachine& state,
                                                      std::uint64_t epoch) const;
  /// The live nodes that have not said that their certificate is of the CA with this fingerprint.
  [[nodiscard]] std::vector<std::string> WithoutCertificateOf(const StateMachine& state,
                                                              const std::string& authority) const;

 private:
  struct LastReport {
    std::uint64_t incarnation = 0, epoch = 0;
    std::string authority;
  };
  template <typename IsFine>
  std::vector<std::string> Others(const StateMachine& state, IsFine is_fine) const;
  void Add(const v1::TenantUse& use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::map<std::string, LastReport> nodes_ ABSL_GUARDED_BY(mutex_);
  // By hour and tenant.
  std::map<std::pair<std::int64_t, std::string>, v1::TenantUse> uses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::nodemanager
