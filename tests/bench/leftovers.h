// Finds files that a benchmark leaves behind in the folders where all programs put their files.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace onepiece::bench {

/// Its constructor records which files exist, so that it can tell later which are new.
class Leftovers {
 public:
  /// Looks in `folders` for files whose name contains `part`.
  Leftovers(std::vector<std::filesystem::path> folders, std::string part)
      : folders_(std::move(folders)), part_(std::move(part)), before_(Names()) {}

  /// Returns the names of new files as text, or an empty text.
  [[nodiscard]] std::string New() const {
    std::string text;
    for (const std::string& name : Names()) {
      if (!before_.contains(name)) text += name + "\n";
    }
    return text;
  }

 private:
  [[nodiscard]] std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& folder : folders_) {
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (name.find(part_) != std::string::npos) names.insert(name);
      }
    }
    return names;
  }

  const std::vector<std::filesystem::path> folders_;
  const std::string part_;
  const std::set<std::string> before_;
};

}  // namespace onepiece::bench
