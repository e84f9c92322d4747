#include "nodemanager/service/seats.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/service/options.h"
#include "nodemanager/replication/codec.h"

namespace onepiece::nodemanager {
namespace {

// The limit of node ids, because a seat's name is a node id.
constexpr std::size_t kMaxName = 128;

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

absl::Status BadSeat(const char* field, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SEAT",
                         absl::StrCat(field, ": ", message), {{"field", field}});
}

}  // namespace

absl::Status CheckSeat(const std::string& name, const std::string& address) {
  if (name.empty() || name.size() > kMaxName ||
      !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return BadSeat("name", absl::StrCat("1 to ", kMaxName, " letters, digits, '-', '_' and '.'"));
  }
  if (const absl::Status status = service::CheckAddress("address", address); !status.ok())
    return BadSeat("address", base::Message(status));
  if (address.size() > kMaxNameBytes || address.substr(address.rfind(':')) == ":0")
    return BadSeat("address", "the port that others dial, and at most 255 bytes");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<paxos::Seat>> ParseSeats(const std::vector<std::string>& texts,
                                                    const std::string& self) {
  std::vector<paxos::Seat> seats;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
      return BadSeat("replicas", absl::StrCat("'", text, "' is not name=host:port"));
    paxos::Seat seat{.name = text.substr(0, equals), .address = text.substr(equals + 1)};
    if (const absl::Status status = CheckSeat(seat.name, seat.address); !status.ok())
      return BadSeat("replicas", absl::StrCat("'", text, "': ", base::Message(status)));
    for (const paxos::Seat& other : seats) {
      if (other.name == seat.name || other.address == seat.address)
        return BadSeat("replicas", absl::StrCat("'", text, "' comes twice"));
    }
    seats.push_back(std::move(seat));
  }
  if (seats.size() > paxos::Members::kMaxSeats) {
    return BadSeat("replicas",
                   absl::StrCat("at most ", paxos::Members::kMaxSeats, ", best 3 or 5"));
  }
  const bool named = std::any_of(seats.begin(), seats.end(),
                                 [&](const paxos::Seat& seat) { return seat.name == self; });
  if (!seats.empty() && !named) {
    return BadSeat("replicas",
                   absl::StrCat("this NodeManager, '", self, "' (node_id), is not among them"));
  }
  return seats;
}

}  // namespace onepiece::nodemanager
