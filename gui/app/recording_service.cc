#include "gui/app/recording_service.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"

namespace onepiece::gui {
namespace {

/// A cluster's id comes from outside: only what is harmless in a file's name.
std::string FileName(const std::string& cluster_id) {
  std::string name;
  for (const char c : cluster_id.substr(0, 100)) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    name += plain ? c : '_';
  }
  return name + ".onepiece-recording";
}

}  // namespace

RecordingService::RecordingService(std::shared_ptr<Session> session, std::string folder,
                                   std::vector<history::Rule> rules)
    : session_(std::move(session)),
      folder_(std::move(folder)),
      alerts_(std::move(rules)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

RecordingService::~RecordingService() {
  thread_.request_stop();
  thread_.join();
}

std::string RecordingService::path() const {
  const std::lock_guard lock(mutex_);
  return path_;
}

absl::Status RecordingService::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void RecordingService::Bookmark(std::int64_t at_ms, std::string text) {
  constexpr std::size_t kMaxWaiting = 100;
  const std::lock_guard lock(mutex_);
  if (bookmarks_.size() < kMaxWaiting) bookmarks_.emplace_back(at_ms, std::move(text));
}

void RecordingService::Run(const std::stop_token& stop) {
  auto next = std::chrono::steady_clock::now();
  while (!stop.stop_requested()) {
    Tick();
    // After a suspended night one tick is due, not thousands.
    next = std::max(next + std::chrono::seconds(1), std::chrono::steady_clock::now());
    std::unique_lock lock(mutex_);
    wake_.wait_until(lock, stop, next, [] { return false; });
  }
}

void RecordingService::Tick() {
  const std::shared_ptr<const Snapshot> snapshot = session_->Latest();
  const LinkStatus link = session_->status();
  alerts_.Evaluate(*snapshot, link);
  session_->SetAlerts({std::make_shared<Alerts>(alerts_.alerts()),
                       base::ToUnixMs(base::SystemClock().WallNow()),
                       {}});
  const auto& cluster = snapshot->cluster.value;
  if (cluster == nullptr || cluster->cluster_id().empty()) return;
  absl::Status status;
  if (recorder_ == nullptr) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    const std::string path = folder_ + "/" + FileName(cluster->cluster_id());
    auto recorder = history::Recorder::Open(path);
    status = recorder.status();
    if (recorder.ok()) recorder_ = *std::move(recorder);
  }
  if (recorder_ != nullptr) status = recorder_->Record(*snapshot, link);
  std::vector<std::pair<std::int64_t, std::string>> bookmarks;
  {
    const std::lock_guard lock(mutex_);
    status_ = status;
    if (recorder_ != nullptr) {
      path_ = folder_ + "/" + FileName(cluster->cluster_id());
      bookmarks.swap(bookmarks_);
    }
  }
  for (const auto& [at_ms, text] : bookmarks) recorder_->Bookmark(at_ms, text).IgnoreError();
}

}  // namespace onepiece::gui
