// What an earlier run of this database left on disk, taken into its memory.
#pragma once

#include <unordered_set>

#include "cluster/base/ids.h"
#include "cluster/database/job_store.h"
#include "cluster/database/journal.h"
#include "cluster/database/spill.h"

namespace onepiece::database {

/// Takes in every record of the journal, and the results of `spilled` (Spill::Kept) that their jobs
/// still want; each byte of those is read and checked. What has no use any more (too old, no
/// record, another result won) is taken off the disk. `spill` may be nullptr when nothing is
/// spilled.
void Recover(Journal& journal, Spill* spill, std::unordered_set<base::Uid> spilled,
             JobStore& store);

}  // namespace onepiece::database
