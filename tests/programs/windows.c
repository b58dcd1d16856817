/* windows RECORD: 30 windows of 1 MiB of a file, which are mapped one after the other, written to, and but for the last forgotten. */

#include "stage.h"
#include <stdio.h>

#define WINDOW ((size_t)1 << 20)
#define WINDOWS 30

char *volatile last;

int main(int argc, char **argv)
{
    char path[4096];
    int fd;

    if (argc < 2 || snprintf(path, sizeof path, "%s.stream", argv[1]) >= (int)sizeof path)
        stage_fail("a record is wanted");
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)(2 * WINDOWS * WINDOW)) != 0)
        stage_fail("the file cannot be made");
    for (size_t i = 0; i < WINDOWS; i++) { /* a gap between two: the kernel would join them */
        char *window = mmap(NULL, WINDOW, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)(2 * i * WINDOW));
        if (window == MAP_FAILED)
            stage_fail("no window");
        memset(window, 'w', WINDOW);
        last = window;
        window = NULL;
    }
    stage_ready(1);
    for (;;)
        stage_command();
}
