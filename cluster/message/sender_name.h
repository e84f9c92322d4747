// How a node names itself in the messages that it sends.
#pragma once

#include <string>

namespace onepiece::message {

/// What Header::sender says of the node with this id: the id itself, when it has at most 63 bytes.
/// Of a longer one it is the first 54 bytes, '~', and the CRC-32C of the whole id in 8 hex digits.
/// Compare senders by it. Node ids are ASCII, so none is cut within a character.
std::string SenderName(const std::string& node_id);

}  // namespace onepiece::message
