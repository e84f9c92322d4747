#include "cluster/telemetry/audit_document.h"

#include <nlohmann/json.hpp>

namespace onepiece::telemetry {

nlohmann::ordered_json AuditDocument(const v1::AuditEntry& entry) {
  return {{"revision", entry.revision()},
          {"time_unix_ms", entry.time_unix_ms()},
          {"action", entry.action()},
          {"subject", entry.subject()},
          {"detail", entry.detail()},
          {"caller", entry.caller()},
          {"caller_address", entry.caller_address()},
          {"answer", entry.answer()}};
}

}  // namespace onepiece::telemetry
