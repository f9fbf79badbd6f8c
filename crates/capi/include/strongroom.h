/* strongroom.h: encrypted rooms for C programs.
 *
 * Made from crates/capi by cbindgen; do not edit. How to begin: docs/embedding.md.
 *
 * Every function may be called from any thread. Handles are numbers: one that was closed or never was open is an error
 * (STRONGROOM_CLOSED), never undefined. A function that returns int32_t returns STRONGROOM_OK or a negative code; one that returns
 * int64_t a number from 0 on or a negative code. strongroom_last_error() has the text of the calling thread's last error.
 *
 * What is up to you: pointers that are not NULL must lead to what is said here, and nobody else may change it during the call.
 */

#ifndef STRONGROOM_H
#define STRONGROOM_H

#include <stddef.h>
#include <stdint.h>

// For `strongroom_file_open`: reading.
#define STRONGROOM_READ 1

// Writing.
#define STRONGROOM_WRITE 2

// Each write goes to the end, whatever the position. Needs `STRONGROOM_WRITE`, as the next three do.
#define STRONGROOM_APPEND 4

// Make it where it is missing.
#define STRONGROOM_CREATE 8

// Make it, and refuse one that is there, a symbolic link too.
#define STRONGROOM_EXCLUSIVE 16

// Cut it to nothing.
#define STRONGROOM_TRUNCATE 32

// For `strongroom_rename`: refuse a target that exists.
#define STRONGROOM_RENAME_NOREPLACE 1

// Swap the two, which both exist.
#define STRONGROOM_RENAME_EXCHANGE 2

// For `strongroom_xattr_set`: refuse one that exists.
#define STRONGROOM_XATTR_CREATE 1

// Refuse one that does not exist.
#define STRONGROOM_XATTR_REPLACE 2

// What a call came to. 0 and above is success; of these each has something else to do about it.
enum strongroom_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done.
  STRONGROOM_OK = 0,
  // There is no such file, no such snapshot (any more), or no policy.
  STRONGROOM_NOT_FOUND = -1,
  // There is one already.
  STRONGROOM_EXISTS = -2,
  // Not a directory.
  STRONGROOM_NOT_DIRECTORY = -3,
  // Is a directory.
  STRONGROOM_IS_DIRECTORY = -4,
  // A directory that is not empty.
  STRONGROOM_NOT_EMPTY = -5,
  // Not allowed, whatever the key.
  STRONGROOM_NOT_PERMITTED = -6,
  // The room or the file was not opened for this.
  STRONGROOM_READ_ONLY = -7,
  // An argument that makes no sense: NULL, too long, out of range.
  STRONGROOM_INVALID_ARGUMENT = -8,
  // Not there in this version, or for this kind of file.
  STRONGROOM_NOT_SUPPORTED = -9,
  // No space where the room is stored: make some, and try again.
  STRONGROOM_NO_SPACE = -10,
  // Data is damaged or was replaced: restore it from a backup.
  STRONGROOM_CORRUPT = -11,
  // The storage failed: open the room again.
  STRONGROOM_IO = -12,
  // Wrong passphrase or key.
  STRONGROOM_WRONG_KEY = -13,
  // The directory holds no room.
  STRONGROOM_NOT_A_ROOM = -14,
  // Another process has the room open, or a transaction has it.
  STRONGROOM_BUSY = -15,
  // The room is older than this machine saw it.
  STRONGROOM_ROLLED_BACK = -16,
  // The handle was closed, never was open, is of another kind, or the process is a fork of the one that opened it.
  STRONGROOM_CLOSED = -17,
  // A fault of this library: please report it.
  STRONGROOM_INTERNAL = -18,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum strongroom_code strongroom_code;
#else
typedef int32_t strongroom_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What kind of secret a key is.
enum strongroom_key_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A passphrase: at least one byte, taken byte for byte.
  STRONGROOM_KEY_PASSPHRASE = 1,
  // The whole content of a key file.
  STRONGROOM_KEY_FILE = 2,
  // 32 random bytes.
  STRONGROOM_KEY_RAW = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum strongroom_key_kind strongroom_key_kind;
#else
typedef int32_t strongroom_key_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What kind of file something is.
enum strongroom_file_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A regular file.
  STRONGROOM_FILE_REGULAR = 1,
  // A directory.
  STRONGROOM_FILE_DIRECTORY = 2,
  // A symbolic link.
  STRONGROOM_FILE_SYMLINK = 3,
  // A named pipe.
  STRONGROOM_FILE_FIFO = 4,
  // A socket.
  STRONGROOM_FILE_SOCKET = 5,
  // A character device.
  STRONGROOM_FILE_CHAR_DEVICE = 6,
  // A block device.
  STRONGROOM_FILE_BLOCK_DEVICE = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum strongroom_file_kind strongroom_file_kind;
#else
typedef int32_t strongroom_file_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What became of a file between two moments.
enum strongroom_change_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The path is new.
  STRONGROOM_CHANGE_ADDED = 1,
  // The path is gone.
  STRONGROOM_CHANGE_REMOVED = 2,
  // The same file has another path. What is below a directory that was renamed is not listed for that.
  STRONGROOM_CHANGE_RENAMED = 3,
  // It has other contents, or another modification time.
  STRONGROOM_CHANGE_CONTENTS = 4,
  // It has another mode, owner, flags or extended attributes only.
  STRONGROOM_CHANGE_ATTRIBUTES = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum strongroom_change_kind strongroom_change_kind;
#else
typedef int32_t strongroom_change_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How to make and open a room. Fill it by `strongroom_options_init`, then change what you want.
typedef struct {
  // `sizeof(strongroom_options)`, by which the library knows the header that you were compiled with.
  size_t size;
  // Not 0: refuse every change.
  int32_t read_only;
  // Not 0: open although this machine has seen a newer state, as after a backup was put back.
  int32_t accept_rollback;
  // Milliseconds after which changes are committed without being asked; 0: only when asked, or when much is pending.
  uint64_t commit_interval_ms;
  // Where this machine remembers the newest state it saw of rooms; NULL: `$XDG_STATE_HOME/strongroom`, else
  // `~/.local/state/strongroom`.
  const char *state_dir;
  // Of a new passphrase or key file: memory of Argon2id in KiB, 8,192 to 1,048,576; 0, with the next two: measured to about a second.
  uint32_t argon2_memory_kib;
  // Its passes, 1 to 64.
  uint32_t argon2_passes;
  // Its lanes, 1 to 16.
  uint32_t argon2_lanes;
  // Suite of a new room: 0: the faster one here; 1: AES-256-GCM; 2: ChaCha20-Poly1305.
  uint32_t suite;
} strongroom_options;

// A passphrase or key. The library keeps no pointer to it; wipe it when you need it no more.
typedef struct {
  // One of `strongroom_key_kind`.
  int32_t kind;
  // The bytes.
  const void *data;
  // How many.
  size_t len;
} strongroom_key;

// An open room. A number: 0 is none.
typedef uint64_t strongroom_room;

// Facts about a room.
typedef struct {
  // Identity.
  uint8_t id[16];
  // Commits since it was made.
  uint64_t generation;
  // Seconds since 1970 at which it was made.
  uint64_t created;
  // Segments.
  uint64_t segments;
  // Format version.
  uint32_t format;
  // Suite of file data: 1: AES-256-GCM; 2: ChaCha20-Poly1305.
  uint32_t suite;
  // Rises with each rekey.
  uint32_t key_epoch;
  // Key slots in use.
  uint32_t slots;
  // Not 0: opened for reading only.
  int32_t read_only;
} strongroom_info;

// Space of a room and of what holds it, in bytes.
typedef struct {
  // Of the storage below.
  uint64_t total;
  // Free in it.
  uint64_t free;
  // Free and to be had.
  uint64_t available;
  // File data held.
  uint64_t live;
  // All segments.
  uint64_t stored;
  // Files of any kind (a number, no bytes).
  uint64_t inodes;
} strongroom_space;

// A key slot.
typedef struct {
  // Its number, 0 to 31.
  uint32_t id;
  // 1: passphrase; 2: key file; 3: raw key; 4: age or SSH recipients; 5: passphrase with key file.
  int32_t kind;
  // Seconds since 1970 at which it was made.
  uint64_t created;
  // What its owner calls it, ended with NUL; cut where it is longer.
  char label[128];
} strongroom_slot;

// An open file. A number: 0 is none.
typedef uint64_t strongroom_file;

// A moment.
typedef struct {
  // Seconds since 1970, negative before.
  int64_t secs;
  // Nanoseconds after them, 0 to 999,999,999.
  uint32_t nanos;
} strongroom_time;

// Attributes.
typedef struct {
  // Inode number, never used again.
  uint64_t inode;
  // Length in bytes.
  uint64_t size;
  // Bytes of data that are stored: multiples of 4096, holes not counted.
  uint64_t stored;
  // Device number of a device node.
  uint64_t rdev;
  // Last access.
  strongroom_time atime;
  // Last change of the data.
  strongroom_time mtime;
  // Last change of the inode.
  strongroom_time ctime;
  // Birth.
  strongroom_time btime;
  // One of `strongroom_file_kind`.
  int32_t kind;
  // Permission bits with set-id and sticky, 0 to 07777. Kept, and not checked.
  uint32_t mode;
  // Owner.
  uint32_t uid;
  // Group.
  uint32_t gid;
  // Number of names; of a directory 2 and its subdirectories.
  uint32_t nlink;
} strongroom_stat;

// An open listing of a directory. A number: 0 is none.
typedef uint64_t strongroom_dir;

// One name of a directory.
typedef struct {
  // Attributes of what it leads to; of a symbolic link its own.
  strongroom_stat stat;
  // The name: 1 to 255 bytes, ended with NUL.
  char name[256];
} strongroom_entry;

// A snapshot.
typedef struct {
  // Rises with each snapshot, from 1, and is never used again.
  uint64_t number;
  // The moment.
  strongroom_time created;
  // Bytes that it alone holds: deleting it frees as much.
  uint64_t exclusive;
  // Not 0: a policy created it, and may delete it.
  int32_t automatic;
  // Its name: 1 to 255 bytes of UTF-8, ended with NUL.
  char name[256];
} strongroom_snapshot;

// An open comparison of two moments. A number: 0 is none.
typedef uint64_t strongroom_diff;

// One difference between two moments.
typedef struct {
  // Its path, ended with NUL; the later one, if there is a later one.
  const char *path;
  // The earlier path of what was renamed; else NULL.
  const char *from;
  // Length in bytes before; -1 where it was not there, or is no regular file.
  int64_t before;
  // Length in bytes after, likewise.
  int64_t after;
  // One of `strongroom_change_kind`.
  int32_t change;
  // One of `strongroom_file_kind`.
  int32_t kind;
} strongroom_change;

// How many automatic snapshots a room keeps. The newest of an hour, day or week is kept; only those that have one count.
typedef struct {
  // `sizeof(strongroom_snapshot_policy)`, by which the library knows the header that you were compiled with.
  size_t size;
  // Hours of which one is kept.
  uint32_t hourly;
  // Days in UTC, likewise.
  uint32_t daily;
  // Weeks from Monday in UTC, likewise.
  uint32_t weekly;
  // With less than this part of the storage free, the oldest go earlier, and none is created; percent, 0 to 99.
  uint32_t min_free_percent;
} strongroom_snapshot_policy;

// What applying a policy did.
typedef struct {
  // Number of the automatic snapshot that was due and created; 0: none was.
  uint64_t created;
  // How many automatic snapshots were deleted.
  uint64_t deleted;
  // When the next one is due; `secs` -1: the room has no policy.
  strongroom_time next_due;
} strongroom_policy_report;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Why the last call that failed in this thread did, in a sentence for people: what happened, to what, and what to do next. Empty before
// the first one. It stays until the next call that fails in this thread, or the thread's end.
//
// Thread safety: any thread; each has its own.
const char *strongroom_last_error(void);

// The number of POSIX (`errno.h`) that is nearest to the last error of this thread; 0 before the first one.
//
// Thread safety: any thread; each has its own.
int32_t strongroom_last_errno(void);

// The version of this library, as `0.1.0`.
//
// Thread safety: any thread.
const char *strongroom_version(void);

// Fills in what is usual: changes allowed, a commit every 5 seconds, costs measured, the faster suite.
// `options`: room for them; NULL is an error.
//
// Thread safety: any thread.
//
// `options` is NULL or points to room for them.
int32_t strongroom_options_init(strongroom_options *options);

// Creates a room in the directory `dir`, which must not exist or be empty, and opens it. `key` will open it. `options`: NULL for what is
// usual. `room`: where the handle goes; 0 on failure.
//
// `EXISTS`: the directory holds something. `INVALID_ARGUMENT`: an empty passphrase, a raw key that has not 32 bytes.
//
// Thread safety: any thread.
//
// Each pointer is NULL or points to what it says.
int32_t strongroom_create(const char *dir,
                          const strongroom_key *key,
                          const strongroom_options *options,
                          strongroom_room *room);

// Opens the room in the directory `dir`. The rest as for `strongroom_create`.
//
// `WRONG_KEY`, `NOT_A_ROOM`, `BUSY` (another process has it, or this one, by another handle), `ROLLED_BACK`, `CORRUPT`.
//
// Thread safety: any thread.
//
// Each pointer is NULL or points to what it says.
int32_t strongroom_open(const char *dir,
                        const strongroom_key *key,
                        const strongroom_options *options,
                        strongroom_room *room);

// Waits for the calls that other threads are in, makes everything durable, and closes. Files and listings that are open stay so:
// listings can be read on, and every call on a file but closing is `CLOSED`. `BUSY`: a transaction is open; the room stays open: complete it, or abandon the room.
// After any other error the handle is closed nevertheless.
//
// Thread safety: any thread; of two that close the same room one gets `CLOSED`.
int32_t strongroom_close(strongroom_room room);

// Closes as `strongroom_close` does, but for a transaction that is open: of that nothing is left.
//
// Thread safety: any thread; of two that close the same room one gets `CLOSED`.
int32_t strongroom_abandon(strongroom_room room);

// Makes everything done so far durable. Within a transaction its completion does that, and this does nothing.
//
// Thread safety: any thread.
int32_t strongroom_sync(strongroom_room room);

// Facts about the room.
//
// Thread safety: any thread.
//
// `info` is NULL or points to room for them.
int32_t strongroom_get_info(strongroom_room room, strongroom_info *info);

// Space of the room, and of what holds it.
//
// Thread safety: any thread.
//
// `space` is NULL or points to room for it.
int32_t strongroom_get_space(strongroom_room room, strongroom_space *space);

// Begins a transaction: what any thread does to the room from now on becomes durable as a whole when `strongroom_complete` returns, and
// after a crash before that none of it is there. They nest by count; the outermost counts. There is no way back but
// `strongroom_abandon`.
//
// Thread safety: any thread; a transaction is the room's, and keeps no other thread out.
int32_t strongroom_begin(strongroom_room room);

// Completes a transaction. `NO_SPACE`: it is still open; delete something, and complete it again. `INVALID_ARGUMENT`: there is none.
//
// Thread safety: any thread, also another one than the one that began.
int32_t strongroom_complete(strongroom_room room);

// 1 if a transaction is open, else 0.
//
// Thread safety: any thread.
int64_t strongroom_in_transaction(strongroom_room room);

// Adds a key. `options`: for the cost of a passphrase, NULL for what is usual. `label`: a word for people, or NULL. `slot`: where the
// slot's number goes, or NULL. Durable when it returns. `BUSY`: not within a transaction.
//
// Thread safety: any thread.
//
// Each pointer is NULL or points to what it says.
int32_t strongroom_key_add(strongroom_room room,
                           const strongroom_key *key,
                           const strongroom_options *options,
                           const char *label,
                           uint32_t *slot);

// Puts another key in a slot; the one that was there opens the room no more. The rest as for `strongroom_key_add`.
//
// Thread safety: any thread.
//
// Each pointer is NULL or points to what it says.
int32_t strongroom_key_change(strongroom_room room,
                              uint32_t slot,
                              const strongroom_key *key,
                              const strongroom_options *options);

// Removes the key in a slot. The last one stays: `INVALID_ARGUMENT`.
//
// Thread safety: any thread.
int32_t strongroom_key_remove(strongroom_room room, uint32_t slot);

// The key slots: puts up to `max` of them into `slots`, and returns how many there are; at most 32.
//
// Thread safety: any thread.
//
// `slots` points to room for `max` of them; NULL where `max` is 0.
int64_t strongroom_key_list(strongroom_room room, strongroom_slot *slots, size_t max);

// Opens a file. `flags`: `STRONGROOM_READ` and others, added up. `mode`: permission bits of one that is made, such as 0644. `file`:
// where the handle goes; 0 on failure. Symbolic links are followed. An open file outlives its name.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL; `file` is NULL or points to room for a handle.
int32_t strongroom_file_open(strongroom_room room,
                             const char *path,
                             uint32_t flags,
                             uint32_t mode,
                             strongroom_file *file);

// Closes a file. Does not make it durable: see `strongroom_file_sync`. Possible also after its room was closed.
//
// Thread safety: any thread; calls that others are in end as if it were still open. Of two that close it one gets `CLOSED`.
int32_t strongroom_file_close(strongroom_file file);

// Reads up to `len` bytes at the position and moves it; returns how many: fewer only at the end of the file, 0 there.
//
// Thread safety: any thread; those that share a handle take turns, and share its position.
//
// `data` is NULL or points to room for `len` bytes.
int64_t strongroom_file_read(strongroom_file file,
                             void *data,
                             size_t len);

// Writes all `len` bytes at the position (or, opened for appending, at the end) and moves it behind them; returns `len`.
//
// Thread safety: any thread; those that share a handle take turns, and share its position.
//
// `data` is NULL or points to `len` bytes.
int64_t strongroom_file_write(strongroom_file file,
                              const void *data,
                              size_t len);

// Reads up to `len` bytes at `offset`; returns how many: fewer only at the end of the file, 0 there. The position stays.
//
// Thread safety: any thread; reads of the same file do not wait for each other.
//
// `data` is NULL or points to room for `len` bytes.
int64_t strongroom_file_pread(strongroom_file file,
                              void *data,
                              size_t len,
                              uint64_t offset);

// Writes all `len` bytes at `offset` (or, opened for appending, at the end); returns `len`. The position stays.
//
// Thread safety: any thread.
//
// `data` is NULL or points to `len` bytes.
int64_t strongroom_file_pwrite(strongroom_file file,
                               const void *data,
                               size_t len,
                               uint64_t offset);

// Moves the position by `offset` from the start (`whence` 0), the present one (1) or the end (2), as `SEEK_SET` and the others are
// numbered; returns the new one. It may be behind the end, and not before the start.
//
// Thread safety: any thread; those that share a handle share its position.
int64_t strongroom_file_seek(strongroom_file file,
                             int64_t offset,
                             int32_t whence);

// Sets the length: cut, or made longer with zeros that take no space. The position stays.
//
// Thread safety: any thread.
int32_t strongroom_file_truncate(strongroom_file file, uint64_t size);

// Attributes of an open file.
//
// Thread safety: any thread.
//
// `stat` is NULL or points to room for them.
int32_t strongroom_file_stat(strongroom_file file, strongroom_stat *stat);

// Makes what was written durable; in fact everything done to the room. Within a transaction its completion does that, and this does
// nothing.
//
// Thread safety: any thread; those that ask at the same time are served by one commit.
int32_t strongroom_file_sync(strongroom_file file);

// Opens the listing of a directory: its names of this moment, in the order in which they were made, neither `.` nor `..`. `dir`: where
// the handle goes; 0 on failure. It can be read on after the room was closed.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL; `dir` is NULL or points to room for a handle.
int32_t strongroom_dir_open(strongroom_room room,
                            const char *path,
                            strongroom_dir *dir);

// The next name: 1 and `entry` is filled in, or 0: there are no more.
//
// Thread safety: any thread; each name is given once, to one of them.
//
// `entry` is NULL or points to room for one.
int64_t strongroom_dir_next(strongroom_dir dir, strongroom_entry *entry);

// Closes a listing.
//
// Thread safety: any thread; of two that close it one gets `CLOSED`.
int32_t strongroom_dir_close(strongroom_dir dir);

// Attributes of what is at a path, through a symbolic link at its end.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL; `to` is NULL or points to room for them.
int32_t strongroom_get_stat(strongroom_room room, const char *path, strongroom_stat *to);

// Attributes of what is at a path; of a symbolic link its own.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL; `to` is NULL or points to room for them.
int32_t strongroom_get_lstat(strongroom_room room, const char *path, strongroom_stat *to);

// Sets permission bits, 0 to 07777.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL.
int32_t strongroom_chmod(strongroom_room room, const char *path, uint32_t mode);

// Sets owner and group; 4294967295 (`(uid_t)-1`) leaves one as it is. `follow` 0: of a symbolic link at the end of the path itself.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL.
int32_t strongroom_chown(strongroom_room room,
                         const char *path,
                         uint32_t uid,
                         uint32_t gid,
                         int32_t follow);

// Sets the times of last access and last change of data; NULL leaves one as it is. `follow` as for `strongroom_chown`.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL; the times are NULL or point to one.
int32_t strongroom_utimes(strongroom_room room,
                          const char *path,
                          const strongroom_time *atime,
                          const strongroom_time *mtime,
                          int32_t follow);

// Sets the length of a file: cut, or made longer with zeros that take no space.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL.
int32_t strongroom_truncate(strongroom_room room, const char *path, uint64_t size);

// Creates a directory with these permission bits, such as 0755, in one that exists.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL.
int32_t strongroom_mkdir(strongroom_room room, const char *path, uint32_t mode);

// Creates a directory, and those above it that are missing; all there already: nothing to do.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL.
int32_t strongroom_mkdirs(strongroom_room room, const char *path);

// Removes a name that is not a directory's. An open file stays usable until it is closed.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL.
int32_t strongroom_unlink(strongroom_room room, const char *path);

// Removes an empty directory.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL.
int32_t strongroom_rmdir(strongroom_room room, const char *path);

// Renames, as rename(2) does: onto a file, which it replaces, or, a directory, onto an empty directory. `flags`: 0,
// `STRONGROOM_RENAME_NOREPLACE` or `STRONGROOM_RENAME_EXCHANGE`.
//
// Thread safety: any thread; others see the old state or the new one.
//
// `from` and `to` are NULL or texts that end with NUL.
int32_t strongroom_rename(strongroom_room room,
                          const char *from,
                          const char *to,
                          uint32_t flags);

// Gives the file `existing` the further name `path`.
//
// Thread safety: any thread.
//
// `existing` and `path` are NULL or texts that end with NUL.
int32_t strongroom_link(strongroom_room room, const char *existing, const char *path);

// Makes a symbolic link at `path` that says `target`.
//
// Thread safety: any thread.
//
// `target` and `path` are NULL or texts that end with NUL.
int32_t strongroom_symlink(strongroom_room room, const char *target, const char *path);

// What a symbolic link says: puts up to `len` bytes of it into `data`, with a NUL behind where there is room, and returns how many bytes
// it has, without NUL. `len` 0: only asks.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL; `data` is NULL or points to room for `len` bytes.
int64_t strongroom_readlink(strongroom_room room,
                            const char *path,
                            char *data,
                            size_t len);

// The value of an extended attribute: puts it into `data` and returns its length. `len` 0: only asks. Where `len` is too small:
// `INVALID_ARGUMENT`; where there is none: `INVALID_ARGUMENT` with the error number `ENODATA`. Symbolic links are followed, here and
// below.
//
// Thread safety: any thread.
//
// `path` and `name` are NULL or texts that end with NUL; `data` is NULL or points to room for `len` bytes.
int64_t strongroom_xattr_get(strongroom_room room,
                             const char *path,
                             const char *name,
                             void *data,
                             size_t len);

// Sets an extended attribute, such as `user.note`. `flags`: 0, `STRONGROOM_XATTR_CREATE` or `STRONGROOM_XATTR_REPLACE`.
//
// Thread safety: any thread.
//
// `path` and `name` are NULL or texts that end with NUL; `data` is NULL or points to `len` bytes.
int32_t strongroom_xattr_set(strongroom_room room,
                             const char *path,
                             const char *name,
                             const void *data,
                             size_t len,
                             uint32_t flags);

// Removes an extended attribute.
//
// Thread safety: any thread.
//
// `path` and `name` are NULL or texts that end with NUL.
int32_t strongroom_xattr_remove(strongroom_room room, const char *path, const char *name);

// The names of all extended attributes, sorted, each ended with NUL: puts them into `data` and returns how many bytes they have. `len` 0:
// only asks. Where `len` is too small: `INVALID_ARGUMENT`.
//
// Thread safety: any thread.
//
// `path` is NULL or a text that ends with NUL; `data` is NULL or points to room for `len` bytes.
int64_t strongroom_xattr_list(strongroom_room room,
                              const char *path,
                              char *data,
                              size_t len);

// Creates a snapshot: the whole room at this moment. It copies nothing, and is durable when this returns. `name`: 1 to 255 bytes of
// UTF-8, without `/`, `@`, `:` and control characters.
//
// `EXISTS`, `INVALID_ARGUMENT`, `BUSY` (a transaction is open), `READ_ONLY`.
//
// Thread safety: any thread.
//
// `name` is NULL or a text that ends with NUL.
int32_t strongroom_snapshot_create(strongroom_room room,
                                   const char *name);

// The snapshots, from the oldest: puts up to `max` of them into `snapshots`, and returns how many there are. A room that never had one
// has 0.
//
// Thread safety: any thread.
//
// `snapshots` points to room for `max` of them; NULL where `max` is 0.
int64_t strongroom_snapshot_list(strongroom_room room,
                                 strongroom_snapshot *snapshots,
                                 size_t max);

// The bytes that all snapshots together hold, and the room itself does not refer to any more: what deleting all of them frees.
//
// Thread safety: any thread.
int64_t strongroom_snapshot_held(strongroom_room room);

// Gives a snapshot another name. The rest as for `strongroom_snapshot_create`; `NOT_FOUND`.
//
// Thread safety: any thread.
//
// Each name is NULL or a text that ends with NUL.
int32_t strongroom_snapshot_rename(strongroom_room room, const char *from, const char *to);

// Deletes a snapshot; durable when this returns. What it alone holds is freed in the background. Files of it that are open are
// `NOT_FOUND` from then on. `NOT_FOUND`, `BUSY` (a transaction is open), `READ_ONLY`.
//
// Thread safety: any thread.
//
// `name` is NULL or a text that ends with NUL.
int32_t strongroom_snapshot_delete(strongroom_room room,
                                   const char *name);

// Opens a snapshot as a room of its own, for reading: `past` is a handle with which all functions that read work, and those that change
// something are `READ_ONLY`. `past`: where the handle goes; 0 on failure. Close it with `strongroom_close`; it is `CLOSED` too when the
// room is closed, and `NOT_FOUND` when the snapshot is deleted.
//
// Thread safety: any thread.
//
// `name` is NULL or a text that ends with NUL; `past` is NULL or points to room for a handle.
int32_t strongroom_snapshot_open(strongroom_room room,
                                 const char *name,
                                 strongroom_room *past);

// Puts a file or directory back as it was in a snapshot: contents, mode, owner, times, extended attributes, and hard links within it.
// `to`: where; NULL: where it was. What is there now is replaced as a whole, in one step, and is gone: create a snapshot first to keep
// it. Where that fails nothing is replaced; an error while what was replaced is removed leaves the rest of that beside the target, below
// `.strongroom-restore-N`. The data is shared with the snapshot and takes no space. `/` puts the whole room back. Durable when this
// returns.
//
// `NOT_FOUND`: no such snapshot, or no such path in it. `NOT_PERMITTED`: flags keep what is there from being replaced. `NO_SPACE`.
// `BUSY` (a transaction is open).
//
// Thread safety: any thread.
//
// Each text is NULL or ends with NUL.
int32_t strongroom_snapshot_restore(strongroom_room room,
                                    const char *name,
                                    const char *path,
                                    const char *to);

// Compares two snapshots, or one with the room as it is now, where `later` is NULL. Reads every directory of both. `diff`: where the
// handle goes; 0 on failure. It can be read on after the room was closed.
//
// Thread safety: any thread.
//
// Each text is NULL or ends with NUL; `diff` is NULL or points to room for a handle.
int32_t strongroom_diff_open(strongroom_room room,
                             const char *earlier,
                             const char *later,
                             strongroom_diff *diff);

// The next change, by path: 1 and `change` is filled in, or 0: there are no more. Its texts stay until `strongroom_diff_close`.
//
// Thread safety: any thread; each change is given once, to one of them.
//
// `change` is NULL or points to room for one.
int64_t strongroom_diff_next(strongroom_diff diff,
                             strongroom_change *change);

// Closes a comparison. The texts of its changes are gone.
//
// Thread safety: any thread; of two that close it one gets `CLOSED`.
int32_t strongroom_diff_close(strongroom_diff diff);

// The room's policy for automatic snapshots. `policy`: its `size` is filled in before the call, the rest by the call.
//
// `NOT_FOUND`: the room has none. `NOT_SUPPORTED`: a newer version set it.
//
// Thread safety: any thread.
//
// `policy` is NULL or points to one whose `size` is filled in.
int32_t strongroom_snapshot_policy_get(strongroom_room room,
                                       strongroom_snapshot_policy *policy);

// Sets the policy; durable when this returns. Nothing is created or deleted before `strongroom_snapshot_policy_apply`, or before the room
// is mounted: the process of a mount applies it once a minute.
//
// `INVALID_ARGUMENT`: it keeps nothing, or asks for more than 99 % of the storage. `BUSY` (a transaction is open),
// `READ_ONLY`.
//
// Thread safety: any thread.
//
// `policy` is NULL or points to one.
int32_t strongroom_snapshot_policy_set(strongroom_room room,
                                       const strongroom_snapshot_policy *policy);

// Removes the policy; durable when this returns. Its snapshots stay. A room without one: nothing to do.
//
// `BUSY` (a transaction is open), `READ_ONLY`.
//
// Thread safety: any thread.
int32_t strongroom_snapshot_policy_clear(strongroom_room room);

// Does what the room's policy asks for now: creates an automatic snapshot where the present hour, day or week has none, and deletes the
// automatic ones that it does not keep. A snapshot made by `strongroom_snapshot_create` is never deleted. The library has no thread that
// does this: call it now and then, when your files belong together. Without a policy nothing is done.
//
// `report`: where it goes; NULL where you do not ask. `BUSY` (a transaction is open), `READ_ONLY`, `NO_SPACE`.
//
// Thread safety: any thread; of several at once one creates the snapshot.
//
// `report` is NULL or points to room for one.
int32_t strongroom_snapshot_policy_apply(strongroom_room room,
                                         strongroom_policy_report *report);

// Deletes the automatic snapshots that the room's policy does not keep, and creates none: puts up to `max` of them into `snapshots`, the
// oldest first, each with what is freed, and returns how many there are. `dry_run` not 0: deletes nothing.
//
// `NOT_FOUND`: the room has no policy. `BUSY` (a transaction is open), `READ_ONLY`.
//
// Thread safety: any thread.
//
// `snapshots` points to room for `max` of them; NULL where `max` is 0.
int64_t strongroom_snapshot_prune(strongroom_room room,
                                  int32_t dry_run,
                                  strongroom_snapshot *snapshots,
                                  size_t max);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STRONGROOM_H */
