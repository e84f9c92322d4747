// Shares out a server's places for streams, so that one client cannot take them all.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "grpcpp/server_context.h"

namespace onepiece::rpc {

/// Whom a call comes from, as far as shares are concerned: one connection, by the peer's address
/// and port. Many users can share an address: behind a gateway, or on one machine.
class ShareHolder {
 public:
  explicit ShareHolder(std::string name) : name_(std::move(name)) {}
  static ShareHolder Of(const grpc::ServerContextBase& context) {
    return ShareHolder(context.peer());
  }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// Places for one kind of stream. A caller gets another place while it holds fewer than are free.
/// A caller alone gets half of all places, and n greedy callers get 1/(n + 1) each, so one more
/// caller finds a place at any time.
///
/// Threading: may be used from any thread.
/// Blocking: never.
class StreamShares {
 public:
  struct Options {
    std::size_t places = 0;  ///< In all.
    /// Of a refusal. The message says what is shared and what the caller can do.
    std::string reason, what, advice;
  };
  explicit StreamShares(Options options) : options_(std::move(options)) {}
  StreamShares(const StreamShares&) = delete;
  StreamShares& operator=(const StreamShares&) = delete;

  /// Holds a place until it is destroyed. It may be empty.
  ///
  /// Ownership: borrows the shares, which must outlive it.
  /// Threading: used by one thread at a time.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept
        : shares_(std::exchange(other.shares_, nullptr)), caller_(std::move(other.caller_)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(shares_, other.shares_);
      std::swap(caller_, other.caller_);
      return *this;
    }
    ~Place() {
      if (shares_ != nullptr) shares_->GiveBack(caller_);
    }

   private:
    friend class StreamShares;
    Place(StreamShares& shares, std::string caller)
        : shares_(&shares), caller_(std::move(caller)) {}
    StreamShares* shares_ = nullptr;
    std::string caller_;
  };

  /// Errors: RESOURCE_EXHAUSTED with the reason of the options and RetryInfo.
  absl::StatusOr<Place> Take(const ShareHolder& caller);
  [[nodiscard]] std::size_t taken() const;

 private:
  void GiveBack(const std::string& caller);

  const Options options_;
  mutable base::Mutex mutex_;
  std::size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Only of callers that hold a place.
  std::unordered_map<std::string, std::size_t> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::rpc
