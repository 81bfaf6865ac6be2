/* Work requests: written into the session's ring, from ibv_post_send and ibv_post_recv or between ibv_wr_start and ibv_wr_complete. */
#include "mrcbed.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define MOST_SLOTS (1 + MRCBED_MOST_INLINE / MRCBED_SLOT)
#define SGES_OF_A_SLOT (MRCBED_SLOT / sizeof(struct sge))
_Static_assert(1 + (MRCBED_MOST_SGES - 1 + SGES_OF_A_SLOT - 1) / SGES_OF_A_SLOT <= MOST_SLOTS, "the SGEs of an entry fit");

/* --- the ring, with ring_lock held --- */

/* Tells the agent of all that was written. It sleeps, or is about to, if its flag is up: the fence sees to it that one of the two notices,
 * the agent the new tail or this thread the flag. */
static void publish(struct session *session) {
    atomic_store_explicit(counter(session->ring, MRCBED_TAIL_AT), session->tail, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(counter(session->ring, MRCBED_FLAG_AT), memory_order_relaxed))
        ring_doorbell(session);
}

/* Waits until so many slots are free. False if the agent is gone. */
static bool wait_for_room(struct session *session, uint32_t wanted) {
    for (unsigned tries = 0;; tries++) {
        uint32_t used = session->tail - atomic_load_explicit(counter(session->ring, MRCBED_HEAD_AT), memory_order_acquire);
        if (used + wanted <= session->limits.slots)
            return true;
        if (!tries)
            publish(session);
        if (look_for_the_end(session))
            return false;
        if (tries < 64)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

/* Writes an entry. */
static int put(struct session *session, const union slot *entry, uint32_t slots) {
    uint32_t size = (uint32_t)session->limits.slots, at = session->tail & (size - 1);
    union slot *ring = (union slot *)(void *)(session->ring + MRCBED_RINGS_AT);
    uint32_t left = size - at < slots ? size - at : 0; /* an entry does not go over the end */
    if (!wait_for_room(session, left + slots))
        return EIO;
    if (left) {
        ring[at] = (union slot){.work = {.kind = MRCBED_PADDING, .slots = left}};
        session->tail += left;
        at = 0;
    }
    memcpy(ring + at, entry, slots * sizeof *entry);
    session->tail += slots;
    return 0;
}

static bool is_full(struct side *side, uint32_t more) {
    return side->posted + more - atomic_load_explicit(&side->retired, memory_order_relaxed) > side->most;
}

/* --- entries --- */

static uint8_t flags_of(struct qp *qp, unsigned send_flags) {
    return (uint8_t)((send_flags & IBV_SEND_SIGNALED || qp->asked.sq_sig_all ? MRCBED_SIGNALED : 0) |
                     (send_flags & IBV_SEND_SOLICITED ? MRCBED_SOLICITED : 0) | (send_flags & IBV_SEND_FENCE ? MRCBED_FENCE : 0));
}

static int check_send(struct qp *qp, unsigned opcode, unsigned send_flags) {
    const unsigned known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
    if (opcode != IBV_WR_RDMA_WRITE && opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
        return refuse(session_of(qp->public.qp_base.context), opcode);
    return send_flags & ~known ? EINVAL : 0;
}

/* Puts SGEs into an entry; returns EINVAL if there are more than the queue takes. */
static int add_sges(union slot *entry, const struct ibv_sge *list, size_t count, uint32_t most) {
    if (count > most)
        return EINVAL;
    for (size_t i = 0; i < count; i++) {
        struct sge *to = i ? &entry[1 + (i - 1) / SGES_OF_A_SLOT].more[(i - 1) % SGES_OF_A_SLOT] : &entry->work.first;
        *to = (struct sge){.address = list[i].addr, .bytes = list[i].length, .lkey = list[i].lkey};
    }
    entry->work.flags &= (uint8_t)~MRCBED_INLINE; /* of two setters the last holds */
    entry->work.inline_bytes = 0;
    entry->work.sges = (uint8_t)count;
    entry->work.slots = 1 + (count > 1 ? (uint32_t)((count - 1 + SGES_OF_A_SLOT - 1) / SGES_OF_A_SLOT) : 0);
    return 0;
}

/* Appends data to an entry's inline data; EINVAL if it gets too much. */
static int add_data(struct qp *qp, union slot *entry, const void *data, size_t bytes) {
    uint32_t before = entry->work.inline_bytes;
    if (bytes > qp->asked.cap.max_inline_data - before)
        return EINVAL;
    if (bytes)
        memcpy(entry[1].bytes + before, data, bytes);
    entry->work.flags |= MRCBED_INLINE;
    entry->work.inline_bytes += (uint32_t)bytes;
    entry->work.slots = 1 + (entry->work.inline_bytes + MRCBED_SLOT - 1) / MRCBED_SLOT;
    return 0;
}

static int make_send(struct qp *qp, const struct ibv_send_wr *wr, union slot *entry) {
    int error = check_send(qp, wr->opcode, wr->send_flags);
    entry->work = (struct work){
        .kind = MRCBED_SEND,
        .opcode = (uint8_t)wr->opcode,
        .flags = flags_of(qp, wr->send_flags),
        .qpn = qp->public.qp_base.qp_num,
        .wr_id = wr->wr_id,
        .remote = wr->wr.rdma.remote_addr,
        .rkey = wr->wr.rdma.rkey,
        .immediate = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? wr->imm_data : 0,
        .slots = 1,
    };
    if (error || wr->num_sge < 0)
        return error ? error : EINVAL;
    if (!(wr->send_flags & IBV_SEND_INLINE))
        return add_sges(entry, wr->sg_list, (size_t)wr->num_sge, qp->send.sges);
    entry->work.flags |= MRCBED_INLINE;
    for (int i = 0; i < wr->num_sge && !error; i++)
        error = add_data(qp, entry, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
    return error;
}

int post_send(struct ibv_qp *public, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct session *session = session_of(public->context);
    struct qp *qp = qp_of(public);
    int error = gone(session) ? EIO : public->state < IBV_QPS_RTS ? EINVAL : 0;
    if (error) {
        *bad = wr;
        return error;
    }
    pthread_mutex_lock(&session->ring_lock);
    uint32_t before = session->tail;
    for (; wr; wr = wr->next) {
        union slot entry[MOST_SLOTS];
        error = make_send(qp, wr, entry);
        if (!error && is_full(&qp->send, 1))
            error = ENOMEM;
        if (!error)
            error = put(session, entry, entry->work.slots);
        if (error) { /* those before it are posted */
            *bad = wr;
            break;
        }
        qp->send.posted++;
    }
    if (session->tail != before)
        publish(session);
    pthread_mutex_unlock(&session->ring_lock);
    return error;
}

int post_recv(struct ibv_qp *public, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct session *session = session_of(public->context);
    struct qp *qp = qp_of(public);
    int error = gone(session) ? EIO : public->state == IBV_QPS_RESET ? EINVAL : 0;
    if (error) {
        *bad = wr;
        return error;
    }
    pthread_mutex_lock(&session->ring_lock);
    uint32_t before = session->tail;
    for (; wr; wr = wr->next) {
        union slot entry[MOST_SLOTS];
        entry->work = (struct work){.kind = MRCBED_RECV, .qpn = public->qp_num, .wr_id = wr->wr_id};
        error = add_sges(entry, wr->sg_list, wr->num_sge < 0 ? SIZE_MAX : (size_t)wr->num_sge, qp->recv.sges);
        if (!error && is_full(&qp->recv, 1))
            error = ENOMEM;
        if (!error)
            error = put(session, entry, entry->work.slots);
        if (error) {
            *bad = wr;
            break;
        }
        qp->recv.posted++;
    }
    if (session->tail != before)
        publish(session);
    pthread_mutex_unlock(&session->ring_lock);
    return error;
}

/* --- ibv_wr_*: requests gather in the queue pair, and go to the ring together or not at all --- */

static void wr_start(struct ibv_qp_ex *public) {
    struct qp *qp = (struct qp *)public;
    if (!forked(session_of(public->qp_base.context))) /* a child's, which another thread may have had, stays as it is */
        pthread_mutex_lock(&qp->lock);                /* until wr_complete or wr_abort */
    qp->slots = qp->entries = qp->begun = 0;
    qp->error = 0;
}

static union slot *last_entry(struct qp *qp) { return qp->staged + qp->begun; }

static void begin(struct qp *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote, __be32 immediate) {
    if (!qp->error)
        qp->error = check_send(qp, opcode, qp->public.wr_flags);
    if (!qp->error && qp->room - qp->slots < MOST_SLOTS) {
        uint32_t room = 2 * qp->room + MOST_SLOTS;
        union slot *more = realloc(qp->staged, room * sizeof *more);
        if (more) {
            qp->staged = more;
            qp->room = room;
        } else {
            qp->error = ENOMEM;
        }
    }
    if (qp->error)
        return;
    qp->begun = qp->slots++;
    qp->entries++;
    last_entry(qp)->work = (struct work){
        .kind = MRCBED_SEND,
        .opcode = (uint8_t)opcode,
        .flags = flags_of(qp, qp->public.wr_flags),
        .qpn = qp->public.qp_base.qp_num,
        .wr_id = qp->public.wr_id,
        .remote = remote,
        .rkey = rkey,
        .immediate = immediate,
        .slots = 1,
    };
}

static void wr_rdma_write(struct ibv_qp_ex *public, uint32_t rkey, uint64_t remote) {
    begin((struct qp *)public, IBV_WR_RDMA_WRITE, rkey, remote, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *public, uint32_t rkey, uint64_t remote, __be32 immediate) {
    begin((struct qp *)public, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote, immediate);
}

/* A setter without a request before it, or after an error, sets nothing. */
static bool takes_data(struct qp *qp) {
    if (!qp->error && !qp->entries)
        qp->error = EINVAL;
    return !qp->error;
}

static void wr_set_sge_list(struct ibv_qp_ex *public, size_t count, const struct ibv_sge *list) {
    struct qp *qp = (struct qp *)public;
    if (!takes_data(qp))
        return;
    qp->error = add_sges(last_entry(qp), list, count, qp->send.sges);
    qp->slots = qp->begun + last_entry(qp)->work.slots;
}

static void wr_set_sge(struct ibv_qp_ex *public, uint32_t lkey, uint64_t address, uint32_t bytes) {
    wr_set_sge_list(public, 1, &(struct ibv_sge){.addr = address, .length = bytes, .lkey = lkey});
}

static void wr_set_inline_data_list(struct ibv_qp_ex *public, size_t count, const struct ibv_data_buf *list) {
    struct qp *qp = (struct qp *)public;
    if (!takes_data(qp))
        return;
    struct work *work = &last_entry(qp)->work;
    work->flags |= MRCBED_INLINE;
    work->sges = 0;
    work->inline_bytes = 0;
    work->slots = 1;
    for (size_t i = 0; i < count && !qp->error; i++)
        qp->error = add_data(qp, last_entry(qp), list[i].addr, list[i].length);
    qp->slots = qp->begun + last_entry(qp)->work.slots;
}

static void wr_set_inline_data(struct ibv_qp_ex *public, void *address, size_t bytes) {
    wr_set_inline_data_list(public, 1, &(struct ibv_data_buf){.addr = address, .length = bytes});
}

static void wr_end(struct ibv_qp_ex *public) {
    if (!forked(session_of(public->qp_base.context)))
        pthread_mutex_unlock(&((struct qp *)public)->lock);
}

static int wr_complete(struct ibv_qp_ex *public) {
    struct qp *qp = (struct qp *)public;
    struct session *session = session_of(public->qp_base.context);
    int error = qp->error;
    if (!error)
        error = gone(session) ? EIO : public->qp_base.state < IBV_QPS_RTS ? EINVAL : 0;
    if (!error) {
        pthread_mutex_lock(&session->ring_lock);
        if (is_full(&qp->send, qp->entries))
            error = ENOMEM;
        for (uint32_t at = 0; at < qp->slots && !error; at += qp->staged[at].work.slots) {
            error = put(session, qp->staged + at, qp->staged[at].work.slots);
            qp->send.posted += !error;
        }
        if (!error && qp->slots)
            publish(session);
        pthread_mutex_unlock(&session->ring_lock);
    }
    wr_end(public);
    return error;
}

static void wr_abort(struct ibv_qp_ex *public) { wr_end(public); }

/* Others stay NULL: no queue pair can be created for them. */
void fill_wr_functions(struct qp *qp) {
    struct ibv_qp_ex *public = &qp->public;
    public->wr_start = wr_start;
    public->wr_rdma_write = wr_rdma_write;
    public->wr_rdma_write_imm = wr_rdma_write_imm;
    public->wr_set_sge = wr_set_sge;
    public->wr_set_sge_list = wr_set_sge_list;
    public->wr_set_inline_data = wr_set_inline_data;
    public->wr_set_inline_data_list = wr_set_inline_data_list;
    public->wr_complete = wr_complete;
    public->wr_abort = wr_abort;
}
