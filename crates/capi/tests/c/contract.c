/* Runs the contract that every binding keeps: contract CASES.tsv DIRECTORY [ID...]
 *
 * Each case runs in a process and an empty directory of its own, so that one that falls over is one that failed. Without ids also looks
 * that every id of CASES.tsv has a case here, and the other way round. Ends with 0 when nothing failed. */
#include "contract.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* No case waits longer: a hang is a failure. */
#define SECONDS_MAX 120

static const named *find(const named *in, const char *id)
{
    for (; in->id; in++) {
        if (strcmp(in->id, id) == 0) {
            return in;
        }
    }
    return NULL;
}

static int compare(const char *list)
{
    char line[1024];
    int wrong = 0, ids = 0, there = 0;
    FILE *f = fopen(list, "r");
    if (!f) {
        perror(list);
        return 1;
    }
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#' || line[0] == '\n') {
            continue;
        }
        line[strcspn(line, "\t\n")] = 0;
        ids++;
        if (!find(cases, line)) {
            printf("%s: no case of that name here\n", line);
            wrong++;
        }
    }
    fclose(f);
    while (cases[there].id) {
        there++;
    }
    if (wrong == 0 && ids != there) {
        printf("%s has %d cases, and here are %d\n", list, ids, there);
        wrong++;
    }
    return wrong;
}

static int run(const named *one, const char *directory)
{
    char dir[4096];
    int status;
    snprintf(dir, sizeof dir, "%s/%s", directory, one->id);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (mkdir(dir, 0700) != 0 || chdir(dir) != 0) {
            perror(dir);
            _exit(1);
        }
        alarm(SECONDS_MAX);
        execl("/proc/self/exe", "contract", "--case", one->id, (char *)NULL);
        _exit(126);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        perror(one->id);
        return 1;
    }
    if (WIFSIGNALED(status)) {
        printf("FAILED  %s: %s\n", one->id, WTERMSIG(status) == SIGALRM ? "it hangs" : strsignal(WTERMSIG(status)));
        return 1;
    }
    if (WEXITSTATUS(status) == 77) {
        printf("skipped %s\n", one->id);
        return 77;
    }
    if (WEXITSTATUS(status) != 0) {
        printf("FAILED  %s\n", one->id);
        return 1;
    }
    printf("ok      %s\n", one->id);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && (strcmp(argv[1], "--case") == 0 || strcmp(argv[1], "--child") == 0)) {
        const named *one = find(strcmp(argv[1], "--case") == 0 ? cases : children, argv[2]);
        if (!one) {
            return 126;
        }
        one->run();
        return 0;
    }
    if (argc < 3) {
        fprintf(stderr, "usage: contract CASES.tsv DIRECTORY [ID...]\n");
        return 2;
    }
    char seed[32], state[4096];
    snprintf(seed, sizeof seed, "%lld", (long long)time(NULL));
    setenv("CONTRACT_SEED", seed, 0);
    snprintf(state, sizeof state, "%s/state", argv[2]);
    setenv("XDG_STATE_HOME", state, 1);
    int passed = 0, failed = argc == 3 ? compare(argv[1]) : 0, skipped = 0;
    for (const named *one = cases; one->id; one++) {
        bool wanted = argc == 3;
        for (int i = 3; i < argc; i++) {
            wanted |= strcmp(argv[i], one->id) == 0;
        }
        if (wanted) {
            switch (run(one, argv[2])) {
            case 0: passed++; break;
            case 77: skipped++; break;
            default: failed++;
            }
        }
    }
    printf("C contract: %d passed, %d failed, %d skipped; Strongroom %s, seed %s\n", passed, failed, skipped, strongroom_version(),
           getenv("CONTRACT_SEED"));
    return failed || passed == 0;
}
