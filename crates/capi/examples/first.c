/* An encrypted file, from nothing: first DIRECTORY
 *
 *     cc first.c $(pkg-config --cflags --libs strongroom) -o first && ./first work.strongroom
 */
#include <stdio.h>
#include <string.h>

#include <strongroom.h>

/* Says why, for people. */
static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strongroom_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : "work.strongroom";
    const char *text = "Nobody reads this without the passphrase.\n";
    const strongroom_key key = {STRONGROOM_KEY_PASSPHRASE, "correct horse", strlen("correct horse")};
    strongroom_room room;
    strongroom_file file;
    char read[100];

    /* The second time it is there already. */
    int32_t code = strongroom_create(dir, &key, NULL, &room);
    if (code == STRONGROOM_EXISTS) {
        code = strongroom_open(dir, &key, NULL, &room);
    }
    if (code != STRONGROOM_OK) {
        return failed(dir);
    }

    if (strongroom_file_open(room, "/hello.txt", STRONGROOM_WRITE | STRONGROOM_CREATE | STRONGROOM_TRUNCATE, 0644, &file) < 0 ||
        strongroom_file_write(file, text, strlen(text)) < 0 ||
        strongroom_file_sync(file) < 0 || /* Durable from here on, whatever happens. */
        strongroom_file_close(file) < 0) {
        return failed("writing /hello.txt");
    }

    if (strongroom_file_open(room, "/hello.txt", STRONGROOM_READ, 0, &file) < 0) {
        return failed("opening /hello.txt");
    }
    int64_t n = strongroom_file_read(file, read, sizeof read);
    if (n < 0) {
        return failed("reading /hello.txt");
    }
    printf("%.*s", (int)n, read);
    strongroom_file_close(file);

    return strongroom_close(room) == STRONGROOM_OK ? 0 : failed("closing");
}
