/* What the cases share. */
#include "contract.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

void fail(const char *file, int line, const char *what, long long got)
{
    fprintf(stderr, "    %s:%d: not so: %s (got %lld; last error: %s)\n", file, line, what, got, strongroom_last_error());
    _exit(1);
}

void skip(const char *why)
{
    fprintf(stderr, "    left out: %s\n", why);
    _exit(77);
}

strongroom_key raw_key(unsigned char value)
{
    static unsigned char keys[256][32];
    memset(keys[value], value, 32);
    return (strongroom_key){STRONGROOM_KEY_RAW, keys[value], 32};
}

strongroom_key passphrase(const char *text)
{
    return (strongroom_key){STRONGROOM_KEY_PASSPHRASE, text, strlen(text)};
}

const strongroom_options *cheap(void)
{
    static strongroom_options options;
    OK(strongroom_options_init(&options));
    options.argon2_memory_kib = 8192;
    options.argon2_passes = 1;
    options.argon2_lanes = 1;
    return &options;
}

strongroom_room make_room(void)
{
    strongroom_room room;
    strongroom_key key = raw_key(1);
    OK(strongroom_create("room", &key, NULL, &room));
    CHECK(room != 0);
    return room;
}

strongroom_room open_room(void)
{
    strongroom_room room;
    strongroom_key key = raw_key(1);
    OK(strongroom_open("room", &key, NULL, &room));
    return room;
}

strongroom_room again(strongroom_room room)
{
    OK(strongroom_close(room));
    return open_room();
}

unsigned char pattern(uint64_t at, unsigned seed)
{
    uint64_t x = at * 0x9E3779B97F4A7C15u + seed * 0xBF58476D1CE4E5B9u;
    return (unsigned char)(x >> 56 ^ x >> 29);
}

void fill(unsigned char *data, size_t len, uint64_t at, unsigned seed)
{
    for (size_t i = 0; i < len; i++) {
        data[i] = pattern(at + i, seed);
    }
}

uint64_t random_below(uint64_t bound)
{
    static uint64_t state;
    if (state == 0) {
        const char *seed = getenv("CONTRACT_SEED");
        state = seed ? strtoull(seed, NULL, 10) | 1 : 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % bound;
}

strongroom_file file_of(strongroom_room room, const char *path, uint32_t flags)
{
    strongroom_file file;
    OK(strongroom_file_open(room, path, flags, 0644, &file));
    CHECK(file != 0);
    return file;
}

void put(strongroom_room room, const char *path, const void *data, size_t len)
{
    strongroom_file file = file_of(room, path, STRONGROOM_WRITE | STRONGROOM_CREATE | STRONGROOM_TRUNCATE);
    IS(len, strongroom_file_write(file, data, len));
    OK(strongroom_file_close(file));
}

void put_text(strongroom_room room, const char *path, const char *text)
{
    put(room, path, text, strlen(text));
}

void holds(strongroom_room room, const char *path, const void *data, size_t len)
{
    strongroom_file file = file_of(room, path, STRONGROOM_READ);
    unsigned char *found = malloc(len + 1);
    CHECK(found);
    IS(len, strongroom_file_read(file, found, len + 1));
    CHECK(memcmp(found, data, len) == 0);
    IS(0, strongroom_file_read(file, found, len + 1));
    IS(len, size_of(room, path));
    free(found);
    OK(strongroom_file_close(file));
}

void holds_text(strongroom_room room, const char *path, const char *text)
{
    holds(room, path, text, strlen(text));
}

uint64_t size_of(strongroom_room room, const char *path)
{
    strongroom_stat stat;
    OK(strongroom_get_stat(room, path, &stat));
    return stat.size;
}

bool there(strongroom_room room, const char *path)
{
    strongroom_stat stat;
    int32_t code = strongroom_get_lstat(room, path, &stat);
    CHECK(code == STRONGROOM_OK || code == STRONGROOM_NOT_FOUND);
    return code == STRONGROOM_OK;
}

static size_t list(strongroom_room room, const char *dir, const char *name, size_t *of_name)
{
    strongroom_dir listing;
    strongroom_entry entry;
    size_t all = 0;
    *of_name = 0;
    OK(strongroom_dir_open(room, dir, &listing));
    for (;;) {
        int64_t more = strongroom_dir_next(listing, &entry);
        OK(more);
        if (more == 0) {
            break;
        }
        CHECK(strcmp(entry.name, ".") != 0 && strcmp(entry.name, "..") != 0);
        all++;
        *of_name += name && strcmp(entry.name, name) == 0;
    }
    IS(0, strongroom_dir_next(listing, &entry));
    OK(strongroom_dir_close(listing));
    return all;
}

size_t names_in(strongroom_room room, const char *dir)
{
    size_t none;
    return list(room, dir, NULL, &none);
}

bool listed(strongroom_room room, const char *dir, const char *name)
{
    size_t found;
    list(room, dir, name, &found);
    CHECK(found <= 1);
    return found == 1;
}

typedef struct {
    void (*body)(int);
    int argument;
} work;

static void *run(void *argument)
{
    work *w = argument;
    w->body(w->argument);
    return NULL;
}

void in_threads(int count, void (*body)(int))
{
    pthread_t threads[16];
    work works[16];
    CHECK(count <= 16);
    for (int i = 0; i < count; i++) {
        works[i] = (work){body, i};
        CHECK(pthread_create(&threads[i], NULL, run, &works[i]) == 0);
    }
    for (int i = 0; i < count; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

int child(const char *name)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "contract", "--child", name, (char *)NULL);
        _exit(126);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

size_t damage(const char *dir, const char *name_begins, long first, long place)
{
    DIR *d = opendir(dir);
    size_t flipped = 0;
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[1024];
        if (e->d_name[0] == '.' || strncmp(e->d_name, name_begins, strlen(name_begins)) != 0) {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        FILE *f = fopen(path, "r+b");
        CHECK(f);
        for (long at = first * 4096 + place;; at += 4096) {
            CHECK(fseek(f, at, SEEK_SET) == 0);
            int byte = fgetc(f);
            if (byte == EOF) {
                break;
            }
            CHECK(fseek(f, at, SEEK_SET) == 0);
            CHECK(fputc(byte ^ 0x5A, f) != EOF);
            flipped++;
        }
        CHECK(fclose(f) == 0);
    }
    closedir(d);
    return flipped;
}
