// What an earlier run of this database left on disk, taken into its memory.
#pragma once

#include "cluster/database/job_store.h"
#include "cluster/database/journal.h"
#include "cluster/database/spill.h"

namespace onepiece::database {

/// Takes in every record of the journal, and the spilled results that their jobs still want; each
/// byte of those is read and checked. What has no use any more (too old, no record, another result
/// won) is taken off the disk. `spill` may be nullptr.
void Recover(Journal& journal, Spill* spill, JobStore& store);

}  // namespace onepiece::database
