// Helpers of tests that make recordings and describe them.
#pragma once

#include <sqlite3.h>

#include <QTemporaryDir>
#include <QtTest>
#include <fstream>
#include <memory>
#include <string>

#include "cluster/base/status.h"
#include "cluster/history/recorder.h"
#include "tests/history/snapshots.h"

namespace onepiece::history {

inline QString Reason(const absl::Status& status) {
  return QString::fromStdString(base::GetReason(status).reason);
}

inline void Sql(const std::string& path, const std::string& sql) {
  sqlite3* file = nullptr;
  QCOMPARE(sqlite3_open(path.c_str(), &file), SQLITE_OK);
  QCOMPARE(sqlite3_exec(file, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(file);
}

inline int CountRows(const std::string& path, const std::string& table) {
  sqlite3* file = nullptr;
  sqlite3_stmt* count = nullptr;
  int rows = -1;
  if (sqlite3_open(path.c_str(), &file) == SQLITE_OK &&
      sqlite3_prepare_v2(file, ("SELECT count(*) FROM " + table).c_str(), -1, &count, nullptr) ==
          SQLITE_OK &&
      sqlite3_step(count) == SQLITE_ROW)
    rows = sqlite3_column_int(count, 0);
  sqlite3_finalize(count);
  sqlite3_close(file);
  return rows;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

template <typename T>
std::string Age(const session::Part<T>& part) {
  return std::to_string(part.as_of_ms) + part.error + (part.value ? "" : "null");
}

/// Describes everything in a snapshot, except what a recording leaves out.
inline std::string Describe(const session::Snapshot& s) {
  std::string text = std::to_string(s.at_ms);
  for (const std::string& age :
       {Age(s.cluster), Age(s.elasticity), Age(s.rings), Age(s.jobs), Age(s.databases),
        Age(s.replicas), Age(s.audit), Age(s.plans), Age(s.alerts)})
    text += "\n" + age;
  if (s.cluster.value) text += "\n" + s.cluster.value->DebugString();
  if (s.elasticity.value) text += "\n" + s.elasticity.value->DebugString();
  if (s.plans.value) text += "\n" + s.plans.value->DebugString();
  const auto number = [](double value) { return std::to_string(value) + " "; };
  for (const session::RingEntry& ring : s.rings.value ? *s.rings.value : session::Rings()) {
    text += "\n" + ring.node_id + std::to_string(ring.incarnation) + ring.error +
            std::to_string(ring.as_of_ms) + ring.health.DebugString();
    if (ring.rates) text += number(ring.rates->messages_per_s) + number(ring.rates->bytes_per_s);
  }
  for (const session::JobEntry& job :
       s.jobs.value ? s.jobs.value->jobs : std::vector<session::JobEntry>())
    text += "\n" + job.job->DebugString() + std::to_string(static_cast<int>(job.certainty));
  if (s.jobs.value) text += s.jobs.value->truncated ? "truncated" : "all";
  for (const session::DatabaseEntry& database :
       s.databases.value ? *s.databases.value : session::Databases())
    text += "\n" + database.database.DebugString() + database.error;
  for (const session::ReplicaEntry& replica :
       s.replicas.value ? *s.replicas.value : session::Replicas())
    text += "\n" + replica.name + replica.address + replica.error +
            (replica.status ? replica.status->DebugString() : "silent");
  for (const auto& entry : s.audit.value ? *s.audit.value : session::Audit())
    text += entry.DebugString();
  for (const session::Alert& alert : s.alerts.value ? *s.alerts.value : session::Alerts())
    text += "\n" + alert.id + alert.entity + alert.text + number(alert.value.value_or(-1)) +
            number(alert.threshold.value_or(-1)) + std::to_string(alert.since_ms) +
            std::to_string(static_cast<int>(alert.state));
  return text;
}

/// Opens a recorder for `path` that ignores how full the disk is.
inline std::unique_ptr<Recorder> OpenRecorder(const std::string& path, Limits limits = {}) {
  if (limits.keep_free_bytes == Limits().keep_free_bytes) limits.keep_free_bytes = 0;
  auto recorder = Recorder::Open(path, limits);
  if (!recorder.ok()) qFatal("%s", base::Message(recorder.status()).c_str());
  return *std::move(recorder);
}

}  // namespace onepiece::history
