#include "tests/chaos/ledger_audit.h"

#include <vector>

#include "cluster/base/status.h"

namespace onepiece::ledger {
namespace {

std::string WhyOf(const absl::Status& status) {
  const std::string reason = base::GetReason(status).reason;
  return reason.empty() ? status.ToString() : reason + ": " + base::Message(status);
}

/// Returns whether the job is settled.
bool Look(Ledger& ledger, Source& source, const std::string& uid) {
  const absl::StatusOr<Word> word = source.Ask(uid);
  if (!word.ok()) {
    const bool unknown = absl::IsNotFound(word.status());
    ledger.Found(uid, unknown ? Last::kUnknown : Last::kSilent);
    return unknown && ledger.MayBeUnknown(uid);
  }
  ledger.Found(uid, Last::kTold);
  ledger.Told(uid, *word);
  if (!ledger.HasEnd(uid)) return false;
  if (!ledger.MustBeThere(uid)) return true;
  const absl::StatusOr<std::string> sha256 = source.Fetch(uid);
  ledger.NotFetched(uid, sha256.ok() ? "" : WhyOf(sha256.status()));
  if (sha256.ok()) ledger.Fetched(uid, *sha256);
  return sha256.ok();
}

}  // namespace

void Audit(Ledger& ledger, Source& source) {
  std::vector<std::string> open = ledger.Uids();
  do {
    std::erase_if(open, [&](const std::string& uid) { return Look(ledger, source, uid); });
  } while (!open.empty() && source.Wait());
}

}  // namespace onepiece::ledger
