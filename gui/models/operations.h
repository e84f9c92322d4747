// What was asked for, in this run of the console, and what came of it.
//
// Threading  GUI thread only.
#pragma once

#include <QObject>
#include <QString>
#include <cstdint>
#include <deque>

#include "absl/status/status.h"

namespace onepiece::gui {

struct Operation {
  int number = 0;  ///< From 1.
  QString what;    ///< "Cancel 14 jobs"
  std::int64_t asked_ms = 0;
  std::int64_t ended_ms = 0;  ///< 0: under way.
  absl::Status outcome;
  QString note;  ///< How far it is, or what it made: "42 %", "night.onepiece-recording, 12.0 MiB".
};

class OperationLog : public QObject {
  Q_OBJECT
 public:
  static constexpr std::size_t kMax = 200;  ///< The oldest that have ended go first.
  using QObject::QObject;

  int Begin(const QString& what);
  /// Of one that has not ended; else nothing.
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
