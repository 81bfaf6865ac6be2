/* Where the real library is, and the answer to programs that load libibverbs by its name. */
#include "mrcbed.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *(*dlopen_function)(const char *name, int mode);

static dlopen_function real_dlopen;

__attribute__((constructor)) static void find_dlopen(void) { real_dlopen = (dlopen_function)dlsym(RTLD_NEXT, "dlopen"); }

/* A function of the real library, which has an object that is not ours. */
void *real(const char *name, const char *version) {
    void *function = dlvsym(RTLD_NEXT, name, version);
    if (!function) { /* the program loaded it by name: it is in nobody's scope but that handle's */
        if (!real_dlopen)
            find_dlopen();
        void *handle = real_dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
        function = handle ? dlvsym(handle, name, version) : NULL;
    }
    if (!function) {
        fprintf(stderr, "mrcbed: %s was given an object that is neither mrcbed's nor of an installed libibverbs\n", name);
        abort();
    }
    return function;
}

static bool names_libibverbs(const char *path) {
    const char *slash = strrchr(path, '/');
    return !strncmp(slash ? slash + 1 : path, "libibverbs.so", sizeof "libibverbs.so" - 1);
}

static const char *own_path(void) {
    Dl_info self;
    return dladdr((void *)(uintptr_t)own_path, &self) ? self.dli_fname : NULL;
}

/* NCCL and others load libibverbs by name and look symbols up by handle: on an emulated host they get this library. Every other call goes on
 * as it came, by a jump (the compiler makes one of the last line, and a test sees to it): the loader looks at the return address to know
 * whose search path and namespace hold. */
PUBLIC __attribute__((optimize("O2"), no_sanitize("address", "undefined"))) void *dlopen(const char *path, int mode) {
    if (!real_dlopen)
        find_dlopen();
    if (path && names_libibverbs(path) && inside(NULL)) {
        const char *self = own_path();
        if (self)
            path = self;
    }
    return real_dlopen(path, mode);
}
