// The control plane of the two-guest test: one question and one answer over TCP.
#pragma once

#include <QTcpServer>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"

namespace onepiece::rdma_vm {

/// Asks ADDRESS:kPort. Retries until somebody listens there or `limit` of real time passes.
///
/// Errors: UNAVAILABLE.
absl::StatusOr<std::string> Ask(const std::string& address, std::string_view question,
                                base::Duration limit);

/// Threading: one thread.
class Answerer {
 public:
  /// Listens on every address. REQUIRES: kPort is free.
  Answerer();
  /// Waits at most `limit` for a question and answers it. Returns false when none came.
  bool AnswerOne(const std::function<std::string(std::string_view)>& answer, base::Duration limit);

 private:
  QTcpServer server_;
};

}  // namespace onepiece::rdma_vm
