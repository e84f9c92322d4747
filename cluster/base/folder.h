// Folders whose entries survive a power cut.
#pragma once

#include <string>

namespace onepiece::base {

/// Makes the names in the folder `path` durable. A new file or folder, and one that was renamed,
/// survives a power cut only after this.
///
/// Blocking: waits for the disk.
/// Errors: returns false, with the cause in errno.
bool SyncFolder(const std::string& path);
/// Does the same for the folder that holds `path`, which may be relative.
bool SyncFolderOf(const std::string& path);

}  // namespace onepiece::base
