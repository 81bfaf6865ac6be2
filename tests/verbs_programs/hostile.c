/* Programs that treat their NIC badly, and one that is beside them: tests/emulated/test_verbs_hostile.py.
 *
 *     hostile serve PORT              a peer: a child for each connection, which does what the other end says
 *     hostile WAY ADDRESS PORT        treats its own queue pairs badly, which lead to that peer
 *     hostile victim ADDRESS PORT     writes, and checks each byte there, until its input ends
 *
 * Each says one line: what it is, and "well", or what did not hold. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define CANARY 0x5a
#define PEER_BYTES (256u << 10) /* of the peer's region, which begins and ends in mid-page */
#define OFFSET 100u
#define WRITABLE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define SECONDS 50 /* after which whatever is waited for does not come */

static const char *way;

__attribute__((format(printf, 2, 3), noreturn)) static void end(int status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    printf("%s: ", way);
    vprintf(format, list);
    printf("\n");
    fflush(stdout);
    _exit(status);
}
#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        errno = 0;                                                                                           \
        if (!(condition))                                                                                    \
            end(1, "line %d: %s (%s)", __LINE__, #condition, strerror(errno));                               \
    } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- the two ends of a connection --- */

/* What the peer says of a queue pair of its own, and hears of ours. */
struct card {
    uint32_t qpn, rkey;
    uint64_t address;
    union ibv_gid gid;
};

struct end {
    int control;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char *memory; /* a page of canaries, the region, and a page of canaries */
    size_t bytes;
    struct ibv_qp *qp; /* the latest */
    struct card peer;
};

static void say(int to, const void *data, size_t bytes) { MUST(send(to, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes); }
static void hear(int from, void *data, size_t bytes) { MUST(recv(from, data, bytes, MSG_WAITALL) == (ssize_t)bytes); }

static char *region(struct end *e) { return e->memory + PAGE + OFFSET; }

static bool whole(struct end *e) {
    const size_t last = PAGE + OFFSET + e->bytes, all = e->bytes + 3 * PAGE;
    for (size_t i = 0; i < all; i++)
        if ((i < PAGE + OFFSET || i >= last) && e->memory[i] != CANARY)
            return false;
    return true;
}

static void set_up(struct end *e, size_t bytes, int cqes) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    MUST(list && list[0]);
    e->context = ibv_open_device(list[0]);
    MUST(e->context);
    ibv_free_device_list(list);
    MUST((e->pd = ibv_alloc_pd(e->context)));
    MUST((e->cq = ibv_create_cq(e->context, cqes, NULL, NULL, 0)));
    e->bytes = bytes;
    e->memory = mmap(NULL, bytes + 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(e->memory, CANARY, bytes + 3 * PAGE);
    memset(region(e), 0, bytes);
    MUST((e->mr = ibv_reg_mr(e->pd, region(e), bytes, WRITABLE)));
}

static struct ibv_qp *make(struct end *e, uint32_t sends) {
    struct ibv_qp_init_attr asked = {.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .cap = {sends, 4, 16, 1, 64}};
    return ibv_create_qp(e->pd, &asked);
}

static void to_rts(struct end *e, struct ibv_qp *qp, const struct card *peer, unsigned access) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
    MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    struct ibv_port_attr port;
    MUST(!ibv_query_port(e->context, 1, &port));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = peer->qpn,
                             .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}}};
    MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                    IBV_QP_MIN_RNR_TIMER));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct card card_of(struct end *e, struct ibv_qp *qp) {
    struct card own = {.qpn = qp->qp_num, .rkey = e->mr->rkey, .address = (uintptr_t)region(e)};
    MUST(!ibv_query_gid(e->context, 1, 0, &own.gid));
    return own;
}

/* --- the peer: 'q' and a card: a queue pair for it; 'c': are the canaries whole; 'b': the region's bytes; 'k': kill yourself;
 * 'u': unmap the region --- */

static void serve_one(int control) {
    struct end e = {.control = control};
    char what;
    set_up(&e, PEER_BYTES, 1 << 12);
    while (recv(control, &what, 1, 0) == 1)
        if (what == 'q') {
            struct card other, own;
            hear(control, &other, sizeof other);
            struct ibv_qp *qp = make(&e, 4);
            MUST(qp);
            to_rts(&e, qp, &other, IBV_ACCESS_REMOTE_WRITE);
            own = card_of(&e, qp);
            say(control, &own, sizeof own);
        } else if (what == 'c') {
            say(control, whole(&e) ? "w" : "b", 1);
        } else if (what == 'b') {
            say(control, region(&e), e.bytes);
        } else if (what == 'k') {
            raise(SIGKILL);
        } else if (what == 'u') {
            munmap(e.memory + PAGE, e.bytes + PAGE);
            say(control, "u", 1);
        }
    _exit(0);
}

static void serve(int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    MUST(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 8));
    signal(SIGCHLD, SIG_IGN);
    printf("serve: listens\n");
    fflush(stdout);
    for (;;) {
        int control = accept(listener, NULL, NULL);
        if (control >= 0 && !fork())
            serve_one(control);
        close(control);
    }
}

static struct end reach(const char *address, int port, int cqes) {
    struct end e = {.control = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, address, &to.sin_addr);
    MUST(!connect(e.control, (struct sockaddr *)&to, sizeof to));
    set_up(&e, PEER_BYTES, cqes);
    return e;
}

/* A queue pair to the peer. */
static struct ibv_qp *pair(struct end *e, uint32_t sends) {
    e->qp = make(e, sends);
    MUST(e->qp);
    struct card own = card_of(e, e->qp);
    say(e->control, "q", 1);
    say(e->control, &own, sizeof own);
    hear(e->control, &e->peer, sizeof e->peer);
    to_rts(e, e->qp, &e->peer, 0);
    return e->qp;
}

static int write_to(struct end *e, uint64_t id, struct ibv_sge *sges, int count, uint64_t remote, uint32_t rkey, unsigned flags) {
    struct ibv_send_wr *bad, wr = {.wr_id = id, .sg_list = sges, .num_sge = count, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags,
                                   .wr.rdma = {.remote_addr = remote, .rkey = rkey}};
    return ibv_post_send(e->qp, &wr, &bad);
}

static int write_all(struct end *e, uint64_t id) {
    struct ibv_sge sge = {(uintptr_t)region(e), (uint32_t)e->bytes, e->mr->lkey};
    return write_to(e, id, &sge, 1, e->peer.address, e->peer.rkey, IBV_SEND_SIGNALED);
}

static enum ibv_wc_status next(struct end *e) {
    struct ibv_wc wc;
    double begun = now();
    int got;
    while (!(got = ibv_poll_cq(e->cq, 1, &wc)))
        if (now() - begun > SECONDS)
            end(2, "no completion within %d s", SECONDS);
    MUST(got == 1);
    return wc.status;
}

static void check(struct end *e) {
    char is;
    say(e->control, "c", 1);
    hear(e->control, &is, 1);
    MUST(is == 'w');
    MUST(whole(e));
}

/* The NIC still works for this program. */
static void works(struct end *e) {
    pair(e, 4);
    struct ibv_sge sge = {(uintptr_t)region(e), 1000, e->mr->lkey};
    MUST(!write_to(e, 1, &sge, 1, e->peer.address, e->peer.rkey, IBV_SEND_SIGNALED) && next(e) == IBV_WC_SUCCESS);
    check(e);
}

/* --- ways to be hostile --- */

#define MANY 4096u

static void overrun(struct end *e) { /* five slots a request: twice the work ring, posted at once */
    struct ibv_sge sges[16];
    for (int i = 0; i < 16; i++)
        sges[i] = (struct ibv_sge){(uintptr_t)region(e) + (unsigned)i, 1, e->mr->lkey};
    pair(e, MANY);
    for (uint64_t i = 0; i < MANY; i++)
        MUST(!write_to(e, i, sges, 16, e->peer.address, e->peer.rkey, i == MANY - 1 ? IBV_SEND_SIGNALED : 0));
    MUST(write_to(e, MANY, sges, 16, e->peer.address, e->peer.rkey, IBV_SEND_SIGNALED) == ENOMEM);
    MUST(write_to(e, MANY, sges, 17, e->peer.address, e->peer.rkey, 0) == EINVAL);
    MUST(next(e) == IBV_WC_SUCCESS);
}

#define THREADS_DO 500
static atomic_int completed, posted;
static struct end *shared;

static void *posts_and_polls(void *nothing) {
    struct ibv_sge sge = {(uintptr_t)region(shared), 64, shared->mr->lkey};
    struct ibv_wc wc;
    double begun = now();
    while (atomic_load(&completed) < THREADS_DO) {
        if (atomic_fetch_add(&posted, 1) < THREADS_DO)
            while (write_to(shared, 1, &sge, 1, shared->peer.address, shared->peer.rkey, IBV_SEND_SIGNALED)) { /* it is full */
                MUST(now() - begun < SECONDS);
                atomic_fetch_add(&completed, ibv_poll_cq(shared->cq, 1, &wc));
            }
        int got = ibv_poll_cq(shared->cq, 1, &wc);
        MUST(got >= 0 && (!got || wc.status == IBV_WC_SUCCESS) && now() - begun < SECONDS);
        atomic_fetch_add(&completed, got);
    }
    return nothing;
}

static void threads(struct end *e) {
    pthread_t two[2];
    shared = e;
    pair(e, 32);
    for (int i = 0; i < 2; i++)
        pthread_create(&two[i], NULL, posts_and_polls, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(two[i], NULL);
    MUST(completed == THREADS_DO);
}

/* Posts from a region of its own, and takes it away; what is not done then fails, and so do the others. */
static void taken_away(struct end *e, void (*takes)(char *, struct ibv_mr *)) {
    char *memory = mmap(NULL, PEER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 7, PEER_BYTES);
    struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, PEER_BYTES, WRITABLE);
    struct ibv_sge sge = {(uintptr_t)memory, PEER_BYTES, mr->lkey};
    pair(e, 8);
    for (unsigned i = 0; i < 4; i++)
        MUST(!write_to(e, i, &sge, 1, e->peer.address, e->peer.rkey, IBV_SEND_SIGNALED));
    takes(memory, mr);
    enum ibv_wc_status status[4];
    for (int i = 0; i < 4; i++)
        status[i] = next(e);
    int i = 0;
    while (i < 4 && status[i] == IBV_WC_SUCCESS)
        i++;
    MUST(i < 4 && status[i] == IBV_WC_LOC_PROT_ERR);
    while (++i < 4)
        MUST(status[i] == IBV_WC_WR_FLUSH_ERR);
}

static void deregisters(char *memory, struct ibv_mr *mr) {
    MUST(!ibv_dereg_mr(mr) && !munmap(memory, PEER_BYTES));
}
static void unmaps(char *memory, struct ibv_mr *mr) {
    (void)mr;
    MUST(!munmap(memory, PEER_BYTES));
}
static void deregister(struct end *e) { taken_away(e, deregisters); }
static void unmap(struct end *e) { taken_away(e, unmaps); }

static void gives_back(struct end *e) { /* MADV_DONTNEED on what is sent, and on what the agent has just read: zeros may go, nothing else */
    pair(e, 8);
    char *pages = mmap(NULL, PEER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *seen = malloc(PEER_BYTES);
    memset(pages, 9, PEER_BYTES);
    struct ibv_mr *mr = ibv_reg_mr(e->pd, pages, PEER_BYTES, WRITABLE);
    struct ibv_sge sge = {(uintptr_t)pages, PEER_BYTES, mr->lkey};
    MUST(!write_to(e, 1, &sge, 1, e->peer.address, e->peer.rkey, IBV_SEND_SIGNALED));
    MUST(!madvise(pages, PEER_BYTES, MADV_DONTNEED) && next(e) == IBV_WC_SUCCESS);
    say(e->control, "b", 1);
    hear(e->control, seen, PEER_BYTES);
    for (size_t i = 0; i < PEER_BYTES; i++)
        MUST(seen[i] == 0 || seen[i] == 9);
}

static void truncates(struct end *e) { /* a file that the program maps as shared, cut short: touching it would be a SIGBUS */
    pair(e, 8);
    int file = memfd_create("short", 0);
    MUST(!ftruncate(file, PEER_BYTES));
    char *pages = mmap(NULL, PEER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct ibv_mr *mr = ibv_reg_mr(e->pd, pages, PEER_BYTES, WRITABLE);
    struct ibv_sge sge = {(uintptr_t)pages, PEER_BYTES, mr->lkey};
    for (unsigned i = 0; i < 4; i++)
        MUST(!write_to(e, i, &sge, 1, e->peer.address, e->peer.rkey, IBV_SEND_SIGNALED));
    MUST(!ftruncate(file, 0));
    enum ibv_wc_status last = IBV_WC_SUCCESS;
    for (int i = 0; i < 4; i++) {
        enum ibv_wc_status status = next(e);
        MUST(status == IBV_WC_SUCCESS || status == (last == IBV_WC_SUCCESS ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR));
        last = status;
    }
    MUST(last != IBV_WC_SUCCESS);
}

static void forks(struct end *e) { /* the child tries all that it has inherited; what was on its way arrives */
    pair(e, 8);
    MUST(!write_all(e, 1) && !write_all(e, 2));
    pid_t child = fork();
    if (!child) {
        struct ibv_wc wc;
        struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
        bool refused = write_all(e, 3) == EIO && ibv_poll_cq(e->cq, 1, &wc) == -1 && ibv_modify_qp(e->qp, &a, IBV_QP_STATE) == EIO;
        refused &= ibv_dereg_mr(e->mr) == EIO && ibv_destroy_qp(e->qp) == EIO && ibv_destroy_cq(e->cq) == EIO;
        refused &= ibv_close_device(e->context) == EIO && !ibv_reg_mr(e->pd, e->memory, 8, 0);
        memset(e->memory, 3, e->bytes + 3 * PAGE);
        _exit(refused ? 0 : 1);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(next(e) == IBV_WC_SUCCESS && next(e) == IBV_WC_SUCCESS && !write_all(e, 4) && next(e) == IBV_WC_SUCCESS);
}

static void executes(struct end *e) {
    pair(e, 8);
    for (unsigned i = 0; i < 8; i++)
        MUST(!write_all(e, i));
    execlp("echo", "echo", "execute: well", NULL);
    end(1, "no echo");
}

static void exits(struct end *e) {
    pair(e, 8);
    for (unsigned i = 0; i < 8; i++)
        MUST(!write_all(e, i));
    end(0, "well");
}

static void is_killed(struct end *e) {
    pair(e, 8);
    for (unsigned i = 0; i < 8; i++)
        MUST(!write_all(e, i));
    printf("%s: well\n", way);
    fflush(stdout);
    raise(SIGKILL);
}

static const char *address_of_peer;
static int port_of_peer;

static void loses_its_peer(struct end *e) { /* the NIC gives up after 18 ms of the network, minutes here: this program does so before */
    char nothing;
    pair(e, 16);
    for (unsigned i = 0; i < 8; i++)
        MUST(!write_all(e, i));
    say(e->control, "k", 1);
    MUST(recv(e->control, &nothing, 1, 0) == 0);
    for (unsigned i = 0; i < 8; i++)
        MUST(!write_all(e, i));
    struct ibv_wc wc[16];
    int got = ibv_poll_cq(e->cq, 16, wc);
    for (int i = 0; i < got; i++)
        MUST(wc[i].status == IBV_WC_SUCCESS || wc[i].status == IBV_WC_REM_ACCESS_ERR || wc[i].status == IBV_WC_WR_FLUSH_ERR);
    MUST(got >= 0 && got < 16 && !ibv_destroy_qp(e->qp) && !ibv_poll_cq(e->cq, 16, wc) && whole(e));
    close(e->control);
    *e = reach(address_of_peer, port_of_peer, 1 << 12);
}

static void loses_its_target(struct end *e) { /* the peer has unmapped what it registered */
    char is;
    pair(e, 16);
    for (unsigned i = 0; i < 4; i++)
        MUST(!write_all(e, i));
    say(e->control, "u", 1);
    hear(e->control, &is, 1);
    enum ibv_wc_status last = IBV_WC_SUCCESS;
    for (int i = 0; i < 4; i++) {
        enum ibv_wc_status status = next(e);
        MUST(status == IBV_WC_SUCCESS || status == (last == IBV_WC_SUCCESS ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR));
        last = status;
    }
    MUST(last != IBV_WC_SUCCESS && whole(e));
    close(e->control);
    *e = reach(address_of_peer, port_of_peer, 1 << 12);
}

static void many(struct end *e) { /* regions that overlap and end in mid-page, and queue pairs */
    static struct ibv_mr *regions[10000];
    static struct ibv_qp *pairs[1000];
    for (unsigned i = 0; i < 10000; i++)
        MUST((regions[i] = ibv_reg_mr(e->pd, region(e) + i, 1 + i * 17 % (e->bytes - i), WRITABLE)));
    for (unsigned i = 0; i < 1000; i++)
        MUST((pairs[i] = make(e, 8)));
    for (unsigned i = 0; i < 1000; i += 100) {
        struct card self = card_of(e, pairs[i]); /* to itself, on this host */
        to_rts(e, pairs[i], &self, IBV_ACCESS_REMOTE_WRITE);
        e->qp = pairs[i];
        struct ibv_mr *from = regions[i * 10], *to = regions[9999 - i];
        struct ibv_sge sge = {(uintptr_t)from->addr, 1, from->lkey};
        MUST(!write_to(e, i, &sge, 1, (uintptr_t)to->addr + to->length - 1, to->rkey, IBV_SEND_SIGNALED) && next(e) == IBV_WC_SUCCESS);
    }
    for (unsigned i = 0; i < 10000; i += 2)
        MUST(!ibv_dereg_mr(regions[i]));
    for (unsigned i = 0; i < 1000; i += 2)
        MUST(!ibv_destroy_qp(pairs[i])); /* the others go with the program */
}

static void wrong_keys(struct end *e) {
    const uint32_t all = (uint32_t)e->bytes;
    struct ibv_mr *silent = ibv_reg_mr(e->pd, region(e), all, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_pd *elsewhere = ibv_alloc_pd(e->context);
    struct ibv_mr *others = ibv_reg_mr(elsewhere, region(e), all, WRITABLE);
    const struct ibv_sge good = {(uintptr_t)region(e), all, e->mr->lkey};
    const struct {
        struct ibv_sge sge;
        int64_t remote;
        uint32_t rkey;
        enum ibv_wc_status status;
    } tries[] = {
        {{good.addr, good.length, others->lkey}, 0, 0, IBV_WC_LOC_PROT_ERR},
        {{good.addr, good.length, good.lkey + 1000}, 0, 0, IBV_WC_LOC_PROT_ERR},
        {{good.addr - 1, 8, good.lkey}, 0, 0, IBV_WC_LOC_PROT_ERR},
        {{good.addr + all - 7, 8, good.lkey}, 0, 0, IBV_WC_LOC_PROT_ERR},
        {{good.addr, all + 1, good.lkey}, 0, 0, IBV_WC_LOC_PROT_ERR},
        {{good.addr, UINT32_MAX, good.lkey}, 0, 0, IBV_WC_LOC_PROT_ERR},
        {{UINT64_MAX, 8, good.lkey}, 0, 0, IBV_WC_LOC_PROT_ERR},
        {{good.addr, 8, good.lkey}, 0, 1, IBV_WC_REM_ACCESS_ERR},
        {{good.addr, 8, good.lkey}, -1, 0, IBV_WC_REM_ACCESS_ERR},
        {{good.addr, 8, good.lkey}, PEER_BYTES - 7, 0, IBV_WC_REM_ACCESS_ERR},
        {{good.addr, all, good.lkey}, 1, 0, IBV_WC_REM_ACCESS_ERR},
        {{good.addr, all, good.lkey}, -1, 0, IBV_WC_REM_ACCESS_ERR},
        {{good.addr, 8, good.lkey}, INT64_MIN, 0, IBV_WC_REM_ACCESS_ERR},
    };
    for (unsigned i = 0; i < sizeof tries / sizeof *tries; i++) {
        struct ibv_sge sge = tries[i].sge;
        pair(e, 4);
        MUST(!write_to(e, 1, &sge, 1, e->peer.address + (uint64_t)tries[i].remote, e->peer.rkey ^ tries[i].rkey, IBV_SEND_SIGNALED));
        enum ibv_wc_status status = next(e);
        if (status != tries[i].status)
            end(1, "try %u: %s", i, ibv_wc_status_str(status));
        MUST(!ibv_destroy_qp(e->qp));
    }
    struct ibv_qp *own = make(e, 4); /* on this host: a region that no peer may write, a queue pair that lets nobody write */
    struct card self = card_of(e, own);
    to_rts(e, own, &self, IBV_ACCESS_REMOTE_WRITE);
    e->qp = own;
    struct ibv_sge sge = {(uintptr_t)region(e), 8, e->mr->lkey};
    MUST(!write_to(e, 1, &sge, 1, (uintptr_t)region(e), silent->rkey, IBV_SEND_SIGNALED) && next(e) == IBV_WC_REM_ACCESS_ERR);
}

static void wrong_masks(struct end *e) {
    static const int right[] = {
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
    };
    struct ibv_qp *qp = make(e, 4);
    struct card self = card_of(e, qp);
    for (int step = 0; step < 3; step++) {
        struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT + (unsigned)step, .port_num = 1, .path_mtu = IBV_MTU_256, .dest_qp_num = self.qpn,
                                .ah_attr = {.is_global = 1, .port_num = 1, .grh.dgid = self.gid}};
        for (int bit = 1; bit < 26; bit++) /* one is missing, or one too many; what may be there beside is not tried */
            if (right[step] >> bit & 1 || bit == 20 || bit == 9 || bit == 16)
                MUST((right[step] == (right[step] ^ 1 << bit)) || ibv_modify_qp(qp, &a, right[step] ^ 1 << bit) == EINVAL);
        struct ibv_qp_attr bad = a;
        bad.port_num = 9;
        bad.path_mtu = 77;
        bad.sq_psn = 1u << 24;
        MUST(ibv_modify_qp(qp, &bad, right[step]) == EINVAL);
        MUST(qp->state == IBV_QPS_RESET + (unsigned)step && !ibv_modify_qp(qp, &a, right[step]));
    }
    for (unsigned state = IBV_QPS_SQD; state < 300; state += state < 10 ? 1 : 100)
        if (state != IBV_QPS_ERR) {
            struct ibv_qp_attr a = {.qp_state = state};
            MUST(ibv_modify_qp(qp, &a, IBV_QP_STATE) == EINVAL);
        }
    MUST(qp->state == IBV_QPS_RTS);
}

static void overflows(struct end *e) {
    struct ibv_wc wc;
    struct ibv_async_event event;
    struct ibv_cq *large = e->cq, *small = ibv_create_cq(e->context, 4, NULL, NULL, 0);
    e->cq = small;
    pair(e, 64);
    struct ibv_sge sge = {(uintptr_t)region(e), 8, e->mr->lkey};
    for (unsigned i = 0; i < 64; i++)
        MUST(!write_to(e, i, &sge, 1, e->peer.address, e->peer.rkey, IBV_SEND_SIGNALED));
    MUST(!ibv_get_async_event(e->context, &event) && event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == small);
    ibv_ack_async_event(&event);
    MUST(ibv_poll_cq(small, 1, &wc) == -1 && !ibv_destroy_qp(e->qp) && !ibv_destroy_cq(small));
    e->cq = large;
}

static void victim(struct end *e) {
    char *seen = malloc(PEER_BYTES), input;
    unsigned rounds = 0;
    fcntl(0, F_SETFL, O_NONBLOCK);
    pair(e, 4);
    while (read(0, &input, 1) < 0) {
        size_t bytes = 1 + rounds * 977 % 30000, at = rounds * 4099 % (PEER_BYTES - 30000);
        for (size_t i = 0; i < bytes; i++)
            region(e)[at + i] = (char)(rounds * 7 + i);
        struct ibv_sge sge = {(uintptr_t)region(e) + at, (uint32_t)bytes, e->mr->lkey};
        MUST(!write_to(e, rounds, &sge, 1, e->peer.address + at, e->peer.rkey, IBV_SEND_SIGNALED) && next(e) == IBV_WC_SUCCESS);
        say(e->control, "b", 1);
        hear(e->control, seen, PEER_BYTES);
        MUST(!memcmp(seen, region(e), PEER_BYTES));
        check(e);
        printf("victim: round %u\n", rounds++);
        fflush(stdout);
    }
    end(0, "well");
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*go)(struct end *);
    } ways[] = {{"overrun", overrun},     {"threads", threads},     {"deregister", deregister}, {"unmap", unmap},
                {"dontneed", gives_back}, {"truncate", truncates},  {"fork", forks},            {"execute", executes},
                {"exit", exits},          {"kill", is_killed},      {"peer", loses_its_peer},   {"target", loses_its_target}, {"many", many},
                {"keys", wrong_keys},     {"masks", wrong_masks},   {"overflow", overflows},    {"victim", victim}};
    way = count > 1 ? words[1] : "?";
    if (count == 3 && !strcmp(way, "serve"))
        serve(atoi(words[2]));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (count == 4 && !strcmp(way, ways[i].name)) {
            struct end e = reach(address_of_peer = words[2], port_of_peer = atoi(words[3]), 1 << 12);
            ways[i].go(&e);
            check(&e);
            works(&e);
            end(0, "well");
        }
    end(2, "no such way");
}
