/* Keeps a moment of a room, brings a file back from it, and has automatic snapshots kept: snapshots DIRECTORY */
#include <stdio.h>
#include <string.h>

#include <strongroom.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strongroom_last_error());
    return 1;
}

static int put(strongroom_room room, const char *path, const char *text)
{
    strongroom_file file;
    if (strongroom_file_open(room, path, STRONGROOM_WRITE | STRONGROOM_CREATE | STRONGROOM_TRUNCATE, 0644, &file) < 0) {
        return -1;
    }
    int code = strongroom_file_write(file, text, strlen(text)) < 0 ? -1 : 0;
    strongroom_file_close(file);
    return code;
}

static int show(strongroom_room room, const char *path)
{
    char text[256];
    strongroom_file file;
    if (strongroom_file_open(room, path, STRONGROOM_READ, 0, &file) < 0) {
        return -1;
    }
    int64_t n = strongroom_file_pread(file, text, sizeof text, 0);
    strongroom_file_close(file);
    if (n >= 0) {
        printf("%.*s\n", (int)n, text);
    }
    return n < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    const strongroom_key key = {STRONGROOM_KEY_PASSPHRASE, "correct horse", strlen("correct horse")};
    strongroom_room room, past;
    strongroom_diff diff;
    strongroom_change change;
    strongroom_snapshot_policy policy = {.size = sizeof policy, .hourly = 24, .daily = 7, .weekly = 5};
    strongroom_policy_report report;
    if (argc != 2) {
        fprintf(stderr, "usage: snapshots DIRECTORY\n");
        return 2;
    }
    if (strongroom_create(argv[1], &key, NULL, &room) < 0) {
        return failed(argv[1]);
    }
    if (put(room, "/letter.txt", "Dear Ada") < 0 || strongroom_snapshot_create(room, "monday") < 0 ||
        put(room, "/letter.txt", "Dear Bob") < 0) {
        return failed("writing");
    }

    /* A snapshot is a room that reads. */
    if (strongroom_snapshot_open(room, "monday", &past) < 0 || show(past, "/letter.txt") < 0) {
        return failed("reading monday");
    }
    strongroom_close(past);

    if (strongroom_diff_open(room, "monday", NULL, &diff) < 0) {
        return failed("comparing");
    }
    while (strongroom_diff_next(diff, &change) == 1) {
        printf("changed since: %s\n", change.path);
    }
    strongroom_diff_close(diff);

    if (strongroom_snapshot_restore(room, "monday", "/letter.txt", NULL) < 0 || show(room, "/letter.txt") < 0) {
        return failed("restoring");
    }

    /* Apply it now and then, and when the program's files belong together. */
    if (strongroom_snapshot_policy_set(room, &policy) < 0 || strongroom_snapshot_policy_apply(room, &report) < 0) {
        return failed("the policy");
    }
    printf("automatic snapshots created: %d\n", report.created != 0);
    return strongroom_close(room) == STRONGROOM_OK ? 0 : failed("closing");
}
