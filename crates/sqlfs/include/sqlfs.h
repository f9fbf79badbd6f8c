/* sqlfs.h: libsqlfs's functions on Strongroom's rooms, for programs that were written for libsqlfs.
 *
 * What was the path of a container file is the directory of a room. What differs on purpose is said at each function; the rest is as in
 * libsqlfs: sqlfs_open..., sqlfs_close, transactions and sqlfs_is_dir return 1 for success and 0 for failure; sqlfs_init... and
 * sqlfs_destroy 0 for success; sqlfs_proc_... a number from 0 on, or the negative error number, which errno has too. NULL for a
 * sqlfs_t * is the container that was opened last.
 *
 * Every function may be called from any thread, with any sqlfs_t * (one that was closed is an error). Containers that libsqlfs made are
 * taken over by `strongroom import`.
 */
#ifndef STRONGROOM_SQLFS_H
#define STRONGROOM_SQLFS_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MAX_PASSWORD_LENGTH 512
#define REQUIRED_KEY_LENGTH 32

#define TYPE_NULL "null"
#define TYPE_DIR "dir"
#define TYPE_INT "int"
#define TYPE_DOUBLE "double"
#define TYPE_STRING "string"
#define TYPE_SYM_LINK "sym link"
#define TYPE_BOOL "bool"
#define TYPE_LIST "list"
#define TYPE_BLOB "blob"

typedef struct sqlfs_t sqlfs_t;

#ifndef FUSE_USE_VERSION
/* Of these only flags and direct_io (which is refused) are looked at. */
struct fuse_file_info {
    int flags;
    unsigned long fh_old;
    int writepage;
    unsigned int direct_io : 1;
    unsigned int keep_cache : 1;
    unsigned int padding : 30;
    uint64_t fh;
};
typedef int (*fuse_fill_dir_t)(void *buf, const char *name, const struct stat *st, off_t off);
#endif

typedef struct {
    char *path;
    char *type;
    int32_t inode;
    int32_t uid;
    int32_t gid;
    int32_t mode;
    size_t size;
    time_t atime;
    time_t mtime;
    time_t ctime;
} key_attr;

typedef struct {
    char *data;
    size_t size;
} key_value;

/* Opening makes the room where nothing is. There are no containers without a key: sqlfs_open and sqlfs_init fail. */
int sqlfs_open(const char *db_file, sqlfs_t **psqlfs);
int sqlfs_open_key(const char *db_file, const uint8_t *key, size_t key_len, sqlfs_t **psqlfs);
int sqlfs_open_password(const char *db_file, const char *password, sqlfs_t **psqlfs);
int sqlfs_init(const char *db_file);
int sqlfs_init_key(const char *db_file, const uint8_t *key, size_t key_len);
int sqlfs_init_password(const char *db_file, const char *password);
/* 1 when it was the last one that was open. A transaction that is open is taken back. */
int sqlfs_close(sqlfs_t *sqlfs);
int sqlfs_destroy(void);
int sqlfs_instance_count(void);
/* Does nothing: threads share what is open. */
void sqlfs_detach_thread(void);
/* The container may be open. Passwords take about a second to change. */
int sqlfs_change_password(const char *db_file, const char *old_password, const char *new_password);
int sqlfs_rekey(const char *db_file, const uint8_t *old_key, size_t old_key_len, const void *new_key, size_t new_key_len);
/* Why the last call of this thread that failed did. Not in libsqlfs. */
const char *sqlfs_last_error(void);

/* What is done until the outermost completion is durable then, and after a crash before it not there at all. Other threads are not kept
 * out. i == 0 takes the outermost back, as sqlfs_break_transaction does at once: the room is abandoned and opened again. Where it cannot
 * be opened, all calls fail (-EBADF) until sqlfs_break_transaction, or opening a further handle, has succeeded. */
int sqlfs_begin_transaction(sqlfs_t *sqlfs);
int sqlfs_complete_transaction(sqlfs_t *sqlfs, int i);
int sqlfs_break_transaction(sqlfs_t *sqlfs);

int sqlfs_proc_getattr(sqlfs_t *sqlfs, const char *path, struct stat *stbuf);
/* 0 where there is something: permission bits are kept, and not checked. */
int sqlfs_proc_access(sqlfs_t *sqlfs, const char *path, int mask);
int sqlfs_proc_readlink(sqlfs_t *sqlfs, const char *path, char *buf, size_t size);
int sqlfs_proc_readdir(sqlfs_t *sqlfs, const char *path, void *buf, fuse_fill_dir_t filler, off_t offset, struct fuse_file_info *fi);
/* Regular files only. */
int sqlfs_proc_mknod(sqlfs_t *sqlfs, const char *path, mode_t mode, dev_t rdev);
int sqlfs_proc_mkdir(sqlfs_t *sqlfs, const char *path, mode_t mode);
int sqlfs_proc_unlink(sqlfs_t *sqlfs, const char *path);
int sqlfs_proc_rmdir(sqlfs_t *sqlfs, const char *path);
int sqlfs_proc_symlink(sqlfs_t *sqlfs, const char *path, const char *to);
int sqlfs_proc_rename(sqlfs_t *sqlfs, const char *from, const char *to);
int sqlfs_proc_link(sqlfs_t *sqlfs, const char *from, const char *to);
int sqlfs_proc_chmod(sqlfs_t *sqlfs, const char *path, mode_t mode);
int sqlfs_proc_chown(sqlfs_t *sqlfs, const char *path, uid_t uid, gid_t gid);
int sqlfs_proc_truncate(sqlfs_t *sqlfs, const char *path, off_t size);
int sqlfs_proc_utime(sqlfs_t *sqlfs, const char *path, struct utimbuf *buf);
int sqlfs_proc_open(sqlfs_t *sqlfs, const char *path, struct fuse_file_info *fi);
int sqlfs_proc_create(sqlfs_t *sqlfs, const char *path, mode_t mode, struct fuse_file_info *fi);
int sqlfs_proc_read(sqlfs_t *sqlfs, const char *path, char *buf, size_t size, off_t offset, struct fuse_file_info *fi);
/* Makes the file where it is missing. */
int sqlfs_proc_write(sqlfs_t *sqlfs, const char *path, const char *buf, size_t size, off_t offset, struct fuse_file_info *fi);
int sqlfs_proc_statfs(sqlfs_t *sqlfs, const char *path, struct statvfs *stbuf);
int sqlfs_proc_release(sqlfs_t *sqlfs, const char *path, struct fuse_file_info *fi);
int sqlfs_proc_fsync(sqlfs_t *sqlfs, const char *path, int isdatasync, struct fuse_file_info *fi);
int sqlfs_proc_setxattr(sqlfs_t *sqlfs, const char *path, const char *name, const char *value, size_t size, int flags);
int sqlfs_proc_getxattr(sqlfs_t *sqlfs, const char *path, const char *name, char *value, size_t size);
int sqlfs_proc_listxattr(sqlfs_t *sqlfs, const char *path, char *list, size_t size);
int sqlfs_proc_removexattr(sqlfs_t *sqlfs, const char *path, const char *name);

int sqlfs_is_dir(sqlfs_t *sqlfs, const char *key);
int sqlfs_del_tree(sqlfs_t *sqlfs, const char *key);
int sqlfs_del_tree_with_exclusion(sqlfs_t *sqlfs, const char *key, const char *exclusion_pattern);
int sqlfs_list_keys(sqlfs_t *sqlfs, const char *pattern, void *buf, fuse_fill_dir_t filler);
int sqlfs_get_value(sqlfs_t *sqlfs, const char *key, key_value *value, size_t begin, size_t end);
int sqlfs_set_value(sqlfs_t *sqlfs, const char *key, const key_value *value, size_t begin, size_t end);
int sqlfs_get_attr(sqlfs_t *sqlfs, const char *key, key_attr *attr);
int sqlfs_set_attr(sqlfs_t *sqlfs, const char *key, const key_attr *attr);
/* Types cannot be changed: 1 where it is that one already. */
int sqlfs_set_type(sqlfs_t *sqlfs, const char *key, const char *type);
void clean_attr(key_attr *attr);
void clean_value(key_value *value);

#ifdef __cplusplus
}
#endif

#endif
