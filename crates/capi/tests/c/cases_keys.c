/* Keys, and what a room says of itself. */
#include "contract.h"

#include <errno.h>
#include <sys/stat.h>

static int32_t opens(strongroom_key key)
{
    strongroom_room room = 77;
    int32_t code = strongroom_open("room", &key, NULL, &room);
    if (code == STRONGROOM_OK) {
        OK(strongroom_close(room));
    } else {
        CHECK(room == 0);
    }
    return code;
}

void case_open_wrong_passphrase(void)
{
    strongroom_room room;
    strongroom_key right = passphrase("correct horse");
    OK(strongroom_create("room", &right, cheap(), &room));
    put_text(room, "/f", "secret");
    OK(strongroom_close(room));
    REFUSED(WRONG_KEY, opens(passphrase("wrong horse")));
    REFUSED(WRONG_KEY, opens(passphrase("correct horse ")));
    REFUSED(WRONG_KEY, opens(raw_key(1)));
    int32_t empty = opens(passphrase(""));
    CHECK(empty == STRONGROOM_WRONG_KEY || empty == STRONGROOM_INVALID_ARGUMENT);
    IS(STRONGROOM_OK, opens(right));
}

void case_open_wrong_raw_key(void)
{
    static const unsigned char bytes[33];
    const size_t lengths[] = {0, 1, 16, 31, 33};
    strongroom_room room = make_room();
    OK(strongroom_close(room));
    REFUSED(WRONG_KEY, opens(raw_key(2)));
    for (int i = 0; i < 5; i++) {
        strongroom_key key = {STRONGROOM_KEY_RAW, bytes, lengths[i]};
        CHECK(opens(key) < 0);
        CHECK(strongroom_create("other", &key, NULL, &room) < 0 && room == 0);
        struct stat st;
        CHECK(stat("other/header.json", &st) != 0);
    }
    strongroom_key key = raw_key(1);
    key.kind = 9;
    REFUSED(INVALID_ARGUMENT, opens(key));
    IS(STRONGROOM_OK, opens(raw_key(1)));
}

void case_open_not_a_room(void)
{
    strongroom_room room;
    strongroom_key key = raw_key(1);
    CHECK(mkdir("empty", 0700) == 0);
    FILE *f = fopen("file", "w");
    CHECK(f && fclose(f) == 0);
    REFUSED(NOT_A_ROOM, strongroom_open("empty", &key, NULL, &room));
    REFUSED(NOT_A_ROOM, strongroom_open("missing", &key, NULL, &room));
    CHECK(strongroom_open("file", &key, NULL, &room) < 0 && room == 0);
    REFUSED(INVALID_ARGUMENT, strongroom_open("", &key, NULL, &room));
}

void case_create_existing_room(void)
{
    strongroom_room room = make_room(), other;
    strongroom_key key = raw_key(2);
    put_text(room, "/f", "kept");
    OK(strongroom_close(room));
    REFUSED(EXISTS, strongroom_create("room", &key, NULL, &other));
    room = open_room();
    holds_text(room, "/f", "kept");
    OK(strongroom_close(room));
}

void case_change_key_open(void)
{
    strongroom_room room = make_room();
    strongroom_key key = raw_key(2);
    put_text(room, "/before", "1");
    OK(strongroom_key_change(room, 0, &key, NULL));
    put_text(room, "/after", "2");
    OK(strongroom_close(room));
    REFUSED(WRONG_KEY, opens(raw_key(1)));
    OK(strongroom_open("room", &key, NULL, &room));
    holds_text(room, "/before", "1");
    holds_text(room, "/after", "2");
    OK(strongroom_close(room));
}

void case_change_key_closed(void)
{
    strongroom_room room = make_room();
    OK(strongroom_close(room));
    for (unsigned char i = 1; i <= 2; i++) {
        strongroom_key old = raw_key(i), new = raw_key((unsigned char)(i + 1));
        OK(strongroom_open("room", &old, NULL, &room));
        OK(strongroom_key_change(room, 0, &new, NULL));
        OK(strongroom_close(room));
    }
    REFUSED(WRONG_KEY, opens(raw_key(1)));
    REFUSED(WRONG_KEY, opens(raw_key(2)));
    IS(STRONGROOM_OK, opens(raw_key(3)));
}

void case_add_remove_key(void)
{
    strongroom_room room = make_room();
    strongroom_slot slots[4];
    strongroom_key key = passphrase("another");
    uint32_t slot = 99;
    OK(strongroom_key_add(room, &key, cheap(), "for the office", &slot));
    IS(2, strongroom_key_list(room, slots, 4));
    CHECK(slots[0].kind == STRONGROOM_KEY_RAW && slots[1].kind == STRONGROOM_KEY_PASSPHRASE && slots[1].id == slot);
    CHECK(strcmp(slots[1].label, "for the office") == 0);
    IS(2, strongroom_key_list(room, NULL, 0));
    OK(strongroom_close(room));
    IS(STRONGROOM_OK, opens(key));
    room = open_room();
    OK(strongroom_key_remove(room, slot));
    CHECK(strongroom_key_remove(room, 0) < 0);
    CHECK(strongroom_key_remove(room, 31) < 0);
    OK(strongroom_close(room));
    REFUSED(WRONG_KEY, opens(key));
    IS(STRONGROOM_OK, opens(raw_key(1)));
}

void case_room_info(void)
{
    static const uint8_t none[16];
    strongroom_room room;
    strongroom_info info;
    strongroom_space space;
    strongroom_key key = raw_key(1);
    strongroom_options options;
    OK(strongroom_options_init(&options));
    options.suite = 2;
    OK(strongroom_create("room", &key, &options, &room));
    put(room, "/f", "0123456789", 10);
    OK(strongroom_sync(room));
    OK(strongroom_get_info(room, &info));
    CHECK(memcmp(info.id, none, 16) != 0 && info.suite == 2 && info.slots == 1 && info.generation > 0 && info.read_only == 0);
    CHECK(info.created > 1700000000 && info.format > 0 && info.segments > 0);
    OK(strongroom_get_space(room, &space));
    CHECK(space.live >= 10 && space.stored >= space.live && space.total > 0 && space.inodes == 2);
    options.size--;
    strongroom_room other;
    REFUSED(INVALID_ARGUMENT, strongroom_create("other", &key, &options, &other));
    OK(strongroom_close(room));
}

void case_errors_have_text(void)
{
    strongroom_room room;
    strongroom_key key = passphrase("a passphrase not to be shown");
    strongroom_stat stat;
    char texts[4][512];
    CHECK(strcmp(strongroom_last_error(), "") == 0 && strongroom_last_errno() == 0);
    OK(strongroom_create("room", &key, cheap(), &room));
    IS(STRONGROOM_NOT_FOUND, strongroom_get_stat(room, "/f", &stat));
    snprintf(texts[0], sizeof *texts, "%s", strongroom_last_error());
    IS(STRONGROOM_INVALID_ARGUMENT, strongroom_get_stat(room, NULL, &stat));
    snprintf(texts[1], sizeof *texts, "%s", strongroom_last_error());
    OK(strongroom_close(room));
    IS(STRONGROOM_CLOSED, strongroom_get_stat(room, "/f", &stat));
    snprintf(texts[2], sizeof *texts, "%s", strongroom_last_error());
    strongroom_key wrong = passphrase("a passphrase not to be shown either");
    IS(STRONGROOM_WRONG_KEY, strongroom_open("room", &wrong, NULL, &room));
    snprintf(texts[3], sizeof *texts, "%s", strongroom_last_error());
    for (int i = 0; i < 4; i++) {
        CHECK(texts[i][0] != 0 && !strstr(texts[i], "not to be shown"));
        for (int j = 0; j < i; j++) {
            CHECK(strcmp(texts[i], texts[j]) != 0);
        }
    }
}
