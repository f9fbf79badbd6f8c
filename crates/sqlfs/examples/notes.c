/* A program of libsqlfs, on a room: notes DIRECTORY
 *
 *     cc notes.c $(pkg-config --cflags --libs sqlfs) -o notes && ./notes notes.strongroom
 *
 * The source is what it was for libsqlfs; only what it calls a database file is now the directory of a room.
 */
#include <stdio.h>
#include <string.h>

#include <sqlfs.h>

/* Says why, for people. sqlfs_last_error is the one function that libsqlfs does not have. */
static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, sqlfs_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    const char *container = argc > 1 ? argv[1] : "notes.strongroom";
    const char *note = "Remember the milk.\n";
    struct fuse_file_info fi = {0};
    char read[100];
    sqlfs_t *fs;

    /* Creates the room the first time. 1 is success: functions of this group return what libsqlfs's do. */
    if (sqlfs_open_password(container, "correct horse", &fs) != 1) {
        return failed(container);
    }

    /* Both files are there after a crash, or neither is. Here 0 or a count is success, and below 0 an error number. */
    sqlfs_begin_transaction(fs);
    if (sqlfs_proc_mkdir(fs, "/notes", 0700) < 0 && errno != EEXIST) {
        return failed("/notes");
    }
    if (sqlfs_proc_write(fs, "/notes/monday", note, strlen(note), 0, &fi) < 0 ||
        sqlfs_proc_write(fs, "/index", "monday\n", 7, 0, &fi) < 0) {
        return failed("writing");
    }
    sqlfs_complete_transaction(fs, 1);

    int n = sqlfs_proc_read(fs, "/notes/monday", read, sizeof read, 0, &fi);
    if (n < 0) {
        return failed("/notes/monday");
    }
    printf("%.*s", n, read);
    /* Commits what is left. */
    return sqlfs_close(fs) == 1 ? 0 : failed("closing");
}
