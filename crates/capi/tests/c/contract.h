/* What the cases of the contract share. A case is a function without arguments that returns when all is right, and ends its process
 * otherwise; it runs in a process and a directory of its own. */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strongroom.h"

#define KIB 1024u
#define MIB (1024u * 1024u)

_Noreturn void fail(const char *file, int line, const char *what, long long got);
_Noreturn void skip(const char *why);

/* The condition holds. */
#define CHECK(condition)                                   \
    do {                                                   \
        if (!(condition)) {                                \
            fail(__FILE__, __LINE__, #condition, 0);       \
        }                                                  \
    } while (0)
/* The call answers with exactly this. */
#define IS(expected, call)                                          \
    do {                                                            \
        long long got_ = (call);                                    \
        if (got_ != (long long)(expected)) {                        \
            fail(__FILE__, __LINE__, #call " is " #expected, got_); \
        }                                                           \
    } while (0)
/* The call succeeds. */
#define OK(call)                                            \
    do {                                                    \
        long long got_ = (call);                            \
        if (got_ < 0) {                                     \
            fail(__FILE__, __LINE__, #call, got_);          \
        }                                                   \
    } while (0)
/* The call fails with STRONGROOM_code, and says why. */
#define REFUSED(code, call)                                                     \
    do {                                                                        \
        IS(STRONGROOM_##code, call);                                            \
        CHECK(strongroom_last_error()[0] != 0 && strongroom_last_errno() != 0); \
    } while (0)

/* A raw key of 32 bytes of that value; stays until the next call with the same value. */
strongroom_key raw_key(unsigned char value);
strongroom_key passphrase(const char *text);
/* The least that deriving a key costs. */
const strongroom_options *cheap(void);
/* The room "room" of the case's directory, by raw_key(1). */
strongroom_room make_room(void);
strongroom_room open_room(void);
/* Closes and opens again. */
strongroom_room again(strongroom_room room);

/* Byte `at` of a pattern that depends on the seed. */
unsigned char pattern(uint64_t at, unsigned seed);
void fill(unsigned char *data, size_t len, uint64_t at, unsigned seed);
/* Pseudo-random numbers; the seed is printed by the runner. */
uint64_t random_below(uint64_t bound);

/* Makes the file hold the `len` bytes. */
void put(strongroom_room room, const char *path, const void *data, size_t len);
void put_text(strongroom_room room, const char *path, const char *text);
/* The file holds exactly these. */
void holds(strongroom_room room, const char *path, const void *data, size_t len);
void holds_text(strongroom_room room, const char *path, const char *text);
/* Opens with `flags`, mode 0644. */
strongroom_file file_of(strongroom_room room, const char *path, uint32_t flags);
uint64_t size_of(strongroom_room room, const char *path);
bool there(strongroom_room room, const char *path);
/* How many names a directory lists; each one is there exactly once. */
size_t names_in(strongroom_room room, const char *dir);
bool listed(strongroom_room room, const char *dir, const char *name);

/* Runs `body(argument)` in `count` threads, with arguments 0, 1, … */
void in_threads(int count, void (*body)(int));
/* Runs this program again with `case_child NAME`, and returns the status that waitpid reports. */
int child(const char *name);
/* Flips bits of one byte in every 4096 of the files in a directory, from the block `first` on, at this place in the block. */
size_t damage(const char *dir, const char *name_begins, long first, long place);

typedef struct {
    const char *id;
    void (*run)(void);
} named;
/* The cases, ended by a NULL id; and what child processes run. */
extern const named cases[];
extern const named children[];

#endif
