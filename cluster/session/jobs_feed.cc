// Follows the jobs of every workflow set. It asks each set's own proxies. A list from another set's
// proxy, or a list that is short because a call failed, must not look like jobs that are gone.
#include <algorithm>
#include <deque>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/rpc/replicas.h"
#include "cluster/session/fan_out.h"
#include "cluster/session/job_table.h"
#include "onepiece/v1/generation.grpc.pb.h"

namespace onepiece::session {
namespace {

using GenerationStub = v1::GenerationService::Stub;
using base::Duration;
using base::MonotonicTime;

constexpr std::size_t kMaxSets = 32;
constexpr std::size_t kProxiesTried = 3;
// The first page is small, so that it comes soon. The others are large, so that there are few.
constexpr int kFirstPage = 100, kPage = 1000;
constexpr std::chrono::seconds kPageTimeout(5);
// The largest number of pages of each kind of list in one poll.
constexpr int kPagesPerPoll = 10;
constexpr std::size_t kGetsPerPoll = 500;
// A list may miss a job that another proxy has created with an older time, so the whole list is
// asked for this often.
constexpr std::chrono::minutes kRelist(5);
constexpr std::chrono::milliseconds kJobsPublishInterval(250);

/// Follows one workflow set.
class SetFeed {
 public:
  SetFeed(Feeds& feeds, JobTable& table, std::string set)
      : feeds_(feeds), table_(table), set_(std::move(set)), turns_(feeds.board.turns()) {}

  void Run(const std::stop_token& stop) {
    Duration pause = feeds_.options.poll_interval;
    for (;;) {
      LookAtTurns();
      const absl::Status status = Poll(stop);
      if (stop.stop_requested()) return;
      if (rpc::IsAboutTheReplica(status)) Lose();
      Publish(status);
      if (status.ok() && listing_) continue;
      pause = status.ok() ? feeds_.options.poll_interval
                          : std::min(pause * 2, std::max(feeds_.options.max_backoff, pause));
      if (!feeds_.board.Sleep(pause, stop, wakes_)) return;
    }
  }

 private:
  /// Begins anew after a lost connection, with all jobs in doubt.
  void Lose() {
    if (!relist_) table_.Doubt(set_);
    Relist();
  }
  void Relist() {
    relist_ = true;
    listing_ = scanning_ = false;
    untold_.clear();
  }
  void LookAtTurns() {
    const Turns now = feeds_.board.turns();
    if (now.clusters != turns_.clusters) {
      table_.Forget(set_);
      listed_ = false;
    }
    if (now.losses != turns_.losses) {
      Lose();
    } else if (now.resyncs != turns_.resyncs || now.clusters != turns_.clusters) {
      Relist();
    }
    turns_ = now;
    if (base::SystemClock().Now() >= next_relist_) relist_ |= !listing_;
  }

  absl::Status Poll(const std::stop_token& stop) {
    const bool first = relist_;
    if (relist_) {
      relist_ = false;
      listing_ = true;
      // The mark comes before the first page, so a job that another list tells of meanwhile is not
      // taken for missing.
      list_mark_ = table_.Mark();
      list_request_ = Page(kFirstPage);
      told_ = 0;
      next_relist_ = base::SystemClock().Now() + kRelist;
    }
    if (listing_) ONEPIECE_RETURN_IF_ERROR(ContinueList(stop));
    // A list that begins now has just told the newest jobs.
    if (!first) ONEPIECE_RETURN_IF_ERROR(AskNewest(stop));
    ONEPIECE_RETURN_IF_ERROR(ScanActive(stop));
    return AskUntold(stop);
  }

  absl::Status ContinueList(const std::stop_token& stop) {
    for (int page = 0; page < kPagesPerPoll; ++page) {
      ONEPIECE_ASSIGN_OR_RETURN(v1::ListJobsResponse answer, List(list_request_, stop));
      told_ += static_cast<std::size_t>(answer.jobs_size());
      table_.Told(set_, std::move(*answer.mutable_jobs()));
      list_request_.set_page_size(kPage);
      list_request_.set_page_token(answer.next_page_token());
      if (answer.next_page_token().empty() || told_ >= feeds_.options.max_jobs) {
        listing_ = false;
        listed_ = answer.next_page_token().empty();
        Doubtful(table_.Untold(set_, list_mark_, false), list_mark_);
        break;
      }
      if (base::SystemClock().Now() >= next_publish_) Publish(absl::OkStatus());
    }
    return absl::OkStatus();
  }

  /// Asks for the newest jobs down to a known one. If the gap is too wide, a whole list fills it.
  absl::Status AskNewest(const std::stop_token& stop) {
    v1::ListJobsRequest request = Page(kFirstPage);
    for (int page = 0; page < kPagesPerPoll; ++page) {
      ONEPIECE_ASSIGN_OR_RETURN(v1::ListJobsResponse answer, List(request, stop));
      if (table_.Told(set_, std::move(*answer.mutable_jobs()))) return absl::OkStatus();
      if (answer.next_page_token().empty()) return absl::OkStatus();
      request.set_page_size(kPage);
      request.set_page_token(answer.next_page_token());
    }
    relist_ |= !listing_;
    return absl::OkStatus();
  }

  /// Lists all jobs that have not ended, over as many polls as it takes. A job that has left this
  /// list is asked for by name.
  absl::Status ScanActive(const std::stop_token& stop) {
    if (!scanning_) {
      scanning_ = true;
      scan_mark_ = table_.Mark();
      scan_request_ = Page(kPage);
      scan_request_.add_states(v1::Job::QUEUED);
      scan_request_.add_states(v1::Job::RUNNING);
    }
    for (int page = 0; page < kPagesPerPoll; ++page) {
      ONEPIECE_ASSIGN_OR_RETURN(v1::ListJobsResponse answer, List(scan_request_, stop));
      table_.Told(set_, std::move(*answer.mutable_jobs()));
      scan_request_.set_page_token(answer.next_page_token());
      if (!answer.next_page_token().empty()) continue;
      scanning_ = false;
      Doubtful(table_.Untold(set_, scan_mark_, true), scan_mark_);
      break;
    }
    return absl::OkStatus();
  }

  /// Asks for single jobs that a list lacked, because a missing line does not prove that a job is
  /// gone.
  absl::Status AskUntold(const std::stop_token& stop) {
    std::vector<v1::GetJobRequest> requests;
    std::vector<std::string> uids;
    while (!untold_.empty() && uids.size() < kGetsPerPoll) {
      auto [uid, mark] = std::move(untold_.front());
      untold_.pop_front();
      if (!table_.IsUntold(uid, mark)) continue;
      requests.emplace_back().set_name(client::JobName(uid));
      uids.push_back(std::move(uid));
    }
    const std::vector<std::string> proxies = Proxies();
    if (uids.empty() || proxies.empty()) return absl::OkStatus();
    auto answers = AskAll(std::vector(requests.size(), feeds_.channels.To(proxies.front())),
                          requests, &GenerationStub::PrepareAsyncGetJob, kReadTimeout, stop);
    absl::Status failed;
    google::protobuf::RepeatedPtrField<v1::Job> told;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].ok()) {
        *told.Add() = *std::move(answers[i]);
      } else if (absl::IsNotFound(answers[i].status())) {
        table_.Gone(uids[i]);
      } else {
        failed = answers[i].status();
      }
    }
    table_.Told(set_, std::move(told));
    return failed;
  }

  void Doubtful(std::vector<std::string> uids, std::uint64_t mark) {
    if (untold_.size() > feeds_.options.max_jobs)
      untold_.clear();  // The next list finds them again.
    for (std::string& uid : uids) untold_.emplace_back(std::move(uid), mark);
  }

  static v1::ListJobsRequest Page(int size) {
    v1::ListJobsRequest request;
    request.set_page_size(size);
    return request;
  }

  /// Returns the addresses of the set's own proxies. The one that answered last comes first.
  std::vector<std::string> Proxies() const {
    std::vector<std::string> addresses;
    const auto cluster = feeds_.board.cluster();
    for (const v1::Node& node : cluster->nodes()) {
      if (node.role() == v1::PROXY && node.workflow_set() == set_ &&
          node.state() != v1::Node::DEAD && !node.address().empty())
        addresses.push_back(node.address());
    }
    std::stable_partition(addresses.begin(), addresses.end(),
                          [this](const auto& one) { return one == answered_; });
    return addresses;
  }

  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request,
                                            const std::stop_token& stop) {
    absl::Status last = base::MakeError(absl::StatusCode::kUnavailable, "NO_PROXY",
                                        "no proxy of the workflow set lives");
    std::size_t tried = 0;
    for (const std::string& address : Proxies()) {
      if (++tried > kProxiesTried || stop.stop_requested()) break;
      GenerationStub stub(feeds_.channels.To(address));
      auto answer = Ask(stub, &GenerationStub::ListJobs, request, kPageTimeout, stop);
      if (answer.ok() || !rpc::IsAboutTheReplica(answer.status())) {
        answered_ = address;
        return answer;
      }
      last = answer.status();
    }
    return last;
  }

  void Publish(const absl::Status& status) {
    table_.SetState(set_, listed_, status.ok() ? "" : Explain(status));
    table_.Publish(feeds_.board);
    next_publish_ = base::SystemClock().Now() + kJobsPublishInterval;
  }

  Feeds& feeds_;
  JobTable& table_;
  const std::string set_;
  Turns turns_;
  std::uint64_t wakes_ = 0;
  std::string answered_;  // The proxy that answered last.
  bool listed_ = false;   // A whole list has come to its end.
  bool relist_ = true, listing_ = false, scanning_ = false;
  std::size_t told_ = 0;  // Jobs told by the present list.
  std::uint64_t list_mark_ = 0, scan_mark_ = 0;
  v1::ListJobsRequest list_request_, scan_request_;
  std::deque<std::pair<std::string, std::uint64_t>> untold_;  // Uids, and the mark of their list.
  MonotonicTime next_relist_, next_publish_;
};

std::set<std::string> SetsOf(const v1::Cluster& cluster) {
  std::set<std::string> sets;
  for (const v1::Node& node : cluster.nodes()) {
    if (node.role() == v1::PROXY) sets.insert(node.workflow_set());
  }
  return sets;
}

}  // namespace

void FollowJobs(Feeds& feeds, const std::stop_token& stop) {
  JobTable table(feeds.options.max_jobs);
  std::uint64_t wakes = 0;
  // This comes after `table`, because its threads use the table and are joined first.
  std::map<std::string, std::jthread> followed;
  do {
    const auto cluster = feeds.board.cluster();
    // `continue` goes to the Sleep() below, not past it.
    if (cluster == nullptr) continue;
    const std::set<std::string> sets = SetsOf(*cluster);
    if (sets.empty() && followed.empty())
      feeds.board.Fail(&Snapshot::jobs, "the cluster has no proxy, which could tell of jobs");
    for (const std::string& set : sets) {
      if (followed.size() >= kMaxSets && !followed.contains(set)) {
        table.SetState(set, false, absl::StrCat("not followed: more than ", kMaxSets, " sets"));
        continue;
      }
      auto& thread = followed[set];
      if (thread.joinable()) continue;
      thread = std::jthread([&feeds, &table, set, stop] { SetFeed(feeds, table, set).Run(stop); });
    }
  } while (feeds.board.Sleep(feeds.options.poll_interval, stop, wakes));
}

}  // namespace onepiece::session
