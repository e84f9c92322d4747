// The application of the ledger's plug-in: two stages that compute bytes of a seed.
#pragma once

namespace onepiece::ledger {

inline constexpr char kLedgerWorkflow[] =
    "app_id: ledger\n"
    "stages:\n"
    "  - {stage: draw, plugin: ledger}\n"
    "  - {stage: fill, plugin: ledger}\n"
    "parameters:\n"
    "  - {name: seed, type: INTEGER, required: true, minimum: 0, maximum: 9007199254740991}\n"
    "  - {name: size_bytes, type: INTEGER, required: true, minimum: 0, maximum: 209715200}\n"
    "  - {name: seconds, type: NUMBER, default_value: \"0\", minimum: 0, maximum: 600}\n";

}  // namespace onepiece::ledger
