/* Transactions, crashes, damage, and what a program may do wrong. */
#include "contract.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 20

static void put_files(strongroom_room room, const char *text)
{
    for (int i = 0; i < FILES; i++) {
        char path[32];
        snprintf(path, sizeof path, "/t%d", i);
        put_text(room, path, text);
    }
}

static int files_there(strongroom_room room)
{
    int found = 0;
    for (int i = 0; i < FILES; i++) {
        char path[32];
        snprintf(path, sizeof path, "/t%d", i);
        if (there(room, path)) {
            holds_text(room, path, "transacted");
            found++;
        }
    }
    return found;
}

void case_transaction_complete(void)
{
    strongroom_room room = make_room();
    IS(0, strongroom_in_transaction(room));
    OK(strongroom_begin(room));
    IS(1, strongroom_in_transaction(room));
    put_files(room, "transacted");
    IS(FILES, files_there(room));
    OK(strongroom_complete(room));
    IS(0, strongroom_in_transaction(room));
    room = again(room);
    IS(FILES, files_there(room));
    OK(strongroom_close(room));
}

void case_transaction_nested(void)
{
    strongroom_room room = make_room();
    OK(strongroom_begin(room));
    OK(strongroom_begin(room));
    put_files(room, "transacted");
    OK(strongroom_complete(room));
    IS(1, strongroom_in_transaction(room));
    OK(strongroom_complete(room));
    REFUSED(INVALID_ARGUMENT, strongroom_complete(room));
    OK(strongroom_begin(room));
    OK(strongroom_begin(room));
    put_text(room, "/gone", "");
    OK(strongroom_complete(room));
    OK(strongroom_abandon(room));
    room = open_room();
    IS(FILES, files_there(room));
    CHECK(!there(room, "/gone"));
    OK(strongroom_close(room));
}

void case_transaction_close(void)
{
    strongroom_room room = make_room();
    put_text(room, "/before", "kept");
    OK(strongroom_begin(room));
    put_files(room, "transacted");
    OK(strongroom_unlink(room, "/before"));
    REFUSED(BUSY, strongroom_close(room));
    IS(FILES, files_there(room));
    OK(strongroom_abandon(room));
    IS(STRONGROOM_CLOSED, strongroom_abandon(room));
    room = open_room();
    IS(0, files_there(room));
    holds_text(room, "/before", "kept");
    OK(strongroom_close(room));
}

static void child_killed_within(void)
{
    strongroom_room room = open_room();
    put_text(room, "/before", "kept");
    OK(strongroom_begin(room));
    put_files(room, "transacted");
    OK(strongroom_sync(room));
    raise(SIGKILL);
}

static void child_killed_after(void)
{
    strongroom_room room = open_room();
    OK(strongroom_begin(room));
    put_files(room, "transacted");
    OK(strongroom_complete(room));
    raise(SIGKILL);
}

static bool was_killed(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

void case_transaction_killed(void)
{
    strongroom_room room = make_room();
    OK(strongroom_close(room));
    CHECK(was_killed(child("killed_within")));
    room = open_room();
    IS(0, files_there(room));
    holds_text(room, "/before", "kept");
    OK(strongroom_close(room));
    CHECK(was_killed(child("killed_after")));
    room = open_room();
    IS(FILES, files_there(room));
    OK(strongroom_close(room));
}

static void child_synced(void)
{
    strongroom_room room = make_room();
    put_files(room, "transacted");
    OK(strongroom_sync(room));
    raise(SIGKILL);
}

void case_sync_survives_kill(void)
{
    CHECK(was_killed(child("synced")));
    strongroom_room room = open_room();
    IS(FILES, files_there(room));
    OK(strongroom_close(room));
}

void case_damaged_segment(void)
{
    static unsigned char data[300000], found[300000];
    strongroom_room room = make_room();
    fill(data, sizeof data, 0, 1);
    put(room, "/f", data, sizeof data);
    OK(strongroom_close(room));
    CHECK(damage("room/segments", "", 1, 100) > 0);
    room = open_room();
    strongroom_file file = file_of(room, "/f", STRONGROOM_READ);
    REFUSED(CORRUPT, strongroom_file_read(file, found, sizeof found));
    REFUSED(CORRUPT, strongroom_file_pread(file, found, 1, 200000));
    IS(sizeof data, size_of(room, "/f"));
    put_text(room, "/g", "goes on");
    holds_text(room, "/g", "goes on");
    OK(strongroom_close(room));
}

void case_damaged_catalog(void)
{
    strongroom_room room;
    strongroom_key key = raw_key(1);
    for (long place = 30; place < 4096; place += 1500) {
        char name[32];
        snprintf(name, sizeof name, "room%ld", place);
        OK(strongroom_create(name, &key, NULL, &room));
        for (int i = 0; i < 200; i++) {
            char path[32];
            snprintf(path, sizeof path, "/%d", i);
            put_text(room, path, path);
        }
        OK(strongroom_close(room));
        CHECK(damage(name, "catalog.db", 0, place) > 0);
        int64_t code = strongroom_open(name, &key, NULL, &room);
        if (code == STRONGROOM_OK) {
            strongroom_dir dir;
            code = strongroom_dir_open(room, "/", &dir);
            strongroom_abandon(room);
        }
        CHECK(code == STRONGROOM_CORRUPT || code == STRONGROOM_IO || code == STRONGROOM_ROLLED_BACK);
        CHECK(strongroom_last_error()[0] != 0);
    }
}

static void overwrite(const char *path)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("{\"not\": \"a header\"", f) >= 0 && fclose(f) == 0);
}

void case_damaged_header(void)
{
    strongroom_room room = make_room();
    strongroom_key key = raw_key(1);
    put_text(room, "/f", "kept");
    OK(strongroom_close(room));
    overwrite("room/header.json");
    room = open_room();
    holds_text(room, "/f", "kept");
    OK(strongroom_close(room));
    overwrite("room/header.json");
    overwrite("room/header.backup.json");
    REFUSED(CORRUPT, strongroom_open("room", &key, NULL, &room));
    CHECK(room == 0);
}

/* Every call on a file handle is CLOSED. */
static void closed_file(strongroom_file file)
{
    char byte;
    strongroom_stat stat;
    REFUSED(CLOSED, strongroom_file_read(file, &byte, 1));
    REFUSED(CLOSED, strongroom_file_write(file, "x", 1));
    REFUSED(CLOSED, strongroom_file_pread(file, &byte, 1, 0));
    REFUSED(CLOSED, strongroom_file_pwrite(file, "x", 1, 0));
    REFUSED(CLOSED, strongroom_file_seek(file, 0, 0));
    REFUSED(CLOSED, strongroom_file_truncate(file, 0));
    REFUSED(CLOSED, strongroom_file_stat(file, &stat));
    REFUSED(CLOSED, strongroom_file_sync(file));
}

/* Every call on a room handle is CLOSED. */
static void closed_room(strongroom_room room)
{
    char buffer[8];
    strongroom_stat stat;
    strongroom_file file;
    strongroom_dir dir;
    strongroom_info info;
    strongroom_space space;
    strongroom_slot slot;
    strongroom_key key = raw_key(1);
    REFUSED(CLOSED, strongroom_sync(room));
    REFUSED(CLOSED, strongroom_begin(room));
    REFUSED(CLOSED, strongroom_complete(room));
    REFUSED(CLOSED, strongroom_in_transaction(room));
    REFUSED(CLOSED, strongroom_get_info(room, &info));
    REFUSED(CLOSED, strongroom_get_space(room, &space));
    REFUSED(CLOSED, strongroom_key_list(room, &slot, 1));
    REFUSED(CLOSED, strongroom_key_add(room, &key, NULL, NULL, NULL));
    REFUSED(CLOSED, strongroom_key_change(room, 0, &key, NULL));
    REFUSED(CLOSED, strongroom_key_remove(room, 0));
    REFUSED(CLOSED, strongroom_file_open(room, "/f", STRONGROOM_READ, 0, &file));
    REFUSED(CLOSED, strongroom_get_stat(room, "/f", &stat));
    REFUSED(CLOSED, strongroom_get_lstat(room, "/f", &stat));
    REFUSED(CLOSED, strongroom_chmod(room, "/f", 0));
    REFUSED(CLOSED, strongroom_chown(room, "/f", 0, 0, 0));
    REFUSED(CLOSED, strongroom_utimes(room, "/f", NULL, NULL, 0));
    REFUSED(CLOSED, strongroom_truncate(room, "/f", 0));
    REFUSED(CLOSED, strongroom_dir_open(room, "/", &dir));
    REFUSED(CLOSED, strongroom_mkdir(room, "/d", 0));
    REFUSED(CLOSED, strongroom_mkdirs(room, "/d"));
    REFUSED(CLOSED, strongroom_unlink(room, "/f"));
    REFUSED(CLOSED, strongroom_rmdir(room, "/d"));
    REFUSED(CLOSED, strongroom_rename(room, "/f", "/g", 0));
    REFUSED(CLOSED, strongroom_link(room, "/f", "/g"));
    REFUSED(CLOSED, strongroom_symlink(room, "f", "/g"));
    REFUSED(CLOSED, strongroom_readlink(room, "/f", buffer, 8));
    REFUSED(CLOSED, strongroom_xattr_get(room, "/f", "user.a", buffer, 8));
    REFUSED(CLOSED, strongroom_xattr_set(room, "/f", "user.a", buffer, 8, 0));
    REFUSED(CLOSED, strongroom_xattr_remove(room, "/f", "user.a"));
    REFUSED(CLOSED, strongroom_xattr_list(room, "/f", buffer, 8));
}

void case_closed_file(void)
{
    strongroom_room room = make_room();
    put_text(room, "/f", "kept");
    strongroom_file file = file_of(room, "/f", STRONGROOM_READ | STRONGROOM_WRITE);
    OK(strongroom_file_close(file));
    closed_file(file);
    REFUSED(CLOSED, strongroom_file_close(file));
    strongroom_file other = file_of(room, "/f", STRONGROOM_READ | STRONGROOM_WRITE);
    CHECK(other != file);
    closed_file(file);
    holds_text(room, "/f", "kept");
    OK(strongroom_close(room));
}

void case_closed_room(void)
{
    strongroom_room room = make_room();
    put_text(room, "/f", "kept");
    OK(strongroom_close(room));
    closed_room(room);
    REFUSED(CLOSED, strongroom_close(room));
    REFUSED(CLOSED, strongroom_abandon(room));
    strongroom_room other = open_room();
    CHECK(other != room);
    closed_room(room);
    OK(strongroom_close(other));
}

void case_close_room_with_files_open(void)
{
    strongroom_room room = make_room();
    strongroom_dir dir;
    strongroom_entry entry;
    strongroom_file file = file_of(room, "/f", STRONGROOM_READ | STRONGROOM_WRITE | STRONGROOM_CREATE);
    OK(strongroom_file_write(file, "written", 7));
    OK(strongroom_dir_open(room, "/", &dir));
    OK(strongroom_close(room));
    closed_file(file);
    OK(strongroom_file_close(file));
    IS(1, strongroom_dir_next(dir, &entry));
    OK(strongroom_dir_close(dir));
    room = open_room();
    holds_text(room, "/f", "written");
    OK(strongroom_close(room));
}

void case_handle_never_existed(void)
{
    strongroom_room room = make_room();
    strongroom_entry entry;
    strongroom_dir dir;
    strongroom_file file = file_of(room, "/f", STRONGROOM_READ | STRONGROOM_WRITE | STRONGROOM_CREATE);
    OK(strongroom_dir_open(room, "/", &dir));
    const uint64_t made_up[] = {0, 1, 2, 77, UINT64_MAX, file + 1000000, (uint64_t)(uintptr_t)&entry};
    for (size_t i = 0; i < sizeof made_up / sizeof *made_up; i++) {
        closed_room(made_up[i]);
        closed_file(made_up[i]);
        REFUSED(CLOSED, strongroom_close(made_up[i]));
        REFUSED(CLOSED, strongroom_file_close(made_up[i]));
        REFUSED(CLOSED, strongroom_dir_next(made_up[i], &entry));
        REFUSED(CLOSED, strongroom_dir_close(made_up[i]));
    }
    /* Handles of another kind. */
    closed_room(file);
    closed_file(room);
    closed_file(dir);
    REFUSED(CLOSED, strongroom_close(file));
    REFUSED(CLOSED, strongroom_file_close(room));
    REFUSED(CLOSED, strongroom_dir_close(file));
    /* NULL, wherever a pointer is asked for. */
    REFUSED(INVALID_ARGUMENT, strongroom_create(NULL, NULL, NULL, NULL));
    REFUSED(INVALID_ARGUMENT, strongroom_open("room", NULL, NULL, &room + 0 * sizeof room));
    REFUSED(INVALID_ARGUMENT, strongroom_options_init(NULL));
    REFUSED(INVALID_ARGUMENT, strongroom_file_read(file, NULL, 1));
    REFUSED(INVALID_ARGUMENT, strongroom_file_write(file, NULL, 1));
    REFUSED(INVALID_ARGUMENT, strongroom_file_stat(file, NULL));
    REFUSED(INVALID_ARGUMENT, strongroom_dir_next(dir, NULL));
    OK(strongroom_file_close(file));
    OK(strongroom_dir_close(dir));
}

static volatile strongroom_room exiting;

static void *busy(void *path)
{
    for (;;) {
        strongroom_file file;
        if (strongroom_file_open(exiting, path, STRONGROOM_WRITE | STRONGROOM_CREATE, 0644, &file) < 0) {
            pause();
        }
        strongroom_file_write(file, "busy", 4);
        strongroom_file_sync(file);
        strongroom_file_close(file);
    }
    return NULL;
}

static void child_exits(void)
{
    exiting = make_room();
    put_files(exiting, "transacted");
    OK(strongroom_sync(exiting));
    strongroom_file file = file_of(exiting, "/open", STRONGROOM_WRITE | STRONGROOM_CREATE);
    OK(strongroom_file_write(file, "not synced", 10));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, busy, "/busy1") == 0 && pthread_create(&thread, NULL, busy, "/busy2") == 0);
    usleep(50000);
    /* And returns from main. */
}

static void child_exits_within(void)
{
    strongroom_room room = open_room();
    OK(strongroom_begin(room));
    OK(strongroom_unlink(room, "/t0"));
}

void case_exit_with_room_open(void)
{
    IS(0, child("exits"));
    strongroom_room room = open_room();
    IS(FILES, files_there(room));
    holds_text(room, "/open", "not synced");
    OK(strongroom_close(room));
    IS(0, child("exits_within"));
    room = open_room();
    IS(FILES, files_there(room));
    OK(strongroom_close(room));
}

void case_fork(void)
{
    strongroom_room room = make_room(), other;
    strongroom_key key = raw_key(1);
    put_text(room, "/f", "parent's");
    strongroom_file file = file_of(room, "/f", STRONGROOM_READ | STRONGROOM_WRITE);
    int status;
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        closed_room(room);
        closed_file(file);
        REFUSED(CLOSED, strongroom_close(room));
        REFUSED(CLOSED, strongroom_file_close(file));
        REFUSED(BUSY, strongroom_open("room", &key, NULL, &other));
        exit(0);
    }
    put_text(room, "/while", "the child lives");
    CHECK(waitpid(pid, &status, 0) == pid);
    IS(0, status);
    OK(strongroom_file_pwrite(file, "PARENT", 6, 0));
    holds_text(room, "/f", "PARENT's");
    room = again(room);
    holds_text(room, "/f", "PARENT's");
    holds_text(room, "/while", "the child lives");
    OK(strongroom_close(room));
}

static void child_opens(void)
{
    strongroom_room room;
    strongroom_key key = raw_key(1);
    REFUSED(BUSY, strongroom_open("room", &key, NULL, &room));
    CHECK(room == 0);
}

void case_second_opener(void)
{
    strongroom_room room = make_room(), other;
    strongroom_key key = raw_key(1);
    IS(0, child("opens"));
    REFUSED(BUSY, strongroom_open("room", &key, NULL, &other));
    put_text(room, "/f", "goes on");
    room = again(room);
    holds_text(room, "/f", "goes on");
    OK(strongroom_close(room));
}

void case_read_only_room(void)
{
    strongroom_room room = make_room();
    strongroom_options options;
    strongroom_key key = raw_key(1);
    strongroom_file file;
    strongroom_info info;
    put_text(room, "/f", "kept");
    OK(strongroom_mkdir(room, "/d", 0755));
    OK(strongroom_close(room));
    OK(strongroom_options_init(&options));
    options.read_only = 1;
    OK(strongroom_open("room", &key, &options, &room));
    holds_text(room, "/f", "kept");
    OK(strongroom_get_info(room, &info));
    CHECK(info.read_only);
    REFUSED(READ_ONLY, strongroom_file_open(room, "/f", STRONGROOM_WRITE, 0, &file));
    REFUSED(READ_ONLY, strongroom_file_open(room, "/g", STRONGROOM_WRITE | STRONGROOM_CREATE, 0644, &file));
    REFUSED(READ_ONLY, strongroom_mkdir(room, "/e", 0755));
    REFUSED(READ_ONLY, strongroom_unlink(room, "/f"));
    REFUSED(READ_ONLY, strongroom_rmdir(room, "/d"));
    REFUSED(READ_ONLY, strongroom_rename(room, "/f", "/g", 0));
    REFUSED(READ_ONLY, strongroom_link(room, "/f", "/g"));
    REFUSED(READ_ONLY, strongroom_symlink(room, "f", "/g"));
    REFUSED(READ_ONLY, strongroom_truncate(room, "/f", 0));
    REFUSED(READ_ONLY, strongroom_chmod(room, "/f", 0));
    REFUSED(READ_ONLY, strongroom_xattr_set(room, "/f", "user.a", "", 0, 0));
    REFUSED(READ_ONLY, strongroom_key_add(room, &key, NULL, NULL, NULL));
    REFUSED(READ_ONLY, strongroom_begin(room));
    IS(EROFS, strongroom_last_errno());
    OK(strongroom_close(room));
}

void case_disk_full(void)
{
    static unsigned char data[MIB];
    strongroom_room room;
    strongroom_key key = raw_key(1);
    char path[32];
    int64_t code = 0;
    int i;
    CHECK(mkdir("disk", 0700) == 0);
    if (mount("tmpfs", "disk", "tmpfs", 0, "size=48m") != 0) {
        skip("a small disk cannot be mounted here (it needs root)");
    }
    OK(strongroom_create("disk/room", &key, NULL, &room));
    /* Removed when its last user is gone, however this case ends. */
    CHECK(umount2("disk", MNT_DETACH) == 0 || errno == EBUSY);
    put_text(room, "/before", "synced");
    OK(strongroom_sync(room));
    fill(data, sizeof data, 0, 1);
    for (i = 0; i < 100 && code >= 0; i++) {
        strongroom_file file;
        snprintf(path, sizeof path, "/%d", i);
        code = strongroom_file_open(room, path, STRONGROOM_WRITE | STRONGROOM_CREATE, 0644, &file);
        if (code >= 0) {
            code = strongroom_file_write(file, data, sizeof data);
            if (code >= 0) {
                code = strongroom_file_sync(file);
            }
            OK(strongroom_file_close(file));
        }
    }
    CHECK(i > 5);
    IS(STRONGROOM_NO_SPACE, code);
    holds_text(room, "/before", "synced");
    holds(room, "/0", data, sizeof data);
    for (int j = 1; j < i; j++) {
        snprintf(path, sizeof path, "/%d", j);
        code = strongroom_unlink(room, path);
        CHECK(code == STRONGROOM_OK || code == STRONGROOM_NOT_FOUND);
    }
    /* Space comes back in the background. */
    for (int tries = 0;; tries++) {
        strongroom_sync(room);
        strongroom_file file;
        code = strongroom_file_open(room, "/after", STRONGROOM_WRITE | STRONGROOM_CREATE | STRONGROOM_TRUNCATE, 0644, &file);
        if (code >= 0) {
            code = strongroom_file_write(file, data, sizeof data);
            if (code >= 0) {
                code = strongroom_file_sync(file);
            }
            OK(strongroom_file_close(file));
        }
        if (code >= 0) {
            break;
        }
        CHECK(code == STRONGROOM_NO_SPACE && tries < 300);
        usleep(100000);
    }
    holds(room, "/after", data, sizeof data);
    holds_text(room, "/before", "synced");
    OK(strongroom_close(room));
}

const named children[] = {
    {"killed_within", child_killed_within},
    {"killed_after", child_killed_after},
    {"synced", child_synced},
    {"exits", child_exits},
    {"exits_within", child_exits_within},
    {"opens", child_opens},
    {NULL, NULL},
};
