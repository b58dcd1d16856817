/* fuse_mapped RECORD FOLDER: a file of a FUSE file system, mounted on FOLDER in a mount namespace of its own, is mapped and listed in the link
   map; its server, a child, never answers a read of it. RECORD counts the reads that were asked for. It starts as root, which becomes user
   1000. The server ends with the program, and after some minutes: then whoever waits for it is let go. */

#define _GNU_SOURCE
#include "stage.h"

#include <errno.h>
#include <link.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { USER = 1000, FILE_BYTES = 1 << 20, NODE = 2 };

static int fuse = -1, record = -1;
static char path[4096];

static void reply(uint64_t unique, int error, const void *data, size_t size)
{
    char buffer[4096];
    const struct fuse_out_header head = {(uint32_t) (sizeof head + size), error, unique};
    memcpy(buffer, &head, sizeof head);
    if (size)
        memcpy(buffer + sizeof head, data, size);
    if (write(fuse, buffer, sizeof head + size) < 0 && errno != ENOENT)
        stage_fail("cannot reply");
}

static struct fuse_attr attributes(uint64_t node)
{
    const int is_file = node == NODE;
    return (struct fuse_attr) {.ino = node, .size = is_file ? FILE_BYTES : 0, .mode = is_file ? S_IFREG | 0755 : S_IFDIR | 0755,
                               .nlink = 1, .uid = USER, .gid = USER, .blksize = 4096};
}

static void serve(void)
{
    static char request[1 << 20];
    static uint64_t reads;
    for (;;) {
        const ssize_t got = read(fuse, request, sizeof request);
        const struct fuse_in_header *head = (const struct fuse_in_header *) request;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return;
        const struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = 4096};
        const struct fuse_entry_out entry = {.nodeid = NODE, .entry_valid = 1000, .attr_valid = 1000, .attr = attributes(NODE)};
        const struct fuse_attr_out attr = {.attr_valid = 1000, .attr = attributes(head->nodeid)};
        const struct fuse_open_out opened = {.fh = 1};
        switch (head->opcode) {
        case FUSE_INIT: reply(head->unique, 0, &init, sizeof init); break;
        case FUSE_LOOKUP: reply(head->unique, 0, &entry, sizeof entry); break;
        case FUSE_GETATTR: reply(head->unique, 0, &attr, sizeof attr); break;
        case FUSE_OPEN: reply(head->unique, 0, &opened, sizeof opened); break;
        case FUSE_READ:
            reads++;
            if (pwrite(record, &reads, sizeof reads, 0) < 0)
                return;
            break;
        case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: break;
        default: reply(head->unique, -ENOSYS, NULL, 0);
        }
    }
}

int main(int argc, char **argv)
{
    char options[100];
    static struct link_map planted;
    if (argc != 3)
        stage_fail("usage: fuse_mapped RECORD FOLDER");
    record = open(argv[1], O_WRONLY | O_CREAT, 0644);
    fuse = open("/dev/fuse", O_RDWR);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%d,group_id=%d", fuse, USER, USER);
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || chmod(argv[2], 0755)
            || mount("test", argv[2], "fuse", MS_NOSUID | MS_NODEV, options)) {
        printf("no mount\n");
        fflush(stdout);
        return 0;
    }
    snprintf(path, sizeof path, "%s/file", argv[2]);
    const int folder = open(argv[2], O_PATH);   /* user 1000 may not get there */
    if (setgid(USER) || setuid(USER))
        stage_fail("cannot become user 1000");
    if (!fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(300);
        serve();
        _exit(0);
    }
    close(fuse);
    const int file = openat(folder, "file", O_RDONLY);
    char *mapped = file < 0 ? MAP_FAILED : mmap(NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED)
        stage_fail("cannot map the file");
    struct link_map *last = _r_debug.r_map;
    while (last->l_next)
        last = last->l_next;
    planted = (struct link_map) {.l_addr = (ElfW(Addr)) mapped, .l_name = path, .l_ld = (ElfW(Dyn) *) (mapped + 0x3000), .l_prev = last};
    last->l_next = &planted;
    for (int i = 0; i < 100; i++)
        free(malloc(100));
    printf("mounted\n");
    fflush(stdout);
    for (;;)
        pause();
}
