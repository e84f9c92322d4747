// What an earlier run of this database left on disk, taken into its memory.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/base/ids.h"
#include "cluster/database/job_store.h"
#include "cluster/database/journal.h"
#include "cluster/database/spill.h"

namespace onepiece::database {

struct Recovered {
  std::int64_t records = 0, results = 0;
  /// Results of jobs that SUCCEEDED, whose bytes are not here: a peer has them, or nobody.
  std::vector<base::Uid> missing;
};

/// Takes in every record of the journal, and the spilled results that their jobs still want; each
/// byte of those is read and checked. What has no use any more (too old, no record, another result
/// won) is taken off the disk. `spill` may be nullptr.
Recovered Recover(Journal& journal, Spill* spill, JobStore& store);

}  // namespace onepiece::database
