#include "stages/instance/fence.h"

#include "cluster/base/ids.h"
#include "cluster/job/job_record.h"
#include "cluster/message/message.h"

namespace onepiece::instance {

// Somebody else may have the work of this job by now: this instance was taken for dead, or a second
// proxy has started the job. Neither sends anything here, so the answers to this instance's own
// reports are all that it hears of it.
void FenceBy(const v1::JobRecord& record, const std::string& self,
             runtime::RequestScheduler& scheduler) {
  const auto uid = base::Uid::Parse(record.job().uid());
  if (!uid.has_value()) return;
  if (job::IsTerminal(record.job().state())) return scheduler.DropJoins(*uid, record.run());
  if (record.has_proposed()) return;
  scheduler.FenceRun(*uid, record.run());
  for (const v1::WorkHolder& holder : record.holders()) {
    if (holder.node_id() == self || holder.attempt() == 0) continue;
    message::Header edge;
    edge.uid = *uid;
    edge.run = record.run();
    edge.stage = holder.stage();
    edge.from = holder.from();
    scheduler.Fence(edge, holder.attempt());
  }
}

}  // namespace onepiece::instance
