#include "cluster/session/log_tail.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <map>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/status.h"
#include "cluster/session/link.h"
#include "onepiece/v1/telemetry.grpc.pb.h"

namespace onepiece::session {
namespace {

// Servers keep no more lines than this.
constexpr int kMaxBacklog = 1000;
constexpr std::chrono::milliseconds kFirstPause(250);
constexpr std::chrono::seconds kMaxPause(5);
// A stream is opened anew after this long, so that a process that stands still is noticed.
constexpr std::chrono::seconds kStreamTurn(60);

}  // namespace

class LogTail::Impl {
 public:
  Impl(v1::LogLevel min_level, int backlog, std::string user_agent)
      : min_level_(min_level), backlog_(backlog), user_agent_(std::move(user_agent)) {}

  ~Impl() {
    // All threads are told before the first is joined, so their calls end at the same time.
    for (auto& [process, thread] : threads_) thread.request_stop();
  }

  void Follow(const std::vector<v1::Node>& nodes) {
    std::map<Process, std::string> wanted;  // Node ids, for Forget().
    for (const v1::Node& node : nodes) {
      if (wanted.size() == kMaxProcesses) break;
      if (!node.address().empty())
        wanted[{node.node_id(), node.incarnation(), node.address()}] = node.node_id();
    }
    std::map<Process, std::jthread> left;
    const base::MutexLock lock(threads_mutex_);
    for (auto at = threads_.begin(); at != threads_.end();) {
      if (wanted.contains(at->first)) {
        ++at;
        continue;
      }
      at->second.request_stop();
      left.insert(threads_.extract(at++));
    }
    // This joins the threads before Forget(). Otherwise one of them could still add an error of a
    // process that nobody follows.
    left.clear();
    Forget(wanted);
    for (const auto& [process, id] : wanted) {
      if (threads_.contains(process)) continue;
      threads_[process] = std::jthread(
          [this, process = process](const std::stop_token& stop) { Run(process, stop); });
    }
  }

  News Take() {
    News news;
    {
      const base::MutexLock lock(mutex_);
      news.entries.assign(std::make_move_iterator(waiting_.begin()),
                          std::make_move_iterator(waiting_.end()));
      waiting_.clear();
      news.dropped = std::exchange(dropped_, 0);
      news.unreachable.assign(unreachable_.begin(), unreachable_.end());
    }
    std::ranges::stable_sort(news.entries, {},
                             [](const LogEntry& entry) { return entry.line.unix_ns(); });
    return news;
  }

 private:
  /// One start of a process.
  struct Process {
    std::string node_id;
    std::uint64_t incarnation = 0;
    std::string address;
    auto operator<=>(const Process&) const = default;
  };

  void Run(const Process& process, const std::stop_token& stop) {
    const auto channel = rpc::MakeChannel(process.address, {}, user_agent_);
    v1::TelemetryService::Stub stub(channel);
    base::Duration pause = kFirstPause;
    std::uint64_t last = 0;  // The number of the last line that was taken.
    while (!stop.stop_requested()) {
      bool answered = false;
      const grpc::Status end = Read(stub, process, last, answered, stop);
      if (stop.stop_requested()) return;
      if (answered) pause = kFirstPause;
      if (answered && end.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) continue;
      {
        const base::MutexLock lock(mutex_);
        unreachable_[process.node_id] =
            end.ok() ? "the process has ended the stream" : Explain(rpc::FromGrpc(end));
      }
      if (!base::SystemClock().Pause(stop, pause)) return;
      pause = std::min<base::Duration>(pause * 2, kMaxPause);
    }
  }

  grpc::Status Read(v1::TelemetryService::Stub& stub, const Process& process, std::uint64_t& last,
                    bool& answered, const std::stop_token& stop) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kStreamTurn);
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    v1::TailLogsRequest request;
    request.set_min_level(min_level_);
    // Lines that came while the stream was broken are in the server's past now, so a new stream
    // asks for the whole backlog and skips the known lines.
    request.set_backlog(last == 0 ? std::clamp(backlog_, 0, kMaxBacklog) : kMaxBacklog);
    const auto reader = stub.TailLogs(&context, request);
    v1::TailLogsResponse response;
    while (reader->Read(&response)) {
      answered = true;
      const base::MutexLock lock(mutex_);
      if (stop.stop_requested()) continue;  // Nobody follows this process any more.
      unreachable_.erase(process.node_id);
      dropped_ += response.dropped();
      for (v1::LogLine& line : *response.mutable_lines()) {
        // A process that has restarted counts from the beginning. It is another Process here, with
        // a `last` of its own.
        if (line.number() <= last) continue;
        last = line.number();
        waiting_.push_back({process.node_id, std::move(line)});
      }
      while (waiting_.size() > kMaxWaiting) {
        waiting_.pop_front();
        ++dropped_;
      }
    }
    return reader->Finish();
  }

  /// Forgets the errors of processes that are no longer followed.
  void Forget(const std::map<Process, std::string>& wanted) {
    const base::MutexLock lock(mutex_);
    std::erase_if(unreachable_, [&](const auto& entry) {
      return std::ranges::none_of(wanted,
                                  [&](const auto& one) { return one.second == entry.first; });
    });
  }

  const v1::LogLevel min_level_;
  const int backlog_;
  const std::string user_agent_;
  base::Mutex threads_mutex_;

  base::Mutex mutex_ ABSL_ACQUIRED_AFTER(threads_mutex_);
  std::deque<LogEntry> waiting_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  // The errors, by node id.
  std::map<std::string, std::string> unreachable_ ABSL_GUARDED_BY(mutex_);

  // Last: they use the others.
  std::map<Process, std::jthread> threads_ ABSL_GUARDED_BY(threads_mutex_);
};

LogTail::LogTail(v1::LogLevel min_level, int backlog, std::string user_agent)
    : impl_(std::make_unique<Impl>(min_level, backlog, std::move(user_agent))) {}
LogTail::~LogTail() = default;

void LogTail::Follow(const std::vector<v1::Node>& nodes) { impl_->Follow(nodes); }

LogTail::News LogTail::Take() { return impl_->Take(); }

}  // namespace onepiece::session
