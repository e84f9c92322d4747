#include "cluster/rpc/answer_guard.h"

#include <algorithm>
#include <iterator>

#include "grpcpp/server_context.h"

namespace onepiece::rpc {
namespace {

constexpr int kSlowShare = 30;  // An answer is slow after this part of the limit.

}  // namespace

AnswerGuard::AnswerGuard(base::Duration limit, std::size_t crowd)
    : limit_(limit),
      crowd_(crowd),
      thread_([this](const std::stop_token& stop) { CancelOld(stop); }) {}

AnswerGuard::Answer::Answer(AnswerGuard& guard, grpc::ServerContextBase& context) : guard_(guard) {
  const base::MutexLock lock(guard_.mutex_);
  entry_ = guard_.answers_.insert(guard_.answers_.end(), {&context, base::SystemClock().Now()});
}

AnswerGuard::Answer::~Answer() {
  const base::MutexLock lock(guard_.mutex_);
  guard_.answers_.erase(entry_);
}

void AnswerGuard::CancelOld(const std::stop_token& stop) {
  const base::Duration slow = limit_ / kSlowShare;
  while (base::SystemClock().Pause(stop, slow)) {
    const base::MonotonicTime now = base::SystemClock().Now();
    // Under the lock: a call whose Answer is there is alive. A second cancellation has no effect.
    const base::MutexLock lock(mutex_);
    const auto first_quick = std::ranges::find_if(
        answers_, [&](const Answer::Entry& answer) { return now < answer.since + slow; });
    auto left = static_cast<std::size_t>(std::distance(answers_.begin(), first_quick));
    for (auto answer = answers_.begin(); answer != first_quick; ++answer, --left) {
      if (left <= crowd_ && now < answer->since + limit_) break;
      answer->context->TryCancel();
    }
  }
}

}  // namespace onepiece::rpc
