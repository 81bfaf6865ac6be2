/* The verbs library of a program on an emulated host. It holds no protocol: what is rare it asks of the host's agent over a socket, work
 * requests go through a ring in shared memory, completions come out of rings. agents/verbs/layout.py says what the two speak; layout.h is
 * generated from it. The public functions and structures are those of libibverbs, as its header and man pages describe them.
 *
 * The library stands beside the real libibverbs, ahead of it: each public function looks whose object it was given, and hands foreign ones
 * on (PASS). So a preloaded library is harmless where there is no agent. */
#ifndef MRCBED_H
#define MRCBED_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#define PUBLIC __attribute__((visibility("default")))

/* After a public function that libibverbs has as IBVERBS_1.0, too. Whoever was linked against that gets the function of today: the structures
 * of 2006 differ, but no program that old is left. */
#define BOTH(name)                                                                                           \
    extern __typeof__(name) name##_1_0 __attribute__((alias(#name), visibility("default")));                 \
    __asm__(".symver " #name "_1_0, " #name "@IBVERBS_1.0\n.symver " #name ", " #name "@@@IBVERBS_1.1")

/* A foreign object goes to the real library. */
#define PASS(context, version, name, ...)                                                                    \
    do {                                                                                                     \
        if (!is_ours(context)) {                                                                             \
            static __typeof__(&name) there;                                                                  \
            if (!there)                                                                                      \
                there = real(#name, version);                                                                \
            return there(__VA_ARGS__);                                                                       \
        }                                                                                                    \
    } while (0)

/* --- what goes over the socket and through the rings: fields as in layout.py --- */

struct request {
    uint32_t op, serial;
    uint64_t arguments[MRCBED_ARGUMENTS];
};

struct answer {
    uint32_t serial;
    int32_t error;
    uint64_t results[MRCBED_ARGUMENTS];
};

struct sge {
    uint64_t address;
    uint32_t bytes, lkey;
};

struct work {
    uint8_t kind, opcode, flags, sges;
    uint32_t qpn;
    uint64_t wr_id, remote;
    uint32_t rkey, immediate, inline_bytes, slots;
    struct sge first;
    uint8_t reserved[8];
};

union slot {
    struct work work;
    struct sge more[MRCBED_SLOT / sizeof(struct sge)];
    uint8_t bytes[MRCBED_SLOT];
};

struct cqe {
    uint64_t wr_id;
    uint32_t status, opcode, vendor_err, byte_len, immediate, qpn, source_qpn, flags, retired, is_send;
    uint64_t time;
    uint8_t reserved[8];
};

struct event {
    uint32_t type, zero;
    uint64_t number;
};

_Static_assert(sizeof(struct request) == MRCBED_SIZE_OF_REQUEST, "agents/verbs/layout.py has another REQUEST");
_Static_assert(sizeof(struct answer) == MRCBED_SIZE_OF_ANSWER, "agents/verbs/layout.py has another ANSWER");
_Static_assert(sizeof(struct sge) == MRCBED_SIZE_OF_SGE, "agents/verbs/layout.py has another SGE");
_Static_assert(sizeof(struct work) == MRCBED_SIZE_OF_WORK, "agents/verbs/layout.py has another WORK");
_Static_assert(sizeof(union slot) == MRCBED_SLOT, "agents/verbs/layout.py has another SLOT");
_Static_assert(sizeof(struct cqe) == MRCBED_SIZE_OF_CQE, "agents/verbs/layout.py has another CQE");
_Static_assert(sizeof(struct event) == MRCBED_SIZE_OF_EVENT, "agents/verbs/layout.py has another EVENT");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the rings are little-endian");

/* --- objects --- */

/* HELLO's results. */
struct limits {
    uint64_t host, guid, transport, qps, wrs, sges, inline_bytes, cqs, cqes, mrs, mr_bytes, pds, gids, slots, dilation, ports;
};

struct qp;
struct cq;
struct channel;
#define QP_CHAINS 256

/* An opened device. Locks are taken in this order: a CQ's, a queue pair's, ring_lock, objects, asking. */
struct session {
    struct session *next;     /* all of the process, under the lock of connection.c */
    unsigned generation;      /* of the process that opened it: a forked child's is another */
    atomic_bool dead;         /* the agent is gone */
    atomic_bool told;         /* DEVICE_FATAL was delivered */
    pthread_mutex_t asking;   /* one request at a time */
    uint32_t serial;
    struct limits limits;
    pthread_mutex_t ring_lock; /* the work ring, and what queue pairs have outstanding */
    uint8_t *ring;
    uint32_t tail;            /* written, whether or not the agent knows */
    pthread_mutex_t objects;  /* the tables below, and counts of delivered events */
    struct qp *qps[QP_CHAINS];
    struct cq *cqs;
    struct channel *channels;
    struct verbs_context verbs; /* the public part */
};

struct channel {
    struct ibv_comp_channel public;
    struct channel *next;
    uint32_t handle;
};

struct cq {
    struct ibv_cq_ex public;
    struct cq *next;
    pthread_mutex_t lock; /* polling */
    uint8_t *ring;
    uint32_t size, head;
    struct cqe now; /* what ibv_cq_ex's functions read */
    uint32_t completions_delivered, async_delivered;
};

/* Either queue of a queue pair. Counts wrap. */
struct side {
    uint32_t most, sges;
    uint32_t posted;         /* under ring_lock */
    _Atomic uint32_t retired; /* over, as the last CQE said */
};

struct qp {
    struct ibv_qp_ex public;
    struct qp *next;
    struct side send, recv;
    struct ibv_qp_init_attr asked; /* with what was granted */
    bool extended;
    pthread_mutex_t lock;  /* ibv_wr_start to ibv_wr_complete */
    union slot *staged;    /* requests between these two */
    uint32_t slots, room, begun, entries; /* used; allocated; where the last request begins; how many */
    int error;             /* what ibv_wr_complete will answer */
    uint32_t async_delivered;
};

struct mr {
    struct ibv_mr public;
    int shared; /* the memfd that stands in for private pages (MRCBED_VERBS_SHARE), or -1 */
};

static inline struct session *session_of(struct ibv_context *context) {
    return (struct session *)((char *)context - offsetof(struct session, verbs.context));
}
static inline struct qp *qp_of(struct ibv_qp *qp) { return (struct qp *)qp; }
static inline struct cq *cq_of(struct ibv_cq *cq) { return (struct cq *)cq; }

static inline _Atomic uint32_t *counter(uint8_t *ring, unsigned at) { return (_Atomic uint32_t *)(void *)(ring + at); }

/* --- connection.c --- */
extern struct emulated_device {
    struct ibv_device public;
    char zeros[4096]; /* libmlx5 and others read behind the public part to see whether a device is theirs */
} emulated_device;

static inline bool is_ours(struct ibv_context *context) { return context->device == &emulated_device.public; }

struct session *session_open(void);
void session_close(struct session *session);
int ask(struct session *session, uint32_t op, const uint64_t *arguments, unsigned count, int descriptor, struct answer *answer,
        int *descriptors, unsigned descriptors_wanted);
int order(struct session *session, uint32_t op, uint64_t argument);
int destroy(struct session *session, uint32_t op, uint64_t handle);
bool forked(struct session *session);
bool gone(struct session *session);
bool look_for_the_end(struct session *session);
void bury(struct session *session);
void ring_doorbell(struct session *session);
void *map_ring(int descriptor, uint64_t entries);
void unmap_ring(void *ring, uint64_t entries);
bool inside(uint64_t *guid);

/* --- other files --- */
void *real(const char *name, const char *version);
void fill_operations(struct verbs_context *verbs);
int share_of(void *address, size_t bytes, uint64_t *offset, int *replaced);
struct qp *find_qp(struct session *session, uint32_t qpn);
void forget_completions(struct cq *cq, uint32_t qpn);
int refuse(struct session *session, unsigned opcode);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void fill_wr_functions(struct qp *qp);
int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *asked);
struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *asked);
int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes, size_t bytes);
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attributes,
                    size_t bytes);

#endif
