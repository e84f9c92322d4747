#include "gui/models/plan_effect.h"

#include <QStringList>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "gui/models/format.h"
#include "gui/models/plan_words.h"
#include "gui/models/pool_board.h"

namespace onepiece::gui {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLowConfidence = 0.2;  // A share of the predicted value.
constexpr double kMinShare = 0.005;     // Half a percent: a smaller share is shown as 0 %.

using Writer = std::function<QString(double)>;

QString WriteShare(double share) { return FormatShare(share); }
/// A negative wait stands for an infinite one.
QString WriteWait(double seconds) { return seconds < 0 ? Tr("grows") : FormatSeconds(seconds); }

/// The unit behind the number: "/s", " %".
QString UnitOf(const QString& text) {
  const auto digit = std::find_if(text.rbegin(), text.rend(), [](QChar c) { return c.isDigit(); });
  return digit == text.rend() ? QString() : text.right(digit - text.rbegin());
}

/// "0.42/s (0.38 to 0.47)": the unit is written once if all three have it.
QString WithBand(const QString& value, QString low, QString high) {
  if (low == high) return value;
  const QString unit = UnitOf(value);
  const QString least = low.chopped(unit.size()), most = high.chopped(unit.size());
  // A text like "4 m 10 s" has two units, of which only the last would be taken away.
  if (unit == UnitOf(low) && unit == UnitOf(high) && !least.contains(u' ') &&
      !most.contains(u' ')) {
    low = least;
    high = most;
  }
  return Tr("%1 (%2 to %3)").arg(value, low, high);
}

QString Banded(const v1::Estimate& estimate, const Writer& write) {
  return WithBand(write(estimate.value()), write(estimate.low()), write(estimate.high()));
}

QString Signed(double value, const Writer& write) {
  const QString text = write(std::abs(value));
  if (text == write(0)) return text;
  return (value < 0 ? QStringLiteral("−") : QStringLiteral("+")) + text;
}

/// Low ends are subtracted from low ends: both bands come from the same measured demand, so their
/// errors go together.
void SetChange(const v1::Estimate& before, const v1::Estimate& after, bool more_is_better,
               const Writer& write, EffectRow& row) {
  row.before = Banded(before, write);
  row.after = Banded(after, write);
  const double value = after.value() - before.value();
  const double low = after.low() - before.low(), high = after.high() - before.high();
  row.change_value = value;
  const QString text = Signed(value, write);
  const QString least = Signed(std::min(low, high), write),
                most = Signed(std::max(low, high), write);
  row.change = WithBand(text, least, most);
  if (text != write(0))
    row.tone = (value > 0) == more_is_better ? StatusTone::kGood : StatusTone::kWarning;
}

void SetWaitChange(const v1::Estimate& before, const v1::Estimate& after, EffectRow& row) {
  const bool finite = std::min({before.value(), before.low(), before.high(), after.value(),
                                after.low(), after.high()}) >= 0;
  if (finite) return SetChange(before, after, false, WriteWait, row);
  row.before = Banded(before, WriteWait);
  row.after = Banded(after, WriteWait);
  row.change_value = kNaN;
  if (before.value() < 0 && after.value() >= 0) {
    row.change = Tr("ends growing");
    row.tone = StatusTone::kGood;
  } else if (before.value() >= 0 && after.value() < 0) {
    row.change = Tr("begins to grow");
    row.tone = StatusTone::kBad;
  } else if (before.value() >= 0) {  // Only an end of a band is infinite.
    const double value = after.value() - before.value();
    row.change = Signed(value, WriteWait);
    row.change_value = value;
  } else {
    row.change = Tr("none");
  }
}

QString Key(const char* kind, const std::string& set, const std::string& name) {
  return QStringLiteral("%1/%2/%3")
      .arg(QLatin1String(kind), QString::fromStdString(set), QString::fromStdString(name));
}

QString Narrowest(const v1::Prediction& prediction, const std::string& id, bool after) {
  if (id.empty()) return Tr("none");
  for (const v1::PoolPrediction& pool : prediction.pools()) {
    if (pool.pool() != id) continue;
    const v1::Estimate& rho = after ? pool.utilization_after() : pool.utilization_before();
    return Tr("%1, ρ %2").arg(PoolName({pool.workflow_set(), id}), FormatShare(rho.value()));
  }
  return PoolName({"", id});
}

void AddPool(const v1::PoolPrediction& pool, std::vector<EffectRow>& rows) {
  const QString name = PoolName({pool.workflow_set(), pool.pool()});
  if (const int change = pool.instances_after() - pool.instances_before(); change != 0) {
    EffectRow instances{.key = Key("instances", pool.workflow_set(), pool.pool())};
    instances.what = Tr("Instances of %1").arg(name);
    instances.before = QString::number(pool.instances_before());
    instances.after = QString::number(pool.instances_after());
    instances.change_value = change;
    instances.change = Signed(change, [](double n) { return QString::number(n); });
    rows.push_back(std::move(instances));
  }
  EffectRow rho{.key = Key("utilization", pool.workflow_set(), pool.pool())};
  rho.what = Tr("ρ of %1").arg(name);
  SetChange(pool.utilization_before(), pool.utilization_after(), false, WriteShare, rho);
  rows.push_back(std::move(rho));
  EffectRow wait{.key = Key("wait", pool.workflow_set(), pool.pool())};
  wait.what = Tr("Mean wait for %1").arg(name);
  SetWaitChange(pool.wait_before(), pool.wait_after(), wait);
  rows.push_back(std::move(wait));
}

/// How a measured value compares with the predicted one.
struct Fit {
  QString text;
  StatusTone tone = StatusTone::kNeutral;
  std::optional<double> error;  ///< Relative error. Absent if it cannot be judged.
};

Fit FitOf(double actual, const v1::Estimate& predicted, const Writer& write) {
  const double error = predicted.value() > 0 ? std::abs(actual / predicted.value() - 1) : 0;
  const double slack = std::min(kMinShare, kMinShare * predicted.value());
  const bool inside = actual >= predicted.low() - slack && actual <= predicted.high() + slack;
  if (inside) return {Tr("%1, within the band").arg(write(actual)), StatusTone::kGood, error};
  return {Tr("%1, %2 off").arg(write(actual), FormatShare(error)),
          error > kLowConfidence ? StatusTone::kBad : StatusTone::kWarning, error};
}

/// Throughput can be judged only where some jobs are turned away. Otherwise admitted jobs show the
/// demand, not the capacity.
Fit FitOf(const v1::AppPrediction& predicted, const v1::Elasticity& elasticity) {
  for (const v1::AppStatus& app : elasticity.apps()) {
    if (app.app_id() != predicted.app_id() || app.workflow_set() != predicted.workflow_set())
      continue;
    const double done = app.asked_per_s() - app.rejected_per_s();
    if (app.rejected_per_s() <= 0 && done < predicted.throughput_after().value())
      return {Tr("%1, all that is asked for").arg(FormatRate(done)), StatusTone::kNeutral, {}};
    return FitOf(done, predicted.throughput_after(), FormatRate);
  }
  return {Tr("not measured"), StatusTone::kUnknown, {}};
}

Fit FitOf(const v1::PoolPrediction& predicted, const v1::Elasticity& elasticity) {
  for (const v1::PoolStatus& pool : elasticity.pools()) {
    if (pool.pool() != predicted.pool() || pool.workflow_set() != predicted.workflow_set())
      continue;
    if (!pool.has_utilization()) break;
    v1::Estimate busy = predicted.utilization_after();  // A measured share is at most 1.
    busy.set_value(std::min(busy.value(), 1.0));
    busy.set_low(std::min(busy.low(), 1.0));
    busy.set_high(std::min(busy.high(), 1.0));
    return FitOf(pool.utilization(), busy, WriteShare);
  }
  return {Tr("not measured"), StatusTone::kUnknown, {}};
}

std::int64_t LastMoveMs(const v1::Plan& plan) {
  std::int64_t last = plan.create_unix_ms();
  for (const v1::Move& move : plan.moves()) last = std::max(last, move.phase_since_unix_ms());
  return last;
}

}  // namespace

std::vector<EffectRow> EffectRows(const v1::Prediction& prediction) {
  std::vector<EffectRow> rows;
  if (!prediction.insufficient_data().empty() || prediction.basis().empty()) return rows;
  for (const v1::AppPrediction& app : prediction.apps()) {
    EffectRow& row = rows.emplace_back();
    row.key = Key("throughput", app.workflow_set(), app.app_id());
    row.what = Tr("Throughput of %1").arg(PoolName({app.workflow_set(), app.app_id()}));
    SetChange(app.throughput_before(), app.throughput_after(), true, FormatRate, row);
  }
  EffectRow& narrowest = rows.emplace_back();
  narrowest.key = QStringLiteral("bottleneck");
  narrowest.what = Tr("Narrowest pool");
  narrowest.before = Narrowest(prediction, prediction.bottleneck_before(), false);
  narrowest.after = Narrowest(prediction, prediction.bottleneck_after(), true);
  narrowest.change_value = kNaN;
  const bool same = prediction.bottleneck_before() == prediction.bottleneck_after();
  narrowest.change = same ? Tr("the same") : Tr("another one");
  for (const bool changes : {true, false}) {
    for (const v1::PoolPrediction& pool : prediction.pools()) {
      if ((pool.instances_before() != pool.instances_after()) == changes) AddPool(pool, rows);
    }
  }
  EffectRow& loss = rows.emplace_back();
  loss.key = QStringLiteral("transient");
  loss.what = Tr("Lost while instances drain and load");
  loss.after = Tr("%1 of worker time").arg(FormatSeconds(prediction.transient_loss_s()));
  loss.change_value = kNaN;
  return rows;
}

QString EffectHead(const v1::Prediction& prediction) {
  if (!prediction.insufficient_data().empty())
    return Tr("Insufficient data: %1").arg(SafeText(prediction.insufficient_data(), 300));
  if (prediction.basis().empty()) return Tr("The server predicts nothing for it");
  return Tr("Predicted by the server from %1").arg(SafeText(prediction.basis(), 120));
}

QString Score(const v1::Plan& plan, const v1::Elasticity& elasticity, std::int64_t server_now_ms,
              std::vector<EffectRow>& rows) {
  if (rows.empty() || (plan.state() != v1::Plan::DONE && plan.state() != v1::Plan::UNCONFIRMED))
    return {};
  const double since = static_cast<double>(server_now_ms - LastMoveMs(plan)) / 1e3;
  // Until then the window still contains loads from before the last move.
  if (since < elasticity.window_s()) {
    return Tr("Measured against it in %1, when the window lies behind the last move")
        .arg(FormatSeconds(std::ceil(elasticity.window_s() - since)));
  }
  int judged = 0, inside = 0;
  double worst = 0;
  QString worst_what;
  const auto judge = [&](const QString& key, const Fit& fit) {
    const auto row = std::ranges::find(rows, key, &EffectRow::key);
    if (row == rows.end()) return;
    row->actual = fit.text;
    row->actual_tone = fit.tone;
    if (!fit.error.has_value()) return;
    ++judged;
    if (fit.tone == StatusTone::kGood) ++inside;
    if (fit.tone != StatusTone::kGood && *fit.error > worst) {
      worst = *fit.error;
      worst_what = row->what;
    }
  };
  for (const v1::AppPrediction& app : plan.prediction().apps())
    judge(Key("throughput", app.workflow_set(), app.app_id()), FitOf(app, elasticity));
  for (const v1::PoolPrediction& pool : plan.prediction().pools())
    judge(Key("utilization", pool.workflow_set(), pool.pool()), FitOf(pool, elasticity));
  if (judged == 0) return Tr("Nothing of it can be measured now");
  if (worst > kLowConfidence)
    return Tr("Low confidence: %1 is %2 off").arg(worst_what, FormatShare(worst));
  return Tr("Predicted against measured: %1 of %2 within their bands").arg(inside).arg(judged);
}

std::unique_ptr<KeyedTable<EffectRow>> MakeEffectTable(QObject* parent) {
  const auto text = [](QString EffectRow::*field) {
    return [field](const EffectRow& row, int role) -> QVariant {
      return role == Qt::DisplayRole || role == Qt::ToolTipRole ? QVariant(row.*field) : QVariant();
    };
  };
  std::vector<KeyedTable<EffectRow>::Column> columns;
  columns.push_back({Tr("Effect"), Tr("What the server predicts"), text(&EffectRow::what)});
  columns.push_back({Tr("Before"), Tr("With instances where they are"), text(&EffectRow::before)});
  columns.push_back({Tr("After"), Tr("With the plan done"), text(&EffectRow::after)});
  columns.push_back({Tr("Change"), Tr("After less before; in brackets: its band"),
                     [](const EffectRow& row, int role) -> QVariant {
                       if (role == Qt::DisplayRole || role == Qt::ToolTipRole) return row.change;
                       if (role == kToneRole) return static_cast<int>(row.tone);
                       if (role == kSortRole && std::isfinite(row.change_value))
                         return row.change_value;
                       return {};
                     }});
  columns.push_back({Tr("Measured"), Tr("After the plan: what is measured now"),
                     [](const EffectRow& row, int role) -> QVariant {
                       if (role == Qt::DisplayRole || role == Qt::ToolTipRole) return row.actual;
                       if (role == kToneRole) return static_cast<int>(row.actual_tone);
                       return {};
                     }});
  return std::make_unique<KeyedTable<EffectRow>>(
      std::move(columns), [](const EffectRow& row) { return row.key; }, parent);
}

bool SameEffect(const EffectRow& a, const EffectRow& b) {
  return a.key == b.key && a.what == b.what && a.before == b.before && a.after == b.after &&
         a.change == b.change && a.tone == b.tone && a.actual == b.actual &&
         a.actual_tone == b.actual_tone;
}

}  // namespace onepiece::gui
