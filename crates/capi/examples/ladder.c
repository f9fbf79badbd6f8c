/* How fast a room is from C: the counterpart of crates/embed/examples/ladder.rs, which says what is measured.
 *
 *     ladder DIRECTORY SOURCE [CALLS]
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <strongroom.h>

#define MIB (1 << 20)
#define FILE_BYTES (2 * MIB)
#define FILES 8

static void must(int64_t code)
{
    if (code < 0) {
        fprintf(stderr, "%s\n", strongroom_last_error());
        exit(1);
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t scattered(void)
{
    static uint32_t place = 1;
    place = place * 1103515245u + 12345u;
    return (place >> 8) % MIB;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1 << 20, 512 << 10, 128 << 10, 64 << 10, 8 << 10, 4 << 10, 1 << 10, 256};
    static unsigned char data[MIB], bytes[32], byte;
    const strongroom_key key = {STRONGROOM_KEY_RAW, bytes, sizeof bytes};
    strongroom_room room;
    strongroom_file file;
    strongroom_stat stat;
    if (argc < 3) {
        fprintf(stderr, "usage: ladder DIRECTORY SOURCE [CALLS]\n");
        return 2;
    }
    const long calls = argc > 3 ? atol(argv[3]) : 200000;
    memset(bytes, 7, sizeof bytes);
    must(strongroom_create(argv[1], &key, NULL, &room));
    for (size_t i = 0; i < MIB; i++) {
        data[i] = (unsigned char)(i * 31 % 251);
    }

    printf("{\"language\":\"c\",\"write_MiB_s\":{");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double began = seconds();
        for (int n = 0; n < FILES; n++) {
            char path[64];
            snprintf(path, sizeof path, "/ladder-%zu-%d", sizes[s], n);
            must(strongroom_file_open(room, path, STRONGROOM_WRITE | STRONGROOM_CREATE | STRONGROOM_TRUNCATE, 0644, &file));
            for (size_t i = 0; i < FILE_BYTES / sizes[s]; i++) {
                must(strongroom_file_write(file, data, sizes[s]));
            }
            must(strongroom_file_sync(file));
            must(strongroom_file_close(file));
        }
        printf("%s\"%zu\":%.2f", s ? "," : "", sizes[s], FILE_BYTES / MIB * FILES / (seconds() - began));
    }

    must(strongroom_file_open(room, "/warm", STRONGROOM_READ | STRONGROOM_WRITE | STRONGROOM_CREATE, 0644, &file));
    must(strongroom_file_write(file, data, MIB));
    must(strongroom_sync(room));
    for (long i = 0; i < calls; i++) {
        must(strongroom_file_pread(file, &byte, 1, scattered()));
    }
    double began = seconds();
    for (long i = 0; i < calls; i++) {
        must(strongroom_file_pread(file, &byte, 1, scattered()));
    }
    double call_ns = (seconds() - began) * 1e9 / (double)calls;
    began = seconds();
    for (long i = 0; i < calls; i++) {
        must(strongroom_get_stat(room, "/warm", &stat));
    }
    double stat_ns = (seconds() - began) * 1e9 / (double)calls;
    must(strongroom_file_close(file));

    FILE *from = fopen(argv[2], "rb");
    if (!from) {
        perror(argv[2]);
        return 1;
    }
    setvbuf(from, NULL, _IONBF, 0);
    size_t n, copied = 0;
    began = seconds();
    must(strongroom_file_open(room, "/copy", STRONGROOM_WRITE | STRONGROOM_CREATE | STRONGROOM_TRUNCATE, 0644, &file));
    while ((n = fread(data, 1, MIB, from)) > 0) {
        must(strongroom_file_write(file, data, n));
        copied += n;
    }
    must(strongroom_file_sync(file));
    double copy = (double)copied / MIB / (seconds() - began);
    must(strongroom_file_close(file));
    fclose(from);
    must(strongroom_close(room));

    printf("},\"call_ns\":%.0f,\"stat_ns\":%.0f,\"copy_MiB_s\":%.2f}\n", call_ns, stat_ns, copy);
    return 0;
}
