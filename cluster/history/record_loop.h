// Once a second: looks at what a session knows, evaluates the alert rules, gives the alerts back to
// the session, and records. The same thread serves the console and `onepiece record`.
//
// Ownership  Borrows what Source captures, the Session above all; owns the recorder and the alerts.
// Threading  Thread-safe. state() never waits for the disk; all else may, for as long as a tick
//            takes (milliseconds; seconds on a bad disk): not on the GUI thread.
// Blocking   The destructor ends the recording and joins the thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/session/session.h"
#include "cluster/history/alerts.h"
#include "cluster/history/recorder.h"

namespace onepiece::gui::history {

struct RecordState {
  bool recording = false;
  std::string path;          ///< Of the recording, or of the last one.
  std::int64_t ticks = 0;    ///< Since Start().
  std::int64_t bytes = 0;    ///< Of the file.
  std::int64_t last_ms = 0;  ///< Of the last tick; 0: none.
  /// Of the last tick; what can go away (DISK_LOW) is tried again, after anything else
  /// `recording` is false.
  absl::Status status;
};

class RecordLoop {
 public:
  struct Source {
    std::function<std::shared_ptr<const Snapshot>()> latest;
    std::function<LinkStatus()> link;
    std::function<void(Part<Alerts>)> set_alerts;
  };
  static Source Of(Session& session) {
    return {[&session] { return session.Latest(); }, [&session] { return session.status(); },
            [&session](Part<Alerts> alerts) { session.SetAlerts(std::move(alerts)); }};
  }

  RecordLoop(Source source, std::vector<Rule> rules, base::Clock& clock = base::SystemClock());
  ~RecordLoop();
  RecordLoop(const RecordLoop&) = delete;
  RecordLoop& operator=(const RecordLoop&) = delete;

  /// Begins a recording, or goes on with one: then what people said of alerts is taken from it.
  /// Errors: as Recorder::Open; the one before has ended.
  absl::Status Start(const std::string& path, const Limits& limits = {});
  void Stop();
  [[nodiscard]] RecordState state() const;
  /// `at_ms` 0: now. FAILED_PRECONDITION (NOT_RECORDING).
  absl::Status Bookmark(std::string_view text, std::int64_t at_ms = 0);
  /// As AlertEngine; shown at once.
  absl::Status Acknowledge(std::string_view id, std::string_view who);
  absl::Status Silence(std::string_view id, std::int64_t until_ms, std::string_view reason);

 private:
  void Run(const std::stop_token& stop);
  void Tick();
  void ShowAlerts(std::int64_t now_ms);
  void RestoreAlerts(const std::string& path);
  [[nodiscard]] std::int64_t NowMs() const;

  const Source source_;
  base::Clock& clock_;

  std::mutex work_mutex_;  // Taken before state_mutex_.
  std::condition_variable_any nobody_;
  AlertEngine engine_;                  // Guarded by work_mutex_.
  Part<Alerts> alerts_;                 // Guarded by work_mutex_.
  std::unique_ptr<Recorder> recorder_;  // Guarded by work_mutex_.

  mutable std::mutex state_mutex_;
  RecordState state_;  // Guarded by state_mutex_.

  std::jthread thread_;  // Last: goes first.
};

}  // namespace onepiece::gui::history
