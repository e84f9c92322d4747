// The predicted effect of a plan as rows, and the measured one beside it. All values and bands are
// the server's. The console predicts nothing: it only subtracts one of the server's numbers from
// another.
//
// Threading: values and pure functions.
#pragma once

#include <QString>
#include <cstdint>
#include <memory>
#include <vector>

#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::gui {

/// One effect.
struct EffectRow {
  QString key;              ///< "throughput/SET/APP", "utilization/SET/POOL", "wait/…", …
  QString what;             ///< "Throughput of wan-t2v"
  QString before, after;    ///< Values with their bands: "0.42/s (0.38 to 0.47)".
  QString change;           ///< After minus before, with its band.
  double change_value = 0;  ///< NaN if the change is not a number.
  StatusTone tone = StatusTone::kNeutral;  ///< Whether the change is for the better.
  QString actual;                          ///< What is measured after the plan, and how it fits.
  StatusTone actual_tone = StatusTone::kNeutral;
};

/// The rows: applications, the narrowest pool, the pools whose instances change, the other pools,
/// the loss in between. Empty if the server predicts nothing; EffectHead says why.
std::vector<EffectRow> EffectRows(const v1::Prediction& prediction);
/// "Predicted by the server from …", or "Insufficient data: …".
QString EffectHead(const v1::Prediction& prediction);

/// Fills in `actual` of throughput and utilisation from what the server measures now, and says how
/// good the prediction was. Only a plan that is DONE or UNCONFIRMED is judged, and only once the
/// window of `elasticity` lies behind its last move. If a value is more than 20 % off, the verdict
/// is "low confidence".
QString Score(const v1::Plan& plan, const v1::Elasticity& elasticity, std::int64_t server_now_ms,
              std::vector<EffectRow>& rows);

/// Makes the table. Its columns are what, before, after, change and measured.
std::unique_ptr<KeyedTable<EffectRow>> MakeEffectTable(QObject* parent);
bool SameEffect(const EffectRow& a, const EffectRow& b);

}  // namespace onepiece::gui
