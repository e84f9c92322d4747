#include "gui/app/recording_service.h"

#include <filesystem>
#include <utility>

#include "cluster/base/status.h"

namespace onepiece::gui {
namespace {

/// The name of a cluster's file. The id comes from outside, so only characters that are harmless in
/// a file name are kept.
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

RecordingService::RecordingService(std::shared_ptr<session::Session> session, std::string folder,
                                   std::vector<history::Rule> rules)
    : session_(std::move(session)),
      folder_(std::move(folder)),
      loop_(history::RecordLoop::Of(*session_), std::move(rules)) {}

std::string RecordingService::WantedPath() const {
  const auto cluster = session_->Latest()->cluster.value;
  if (cluster == nullptr || cluster->cluster_id().empty()) return {};
  return folder_ + "/" + FileName(cluster->cluster_id());
}

absl::Status RecordingService::Begin() {
  const std::string path = WantedPath();
  if (path.empty()) {
    return base::MakeError(absl::StatusCode::kUnavailable, "NO_CLUSTER_ID",
                           "the cluster has not told its id yet");
  }
  const history::RecordState state = loop_.state();
  if (state.recording && state.path == path) return absl::OkStatus();
  std::error_code error;
  if (std::filesystem::create_directories(folder_, error))
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, error);
  return loop_.Start(path);
}

}  // namespace onepiece::gui
