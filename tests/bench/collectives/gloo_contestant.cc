#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <utility>

#include "cluster/base/status.h"
#include "tests/bench/collectives/contestants.h"

namespace onepiece::bench {
namespace {

// Below this, gloo's recursive algorithm has fewer steps than its ring.
constexpr std::size_t kRingFloats = 16384;

class GlooContestant final : public Contestant {
 public:
  GlooContestant(std::shared_ptr<gloo::transport::Device> device,
                 std::shared_ptr<gloo::rendezvous::Context> first)
      : device_(std::move(device)), first_(std::move(first)), factory_(first_), context_(first_) {}
  [[nodiscard]] int rank() const override { return context_->rank; }
  [[nodiscard]] int size() const override { return context_->size; }

  void Broadcast(Floats data) override {
    gloo::BroadcastOptions options(context_);
    options.setRoot(0);
    options.setOutput(data.data(), data.size());
    gloo::broadcast(options);
  }
  void AllGather(Floats all) override {
    gloo::AllgatherOptions options(context_);
    options.setOutput(all.data(), all.size());
    gloo::allgather(options);
  }
  bool ReduceScatter(Floats /*all*/, Floats /*part*/) override { return false; }
  void AllReduce(Floats data) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data.data(), data.size());
    options.setAlgorithm(data.size() < kRingFloats ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                   : gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }
  void AllToAll(Floats sent, Floats received) override {
    gloo::AlltoallOptions options(context_);
    options.setInput(sent.data(), sent.size());
    options.setOutput(received.data(), received.size());
    gloo::alltoall(options);
  }
  void Barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  // Its fastest way: the addresses go over the connections of the first context.
  void ChangeGroup() override { context_ = factory_.makeContext(device_); }

 private:
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::rendezvous::Context> first_;
  gloo::rendezvous::ContextFactory factory_;
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> JoinGloo(const Meeting& meeting) {
  try {
    gloo::transport::tcp::attr attributes;
    attributes.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(meeting.folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(meeting.rank, meeting.ranks);
    context->connectFullMesh(store, device);
    return std::make_unique<GlooContestant>(std::move(device), std::move(context));
  } catch (const std::exception& error) {
    return base::MakeError(absl::StatusCode::kUnavailable, "GLOO_FAILED", error.what());
  }
}

}  // namespace onepiece::bench
