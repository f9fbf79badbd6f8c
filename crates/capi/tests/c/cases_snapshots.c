/* Snapshots: the room at past moments. */
#include "contract.h"

#include <stdatomic.h>

static void snapshot(strongroom_room room, const char *name)
{
    OK(strongroom_snapshot_create(room, name));
}

static strongroom_room past_of(strongroom_room room, const char *name)
{
    strongroom_room past;
    OK(strongroom_snapshot_open(room, name, &past));
    return past;
}

void case_snapshot_read(void)
{
    strongroom_room room = make_room(), past;
    strongroom_file file;
    char target[16];
    OK(strongroom_mkdirs(room, "/papers"));
    put_text(room, "/papers/letter", "first");
    OK(strongroom_symlink(room, "papers/letter", "/link"));
    OK(strongroom_xattr_set(room, "/papers/letter", "user.a", "1", 1, 0));
    snapshot(room, "monday");
    put_text(room, "/papers/letter", "second, and longer");
    put_text(room, "/new", "");
    OK(strongroom_unlink(room, "/link"));
    past = past_of(room, "monday");
    holds_text(past, "/papers/letter", "first");
    holds_text(past, "/link", "first");
    IS(13, strongroom_readlink(past, "/link", target, sizeof target));
    IS(1, strongroom_xattr_get(past, "/papers/letter", "user.a", target, sizeof target));
    CHECK(!there(past, "/new") && there(room, "/new") && names_in(past, "/") == 2);
    REFUSED(READ_ONLY, strongroom_file_open(past, "/new", STRONGROOM_WRITE | STRONGROOM_CREATE, 0644, &file));
    REFUSED(READ_ONLY, strongroom_mkdir(past, "/d", 0755));
    REFUSED(READ_ONLY, strongroom_unlink(past, "/link"));
    REFUSED(READ_ONLY, strongroom_rename(past, "/link", "/other", 0));
    REFUSED(READ_ONLY, strongroom_chmod(past, "/papers", 0700));
    REFUSED(READ_ONLY, strongroom_begin(past));
    REFUSED(READ_ONLY, strongroom_snapshot_create(past, "other"));
    holds_text(room, "/papers/letter", "second, and longer");
    OK(strongroom_close(past));
    OK(strongroom_close(room));
}

void case_snapshot_names(void)
{
    strongroom_room room = make_room(), past;
    strongroom_snapshot all[3];
    IS(0, strongroom_snapshot_list(room, NULL, 0));
    IS(0, strongroom_snapshot_held(room));
    static const unsigned char big[MIB] = {1};
    put(room, "/big", big, sizeof big);
    snapshot(room, "monday");
    OK(strongroom_unlink(room, "/big"));
    snapshot(room, "tuesday");
    IS(2, strongroom_snapshot_list(room, all, 3));
    CHECK(strcmp(all[0].name, "monday") == 0 && all[0].exclusive == MIB && all[0].automatic == 0);
    CHECK(strcmp(all[1].name, "tuesday") == 0 && all[1].exclusive == 0 && all[0].number < all[1].number);
    CHECK(all[0].created.secs > 1500000000);
    IS(MIB, strongroom_snapshot_held(room));
    REFUSED(EXISTS, strongroom_snapshot_create(room, "monday"));
    REFUSED(EXISTS, strongroom_snapshot_rename(room, "monday", "tuesday"));
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_create(room, "a/b"));
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_create(room, "\xff"));
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_create(room, NULL));
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_list(room, NULL, 1));
    REFUSED(NOT_FOUND, strongroom_snapshot_rename(room, "sunday", "x"));
    REFUSED(NOT_FOUND, strongroom_snapshot_delete(room, "sunday"));
    REFUSED(NOT_FOUND, strongroom_snapshot_open(room, "sunday", &past));
    CHECK(past == 0 && strstr(strongroom_last_error(), "sunday"));
    OK(strongroom_begin(room));
    REFUSED(BUSY, strongroom_snapshot_create(room, "x"));
    OK(strongroom_complete(room));
    OK(strongroom_snapshot_rename(room, "monday", "first"));
    OK(strongroom_snapshot_delete(room, "tuesday"));
    IS(1, strongroom_snapshot_list(room, all, 3));
    CHECK(strcmp(all[0].name, "first") == 0);
    OK(strongroom_close(room));
}

void case_snapshot_deleted(void)
{
    strongroom_room room = make_room(), past;
    strongroom_stat st;
    char byte;
    put_text(room, "/a", "a");
    snapshot(room, "monday");
    past = past_of(room, "monday");
    strongroom_file file = file_of(past, "/a", STRONGROOM_READ);
    OK(strongroom_snapshot_delete(room, "monday"));
    snapshot(room, "monday");
    REFUSED(NOT_FOUND, strongroom_file_pread(file, &byte, 1, 0));
    REFUSED(NOT_FOUND, strongroom_get_stat(past, "/a", &st));
    OK(strongroom_file_close(file));
    OK(strongroom_close(past));
    OK(strongroom_close(room));
}

void case_snapshot_closed(void)
{
    strongroom_room room = make_room(), one, other;
    strongroom_stat st;
    char byte;
    put_text(room, "/a", "a");
    snapshot(room, "monday");
    one = past_of(room, "monday");
    other = past_of(room, "monday");
    strongroom_file file = file_of(other, "/a", STRONGROOM_READ);
    OK(strongroom_close(one));
    REFUSED(CLOSED, strongroom_close(one));
    REFUSED(CLOSED, strongroom_get_stat(one, "/a", &st));
    IS(1, strongroom_file_pread(file, &byte, 1, 0));
    room = again(room);
    REFUSED(CLOSED, strongroom_file_pread(file, &byte, 1, 0));
    REFUSED(CLOSED, strongroom_get_stat(other, "/a", &st));
    OK(strongroom_close(other));
    IS(1, strongroom_snapshot_list(room, NULL, 0));
    OK(strongroom_close(room));
}

void case_snapshot_read_only(void)
{
    strongroom_room room = make_room(), past;
    strongroom_diff diff;
    strongroom_options options;
    strongroom_key key = raw_key(1);
    put_text(room, "/a", "then");
    snapshot(room, "monday");
    put_text(room, "/a", "now");
    OK(strongroom_close(room));
    OK(strongroom_options_init(&options));
    options.read_only = 1;
    OK(strongroom_open("room", &key, &options, &room));
    IS(1, strongroom_snapshot_list(room, NULL, 0));
    past = past_of(room, "monday");
    holds_text(past, "/a", "then");
    OK(strongroom_diff_open(room, "monday", NULL, &diff));
    OK(strongroom_diff_close(diff));
    REFUSED(READ_ONLY, strongroom_snapshot_create(room, "x"));
    REFUSED(READ_ONLY, strongroom_snapshot_rename(room, "monday", "x"));
    REFUSED(READ_ONLY, strongroom_snapshot_delete(room, "monday"));
    REFUSED(READ_ONLY, strongroom_snapshot_restore(room, "monday", "/a", NULL));
    OK(strongroom_close(room));
}

static void is_change(strongroom_diff diff, int32_t what, const char *path, const char *from)
{
    strongroom_change change;
    IS(1, strongroom_diff_next(diff, &change));
    IS(what, change.change);
    CHECK(strcmp(change.path, path) == 0);
    CHECK(from ? change.from && strcmp(change.from, from) == 0 : !change.from);
}

void case_snapshot_diff(void)
{
    strongroom_room room = make_room();
    strongroom_diff diff;
    strongroom_change change;
    put_text(room, "/changed", "1");
    put_text(room, "/kept", "1");
    put_text(room, "/removed", "123");
    snapshot(room, "monday");
    put_text(room, "/changed", "22");
    OK(strongroom_rename(room, "/kept", "/renamed", 0));
    OK(strongroom_unlink(room, "/removed"));
    snapshot(room, "tuesday");
    put_text(room, "/new", "");
    OK(strongroom_diff_open(room, "monday", "tuesday", &diff));
    OK(strongroom_diff_next(diff, &change));
    CHECK(strcmp(change.path, "/changed") == 0 && change.before == 1 && change.after == 2);
    CHECK(change.change == STRONGROOM_CHANGE_CONTENTS && change.kind == STRONGROOM_FILE_REGULAR);
    OK(strongroom_diff_next(diff, &change));
    CHECK(strcmp(change.path, "/removed") == 0 && change.before == 3 && change.after == -1);
    is_change(diff, STRONGROOM_CHANGE_RENAMED, "/renamed", "/kept");
    IS(0, strongroom_diff_next(diff, &change));
    OK(strongroom_diff_close(diff));
    REFUSED(CLOSED, strongroom_diff_next(diff, &change));
    OK(strongroom_diff_open(room, "tuesday", NULL, &diff));
    is_change(diff, STRONGROOM_CHANGE_ADDED, "/new", NULL);
    OK(strongroom_diff_close(diff));
    REFUSED(NOT_FOUND, strongroom_diff_open(room, "monday", "sunday", &diff));
    CHECK(diff == 0);
    OK(strongroom_close(room));
}

void case_snapshot_restore(void)
{
    strongroom_room room = make_room();
    strongroom_stat st;
    OK(strongroom_mkdirs(room, "/papers"));
    put_text(room, "/papers/letter", "then");
    OK(strongroom_chmod(room, "/papers/letter", 0640));
    snapshot(room, "monday");
    put_text(room, "/papers/letter", "spoiled");
    OK(strongroom_chmod(room, "/papers/letter", 0600));
    put_text(room, "/papers/later", "");
    OK(strongroom_snapshot_restore(room, "monday", "/papers/letter", "/first"));
    holds_text(room, "/first", "then");
    holds_text(room, "/papers/letter", "spoiled");
    REFUSED(NOT_FOUND, strongroom_snapshot_restore(room, "monday", "/papers/later", NULL));
    REFUSED(NOT_FOUND, strongroom_snapshot_restore(room, "monday", "", NULL));
    REFUSED(NOT_FOUND, strongroom_snapshot_restore(room, "monday", "/", ""));
    CHECK(there(room, "/papers/later"));
    OK(strongroom_snapshot_restore(room, "monday", "/papers", NULL));
    holds_text(room, "/papers/letter", "then");
    OK(strongroom_get_stat(room, "/papers/letter", &st));
    CHECK(st.mode == 0640 && !there(room, "/papers/later"));
    OK(strongroom_snapshot_restore(room, "monday", "/", NULL));
    room = again(room);
    CHECK(names_in(room, "/") == 1 && listed(room, "/", "papers"));
    OK(strongroom_close(room));
}

static strongroom_room written;
static atomic_bool ended;

static void write_or_look(int me)
{
    static unsigned char data[100000], first[100000], second[100000];
    for (unsigned char i = 1; me == 0 && !ended; i++) {
        memset(data, i, sizeof data);
        put(written, "/a", data, sizeof data);
    }
    for (int i = 0; me == 1 && i < 10; i++) {
        snapshot(written, "s");
        strongroom_room past = past_of(written, "s");
        strongroom_file file = file_of(past, "/a", STRONGROOM_READ);
        int64_t n = strongroom_file_pread(file, first, sizeof first, 0);
        IS(n, strongroom_file_pread(file, second, sizeof second, 0));
        CHECK(n >= 0 && memcmp(first, second, (size_t)n) == 0);
        OK(strongroom_file_close(file));
        OK(strongroom_close(past));
        OK(strongroom_snapshot_delete(written, "s"));
    }
    if (me == 1) {
        ended = true;
    }
}

void case_snapshot_threads(void)
{
    written = make_room();
    put_text(written, "/a", "a");
    in_threads(2, write_or_look);
    OK(strongroom_close(written));
}
