/* Threads. */
#include "contract.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define THREADS 8

static strongroom_room shared;
static strongroom_file shared_file;

static void own_file(int me)
{
    unsigned char data[10000];
    char path[32];
    snprintf(path, sizeof path, "/file%d", me);
    for (unsigned round = 0; round < 20; round++) {
        fill(data, sizeof data, 0, (unsigned)me * 100 + round);
        put(shared, path, data, 1000 + round * 450);
        holds(shared, path, data, 1000 + round * 450);
        if (round % 7 == 0) {
            OK(strongroom_sync(shared));
        }
    }
}

void case_threads_own_files(void)
{
    shared = make_room();
    in_threads(THREADS, own_file);
    IS(THREADS, names_in(shared, "/"));
    OK(strongroom_close(shared));
}

#define PART 100003u

static void own_part(int me)
{
    unsigned char data[PART];
    fill(data, PART, 0, (unsigned)me);
    for (size_t at = 0; at < PART; at += 5000) {
        size_t n = PART - at < 5000 ? PART - at : 5000;
        IS(n, strongroom_file_pwrite(shared_file, data + at, n, (uint64_t)me * PART + at));
    }
}

void case_threads_one_file(void)
{
    static unsigned char data[THREADS * PART];
    shared = make_room();
    shared_file = file_of(shared, "/f", STRONGROOM_READ | STRONGROOM_WRITE | STRONGROOM_CREATE);
    in_threads(THREADS, own_part);
    for (unsigned me = 0; me < THREADS; me++) {
        fill(data + me * PART, PART, 0, me);
    }
    holds(shared, "/f", data, sizeof data);
    shared = again(shared);
    holds(shared, "/f", data, sizeof data);
    OK(strongroom_close(shared));
}

#define LINES 200
#define LINE 40

static void append_lines(int me)
{
    char line[LINE + 1];
    strongroom_file file = file_of(shared, "/log", STRONGROOM_WRITE | STRONGROOM_APPEND | STRONGROOM_CREATE);
    for (int i = 0; i < LINES; i++) {
        snprintf(line, sizeof line, "thread %2d line %4d %*s\n", me, i, LINE - 21, "x");
        IS(LINE, strongroom_file_write(file, line, LINE));
    }
    OK(strongroom_file_close(file));
}

void case_threads_append(void)
{
    static char all[THREADS * LINES * LINE + 1];
    int next[THREADS] = {0};
    shared = make_room();
    in_threads(THREADS, append_lines);
    strongroom_file file = file_of(shared, "/log", STRONGROOM_READ);
    IS(sizeof all - 1, strongroom_file_read(file, all, sizeof all));
    for (char *line = all; *line; line += LINE) {
        int me, i;
        CHECK(line[LINE - 1] == '\n' && sscanf(line, "thread %d line %d", &me, &i) == 2 && i == next[me]);
        next[me]++;
    }
    OK(strongroom_close(shared));
}

static void open_and_close(int me)
{
    char byte;
    for (int i = 0; i < 300; i++) {
        char path[32];
        strongroom_file file;
        snprintf(path, sizeof path, "/f%d", (i + me) % 3);
        int32_t code;
        switch ((i / 3 + me) % 3) {
        case 0:
            OK(strongroom_file_open(shared, path, STRONGROOM_WRITE | STRONGROOM_CREATE, 0644, &file));
            IS(1, strongroom_file_write(file, "x", 1));
            OK(strongroom_file_close(file));
            break;
        case 1:
            code = strongroom_file_open(shared, path, STRONGROOM_READ, 0, &file);
            CHECK(code == STRONGROOM_OK || code == STRONGROOM_NOT_FOUND);
            if (code == STRONGROOM_OK) {
                OK(strongroom_file_read(file, &byte, 1));
                OK(strongroom_file_close(file));
            }
            break;
        default:
            code = strongroom_unlink(shared, path);
            CHECK(code == STRONGROOM_OK || code == STRONGROOM_NOT_FOUND);
        }
    }
}

void case_threads_open_close(void)
{
    shared = make_room();
    in_threads(THREADS, open_and_close);
    OK(strongroom_close(shared));
}

static void use_handle(int me)
{
    unsigned char byte;
    for (int i = 0; i < 2000; i++) {
        int64_t got;
        switch ((i + me) % 4) {
        case 0: got = strongroom_file_read(shared_file, &byte, 1); break;
        case 1: got = strongroom_file_write(shared_file, "x", 1); break;
        case 2: got = strongroom_file_seek(shared_file, i % 100, 0); break;
        default:
            got = strongroom_file_pread(shared_file, &byte, 1, 5000);
            CHECK(got < 0 || byte == pattern(5000, 1));
        }
        CHECK(got >= 0 || got == STRONGROOM_CLOSED);
        if (me == 1 && i == 1500) {
            OK(strongroom_file_close(shared_file));
        }
    }
}

void case_handle_two_threads(void)
{
    unsigned char data[10000];
    shared = make_room();
    fill(data, sizeof data, 0, 1);
    put(shared, "/f", data, sizeof data);
    shared_file = file_of(shared, "/f", STRONGROOM_READ | STRONGROOM_WRITE);
    in_threads(2, use_handle);
    IS(STRONGROOM_CLOSED, strongroom_file_read(shared_file, data, 1));
    OK(strongroom_close(shared));
}

static atomic_int written[THREADS];

static void use_until_closed(int me)
{
    char path[32];
    for (int i = 0;; i++) {
        strongroom_file file;
        if (me == 0) {
            usleep(150000);
            OK(strongroom_close(shared));
            return;
        }
        snprintf(path, sizeof path, "/%d-%d", me, i);
        int64_t code = strongroom_file_open(shared, path, STRONGROOM_WRITE | STRONGROOM_CREATE, 0644, &file);
        if (code == STRONGROOM_OK) {
            code = strongroom_file_write(file, path, strlen(path));
            OK(strongroom_file_close(file));
        }
        if (code < 0) {
            IS(STRONGROOM_CLOSED, code);
            return;
        }
        written[me] = i + 1;
    }
}

void case_close_room_while_used(void)
{
    char path[32];
    int all = 0;
    shared = make_room();
    in_threads(THREADS, use_until_closed);
    strongroom_room room = open_room();
    for (int me = 1; me < THREADS; me++) {
        for (int i = 0; i < written[me]; i++, all++) {
            snprintf(path, sizeof path, "/%d-%d", me, i);
            holds_text(room, path, path);
        }
    }
    CHECK(all > 0);
    OK(strongroom_close(room));
}
