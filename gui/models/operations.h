// What this run of the console has asked for, and what came of it.
//
// Threading: GUI thread only.
#pragma once

#include <QObject>
#include <QString>
#include <cstdint>
#include <deque>

#include "absl/status/status.h"

namespace onepiece::gui {

struct Operation {
  int number = 0;  ///< Counted from 1.
  QString what;    ///< "Cancel 14 jobs"
  std::int64_t asked_ms = 0;
  std::int64_t ended_ms = 0;  ///< 0 while under way.
  absl::Status outcome;
  /// How far it is, or what it has made: "42 %", "night.onepiece-recording, 12.0 MiB".
  QString note;
};

/// The list of operations. The shown cluster adds each question to the cluster; dialogs add the
/// rest.
class OperationLog : public QObject {
  Q_OBJECT
 public:
  static constexpr std::size_t kMax = 200;  ///< Beyond that the oldest ended operations go.
  using QObject::QObject;

  /// Adds an operation and returns its number.
  int Begin(const QString& what);
  /// Sets the note of an operation that has not ended. Does nothing for another number.
  void Note(int number, const QString& note);
  void End(int number, const absl::Status& outcome, const QString& note = {});
  /// Newest first.
  [[nodiscard]] const std::deque<Operation>& all() const { return all_; }

 Q_SIGNALS:
  void Changed();

 private:
  Operation* Find(int number);

  std::deque<Operation> all_;
  int last_ = 0;
};

}  // namespace onepiece::gui
