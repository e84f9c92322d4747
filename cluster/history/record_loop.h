// Once a second, the loop looks at what a session knows, evaluates the alert rules, gives the
// alerts back to the session, and records. The console and `onepiece record` run the same thread.
// The rules of the cluster's configuration replace the loop's own, as soon as there are any.
//
// Ownership: owns the recorder and the alerts. It borrows what Source captures, in particular the
// Session.
// Threading: may be used from any thread.
// Blocking: state() never waits for the disk. All other calls may wait for as long as a tick takes,
// which is milliseconds, or seconds on a bad disk. Do not make them on the GUI thread. The
// destructor ends the recording and joins the thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/history/alerts.h"
#include "cluster/history/recorder.h"
#include "cluster/session/session.h"

namespace onepiece::history {

struct RecordState {
  bool recording = false;
  std::string path;          ///< The file of this recording, or of the last one.
  std::int64_t ticks = 0;    ///< Ticks since Start().
  std::int64_t bytes = 0;    ///< The size of the file.
  std::int64_t last_ms = 0;  ///< The time of the last tick. 0 when there was none.
  /// The status of the last tick. After an error that can go away (DISK_LOW) the next tick tries
  /// again. After any other error `recording` is false.
  absl::Status status;
};

class RecordLoop {
 public:
  struct Source {
    std::function<std::shared_ptr<const session::Snapshot>()> latest;
    std::function<session::LinkStatus()> link;
    std::function<void(session::Part<session::Alerts>)> set_alerts;
    /// Returns the alert rules of the cluster's configuration when they have changed since the last
    /// call. Empty ones say that the configuration has none. It is called only for clusters that
    /// have a configuration, and may be null.
    std::function<std::optional<std::vector<Rule>>()> new_rules;
  };
  static Source Of(session::Session& session);

  /// `rules` hold while the cluster's configuration has none.
  RecordLoop(Source source, std::vector<Rule> rules, base::Clock& clock = base::SystemClock());
  ~RecordLoop();
  RecordLoop(const RecordLoop&) = delete;
  RecordLoop& operator=(const RecordLoop&) = delete;

  /// Begins a recording or continues one. The recording before has ended, even after an error. What
  /// people said about alerts in a continued recording is taken over.
  ///
  /// Errors: those of Recorder::Open.
  absl::Status Start(const std::string& path, const Limits& limits = {});
  void Stop();
  [[nodiscard]] RecordState state() const;
  /// Sets a bookmark. `at_ms` 0 means now.
  ///
  /// Errors: FAILED_PRECONDITION (NOT_RECORDING).
  absl::Status Bookmark(std::string_view text, std::int64_t at_ms = 0);
  /// These are as in AlertEngine. The session gets the result immediately.
  absl::Status Acknowledge(std::string_view id, std::string_view who);
  absl::Status Silence(std::string_view id, std::int64_t until_ms, std::string_view reason);

 private:
  void Run(const std::stop_token& stop);
  void Tick();
  void FollowRules(const session::Snapshot& snapshot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mutex_);
  void ShowAlerts(std::int64_t now_ms) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mutex_);
  void RestoreAlerts(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mutex_);
  [[nodiscard]] std::int64_t NowMs() const;

  const Source source_;
  const std::vector<Rule> own_rules_;
  base::Clock& clock_;

  base::Mutex work_mutex_;
  AlertEngine engine_ ABSL_GUARDED_BY(work_mutex_);
  session::Part<session::Alerts> alerts_ ABSL_GUARDED_BY(work_mutex_);
  std::unique_ptr<Recorder> recorder_ ABSL_GUARDED_BY(work_mutex_) ABSL_PT_GUARDED_BY(work_mutex_);

  mutable base::Mutex state_mutex_ ABSL_ACQUIRED_AFTER(work_mutex_);
  RecordState state_ ABSL_GUARDED_BY(state_mutex_);

  std::jthread thread_;  // Last: goes first.
};

}  // namespace onepiece::history
