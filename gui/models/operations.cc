#include "gui/models/operations.h"

#include <algorithm>

#include "cluster/base/clock.h"

namespace onepiece::gui {
namespace {

std::int64_t NowMs() { return base::ToUnixMs(base::SystemClock().WallNow()); }

}  // namespace

int OperationLog::Begin(const QString& what) {
  // An operation under way stays even if the list grows beyond kMax: its End() must find it.
  if (all_.size() >= kMax) {
    const auto oldest = std::find_if(all_.rbegin(), all_.rend(),
                                     [](const Operation& one) { return one.ended_ms != 0; });
    if (oldest != all_.rend()) all_.erase(std::next(oldest).base());
  }
  all_.push_front({.number = ++last_, .what = what, .asked_ms = NowMs()});
  Q_EMIT Changed();
  return last_;
}

Operation* OperationLog::Find(int number) {
  const auto found = std::find_if(all_.begin(), all_.end(), [number](const Operation& one) {
    return one.number == number && one.ended_ms == 0;
  });
  return found == all_.end() ? nullptr : &*found;
}

void OperationLog::Note(int number, const QString& note) {
  Operation* const one = Find(number);
  if (one == nullptr || one->note == note) return;
  one->note = note;
  Q_EMIT Changed();
}

void OperationLog::End(int number, const absl::Status& outcome, const QString& note) {
  Operation* const one = Find(number);
  if (one == nullptr) return;
  one->ended_ms = NowMs();
  one->outcome = outcome;
  one->note = note;
  Q_EMIT Changed();
}

}  // namespace onepiece::gui
