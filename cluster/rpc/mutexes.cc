#include "cluster/rpc/mutexes.h"

#include "absl/synchronization/mutex.h"

namespace onepiece::rpc {

void IgnoreMutexOrder() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace onepiece::rpc
