/* Four threads in one room, and what a program may get wrong without being hurt: threads DIRECTORY */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <strongroom.h>

static strongroom_room room;

static void *log_lines(void *name)
{
    strongroom_file file;
    char line[64];
    if (strongroom_file_open(room, "/log", STRONGROOM_WRITE | STRONGROOM_APPEND | STRONGROOM_CREATE, 0644, &file) < 0) {
        return "opening";
    }
    for (int i = 0; i < 25; i++) {
        int n = snprintf(line, sizeof line, "%s: line %d\n", (const char *)name, i);
        if (strongroom_file_write(file, line, (size_t)n) != n) {
            return "writing";
        }
    }
    return strongroom_file_close(file) == STRONGROOM_OK ? NULL : "closing";
}

int main(int argc, char **argv)
{
    static char *names[] = {"ada", "bob", "cyd", "dan"};
    static const unsigned char bytes[32] = {1, 2, 3}; /* An example. Yours are random. */
    const strongroom_key key = {STRONGROOM_KEY_RAW, bytes, sizeof bytes};
    pthread_t threads[4];
    strongroom_stat stat;
    strongroom_file file;
    int wrong = 0;
    if (strongroom_create(argc > 1 ? argv[1] : "threads.strongroom", &key, NULL, &room) < 0) {
        fprintf(stderr, "%s\n", strongroom_last_error());
        return 1;
    }
    for (int i = 0; i < 4; i++) {
        wrong |= pthread_create(&threads[i], NULL, log_lines, names[i]);
    }
    for (int i = 0; i < 4; i++) {
        void *what;
        wrong |= pthread_join(threads[i], &what);
        wrong |= what != NULL;
    }
    wrong |= strongroom_get_stat(room, "/log", &stat) != STRONGROOM_OK;
    printf("%llu bytes of log\n", (unsigned long long)stat.size);

    /* A handle that was closed, one that never was, a path that is not there: errors, all of them. */
    wrong |= strongroom_file_open(room, "/log", STRONGROOM_READ, 0, &file) != STRONGROOM_OK;
    wrong |= strongroom_file_close(file) != STRONGROOM_OK;
    wrong |= strongroom_file_close(file) != STRONGROOM_CLOSED;
    wrong |= strongroom_file_read(4711, &stat, sizeof stat) != STRONGROOM_CLOSED;
    wrong |= strongroom_get_stat(room, "/missing", &stat) != STRONGROOM_NOT_FOUND;
    printf("%s\n", strongroom_last_error());

    /* Closed by the end of the program too, with all that was written; here the program sees whether it went well. */
    wrong |= strongroom_close(room) != STRONGROOM_OK;
    return wrong;
}
