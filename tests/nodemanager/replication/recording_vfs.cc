#include "tests/nodemanager/replication/recording_vfs.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

namespace onepiece::nodemanager {
namespace {

constexpr std::uint64_t kSectorBytes = 512;
using Event = RecordingVfs::Event;

RecordingVfs* current = nullptr;

std::string BaseName(const char* path) {
  const std::string text(path);
  return text.substr(text.rfind('/') + 1);
}

// What SQLite gets for a file: our methods and the recorded name. The real file follows in memory.
struct File {
  sqlite3_file base;
  std::string* name;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

File* Of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }

int Close(sqlite3_file* file) {
  delete Of(file)->name;
  return Of(file)->real()->pMethods->xClose(Of(file)->real());
}

int Read(sqlite3_file* file, void* to, int size, sqlite3_int64 offset) {
  return Of(file)->real()->pMethods->xRead(Of(file)->real(), to, size, offset);
}

int Write(sqlite3_file* file, const void* from, int size, sqlite3_int64 offset) {
  if (current->NextWriteFails()) return SQLITE_FULL;
  current->Record({Event::Kind::kWrite, *Of(file)->name, static_cast<std::uint64_t>(offset),
                   std::string(static_cast<const char*>(from), static_cast<std::size_t>(size))});
  return Of(file)->real()->pMethods->xWrite(Of(file)->real(), from, size, offset);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (current->NextWriteFails()) return SQLITE_FULL;
  current->Record({Event::Kind::kTruncate, *Of(file)->name, static_cast<std::uint64_t>(size), ""});
  return Of(file)->real()->pMethods->xTruncate(Of(file)->real(), size);
}

int Sync(sqlite3_file* file, int flags) {
  if (current->NextSyncFails()) return SQLITE_IOERR_FSYNC;
  current->Record({Event::Kind::kSync, *Of(file)->name});
  return Of(file)->real()->pMethods->xSync(Of(file)->real(), flags);
}

int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Of(file)->real()->pMethods->xFileSize(Of(file)->real(), size);
}

int Lock(sqlite3_file* file, int level) {
  return Of(file)->real()->pMethods->xLock(Of(file)->real(), level);
}

int Unlock(sqlite3_file* file, int level) {
  return Of(file)->real()->pMethods->xUnlock(Of(file)->real(), level);
}

int CheckReservedLock(sqlite3_file* file, int* out) {
  return Of(file)->real()->pMethods->xCheckReservedLock(Of(file)->real(), out);
}

// Most file controls are hints. SQLite does without them, and none can bypass the record.
int FileControl(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }

int SectorSize(sqlite3_file* file) {
  return Of(file)->real()->pMethods->xSectorSize(Of(file)->real());
}

int DeviceCharacteristics(sqlite3_file* file) {
  return Of(file)->real()->pMethods->xDeviceCharacteristics(Of(file)->real());
}

// Version 1 has no shared memory and no mapped pages. An exclusive WAL does not need them.
const sqlite3_io_methods kMethods = {1,
                                     Close,
                                     Read,
                                     Write,
                                     Truncate,
                                     Sync,
                                     FileSize,
                                     Lock,
                                     Unlock,
                                     CheckReservedLock,
                                     FileControl,
                                     SectorSize,
                                     DeviceCharacteristics};

int Open(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  sqlite3_vfs* real = current->real();
  int exists = 0;
  real->xAccess(real, path, SQLITE_ACCESS_EXISTS, &exists);
  Of(file)->base.pMethods = nullptr;
  const int code = real->xOpen(real, path, Of(file)->real(), flags, out_flags);
  if (code != SQLITE_OK) return code;
  Of(file)->name = new std::string(BaseName(path));
  Of(file)->base.pMethods = &kMethods;
  if (exists == 0) current->Record({Event::Kind::kCreate, BaseName(path)});
  return code;
}

int Delete(sqlite3_vfs*, const char* path, int sync_folder) {
  const int code = current->real()->xDelete(current->real(), path, sync_folder);
  if (code == SQLITE_OK) current->Record({Event::Kind::kDelete, BaseName(path)});
  return code;
}

// A file on its way through the events: what the disk has for certain, and what it may have
// besides.
struct Inode {
  std::string durable;
  std::vector<const Event*> pending;
  bool syncs_folder =
      false;  // SQLite syncs the folder with the first sync of a new journal or log.
};

void Apply(const Event& event, const RecordingVfs::Reached& reached, std::string& content) {
  if (event.kind == Event::Kind::kTruncate) {
    if (reached()) content.resize(event.offset);
    return;
  }
  const std::uint64_t end = event.offset + event.bytes.size();
  for (std::uint64_t at = event.offset; at < end;) {
    const std::uint64_t stop = std::min(end, (at / kSectorBytes + 1) * kSectorBytes);
    if (reached()) {
      if (content.size() < stop) content.resize(stop);
      std::memcpy(content.data() + at, event.bytes.data() + (at - event.offset), stop - at);
    }
    at = stop;
  }
}

}  // namespace

RecordingVfs::RecordingVfs() : real_(sqlite3_vfs_find(nullptr)), vfs_(*real_) {
  vfs_.zName = "recording";
  vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
  vfs_.xOpen = Open;
  vfs_.xDelete = Delete;
  current = this;
  sqlite3_vfs_register(&vfs_, 1);
}

RecordingVfs::~RecordingVfs() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(real_, 1);
  current = nullptr;
}

void RecordingVfs::FailFrom(std::int64_t write, std::int64_t sync) {
  fail_write_ = write;
  fail_sync_ = sync;
}

RecordingVfs::Files RecordingVfs::Crash(const std::vector<Event>& events, std::size_t count,
                                        const Reached& reached, bool synced) {
  // The names as programs see them, and the names that the disk has for certain.
  std::map<std::string, std::shared_ptr<Inode>> seen, durable;
  for (std::size_t i = 0; i < count; ++i) {
    const Event& event = events[i];
    std::shared_ptr<Inode>& inode = seen[event.file];
    switch (event.kind) {
      case Event::Kind::kCreate:
        inode = std::make_shared<Inode>();
        inode->syncs_folder = event.file.find('-') != std::string::npos;
        break;
      case Event::Kind::kDelete:
        seen.erase(event.file);
        break;
      case Event::Kind::kSync:
        if (!synced) break;
        for (const Event* write : inode->pending)
          Apply(
              *write, [] { return true; }, inode->durable);
        inode->pending.clear();
        // On the file systems on which we run, syncing a file makes its own name durable too.
        durable[event.file] = inode;
        if (std::exchange(inode->syncs_folder, false)) durable = seen;
        break;
      default:
        inode->pending.push_back(&event);
    }
  }
  Files files;
  std::set<std::string> names;
  for (const auto* space : {&seen, &durable}) {
    for (const auto& [name, inode] : *space) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto* space = reached() ? &seen : &durable;
    if (seen.count(name) > 0 && durable.count(name) > 0 && seen[name] == durable[name])
      space = &seen;
    const auto found = space->find(name);
    if (found == space->end()) continue;
    std::string content = found->second->durable;
    for (const Event* write : found->second->pending) Apply(*write, reached, content);
    files[name] = std::move(content);
  }
  return files;
}

}  // namespace onepiece::nodemanager
