#include "cluster/cli/plan_output.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"
#include "cluster/terminal/exit_code.h"
#include "google/protobuf/util/time_util.h"

namespace onepiece::cli {
namespace {

constexpr std::string_view kIdle = "idle";
constexpr const char* kArrow = " → ";

/// Counts the characters that a terminal shows. Names are ASCII, but arrows are not.
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string Percent(const v1::Estimate& estimate) {
  return absl::StrFormat("%.0f %% (%.0f to %.0f)", 100 * estimate.value(), 100 * estimate.low(),
                         100 * estimate.high());
}

/// Writes seconds, where a negative number stands for infinite.
std::string Seconds(double seconds) { return seconds < 0 ? "∞" : absl::StrFormat("%.1f", seconds); }

std::string Wait(const v1::Estimate& estimate) {
  if (estimate.value() < 0) return "grows";
  return absl::StrFormat("%s s (%s to %s)", Seconds(estimate.value()), Seconds(estimate.low()),
                         Seconds(estimate.high()));
}

std::string Rate(const v1::Estimate& estimate) {
  return absl::StrFormat("%.3g/s (%.3g to %.3g)", estimate.value(), estimate.low(),
                         estimate.high());
}

Json EstimateDocument(const v1::Estimate& estimate) {
  return {{"value", estimate.value()}, {"low", estimate.low()}, {"high", estimate.high()}};
}

Json PredictionDocument(const v1::Prediction& prediction) {
  Json pools = Json::array(), apps = Json::array();
  for (const v1::PoolPrediction& pool : prediction.pools()) {
    pools.push_back({{"workflow_set", pool.workflow_set()},
                     {"pool", pool.pool()},
                     {"instances_before", pool.instances_before()},
                     {"instances_after", pool.instances_after()},
                     {"utilization_before", EstimateDocument(pool.utilization_before())},
                     {"utilization_after", EstimateDocument(pool.utilization_after())},
                     {"wait_before", EstimateDocument(pool.wait_before())},
                     {"wait_after", EstimateDocument(pool.wait_after())}});
  }
  for (const v1::AppPrediction& app : prediction.apps()) {
    apps.push_back({{"workflow_set", app.workflow_set()},
                    {"app", app.app_id()},
                    {"throughput_before", EstimateDocument(app.throughput_before())},
                    {"throughput_after", EstimateDocument(app.throughput_after())}});
  }
  return {{"insufficient_data", prediction.insufficient_data()},
          {"basis", prediction.basis()},
          {"pools", pools},
          {"apps", apps},
          {"bottleneck_before", prediction.bottleneck_before()},
          {"bottleneck_after", prediction.bottleneck_after()},
          {"transient_loss_s", prediction.transient_loss_s()}};
}

std::string PredictionText(const v1::Prediction& prediction) {
  if (!prediction.insufficient_data().empty())
    return absl::StrCat("Predicted effect: insufficient data: ", prediction.insufficient_data(),
                        "\n");
  if (prediction.basis().empty()) return "";
  std::string text = absl::StrCat("Predicted effect (from ", prediction.basis(), "):\n");
  std::vector<std::vector<std::string>> rows = {
      {"  POOL", "INSTANCES", "UTILISATION", "MEAN WAIT"}};
  for (const v1::PoolPrediction& pool : prediction.pools()) {
    rows.push_back({"  " + PoolName(pool.workflow_set(), pool.pool()),
                    absl::StrCat(pool.instances_before(), kArrow, pool.instances_after()),
                    absl::StrCat(Percent(pool.utilization_before()), kArrow,
                                 Percent(pool.utilization_after())),
                    absl::StrCat(Wait(pool.wait_before()), kArrow, Wait(pool.wait_after()))});
  }
  if (rows.size() > 1) text += Table(rows);
  rows = {{"  APPLICATION", "SUSTAINABLE JOBS"}};
  for (const v1::AppPrediction& app : prediction.apps()) {
    rows.push_back(
        {"  " + PoolName(app.workflow_set(), app.app_id()),
         absl::StrCat(Rate(app.throughput_before()), kArrow, Rate(app.throughput_after()))});
  }
  if (rows.size() > 1) text += Table(rows);
  if (!prediction.bottleneck_before().empty() || !prediction.bottleneck_after().empty()) {
    absl::StrAppend(&text, "  narrowest pool: ", prediction.bottleneck_before(), kArrow,
                    prediction.bottleneck_after(), "\n");
  }
  absl::StrAppendFormat(&text, "  lost while instances drain and load: %.1f s of worker time\n",
                        prediction.transient_loss_s());
  return text;
}

std::string Since(std::int64_t unix_ms, std::int64_t now_unix_ms) {
  if (unix_ms == 0) return "";
  return HumanSeconds(static_cast<double>(std::max<std::int64_t>(0, now_unix_ms - unix_ms)) / 1e3);
}

std::string MovesText(const v1::Plan& plan, std::int64_t now_unix_ms) {
  std::vector<std::vector<std::string>> rows = {{"  NODE", "FROM", "TO", "PHASE", "FOR", "DETAIL"}};
  const bool proposed = plan.state() == v1::Plan::PROPOSED;
  for (const v1::Move& move : plan.moves()) {
    rows.push_back({"  " + move.node_id(), PlaceName(move.from()), PlaceName(move.to()),
                    proposed ? "" : v1::Move::Phase_Name(move.phase()),
                    proposed ? "" : Since(move.phase_since_unix_ms(), now_unix_ms), move.detail()});
  }
  return plan.moves().empty() ? "" : Table(rows);
}

// A plan that is done may have moves that came back alone.
std::string StateText(const v1::Plan& plan) {
  const auto back = std::ranges::count_if(
      plan.moves(), [](const v1::Move& move) { return move.phase() == v1::Move::REVERTED; });
  const std::string& name = v1::Plan::State_Name(plan.state());
  return plan.state() != v1::Plan::DONE || back == 0
             ? name
             : absl::StrCat(name, ", ", back, " of ", plan.moves_size(), " moves reverted");
}

std::string Shares(const v1::PoolStatus& pool) {
  std::vector<std::string> parts;
  for (const v1::AppShare& share : pool.shares())
    parts.push_back(absl::StrFormat("%s %.0f %%", share.app_id(), 100 * share.utilization()));
  return absl::StrJoin(parts, ", ");
}

std::string AppsText(const v1::Elasticity& elasticity) {
  if (elasticity.apps().empty()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"APPLICATION", "ASKED", "REJECTED", "SUSTAINABLE"}};
  for (const v1::AppStatus& app : elasticity.apps()) {
    rows.push_back({PoolName(app.workflow_set(), app.app_id()),
                    absl::StrFormat("%.3g/s", app.asked_per_s()),
                    absl::StrFormat("%.3g/s", app.rejected_per_s()),
                    app.has_sustainable_per_s() ? absl::StrFormat("%.3g/s", app.sustainable_per_s())
                                                : "not measured yet"});
  }
  return Table(rows);
}

// "0.0123 s a unit", or what each of the terms of StageSpec.cost_terms costs, in their order.
std::string CostText(const v1::StageCost& cost) {
  if (cost.samples() == 0) return "not measured yet";
  if (cost.seconds_per_term().empty())
    return absl::StrFormat("%.3g s a unit", cost.seconds_per_unit());
  std::vector<std::string> terms;
  for (const double seconds : cost.seconds_per_term())
    terms.push_back(absl::StrFormat("%.3g", seconds));
  return absl::StrCat(absl::StrJoin(terms, " + "), " s by term");
}

std::string CostsText(const v1::Elasticity& elasticity) {
  if (elasticity.costs().empty()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"APPLICATION", "STAGE", "COST OF A JOB", "UNITS", "JOBS MEASURED", "ERROR"}};
  for (const v1::StageCost& cost : elasticity.costs()) {
    const bool measured = cost.samples() > 0, fitted = !cost.seconds_per_term().empty();
    rows.push_back(
        {cost.app_id(), cost.stage(), CostText(cost),
         measured ? absl::StrFormat("%.4g", cost.units_per_job()) : "",
         absl::StrCat(cost.samples()),
         measured && fitted ? absl::StrFormat("%.1f %%", 100 * cost.relative_error()) : ""});
  }
  return Table(rows);
}

// Numbers that nobody has measured are null, and never 0.
Json CostDocument(const v1::StageCost& cost) {
  const auto known = [](bool is_known, double value) {
    return is_known ? Json(value) : Json(nullptr);
  };
  const bool measured = cost.samples() > 0, fitted = !cost.seconds_per_term().empty();
  return {{"app", cost.app_id()},
          {"stage", cost.stage()},
          {"pool", cost.pool()},
          {"samples", cost.samples()},
          {"seconds_per_unit", known(measured, cost.seconds_per_unit())},
          {"units_per_job", known(measured, cost.units_per_job())},
          {"seconds_per_term",
           std::vector<double>(cost.seconds_per_term().begin(), cost.seconds_per_term().end())},
          {"relative_error", known(measured && fitted, cost.relative_error())},
          {"transfer_s", known(measured, cost.transfer_s())}};
}

}  // namespace

absl::StatusOr<v1::Placement> ParsePlace(std::string_view text) {
  v1::Placement placement;
  // The name of a set has no '/', but a pool's id may have a ':' after one.
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos && colon < text.find('/')) {
    if (colon == 0)
      return terminal::UsageError("'" + std::string(text) + "': no workflow set before ':'");
    placement.set_workflow_set(std::string(text.substr(0, colon)));
    text.remove_prefix(colon + 1);
  }
  if (text.empty()) return terminal::UsageError("a pool is missing; 'idle' is the idle pool");
  if (text != kIdle) placement.set_pool(std::string(text));
  return placement;
}

absl::StatusOr<v1::Move> ParseMove(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return terminal::UsageError(
        "'" + std::string(text) +
        "' is not NODE=POOL (see `onepiece status` and `onepiece rebalance status`)");
  }
  const auto place = ParsePlace(text.substr(equals + 1));
  if (!place.ok()) return base::Annotate(place.status(), "'" + std::string(text) + "'");
  v1::Move move;
  move.set_node_id(std::string(text.substr(0, equals)));
  *move.mutable_to() = *place;
  return move;
}

std::string PoolName(const std::string& workflow_set, const std::string& pool) {
  return workflow_set.empty() || workflow_set == "default" ? pool : workflow_set + ":" + pool;
}

std::string PlaceName(const v1::Placement& placement) {
  const std::string pool = placement.pool().empty() ? std::string(kIdle) : placement.pool();
  std::string name = placement.removed() ? "removed" : PoolName(placement.workflow_set(), pool);
  if (placement.pinned()) name += " (pinned)";
  return name;
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - Width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string HumanSeconds(double seconds) {
  if (seconds < 120) return absl::StrFormat("%.0f s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.0f min", seconds / 60);
  return absl::StrFormat("%.0f h", seconds / 3600);
}

std::string TimeText(std::int64_t unix_ms) {
  using google::protobuf::util::TimeUtil;
  if (unix_ms == 0) return "";
  std::string text = TimeUtil::ToString(TimeUtil::MillisecondsToTimestamp(unix_ms)).substr(0, 19);
  std::ranges::replace(text, 'T', ' ');
  return text;
}

Json PlacementDocument(const v1::Placement& placement) {
  return {{"workflow_set", placement.workflow_set()},
          {"pool", placement.pool()},
          {"pinned", placement.pinned()},
          {"removed", placement.removed()}};
}

Json PlanDocument(const v1::Plan& plan) {
  Json moves = Json::array();
  for (const v1::Move& move : plan.moves()) {
    moves.push_back({{"node_id", move.node_id()},
                     {"incarnation", move.incarnation()},
                     {"from", PlacementDocument(move.from())},
                     {"to", PlacementDocument(move.to())},
                     {"phase", v1::Move::Phase_Name(move.phase())},
                     {"phase_since_unix_ms", move.phase_since_unix_ms()},
                     {"detail", move.detail()}});
  }
  return {{"plan_id", plan.plan_id()},
          {"state", v1::Plan::State_Name(plan.state())},
          {"base_revision", plan.base_revision()},
          {"moves", moves},
          {"actor", plan.actor()},
          {"reason", plan.reason()},
          {"create_unix_ms", plan.create_unix_ms()},
          {"end_unix_ms", plan.end_unix_ms()},
          {"confirm_by_unix_ms", plan.confirm_by_unix_ms()},
          {"prediction", PredictionDocument(plan.prediction())},
          {"undo_of", plan.undo_of()},
          {"undone_by", plan.undone_by()}};
}

std::string PlanText(const v1::Plan& plan, std::int64_t now_unix_ms) {
  std::string text;
  if (plan.state() == v1::Plan::PROPOSED) {
    text = plan.moves().empty() ? "Nothing would move.\n" : "Nothing has been changed. Moves:\n";
  } else {
    text = absl::StrCat("Plan ", plan.plan_id(), ": ", StateText(plan), ", by ", plan.actor(), " ",
                        TimeText(plan.create_unix_ms()), " UTC");
    if (!plan.reason().empty()) absl::StrAppend(&text, ": ", plan.reason());
    text += "\n";
    if (!plan.undo_of().empty()) absl::StrAppend(&text, "  undoes ", plan.undo_of(), "\n");
    if (!plan.undone_by().empty()) absl::StrAppend(&text, "  undone by ", plan.undone_by(), "\n");
  }
  text += MovesText(plan, now_unix_ms);
  if (plan.state() == v1::Plan::PROPOSED && !plan.reason().empty())
    absl::StrAppend(&text, "  ", plan.reason(), "\n");
  if (plan.state() == v1::Plan::UNCONFIRMED && plan.confirm_by_unix_ms() != 0) {
    absl::StrAppend(&text, "  reverted at ", TimeText(plan.confirm_by_unix_ms()),
                    " UTC unless confirmed: onepiece rebalance confirm ", plan.plan_id(), "\n");
  }
  return text + PredictionText(plan.prediction());
}

std::vector<std::string> PlanRow(const v1::Plan& plan, std::int64_t now_unix_ms) {
  std::vector<std::string> moves;
  for (const v1::Move& move : plan.moves())
    moves.push_back(move.node_id() + "=" + PlaceName(move.to()));
  return {plan.plan_id(), StateText(plan),           Since(plan.create_unix_ms(), now_unix_ms),
          plan.actor(),   absl::StrJoin(moves, " "), plan.reason()};
}

Json HoldDocument(const v1::Hold& hold) {
  return {{"active", hold.active()},
          {"until_unix_ms", hold.until_unix_ms()},
          {"actor", hold.actor()},
          {"reason", hold.reason()}};
}

std::string HoldText(const v1::Hold& hold, std::int64_t now_unix_ms) {
  if (!hold.active()) return "Hold: none; the policy may move instances.\n";
  std::string text = absl::StrCat("Hold: no automatic moves, by ", hold.actor());
  if (hold.until_unix_ms() != 0) {
    const double left = static_cast<double>(hold.until_unix_ms() - now_unix_ms) / 1e3;
    absl::StrAppend(&text, ", for ", HumanSeconds(std::max(0.0, left)), " more");
  } else {
    text += ", until `onepiece rebalance hold --release`";
  }
  if (!hold.reason().empty()) absl::StrAppend(&text, ": ", hold.reason());
  return text + "\n";
}

Json ElasticityDocument(const v1::Elasticity& elasticity) {
  Json pools = Json::array(), plans = Json::array();
  for (const v1::PoolStatus& pool : elasticity.pools()) {
    Json shares = Json::array();
    for (const v1::AppShare& share : pool.shares())
      shares.push_back({{"app", share.app_id()}, {"utilization", share.utilization()}});
    pools.push_back(
        {{"workflow_set", pool.workflow_set()},
         {"pool", pool.pool()},
         {"app_ids", std::vector<std::string>(pool.app_ids().begin(), pool.app_ids().end())},
         {"instances", pool.instances()},
         {"min_instances", pool.min_instances()},
         {"max_instances", pool.max_instances()},
         {"utilization", pool.has_utilization() ? Json(pool.utilization()) : Json(nullptr)},
         {"shares", shares}});
  }
  Json apps = Json::array();
  for (const v1::AppStatus& app : elasticity.apps()) {
    apps.push_back({{"workflow_set", app.workflow_set()},
                    {"app", app.app_id()},
                    {"asked_per_s", app.asked_per_s()},
                    {"rejected_per_s", app.rejected_per_s()},
                    {"sustainable_per_s",
                     app.has_sustainable_per_s() ? Json(app.sustainable_per_s()) : Json(nullptr)}});
  }
  Json costs = Json::array();
  for (const v1::StageCost& cost : elasticity.costs()) costs.push_back(CostDocument(cost));
  for (const v1::Plan& plan : elasticity.plans()) plans.push_back(PlanDocument(plan));
  return {{"plan_revision", elasticity.plan_revision()},
          {"policy", elasticity.policy()},
          {"policy_detail", elasticity.policy_detail()},
          {"window_s", elasticity.window_s()},
          {"hold", HoldDocument(elasticity.hold())},
          {"pools", pools},
          {"apps", apps},
          {"costs", costs},
          {"plans", plans}};
}

std::string ElasticityText(const v1::Elasticity& elasticity, std::int64_t now_unix_ms) {
  std::vector<std::vector<std::string>> rows = {
      {"POOL", "INSTANCES", "MIN", "MAX", "UTILISATION", "BY APPLICATION"}};
  for (const v1::PoolStatus& pool : elasticity.pools()) {
    rows.push_back({PoolName(pool.workflow_set(), pool.pool()), absl::StrCat(pool.instances()),
                    absl::StrCat(pool.min_instances()),
                    pool.max_instances() == 0 ? "-" : absl::StrCat(pool.max_instances()),
                    pool.has_utilization() ? absl::StrFormat("%.0f %%", 100 * pool.utilization())
                                           : "not measured yet",
                    Shares(pool)});
  }
  std::string text = Table(rows) + AppsText(elasticity) + CostsText(elasticity);
  absl::StrAppend(&text, "Policy: ", elasticity.policy(), ", mean over ",
                  HumanSeconds(elasticity.window_s()), ", plan revision ",
                  elasticity.plan_revision(), "\n");
  if (!elasticity.policy_detail().empty())
    absl::StrAppend(&text, "  moves nothing now: ", elasticity.policy_detail(), "\n");
  text += HoldText(elasticity.hold(), now_unix_ms);
  if (elasticity.plans().empty()) text += "No plan is under way.\n";
  for (const v1::Plan& plan : elasticity.plans()) text += PlanText(plan, now_unix_ms);
  return text;
}

}  // namespace onepiece::cli
