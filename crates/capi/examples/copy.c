/* Copies files into a room and lists it: copy DIRECTORY KEYFILE FILE...
 *
 * The room is opened by 32 random bytes (head -c 32 /dev/urandom >KEYFILE), which costs no second of key derivation. Keep them where
 * only your program can read them.
 */
#include <stdio.h>
#include <string.h>

#include <strongroom.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strongroom_last_error());
    return 1;
}

static int copy(strongroom_room room, const char *path)
{
    static char buffer[1 << 20];
    char name[4096];
    const char *last = strrchr(path, '/');
    strongroom_file to;
    size_t n;
    snprintf(name, sizeof name, "/%s", last ? last + 1 : path);
    FILE *from = fopen(path, "rb");
    if (!from) {
        perror(path);
        return 1;
    }
    if (strongroom_file_open(room, name, STRONGROOM_WRITE | STRONGROOM_CREATE | STRONGROOM_TRUNCATE, 0644, &to) < 0) {
        fclose(from);
        return failed(name);
    }
    while ((n = fread(buffer, 1, sizeof buffer, from)) > 0) {
        if (strongroom_file_write(to, buffer, n) < 0) {
            fclose(from);
            return failed(name);
        }
    }
    int broken = ferror(from);
    fclose(from);
    strongroom_file_close(to);
    return broken;
}

int main(int argc, char **argv)
{
    unsigned char bytes[32];
    strongroom_room room;
    strongroom_dir dir;
    strongroom_entry entry;
    if (argc < 3) {
        fprintf(stderr, "usage: copy DIRECTORY KEYFILE FILE...\n");
        return 2;
    }
    FILE *f = fopen(argv[2], "rb");
    if (!f || fread(bytes, 1, sizeof bytes, f) != sizeof bytes) {
        fprintf(stderr, "%s: cannot be read, or has no 32 bytes\n", argv[2]);
        return 1;
    }
    fclose(f);
    const strongroom_key key = {STRONGROOM_KEY_RAW, bytes, sizeof bytes};
    if (strongroom_create(argv[1], &key, NULL, &room) < 0 && strongroom_open(argv[1], &key, NULL, &room) < 0) {
        return failed(argv[1]);
    }

    /* All the files, or after a crash none of them. */
    if (strongroom_begin(room) < 0) {
        return failed("beginning");
    }
    for (int i = 3; i < argc; i++) {
        if (copy(room, argv[i]) != 0) {
            strongroom_abandon(room); /* As if it had never begun. */
            return 1;
        }
    }
    if (strongroom_complete(room) < 0) {
        return failed("completing");
    }

    if (strongroom_dir_open(room, "/", &dir) < 0) {
        return failed("listing");
    }
    while (strongroom_dir_next(dir, &entry) == 1) {
        printf("%10llu %s\n", (unsigned long long)entry.stat.size, entry.name);
    }
    strongroom_dir_close(dir);
    return strongroom_close(room) == STRONGROOM_OK ? 0 : failed("closing");
}
