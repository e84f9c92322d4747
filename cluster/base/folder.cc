#include "cluster/base/folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace onepiece::base {

bool SyncFolder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  const bool synced = fsync(folder) == 0;
  const int number = errno;
  close(folder);
  errno = number;
  return synced;
}

bool SyncFolderOf(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error).lexically_normal();
  if (error) {
    errno = error.value();
    return false;
  }
  // "a/b/" has an empty name after its last slash.
  const auto named = whole.has_filename() ? whole : whole.parent_path();
  return SyncFolder(named.parent_path().string());
}

}  // namespace onepiece::base
