// Records what a session sees into the file of its cluster, and passes acknowledgements and
// silences to the alert rules.
//
// Ownership: shares the session.
// Threading: thread-safe.
// Blocking: state() never waits for the disk. All other calls may, so do not call them on the GUI
// thread. The destructor waits for the tick under way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/history/record_loop.h"
#include "cluster/session/session.h"
#include "gui/models/alert_desk.h"

namespace onepiece::gui {

/// Records one session.
class RecordingService : public AlertDesk {
 public:
  RecordingService(std::shared_ptr<session::Session> session, std::string folder,
                   std::vector<history::Rule> rules);

  /// The file for the cluster: `folder`/CLUSTER_ID.onepiece-recording. Empty until the cluster has
  /// told its id.
  [[nodiscard]] std::string WantedPath() const;
  /// Records into that file from now on, if it does not do so already.
  ///
  /// Errors: FAILED_PRECONDITION with reason IN_USE when another console records this cluster (the
  /// file can be read all the same); UNAVAILABLE with reason NO_CLUSTER_ID; those of
  /// RecordLoop::Start().
  absl::Status Begin();
  [[nodiscard]] history::RecordState state() const { return loop_.state(); }
  absl::Status Bookmark(std::int64_t at_ms, const std::string& text) {
    return loop_.Bookmark(text, at_ms);
  }
  absl::Status Acknowledge(const std::string& id, const std::string& who) override {
    return loop_.Acknowledge(id, who);
  }
  absl::Status Silence(const std::string& id, std::int64_t until_ms,
                       const std::string& reason) override {
    return loop_.Silence(id, until_ms, reason);
  }

 private:
  // Declared before loop_, which borrows the session until it is destroyed.
  const std::shared_ptr<session::Session> session_;
  const std::string folder_;
  history::RecordLoop loop_;
};

}  // namespace onepiece::gui
