/* What is in files. */
#include "contract.h"

#include <errno.h>

#define NEW (STRONGROOM_WRITE | STRONGROOM_CREATE | STRONGROOM_TRUNCATE)
#define BOTH (STRONGROOM_READ | STRONGROOM_WRITE)

static unsigned char *patterned(size_t len, unsigned seed)
{
    unsigned char *data = malloc(len + 1);
    CHECK(data);
    fill(data, len, 0, seed);
    return data;
}

static bool zeros(const unsigned char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != 0) {
            return false;
        }
    }
    return true;
}

void case_create_write_read(void)
{
    strongroom_room room = make_room();
    put_text(room, "/small", "this is a string");
    holds_text(room, "/small", "this is a string");
    room = again(room);
    holds_text(room, "/small", "this is a string");
    OK(strongroom_close(room));
}

void case_getattr_create_truncate(void)
{
    strongroom_room room = make_room();
    strongroom_stat stat;
    REFUSED(NOT_FOUND, strongroom_get_stat(room, "/f", &stat));
    IS(ENOENT, strongroom_last_errno());
    OK(strongroom_file_close(file_of(room, "/f", NEW)));
    IS(0, size_of(room, "/f"));
    const uint64_t sizes[] = {0, 100000, 0};
    for (int i = 0; i < 3; i++) {
        OK(strongroom_truncate(room, "/f", sizes[i]));
        IS(sizes[i], size_of(room, "/f"));
    }
    OK(strongroom_close(room));
}

void case_write_read_sizes(void)
{
    strongroom_room room = make_room();
    for (size_t size = 10; size <= 1000000; size *= 10) {
        unsigned char *data = patterned(size, 3);
        put(room, "/f", data, size);
        holds(room, "/f", data, size);
        OK(strongroom_truncate(room, "/f", 0));
        holds(room, "/f", data, 0);
        put(room, "/f", data, size);
        OK(strongroom_file_close(file_of(room, "/f", NEW)));
        holds(room, "/f", data, 0);
        free(data);
    }
    OK(strongroom_close(room));
}

void case_read_single_bytes(void)
{
    strongroom_room room = make_room();
    unsigned char *data = patterned(1000000, 4);
    put(room, "/f", data, 1000000);
    strongroom_file file = file_of(room, "/f", STRONGROOM_READ);
    for (int i = 0; i < 10000; i++) {
        unsigned char byte;
        uint64_t at = random_below(1000000);
        IS(1, strongroom_file_pread(file, &byte, 1, at));
        CHECK(byte == data[at]);
    }
    free(data);
    OK(strongroom_file_close(file));
    OK(strongroom_close(room));
}

void case_read_beyond_end(void)
{
    strongroom_room room = make_room();
    unsigned char buffer[200];
    put_text(room, "/f", "0123456789");
    strongroom_file file = file_of(room, "/f", STRONGROOM_READ);
    IS(4, strongroom_file_pread(file, buffer, sizeof buffer, 6));
    CHECK(memcmp(buffer, "6789", 4) == 0);
    IS(0, strongroom_file_pread(file, buffer, sizeof buffer, 10));
    IS(0, strongroom_file_pread(file, buffer, sizeof buffer, 1u << 30));
    IS(10, strongroom_file_read(file, buffer, sizeof buffer));
    IS(0, strongroom_file_read(file, buffer, sizeof buffer));
    OK(strongroom_close(room));
}

void case_read_bigger_than_file(void)
{
    strongroom_room room = make_room();
    unsigned char *data = patterned(800, 5), buffer[2000];
    put(room, "/f", data, 800);
    strongroom_file file = file_of(room, "/f", STRONGROOM_READ);
    IS(200, strongroom_file_pread(file, buffer, 200, 200));
    CHECK(memcmp(buffer, data + 200, 200) == 0);
    IS(800, strongroom_file_pread(file, buffer, 2000, 0));
    CHECK(memcmp(buffer, data, 800) == 0);
    free(data);
    OK(strongroom_close(room));
}

void case_truncate_down(void)
{
    strongroom_room room = make_room();
    const size_t all = 3 * MIB + 77, cuts[] = {3 * MIB, 2 * MIB + 1, 8193, 8192, 8191, 4096, 100, 1, 0};
    unsigned char *data = patterned(all, 6), *found = malloc(all + 5000);
    CHECK(found);
    put(room, "/f", data, all);
    strongroom_file file = file_of(room, "/f", BOTH);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        OK(strongroom_file_truncate(file, cuts[i]));
        holds(room, "/f", data, cuts[i]);
        OK(strongroom_file_truncate(file, cuts[i] + 5000));
        IS(cuts[i] + 5000, strongroom_file_pread(file, found, all + 5000, 0));
        CHECK(memcmp(found, data, cuts[i]) == 0 && zeros(found + cuts[i], 5000));
    }
    free(data);
    free(found);
    OK(strongroom_close(room));
}

void case_truncate_up(void)
{
    strongroom_room room = make_room();
    unsigned char *found = malloc(2 * MIB);
    CHECK(found);
    put_text(room, "/f", "begin");
    OK(strongroom_truncate(room, "/f", MIB + 1));
    room = again(room);
    strongroom_file file = file_of(room, "/f", STRONGROOM_READ);
    IS(MIB + 1, strongroom_file_read(file, found, 2 * MIB));
    CHECK(memcmp(found, "begin", 5) == 0 && zeros(found + 5, MIB + 1 - 5));
    free(found);
    OK(strongroom_close(room));
}

void case_truncate_sparse(void)
{
    const uint64_t five_gb = 5000000000u;
    strongroom_room room = make_room();
    strongroom_space before, after;
    unsigned char byte = 1;
    OK(strongroom_get_space(room, &before));
    strongroom_file file = file_of(room, "/f", BOTH | STRONGROOM_CREATE);
    OK(strongroom_file_truncate(file, five_gb));
    OK(strongroom_file_sync(file));
    IS(1, strongroom_file_pread(file, &byte, 1, five_gb - 1));
    CHECK(byte == 0);
    IS(five_gb, size_of(room, "/f"));
    OK(strongroom_get_space(room, &after));
    CHECK(after.stored - before.stored < MIB && after.live - before.live < MIB);
    OK(strongroom_close(room));
}

/* The lengths around which writes are tried. */
static const size_t boundaries[] = {4096, 8192, 12288, 16384, 24576, 32768, MIB, 2 * MIB};
#define BOUNDARIES (sizeof boundaries / sizeof *boundaries)

void case_write_block_boundaries(void)
{
    strongroom_room room = make_room();
    unsigned char *data = patterned(2 * MIB + 1, 7);
    for (size_t i = 0; i < BOUNDARIES; i++) {
        for (size_t size = boundaries[i] - 1; size <= boundaries[i] + 1; size++) {
            put(room, "/f", data, size);
            holds(room, "/f", data, size);
        }
    }
    room = again(room);
    holds(room, "/f", data, 2 * MIB + 1);
    free(data);
    OK(strongroom_close(room));
}

void case_write_across_boundaries(void)
{
    const size_t all = 2 * MIB + 4096;
    strongroom_room room = make_room();
    unsigned char *data = patterned(all, 8);
    put(room, "/f", data, all);
    OK(strongroom_sync(room));
    strongroom_file file = file_of(room, "/f", BOTH);
    for (size_t i = 0; i < BOUNDARIES; i++) {
        for (size_t at = boundaries[i] - 4; at <= boundaries[i] + 1; at++) {
            unsigned char three[3] = {(unsigned char)(data[at] + 1), (unsigned char)(data[at + 1] + 1), (unsigned char)i};
            memcpy(data + at, three, 3);
            IS(3, strongroom_file_pwrite(file, three, 3, at));
        }
    }
    holds(room, "/f", data, all);
    room = again(room);
    holds(room, "/f", data, all);
    free(data);
    OK(strongroom_close(room));
}

void case_write_gaps(void)
{
    strongroom_room room = make_room();
    const char *one = "it was the best", *two = "it was the worst";
    unsigned char *found = malloc(1000100);
    CHECK(found);
    for (size_t gap = 100; gap <= 1000000; gap *= 100) {
        strongroom_file file = file_of(room, "/f", BOTH | STRONGROOM_CREATE | STRONGROOM_TRUNCATE);
        OK(strongroom_file_pwrite(file, one, strlen(one), 0));
        OK(strongroom_file_pwrite(file, two, strlen(two), gap));
        IS(gap + strlen(two), strongroom_file_pread(file, found, 1000100, 0));
        CHECK(memcmp(found, one, strlen(one)) == 0 && memcmp(found + gap, two, strlen(two)) == 0);
        CHECK(zeros(found + strlen(one), gap - strlen(one)));
        OK(strongroom_file_close(file));
    }
    free(found);
    OK(strongroom_close(room));
}

void case_write_empty(void)
{
    strongroom_room room = make_room();
    put_text(room, "/f", "abc");
    strongroom_file file = file_of(room, "/f", BOTH);
    IS(0, strongroom_file_write(file, NULL, 0));
    IS(0, strongroom_file_pwrite(file, "", 0, 100));
    IS(0, strongroom_file_read(file, NULL, 0));
    holds_text(room, "/f", "abc");
    OK(strongroom_close(room));
}

void case_append(void)
{
    strongroom_room room = make_room();
    put_text(room, "/f", "first");
    strongroom_file file = file_of(room, "/f", BOTH | STRONGROOM_APPEND);
    OK(strongroom_file_write(file, ",second", 7));
    IS(0, strongroom_file_seek(file, 0, 0));
    OK(strongroom_file_write(file, ",third", 6));
    IS(18, strongroom_file_seek(file, 0, 1));
    OK(strongroom_file_pwrite(file, ",fourth", 7, 0));
    OK(strongroom_file_close(file));
    holds_text(room, "/f", "first,second,third,fourth");
    REFUSED(INVALID_ARGUMENT, strongroom_file_open(room, "/f", STRONGROOM_READ | STRONGROOM_APPEND, 0, &file));
    OK(strongroom_close(room));
}

void case_append_new(void)
{
    strongroom_room room = make_room();
    strongroom_file file = file_of(room, "/f", STRONGROOM_WRITE | STRONGROOM_APPEND | STRONGROOM_CREATE);
    OK(strongroom_file_write(file, "new", 3));
    holds_text(room, "/f", "new");
    OK(strongroom_close(room));
}

void case_seek(void)
{
    strongroom_room room = make_room();
    char buffer[4] = "";
    put_text(room, "/f", "0123456789");
    strongroom_file file = file_of(room, "/f", BOTH);
    IS(4, strongroom_file_seek(file, 4, 0));
    IS(3, strongroom_file_read(file, buffer, 3));
    CHECK(strcmp(buffer, "456") == 0);
    IS(5, strongroom_file_seek(file, -2, 1));
    IS(8, strongroom_file_seek(file, -2, 2));
    IS(1, strongroom_file_write(file, "x", 1));
    IS(9, strongroom_file_seek(file, 0, 1));
    REFUSED(INVALID_ARGUMENT, strongroom_file_seek(file, -1, 0));
    REFUSED(INVALID_ARGUMENT, strongroom_file_seek(file, -11, 2));
    REFUSED(INVALID_ARGUMENT, strongroom_file_seek(file, INT64_MAX, 1));
    REFUSED(INVALID_ARGUMENT, strongroom_file_seek(file, 0, 3));
    IS(9, strongroom_file_seek(file, 0, 1));
    IS(20, strongroom_file_seek(file, 10, 2));
    IS(0, strongroom_file_read(file, buffer, 3));
    holds_text(room, "/f", "01234567x9");
    OK(strongroom_close(room));
}

void case_positional_io(void)
{
    strongroom_room room = make_room();
    char buffer[3] = "";
    put_text(room, "/f", "0123456789");
    strongroom_file file = file_of(room, "/f", BOTH);
    IS(3, strongroom_file_seek(file, 3, 0));
    IS(2, strongroom_file_pread(file, buffer, 2, 7));
    CHECK(strcmp(buffer, "78") == 0);
    IS(2, strongroom_file_pwrite(file, "ab", 2, 0));
    IS(3, strongroom_file_seek(file, 0, 1));
    holds_text(room, "/f", "ab23456789");
    OK(strongroom_close(room));
}

void case_open_missing(void)
{
    strongroom_room room = make_room();
    strongroom_file file = 77;
    REFUSED(NOT_FOUND, strongroom_file_open(room, "/f", STRONGROOM_READ, 0, &file));
    CHECK(file == 0);
    REFUSED(NOT_FOUND, strongroom_file_open(room, "/f", BOTH, 0644, &file));
    REFUSED(NOT_FOUND, strongroom_file_open(room, "/d/f", NEW, 0644, &file));
    IS(0, names_in(room, "/"));
    OK(strongroom_close(room));
}

void case_create_existing(void)
{
    strongroom_room room = make_room();
    put_text(room, "/f", "kept");
    OK(strongroom_file_close(file_of(room, "/f", STRONGROOM_WRITE | STRONGROOM_CREATE)));
    holds_text(room, "/f", "kept");
    OK(strongroom_close(room));
}

void case_create_truncate_new(void)
{
    strongroom_room room = make_room();
    OK(strongroom_file_close(file_of(room, "/f", NEW)));
    holds_text(room, "/f", "");
    OK(strongroom_close(room));
}

void case_create_truncate_existing(void)
{
    strongroom_room room = make_room();
    put_text(room, "/f", "gone");
    OK(strongroom_file_close(file_of(room, "/f", NEW)));
    holds_text(room, "/f", "");
    OK(strongroom_close(room));
}

void case_create_exclusive(void)
{
    strongroom_room room = make_room();
    strongroom_file file;
    put_text(room, "/f", "kept");
    REFUSED(EXISTS, strongroom_file_open(room, "/f", STRONGROOM_WRITE | STRONGROOM_EXCLUSIVE, 0644, &file));
    holds_text(room, "/f", "kept");
    OK(strongroom_symlink(room, "/nowhere", "/link"));
    REFUSED(EXISTS, strongroom_file_open(room, "/link", STRONGROOM_WRITE | STRONGROOM_EXCLUSIVE, 0644, &file));
    CHECK(!there(room, "/nowhere"));
    OK(strongroom_file_close(file_of(room, "/new", STRONGROOM_WRITE | STRONGROOM_EXCLUSIVE)));
    OK(strongroom_close(room));
}

void case_open_directory(void)
{
    strongroom_room room = make_room();
    strongroom_file file;
    OK(strongroom_mkdir(room, "/d", 0755));
    REFUSED(IS_DIRECTORY, strongroom_file_open(room, "/d", STRONGROOM_READ, 0, &file));
    REFUSED(IS_DIRECTORY, strongroom_file_open(room, "/d", BOTH, 0, &file));
    REFUSED(IS_DIRECTORY, strongroom_file_open(room, "/", STRONGROOM_READ, 0, &file));
    OK(strongroom_close(room));
}

void case_read_only_handle(void)
{
    strongroom_room room = make_room();
    char byte;
    put_text(room, "/f", "abc");
    strongroom_file reads = file_of(room, "/f", STRONGROOM_READ), writes = file_of(room, "/f", STRONGROOM_WRITE);
    REFUSED(READ_ONLY, strongroom_file_write(reads, "x", 1));
    REFUSED(READ_ONLY, strongroom_file_pwrite(reads, "x", 1, 0));
    REFUSED(READ_ONLY, strongroom_file_truncate(reads, 0));
    REFUSED(READ_ONLY, strongroom_file_read(writes, &byte, 1));
    REFUSED(READ_ONLY, strongroom_file_pread(writes, &byte, 1, 0));
    IS(EBADF, strongroom_last_errno());
    holds_text(room, "/f", "abc");
    OK(strongroom_close(room));
}

void case_unlink_open(void)
{
    strongroom_room room = make_room();
    char found[8] = "";
    put_text(room, "/f", "still");
    strongroom_file file = file_of(room, "/f", BOTH);
    OK(strongroom_unlink(room, "/f"));
    CHECK(!there(room, "/f"));
    OK(strongroom_sync(room));
    IS(2, strongroom_file_pwrite(file, "ST", 2, 0));
    IS(5, strongroom_file_pread(file, found, 8, 0));
    CHECK(strcmp(found, "STill") == 0);
    OK(strongroom_file_close(file));
    OK(strongroom_close(room));
}

void case_big_io(void)
{
    const size_t big = 64 * MIB;
    strongroom_room room = make_room();
    unsigned char *data = patterned(big, 9);
    put(room, "/f", data, big);
    holds(room, "/f", data, big);
    strongroom_file file = file_of(room, "/f", BOTH);
    const size_t lengths[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 62, ((size_t)1 << 46) + 1};
    for (int i = 0; i < 4; i++) {
        REFUSED(INVALID_ARGUMENT, strongroom_file_read(file, data, lengths[i]));
        REFUSED(INVALID_ARGUMENT, strongroom_file_pwrite(file, data, lengths[i], 0));
    }
    IS(STRONGROOM_INVALID_ARGUMENT, strongroom_file_pwrite(file, "x", 1, UINT64_MAX));
    CHECK(strongroom_file_truncate(file, UINT64_MAX) < 0);
    IS(0, strongroom_file_pread(file, data, 1, UINT64_MAX));
    free(data);
    OK(strongroom_close(room));
}
