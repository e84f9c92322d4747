#include "cluster/database/recovery.h"

#include <spdlog/spdlog.h>

#include "cluster/job/job_record.h"

namespace onepiece::database {

void Recover(Journal& journal, Spill* spill, std::unordered_set<base::Uid> spilled,
             JobStore& store) {
  std::int64_t records = 0, results = 0;
  for (v1::JobRecord& record : journal.Recover()) {
    const base::Uid uid = *base::Uid::Parse(record.job().uid());
    const bool wants_bytes =
        record.job().state() == v1::Job::SUCCEEDED && !job::IsTombstone(record);
    Artifacts artifacts;
    // `spilled` is empty when `spill` is null, so no other check is needed before Read().
    if (wants_bytes && spilled.contains(uid)) {
      // Read logs and drops a damaged file. A peer may still have the result.
      auto read = spill->Read(uid);
      if (read.ok()) {
        artifacts = *std::move(read);
      } else {
        // What is left of it is dropped by Read or not at all: a file that could not be read may be
        // whole, and the next start tries again.
        spilled.erase(uid);
      }
    }
    if (!store.Restore(std::move(record), artifacts)) {
      journal.Forget(uid);
      continue;
    }
    ++records;
    if (store.FindResult(uid) != nullptr) {
      ++results;
      spilled.erase(uid);
    }
  }
  for (const base::Uid& uid : spilled) spill->Remove(uid);
  spdlog::info("op=recover records={} results={} missing={} files_dropped={}", records, results,
               store.stats().missing_results, spilled.size());
}

}  // namespace onepiece::database
