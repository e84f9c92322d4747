// Ends calls whose answer is not taken.
#pragma once

#include <list>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"

namespace grpc {
class ServerContextBase;
}

namespace onepiece::rpc {

/// A client that opens no window for an answer would hold the call, and in a synchronous handler
/// its thread, for as long as it answers pings. The guard cancels calls whose answer is complete
/// and has not gone for `limit`. When more than kCrowd have not gone for a thirtieth of that, it
/// cancels the oldest of them, so that there are always threads for others.
///
/// Threading: thread-safe. It has one thread of its own.
class AnswerGuard {
 public:
  /// A quarter of ServerOptions::max_threads.
  static constexpr std::size_t kCrowd = 64;
  explicit AnswerGuard(base::Duration limit, std::size_t crowd = kCrowd);
  AnswerGuard(const AnswerGuard&) = delete;
  AnswerGuard& operator=(const AnswerGuard&) = delete;

  /// One call, from the moment when it is answered until gRPC is done with it. It borrows the guard
  /// and the call's context, and must go before they do.
  class Answer {
   public:
    Answer(AnswerGuard& guard, grpc::ServerContextBase& context);
    ~Answer();
    Answer(const Answer&) = delete;
    Answer& operator=(const Answer&) = delete;

   private:
    struct Entry;
    AnswerGuard& guard_;
    std::list<Entry>::iterator entry_;
    friend class AnswerGuard;
  };

 private:
  void CancelOld(const std::stop_token& stop);

  const base::Duration limit_;
  const std::size_t crowd_;
  base::Mutex mutex_;
  std::list<Answer::Entry> answers_ ABSL_GUARDED_BY(mutex_);  // The oldest is the first.
  std::jthread thread_;                                       // Last: ends before what it uses.
};

struct AnswerGuard::Answer::Entry {
  grpc::ServerContextBase* context;
  base::MonotonicTime since;
};

}  // namespace onepiece::rpc
