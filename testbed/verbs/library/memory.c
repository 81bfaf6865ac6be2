/* Protection domains and memory regions. */
#include "mrcbed.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    PASS(context, "IBVERBS_1.1", ibv_alloc_pd, context);
    struct answer answer;
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    if (!pd)
        return NULL;
    int error = ask(session_of(context), MRCBED_ALLOC_PD, NULL, 0, -1, &answer, NULL, 0);
    if (error) {
        free(pd);
        errno = error;
        return NULL;
    }
    *pd = (struct ibv_pd){.context = context, .handle = (uint32_t)answer.results[0]};
    return pd;
}
BOTH(ibv_alloc_pd);

PUBLIC int ibv_dealloc_pd(struct ibv_pd *pd) {
    PASS(pd->context, "IBVERBS_1.1", ibv_dealloc_pd, pd);
    int error = destroy(session_of(pd->context), MRCBED_DEALLOC_PD, pd->handle);
    if (!error)
        free(pd);
    return error;
}
BOTH(ibv_dealloc_pd);

/* A NIC pins a region's pages when it is registered; here they are touched, so that a bad range is refused as it would be there. */
static int touch(void *address, size_t bytes, bool writable) {
#ifdef MADV_POPULATE_WRITE
    static char own;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)address & ~(page - 1);
    uintptr_t end = ((uintptr_t)address + bytes + page - 1) & ~(page - 1);
    if (end < first)
        return EFAULT;
    if (!madvise((void *)first, end - first, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
        return 0;
    if (errno == EINVAL && madvise((void *)((uintptr_t)&own & ~(page - 1)), page, MADV_POPULATE_READ))
        return 0; /* a kernel before 5.14 knows neither */
    return EFAULT; /* unmapped, or without the rights, or of a device: what pinning answers */
#else
    (void)address, (void)bytes, (void)writable;
    return 0;
#endif
}

static int check_region(uint64_t address, uint64_t bytes, uint64_t iova, unsigned access) {
    const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    const unsigned lacking = IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
    if (!bytes || address + bytes < address || iova + bytes < iova)
        return EINVAL;
    if (access & lacking)
        return EOPNOTSUPP;
    if (access & ~(known | IBV_ACCESS_OPTIONAL_RANGE)) /* optional ones, as relaxed ordering, may be ignored */
        return EINVAL;
    if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE))
        return EINVAL;
    return 0;
}

static int register_at_agent(struct mr *mr, uint64_t iova, unsigned access) {
    struct session *session = session_of(mr->public.context);
    struct answer answer;
    uint64_t offset = 0;
    int memory = share_of(mr->public.addr, mr->public.length, &offset, &mr->shared);
    uint64_t arguments[] = {mr->public.pd->handle, (uintptr_t)mr->public.addr, mr->public.length, iova, access, offset, memory >= 0};
    const unsigned count = sizeof arguments / sizeof *arguments;
    int error = ask(session, MRCBED_REG_MR, arguments, count, memory, &answer, NULL, 0);
    if (error == EINVAL && memory >= 0) { /* the agent would not map it (sealed against writing, say): it can still read and write */
        arguments[count - 2] = arguments[count - 1] = 0;
        error = ask(session, MRCBED_REG_MR, arguments, count, -1, &answer, NULL, 0);
    }
    if (memory >= 0 && memory != mr->shared)
        close(memory);
    if (error)
        return error;
    mr->public.handle = (uint32_t)answer.results[0];
    mr->public.lkey = (uint32_t)answer.results[1];
    mr->public.rkey = (uint32_t)answer.results[2];
    return 0;
}

static void free_mr(struct mr *mr) {
    if (mr->shared >= 0)
        close(mr->shared);
    free(mr);
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, unsigned access) {
    PASS(pd->context, "IBVERBS_1.8", ibv_reg_mr_iova2, pd, address, bytes, iova, access);
    struct session *session = session_of(pd->context);
    int error = gone(session) ? EIO : check_region((uintptr_t)address, bytes, iova, access);
    if (!error && bytes > session->limits.mr_bytes)
        error = ENOMEM;
    if (!error)
        error = touch(address, bytes, access & IBV_ACCESS_LOCAL_WRITE);
    struct mr *mr = error ? NULL : calloc(1, sizeof *mr);
    if (mr) {
        *mr = (struct mr){.public = {.context = pd->context, .pd = pd, .addr = address, .length = bytes}, .shared = -1};
        error = register_at_agent(mr, iova, access);
        if (!error)
            return &mr->public;
        free_mr(mr);
    }
    errno = error ? error : ENOMEM;
    return NULL;
}

PUBLIC struct ibv_mr *(ibv_reg_mr)(struct ibv_pd *pd, void *address, size_t bytes, int access) {
    PASS(pd->context, "IBVERBS_1.1", ibv_reg_mr, pd, address, bytes, access);
    return ibv_reg_mr_iova2(pd, address, bytes, (uintptr_t)address, (unsigned)access);
}
BOTH(ibv_reg_mr);

PUBLIC struct ibv_mr *(ibv_reg_mr_iova)(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, int access) {
    PASS(pd->context, "IBVERBS_1.7", ibv_reg_mr_iova, pd, address, bytes, iova, access);
    return ibv_reg_mr_iova2(pd, address, bytes, iova, (unsigned)access);
}

PUBLIC int ibv_dereg_mr(struct ibv_mr *mr) {
    PASS(mr->context, "IBVERBS_1.1", ibv_dereg_mr, mr);
    int error = destroy(session_of(mr->context), MRCBED_DEREG_MR, mr->handle);
    if (!error)
        free_mr((struct mr *)mr);
    return error;
}
BOTH(ibv_dereg_mr);
