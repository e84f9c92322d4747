// What a job's record says of work that is here: whether somebody else does it again.
#pragma once

#include <string>

#include "onepiece/v1/database.pb.h"
#include "stages/runtime/request_scheduler.h"

namespace onepiece::instance {

/// Drops from the scheduler, and ends at its next step, what the record shows to be out of date:
/// work of a run before the record's, an attempt of this run that another instance than `self` has
/// a later one of, and branches that wait for others though the job has ended.
void FenceBy(const v1::JobRecord& record, const std::string& self,
             runtime::RequestScheduler& scheduler);

}  // namespace onepiece::instance
