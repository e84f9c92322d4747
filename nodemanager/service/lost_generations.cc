#include "nodemanager/service/lost_generations.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/generation.h"

namespace onepiece::nodemanager {

void LostGenerations::Clear() {
  const base::MutexLock lock(mutex_);
  believed_.clear();
  refused_.clear();
  last_.reset();
  due_.reset();
}

absl::Status LostGenerations::Look(const v1::ReportNodeRequest& report, std::uint64_t epoch,
                                   const std::string& cluster_id) {
  const std::uint64_t seen = report.routing_epoch();
  // An older program does not say of which cluster its table is, and a node that has come from
  // another cluster may still have that one's.
  if (seen <= epoch || report.cluster_id().empty() || report.cluster_id() != cluster_id)
    return absl::OkStatus();
  const std::uint32_t theirs = base::GenerationOf(seen), ours = base::GenerationOf(epoch);
  const base::MutexLock lock(mutex_);
  if (theirs > ours + kMaxStep || theirs >= base::kMaxGeneration) {
    absl::Status bad =
        base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_EPOCH",
                        absl::StrCat("routing_epoch: the node says that it has a table of epoch ",
                                     base::FormatEpoch(seen), ", and this cluster is at ",
                                     base::FormatEpoch(epoch), ": restart it"),
                        {{"field", "routing_epoch"}});
    if (refused_.size() < kMaxNodes && refused_.insert(report.node_id()).second)
      spdlog::error("op=report node={} error=\"{}\"", report.node_id(), base::Message(bad));
    return bad;
  }
  const base::MonotonicTime now = clock_.Now();
  if ((last_ && now - *last_ < base::Scaled(kInterval)) || believed_.size() >= kMaxNodes ||
      !believed_.insert(report.node_id()).second)
    return absl::OkStatus();
  last_ = now;
  due_.emplace();
  due_->set_generation(theirs + 1);
  due_->set_cause("reports");
  due_->set_detail(absl::StrCat("node ", report.node_id(), " has seen epoch ",
                                base::FormatEpoch(seen), ", and the state was at ",
                                base::FormatEpoch(epoch)));
  return absl::OkStatus();
}

std::optional<v1::BeginGeneration> LostGenerations::Due() {
  const base::MutexLock lock(mutex_);
  return std::exchange(due_, std::nullopt);
}

void LostGenerations::TryAgain() {
  const base::MutexLock lock(mutex_);
  believed_.clear();
}

bool LostGenerations::IsBehind(std::uint64_t epoch, const v1::BeginGeneration& due) {
  return base::GenerationOf(epoch) < due.generation();
}

}  // namespace onepiece::nodemanager
