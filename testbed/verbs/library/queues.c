/* Queue pairs: creating, changing, asking, destroying. */
#include "mrcbed.h"

#include <stdio.h>
#include <stdlib.h>

/* --- what MRC does not have --- */

static const char *const operations[] = {
    [IBV_WR_SEND] = "SEND",
    [IBV_WR_SEND_WITH_IMM] = "SEND with immediate",
    [IBV_WR_RDMA_READ] = "RDMA READ",
    [IBV_WR_ATOMIC_CMP_AND_SWP] = "atomic compare and swap",
    [IBV_WR_ATOMIC_FETCH_AND_ADD] = "atomic fetch and add",
    [IBV_WR_LOCAL_INV] = "local invalidate",
    [IBV_WR_BIND_MW] = "bind of a memory window",
    [IBV_WR_SEND_WITH_INV] = "SEND with invalidate",
    [IBV_WR_TSO] = "segmentation offload",
    [IBV_WR_ATOMIC_WRITE] = "atomic write",
};

/* Returns EOPNOTSUPP, and says so on stderr the first time that an operation is asked for. */
int refuse(struct session *session, unsigned opcode) {
    static atomic_uint said;
    const char *name = opcode < sizeof operations / sizeof *operations ? operations[opcode] : NULL;
    unsigned bit = 1u << (name ? opcode : 31);
    if (!(atomic_fetch_or(&said, bit) & bit)) {
        fprintf(stderr, "mrcbed: %s: %s RDMA WRITE and WRITE with immediate alone; see docs/how/verbs.md\n", name ? name : "this operation",
                session->limits.transport == MRCBED_MRC ? "MRC has" : "programs on emulated hosts have");
    }
    return EOPNOTSUPP;
}

/* Flags of ibv_create_qp_ex to operations. */
static const struct {
    uint64_t flag;
    enum ibv_wr_opcode opcode;
} refused[] = {
    {IBV_QP_EX_WITH_SEND, IBV_WR_SEND},
    {IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM},
    {IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ},
    {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP},
    {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD},
    {IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV},
    {IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW},
    {IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV},
    {IBV_QP_EX_WITH_TSO, IBV_WR_TSO},
    {IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE},
};

static int check_operations(struct session *session, uint64_t flags) {
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++)
        if (flags & refused[i].flag)
            return refuse(session, refused[i].opcode);
    return flags & ~(uint64_t)(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) ? EOPNOTSUPP : 0;
}

/* --- the table --- */

struct qp *find_qp(struct session *session, uint32_t qpn) {
    struct qp *qp = session->qps[qpn % QP_CHAINS];
    while (qp && qp->public.qp_base.qp_num != qpn)
        qp = qp->next;
    return qp;
}

/* --- creating --- */

static void fill_public(struct qp *qp, struct ibv_pd *pd, const struct ibv_qp_init_attr *asked, uint32_t qpn) {
    struct ibv_qp *public = &qp->public.qp_base;
    public->context = pd->context;
    public->qp_context = asked->qp_context;
    public->pd = pd;
    public->send_cq = asked->send_cq;
    public->recv_cq = asked->recv_cq;
    public->handle = public->qp_num = qpn;
    public->state = IBV_QPS_RESET;
    public->qp_type = asked->qp_type;
    pthread_mutex_init(&public->mutex, NULL);
    pthread_cond_init(&public->cond, NULL);
    pthread_mutex_init(&qp->lock, NULL);
}

static int check_qp(struct session *session, const struct ibv_qp_init_attr *asked) {
    if (!asked)
        return EINVAL;
    if (asked->qp_type != IBV_QPT_RC || asked->srq)
        return EOPNOTSUPP;
    if (!asked->send_cq || !asked->recv_cq)
        return EINVAL;
    struct ibv_context *own = &session->verbs.context; /* those of another device have handles that mean something else here */
    if (asked->send_cq->context != own || asked->recv_cq->context != own || asked->cap.max_inline_data > session->limits.inline_bytes)
        return EINVAL;
    return gone(session) ? EIO : 0;
}

/* Creates a queue pair; NULL with errno. Puts the capacities that were granted into `asked`. */
static struct qp *create(struct ibv_pd *pd, struct ibv_qp_init_attr *asked) {
    struct session *session = session_of(pd->context);
    struct answer answer;
    int error = check_qp(session, asked);
    struct qp *qp = error ? NULL : calloc(1, sizeof *qp);
    if (!qp) {
        if (error)
            errno = error;
        return NULL;
    }
    struct ibv_qp_cap *cap = &asked->cap;
    uint64_t arguments[] = {
        pd->handle, asked->send_cq->handle, asked->recv_cq->handle, asked->qp_type, cap->max_send_wr, cap->max_recv_wr,
        cap->max_send_sge, cap->max_recv_sge, cap->max_inline_data, (uint64_t)!!asked->sq_sig_all,
    };
    error = ask(session, MRCBED_CREATE_QP, arguments, sizeof arguments / sizeof *arguments, -1, &answer, NULL, 0);
    if (error) {
        free(qp);
        errno = error;
        return NULL;
    }
    const uint64_t *granted = answer.results + 1;
    *cap = (struct ibv_qp_cap){
        .max_send_wr = (uint32_t)granted[0],
        .max_recv_wr = (uint32_t)granted[1],
        .max_send_sge = granted[2] < MRCBED_MOST_SGES ? (uint32_t)granted[2] : MRCBED_MOST_SGES,
        .max_recv_sge = granted[3] < MRCBED_MOST_SGES ? (uint32_t)granted[3] : MRCBED_MOST_SGES,
        .max_inline_data = granted[4] < MRCBED_MOST_INLINE ? (uint32_t)granted[4] : MRCBED_MOST_INLINE,
    };
    qp->asked = *asked;
    qp->send = (struct side){.most = cap->max_send_wr, .sges = cap->max_send_sge};
    qp->recv = (struct side){.most = cap->max_recv_wr, .sges = cap->max_recv_sge};
    fill_public(qp, pd, asked, (uint32_t)answer.results[0]);
    pthread_mutex_lock(&session->objects);
    struct qp **chain = &session->qps[qp->public.qp_base.qp_num % QP_CHAINS];
    qp->next = *chain;
    *chain = qp;
    pthread_mutex_unlock(&session->objects);
    return qp;
}

PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *asked) {
    PASS(pd->context, "IBVERBS_1.1", ibv_create_qp, pd, asked);
    struct qp *qp = create(pd, asked);
    return qp ? &qp->public.qp_base : NULL;
}
BOTH(ibv_create_qp);

struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *asked) {
    const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    bool extended = asked->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    int error = 0;
    if (asked->comp_mask & ~known || (asked->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && asked->create_flags))
        error = EOPNOTSUPP;
    else if (!(asked->comp_mask & IBV_QP_INIT_ATTR_PD) || !asked->pd || asked->pd->context != context)
        error = EINVAL;
    else if (extended)
        error = check_operations(session_of(context), asked->send_ops_flags);
    if (error) {
        errno = error;
        return NULL;
    }
    struct qp *qp = create(asked->pd, (struct ibv_qp_init_attr *)asked); /* its beginning, by the header's own inline function */
    if (!qp)
        return NULL;
    qp->extended = extended;
    if (extended)
        fill_wr_functions(qp);
    return &qp->public.qp_base;
}

PUBLIC struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
    PASS(qp->context, "IBVERBS_1.6", ibv_qp_to_qp_ex, qp);
    return qp_of(qp)->extended ? &qp_of(qp)->public : NULL;
}

/* --- changing and asking --- */

PUBLIC int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask) {
    PASS(qp->context, "IBVERBS_1.1", ibv_modify_qp, qp, a, mask);
    struct session *session = session_of(qp->context);
    if (!a)
        return EINVAL;
    if (mask & IBV_QP_AV && (a->ah_attr.port_num < 1 || a->ah_attr.port_num > session->limits.ports))
        return EINVAL;
    uint64_t arguments[2 + MRCBED_QP_ATTRIBUTES] = {qp->qp_num, (unsigned)mask};
    uint64_t *to = arguments + 2;
    to[MRCBED_QP_STATE] = a->qp_state;
    to[MRCBED_QP_CUR_STATE] = a->cur_qp_state;
    to[MRCBED_QP_ACCESS] = a->qp_access_flags;
    to[MRCBED_QP_PKEY_INDEX] = a->pkey_index;
    to[MRCBED_QP_PORT] = a->port_num;
    to[MRCBED_QP_PATH_MTU] = a->path_mtu;
    to[MRCBED_QP_DEST_QPN] = a->dest_qp_num;
    to[MRCBED_QP_RQ_PSN] = a->rq_psn;
    to[MRCBED_QP_SQ_PSN] = a->sq_psn;
    memcpy(to + MRCBED_QP_DGID_FIRST, a->ah_attr.grh.dgid.raw, 8);
    memcpy(to + MRCBED_QP_DGID_LAST, a->ah_attr.grh.dgid.raw + 8, 8);
    to[MRCBED_QP_IS_GLOBAL] = a->ah_attr.is_global;
    to[MRCBED_QP_SGID_INDEX] = a->ah_attr.grh.sgid_index;
    to[MRCBED_QP_HOP_LIMIT] = a->ah_attr.grh.hop_limit;
    to[MRCBED_QP_TRAFFIC_CLASS] = a->ah_attr.grh.traffic_class;
    to[MRCBED_QP_MAX_DEST_RD_ATOMIC] = a->max_dest_rd_atomic;
    to[MRCBED_QP_MAX_RD_ATOMIC] = a->max_rd_atomic;
    to[MRCBED_QP_MIN_RNR_TIMER] = a->min_rnr_timer;
    to[MRCBED_QP_TIMEOUT] = a->timeout;
    to[MRCBED_QP_RETRY_CNT] = a->retry_cnt;
    to[MRCBED_QP_RNR_RETRY] = a->rnr_retry;
    to[MRCBED_QP_EN_SQD_ASYNC_NOTIFY] = a->en_sqd_async_notify;
    to[MRCBED_QP_QKEY] = a->qkey;
    struct answer answer;
    int error = ask(session, MRCBED_MODIFY_QP, arguments, sizeof arguments / sizeof *arguments, -1, &answer, NULL, 0);
    if (error)
        return error;
    qp->state = (enum ibv_qp_state)answer.results[0];
    if (mask & IBV_QP_STATE && qp->state == IBV_QPS_RESET) { /* all that was posted is forgotten; both sides count from 0 again */
        forget_completions(cq_of(qp->send_cq), qp->qp_num);
        forget_completions(cq_of(qp->recv_cq), qp->qp_num);
        pthread_mutex_lock(&session->ring_lock);
        qp_of(qp)->send.posted = qp_of(qp)->send.retired = qp_of(qp)->recv.posted = qp_of(qp)->recv.retired = 0;
        pthread_mutex_unlock(&session->ring_lock);
    }
    return 0;
}
BOTH(ibv_modify_qp);

PUBLIC int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask, struct ibv_qp_init_attr *init) {
    PASS(qp->context, "IBVERBS_1.1", ibv_query_qp, qp, attributes, mask, init);
    struct answer answer;
    uint64_t qpn = qp->qp_num;
    int error = !attributes || !init ? EINVAL : ask(session_of(qp->context), MRCBED_QUERY_QP, &qpn, 1, -1, &answer, NULL, 0);
    if (error)
        return error;
    const uint64_t *is = answer.results;
    *attributes = (struct ibv_qp_attr){
        .qp_state = (enum ibv_qp_state)is[MRCBED_QP_STATE],
        .cur_qp_state = (enum ibv_qp_state)is[MRCBED_QP_CUR_STATE],
        .path_mtu = (enum ibv_mtu)is[MRCBED_QP_PATH_MTU],
        .path_mig_state = IBV_MIG_MIGRATED,
        .qkey = (uint32_t)is[MRCBED_QP_QKEY],
        .rq_psn = (uint32_t)is[MRCBED_QP_RQ_PSN],
        .sq_psn = (uint32_t)is[MRCBED_QP_SQ_PSN],
        .dest_qp_num = (uint32_t)is[MRCBED_QP_DEST_QPN],
        .qp_access_flags = (unsigned)is[MRCBED_QP_ACCESS],
        .cap = qp_of(qp)->asked.cap,
        .ah_attr = {
            .grh = {
                .sgid_index = (uint8_t)is[MRCBED_QP_SGID_INDEX],
                .hop_limit = (uint8_t)is[MRCBED_QP_HOP_LIMIT],
                .traffic_class = (uint8_t)is[MRCBED_QP_TRAFFIC_CLASS],
            },
            .is_global = (uint8_t)is[MRCBED_QP_IS_GLOBAL],
            .port_num = (uint8_t)is[MRCBED_QP_PORT],
        },
        .pkey_index = (uint16_t)is[MRCBED_QP_PKEY_INDEX],
        .en_sqd_async_notify = (uint8_t)is[MRCBED_QP_EN_SQD_ASYNC_NOTIFY],
        .max_rd_atomic = (uint8_t)is[MRCBED_QP_MAX_RD_ATOMIC],
        .max_dest_rd_atomic = (uint8_t)is[MRCBED_QP_MAX_DEST_RD_ATOMIC],
        .min_rnr_timer = (uint8_t)is[MRCBED_QP_MIN_RNR_TIMER],
        .port_num = (uint8_t)is[MRCBED_QP_PORT],
        .timeout = (uint8_t)is[MRCBED_QP_TIMEOUT],
        .retry_cnt = (uint8_t)is[MRCBED_QP_RETRY_CNT],
        .rnr_retry = (uint8_t)is[MRCBED_QP_RNR_RETRY],
    };
    memcpy(attributes->ah_attr.grh.dgid.raw, is + MRCBED_QP_DGID_FIRST, 8);
    memcpy(attributes->ah_attr.grh.dgid.raw + 8, is + MRCBED_QP_DGID_LAST, 8);
    qp->state = attributes->qp_state;
    *init = qp_of(qp)->asked;
    return 0;
}
BOTH(ibv_query_qp);

PUBLIC int ibv_destroy_qp(struct ibv_qp *public) {
    PASS(public->context, "IBVERBS_1.1", ibv_destroy_qp, public);
    struct session *session = session_of(public->context);
    struct qp *qp = qp_of(public);
    int error = destroy(session, MRCBED_DESTROY_QP, public->qp_num);
    if (error)
        return error;
    pthread_mutex_lock(&session->objects);
    for (struct qp **at = &session->qps[public->qp_num % QP_CHAINS]; *at; at = &(*at)->next)
        if (*at == qp) {
            *at = qp->next;
            break;
        }
    pthread_mutex_unlock(&session->objects);
    forget_completions(cq_of(public->send_cq), public->qp_num);
    forget_completions(cq_of(public->recv_cq), public->qp_num);
    pthread_mutex_lock(&public->mutex); /* whoever has an event of it acknowledges it first */
    while (public->events_completed != qp->async_delivered)
        pthread_cond_wait(&public->cond, &public->mutex);
    pthread_mutex_unlock(&public->mutex);
    free(qp->staged);
    free(qp);
    return 0;
}
BOTH(ibv_destroy_qp);
