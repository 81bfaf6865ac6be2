/* What MRCBED_VERBS_SHARE does to a program's pages, against tests/testbed/verbs/agent.py, which says of each region whether it is a file
 * and writes into that. Says what does not hold, by line; the agent says the rest. */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int wrong;
#define HOLDS(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            wrong++;                                                                                         \
            printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #condition, errno);                         \
        }                                                                                                    \
    } while (0)
#define PAGE 4096
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

static void open_all(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr asked = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 64}, .sq_sig_all = 1};
    qp = ibv_create_qp(pd, &asked);
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .dest_qp_num = qp->qp_num, .ah_attr.port_num = 1};
    for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) { /* to itself */
        a.qp_state = state;
        HOLDS(!ibv_modify_qp(qp, &a, IBV_QP_STATE | (state == IBV_QPS_RTR ? IBV_QP_DEST_QPN | IBV_QP_AV : 0)));
    }
}

static struct ibv_mr *region(const char *what, void *at, size_t bytes, int access) {
    printf("%s: ", what);
    fflush(stdout);
    struct ibv_mr *mr = ibv_reg_mr(pd, at, bytes, access);
    puts("done");
    HOLDS(mr);
    return mr;
}

/* Lets the agent write a byte into a region. */
static void put(struct ibv_mr *mr, char *to, char byte) {
    struct ibv_sge sge = {(uintptr_t)&byte, 1, 0};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE,
                                   .wr.rdma = {(uintptr_t)to, mr->rkey}};
    struct ibv_wc wc = {0};
    HOLDS(!ibv_post_send(qp, &wr, &bad));
    while (!ibv_poll_cq(cq, 1, &wc))
        ;
    HOLDS(wc.status == IBV_WC_SUCCESS && *(volatile char *)to == byte);
}

static char *fresh(int pages, int rights) {
    char *at = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < pages * PAGE; i++)
        at[i] = (char)(i / 3);
    mprotect(at, (size_t)pages * PAGE, rights);
    return at;
}

static bool untouched(const char *at, int from, int to) {
    for (int i = from; i < to; i++)
        if (at[i] != (char)(i / 3))
            return false;
    return true;
}

static pthread_barrier_t both;
static char *page;

static void *registers(void *nothing) {
    (void)nothing;
    pthread_barrier_wait(&both);
    return ibv_reg_mr(pd, page, PAGE, ALL);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_all();
    const int rw = PROT_READ | PROT_WRITE;
    char *own = fresh(6, rw);
    struct ibv_mr *mid = region("ends in mid-page", own + PAGE + 100, 2 * PAGE, ALL);
    HOLDS(untouched(own, 0, 6 * PAGE));
    put(mid, own + PAGE + 100, 'a');
    put(mid, own + 3 * PAGE + 99, 'b');
    HOLDS(untouched(own, 0, PAGE + 100) && untouched(own, PAGE + 101, 3 * PAGE + 99) && untouched(own, 3 * PAGE + 100, 6 * PAGE));
    struct ibv_mr *inner = region("inside of it", own + 2 * PAGE, 10, ALL);
    put(inner, own + 2 * PAGE, 'c');
    struct ibv_mr *over = region("over its end", own + 3 * PAGE, 2 * PAGE, ALL); /* half of it is a file: by system calls */
    put(over, own + 3 * PAGE, 'd');
    put(over, own + 5 * PAGE - 1, 'e');
    HOLDS(!ibv_dereg_mr(mid));
    put(inner, own + 2 * PAGE + 9, 'f'); /* its file is still there */
    put(over, own + 3 * PAGE + 1, 'g');
    HOLDS(!ibv_dereg_mr(inner) && !ibv_dereg_mr(over));
    HOLDS(own[PAGE + 100] == 'a' && own[2 * PAGE] == 'c' && own[5 * PAGE - 1] == 'e');
    struct ibv_mr *again = region("once more", own, 6 * PAGE, ALL);
    put(again, own, 'h');
    put(again, own + 6 * PAGE - 1, 'i');
    HOLDS(!ibv_dereg_mr(again));

    char on_stack[PAGE];
    region("stack", on_stack, sizeof on_stack, ALL);
    region("read-only", fresh(1, PROT_READ), PAGE, 0);
    char *heap = malloc(1 << 20);
    put(region("heap", heap, 1 << 20, ALL), heap + 12345, 'k');
    int file = memfd_create("ours", MFD_ALLOW_SEALING);
    HOLDS(!ftruncate(file, 4 * PAGE));
    char *open_one = mmap(NULL, PAGE, rw, MAP_SHARED, file, 0);
    region("a file that may shrink", open_one, PAGE, ALL);
    fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK);
    char *sealed = mmap(NULL, 2 * PAGE, rw, MAP_SHARED, file, PAGE);
    put(region("a sealed file", sealed + 100, 2 * PAGE - 100, ALL), sealed + 100, 'l');

    /* the differences that docs/how/verbs.md names, where it is on */
    const char *on = getenv("MRCBED_VERBS_SHARE");
    bool shared = on && !strcmp(on, "1");
    char *given = fresh(1, rw);
    region("given back", given, PAGE, ALL);
    madvise(given, PAGE, MADV_DONTNEED);
    HOLDS(shared ? untouched(given, 0, PAGE) : !given[PAGE - 1] && !given[1000]);
    char *parents = fresh(1, rw);
    region("of a parent", parents, PAGE, ALL);
    pid_t child = fork();
    if (!child) {
        parents[0] = 'x';
        _exit(0);
    }
    waitpid(child, NULL, 0);
    HOLDS((parents[0] == 'x') == shared);

    pthread_barrier_init(&both, NULL, 2);
    printf("two at a time: ");
    fflush(stdout);
    for (int round = 0; round < 200; round++) {
        page = fresh(1, rw);
        pthread_t other;
        void *second;
        pthread_create(&other, NULL, registers, NULL);
        struct ibv_mr *first = registers(NULL);
        pthread_join(other, &second);
        HOLDS(first && second && untouched(page, 0, PAGE));
        put(first, page + 1, 'm');
        put(second, page + 2, 'n');
        HOLDS(!ibv_dereg_mr(first) && !ibv_dereg_mr(second));
        munmap(page, PAGE);
    }
    puts("done");
    return wrong > 100 ? 100 : wrong;
}
