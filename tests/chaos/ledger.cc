#include "tests/chaos/ledger.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cluster/client/client.h"

namespace onepiece::ledger {
namespace {

using v1::Job;

constexpr std::size_t kMaxWentBack = 5;  // Of one job; the first one is the finding.

std::string NameOf(const Word& end) {
  std::string name = Job::State_Name(end.state);
  if (end.state == Job::FAILED) absl::StrAppend(&name, " ", end.reason);
  return name;
}

bool SameEnd(const Word& one, const Word& other) {
  return one.state == other.state && one.reason == other.reason;
}

double Seconds(base::Duration time) { return std::chrono::duration<double>(time).count(); }

/// For a text: the proxy, and the time since the job was sent.
std::string Where(const Word& word, const Order& order) {
  return absl::StrCat(NameOf(word), " at ", word.proxy, " after ", Seconds(word.had - order.sent),
                      " s");
}

}  // namespace

Word WordOf(const Job& job, std::string proxy, base::MonotonicTime asked, base::MonotonicTime had) {
  Word word{.proxy = std::move(proxy), .asked = asked, .had = had, .state = job.state()};
  if (job.state() == Job::FAILED) word.reason = job.error().reason();
  if (job.result().artifacts_size() > 0) word.sha256 = job.result().artifacts(0).sha256();
  return word;
}

std::map<std::string, std::int64_t> Verdict::ByKind() const {
  std::map<std::string, std::int64_t> kinds;
  for (const Violation& violation : violations) ++kinds[violation.kind];
  return kinds;
}

void Ledger::Accepted(const std::string& uid, const Order& order) {
  const base::MutexLock lock(mutex_);
  entries_[uid].order = order;
}

void Ledger::Told(const std::string& uid, const Word& word) {
  const base::MutexLock lock(mutex_);
  Entry& entry = entries_.at(uid);
  if (entry.delete_answered) ++entry.came_back;
  if (client::IsTerminal(word.state)) {
    entry.ended_at.emplace(word.proxy, word.had);
    if (std::ranges::none_of(entry.ends, [&](const Word& end) { return SameEnd(end, word); }))
      entry.ends.push_back(word);
    return;
  }
  // An answer to an earlier question may be on its way when another one tells the end.
  const auto same = entry.ended_at.find(word.proxy);
  if (same != entry.ended_at.end() && same->second <= word.asked) {
    if (entry.went_back.size() < kMaxWentBack) {
      entry.went_back.push_back(absl::StrCat(Where(word, entry.order), ", which had told an end ",
                                             Seconds(word.asked - same->second),
                                             " s before it was asked"));
    }
  } else if (std::ranges::any_of(entry.ended_at,
                                 [&](const auto& end) { return end.second <= word.asked; })) {
    ++entry.lagging;
  }
}

void Ledger::Fetched(const std::string& uid, const std::string& sha256) {
  const base::MutexLock lock(mutex_);
  ++entries_.at(uid).fetched[sha256];
}

void Ledger::Asked(const std::string& uid, Wish wish) {
  const base::MutexLock lock(mutex_);
  Entry& entry = entries_.at(uid);
  switch (wish) {
    case Wish::kCancel:
      entry.cancel_asked = true;
      break;
    case Wish::kDelete:
      entry.delete_asked = true;
      break;
    case Wish::kAcknowledge:
      entry.acknowledge_asked = true;
      break;
  }
}

void Ledger::Answered(const std::string& uid, Wish wish) {
  const base::MutexLock lock(mutex_);
  // The others' answers are words, or say nothing that asking did not.
  if (wish == Wish::kDelete) entries_.at(uid).delete_answered = true;
}

void Ledger::Found(const std::string& uid, Last last) {
  const base::MutexLock lock(mutex_);
  entries_.at(uid).last = last;
}

void Ledger::NotFetched(const std::string& uid, const std::string& why) {
  const base::MutexLock lock(mutex_);
  entries_.at(uid).not_fetched = why;
}

bool Ledger::HasEnd(const std::string& uid) const {
  const base::MutexLock lock(mutex_);
  return !entries_.at(uid).ends.empty();
}

bool Ledger::MustBeThere(const std::string& uid) const {
  const base::MutexLock lock(mutex_);
  return MustBeThere(entries_.at(uid));
}

bool Ledger::MayBeUnknown(const std::string& uid) const {
  const base::MutexLock lock(mutex_);
  return entries_.at(uid).delete_asked;
}

std::vector<std::string> Ledger::Uids() const {
  const base::MutexLock lock(mutex_);
  std::vector<std::string> uids;
  for (const auto& [uid, entry] : entries_) uids.push_back(uid);
  return uids;
}

std::vector<std::string> Ledger::Unfetched(base::MonotonicTime time) const {
  const base::MutexLock lock(mutex_);
  std::vector<std::string> uids;
  for (const auto& [uid, entry] : entries_) {
    if (MustBeThere(entry) && entry.fetched.empty() && Announcement(entry)->had < time)
      uids.push_back(uid);
  }
  return uids;
}

Verdict Ledger::Judge() const {
  const base::MutexLock lock(mutex_);
  Verdict verdict;
  for (const auto& [uid, entry] : entries_) {
    JudgeEnds(uid, entry, verdict);
    JudgeTruth(uid, entry, verdict);
    JudgeResult(uid, entry, verdict);
    Count(entry, verdict);
  }
  return verdict;
}

const Word* Ledger::Announcement(const Entry& entry) {
  const auto found = std::ranges::find(entry.ends, Job::SUCCEEDED, &Word::state);
  return found == entry.ends.end() ? nullptr : &*found;
}

bool Ledger::MustBeThere(const Entry& entry) {
  return Announcement(entry) != nullptr && !entry.acknowledge_asked && !entry.delete_asked &&
         std::ranges::find(entry.ends, Job::EXPIRED, &Word::state) == entry.ends.end();
}

void Ledger::JudgeEnds(const std::string& uid, const Entry& entry, Verdict& verdict) {
  std::vector<const Word*> ends;
  for (const Word& end : entry.ends) {
    if (end.state != Job::EXPIRED) ends.push_back(&end);
  }
  for (std::size_t i = 1; i < ends.size(); ++i) {
    verdict.violations.push_back(
        {"two_ends", uid,
         absl::StrCat(Where(*ends[0], entry.order), ", then ", Where(*ends[i], entry.order))});
  }
  if (!entry.went_back.empty())
    verdict.violations.push_back({"went_back", uid, entry.went_back.front()});
  if (!entry.ends.empty() || entry.delete_asked) return;
  switch (entry.last) {
    case Last::kNotAsked:
      break;  // A run that was not audited says nothing of jobs under way.
    case Last::kUnknown:
      verdict.violations.push_back({"forgotten", uid, "no database knows the job"});
      break;
    case Last::kTold:
      verdict.violations.push_back({"without_end", uid, "the job goes on"});
      break;
    case Last::kSilent:
      verdict.violations.push_back({"without_end", uid, "no proxy answers for the job"});
      break;
  }
}

void Ledger::JudgeTruth(const std::string& uid, const Entry& entry, Verdict& verdict) {
  for (const Word& end : entry.ends) {
    const base::Duration after = end.had - entry.order.sent;
    if (end.state == Job::CANCELLED && !entry.cancel_asked && !entry.delete_asked) {
      verdict.violations.push_back(
          {"untruthful", uid, Where(end, entry.order) + ", which nobody asked for"});
    }
    if (end.reason == "DEADLINE_EXCEEDED" && after < entry.order.deadline) {
      verdict.violations.push_back(
          {"untruthful", uid,
           absl::StrCat(Where(end, entry.order), " of ", Seconds(entry.order.deadline), " s")});
    }
    if (end.state == Job::EXPIRED && after < entry.order.result_ttl) {
      verdict.violations.push_back({"untruthful", uid,
                                    absl::StrCat(Where(end, entry.order), ", kept for ",
                                                 Seconds(entry.order.result_ttl), " s at least")});
    }
  }
}

void Ledger::JudgeResult(const std::string& uid, const Entry& entry, Verdict& verdict) {
  for (const Word& end : entry.ends) {
    if (end.state == Job::SUCCEEDED && end.sha256 != entry.order.sha256) {
      verdict.violations.push_back(
          {"changed", uid, absl::StrCat("announced with SHA-256 ", end.sha256)});
    }
  }
  for (const auto& [sha256, times] : entry.fetched) {
    if (sha256 == entry.order.sha256) continue;
    verdict.violations.push_back(
        {"changed", uid, absl::StrCat("fetched ", times, " times with SHA-256 ", sha256)});
  }
  if (!MustBeThere(entry)) return;
  std::string now = entry.not_fetched;
  if (entry.last == Last::kUnknown) now = "no database knows the job";
  if (entry.last == Last::kSilent) now = "no proxy answers for the job";
  if (!now.empty()) {
    verdict.violations.push_back(
        {"lost", uid,
         absl::StrCat(Where(*Announcement(entry), entry.order), ", at the end: ", now)});
  }
}

void Ledger::Count(const Entry& entry, Verdict& verdict) {
  std::map<std::string, std::int64_t>& counts = verdict.counts;
  ++counts["accepted"];
  if (!entry.ends.empty()) {
    const Word& end = entry.ends.front();
    ++counts[end.state == Job::FAILED ? "failed " + end.reason
                                      : absl::AsciiStrToLower(Job::State_Name(end.state))];
  } else {
    ++counts["no end told"];
  }
  counts["announced"] += Announcement(entry) != nullptr ? 1 : 0;
  counts["announced and must be there"] += MustBeThere(entry) ? 1 : 0;
  counts["acknowledged"] += entry.acknowledge_asked ? 1 : 0;
  counts["deleted"] += entry.delete_asked ? 1 : 0;
  counts["lagging"] += entry.lagging;
  counts["came_back"] += entry.came_back;
  for (const auto& [sha256, times] : entry.fetched) counts["fetches"] += times;
}

}  // namespace onepiece::ledger
