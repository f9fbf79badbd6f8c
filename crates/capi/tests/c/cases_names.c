/* Names: made, listed, moved, linked; and what belongs to them. */
#include "contract.h"

#include <errno.h>

void case_unlink_directory(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdir(room, "/d", 0755));
    put_text(room, "/f", "kept");
    CHECK(strongroom_unlink(room, "/d") < 0);
    REFUSED(NOT_DIRECTORY, strongroom_rmdir(room, "/f"));
    CHECK(there(room, "/d"));
    holds_text(room, "/f", "kept");
    OK(strongroom_close(room));
}

void case_mkdir(void)
{
    strongroom_room room = make_room();
    strongroom_stat stat;
    OK(strongroom_mkdir(room, "/d", 0700));
    OK(strongroom_get_stat(room, "/d", &stat));
    CHECK(stat.kind == STRONGROOM_FILE_DIRECTORY && stat.mode == 0700);
    REFUSED(EXISTS, strongroom_mkdir(room, "/d", 0755));
    OK(strongroom_close(room));
}

void case_mkdir_nested(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdir(room, "/test", 0777));
    OK(strongroom_mkdir(room, "/test/1", 0777));
    OK(strongroom_mkdir(room, "/test/1/2", 0777));
    put_text(room, "/test/1/2/f", "deep");
    room = again(room);
    holds_text(room, "/test/1/2/f", "deep");
    OK(strongroom_close(room));
}

void case_mkdir_missing_parents(void)
{
    strongroom_room room = make_room();
    REFUSED(NOT_FOUND, strongroom_mkdir(room, "/a/b/c/d/e/f/g", 0777));
    CHECK(!there(room, "/a"));
    OK(strongroom_close(room));
}

void case_mkdir_all(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdirs(room, "/a/b/c"));
    put_text(room, "/a/b/c/f", "kept");
    OK(strongroom_mkdirs(room, "/a/b/c"));
    OK(strongroom_mkdirs(room, "//a//b/./c/"));
    OK(strongroom_mkdirs(room, "/"));
    holds_text(room, "/a/b/c/f", "kept");
    REFUSED(EXISTS, strongroom_mkdirs(room, "/a/b/c/f"));
    OK(strongroom_close(room));
}

void case_mkdir_below_file(void)
{
    strongroom_room room = make_room();
    put_text(room, "/f", "kept");
    REFUSED(NOT_DIRECTORY, strongroom_mkdir(room, "/f/d", 0755));
    REFUSED(NOT_DIRECTORY, strongroom_mkdirs(room, "/f/d/e"));
    holds_text(room, "/f", "kept");
    OK(strongroom_close(room));
}

void case_rmdir(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdir(room, "/d", 0755));
    OK(strongroom_rmdir(room, "/d"));
    CHECK(!there(room, "/d"));
    REFUSED(NOT_FOUND, strongroom_rmdir(room, "/d"));
    OK(strongroom_close(room));
}

void case_rmdir_not_empty(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdir(room, "/d", 0755));
    put_text(room, "/d/f", "kept");
    REFUSED(NOT_EMPTY, strongroom_rmdir(room, "/d"));
    holds_text(room, "/d/f", "kept");
    OK(strongroom_close(room));
}

void case_list(void)
{
    strongroom_room room = make_room();
    strongroom_dir dir;
    strongroom_entry entry;
    int kinds = 0;
    OK(strongroom_mkdir(room, "/d", 0755));
    OK(strongroom_mkdir(room, "/d/dir", 0755));
    put_text(room, "/d/file", "123");
    OK(strongroom_symlink(room, "file", "/d/link"));
    IS(3, names_in(room, "/d"));
    OK(strongroom_dir_open(room, "/d", &dir));
    while (strongroom_dir_next(dir, &entry) == 1) {
        kinds += strcmp(entry.name, "dir") == 0 && entry.stat.kind == STRONGROOM_FILE_DIRECTORY;
        kinds += strcmp(entry.name, "file") == 0 && entry.stat.kind == STRONGROOM_FILE_REGULAR && entry.stat.size == 3;
        kinds += strcmp(entry.name, "link") == 0 && entry.stat.kind == STRONGROOM_FILE_SYMLINK;
    }
    OK(strongroom_dir_close(dir));
    IS(3, kinds);
    REFUSED(NOT_FOUND, strongroom_dir_open(room, "/missing", &dir));
    REFUSED(NOT_DIRECTORY, strongroom_dir_open(room, "/d/file", &dir));
    OK(strongroom_close(room));
}

void case_list_many(void)
{
    static bool seen[5000];
    strongroom_room room = make_room();
    strongroom_dir dir;
    strongroom_entry entry;
    char name[64];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "/%d", i);
        OK(strongroom_file_close(file_of(room, name, STRONGROOM_WRITE | STRONGROOM_CREATE)));
    }
    OK(strongroom_dir_open(room, "/", &dir));
    while (strongroom_dir_next(dir, &entry) == 1) {
        int i = atoi(entry.name);
        CHECK(i >= 0 && i < 5000 && !seen[i]);
        seen[i] = true;
    }
    for (int i = 0; i < 5000; i++) {
        CHECK(seen[i]);
    }
    OK(strongroom_dir_close(dir));
    OK(strongroom_close(room));
}

void case_rename_file(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdir(room, "/d", 0755));
    put_text(room, "/a", "moved");
    OK(strongroom_rename(room, "/a", "/b", 0));
    OK(strongroom_rename(room, "/b", "/d/c", 0));
    CHECK(!there(room, "/a") && !there(room, "/b"));
    holds_text(room, "/d/c", "moved");
    REFUSED(NOT_FOUND, strongroom_rename(room, "/a", "/b", 0));
    REFUSED(NOT_FOUND, strongroom_rename(room, "/d/c", "/e/c", 0));
    OK(strongroom_close(room));
}

void case_rename_file_onto_file(void)
{
    strongroom_room room = make_room();
    char found[16] = "";
    put_text(room, "/new", "new");
    put_text(room, "/old", "old content");
    strongroom_file old = file_of(room, "/old", STRONGROOM_READ);
    OK(strongroom_rename(room, "/new", "/old", 0));
    CHECK(!there(room, "/new"));
    holds_text(room, "/old", "new");
    IS(11, strongroom_file_read(old, found, sizeof found));
    CHECK(strcmp(found, "old content") == 0);
    OK(strongroom_close(room));
}

void case_rename_dir_onto_empty_dir(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdir(room, "/from", 0755));
    OK(strongroom_mkdir(room, "/to", 0755));
    put_text(room, "/from/f", "inside");
    OK(strongroom_rename(room, "/from", "/to", 0));
    holds_text(room, "/to/f", "inside");
    IS(1, names_in(room, "/"));
    OK(strongroom_close(room));
}

void case_rename_dir_onto_full_dir(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdirs(room, "/from"));
    OK(strongroom_mkdirs(room, "/to"));
    put_text(room, "/from/f", "one");
    put_text(room, "/to/f", "two");
    REFUSED(NOT_EMPTY, strongroom_rename(room, "/from", "/to", 0));
    holds_text(room, "/from/f", "one");
    holds_text(room, "/to/f", "two");
    OK(strongroom_close(room));
}

void case_rename_file_onto_dir(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdirs(room, "/d"));
    put_text(room, "/f", "kept");
    REFUSED(IS_DIRECTORY, strongroom_rename(room, "/f", "/d", 0));
    REFUSED(NOT_DIRECTORY, strongroom_rename(room, "/d", "/f", 0));
    CHECK(there(room, "/d"));
    holds_text(room, "/f", "kept");
    OK(strongroom_close(room));
}

void case_rename_no_replace(void)
{
    strongroom_room room = make_room();
    put_text(room, "/a", "one");
    put_text(room, "/b", "two");
    REFUSED(EXISTS, strongroom_rename(room, "/a", "/b", STRONGROOM_RENAME_NOREPLACE));
    holds_text(room, "/a", "one");
    holds_text(room, "/b", "two");
    OK(strongroom_rename(room, "/a", "/b", STRONGROOM_RENAME_EXCHANGE));
    holds_text(room, "/a", "two");
    holds_text(room, "/b", "one");
    REFUSED(INVALID_ARGUMENT, strongroom_rename(room, "/a", "/b", 3));
    OK(strongroom_close(room));
}

void case_rename_into_itself(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdirs(room, "/d/e"));
    REFUSED(INVALID_ARGUMENT, strongroom_rename(room, "/d", "/d/e/d", 0));
    CHECK(there(room, "/d/e"));
    OK(strongroom_close(room));
}

void case_rename_dir_with_children(void)
{
    strongroom_room room = make_room();
    OK(strongroom_mkdirs(room, "/dir/sub"));
    OK(strongroom_mkdirs(room, "/dir1"));
    put_text(room, "/dir/sub/f", "mine");
    put_text(room, "/dir1/f", "neighbour's");
    OK(strongroom_rename(room, "/dir", "/other", 0));
    holds_text(room, "/other/sub/f", "mine");
    holds_text(room, "/dir1/f", "neighbour's");
    CHECK(!there(room, "/dir") && !there(room, "/other1"));
    OK(strongroom_close(room));
}

static void each_for_itself(const char *const *names, size_t count)
{
    strongroom_room room = make_room();
    char path[600];
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/%s", names[i]);
        put_text(room, path, names[i]);
    }
    room = again(room);
    IS(count, names_in(room, "/"));
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/%s", names[i]);
        CHECK(listed(room, "/", names[i]));
        holds_text(room, path, names[i]);
        OK(strongroom_rename(room, path, "/away", 0));
        IS(count, names_in(room, "/"));
        CHECK(!listed(room, "/", names[i]));
        OK(strongroom_rename(room, "/away", path, 0));
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/%s", names[i]);
        OK(strongroom_unlink(room, path));
        IS(count - i - 1, names_in(room, "/"));
    }
    OK(strongroom_close(room));
}

void case_names_special(void)
{
    const char *const names[] = {"a[1]", "a1",  "a*",  "a?",    "a",   "ab",  "%s%n", "'", "\"",  "\\", "a b",
                                 " ",    "a.",  "a ",  "-rf",   "a\nb", "...", "~",   "#", "\x01", "\xFF\xFE", "[a-z]"};
    each_for_itself(names, sizeof names / sizeof *names);
}

void case_names_unicode(void)
{
    const char *const names[] = {"\xC3\xA9", "e\xCC\x81", "\xF0\x9F\x94\x90", "\xE6\x97\xA5\xE6\x9C\xAC", "\xC3\x89", "STRA\xC3\x9F""E"};
    each_for_itself(names, sizeof names / sizeof *names);
}

void case_names_long(void)
{
    strongroom_room room = make_room();
    strongroom_file file;
    char path[300] = "/";
    memset(path + 1, 'n', 255);
    put_text(room, path, "long");
    CHECK(listed(room, "/", path + 1));
    path[256] = 'n';
    CHECK(strongroom_file_open(room, path, STRONGROOM_WRITE | STRONGROOM_CREATE, 0644, &file) < 0);
    IS(ENAMETOOLONG, strongroom_last_errno());
    CHECK(strongroom_mkdir(room, path, 0755) < 0);
    IS(1, names_in(room, "/"));
    OK(strongroom_close(room));
}

void case_paths_odd(void)
{
    strongroom_room room = make_room();
    strongroom_stat stat;
    strongroom_file file;
    OK(strongroom_mkdirs(room, "/a/b"));
    put_text(room, "/a/b/f", "found");
    holds_text(room, "//a///b//f", "found");
    holds_text(room, "/a/./b/../b/f", "found");
    holds_text(room, "/../../a/b/f", "found");
    holds_text(room, "a/b/f", "found");
    REFUSED(NOT_FOUND, strongroom_get_stat(room, "", &stat));
    CHECK(strongroom_file_open(room, "", STRONGROOM_READ, 0, &file) < 0);
    CHECK(strongroom_mkdir(room, "", 0755) < 0 && strongroom_mkdirs(room, "") < 0 && strongroom_rename(room, "/a", "", 0) < 0);
    CHECK(strongroom_mkdir(room, "/a/.", 0755) < 0 && strongroom_mkdir(room, "/a/..", 0755) < 0 && strongroom_rmdir(room, "/") < 0);
    CHECK(strongroom_rmdir(room, "/a/b/..") < 0 && strongroom_rename(room, "/a/b/..", "/c", 0) < 0);
    REFUSED(NOT_DIRECTORY, strongroom_get_stat(room, "/a/b/f/g", &stat));
    /* As deep as a path can be, and deeper. */
    static char deep[9000];
    for (int i = 0; i < 4094; i += 2) {
        memcpy(deep + i, "/d", 3);
    }
    OK(strongroom_mkdirs(room, deep));
    memset(deep, 'x', sizeof deep - 1);
    REFUSED(INVALID_ARGUMENT, strongroom_get_stat(room, deep, &stat));
    OK(strongroom_close(room));
}

void case_symlink(void)
{
    strongroom_room room = make_room();
    strongroom_stat stat;
    char target[32];
    put_text(room, "/f", "through the link");
    OK(strongroom_symlink(room, "f", "/link"));
    OK(strongroom_symlink(room, "/nowhere", "/dangling"));
    IS(1, strongroom_readlink(room, "/link", target, sizeof target));
    CHECK(strcmp(target, "f") == 0);
    IS(8, strongroom_readlink(room, "/dangling", target, 3));
    CHECK(memcmp(target, "/no", 3) == 0);
    IS(8, strongroom_readlink(room, "/dangling", NULL, 0));
    holds_text(room, "/link", "through the link");
    OK(strongroom_get_lstat(room, "/link", &stat));
    CHECK(stat.kind == STRONGROOM_FILE_SYMLINK);
    OK(strongroom_get_stat(room, "/link", &stat));
    CHECK(stat.kind == STRONGROOM_FILE_REGULAR && stat.size == 16);
    REFUSED(NOT_FOUND, strongroom_get_stat(room, "/dangling", &stat));
    OK(strongroom_get_lstat(room, "/dangling", &stat));
    REFUSED(INVALID_ARGUMENT, strongroom_readlink(room, "/f", target, sizeof target));
    OK(strongroom_unlink(room, "/link"));
    holds_text(room, "/f", "through the link");
    OK(strongroom_close(room));
}

void case_symlink_loop(void)
{
    strongroom_room room = make_room();
    strongroom_stat stat;
    strongroom_file file;
    OK(strongroom_symlink(room, "/b", "/a"));
    OK(strongroom_symlink(room, "/a", "/b"));
    CHECK(strongroom_get_stat(room, "/a", &stat) < 0);
    IS(ELOOP, strongroom_last_errno());
    CHECK(strongroom_file_open(room, "/a/f", STRONGROOM_READ, 0, &file) < 0);
    CHECK(strongroom_mkdirs(room, "/a/d") < 0);
    OK(strongroom_close(room));
}

void case_hard_link(void)
{
    strongroom_room room = make_room();
    strongroom_stat stat;
    put_text(room, "/one", "first");
    OK(strongroom_link(room, "/one", "/two"));
    put_text(room, "/two", "second");
    holds_text(room, "/one", "second");
    OK(strongroom_get_stat(room, "/one", &stat));
    IS(2, stat.nlink);
    OK(strongroom_unlink(room, "/one"));
    holds_text(room, "/two", "second");
    OK(strongroom_get_stat(room, "/two", &stat));
    IS(1, stat.nlink);
    OK(strongroom_mkdir(room, "/d", 0755));
    REFUSED(NOT_PERMITTED, strongroom_link(room, "/d", "/e"));
    REFUSED(EXISTS, strongroom_link(room, "/two", "/d"));
    OK(strongroom_close(room));
}

void case_attributes(void)
{
    strongroom_room room = make_room();
    strongroom_stat stat;
    const strongroom_time past = {-12345, 678901234}, future = {4102444800, 999999999}, wrong = {0, 1000000000};
    put_text(room, "/f", "abc");
    OK(strongroom_chmod(room, "/f", 04711));
    OK(strongroom_chown(room, "/f", 1234, UINT32_MAX, 1));
    OK(strongroom_chmod(room, "/f", 04711));
    OK(strongroom_utimes(room, "/f", &past, &future, 1));
    REFUSED(INVALID_ARGUMENT, strongroom_utimes(room, "/f", &wrong, NULL, 1));
    REFUSED(INVALID_ARGUMENT, strongroom_chmod(room, "/f", 0100644));
    for (int i = 0; i < 2; i++) {
        OK(strongroom_get_stat(room, "/f", &stat));
        CHECK(stat.mode == 04711 && stat.uid == 1234 && stat.size == 3 && stat.kind == STRONGROOM_FILE_REGULAR);
        CHECK(stat.atime.secs == past.secs && stat.atime.nanos == past.nanos);
        CHECK(stat.mtime.secs == future.secs && stat.mtime.nanos == future.nanos);
        room = again(room);
    }
    OK(strongroom_close(room));
}

void case_xattrs(void)
{
    strongroom_room room = make_room();
    char value[16], names[64];
    put_text(room, "/f", "");
    OK(strongroom_xattr_set(room, "/f", "user.a", "one", 3, 0));
    OK(strongroom_xattr_set(room, "/f", "user.b", NULL, 0, STRONGROOM_XATTR_CREATE));
    REFUSED(EXISTS, strongroom_xattr_set(room, "/f", "user.a", "x", 1, STRONGROOM_XATTR_CREATE));
    CHECK(strongroom_xattr_set(room, "/f", "user.c", "x", 1, STRONGROOM_XATTR_REPLACE) < 0);
    IS(ENODATA, strongroom_last_errno());
    OK(strongroom_xattr_set(room, "/f", "user.a", "second", 6, STRONGROOM_XATTR_REPLACE));
    room = again(room);
    IS(6, strongroom_xattr_get(room, "/f", "user.a", NULL, 0));
    IS(6, strongroom_xattr_get(room, "/f", "user.a", value, sizeof value));
    CHECK(memcmp(value, "second", 6) == 0);
    REFUSED(INVALID_ARGUMENT, strongroom_xattr_get(room, "/f", "user.a", value, 5));
    IS(0, strongroom_xattr_get(room, "/f", "user.b", value, sizeof value));
    IS(14, strongroom_xattr_list(room, "/f", NULL, 0));
    IS(14, strongroom_xattr_list(room, "/f", names, sizeof names));
    CHECK(memcmp(names, "user.a\0user.b", 14) == 0);
    OK(strongroom_xattr_remove(room, "/f", "user.a"));
    CHECK(strongroom_xattr_get(room, "/f", "user.a", value, sizeof value) < 0);
    IS(ENODATA, strongroom_last_errno());
    CHECK(strongroom_xattr_remove(room, "/f", "user.a") < 0);
    OK(strongroom_close(room));
}
