// The ledger: what a cluster has told its clients, written down outside the cluster at the moment a
// client had the answer, and judged at the end.
//
// Violations, for each accepted job:
//   two_ends     Two different ends were told, by any proxies. An end is a terminal state, and for
//                FAILED also its reason. EXPIRED after another end is not a second end, as long as
//                it is not too early (untruthful).
//   went_back    A proxy said that the job had not ended, in an answer to a question that was asked
//                after the same proxy process had told an end.
//   without_end  Nobody told an end until the audit gave up, or no proxy answered for the job.
//   forgotten    No end was told, and at the audit no database knows the job. Nobody asked to
//   delete
//                it.
//   lost         The job was announced as SUCCEEDED, nobody asked to acknowledge or delete it, its
//                result has not expired, and the audit cannot fetch it: the fetch fails, no
//                database knows the job, or no proxy answers for it.
//   changed      An announced SHA-256, or the bytes of any complete fetch, differ from what the job
//                was asked to make. So two fetches of a result that differ are at least one.
//   untruthful   CANCELLED without anybody asking to cancel or delete; DEADLINE_EXCEEDED or EXPIRED
//                earlier than the clock of the client allows.
//
// Only counted (Verdict::counts):
//   lagging      Another proxy process showed the job as not ended after an end had been told.
//   came_back    A proxy told of a job after DeleteJob had been answered.
//   failed       Jobs whose end is FAILED, by reason. Whether a reason is acceptable is for the
//                reader of the counts to say: it is one truthful end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::ledger {

/// What an accepted job was asked for. Times are those of the client.
struct Order {
  std::string sha256;           ///< Of the bytes that it must make, in lower-case digits.
  base::MonotonicTime sent;     ///< Before the request that was answered.
  base::Duration deadline{};    ///< From `sent` on.
  base::Duration result_ttl{};  ///< The cluster keeps the result at least so long.
};

/// What one answer said about a job's state.
struct Word {
  std::string proxy;          ///< Its address. A restarted proxy has another one.
  base::MonotonicTime asked;  ///< When the question was sent,
  base::MonotonicTime had;    ///< and when the client had the answer.
  v1::Job::State state = v1::Job::STATE_UNSPECIFIED;
  std::string reason;  ///< Of FAILED.
  std::string sha256;  ///< Of the result's main artifact; empty if the answer names none.
};
Word WordOf(const v1::Job& job, std::string proxy, base::MonotonicTime asked,
            base::MonotonicTime had);

/// What a client may ask to be done with a job.
enum class Wish : std::uint8_t { kCancel, kDelete, kAcknowledge };

/// What the audit met last when it looked for a job.
enum class Last : std::uint8_t {
  kNotAsked,
  kTold,     ///< The answer is in the ledger as a word.
  kUnknown,  ///< NOT_FOUND.
  kSilent,   ///< No answer.
};

struct Violation {
  std::string kind;  ///< As in the list above.
  std::string uid;
  std::string what;  ///< For people.
};

struct Verdict {
  std::vector<Violation> violations;
  /// "accepted", "succeeded", "failed LOST", "lagging", …: names of the list above, and ends.
  std::map<std::string, std::int64_t> counts;
  [[nodiscard]] std::map<std::string, std::int64_t> ByKind() const;
};

/// Threading: may be used from any thread.
/// REQUIRES of all that take a uid: the job was Accepted().
class Ledger {
 public:
  /// A proxy accepted the job. A second acceptance of the same uid is the same job.
  void Accepted(const std::string& uid, const Order& order);
  void Told(const std::string& uid, const Word& word);
  /// A fetch was complete.
  void Fetched(const std::string& uid, const std::string& sha256);
  /// Comes before the request is sent.
  void Asked(const std::string& uid, Wish wish);
  /// The request was answered with OK.
  void Answered(const std::string& uid, Wish wish);

  /// The audit's last answers. `why` says why the result could not be fetched.
  void Found(const std::string& uid, Last last);
  void NotFetched(const std::string& uid, const std::string& why);

  /// Whether anybody has told an end.
  [[nodiscard]] bool HasEnd(const std::string& uid) const;
  /// Whether the result must be there: announced, and nobody asked to acknowledge or delete it.
  [[nodiscard]] bool MustBeThere(const std::string& uid) const;
  /// Whether somebody asked to delete the job, so that the cluster may not know it any more.
  [[nodiscard]] bool MayBeUnknown(const std::string& uid) const;
  [[nodiscard]] std::vector<std::string> Uids() const;
  /// Returns the jobs whose results were announced before `time`, must be there, and were never
  /// fetched.
  [[nodiscard]] std::vector<std::string> Unfetched(base::MonotonicTime time) const;

  [[nodiscard]] Verdict Judge() const;

 private:
  struct Entry {
    Order order;
    std::vector<Word> ends;                               ///< The first word of each different end.
    std::map<std::string, base::MonotonicTime> ended_at;  ///< The first end, by proxy.
    std::vector<std::string> went_back;                   ///< What was said.
    std::map<std::string, int> fetched;                   ///< Complete fetches, by SHA-256.
    bool cancel_asked = false, delete_asked = false, delete_answered = false;
    bool acknowledge_asked = false;
    std::int64_t lagging = 0, came_back = 0;
    Last last = Last::kNotAsked;
    std::string not_fetched;
  };
  static bool MustBeThere(const Entry& entry);
  static const Word* Announcement(const Entry& entry);
  static void JudgeEnds(const std::string& uid, const Entry& entry, Verdict& verdict);
  static void JudgeTruth(const std::string& uid, const Entry& entry, Verdict& verdict);
  static void JudgeResult(const std::string& uid, const Entry& entry, Verdict& verdict);
  static void Count(const Entry& entry, Verdict& verdict);

  mutable base::Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::ledger
