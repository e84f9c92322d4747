// The jobs that a session knows, in all workflow sets. Internal to cluster/session.
//
// Threading: may be used from any thread. The feed of each set puts its jobs into it.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/session/board.h"

namespace onepiece::session {

class JobTable {
 public:
  explicit JobTable(std::size_t max_jobs) : max_jobs_(max_jobs) {}

  /// Returns a mark for the present moment. Untold(mark) leaves out the jobs that are told of
  /// later.
  std::uint64_t Mark();
  /// Takes jobs that a server of `set` tells of. Returns whether the last of them was known before.
  bool Told(const std::string& set, google::protobuf::RepeatedPtrField<v1::Job> jobs);
  /// Removes a job, because a server of its set says that it does not exist.
  void Gone(std::string_view uid);
  /// Marks all jobs of `set` as doubtful until a server tells of them again.
  void Doubt(const std::string& set);
  /// Returns the jobs of `set` that no server has told of since `mark`, newest first.
  std::vector<std::string> Untold(const std::string& set, std::uint64_t mark, bool active_only);
  [[nodiscard]] bool IsUntold(std::string_view uid, std::uint64_t mark);
  /// Sets how far the list of `set` is known. An empty `error` means that it is up to date now.
  void SetState(const std::string& set, bool complete, const std::string& error);
  /// Forgets the jobs of `set`, because another cluster answers now.
  void Forget(const std::string& set);
  /// Puts the list on the board.
  void Publish(Board& board);

 private:
  struct RowKey {
    std::int64_t create_ns = 0;
    std::string uid;
    /// Newest first.
    bool operator<(const RowKey& other) const {
      return create_ns != other.create_ns ? create_ns > other.create_ns : uid < other.uid;
    }
  };
  struct Row {
    JobEntry entry;
    std::string set;
    std::uint64_t told = 0;  // The newest mark when a server told of it last.
  };
  struct SetNews {
    bool complete = false;
    std::string error;
    std::int64_t as_of_ms = 0;
  };
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::size_t max_jobs_;
  base::Mutex mutex_;
  std::map<RowKey, Row> rows_ ABSL_GUARDED_BY(mutex_);
  // Its keys are views of the uids in rows_.
  std::unordered_map<std::string_view, std::map<RowKey, Row>::iterator> by_uid_
      ABSL_GUARDED_BY(mutex_);
  std::map<std::string, SetNews> sets_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t mark_ ABSL_GUARDED_BY(mutex_) = 1;
  bool trimmed_ ABSL_GUARDED_BY(mutex_) = false;
  bool changed_ ABSL_GUARDED_BY(mutex_) = true;
  std::shared_ptr<const JobList> list_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::session
