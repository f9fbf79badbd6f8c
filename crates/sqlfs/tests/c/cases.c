/* What libsqlfs's own tests ask of it, asked of rooms through its header: cases DIRECTORY (empty). Prints a line for each case. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "sqlfs.h"

#define BLOCK 8192

static const char *now = "";

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "%s:%d: %s: not so: %s (%s)\n", __FILE__, __LINE__, now, #condition, sqlfs_last_error()); \
            exit(1);                                                                                                \
        }                                                                                                           \
    } while (0)

/* The container that the standard cases are run in; NULL for the one that was opened last. */
static sqlfs_t *fs;

static void fill(char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        data[i] = (char)(i % 90 + 32);
    }
}

static void make(const char *path, size_t size)
{
    struct fuse_file_info fi = {0};
    char *data = malloc(size);
    CHECK(data);
    fi.flags = ~0;
    fill(data, size);
    CHECK(sqlfs_proc_write(fs, path, data, size, 0, &fi) == (int)size);
    free(data);
}

static off_t size_of(const char *path)
{
    struct stat st;
    CHECK(sqlfs_proc_getattr(fs, path, &st) == 0);
    return st.st_size;
}

static void getattr_create_truncate(void)
{
    struct fuse_file_info fi = {0};
    struct stat st;
    errno = 0;
    CHECK(sqlfs_proc_getattr(fs, "/fresh", &st) == -ENOENT && errno == ENOENT);
    CHECK(sqlfs_proc_create(fs, "/fresh", 0100644, &fi) == 0);
    CHECK(size_of("/fresh") == 0);
    CHECK(sqlfs_proc_truncate(fs, "/fresh", 0) == 0 && size_of("/fresh") == 0);
    CHECK(sqlfs_proc_truncate(fs, "/fresh", 100000) == 0 && size_of("/fresh") == 100000);
    CHECK(sqlfs_proc_truncate(fs, "/fresh", 0) == 0 && size_of("/fresh") == 0);
}

static void directories(void)
{
    CHECK(sqlfs_proc_mkdir(fs, "/made", 0777) == 0 && sqlfs_is_dir(fs, "/made") == 1);
    CHECK(sqlfs_proc_mkdir(fs, "/made", 0777) == -EEXIST);
    CHECK(sqlfs_proc_mkdir(fs, "/a/b/c/d/e/f/g", 0777) == -ENOENT && sqlfs_is_dir(fs, "/a/b/c/d/e/f/g") == 0);
    CHECK(sqlfs_proc_mkdir(fs, "/test", 0777) == 0);
    CHECK(sqlfs_proc_mkdir(fs, "/test/1", 0777) == 0);
    CHECK(sqlfs_proc_mkdir(fs, "/test/1/2", 0777) == 0 && sqlfs_is_dir(fs, "/test/1/2") == 1);
    CHECK(sqlfs_proc_rmdir(fs, "/test/1") == -ENOTEMPTY && sqlfs_is_dir(fs, "/test/1/2") == 1);
    CHECK(sqlfs_proc_rmdir(fs, "/made") == 0 && sqlfs_is_dir(fs, "/made") == 0);
}

static void small_string(void)
{
    struct fuse_file_info fi = {0};
    const char *text = "this is a string";
    char found[200];
    fi.flags = ~0;
    CHECK(sqlfs_proc_mkdir(fs, "/bufdir", 0777) == 0);
    CHECK(sqlfs_proc_write(fs, "/bufdir/file", text, strlen(text), 0, &fi) == (int)strlen(text));
    CHECK(sqlfs_is_dir(fs, "/bufdir/file") == 0);
    CHECK(sqlfs_proc_read(fs, "/bufdir/file", found, sizeof found, 0, &fi) == (int)strlen(text));
    CHECK(memcmp(found, text, strlen(text)) == 0);
    CHECK(sqlfs_proc_write(fs, "/missing/file", text, 1, 0, &fi) == -ENOENT);
    CHECK(sqlfs_proc_write(fs, "/bufdir", text, 1, 0, &fi) == -EISDIR);
    CHECK(sqlfs_proc_read(fs, "/missing", found, 1, 0, &fi) == -ENOENT);
}

static void write_seek_write(void)
{
    struct fuse_file_info fi = {0};
    const char *one = "it was the best of times", *two = "it was the worst of times";
    char found[64];
    fi.flags = O_RDWR | O_CREAT;
    for (off_t skip = 100; skip < 1000001; skip *= 100) {
        CHECK(sqlfs_proc_write(fs, "/skip", one, strlen(one), 0, &fi) == (int)strlen(one));
        CHECK(sqlfs_proc_write(fs, "/skip", two, strlen(two), skip, NULL) == (int)strlen(two));
        CHECK(size_of("/skip") == skip + (off_t)strlen(two));
        CHECK(sqlfs_proc_read(fs, "/skip", found, strlen(one), 0, &fi) == (int)strlen(one) && memcmp(found, one, strlen(one)) == 0);
        CHECK(sqlfs_proc_read(fs, "/skip", found, 64, skip, &fi) == (int)strlen(two) && memcmp(found, two, strlen(two)) == 0);
    }
}

static void block_boundaries(void)
{
    static char data[4 * BLOCK + 1], found[4 * BLOCK + 2];
    struct fuse_file_info fi = {0};
    char path[32];
    fill(data, sizeof data);
    for (size_t n = 1; n < 5; n++) {
        for (size_t size = n * BLOCK - 1; size <= n * BLOCK + 1; size++) {
            snprintf(path, sizeof path, "/boundary%zu", size);
            CHECK(sqlfs_proc_write(fs, path, data, size, 0, &fi) == (int)size);
            CHECK(size_of(path) == (off_t)size);
            CHECK(sqlfs_proc_read(fs, path, found, sizeof found, 0, &fi) == (int)size && memcmp(found, data, size) == 0);
        }
    }
}

static void bigger_than_buffer(void)
{
    char found[200];
    make("/bigger", 800);
    CHECK(sqlfs_proc_read(fs, "/bigger", found, sizeof found, 200, NULL) == 200);
    CHECK(found[0] == 200 % 90 + 32);
}

static void append(void)
{
    struct fuse_file_info fi = {0};
    char data[200], found[400];
    make("/append", 200);
    fill(data, sizeof data);
    fi.flags = O_WRONLY | O_APPEND;
    CHECK(sqlfs_proc_open(fs, "/append", &fi) == 0);
    CHECK(sqlfs_proc_write(fs, "/append", data, 200, 0, &fi) == 200);
    CHECK(size_of("/append") == 400);
    CHECK(sqlfs_proc_read(fs, "/append", found, 400, 0, NULL) == 400);
    CHECK(memcmp(found, data, 200) == 0 && memcmp(found + 200, data, 200) == 0);
}

static void open_flags(void)
{
    struct fuse_file_info fi = {0};
    fi.flags = O_RDONLY;
    CHECK(sqlfs_proc_open(fs, "/no such file", &fi) == -ENOENT);
    fi.flags = O_WRONLY | O_CREAT;
    CHECK(sqlfs_proc_open(fs, "/opened", &fi) == 0 && size_of("/opened") == 0);
    make("/opened2", 100);
    CHECK(sqlfs_proc_open(fs, "/opened2", &fi) == 0 && size_of("/opened2") == 100);
    fi.flags = O_WRONLY | O_CREAT | O_TRUNC;
    CHECK(sqlfs_proc_open(fs, "/opened2", &fi) == 0 && size_of("/opened2") == 0);
    CHECK(sqlfs_proc_open(fs, "/opened3", &fi) == 0 && size_of("/opened3") == 0);
    fi.flags = O_WRONLY | O_CREAT | O_EXCL;
    CHECK(sqlfs_proc_open(fs, "/opened2", &fi) == -EEXIST);
    fi.flags = O_RDONLY;
    CHECK(sqlfs_proc_open(fs, "/bufdir", &fi) == 0);
    fi.flags = O_RDWR;
    CHECK(sqlfs_proc_open(fs, "/bufdir", &fi) == -EISDIR);
    fi.direct_io = 1;
    CHECK(sqlfs_proc_open(fs, "/opened2", &fi) == -EACCES);
}

static void sizes(void)
{
    struct fuse_file_info fi = {0};
    unsigned state = 1;
    for (size_t size = 10; size < 1000001; size *= 10) {
        char path[32], byte;
        char *data = malloc(size), *found = malloc(size);
        CHECK(data && found);
        snprintf(path, sizeof path, "/size%zu", size);
        fill(data, size);
        make(path, size);
        CHECK(sqlfs_proc_read(fs, path, found, size, 0, &fi) == (int)size && memcmp(data, found, size) == 0);
        for (int i = 0; i < 10000; i++) {
            state = state * 1103515245u + 12345u;
            off_t at = (off_t)(state % size);
            CHECK(sqlfs_proc_read(fs, path, &byte, 1, at, &fi) == 1 && byte == data[at]);
        }
        CHECK(sqlfs_proc_truncate(fs, path, 0) == 0 && size_of(path) == 0);
        free(data);
        free(found);
    }
}

static int remember(void *list, const char *name, const struct stat *st, off_t off)
{
    (void)st;
    (void)off;
    strcat(list, name);
    strcat(list, "|");
    return 0;
}

static int first_only(void *count, const char *name, const struct stat *st, off_t off)
{
    (void)name;
    (void)st;
    (void)off;
    ++*(int *)count;
    return 1;
}

static void names(void)
{
    char list[400] = "", target[100];
    int count = 0;
    struct stat st;
    struct utimbuf times = {1000, 2000};
    CHECK(sqlfs_proc_mkdir(fs, "/names", 0755) == 0);
    make("/names/a[1]", 10);
    make("/names/a1", 20);
    CHECK(sqlfs_proc_readdir(fs, "/names", list, remember, 0, NULL) == 0);
    CHECK(strcmp(list, ".|..|a[1]|a1|") == 0);
    CHECK(sqlfs_proc_readdir(fs, "/names", &count, first_only, 0, NULL) == 0 && count == 1);
    CHECK(sqlfs_proc_readdir(fs, "/names/a1", list, remember, 0, NULL) == -ENOTDIR);
    CHECK(sqlfs_proc_rename(fs, "/names/a[1]", "/names/b") == 0 && size_of("/names/a1") == 20 && size_of("/names/b") == 10);
    CHECK(sqlfs_proc_mkdir(fs, "/names2", 0755) == 0 && sqlfs_proc_rename(fs, "/names", "/names2") == 0);
    CHECK(sqlfs_proc_symlink(fs, "/names2/b", "/symlink") == 0);
    CHECK(sqlfs_proc_readlink(fs, "/symlink", target, sizeof target) == 0 && strcmp(target, "/names2/b") == 0);
    CHECK(sqlfs_proc_getattr(fs, "/symlink", &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(sqlfs_proc_link(fs, "/names2/b", "/names2/c") == 0 && size_of("/names2/c") == 10);
    CHECK(sqlfs_proc_unlink(fs, "/names2/b") == 0 && size_of("/names2/c") == 10);
    CHECK(sqlfs_proc_chmod(fs, "/names2/c", 0600) == 0 && sqlfs_proc_chown(fs, "/names2/c", 5, 6) == 0);
    CHECK(sqlfs_proc_utime(fs, "/names2/c", &times) == 0 && sqlfs_proc_getattr(fs, "/names2/c", &st) == 0);
    CHECK(st.st_mode == (S_IFREG | 0600) && st.st_uid == 5 && st.st_gid == 6 && st.st_atime == 1000 && st.st_mtime == 2000);
    CHECK(sqlfs_proc_access(fs, "/names2/c", R_OK) == 0 && sqlfs_proc_access(fs, "/names2/d", F_OK) == -ENOENT);
    CHECK(sqlfs_proc_mknod(fs, "/names2/node", S_IFREG | 0644, 0) == 0 && size_of("/names2/node") == 0);
    CHECK(sqlfs_proc_setxattr(fs, "/names2/c", "user.x", "value", 5, 0) == 0);
    CHECK(sqlfs_proc_getxattr(fs, "/names2/c", "user.x", target, sizeof target) == 5 && memcmp(target, "value", 5) == 0);
    CHECK(sqlfs_proc_getxattr(fs, "/names2/c", "user.x", target, 2) == -ERANGE);
    CHECK(sqlfs_proc_listxattr(fs, "/names2/c", target, sizeof target) == 7 && strcmp(target, "user.x") == 0);
    CHECK(sqlfs_proc_removexattr(fs, "/names2/c", "user.x") == 0);
    CHECK(sqlfs_proc_getxattr(fs, "/names2/c", "user.x", target, 10) == -ENODATA);
    struct statvfs space;
    CHECK(sqlfs_proc_statfs(fs, "/", &space) == 0 && space.f_blocks > 0 && space.f_namemax == 255);
    CHECK(sqlfs_proc_release(fs, "/names2/c", NULL) == 0 && sqlfs_proc_fsync(fs, "/names2/c", 0, NULL) == 0);
}

static void values(void)
{
    key_value value = {"0123456789", 10}, found = {NULL, 0};
    key_attr attr;
    char list[200] = "";
    CHECK(sqlfs_set_value(fs, "/value", &value, 0, 0) == 1);
    CHECK(sqlfs_set_value(fs, "/value", &value, 8, 10) == 1 && size_of("/value") == 10);
    CHECK(sqlfs_get_value(fs, "/value", &found, 0, 0) == 1 && found.size == 10 && memcmp(found.data, "0123456701", 10) == 0);
    clean_value(&found);
    CHECK(found.data == NULL && sqlfs_get_value(fs, "/no value", &found, 0, 0) == -1);
    CHECK(sqlfs_get_value(fs, "/value", &found, 2, 5) == 1 && found.size == 3 && memcmp(found.data, "234", 3) == 0);
    clean_value(&found);
    CHECK(sqlfs_get_attr(fs, "/value", &attr) == 1 && attr.size == 10 && strcmp(attr.type, TYPE_BLOB) == 0);
    attr.mode = 0640;
    CHECK(strcmp(attr.path, "/value") == 0 && sqlfs_set_attr(fs, "/value", &attr) == 1);
    clean_attr(&attr);
    CHECK(sqlfs_get_attr(fs, "/value", &attr) == 1 && (attr.mode & 07777) == 0640);
    clean_attr(&attr);
    CHECK(sqlfs_set_type(fs, "/value", TYPE_BLOB) == 1 && sqlfs_set_type(fs, "/value", TYPE_DIR) == 0);
    CHECK(sqlfs_proc_mkdir(fs, "/tree", 0755) == 0 && sqlfs_proc_mkdir(fs, "/tree/sub", 0755) == 0);
    make("/tree/sub/keep.txt", 5);
    make("/tree/sub/drop.tmp", 5);
    CHECK(sqlfs_list_keys(fs, "/tree/*.t?[pt]", list, remember) == 0);
    CHECK(strcmp(list, "/tree/sub/keep.txt|/tree/sub/drop.tmp|") == 0);
    CHECK(sqlfs_del_tree_with_exclusion(fs, "/tree", "*.txt") == 0);
    CHECK(size_of("/tree/sub/keep.txt") == 5 && sqlfs_proc_access(fs, "/tree/sub/drop.tmp", F_OK) == -ENOENT);
    CHECK(sqlfs_del_tree(fs, "/tree") == 0 && sqlfs_is_dir(fs, "/tree") == 0 && sqlfs_del_tree(fs, "/tree") == -ENOENT);
}

static void transactions(void)
{
    CHECK(sqlfs_begin_transaction(fs) == 1);
    CHECK(sqlfs_begin_transaction(fs) == 1);
    make("/kept", 10);
    CHECK(sqlfs_complete_transaction(fs, 1) == 1);
    CHECK(sqlfs_complete_transaction(fs, 1) == 1 && size_of("/kept") == 10);
    CHECK(sqlfs_complete_transaction(fs, 1) == 0);
    CHECK(sqlfs_begin_transaction(fs) == 1 && sqlfs_proc_unlink(fs, "/kept") == 0);
    make("/not kept", 10);
    CHECK(sqlfs_complete_transaction(fs, 0) == 1);
    CHECK(size_of("/kept") == 10 && sqlfs_proc_access(fs, "/not kept", F_OK) == -ENOENT);
    CHECK(sqlfs_begin_transaction(fs) == 1 && sqlfs_begin_transaction(fs) == 1 && sqlfs_proc_unlink(fs, "/kept") == 0);
    CHECK(sqlfs_break_transaction(fs) == 1 && size_of("/kept") == 10);
    CHECK(sqlfs_break_transaction(fs) == 0);
}

static void *in_thread(void *number)
{
    char path[32];
    for (int i = 0; i < 20; i++) {
        snprintf(path, sizeof path, "/thread%d-%d", (int)(intptr_t)number, i);
        make(path, 9000);
        CHECK(size_of(path) == 9000);
    }
    sqlfs_detach_thread();
    return NULL;
}

static void threads(void)
{
    pthread_t all[8];
    for (intptr_t i = 0; i < 8; i++) {
        CHECK(pthread_create(&all[i], NULL, in_thread, (void *)i) == 0);
    }
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_join(all[i], NULL) == 0);
    }
    for (int i = 0; i < 160; i++) {
        char path[32];
        snprintf(path, sizeof path, "/thread%d-%d", i / 20, i % 20);
        CHECK(size_of(path) == 9000);
    }
}

static void standard(const char *of)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {
        {"getattr, create, truncate", getattr_create_truncate}, {"directories", directories},
        {"a small string", small_string}, {"write, seek, write", write_seek_write},
        {"block boundaries", block_boundaries}, {"read bigger than the buffer", bigger_than_buffer},
        {"append", append}, {"open with flags", open_flags}, {"sizes", sizes}, {"names", names},
        {"values", values}, {"transactions", transactions}, {"threads", threads},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        now = all[i].name;
        all[i].run();
        printf("ok %s: %s\n", of, now);
    }
}

static void keys(void)
{
    uint8_t first[32], second[32], third[32], longer[33];
    sqlfs_t *other = NULL;
    now = "keys";
    memset(first, 0x0A, 32);
    memset(second, 0xBB, 32);
    memset(third, 0, 32);
    memset(longer, 5, 33);
    CHECK(sqlfs_open_key("by-key", first, 32, &fs) == 1 && fs != NULL && sqlfs_instance_count() == 1);
    CHECK(sqlfs_close(fs) == 1);
    CHECK(sqlfs_close(fs) == 0 && sqlfs_proc_fsync(fs, "/", 0, NULL) == -EBADF);
    CHECK(sqlfs_open_key("by-key", longer, 33, &fs) == 0 && fs == NULL);
    for (size_t i = 0; i < 32; i++) {
        CHECK(sqlfs_open_key("by-key", first, i, &fs) == 0 && fs == NULL);
    }
    CHECK(sqlfs_open_key("by-key", third, 32, &fs) == 0 && fs == NULL);
    CHECK(sqlfs_open_key("by-key", first, 32, &fs) == 1);
    standard("by key");
    now = "keys";
    /* A second handle of what is open: by its key, and by no other. */
    CHECK(sqlfs_open_key("by-key", second, 32, &other) == 0);
    CHECK(sqlfs_open_key("./by-key", first, 32, &other) == 1 && other != fs);
    CHECK(sqlfs_close(fs) == 0 && sqlfs_proc_access(other, "/kept", F_OK) == 0 && sqlfs_close(other) == 1);
    CHECK(sqlfs_rekey("by-key", first, 32, second, 32) == 1);
    CHECK(sqlfs_rekey("by-key", first, 32, second, 32) == 0);
    CHECK(sqlfs_open_key("by-key", first, 32, &fs) == 0);
    CHECK(sqlfs_open_key("by-key", second, 32, &fs) == 1 && size_of("/kept") == 10);
    CHECK(sqlfs_rekey("by-key", third, 32, first, 32) == 0);
    CHECK(sqlfs_rekey("by-key", second, 32, third, 32) == 1 && size_of("/kept") == 10);
    /* And a transaction can still be taken back, which opens the room again. */
    CHECK(sqlfs_begin_transaction(fs) == 1 && sqlfs_break_transaction(fs) == 1 && size_of("/kept") == 10);
    CHECK(sqlfs_close(fs) == 1 && sqlfs_open_key("by-key", third, 32, &fs) == 1 && sqlfs_close(fs) == 1);
    printf("ok %s\n", now);
}

/* A room that could not be opened again after its transaction was taken back. */
static void gone(void)
{
    uint8_t key[32] = {7}, wrong[32] = {8};
    sqlfs_t *other = NULL;
    now = "a room that was gone for a while";
    CHECK(sqlfs_open_key("gone", key, 32, &fs) == 1);
    make("/kept", 10);
    /* Opened again with the next handle. */
    CHECK(sqlfs_begin_transaction(fs) == 1 && sqlfs_begin_transaction(fs) == 1);
    make("/not kept", 10);
    CHECK(rename("gone", "elsewhere") == 0 && sqlfs_break_transaction(fs) == 0 && rename("elsewhere", "gone") == 0);
    CHECK(sqlfs_proc_access(fs, "/kept", F_OK) == -EBADF && sqlfs_begin_transaction(fs) == 0);
    CHECK(sqlfs_open_key("gone", wrong, 32, &other) == 0 && other == NULL);
    CHECK(sqlfs_open_key("gone", key, 32, &other) == 1 && sqlfs_proc_access(other, "/not kept", F_OK) == -ENOENT);
    CHECK(size_of("/kept") == 10 && sqlfs_break_transaction(fs) == 0);
    CHECK(sqlfs_close(other) == 0 && size_of("/kept") == 10);
    /* And by the handle itself. */
    CHECK(sqlfs_begin_transaction(fs) == 1 && sqlfs_proc_unlink(fs, "/kept") == 0);
    CHECK(rename("gone", "elsewhere") == 0 && sqlfs_complete_transaction(fs, 0) == 0);
    CHECK(sqlfs_break_transaction(fs) == 0 && rename("elsewhere", "gone") == 0);
    CHECK(sqlfs_break_transaction(fs) == 1 && size_of("/kept") == 10 && sqlfs_break_transaction(fs) == 0);
    /* Another room in its place meanwhile is another room. */
    CHECK(sqlfs_begin_transaction(fs) == 1);
    CHECK(rename("gone", "elsewhere") == 0 && sqlfs_break_transaction(fs) == 0);
    CHECK(sqlfs_open_key("gone", wrong, 32, &other) == 1 && sqlfs_proc_access(other, "/kept", F_OK) == -ENOENT);
    CHECK(sqlfs_proc_access(fs, "/kept", F_OK) == -EBADF && sqlfs_close(fs) == 0 && sqlfs_close(other) == 1);
    printf("ok %s\n", now);
}

static void *opens_and_closes(void *unused)
{
    uint8_t key[32] = {9};
    for (int i = 0; i < 50; i++) {
        sqlfs_t *own = NULL;
        CHECK(sqlfs_open_key("contended", key, 32, &own) == 1);
        CHECK(sqlfs_proc_access(own, "/", F_OK) == 0);
        /* 1 only where it was the last. */
        sqlfs_close(own);
    }
    return unused;
}

static void contended(void)
{
    pthread_t all[4];
    now = "opened and closed by several threads";
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&all[i], NULL, opens_and_closes, NULL) == 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(all[i], NULL) == 0);
    }
    CHECK(sqlfs_instance_count() == 0);
    printf("ok %s\n", now);
}

static void passwords(void)
{
    char endless[600];
    now = "passwords";
    memset(endless, 'A', 599);
    endless[599] = 0;
    CHECK(sqlfs_open_password("by-password", "First Password", &fs) == 1 && sqlfs_close(fs) == 1);
    CHECK(sqlfs_open_password("by-password", endless, &fs) == 0 && fs == NULL);
    CHECK(sqlfs_open_password("by-password", "", &fs) == 0);
    CHECK(sqlfs_open_password("by-password", "fakesecret", &fs) == 0 && fs == NULL);
    CHECK(sqlfs_change_password("by-password", "First Password", "New Password") == 1);
    CHECK(sqlfs_open_password("by-password", "First Password", &fs) == 0);
    /* NULL is what was opened last. */
    CHECK(sqlfs_init_password("by-password", "New Password") == 0);
    fs = NULL;
    small_string();
    threads();
    CHECK(sqlfs_destroy() == 0 && sqlfs_destroy() == 0 && sqlfs_proc_access(NULL, "/", F_OK) == -EBADF);
    printf("ok %s\n", now);
}

static void refusals(void)
{
    uint8_t key[32] = {1};
    struct stat st;
    now = "refusals";
    CHECK(sqlfs_open("plain", &fs) == 0 && fs == NULL && sqlfs_init("plain") != 0 && stat("plain", &st) != 0);
    FILE *f = fopen("container.db", "w");
    CHECK(f && fputs("SQLite format 3", f) >= 0 && fclose(f) == 0);
    CHECK(sqlfs_open_key("container.db", key, 32, &fs) == 0 && strstr(sqlfs_last_error(), "strongroom import"));
    CHECK(sqlfs_open_key(NULL, key, 32, &fs) == 0 && sqlfs_open_key("x", NULL, 32, &fs) == 0 && sqlfs_open_key("x", key, 32, NULL) == 0);
    CHECK(sqlfs_proc_getattr((sqlfs_t *)77, "/", &st) == -EBADF && sqlfs_close((sqlfs_t *)77) == 0);
    CHECK(sqlfs_init_key("last", key, 32) == 0 && sqlfs_proc_getattr(NULL, NULL, &st) == -EINVAL);
    CHECK(sqlfs_proc_getattr(NULL, "/", NULL) == -EINVAL && sqlfs_proc_readdir(NULL, "/", NULL, NULL, 0, NULL) == -EINVAL);
    CHECK(sqlfs_proc_read(NULL, "/", NULL, 10, 0, NULL) == -EINVAL && sqlfs_proc_truncate(NULL, "/", -1) == -EINVAL);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int wrong = sqlfs_proc_access(NULL, "/", F_OK) != -EBADF || sqlfs_instance_count() != 0;
#ifdef __SANITIZE_ADDRESS__
        /* What the parent's threads own looks lost in a child, which has no such threads. */
        _exit(wrong);
#else
        exit(wrong);
#endif
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    /* Left open within a transaction: the end of the program takes it back. */
    CHECK(sqlfs_begin_transaction(NULL) == 1);
    printf("ok %s\n", now);
}

int main(int argc, char **argv)
{
    if (argc != 2 || chdir(argv[1]) != 0) {
        fprintf(stderr, "usage: cases DIRECTORY\n");
        return 2;
    }
    keys();
    gone();
    contended();
    passwords();
    refusals();
    return 0;
}
