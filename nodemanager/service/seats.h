// Seats as people write them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/paxos/types.h"

namespace onepiece::nodemanager {

/// Checks the name and the address of a seat.
/// Errors: INVALID_ARGUMENT (BAD_SEAT), which names the field.
absl::Status CheckSeat(const std::string& name, const std::string& address);

/// Parses texts such as "nodemanager-1=10.0.0.1:7400". No name and no address may come twice, and
/// `self` must be among them, unless there are none.
/// Errors: INVALID_ARGUMENT (BAD_SEAT).
absl::StatusOr<std::vector<paxos::Seat>> ParseSeats(const std::vector<std::string>& texts,
                                                    const std::string& self);

}  // namespace onepiece::nodemanager
