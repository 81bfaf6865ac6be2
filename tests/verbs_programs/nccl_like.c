/* An all-reduce by the verbs that NCCL's transport for InfiniBand uses, in its order, and by no others.
 *
 *     nccl_like BYTES ROUNDS QPS [RANKS]
 *
 * runs RANKS ranks (one, if not given) on each host of MRCBED_ADDRESSES, in a ring, with so many queue pairs to a neighbour. In each round they
 * sum BYTES of int32 by a reduce-scatter and an all-gather, and each looks at every element of the result. As in NCCL, functions come from
 * dlopen and dlvsym; a receiver WRITEs a clear-to-send entry into a ring in the sender's memory, which may ask for several messages at once
 * (here two); a sender WRITEs each message in as many parts as there are queue pairs, and on each of these a last WRITE with an immediate says
 * that all before it is there; with several messages at once, it writes their sizes, too. Nothing waits for an event: all is polled. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 8    /* entries of a ring: requests on their way */
#define TOGETHER 2 /* messages of an entry */
#define MOST_QPS 8
#define PORT 7100
#define CONNECTION_S 60

static int rank, ranks;

static void end(const char *format, ...) {
    va_list words;
    va_start(words, format);
    char text[300];
    vsnprintf(text, sizeof text, format, words);
    printf("rank %d: %s\n", rank, text);
    fflush(stdout);
    _exit(1);
}
#define CHECK(works) ((works) ? (void)0 : end("%s: %s", #works, strerror(errno)))
#define ZERO(call)                                                                                           \
    do {                                                                                                     \
        int error = (call);                                                                                  \
        if (error)                                                                                           \
            end("%s: %s", #call, strerror(error));                                                           \
    } while (0)

/* --- the functions, by handle and version. NULL where a library may be older than they --- */

#define FUNCTIONS(F)                                                                                         \
    F(fork_init, "1.1") F(get_device_list, "1.1") F(free_device_list, "1.1") F(get_device_name, "1.1")       \
    F(open_device, "1.1") F(close_device, "1.1") F(get_async_event, "1.1") F(ack_async_event, "1.1")         \
    F(event_type_str, "1.1") F(query_device, "1.1") F(query_gid, "1.1") F(query_qp, "1.1")                   \
    F(alloc_pd, "1.1") F(dealloc_pd, "1.1") F(reg_mr_iova2, "1.8") F(reg_dmabuf_mr, "1.12")                  \
    F(dereg_mr, "1.1") F(create_cq, "1.1") F(destroy_cq, "1.1") F(create_qp, "1.1") F(modify_qp, "1.1")      \
    F(destroy_qp, "1.1") F(query_ece, "1.10") F(set_ece, "1.10")

#undef ibv_reg_mr
#undef ibv_query_port
static struct {
#define POINTER(name, version) __typeof__(&ibv_##name) name;
    FUNCTIONS(POINTER)
    struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
    int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
} verbs;

static void load(void) {
    void *library = dlopen("libibverbs.so", RTLD_NOW);
    if (!library)
        library = dlopen("libibverbs.so.1", RTLD_NOW);
    CHECK(library);
#define LOOK_UP(name, version)                                                                               \
    *(void **)&verbs.name = dlvsym(library, "ibv_" #name, "IBVERBS_" version);                               \
    if (!verbs.name)                                                                                         \
        end("no ibv_%s of IBVERBS_%s", #name, version);
    FUNCTIONS(LOOK_UP)
    LOOK_UP(reg_mr, "1.1")
    LOOK_UP(query_port, "1.1")
}

/* --- TCP to the neighbours, for what each has to know of the other --- */

static void whole(int sock, void *data, size_t bytes, int sends) {
    for (size_t done = 0; done < bytes;) {
        void *at = (char *)data + done;
        ssize_t moved = sends ? send(sock, at, bytes - done, MSG_NOSIGNAL) : recv(sock, at, bytes - done, 0);
        CHECK(moved > 0);
        done += (size_t)moved;
    }
}

static int listen_at(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)));
    CHECK(!bind(sock, (struct sockaddr *)&at, sizeof at) && !listen(sock, 1));
    return sock;
}

static int connect_to(const char *address, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET, address, &at.sin_addr) == 1);
    for (int tries = 0; tries < CONNECTION_S * 20; tries++) {
        int sock = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(sock, (struct sockaddr *)&at, sizeof at))
            return sock;
        close(sock);
        usleep(50000);
    }
    end("nobody listens at %s, port %d", address, port);
    return -1;
}

/* --- the device --- */

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_port_attr port_attr;
static union ibv_gid gid;
static atomic_uint port_errors, port_activations, fatal;

static void *watch(void *unused) {
    struct ibv_async_event event;
    while (!verbs.get_async_event(context, &event)) {
        CHECK(verbs.event_type_str(event.event_type));
        if (event.event_type == IBV_EVENT_PORT_ERR)
            port_errors++;
        else if (event.event_type == IBV_EVENT_PORT_ACTIVE)
            port_activations++;
        else
            fatal++;
        verbs.ack_async_event(&event);
    }
    return unused;
}

static void open_device(void) {
    int count;
    struct ibv_device_attr attributes;
    ZERO(verbs.fork_init());
    struct ibv_device **list = verbs.get_device_list(&count);
    CHECK(list && count == 1 && !strcmp(verbs.get_device_name(list[0]), "mrcbed0"));
    context = verbs.open_device(list[0]);
    CHECK(context);
    verbs.free_device_list(list);
    ZERO(verbs.query_device(context, &attributes));
    memset(&port_attr, 0, sizeof port_attr);
    ZERO(verbs.query_port(context, 1, &port_attr));
    CHECK(attributes.phys_port_cnt == 1 && port_attr.state == IBV_PORT_ACTIVE && port_attr.link_layer == IBV_LINK_LAYER_ETHERNET);
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, watch, NULL));
    ZERO(verbs.query_gid(context, 1, 1, &gid));
    pd = verbs.alloc_pd(context); /* the probe for DMA-BUF: a device that had it would say EBADF of this descriptor */
    CHECK(pd && !verbs.reg_dmabuf_mr(pd, 0, 0, 0, -1, 0) && (errno == EOPNOTSUPP || errno == EPROTONOSUPPORT));
    ZERO(verbs.dealloc_pd(pd));
    pd = verbs.alloc_pd(context);
    CHECK(pd);
}

static struct ibv_mr *registered(void *memory, size_t bytes) {
    const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;
    struct ibv_mr *mr = verbs.reg_mr_iova2(pd, memory, bytes, (uintptr_t)memory, access);
    CHECK(mr);
    return mr;
}

/* --- a connection: one way for data, clear-to-send entries the other way --- */

struct entry { /* one cache line: a message that the receiver can take */
    uint64_t address;
    uint32_t bytes, rkey, tag, count;
    uint64_t unused[4];
    _Atomic uint64_t number; /* from 1 on */
};

struct end_of_line { /* what the other side has to know */
    uint32_t qpns[MOST_QPS], rkey, mtu;
    uint64_t ring;
    union ibv_gid gid;
    struct ibv_ece ece;
    int has_ece;
};

struct connection {
    struct ibv_cq *cq;
    struct ibv_qp *qps[MOST_QPS];
    struct end_of_line peer;
    struct ibv_mr *told_mr, *own_mr;    /* of what the peer writes of these two, and of what is written to it */
    struct entry ring[SLOTS][TOGETHER]; /* sender: as the receiver wrote it. receiver: what it writes */
    uint32_t sizes[SLOTS][TOGETHER];    /* receiver: as the sender wrote them. sender: what it writes */
    uint64_t posted, done;              /* requests, one for all messages of an entry */
    uint32_t left[SLOTS];               /* completions that a request still waits for */
    uint32_t came[SLOTS];               /* its last immediate */
};

static int qps;

static void make_queues(struct connection *c, struct end_of_line *own, void *ring, size_t bytes) {
    c->cq = verbs.create_cq(context, 2 * SLOTS * qps, NULL, NULL, 0);
    CHECK(c->cq);
    struct ibv_qp_init_attr init = {.send_cq = c->cq, .recv_cq = c->cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 2 * SLOTS * (TOGETHER + 1), .max_recv_wr = SLOTS, .max_send_sge = 1, .max_recv_sge = 1};
    memset(own, 0, sizeof *own);
    for (int q = 0; q < qps; q++) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
        c->qps[q] = verbs.create_qp(pd, &init);
        CHECK(c->qps[q]);
        ZERO(verbs.modify_qp(c->qps[q], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
        own->qpns[q] = c->qps[q]->qp_num;
        own->has_ece = !verbs.query_ece(c->qps[q], &own->ece);
    }
    c->told_mr = registered(ring, bytes);
    own->rkey = c->told_mr->rkey;
    own->ring = (uintptr_t)ring;
    own->gid = gid;
    own->mtu = port_attr.active_mtu;
}

static void ready(struct connection *c) {
    for (int q = 0; q < qps; q++) {
        struct ibv_qp_attr attr = {
            .qp_state = IBV_QPS_RTR, .path_mtu = c->peer.mtu < port_attr.active_mtu ? c->peer.mtu : port_attr.active_mtu,
            .dest_qp_num = c->peer.qpns[q], .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
            .ah_attr = {.is_global = 1, .grh = {.dgid = c->peer.gid, .sgid_index = 1, .hop_limit = 255}, .port_num = 1},
            .timeout = 20, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
        if (c->peer.has_ece)
            ZERO(verbs.set_ece(c->qps[q], &c->peer.ece));
        ZERO(verbs.modify_qp(c->qps[q], &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
        attr.qp_state = IBV_QPS_RTS;
        ZERO(verbs.modify_qp(c->qps[q], &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                                   IBV_QP_MAX_QP_RD_ATOMIC));
    }
}

static struct connection *sender_to(int sock) {
    struct end_of_line own;
    struct connection *c = calloc(1, sizeof *c);
    CHECK(c);
    make_queues(c, &own, c->ring, sizeof c->ring);
    c->own_mr = registered(c->sizes, sizeof c->sizes);
    whole(sock, &own, sizeof own, 1);
    whole(sock, &c->peer, sizeof c->peer, 0);
    ready(c);
    whole(sock, "+", 1, 1);
    return c;
}

static struct connection *receiver_from(int sock) {
    struct end_of_line own;
    struct connection *c = calloc(1, sizeof *c);
    CHECK(c);
    whole(sock, &c->peer, sizeof c->peer, 0);
    make_queues(c, &own, c->sizes, sizeof c->sizes);
    c->own_mr = registered(c->ring, sizeof c->ring);
    ready(c);
    whole(sock, &own, sizeof own, 1);
    whole(sock, &(char){0}, 1, 0); /* the other side is ready, too */
    return c;
}

static void still_alive(struct connection *c) {
    for (int q = 0; q < qps; q++) {
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        ZERO(verbs.query_qp(c->qps[q], &attr, IBV_QP_STATE, &init));
        if (attr.qp_state != IBV_QPS_RTS)
            end("a queue pair is in state %d at the end", attr.qp_state);
    }
}

static void part_with(struct connection *c) {
    for (int q = 0; q < qps; q++)
        ZERO(verbs.destroy_qp(c->qps[q]));
    ZERO(verbs.dereg_mr(c->told_mr));
    ZERO(verbs.dereg_mr(c->own_mr));
    ZERO(verbs.destroy_cq(c->cq));
}

/* Receives TOGETHER messages: a receive request on each queue pair, then the entry of the ring. */
static void receive(struct connection *c, char **memory, const uint32_t *bytes, struct ibv_mr *mr, uint32_t tag) {
    unsigned slot = c->posted % SLOTS;
    struct ibv_recv_wr wr = {.wr_id = slot}, *bad;
    struct entry *entry = c->ring[slot];
    CHECK(c->posted - c->done < SLOTS);
    c->left[slot] = (uint32_t)qps;
    for (int q = 0; q < qps; q++)
        ZERO(c->qps[q]->context->ops.post_recv(c->qps[q], &wr, &bad));
    for (unsigned i = 0; i < TOGETHER; i++) {
        entry[i] = (struct entry){.address = (uintptr_t)memory[i], .bytes = bytes[i], .rkey = mr->rkey, .tag = tag + i, .count = TOGETHER};
        entry[i].number = c->posted + 1;
    }
    struct ibv_sge sge = {(uintptr_t)entry, sizeof c->ring[0], c->own_mr->lkey};
    struct ibv_send_wr send = {.wr_id = SLOTS, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
                               .send_flags = slot ? 0 : IBV_SEND_SIGNALED,
                               .wr.rdma = {c->peer.ring + slot * sizeof c->ring[0], c->peer.rkey}}, *not_sent;
    ZERO(c->qps[0]->context->ops.post_send(c->qps[0], &send, &not_sent)); /* one in SLOTS signaled, or the queue would not empty */
    c->posted++;
}

/* Sends TOGETHER messages once the receiver is clear for them; 0 if it is not yet. */
static int sent(struct connection *c, char **memory, const uint32_t *bytes, struct ibv_mr *mr, uint32_t tag) {
    unsigned slot = c->posted % SLOTS;
    struct entry *entry = c->ring[slot];
    if (c->posted - c->done >= SLOTS || entry[0].number != c->posted + 1)
        return 0;
    for (unsigned i = 1; i < TOGETHER; i++)
        while (entry[i].number != c->posted + 1)
            sched_yield();
    c->left[slot] = (uint32_t)qps;
    for (unsigned i = 0; i < TOGETHER; i++) {
        if (entry[i].tag != tag + i || entry[i].count != TOGETHER || entry[i].bytes < bytes[i])
            end("an entry for tag %u of %u bytes came where %u of %u is sent", entry[i].tag, entry[i].bytes, tag + i, bytes[i]);
        c->sizes[slot][i] = bytes[i];
    }
    for (int q = 0; q < qps; q++) {
        struct ibv_send_wr wr[TOGETHER + 1] = {0}, *bad;
        struct ibv_sge sge[TOGETHER + 1];
        for (unsigned i = 0; i < TOGETHER; i++) { /* a multiple of 128 bytes on each queue pair */
            uint32_t part = ((bytes[i] + (uint32_t)qps - 1) / (uint32_t)qps + 127) / 128 * 128, from = part * (uint32_t)q;
            uint32_t count = from >= bytes[i] ? 0 : bytes[i] - from < part ? bytes[i] - from : part;
            sge[i] = (struct ibv_sge){(uintptr_t)memory[i] + from, count, mr->lkey};
            wr[i] = (struct ibv_send_wr){.wr_id = slot, .next = wr + i + 1, .sg_list = sge + i, .num_sge = count ? 1 : 0,
                                         .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {entry[i].address + from, entry[i].rkey}};
        }
        sge[TOGETHER] = (struct ibv_sge){(uintptr_t)c->sizes[slot], sizeof c->sizes[0], c->own_mr->lkey};
        wr[TOGETHER] = (struct ibv_send_wr){.wr_id = slot, .sg_list = sge + TOGETHER, .num_sge = q ? 0 : 1, .send_flags = IBV_SEND_SIGNALED,
                                            .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(tag),
                                            .wr.rdma = {c->peer.ring + slot * sizeof c->sizes[0], c->peer.rkey}};
        ZERO(c->qps[q]->context->ops.post_send(c->qps[q], wr, &bad));
    }
    c->posted++;
    return 1;
}

/* Takes completions, in any order of requests; says whether all of the first `wanted` requests are over. */
static int over(struct connection *c, uint64_t wanted) {
    struct ibv_wc wcs[4];
    int count = c->cq->context->ops.poll_cq(c->cq, 4, wcs);
    CHECK(count >= 0);
    for (int i = 0; i < count; i++) {
        if (wcs[i].status != IBV_WC_SUCCESS)
            end("a completion with status %d of request %lu", wcs[i].status, (unsigned long)wcs[i].wr_id);
        if (wcs[i].wr_id == SLOTS)
            continue;
        if (wcs[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
            c->came[wcs[i].wr_id] = ntohl(wcs[i].imm_data);
        if (!c->left[wcs[i].wr_id]--)
            end("a completion too many of request %lu", (unsigned long)wcs[i].wr_id);
    }
    while (c->done < c->posted && !c->left[c->done % SLOTS])
        c->done++;
    return c->done >= wanted;
}

/* --- the all-reduce --- */

static struct connection *to, *from;
static uint32_t words, tag;

static uint32_t value(int of, uint32_t i, int round) {
    uint32_t x = i * 2654435761u ^ (uint32_t)(of + 1) * 40503u ^ (uint32_t)(round + 1) * 2246822519u;
    return (x ^ x >> 15) * 2654435761u;
}

static uint32_t begin_of(int piece) { return (uint32_t)((uint64_t)words * (unsigned)piece / (unsigned)ranks); }

/* The two messages of a piece: each half of it. */
static void halves(char *memory, int piece, char **at, uint32_t *bytes) {
    uint32_t begin = begin_of(piece), end = begin_of(piece + 1), middle = begin + (end - begin) / 3;
    at[0] = memory + 4ul * begin, at[1] = memory + 4ul * middle;
    bytes[0] = 4 * (middle - begin), bytes[1] = 4 * (end - middle);
}

static void exchange(char *out, int out_piece, struct ibv_mr *out_mr, char *in, int in_piece, struct ibv_mr *in_mr) {
    char *memory[TOGETHER];
    uint32_t bytes[TOGETHER];
    halves(in, in_piece, memory, bytes);
    receive(from, memory, bytes, in_mr, tag);
    unsigned slot = (unsigned)((from->posted - 1) % SLOTS);
    uint32_t asked[TOGETHER] = {bytes[0], bytes[1]};
    halves(out, out_piece, memory, bytes);
    while (!sent(to, memory, bytes, out_mr, tag)) {
        over(from, 0);
        sched_yield();
    }
    for (int sends = 0, receives = 0; !sends || !receives;) {
        receives = over(from, from->posted);
        sends = over(to, to->posted);
        sched_yield();
    }
    if (from->came[slot] != tag || memcmp(from->sizes[slot], asked, sizeof asked))
        end("messages %u of %u and %u bytes came, and not %u of %u and %u", from->came[slot], from->sizes[slot][0],
            from->sizes[slot][1], tag, asked[0], asked[1]);
    tag += TOGETHER;
}

static void all_reduce(uint32_t *data, struct ibv_mr *data_mr, uint32_t *scratch, struct ibv_mr *scratch_mr) {
    for (int step = 0; step < ranks - 1; step++) {
        int in = (rank - step - 1 + 2 * ranks) % ranks;
        exchange((char *)data, (rank - step + ranks) % ranks, data_mr, (char *)scratch, in, scratch_mr);
        for (uint32_t i = begin_of(in); i < begin_of(in + 1); i++)
            data[i] += scratch[i];
    }
    for (int step = 0; step < ranks - 1; step++)
        exchange((char *)data, (rank - step + 1 + ranks) % ranks, data_mr, (char *)data, (rank - step + ranks) % ranks, data_mr);
}

static void run(int rounds, const char *next_address) {
    int listener = listen_at(PORT + rank);
    load();
    open_device();
    int next = connect_to(next_address, PORT + (rank + 1) % ranks), previous = accept(listener, NULL, NULL);
    CHECK(previous >= 0);
    if (rank) { /* or all would wait for their receivers */
        from = receiver_from(previous);
        to = sender_to(next);
    } else {
        to = sender_to(next);
        from = receiver_from(previous);
    }
    uint32_t *data = malloc(4ul * (words + 2)), *scratch = malloc(4ul * words);
    CHECK(data && scratch);
    struct ibv_mr *data_mr = registered(data + 1, 4ul * words);
    struct ibv_mr *scratch_mr = verbs.reg_mr(pd, scratch, 4ul * words, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(scratch_mr);
    for (int round = 0; round < rounds; round++) {
        data[0] = data[words + 1] = 0xC0FFEE;
        for (uint32_t i = 0; i < words; i++)
            data[1 + i] = value(rank, i, round);
        all_reduce(data + 1, data_mr, scratch, scratch_mr);
        for (uint32_t i = 0; i < words; i++) {
            uint32_t sum = 0;
            for (int other = 0; other < ranks; other++)
                sum += value(other, i, round);
            if (data[1 + i] != sum)
                end("round %d: element %u is %u, and not %u", round, i, data[1 + i], sum);
        }
        if (data[0] != 0xC0FFEE || data[words + 1] != 0xC0FFEE)
            end("round %d: something was written beside the array", round);
    }
    /* Before anybody leaves: an entry's acknowledgement may still be on its way, and whose peer has gone hears so. */
    unsigned others = fatal;
    still_alive(to);
    still_alive(from);
    whole(next, "+", 1, 1); /* nobody leaves while a neighbour still sends */
    whole(previous, &(char){0}, 1, 0);
    whole(previous, "+", 1, 1);
    whole(next, &(char){0}, 1, 0);
    part_with(to);
    part_with(from);
    ZERO(verbs.dereg_mr(data_mr));
    ZERO(verbs.dereg_mr(scratch_mr));
    ZERO(verbs.dealloc_pd(pd));
    ZERO(verbs.close_device(context));
    printf("rank %d: %d sums of %u bytes are right; ports: %u down, %u up; other events: %u\n", rank, rounds, 4 * words, port_errors,
           port_activations, others);
}

int main(int count, char **arguments) {
    CHECK(count >= 4);
    words = (uint32_t)atoi(arguments[1]) / 4;
    qps = atoi(arguments[3]);
    int here = count > 4 ? atoi(arguments[4]) : 1, hosts = atoi(getenv("WORLD_SIZE")), host = atoi(getenv("RANK")), failed = 0;
    CHECK(qps >= 1 && qps <= MOST_QPS && here >= 1);
    char *addresses[64], *list = strdup(getenv("MRCBED_ADDRESSES"));
    for (int i = 0; i < hosts && i < 64; i++)
        addresses[i] = strtok(i ? NULL : list, ",");
    ranks = hosts * here;
    for (int i = 0; i < here; i++) { /* each rank is a process of its own */
        rank = host * here + i;
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            run(atoi(arguments[2]), addresses[(rank + 1) % ranks / here]);
            return 0;
        }
    }
    for (int status; wait(&status) > 0;)
        failed |= status;
    return failed != 0;
}
