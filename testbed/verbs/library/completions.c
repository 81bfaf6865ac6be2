/* Completion queues and their channels. */
#include "mrcbed.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* --- polling --- */

/* A program that polls and finds nothing leaves its core to others: on small machines the agent that is to answer may wait for it. The count
 * is a thread's, over all queues that it polls; it sleeps only each 16th time, since a program may poll many queues in turn. */
static void found(bool something) {
    static __thread unsigned misses;
    if (something) {
        misses = 0;
        return;
    }
    misses++;
    if (misses > 1000 && misses % 16 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    else if (misses > 16)
        sched_yield();
}

/* Takes the next completion. Returns 1, 0 if there is none, -1 if the queue has overflowed or, with nothing left in it, the agent is gone:
 * what is outstanding then will never be known. With the queue's lock held. */
static int take(struct cq *cq, struct cqe *cqe) {
    struct session *session = session_of(cq->public.context);
    if (atomic_load_explicit(counter(cq->ring, MRCBED_FAILED_AT), memory_order_relaxed))
        return -1;
    while (cq->head != atomic_load_explicit(counter(cq->ring, MRCBED_TAIL_AT), memory_order_acquire)) {
        memcpy(cqe, cq->ring + MRCBED_RINGS_AT + (size_t)(cq->head & (cq->size - 1)) * MRCBED_SLOT, sizeof *cqe);
        atomic_store_explicit(counter(cq->ring, MRCBED_HEAD_AT), ++cq->head, memory_order_release);
        pthread_mutex_lock(&session->objects);
        struct qp *qp = find_qp(session, cqe->qpn);
        if (qp) /* else it was destroyed or reset: its completions went with it */
            atomic_store_explicit(cqe->is_send ? &qp->send.retired : &qp->recv.retired, cqe->retired, memory_order_relaxed);
        pthread_mutex_unlock(&session->objects);
        if (qp)
            return 1;
    }
    return gone(session) ? -1 : 0;
}

int poll_cq(struct ibv_cq *public, int most, struct ibv_wc *wc) {
    struct cq *cq = cq_of(public);
    if (forked(session_of(public->context)))
        return -1;
    struct cqe cqe;
    int count = 0, taken = 0;
    pthread_mutex_lock(&cq->lock);
    while (count < most && (taken = take(cq, &cqe)) > 0)
        wc[count++] = (struct ibv_wc){
            .wr_id = cqe.wr_id,
            .status = (enum ibv_wc_status)cqe.status,
            .opcode = (enum ibv_wc_opcode)cqe.opcode,
            .vendor_err = cqe.vendor_err,
            .byte_len = cqe.byte_len,
            .imm_data = cqe.immediate,
            .qp_num = cqe.qpn,
            .src_qp = cqe.source_qpn,
            .wc_flags = cqe.flags,
        };
    pthread_mutex_unlock(&cq->lock);
    found(count);
    return count || taken == 0 ? count : taken;
}

static int next_poll(struct ibv_cq_ex *public) {
    struct cq *cq = (struct cq *)public;
    int taken = take(cq, &cq->now);
    public->wr_id = cq->now.wr_id;
    public->status = (enum ibv_wc_status)cq->now.status;
    return taken > 0 ? 0 : taken ? EIO : ENOENT;
}

static int start_poll(struct ibv_cq_ex *public, struct ibv_poll_cq_attr *attributes) {
    struct cq *cq = (struct cq *)public;
    if (attributes->comp_mask)
        return EINVAL;
    if (forked(session_of(public->context)))
        return EIO;
    pthread_mutex_lock(&cq->lock); /* until end_poll, if there is something */
    int error = next_poll(public);
    if (error)
        pthread_mutex_unlock(&cq->lock);
    found(!error);
    return error;
}

static void end_poll(struct ibv_cq_ex *public) { pthread_mutex_unlock(&((struct cq *)public)->lock); }

#define READER(type, name, expression)                                                                       \
    static type name(struct ibv_cq_ex *public) {                                                             \
        const struct cqe *cqe = &((struct cq *)public)->now;                                                 \
        (void)cqe;                                                                                           \
        return (type)(expression);                                                                           \
    }
READER(enum ibv_wc_opcode, read_opcode, cqe->opcode)
READER(uint32_t, read_vendor_err, cqe->vendor_err)
READER(uint32_t, read_byte_len, cqe->byte_len)
READER(__be32, read_imm_data, cqe->immediate)
READER(uint32_t, read_qp_num, cqe->qpn)
READER(uint32_t, read_src_qp, cqe->source_qpn)
READER(unsigned, read_wc_flags, cqe->flags)
READER(uint32_t, read_slid, 0)
READER(uint8_t, read_sl, 0)
READER(uint8_t, read_dlid_path_bits, 0)
READER(uint64_t, read_completion_ts, cqe->time / 1000) /* ns: hca_core_clock */

int req_notify_cq(struct ibv_cq *public, int solicited_only) {
    struct cq *cq = cq_of(public);
    if (gone(session_of(public->context)))
        return EIO;
    _Atomic uint32_t *armed = counter(cq->ring, MRCBED_FLAG_AT);
    uint32_t next = 1;
    if (!solicited_only)
        atomic_store(armed, 1);
    else if (!atomic_compare_exchange_strong(armed, &next, 1)) /* armed for every completion, it stays so */
        atomic_store(armed, 2);
    atomic_thread_fence(memory_order_seq_cst); /* the program now polls once more: either it finds the completion, or the agent the flag */
    return 0;
}

/* Those completions of a queue pair that nobody has polled go with it. */
void forget_completions(struct cq *cq, uint32_t qpn) {
    pthread_mutex_lock(&cq->lock);
    uint32_t tail = atomic_load_explicit(counter(cq->ring, MRCBED_TAIL_AT), memory_order_acquire);
    if (tail - cq->head > cq->size)
        tail = cq->head + cq->size;
    for (uint32_t at = cq->head; at != tail; at++) {
        struct cqe *cqe = (struct cqe *)(void *)(cq->ring + MRCBED_RINGS_AT + (size_t)(at & (cq->size - 1)) * MRCBED_SLOT);
        if (cqe->qpn == qpn)
            cqe->qpn = 0; /* no queue pair has this number */
    }
    pthread_mutex_unlock(&cq->lock);
}

/* --- queues --- */

static struct cq *create(struct ibv_context *context, uint32_t cqes, void *cq_context, struct ibv_comp_channel *channel, uint32_t vector) {
    struct session *session = session_of(context);
    struct answer answer;
    int ring;
    struct cq *cq = NULL;
    bool others = channel && channel->context != context; /* another device's */
    int error = !cqes || vector >= (uint32_t)context->num_comp_vectors || others ? EINVAL : 0;
    if (!error) {
        uint64_t arguments[] = {cqes, channel ? ((struct channel *)channel)->handle : 0};
        error = ask(session, MRCBED_CREATE_CQ, arguments, 2, -1, &answer, &ring, 1);
    }
    if (!error) {
        uint8_t *mapped = map_ring(ring, answer.results[1]);
        cq = mapped ? calloc(1, sizeof *cq) : NULL;
        if (cq) {
            cq->ring = mapped;
        } else {
            if (mapped)
                unmap_ring(mapped, answer.results[1]);
            order(session, MRCBED_DESTROY_CQ, answer.results[0]);
            error = ENOMEM;
        }
    }
    if (error) {
        errno = error;
        return NULL;
    }
    cq->size = (uint32_t)answer.results[1];
    pthread_mutex_init(&cq->lock, NULL);
    pthread_mutex_init(&cq->public.mutex, NULL);
    pthread_cond_init(&cq->public.cond, NULL);
    cq->public.context = context;
    cq->public.channel = channel;
    cq->public.cq_context = cq_context;
    cq->public.handle = (uint32_t)answer.results[0];
    cq->public.cqe = (int)cq->size;
    pthread_mutex_lock(&session->objects);
    cq->next = session->cqs;
    session->cqs = cq;
    if (channel)
        channel->refcnt++;
    pthread_mutex_unlock(&session->objects);
    return cq;
}

PUBLIC struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqes, void *cq_context, struct ibv_comp_channel *channel, int vector) {
    PASS(context, "IBVERBS_1.1", ibv_create_cq, context, cqes, cq_context, channel, vector);
    struct cq *cq = create(context, cqes > 0 ? (uint32_t)cqes : 0, cq_context, channel, (uint32_t)vector);
    return cq ? ibv_cq_ex_to_cq(&cq->public) : NULL;
}
BOTH(ibv_create_cq);

struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *asked) {
    const uint64_t known = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    uint32_t flags = asked->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? asked->flags : 0;
    if (asked->wc_flags & ~known || asked->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS ||
        flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct cq *cq = create(context, asked->cqe, asked->cq_context, asked->channel, asked->comp_vector);
    if (!cq)
        return NULL;
    struct ibv_cq_ex *public = &cq->public;
    public->start_poll = start_poll;
    public->next_poll = next_poll;
    public->end_poll = end_poll;
    public->read_opcode = read_opcode;
    public->read_vendor_err = read_vendor_err;
    public->read_byte_len = read_byte_len;
    public->read_imm_data = read_imm_data;
    public->read_qp_num = read_qp_num;
    public->read_src_qp = read_src_qp;
    public->read_wc_flags = read_wc_flags;
    public->read_slid = read_slid;
    public->read_sl = read_sl;
    public->read_dlid_path_bits = read_dlid_path_bits;
    public->read_completion_ts = read_completion_ts;
    return public;
}

PUBLIC int ibv_destroy_cq(struct ibv_cq *public) {
    PASS(public->context, "IBVERBS_1.1", ibv_destroy_cq, public);
    struct session *session = session_of(public->context);
    struct cq *cq = cq_of(public);
    int error = destroy(session, MRCBED_DESTROY_CQ, public->handle);
    if (error)
        return error;
    pthread_mutex_lock(&session->objects);
    for (struct cq **at = &session->cqs; *at; at = &(*at)->next)
        if (*at == cq) {
            *at = cq->next;
            break;
        }
    if (public->channel)
        public->channel->refcnt--;
    pthread_mutex_unlock(&session->objects);
    pthread_mutex_lock(&public->mutex); /* whoever has an event of it acknowledges it first: from now on there is no new one */
    while (public->comp_events_completed != cq->completions_delivered || public->async_events_completed != cq->async_delivered)
        pthread_cond_wait(&public->cond, &public->mutex);
    pthread_mutex_unlock(&public->mutex);
    unmap_ring(cq->ring, cq->size);
    free(cq);
    return 0;
}
BOTH(ibv_destroy_cq);

PUBLIC int ibv_resize_cq(struct ibv_cq *cq, int cqes) {
    PASS(cq->context, "IBVERBS_1.1", ibv_resize_cq, cq, cqes);
    return EOPNOTSUPP;
}
BOTH(ibv_resize_cq);

/* --- channels --- */

PUBLIC struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    PASS(context, "IBVERBS_1.0", ibv_create_comp_channel, context);
    struct session *session = session_of(context);
    struct answer answer;
    struct channel *channel = calloc(1, sizeof *channel);
    if (!channel)
        return NULL;
    int error = ask(session, MRCBED_CREATE_CHANNEL, NULL, 0, -1, &answer, &channel->public.fd, 1);
    if (error) {
        free(channel);
        errno = error;
        return NULL;
    }
    channel->public.context = context;
    channel->handle = (uint32_t)answer.results[0];
    pthread_mutex_lock(&session->objects);
    channel->next = session->channels;
    session->channels = channel;
    pthread_mutex_unlock(&session->objects);
    return &channel->public;
}

PUBLIC int ibv_destroy_comp_channel(struct ibv_comp_channel *public) {
    PASS(public->context, "IBVERBS_1.0", ibv_destroy_comp_channel, public);
    struct session *session = session_of(public->context);
    struct channel *channel = (struct channel *)public;
    if (forked(session)) /* whose lock another thread may have had */
        return EIO;
    pthread_mutex_lock(&session->objects);
    int error = public->refcnt ? EBUSY : 0;
    pthread_mutex_unlock(&session->objects);
    if (!error)
        error = destroy(session, MRCBED_DESTROY_CHANNEL, channel->handle);
    if (error)
        return error;
    pthread_mutex_lock(&session->objects);
    for (struct channel **at = &session->channels; *at; at = &(*at)->next)
        if (*at == channel) {
            *at = channel->next;
            break;
        }
    pthread_mutex_unlock(&session->objects);
    close(public->fd);
    free(channel);
    return 0;
}

PUBLIC int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
    PASS(channel->context, "IBVERBS_1.1", ibv_get_cq_event, channel, cq, cq_context);
    struct session *session = session_of(channel->context);
    for (;;) {
        uint64_t handle;
        if (forked(session)) {
            errno = EIO;
            return -1;
        }
        ssize_t came = recv(channel->fd, &handle, sizeof handle, 0); /* errno as it is: EAGAIN of a non-blocking one, EINTR */
        if (came != sizeof handle) {
            if (came >= 0) {
                bury(session);
                errno = EIO;
            }
            return -1;
        }
        pthread_mutex_lock(&session->objects);
        struct cq *known = session->cqs;
        while (known && known->public.handle != handle)
            known = known->next;
        if (known) { /* else it was destroyed meanwhile: the next one */
            *cq = ibv_cq_ex_to_cq(&known->public);
            *cq_context = known->public.cq_context;
            pthread_mutex_lock(&known->public.mutex);
            known->completions_delivered++;
            pthread_mutex_unlock(&known->public.mutex);
        }
        pthread_mutex_unlock(&session->objects);
        if (known)
            return 0;
    }
}
BOTH(ibv_get_cq_event);

PUBLIC void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) {
    PASS(cq->context, "IBVERBS_1.1", ibv_ack_cq_events, cq, count);
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}
BOTH(ibv_ack_cq_events);
