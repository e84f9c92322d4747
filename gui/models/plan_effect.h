// What the server says that a plan would do, as rows, and what came of it. Nothing is predicted
// here: values and bands are the server's, and a difference is one of two of its numbers.
//
// Threading  Values and pure functions.
#pragma once

#include <QString>
#include <cstdint>
#include <memory>
#include <vector>

#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::gui {

struct EffectRow {
  QString key;              ///< "throughput/SET/APP", "utilization/SET/POOL", "wait/…", …
  QString what;             ///< "Throughput of wan-t2v"
  QString before, after;    ///< With their bands: "0.42/s (0.38 to 0.47)".
  QString change;           ///< After less before, its low end from both low ends, and so on.
  double change_value = 0;  ///< NaN: no number.
  StatusTone tone = StatusTone::kNeutral;  ///< Of the change: better or worse.
  QString actual;                          ///< After the plan: what is measured, and how it fits.
  StatusTone actual_tone = StatusTone::kNeutral;
};

/// Rows of applications, the narrowest pool, pools that change, the rest. Empty where the server
/// gives no numbers (EffectHead says why).
std::vector<EffectRow> EffectRows(const v1::Prediction& prediction);
/// "From 12 min window, 341 jobs", or "Insufficient data: …".
QString EffectHead(const v1::Prediction& prediction);

/// Fills in `actual` of throughput and utilisation from what the server measures now, and says how
/// the prediction did as a whole. Only a plan that is DONE or UNCONFIRMED has an actual; until the
/// window of `elasticity` lies behind its last move nothing is judged. Beyond 20 % from the
/// predicted value the verdict is "low confidence".
QString Score(const v1::Plan& plan, const v1::Elasticity& elasticity, std::int64_t server_now_ms,
              std::vector<EffectRow>& rows);

/// Columns: what, before, after, change, measured.
std::unique_ptr<KeyedTable<EffectRow>> MakeEffectTable(QObject* parent);
bool SameEffect(const EffectRow& a, const EffectRow& b);

}  // namespace onepiece::gui
