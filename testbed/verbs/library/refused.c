/* The operations of a context, and those verbs which the emulated device does not have: EOPNOTSUPP for its objects. */
#include "mrcbed.h"

#include <infiniband/sa.h>

static void *nothing(int error) {
    errno = error;
    return NULL;
}

/* --- what the header's inline functions call --- */

static void *no_such_operation(void) { return nothing(EOPNOTSUPP); }
static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
    (void)qp, (void)mw, (void)bind;
    return EOPNOTSUPP;
}
static int dealloc_mw(struct ibv_mw *mw) {
    (void)mw;
    return EOPNOTSUPP;
}
static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    (void)srq;
    *bad = wr;
    return EOPNOTSUPP;
}

/* What is NULL in the extended context, the header's inline functions answer with EOPNOTSUPP; so for alloc_mw. */
void fill_operations(struct verbs_context *verbs) {
    verbs->sz = sizeof *verbs;
    verbs->query_port = query_port;
    verbs->query_device_ex = query_device_ex;
    verbs->create_cq_ex = create_cq_ex;
    verbs->create_qp_ex = create_qp_ex;
    verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    verbs->context.ops = (struct ibv_context_ops){
        ._compat_query_device = ibv_query_device,
        ._compat_query_port = ibv_query_port,
        ._compat_alloc_pd = no_such_operation,
        ._compat_dealloc_pd = no_such_operation,
        ._compat_reg_mr = no_such_operation,
        ._compat_rereg_mr = no_such_operation,
        ._compat_dereg_mr = no_such_operation,
        .bind_mw = bind_mw,
        .dealloc_mw = dealloc_mw,
        ._compat_create_cq = no_such_operation,
        .poll_cq = poll_cq,
        .req_notify_cq = req_notify_cq,
        ._compat_cq_event = no_such_operation,
        ._compat_resize_cq = no_such_operation,
        ._compat_destroy_cq = no_such_operation,
        ._compat_create_srq = no_such_operation,
        ._compat_modify_srq = no_such_operation,
        ._compat_query_srq = no_such_operation,
        ._compat_destroy_srq = no_such_operation,
        .post_srq_recv = post_srq_recv,
        ._compat_create_qp = no_such_operation,
        ._compat_query_qp = no_such_operation,
        ._compat_modify_qp = no_such_operation,
        ._compat_destroy_qp = no_such_operation,
        .post_send = post_send,
        .post_recv = post_recv,
        ._compat_create_ah = no_such_operation,
        ._compat_destroy_ah = no_such_operation,
        ._compat_attach_mcast = no_such_operation,
        ._compat_detach_mcast = no_such_operation,
        ._compat_async_event = no_such_operation,
    };
}

/* --- public functions: name, version, parameters, arguments, the context of the object --- */

#define REFUSED_INT(name, version, context, answer, parameters, ...)                                         \
    PUBLIC int name parameters {                                                                             \
        PASS(context, version, name, __VA_ARGS__);                                                           \
        errno = EOPNOTSUPP;                                                                                  \
        return answer;                                                                                       \
    }
#define REFUSED_POINTER(type, name, version, context, parameters, ...)                                       \
    PUBLIC type *name parameters {                                                                           \
        PASS(context, version, name, __VA_ARGS__);                                                           \
        return nothing(EOPNOTSUPP);                                                                          \
    }
#define REFUSED_VOID(name, version, object, parameter)                                                       \
    PUBLIC void name(parameter) { PASS(object->context, version, name, object); }

REFUSED_INT(ibv_rereg_mr, "IBVERBS_1.1", mr->context, IBV_REREG_MR_ERR_INPUT,
            (struct ibv_mr * mr, int flags, struct ibv_pd *pd, void *address, size_t bytes, int access), mr, flags, pd, address, bytes, access)
REFUSED_POINTER(struct ibv_mr, ibv_reg_dmabuf_mr, "IBVERBS_1.12", pd->context,
                (struct ibv_pd * pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access), pd, offset, bytes, iova, fd, access)

REFUSED_POINTER(struct ibv_srq, ibv_create_srq, "IBVERBS_1.1", pd->context, (struct ibv_pd * pd, struct ibv_srq_init_attr *init), pd, init)
BOTH(ibv_create_srq);
REFUSED_INT(ibv_modify_srq, "IBVERBS_1.1", srq->context, EOPNOTSUPP, (struct ibv_srq * srq, struct ibv_srq_attr *attributes, int mask), srq,
            attributes, mask)
BOTH(ibv_modify_srq);
REFUSED_INT(ibv_query_srq, "IBVERBS_1.1", srq->context, EOPNOTSUPP, (struct ibv_srq * srq, struct ibv_srq_attr *attributes), srq, attributes)
BOTH(ibv_query_srq);
REFUSED_INT(ibv_destroy_srq, "IBVERBS_1.1", srq->context, EOPNOTSUPP, (struct ibv_srq * srq), srq)
BOTH(ibv_destroy_srq);

REFUSED_POINTER(struct ibv_ah, ibv_create_ah, "IBVERBS_1.1", pd->context, (struct ibv_pd * pd, struct ibv_ah_attr *attributes), pd, attributes)
BOTH(ibv_create_ah);
REFUSED_POINTER(struct ibv_ah, ibv_create_ah_from_wc, "IBVERBS_1.1", pd->context,
                (struct ibv_pd * pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port), pd, wc, grh, port)
REFUSED_INT(ibv_init_ah_from_wc, "IBVERBS_1.1", context, -1,
            (struct ibv_context * context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attributes), context, port,
            wc, grh, attributes)
REFUSED_INT(ibv_destroy_ah, "IBVERBS_1.1", ah->context, EOPNOTSUPP, (struct ibv_ah * ah), ah)
BOTH(ibv_destroy_ah);
REFUSED_INT(ibv_resolve_eth_l2_from_gid, "IBVERBS_1.1", context, -1,
            (struct ibv_context * context, struct ibv_ah_attr *attributes, uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vlan), context, attributes,
            mac, vlan)

REFUSED_INT(ibv_attach_mcast, "IBVERBS_1.1", qp->context, EOPNOTSUPP, (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid), qp, gid, lid)
BOTH(ibv_attach_mcast);
REFUSED_INT(ibv_detach_mcast, "IBVERBS_1.1", qp->context, EOPNOTSUPP, (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid), qp, gid, lid)
BOTH(ibv_detach_mcast);

REFUSED_INT(ibv_set_ece, "IBVERBS_1.10", qp->context, EOPNOTSUPP, (struct ibv_qp * qp, struct ibv_ece *ece), qp, ece)
REFUSED_INT(ibv_query_ece, "IBVERBS_1.10", qp->context, EOPNOTSUPP, (struct ibv_qp * qp, struct ibv_ece *ece), qp, ece)

/* 0: a sprayed message does not arrive in order. */
REFUSED_INT(ibv_query_qp_data_in_order, "IBVERBS_1.14", qp->context, 0, (struct ibv_qp * qp, enum ibv_wr_opcode opcode, uint32_t flags), qp,
            opcode, flags)

/* Importing another process's objects by their kernel descriptor: a descriptor that is none of ours is the kernel's. */
PUBLIC struct ibv_context *ibv_import_device(int descriptor) {
    if (inside(NULL))
        return nothing(EOPNOTSUPP);
    static __typeof__(&ibv_import_device) there;
    if (!there)
        there = real("ibv_import_device", "IBVERBS_1.10");
    return there(descriptor);
}
REFUSED_POINTER(struct ibv_pd, ibv_import_pd, "IBVERBS_1.10", context, (struct ibv_context * context, uint32_t handle), context, handle)
REFUSED_POINTER(struct ibv_mr, ibv_import_mr, "IBVERBS_1.10", pd->context, (struct ibv_pd * pd, uint32_t handle), pd, handle)
REFUSED_POINTER(struct ibv_dm, ibv_import_dm, "IBVERBS_1.13", context, (struct ibv_context * context, uint32_t handle), context, handle)
REFUSED_VOID(ibv_unimport_pd, "IBVERBS_1.10", pd, struct ibv_pd *pd)
REFUSED_VOID(ibv_unimport_mr, "IBVERBS_1.10", mr, struct ibv_mr *mr)
REFUSED_VOID(ibv_unimport_dm, "IBVERBS_1.13", dm, struct ibv_dm *dm)
