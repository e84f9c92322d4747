#include "stages/model/diffusion_state.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/model/lane.h"
#include "stages/model/stage_inputs.h"
#include "stages/tensor/device_copy.h"
#include "stages/tensor/torch_convert.h"

namespace onepiece::model {
namespace {

constexpr int kVersion = 1;
constexpr char kInfo[] = "state", kLatents[] = "state.latents", kRng[] = "state.rng";

/// Returns the scheduler's tensors by their artifacts' names.
template <typename State>
auto Tensors(State& scheduler) {
  return std::array{std::pair{"state.newest", &scheduler.newest},
                    std::pair{"state.older", &scheduler.older},
                    std::pair{"state.last_sample", &scheduler.last_sample}};
}

absl::Status Add(const std::string& name, const at::Tensor& tensor,
                 std::vector<sdk::Artifact>& artifacts) {
  // Copies, because the run that saved the state may go on computing with the original.
  const at::Tensor copy =
      tensor.to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true).contiguous();
  ONEPIECE_ASSIGN_OR_RETURN(sdk::Artifact artifact, tensor::ToArtifact(name, copy));
  artifacts.push_back(std::move(artifact));
  return absl::OkStatus();
}

/// What a newcomer must know before it can receive tensors. All ranks run the same program.
struct StateHeader {
  std::int32_t steps_done = 0, order = 0;
  std::array<std::int32_t, 3> defined{};  ///< Of Tensors().
};

/// Moves `x`, one-dimensional, from rank `giver` to the newcomers, which give tensors of the same
/// size. Returns what a newcomer got.
absl::StatusOr<at::Tensor> MoveToNewcomers(const Parallel& parallel,
                                           const std::vector<int>& newcomers, int giver,
                                           const at::Tensor& x) {
  const int rank = parallel.group->rank();
  const auto size = static_cast<std::size_t>(parallel.group->size());
  std::vector<std::size_t> send(size, 0), receive(size, 0);
  at::Tensor sent = x.narrow(0, 0, 0), received = sent;
  if (rank == giver) {
    sent = x.repeat({static_cast<std::int64_t>(newcomers.size())});
    for (const int newcomer : newcomers) send[static_cast<std::size_t>(newcomer)] = x.nbytes();
  } else if (std::ranges::count(newcomers, rank) > 0) {
    received = at::empty_like(x);
    receive[static_cast<std::size_t>(giver)] = x.nbytes();
  }
  ONEPIECE_RETURN_IF_ERROR(parallel.group->AllToAll(BytesOf(sent), send, BytesOf(received), receive,
                                                    parallel.deadline()));
  return received;
}

absl::Status ReadInfo(const sdk::Artifact& info, const std::string& settings,
                      SchedulerState& scheduler) {
  const auto json = nlohmann::json::parse(info.data.text(), nullptr, false);
  const auto number = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_number_integer()
               ? json[name].get<int>()
               : -1;
  };
  scheduler.steps_done = number("steps_done");
  scheduler.order = number("order");
  if (number("version") != kVersion || scheduler.steps_done < 0 || scheduler.order < 0 ||
      !json.contains("settings") || !json["settings"].is_string()) {
    return BadArtifact(kInfo, "not a saved state that this version can read");
  }
  if (json["settings"].get<std::string>() != settings) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_STATE",
                           "the saved state belongs to a job with other settings: " +
                               json["settings"].get<std::string>().substr(0, 300) + " instead of " +
                               settings);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<sdk::Artifact>> SaveState(const DiffusionState& state) {
  const nlohmann::json info = {{"version", kVersion},
                               {"settings", state.settings},
                               {"steps_done", state.scheduler.steps_done},
                               {"order", state.scheduler.order}};
  std::vector<sdk::Artifact> artifacts = {
      message::BytesArtifact(kInfo, "application/json", info.dump())};
  ONEPIECE_RETURN_IF_ERROR(Add(kLatents, state.latents, artifacts));
  ONEPIECE_RETURN_IF_ERROR(Add(kRng, state.rng, artifacts));
  for (const auto& [name, tensor] : Tensors(state.scheduler)) {
    if (tensor->defined()) ONEPIECE_RETURN_IF_ERROR(Add(name, *tensor, artifacts));
  }
  return artifacts;
}

absl::StatusOr<std::optional<DiffusionState>> LoadState(
    const std::vector<sdk::Artifact>& inputs, const std::function<std::string()>& settings,
    at::IntArrayRef shape, at::Device device) {
  const sdk::Artifact* info = message::FindArtifact(inputs, kInfo);
  if (info == nullptr) return std::nullopt;
  DiffusionState state{.settings = settings(), .latents = {}, .rng = {}, .scheduler = {}};
  ONEPIECE_RETURN_IF_ERROR(ReadInfo(*info, state.settings, state.scheduler));
  const auto read = [&](const char* name, at::Tensor& tensor) -> absl::Status {
    ONEPIECE_ASSIGN_OR_RETURN(tensor,
                              InputTensor(inputs, name, static_cast<std::int64_t>(shape.size())));
    if (tensor.sizes() != shape) return BadArtifact(name, "its shape does not fit the job");
    ONEPIECE_ASSIGN_OR_RETURN(tensor, tensor::ToDevice(tensor, device));
    return absl::OkStatus();
  };
  ONEPIECE_RETURN_IF_ERROR(read(kLatents, state.latents));
  for (const auto& [name, tensor] : Tensors(state.scheduler)) {
    if (message::FindArtifact(inputs, name) != nullptr) {
      ONEPIECE_RETURN_IF_ERROR(read(name, *tensor));
    }
  }
  const sdk::Artifact* rng = message::FindArtifact(inputs, kRng);
  if (rng == nullptr || rng->dtype != message::DType::kU8) return BadArtifact(kRng, "missing");
  // It stays on the CPU, where the generator is (MakeGenerator).
  ONEPIECE_ASSIGN_OR_RETURN(state.rng, tensor::ToTensor(*rng));
  return state;
}

absl::Status ShareState(const Parallel& parallel, const std::vector<int>& newcomers, int steps_done,
                        at::Tensor& latents, Scheduler& scheduler) {
  const auto is_new = [&](int rank) { return std::ranges::count(newcomers, rank) > 0; };
  int giver = 0;
  while (giver < parallel.group->size() && is_new(giver)) ++giver;
  if (giver == parallel.group->size()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_GROUP",
                           "all members of the group are new: nobody has the job's state");
  }
  const bool takes = is_new(parallel.group->rank());
  SchedulerState state = scheduler.Save();
  const auto tensors = Tensors(state);
  StateHeader header{.steps_done = state.steps_done, .order = state.order};
  for (std::size_t i = 0; i < tensors.size(); ++i)
    header.defined[i] = tensors[i].second->defined() ? 1 : 0;
  // Messages lie in the memory of the device.
  const at::Tensor host =
      at::from_blob(&header, {static_cast<std::int64_t>(sizeof(header))}, at::kByte);
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor told,
                            MoveToNewcomers(parallel, newcomers, giver,
                                            host.to(latents.device(), at::kByte, false, true)));
  if (takes) host.copy_(told);

  std::vector<at::Tensor*> moved = {&latents};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (takes) *tensors[i].second = header.defined[i] == 0 ? at::Tensor() : latents;
    if (header.defined[i] != 0) moved.push_back(tensors[i].second);
  }
  std::vector<at::Tensor> flat;
  for (const at::Tensor* tensor : moved) flat.push_back(tensor->flatten());
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor got,
                            MoveToNewcomers(parallel, newcomers, giver, at::cat(flat)));
  if (!takes) return absl::OkStatus();
  if (header.steps_done != steps_done) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_STATE",
                           "the group is after step " + std::to_string(header.steps_done) +
                               ", and this worker came after step " + std::to_string(steps_done));
  }
  const std::vector<std::int64_t> shape = latents.sizes().vec();
  const auto parts = got.chunk(static_cast<std::int64_t>(moved.size()));
  // Each gets memory of its own, because they live for different times.
  for (std::size_t i = 0; i < moved.size(); ++i) *moved[i] = parts[i].view(shape).clone();
  state.steps_done = header.steps_done;
  state.order = header.order;
  return scheduler.Restore(state);
}

}  // namespace onepiece::model
