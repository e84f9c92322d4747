// Groups whose workers are threads of the test, for tests of what computes by a group. Counts the
// bytes that move between workers.
#pragma once

#include <c10/core/InferenceMode.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "stages/sdk/group.h"
#include "stages/tensor/compute.h"

namespace onepiece::testing {

/// The mailboxes between all workers.
///
/// Threading: thread-safe.
class ThreadWorld {
 public:
  /// From whom to whom, of which job and epoch.
  using Way = std::tuple<std::string, std::uint64_t, std::uint32_t, std::uint32_t>;
  struct Packet {
    std::string operation;
    std::string bytes;
  };

  void Send(const Way& way, Packet packet) {
    const std::lock_guard lock(mutex_);
    if (std::get<2>(way) != std::get<3>(way)) bytes_ += packet.bytes.size();
    mail_[way].push_back(std::move(packet));
    arrived_.notify_all();
  }
  /// Returns false if nothing has come by the deadline.
  bool Receive(const Way& way, sdk::Group::Deadline deadline, Packet& packet) {
    std::unique_lock lock(mutex_);
    std::deque<Packet>& mail = mail_[way];  // References to a map's values stay valid.
    if (!arrived_.wait_until(lock, deadline, [&] { return !mail.empty(); })) return false;
    packet = std::move(mail.front());
    mail.pop_front();
    return true;
  }
  /// Returns the bytes that have moved since the last call.
  std::size_t TakeBytes() {
    const std::lock_guard lock(mutex_);
    return std::exchange(bytes_, 0);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Way, std::deque<Packet>> mail_;
  std::size_t bytes_ = 0;
};

/// One worker's view of a group.
class ThreadGroup final : public sdk::Group {
 public:
  ThreadGroup(ThreadWorld& world, sdk::GroupDescriptor descriptor, int rank)
      : world_(world), descriptor_(std::move(descriptor)), rank_(rank) {}

  const sdk::GroupDescriptor& descriptor() const override { return descriptor_; }
  int rank() const override { return rank_; }

  absl::Status Broadcast(Bytes data, int root, Deadline deadline) override {
    if (rank_ != root) return Get("broadcast", root, data, deadline);
    for (int to = 0; to < size(); ++to)
      if (to != root) Put("broadcast", to, data);
    return status_;
  }

  absl::Status AllGather(ConstBytes part, Sizes sizes, Bytes all, Deadline deadline) override {
    if (absl::Status bad = CheckSizes(sizes, part.size(), all.size()); !bad.ok()) return bad;
    for (int to = 0; to < size(); ++to) Put("all_gather", to, part);
    std::size_t begin = 0;
    for (int from = 0; from < size(); ++from) {
      const std::size_t count = sizes[static_cast<std::size_t>(from)];
      Get("all_gather", from, all.subspan(begin, count), deadline).IgnoreError();
      begin += count;
    }
    return status_;
  }

  absl::Status ReduceScatter(ConstBytes, Sizes, Bytes, sdk::ElementType, sdk::Reduction,
                             Deadline) override {
    return absl::UnimplementedError("no test needs it");
  }
  absl::Status AllReduce(Bytes, sdk::ElementType, sdk::Reduction, Deadline) override {
    return absl::UnimplementedError("no test needs it");
  }

  absl::Status AllToAll(ConstBytes sent, Sizes send_sizes, Bytes received, Sizes receive_sizes,
                        Deadline deadline) override {
    std::size_t begin = 0;
    for (int to = 0; to < size(); ++to) {
      const std::size_t count = send_sizes[static_cast<std::size_t>(to)];
      if (begin + count > sent.size()) return absl::InvalidArgumentError("BAD_SHAPE");
      Put("all_to_all", to, sent.subspan(begin, count));
      begin += count;
    }
    begin = 0;
    for (int from = 0; from < size(); ++from) {
      const std::size_t count = receive_sizes[static_cast<std::size_t>(from)];
      if (begin + count > received.size()) return absl::InvalidArgumentError("BAD_SHAPE");
      Get("all_to_all", from, received.subspan(begin, count), deadline).IgnoreError();
      begin += count;
    }
    return status_;
  }

  absl::Status StartExchange(ConstBytes sent, int to, Bytes received, int from,
                             Deadline deadline) override {
    Put("exchange", to, sent);
    received_ = received;
    from_ = from;
    (void)deadline;
    return status_;
  }
  absl::Status FinishExchange(Deadline deadline) override {
    return Get("exchange", from_, received_, deadline);
  }

  absl::Status Barrier(Deadline deadline) override {
    for (int to = 0; to < size(); ++to) Put("barrier", to, {});
    for (int from = 0; from < size(); ++from) Get("barrier", from, {}, deadline).IgnoreError();
    return status_;
  }

 private:
  absl::Status CheckSizes(Sizes sizes, std::size_t part, std::size_t all) const {
    std::size_t total = 0;
    for (const std::size_t size_of_one : sizes) total += size_of_one;
    const bool fits = sizes.size() == static_cast<std::size_t>(size()) && total == all &&
                      sizes[static_cast<std::size_t>(rank_)] == part;
    return fits ? absl::OkStatus() : absl::InvalidArgumentError("BAD_SHAPE");
  }
  ThreadWorld::Way WayOf(int from, int to) const {
    return {descriptor_.job, descriptor_.epoch, descriptor_.members[static_cast<std::size_t>(from)],
            descriptor_.members[static_cast<std::size_t>(to)]};
  }
  void Put(const char* operation, int to, ConstBytes bytes) {
    world_.Send(WayOf(rank_, to),
                {operation, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  absl::Status Get(const char* operation, int from, Bytes bytes, Deadline deadline) {
    if (!status_.ok()) return status_;
    ThreadWorld::Packet packet;
    if (!world_.Receive(WayOf(from, rank_), deadline, packet)) {
      status_ = sdk::RankError(absl::StatusCode::kDeadlineExceeded, "RANK_SILENT", from, operation);
    } else if (packet.operation != operation || packet.bytes.size() != bytes.size()) {
      status_ = sdk::RankError(absl::StatusCode::kAborted, "RANK_DIFFERS", from,
                               packet.operation + " instead of " + operation);
    } else if (!bytes.empty()) {
      std::memcpy(bytes.data(), packet.bytes.data(), bytes.size());
    }
    return status_;
  }

  ThreadWorld& world_;
  const sdk::GroupDescriptor descriptor_;
  const int rank_;
  Bytes received_;
  int from_ = 0;
  absl::Status status_;
};

/// A deadline for collective calls that no sound run comes near.
inline sdk::Group::Deadline Patience() {
  return base::SystemClock().Now() + base::Scaled(std::chrono::seconds(60));
}

/// Runs `work` on `count` threads, each with one compute thread and in inference mode, and returns
/// what each gave.
template <typename Result>
std::vector<absl::StatusOr<Result>> RunWorkers(
    int count, const std::function<absl::StatusOr<Result>(std::uint32_t worker)>& work) {
  std::vector<absl::StatusOr<Result>> results(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int worker = 0; worker < count; ++worker) {
    threads.emplace_back([&, worker] {
      tensor::SetComputeThreads(1);
      results[static_cast<std::size_t>(worker)] =
          tensor::Guarded([&] { return work(static_cast<std::uint32_t>(worker)); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

/// Returns a descriptor whose members are the workers 0, 1, … count - 1.
inline sdk::GroupDescriptor FirstWorkers(int count, std::string job = "job",
                                         std::uint64_t epoch = 1) {
  sdk::GroupDescriptor group{.job = std::move(job), .epoch = epoch};
  for (int worker = 0; worker < count; ++worker)
    group.members.push_back(static_cast<std::uint32_t>(worker));
  return group;
}

}  // namespace onepiece::testing
