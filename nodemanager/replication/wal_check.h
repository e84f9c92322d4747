// Whether a write-ahead log of SQLite has lost what had been durable.
//
// SQLite takes the first frame with a wrong checksum for the end of the log (SQLite file format,
// 4.4): right after a power cut, which leaves the last transaction torn; wrong when the disk has
// changed a frame in the middle, for then every transaction after it vanishes without an error.
#pragma once

#include <string>

namespace onepiece::nodemanager {

/// What is wrong with the log at `path`, in words; empty: nothing, or it does not exist. Relies on
/// synchronous=FULL: a transaction begins only after the one before it is durable, so a damaged
/// frame that is followed by a later transaction was not torn by a crash. Damage to the last
/// transaction cannot be told from a torn write.
///
/// Threading  Thread-safe. Blocking: reads the file.
std::string FindWalDamage(const std::string& path);

}  // namespace onepiece::nodemanager
