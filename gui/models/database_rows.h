// The rows of the databases and of the NodeManager's replicas, and a headline for each.
//
// Threading: ReplicaWatch is thread-confined. The rest are pure functions.
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

/// How old the shown data is and why it is not newer, for a page's note. Empty if it is up to date.
QString WhyOld(std::int64_t as_of_ms, const std::string& error, std::int64_t now_ms);

/// A line in words and its tone.
struct Headline {
  QString text;
  StatusTone tone = StatusTone::kNeutral;
};

/// One database.
struct DatabaseRow {
  std::string node_id, workflow_set;
  QString state;
  StatusTone tone = StatusTone::kUnknown;
  std::optional<v1::Database> database;  ///< Absent if it has never answered.
  /// The least number of records that it lacks: those of the fullest database of its workflow set,
  /// minus its own.
  std::optional<std::int64_t> behind;
  std::int64_t as_of_ms = 0;
  QString age;    ///< Age of the answer.
  QString error;  ///< Why there is no newer one.
};
bool operator==(const DatabaseRow& a, const DatabaseRow& b);

/// All databases that the cluster names or that were ever heard of, by workflow set and id.
std::vector<DatabaseRow> DatabaseRows(const session::Snapshot& snapshot);
Headline DatabasesInWords(const std::vector<DatabaseRow>& rows);
std::vector<KeyedTable<DatabaseRow>::Column> DatabaseColumns();

/// One replica of the NodeManager.
struct ReplicaRow {
  std::string name, address;
  std::optional<v1::ReplicaStatus> status;
  QString role;
  StatusTone tone = StatusTone::kUnknown;
  std::optional<std::uint64_t> behind;  ///< Chosen log entries that it has not applied.
  QString detail;                       ///< Why it does not answer, or what keeps it from its work.
};
bool operator==(const ReplicaRow& a, const ReplicaRow& b);

std::vector<ReplicaRow> ReplicaRows(const session::Replicas& replicas);
std::vector<KeyedTable<ReplicaRow>::Column> ReplicaColumns();

/// Watches the replicas over several snapshots: since when one leads, and how often that changed.
class ReplicaWatch {
 public:
  struct News {
    Headline headline;
    QStringList advice;  ///< What is wrong and what to do, in the CLI's words.
    std::string leader;  ///< The leader's name. Empty if nobody leads.
    std::string leader_address;
  };
  /// Takes the next snapshot. Snapshots come in the order of time; an earlier one starts the watch
  /// anew.
  News See(const session::Snapshot& snapshot);

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
