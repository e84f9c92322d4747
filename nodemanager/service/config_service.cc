#include "nodemanager/service/config_service.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/config/config_changes.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/status.h"
#include "nodemanager/service/command_caller.h"
#include "nodemanager/service/config_check.h"

namespace onepiece::nodemanager {
namespace {

constexpr int kDefaultRevisionsPage = 20;
constexpr int kMaxRevisionsPage = 100;
constexpr char kBefore[] = "before:";  // A token names the last revision of the page before.

absl::Status BadRequest(const char* reason, const std::string& field, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason,
                         absl::StrCat(field, ": ", message), {{"field", field}});
}

absl::Status RevisionUnknown(std::uint64_t revision) {
  return base::MakeError(
      absl::StatusCode::kNotFound, "REVISION_UNKNOWN",
      absl::StrCat("there is no configuration revision ", revision, ", or it is no longer kept"),
      {{"revision", absl::StrCat(revision)}});
}

using Changes = google::protobuf::RepeatedPtrField<v1::ConfigChange>;

void SetChanges(const v1::ClusterConfig& before, const v1::ClusterConfig& after, int most,
                Changes& changes) {
  std::vector<v1::ConfigChange> all = config::ConfigChanges(before, after);
  if (all.size() > static_cast<std::size_t>(most)) all.resize(static_cast<std::size_t>(most));
  changes.Assign(all.begin(), all.end());
}

using History = std::deque<v1::ConfigRevision>;

// Revisions are consecutive.
History::const_iterator FindRevision(const History& history, std::uint64_t revision) {
  if (history.empty() || revision < history.front().revision() ||
      revision > history.back().revision())
    return history.end();
  return history.begin() + static_cast<std::ptrdiff_t>(revision - history.front().revision());
}

// The changes of a revision are computed outside of the state's lock, so what they follow from is
// copied.
struct Neighbours {
  v1::ConfigRevision made;                  // With its configuration.
  std::optional<v1::ClusterConfig> before;  // That of the revision before. Nullopt: not kept.

  void FillChanges() {
    if (before && made.has_config())
      SetChanges(*before, made.config(), ConfigService::kMaxShownChanges, *made.mutable_changes());
  }
};

Neighbours NeighboursOf(const StateMachine& state, History::const_iterator place) {
  Neighbours found{.made = *place, .before = std::nullopt};
  if (place->revision() == state.config_revision()) *found.made.mutable_config() = state.Config();
  if (place != state.config_revisions().begin()) {
    if (const auto previous = place - 1; previous->has_config()) found.before = previous->config();
  } else if (place->revision() == 1) {
    found.before.emplace();
  }
  return found;
}

absl::StatusOr<std::uint64_t> FirstOf(const v1::ListConfigRevisionsRequest& request,
                                      std::uint64_t newest) {
  if (request.page_token().empty()) return newest;
  std::uint64_t last = 0;
  if (!absl::StartsWith(request.page_token(), kBefore) ||
      !absl::SimpleAtoi(request.page_token().substr(sizeof(kBefore) - 1), &last) || last == 0)
    return BadRequest("BAD_PAGE_TOKEN", "page_token", "not a token that ListConfigRevisions gave");
  return last - 1;
}

v1::SetConfig ChangeOf(const v1::ApplyConfigRequest& request,
                       const std::vector<std::string>& sections) {
  v1::SetConfig change;
  *change.mutable_config() = request.config();
  change.mutable_sections()->Add(sections.begin(), sections.end());
  change.set_base_revision(request.base_revision());
  change.set_actor(request.actor());
  change.set_reason(request.reason());
  return change;
}

// Only the leader knows what nodes use now, so the state machine would take such a limit. A
// repeated request whose first attempt was taken lowers nothing, and is not refused.
bool IsAboutUse(const absl::Status& status) {
  const base::ErrorReason reason = base::GetReason(status);
  return reason.reason == "BELOW_USE" && reason.metadata.contains("node_id");
}

template <typename Response>
grpc::Status AnswerWith(absl::StatusOr<Response> result, Response* response) {
  if (!result.ok()) return rpc::ToGrpc(result.status());
  *response = *std::move(result);
  return grpc::Status::OK;
}

}  // namespace

absl::StatusOr<v1::ConfigRevision> ConfigService::Find(std::uint64_t revision) {
  std::optional<Neighbours> found;
  std::optional<v1::ClusterConfig> unset;
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadAtAnyReplica([&](const StateMachine& state) {
    if (revision == 0 && state.config_revision() == 0) {
      unset = state.Config();
      return;
    }
    const History& history = state.config_revisions();
    const auto place = FindRevision(history, revision == 0 ? state.config_revision() : revision);
    if (place != history.end()) found = NeighboursOf(state, place);
  }));
  if (unset) {
    ONEPIECE_RETURN_IF_ERROR(controller_.Term().status());
    // Below feature level 4 the leader's files decide, and the leader knows what they say.
    v1::ConfigRevision files;
    *files.mutable_config() = *std::move(unset);
    files.mutable_config()->MergeFrom(ConfigOf(controller_.settings()));
    return files;
  }
  if (!found || !found->made.has_config()) return RevisionUnknown(revision);
  found->FillChanges();
  return std::move(found->made);
}

grpc::Status ConfigService::GetConfig(grpc::ServerContext*, const v1::GetConfigRequest* request,
                                      v1::ConfigRevision* response) {
  return AnswerWith(Find(request->revision()), response);
}

absl::StatusOr<v1::ListConfigRevisionsResponse> ConfigService::List(
    const v1::ListConfigRevisionsRequest& request) {
  if (request.page_size() < 0) return BadRequest("BAD_PAGE_SIZE", "page_size", "not negative");
  const int size = request.page_size() == 0 ? kDefaultRevisionsPage
                                            : std::min(request.page_size(), kMaxRevisionsPage);
  std::vector<Neighbours> page;
  bool more = false;
  absl::Status bad;
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadAtAnyReplica([&](const StateMachine& state) {
    const History& history = state.config_revisions();
    const absl::StatusOr<std::uint64_t> first = FirstOf(request, state.config_revision());
    bad = first.status();
    if (!first.ok()) return;
    std::uint64_t next = std::min(*first, state.config_revision());
    for (auto place = FindRevision(history, next);
         place != history.end() && static_cast<int>(page.size()) < size;
         place = FindRevision(history, --next))
      page.push_back(NeighboursOf(state, place));
    more = FindRevision(history, next) != history.end();
  }));
  ONEPIECE_RETURN_IF_ERROR(bad);
  v1::ListConfigRevisionsResponse response;
  for (Neighbours& each : page) {
    each.FillChanges();
    each.made.clear_config();
    *response.add_revisions() = std::move(each.made);
  }
  if (more && !page.empty()) {
    response.set_next_page_token(
        absl::StrCat(kBefore, response.revisions(response.revisions_size() - 1).revision()));
  }
  return response;
}

grpc::Status ConfigService::ListConfigRevisions(grpc::ServerContext*,
                                                const v1::ListConfigRevisionsRequest* request,
                                                v1::ListConfigRevisionsResponse* response) {
  return AnswerWith(List(*request), response);
}

absl::StatusOr<v1::ApplyConfigResponse> ConfigService::Preview(const v1::SetConfig& change) {
  v1::ApplyConfigResponse response;
  v1::ClusterConfig before;
  absl::StatusOr<v1::ClusterConfig> after;
  absl::Status in_use;
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
    response.set_revision(state.config_revision());
    before = state.Config();
    after = state.CheckConfig(change);
    if (after.ok()) in_use = controller_.CheckLimits(state, after->limits());
    return true;
  }));
  ONEPIECE_RETURN_IF_ERROR(after.status());
  ONEPIECE_RETURN_IF_ERROR(in_use);
  SetChanges(before, *after, kMaxAppliedChanges, *response.mutable_changes());
  return response;
}

absl::StatusOr<v1::ApplyConfigResponse> ConfigService::Apply(
    v1::Command command, const v1::ApplyConfigRequest& request) {
  if (request.actor().empty() && !request.validate_only())
    return BadRequest("NO_ACTOR", "actor", "who does this? \"operator:NAME\"");
  const std::vector<std::string> sections =
      request.sections().empty()
          ? config::SectionsOf(request.config())
          : std::vector<std::string>(request.sections().begin(), request.sections().end());
  // Who does not lead says so first. A leader that has not seeded yet does it now, so that the
  // change does not stand in the seed's place.
  ONEPIECE_RETURN_IF_ERROR(controller_.Term().status());
  ONEPIECE_RETURN_IF_ERROR(CheckSections(request.config(), sections));
  if (!request.validate_only()) ONEPIECE_RETURN_IF_ERROR(controller_.SeedConfig());
  command.set_request_id(request.request_id());
  *command.mutable_set_config() = ChangeOf(request, sections);
  absl::StatusOr<v1::ApplyConfigResponse> preview = Preview(command.set_config());
  if (request.validate_only() || IsAboutUse(preview.status())) return preview;
  // A preview that fails is proposed all the same: an earlier attempt of this request may have
  // made the change, and then its answer is remembered.
  const absl::Status status = controller_.Propose(std::move(command)).status();
  // The log keeps reasons without their metadata. The preview's error names the field.
  if (!status.ok() && base::GetReason(status).reason == base::GetReason(preview.status()).reason)
    return preview.status();
  ONEPIECE_RETURN_IF_ERROR(status);
  v1::ApplyConfigResponse response;
  if (preview.ok()) response = *std::move(preview);
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
    response.set_revision(state.config_revision());
    return true;
  }));
  return response;
}

grpc::Status ConfigService::ApplyConfig(grpc::ServerContext* context,
                                        const v1::ApplyConfigRequest* request,
                                        v1::ApplyConfigResponse* response) {
  if (read_only_ && !request->validate_only()) return rpc::RefuseReadOnly();
  v1::Command command;
  SignCommand(door_, context, command);
  return AnswerWith(Apply(std::move(command), *request), response);
}

}  // namespace onepiece::nodemanager
