// onepiece-instance: one workflow instance.
#include "absl/cleanup/cleanup.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/service/program.h"
#include "onepiece/v1/config.pb.h"
#include "stages/instance/instance.h"

int main(int argc, char** argv) {
  using namespace onepiece;
  v1::InstanceConfig config;
  service::ServiceOptions options(
      {.program = "onepiece-instance",
       .role = "instance",
       .description = "Runs one stage of workflows: takes jobs from its ring, computes "
                      "them and hands the results on.",
       .device_field = "device"},
      &config);
  options.Bind("--pinned-stage", "pinned_stage",
               "Serve this stage only (default: whatever is assigned)");
  options.Bind("--device", "device", "cpu or cuda:N (default cpu)");
  options.Bind("--devices", "devices",
               "Devices with a worker process each: cuda:0,cuda:1, or cpu:0,cpu:1 for cores");
  options.Bind("--workers", "workers", "Jobs computed at the same time (default 1)");
  options.Bind("--model-root", "model_root", "Folder that relative model paths start from");
  options.Bind("--plugin-dir", "plugin_dir",
               "Folder of stage plug-ins (default: beside the program)");
  options.Bind("--parked-bytes", "parked_bytes",
               "Models of earlier roles that stay in memory, in bytes (default 0: none)");
  return service::RunProgram(options, argc, argv, [&](service::Host& host) -> absl::Status {
    ONEPIECE_ASSIGN_OR_RETURN(
        auto fabric, fabric::Fabric::Open(config.node().fabric(), base::SystemClock(),
                                          {fabric::FrameProtection(config.node().protect())}));
    ONEPIECE_ASSIGN_OR_RETURN(
        auto instance, instance::Instance::Open(config, *fabric, host.metrics(), host.spans(),
                                                base::SystemClock()));
    instance->SetDoor(host.door());
    // Before the instance goes, on every way out: the server calls it.
    const absl::Cleanup stop_serving = [&] { host.StopServing(); };
    ONEPIECE_RETURN_IF_ERROR(host.Serve(instance->services()));
    instance->Join(host.address(), host.metrics_address());
    ONEPIECE_RETURN_IF_ERROR(host.ReportReady());
    host.WaitForShutdown();
    instance->Leave();
    return absl::OkStatus();
  });
}
