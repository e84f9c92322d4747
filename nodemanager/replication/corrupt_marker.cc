#include "nodemanager/replication/corrupt_marker.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "cluster/base/folder.h"
#include "cluster/base/status.h"

namespace onepiece::nodemanager {
namespace {

std::string MarkerPath(const std::string& dir) { return dir + "/nodemanager.corrupt"; }

}  // namespace

// A mark that a crash cuts short is a mark all the same, so it needs no second name.
absl::Status WriteCorruptMarker(const std::string& dir, paxos::ReplicaId replica,
                                const std::string& why) {
  const std::string path = MarkerPath(dir);
  const std::string text = absl::StrCat("replica ", replica.value, "\n", why, "\n");
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = fd >= 0 &&
                       write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(fd) == 0;
  const int number = errno;
  if (fd >= 0) close(fd);
  if (written && base::SyncFolder(dir)) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kUnavailable, "MARKER_NOT_WRITTEN",
      absl::StrCat("cannot write ", path, ": ", std::strerror(written ? errno : number)));
}

std::optional<std::string> ReadCorruptMarker(const std::string& dir, paxos::ReplicaId replica) {
  const std::string path = MarkerPath(dir);
  if (std::error_code error; !std::filesystem::exists(path, error)) return std::nullopt;
  std::ifstream file(path);
  std::string word, why;
  std::uint64_t id = 0;
  if (file >> word >> id && word == "replica" && paxos::ReplicaId{id} != replica)
    return std::nullopt;
  file.ignore();
  if (!std::getline(file, why) || why.empty()) why = path + " says that its state is corrupt";
  return why;
}

}  // namespace onepiece::nodemanager
