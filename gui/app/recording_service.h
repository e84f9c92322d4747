// Records a session and evaluates the alert rules, once a second, away from the GUI thread.
//
// Ownership  Shares the session.
// Threading  Thread-safe; one thread of its own.
// Blocking   The destructor waits for the tick under way.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gui/client/session.h"
#include "gui/history/alerts.h"
#include "gui/history/recorder.h"

namespace onepiece::gui {

class RecordingService {
 public:
  /// Records into `folder`/CLUSTER_ID.onepiece-recording once the cluster has told its id.
  RecordingService(std::shared_ptr<Session> session, std::string folder,
                   std::vector<history::Rule> rules);
  ~RecordingService();
  RecordingService(const RecordingService&) = delete;
  RecordingService& operator=(const RecordingService&) = delete;

  /// The file; empty: none yet.
  [[nodiscard]] std::string path() const;
  /// How the last tick went.
  [[nodiscard]] absl::Status status() const;
  void Bookmark(std::int64_t at_ms, std::string text);

 private:
  void Run(const std::stop_token& stop);
  void Tick();

  const std::shared_ptr<Session> session_;
  const std::string folder_;
  history::AlertEngine alerts_;                  ///< Of the thread.
  std::unique_ptr<history::Recorder> recorder_;  ///< Of the thread.
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string path_;  ///< Guarded by mutex_, as what follows.
  absl::Status status_;
  std::vector<std::pair<std::int64_t, std::string>> bookmarks_;
  std::jthread thread_;
};

}  // namespace onepiece::gui
