// Recovery: loads what an earlier run of this database left on disk.
#pragma once

#include <unordered_set>

#include "cluster/base/ids.h"
#include "cluster/database/job_store.h"
#include "cluster/database/journal.h"
#include "cluster/database/spill.h"

namespace onepiece::database {

/// Restores every record of the journal, and the results of `spilled` (Spill::Kept) that their jobs
/// still want. It reads and checks every byte of these results. Records and files that are of no
/// use any more (too old, without a record, or beaten by another result) are removed from disk.
/// `spill` may be nullptr when `spilled` is empty.
void Recover(Journal& journal, Spill* spill, std::unordered_set<base::Uid> spilled,
             JobStore& store);

}  // namespace onepiece::database
