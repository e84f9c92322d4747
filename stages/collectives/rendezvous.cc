#include "stages/collectives/rendezvous.h"

#include <utility>

#include "cluster/base/check.h"
#include "cluster/base/status.h"

namespace onepiece::collectives {

absl::Status CheckRound(const std::vector<std::string>& texts, std::uint32_t workers) {
  const auto bad = [](const std::string& what) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_ROUND", what);
  };
  if (texts.size() != workers) {
    return bad(std::to_string(texts.size()) + " texts for " + std::to_string(workers) + " workers");
  }
  for (const std::string& text : texts) {
    if (text.size() > kMaxTextBytes) {
      return bad("a text of " + std::to_string(text.size()) + " bytes is too long");
    }
  }
  return absl::OkStatus();
}

class LocalMeeting::Seat final : public Rendezvous {
 public:
  Seat(LocalMeeting& meeting, std::uint32_t index) : meeting_(meeting), index_(index) {}
  absl::StatusOr<std::vector<std::string>> Exchange(std::vector<std::string> texts,
                                                    base::MonotonicTime deadline) override {
    return meeting_.Exchange(index_, std::move(texts), deadline);
  }

 private:
  LocalMeeting& meeting_;
  const std::uint32_t index_;
};

std::unique_ptr<Rendezvous> LocalMeeting::Join(std::uint32_t index) {
  return std::make_unique<Seat>(*this, index);
}

absl::StatusOr<std::vector<std::string>> LocalMeeting::Exchange(std::uint32_t index, Texts texts,
                                                                base::MonotonicTime deadline) {
  base::MutexLock lock(mutex_);
  const auto workers = static_cast<std::uint32_t>(texts_.size());
  ONEPIECE_RETURN_IF_ERROR(CheckRound(texts, workers));
  ONEPIECE_CHECK(index < workers && texts_[index].empty());
  texts_[index] = std::move(texts);
  const std::uint64_t round = round_;
  if (++came_ == workers) {
    last_ = std::exchange(texts_, std::vector<Texts>(workers));
    came_ = 0;
    ++round_;
    changed_.NotifyAll();
  }
  const bool all = clock_.WaitUntil(changed_, lock, {}, deadline, [this, round] {
    mutex_.AssertHeld();
    return round_ != round;
  });
  if (!all) {
    texts_[index].clear();
    --came_;
    return base::MakeError(absl::StatusCode::kDeadlineExceeded, "NOT_ALL_CAME",
                           std::to_string(workers - came_ - 1) + " of " + std::to_string(workers) +
                               " workers did not come");
  }
  // Nobody overwrites last_ before this worker has taken part in the next round.
  Texts mine;
  for (std::uint32_t from = 0; from < workers; ++from) mine.push_back(last_[from][index]);
  return mine;
}

}  // namespace onepiece::collectives
