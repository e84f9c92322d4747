// Checks whether a write-ahead log of SQLite has lost what had been durable.
//
// SQLite takes the first frame with a wrong checksum for the end of the log (SQLite file format,
// 4.4). That is right after a power cut, which leaves the last transaction torn. It is wrong when
// the disk has changed a frame in the middle: every transaction after it then vanishes without an
// error.
#pragma once

#include <string>

namespace onepiece::nodemanager {

/// Says in words what is wrong with the log at `path`, or nothing when it is right or does not
/// exist.
///
/// It relies on synchronous=FULL: a transaction begins only after the one before it is durable. So
/// a crash did not tear a damaged frame that a later transaction follows. Damage to the last
/// transaction cannot be told from a torn write.
///
/// Threading: thread-safe.
/// Blocking: reads the file.
std::string FindWalDamage(const std::string& path);

}  // namespace onepiece::nodemanager
