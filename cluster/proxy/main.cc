// onepiece-proxy: takes jobs from clients and answers for them.
#include <algorithm>

#include "cluster/fabric/fabric.h"
#include "cluster/node/kept_work.h"
#include "cluster/node/kept_work_metrics.h"
#include "cluster/node/node_agent.h"
#include "cluster/node/work_service.h"
#include "cluster/proxy/proxy_service.h"
#include "cluster/service/program.h"

namespace onepiece::proxy {
namespace {

constexpr int kDefaultMaxJobsInFlight = 256;
constexpr auto kAskTimeout = std::chrono::milliseconds(500);

node::KeptWork::Ways KeptWays(node::JobRecords& records, node::Outbox& outbox) {
  return {
      .ask = [&records](const base::Uid& uid) { return records.Get(uid, kAskTimeout); },
      .report = [&records](
                    const v1::UpdateJobRequest& update) { return records.Update(update).status(); },
      .send =
          [&outbox](const message::Message& message) {
            const message::Header& header = message.header;
            auto target = node::Destination::Stage(header.app, header.stage, header.uid);
            target.patience = node::KeptPatience();
            const base::MonotonicTime limit = base::SystemClock().Now() + node::KeptLimit(message);
            return outbox.Deliver(message, target, std::min(header.deadline, limit));
          }};
}

absl::Status Run(const v1::ProxyConfig& config, service::Host& host) {
  ONEPIECE_ASSIGN_OR_RETURN(
      const std::unique_ptr<fabric::Fabric> fabric,
      fabric::Fabric::Open(config.node().fabric(), base::SystemClock(),
                           {fabric::FrameProtection(config.node().protect())}));
  node::ClusterView view;
  node::JobRecords records(view);
  const std::unique_ptr<node::Outbox> outbox = node::Outbox::Create(
      *fabric, view,
      {.node_id = config.node().node_id(), .metrics = &host.metrics(), .spans = &host.spans()});
  ProxyOptions options;
  options.workflow_set = config.node().workflow_set();
  options.max_jobs_in_flight =
      config.max_jobs_in_flight() > 0 ? config.max_jobs_in_flight() : kDefaultMaxJobsInFlight;
  const double share = config.admission_share();
  if (!(share >= 0 && share <= 1)) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                           "admission_share: 0 (default) to 1", {{"field", "admission_share"}});
  }
  if (share > 0) options.admission_share = share;
  options.read_only = config.node().read_only();
  options.door = host.door();
  DirectFetch direct_fetch(view, config.node().node_id(), *fabric);
  options.direct_fetch = &direct_fetch;
  node::KeptWorkOptions kept_options{.count = node::CountIn(host.metrics())};
  if (config.kept_bytes() > 0)
    kept_options.max_bytes = static_cast<std::size_t>(config.kept_bytes());
  node::KeptWork kept(view, KeptWays(records, *outbox), kept_options);
  const node::ScrapeHook show_kept = node::ShowKept(kept, host.metrics());
  node::WorkService work_service(kept);
  options.kept = &kept;
  ProxyService proxy(view, std::move(options), records, *outbox, host.metrics(), host.spans());
  ONEPIECE_RETURN_IF_ERROR(host.Serve({&proxy, &work_service}));
  kept.Start();
  node::NodeAgent agent(
      node::MakeNodeAgentOptions(v1::PROXY, config.node(), host.address(), host.metrics_address(),
                                 host.metrics(), host.door()),
      view);
  agent.SetLoadSource([&proxy] {
    v1::NodeLoad load;
    load.set_running_jobs(proxy.jobs_in_flight());
    for (v1::Demand& demand : proxy.demands()) *load.add_demands() = std::move(demand);
    for (v1::PoolDebt& debt : proxy.debts()) *load.add_debts() = std::move(debt);
    return load;
  });
  agent.SetUseSource([&proxy] { return proxy.TakeUses(); });
  agent.OnLimits([&proxy](const v1::LimitsConfig& limits) { proxy.Follow(limits.proxies()); });
  agent.OnCapacity([&proxy](const v1::Capacity& capacity) { proxy.UpdateCapacity(capacity); });
  agent.SetState({.state = v1::Node::READY});
  agent.Start();
  absl::Status status = host.ReportReady();
  if (status.ok()) host.WaitForShutdown();
  // The node leaves the routing before it stops answering. Close() and Stop() then end the handlers
  // that wait, for which StopServing() would wait otherwise.
  agent.Stop();
  outbox->Close();
  kept.Stop();
  proxy.Stop();
  host.StopServing();
  return status;
}

}  // namespace
}  // namespace onepiece::proxy

int main(int argc, char** argv) {
  onepiece::v1::ProxyConfig config;
  onepiece::service::ServiceOptions options(
      {.program = "onepiece-proxy",
       .role = "proxy",
       .description = "Takes jobs from clients and answers for them."},
      &config);
  options.Bind("--max-jobs-in-flight", "max_jobs_in_flight",
               "Jobs admitted and not yet ended, at most");
  options.BindReadOnly();
  return onepiece::service::RunProgram(options, argc, argv, [&](onepiece::service::Host& host) {
    return onepiece::proxy::Run(config, host);
  });
}
