// Rows of the databases and of the NodeManager's replicas, and what is to be said of them.
//
// Threading  ReplicaWatch is thread-confined, the rest are pure functions.
#pragma once

#include <QString>
#include <QStringList>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {

/// Why what is shown is not newer, for a page's note; empty: it is as new as it can be.
QString WhyOld(std::int64_t as_of_ms, const std::string& error, std::int64_t now_ms);

/// A line in words, with how bad it is.
struct Headline {
  QString text;
  StatusTone tone = StatusTone::kNeutral;
};

struct DatabaseRow {
  std::string node_id, workflow_set;
  QString state;
  StatusTone tone = StatusTone::kUnknown;
  std::optional<v1::Database> database;  ///< Absent: it has never answered.
  /// Records that the fullest database of its workflow set has and this one has not, at least.
  std::optional<std::int64_t> behind;
  std::int64_t as_of_ms = 0;
  QString age;    ///< Of the answer.
  QString error;  ///< Why there is no newer one.
};
bool operator==(const DatabaseRow& a, const DatabaseRow& b);

/// Every database that the cluster names or that was ever heard of, by workflow set and id.
std::vector<DatabaseRow> DatabaseRows(const Snapshot& snapshot);
Headline DatabasesInWords(const std::vector<DatabaseRow>& rows);
std::vector<KeyedTable<DatabaseRow>::Column> DatabaseColumns();

struct ReplicaRow {
  std::string name, address;
  std::optional<v1::ReplicaStatus> status;
  QString role;
  StatusTone tone = StatusTone::kUnknown;
  std::optional<std::uint64_t> behind;  ///< Entries that were chosen and that it has not applied.
  QString detail;                       ///< Why it does not answer, or what keeps it from work.
};
bool operator==(const ReplicaRow& a, const ReplicaRow& b);

std::vector<ReplicaRow> ReplicaRows(const Replicas& replicas);
std::vector<KeyedTable<ReplicaRow>::Column> ReplicaColumns();

/// What only somebody who watches knows: since when a replica leads, how often that changed.
class ReplicaWatch {
 public:
  struct News {
    Headline headline;
    QStringList advice;  ///< The command line's: what is wrong and what to do.
    std::string leader;  ///< Name; empty: nobody leads.
    std::string leader_address;
  };
  /// Snapshots in the order of time; an earlier one begins the watch anew.
  News See(const Snapshot& snapshot);

 private:
  [[nodiscard]] QString InWords(std::size_t answering, std::size_t seats,
                                const v1::ReplicaStatus* leader, std::uint64_t slowest,
                                std::int64_t now_ms) const;

  std::string cluster_id_, leader_;
  std::uint64_t round_ = 0;
  std::int64_t since_ms_ = 0, began_ms_ = 0, seen_ms_ = 0;
  int elections_ = 0;
};

}  // namespace onepiece::gui
