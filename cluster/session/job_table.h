// The jobs that a session knows, of all workflow sets. Internal to gui/client.
//
// Threading  Thread-safe: the feed of each set puts into it.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cluster/session/board.h"

namespace onepiece::gui {

class JobTable {
 public:
  explicit JobTable(std::size_t max_jobs) : max_jobs_(max_jobs) {}

  /// A point in time: jobs that are told of after it are not in Untold(it).
  std::uint64_t Mark();
  /// A server of `set` tells of these: they are known. Returns whether the last one was before.
  bool Told(const std::string& set, google::protobuf::RepeatedPtrField<v1::Job> jobs);
  /// A server of the set says that there is no such job.
  void Gone(std::string_view uid);
  /// Until a server tells of them again, nobody knows what became of the jobs of `set`.
  void Doubt(const std::string& set);
  /// Jobs of `set` that no server has told of since `mark`, newest first.
  std::vector<std::string> Untold(const std::string& set, std::uint64_t mark, bool active_only);
  [[nodiscard]] bool IsUntold(std::string_view uid, std::uint64_t mark);
  /// How a set is, for the part as a whole: an empty `error` makes it as new as now.
  void SetState(const std::string& set, bool complete, const std::string& error);
  /// Another cluster: what is known is not about it.
  void Forget(const std::string& set);
  /// Puts the list on the board.
  void Publish(Board& board);

 private:
  struct Key {
    std::int64_t create_ns = 0;
    std::string uid;
    /// Newest first.
    bool operator<(const Key& other) const {
      return create_ns != other.create_ns ? create_ns > other.create_ns : uid < other.uid;
    }
  };
  struct Row {
    JobEntry entry;
    std::string set;
    std::uint64_t told = 0;  // Mark before it was told of last.
  };
  struct SetNews {
    bool complete = false;
    std::string error;
    std::int64_t as_of_ms = 0;
  };
  void Trim();

  const std::size_t max_jobs_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<Key, Row> rows_;
  std::unordered_map<std::string_view, std::map<Key, Row>::iterator> by_uid_;  // Of the keys.
  std::map<std::string, SetNews> sets_;
  std::uint64_t mark_ = 1;
  bool trimmed_ = false;
  bool changed_ = true;
  std::shared_ptr<const JobList> list_;
};

}  // namespace onepiece::gui
