/* Starts programs by every function there is for that, and says what came of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char *const list[] = { "sh", "-c", "echo $0 $A", "started", NULL };
static char *const mine[] = { "A=mine", "PATH=/bin:/usr/bin", NULL };

static void wait_for(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    printf(" -> %d\n", status);
    fflush(stdout);
}

#define AFTER(how, call)                        \
    do {                                        \
        printf("%s, %s\n", #how, #call);        \
        fflush(stdout);                         \
        pid_t child = how();                    \
        if (child == 0) {                       \
            call;                               \
            _exit(errno);                       \
        }                                       \
        wait_for(child);                        \
    } while (0)

int main(void)
{
    setenv("A", "theirs", 1);
    AFTER(fork, execve("/bin/sh", list, mine));
    AFTER(vfork, execve("/bin/sh", list, mine));
    AFTER(vfork, execv("/bin/sh", list));
    AFTER(fork, execvp("sh", list));
    AFTER(fork, execvpe("sh", list, mine));
    AFTER(fork, fexecve(open("/bin/sh", O_RDONLY), list, mine));
    AFTER(vfork, execveat(AT_FDCWD, "/bin/sh", list, mine, 0));
    AFTER(fork, execl("/bin/sh", "sh", "-c", "echo $0 $A $1 $2 $3 $4 $5", "many", "1", "2", "3", "4", "5", NULL));
    AFTER(vfork, execlp("sh", "sh", "-c", "echo $0 $A", "few", NULL));
    AFTER(fork, execle("/bin/sh", "sh", "-c", "echo $0 $A $4", "own", "1", "2", "3", "four", NULL, mine));
    AFTER(fork, execve("/nonexistent", list, mine));
    AFTER(vfork, execlp("nonexistent-program", "x", NULL));
    AFTER(fork, execl("/etc/passwd", "x", NULL));
    errno = 0;
    printf("%d %d\n", execv("/nonexistent", list), errno);
    printf("%d %d\n", execl("/nonexistent", "x", NULL), errno);
    pid_t child = 0;
    printf("posix_spawn %d\n", posix_spawn(&child, "/bin/sh", NULL, NULL, list, mine));
    wait_for(child);
    printf("posix_spawnp %d\n", posix_spawnp(&child, "sh", NULL, NULL, list, environ));
    wait_for(child);
    printf("none %d\n", posix_spawn(&child, "/nonexistent", NULL, NULL, list, environ));
    fflush(stdout);
    printf("system %d %d\n", system("echo system $A; exit 3"), system(NULL) != 0);
    char line[64] = "";
    FILE *stream = popen("echo popen $A; exit 4", "r");
    fgets(line, sizeof line, stream);
    int status = pclose(stream);
    printf("%s%d\n", line, status);
    return 0;
}
