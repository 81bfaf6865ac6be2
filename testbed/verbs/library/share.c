/* Memory that the agent may map instead of reading and writing it by system calls: files of memory (memfd_create) which are sealed against
 * shrinking, so that no access of the agent can fall beyond their end.
 *
 * By default those alone that the program itself mapped as shared. With MRCBED_VERBS_SHARE=1 a region's private pages are replaced by such a
 * file in place. That is not the default, for what a program may notice: madvise(MADV_DONTNEED) no longer gives zeros, on which allocators
 * rely; a forked child's writes to these pages are seen by its parent; and what another thread writes to them during the exchange, be it to
 * a neighbour on the same page, is lost. */
#include "mrcbed.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define OUR_FILE "mrcbed-region"

/* A line of /proc/self/maps. */
struct mapping {
    uint64_t from, to, offset, inode;
    char rights[5];
    unsigned major, minor;
    char name[64];
};

static bool next_mapping(FILE *maps, struct mapping *mapping) {
    mapping->name[0] = 0;
    int fields = fscanf(maps, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 "%*[ ]%63[^\n]", &mapping->from, &mapping->to,
                        mapping->rights, &mapping->offset, &mapping->major, &mapping->minor, &mapping->inode, mapping->name);
    for (int rest = 0; rest != '\n' && rest != EOF;)
        rest = getc(maps);
    return fields >= 7;
}

/* A descriptor of this process, duplicated, of the file that a mapping shows, open for reading and writing and sealed against shrinking;
 * or -1. */
static int descriptor_of(const struct mapping *mapping) {
    int found = -1;
    struct dirent *entry;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && found < 0 && (entry = readdir(folder))) {
        char *end;
        int descriptor = (int)strtol(entry->d_name, &end, 10);
        struct stat file;
        if (*end || end == entry->d_name || fstat(descriptor, &file) || file.st_ino != mapping->inode)
            continue;
        if (major(file.st_dev) != mapping->major || minor(file.st_dev) != mapping->minor)
            continue;
        int seals = fcntl(descriptor, F_GET_SEALS), mode = fcntl(descriptor, F_GETFL);
        if (seals >= 0 && seals & F_SEAL_SHRINK && (mode & O_ACCMODE) == O_RDWR)
            found = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    }
    if (folder)
        closedir(folder);
    return found;
}

/* --- on request: private pages become shared ones --- */

static bool is_our_file(const struct mapping *mapping) {
    return !strncmp(mapping->name, "/memfd:" OUR_FILE, sizeof "/memfd:" OUR_FILE - 1);
}

static bool replaceable(const struct mapping *mapping) {
    uintptr_t here = (uintptr_t)&mapping; /* not the stack that this runs on: what is written to it during the exchange would be lost */
    if ((here >= mapping->from && here < mapping->to) || !strcmp(mapping->name, "[stack]") || strncmp(mapping->rights, "rw-", 3))
        return false;
    if (mapping->rights[3] == 'p')
        return !mapping->inode;
    if (!is_our_file(mapping))
        return false;
    int used = descriptor_of(mapping); /* ours of a region that is over: its file has no descriptor any more, so it may be copied anew */
    if (used >= 0)
        close(used);
    return used < 0;
}

static bool all_replaceable(uint64_t from, uint64_t to) {
    FILE *maps = fopen("/proc/self/maps", "re");
    struct mapping mapping;
    while (maps && from < to && next_mapping(maps, &mapping))
        if (mapping.to > from) {
            if (mapping.from > from || !replaceable(&mapping))
                break;
            from = mapping.to;
        }
    if (maps)
        fclose(maps);
    return from >= to;
}

static bool copied(int file, uint64_t from, uint64_t to) {
    for (uint64_t at = from; at < to;) {
        ssize_t written = pwrite(file, (void *)(uintptr_t)at, to - at, (off_t)(at - from));
        if (written <= 0)
            return false;
        at += (uint64_t)written;
    }
    return true;
}

/* Replaces pages in place; returns their file's descriptor, or -1 with nothing changed. */
static int replace(uint64_t from, uint64_t to) {
    if (!all_replaceable(from, to))
        return -1;
    int file = memfd_create(OUR_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return -1;
    if (!ftruncate(file, (off_t)(to - from)) && !fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) && copied(file, from, to) &&
        mmap((void *)(uintptr_t)from, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED)
        return file;
    close(file);
    return -1;
}

/* Two threads that register the same pages would replace them twice, and the first one's region would be a file that nobody sees. */
static pthread_mutex_t replacing = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) { pthread_mutex_lock(&replacing); }
static void after_fork(void) { pthread_mutex_unlock(&replacing); }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

/* Returns a descriptor to hand to the agent, and where in its file the region begins; or -1: the agent reads and writes by system calls.
 * `*replaced` becomes that descriptor where its file stands in for private pages: it must stay open as long as the region, so that later
 * ones which overlap find it. */
static int find_or_replace(void *address, size_t bytes, uint64_t *offset, int *replaced) {
    uint64_t from = (uintptr_t)address, to = from + bytes;
    struct mapping mapping;
    int descriptor = -1;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && descriptor < 0 && next_mapping(maps, &mapping))
        if (mapping.from <= from && mapping.to >= to && mapping.rights[3] == 's' && mapping.inode)
            descriptor = descriptor_of(&mapping);
    if (maps)
        fclose(maps);
    if (descriptor >= 0) {
        *offset = mapping.offset + (from - mapping.from);
        if (is_our_file(&mapping))
            *replaced = descriptor;
        return descriptor;
    }
    const char *wanted = getenv("MRCBED_VERBS_SHARE");
    if (!wanted || strcmp(wanted, "1"))
        return -1;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = from & ~(page - 1);
    *replaced = replace(first, (to + page - 1) & ~(page - 1));
    *offset = from - first;
    return *replaced;
}

int share_of(void *address, size_t bytes, uint64_t *offset, int *replaced) {
    pthread_mutex_lock(&replacing);
    int descriptor = find_or_replace(address, bytes, offset, replaced);
    pthread_mutex_unlock(&replacing);
    return descriptor;
}
