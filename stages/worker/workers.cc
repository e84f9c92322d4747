#include "stages/worker/workers.h"

#include "cluster/base/status.h"

namespace onepiece::worker {

absl::StatusOr<std::shared_ptr<WorkerProcess>> Workers::Get(const std::string& device) {
  const base::MutexLock lock(mutex_);
  std::weak_ptr<WorkerProcess>& known = running_[device];
  std::shared_ptr<WorkerProcess> process = known.lock();
  if (process != nullptr && process->alive()) return process;
  ONEPIECE_ASSIGN_OR_RETURN(const WorkerDevice parsed, WorkerDevice::Parse(device));
  ONEPIECE_ASSIGN_OR_RETURN(process, WorkerProcess::Start(options_.program, parsed));
  known = process;
  return process;
}

}  // namespace onepiece::worker
