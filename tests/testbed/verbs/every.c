/* Goes through every public function of the verbs library, with right and wrong arguments, against tests/testbed/verbs/agent.py. Says what
 * does not hold, by line, and ends with how many. Built with sanitizers as a rule, the library, too. */
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
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
        errno = 0;                                                                                           \
        if (!(condition)) {                                                                                  \
            wrong++;                                                                                         \
            printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #condition, errno);                         \
        }                                                                                                    \
    } while (0)
#define FAILS(call, number) HOLDS(!(call) && errno == (number)) /* what gives a pointer */
#define MINUS(call, number) HOLDS((call) == -1 && errno == (number))

/* Private, or not in a header. */
int ibv_query_gid_type(struct ibv_context *, uint8_t, unsigned, uint32_t *);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *, const char *, char *, size_t);
int ibv_dontfork_range(void *, size_t), ibv_dofork_range(void *, size_t);
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *, struct ib_uverbs_ah_attr *);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *, struct ib_uverbs_qp_attr *);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *, struct ib_user_path_rec *);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *, struct ibv_sa_path_rec *);

#define PAGE 4096

static struct ibv_context *opened(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    return context;
}

static void names(void) {
    for (int i = -2; i < 300; i++) {
        HOLDS(*ibv_wc_status_str(i) && *ibv_event_type_str(i) && *ibv_node_type_str(i) && *ibv_port_state_str(i));
        int multiple = ibv_rate_to_mult(i), mbps = ibv_rate_to_mbps(i);
        HOLDS(multiple == -1 || mult_to_ibv_rate(multiple) == (enum ibv_rate)i);
        HOLDS(mbps == -1 || mbps_to_ibv_rate(mbps) == (enum ibv_rate)i);
    }
    HOLDS(mult_to_ibv_rate(0) == IBV_RATE_MAX && mbps_to_ibv_rate(-1) == IBV_RATE_MAX && ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125);
    HOLDS(!ibv_fork_init() && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED && !ibv_dontfork_range(NULL, 0) && !ibv_dofork_range(NULL, 0));
    char text[8], folder[1000];
    HOLDS(!strcmp(ibv_get_sysfs_path(), "/sys"));
    setenv("SYSFS_PATH", "/elsewhere", 1);
    HOLDS(!strcmp(ibv_get_sysfs_path(), "/elsewhere"));
    memset(folder, 'x', sizeof folder - 1);
    folder[sizeof folder - 1] = 0;
    HOLDS(ibv_read_sysfs_file(folder, "board_id", text, sizeof text) == -1);
    HOLDS(ibv_read_sysfs_file("/nowhere", "board_id", text, sizeof text) == -1);
    HOLDS(ibv_read_sysfs_file("/sys/class/infiniband/mrcbed0", "board_id", text, sizeof text) == 6 && !strcmp(text, "mrcbed"));
    HOLDS(ibv_read_sysfs_file("/sys/class/infiniband/mrcbed0", "board_id", text, 6) == -1);
    HOLDS(ibv_read_sysfs_file("/proc/self", "comm", text, sizeof text) == 5 && !strcmp(text, "every"));
    HOLDS(ibv_read_sysfs_file("/proc/self", "comm", text, 6) == -1 && ibv_read_sysfs_file("/proc/self", "status", text, sizeof text) == -1);
    struct ib_uverbs_qp_attr kernel = {.dest_qp_num = 7, .ah_attr.grh.dgid = {9}};
    struct ibv_qp_attr attributes;
    ibv_copy_qp_attr_from_kern(&attributes, &kernel);
    HOLDS(attributes.dest_qp_num == 7 && attributes.ah_attr.grh.dgid.raw[0] == 9);
    struct ib_user_path_rec there = {.dgid = {1}, .mtu = 5}, back;
    struct ibv_sa_path_rec here;
    memset(&back, 0, sizeof back);
    ibv_copy_path_rec_from_kern(&here, &there);
    ibv_copy_path_rec_to_kern(&back, &here);
    HOLDS(here.dgid.raw[0] == 1 && back.dgid[0] == 1 && back.mtu == 5);
}

static void device(void) {
    int count = 7;
    struct ibv_device **list = ibv_get_device_list(&count);
    HOLDS(list && count == 1 && !list[1]);
    HOLDS(!strcmp(ibv_get_device_name(list[0]), "mrcbed0") && ibv_get_device_guid(list[0]) && ibv_get_device_index(list[0]) == -1);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    ibv_free_device_list(NULL);
    HOLDS(context);
    struct ibv_device_attr attributes;
    HOLDS(!ibv_query_device(context, &attributes) && attributes.max_qp == 64 && attributes.phys_port_cnt == 1);
    HOLDS(ibv_query_device(context, NULL) == EINVAL);
    struct ibv_device_attr_ex more;
    HOLDS(!ibv_query_device_ex(context, NULL, &more) && more.orig_attr.max_qp == 64 && more.hca_core_clock);
    HOLDS(ibv_query_device_ex(context, &(struct ibv_query_device_ex_input){.comp_mask = 1}, &more) == EINVAL);
    struct ibv_port_attr port;
    HOLDS(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE && port.gid_tbl_len == 2 && port.flags);
    HOLDS(ibv_query_port(context, 0, &port) == EINVAL && ibv_query_port(context, 2, &port) == EINVAL && ibv_query_port(context, 255, &port) == EINVAL);
    union ibv_gid gid;
    struct ibv_gid_entry entry, entries[3];
    uint32_t type;
    uint16_t pkey;
    HOLDS(!ibv_query_gid(context, 1, 0, &gid) && gid.raw[0] == 0xfd && !ibv_query_gid(context, 1, 1, &gid) && gid.raw[11] == 0xff);
    MINUS(ibv_query_gid(context, 1, 2, &gid), EINVAL);
    MINUS(ibv_query_gid(context, 1, -1, &gid), EINVAL);
    MINUS(ibv_query_gid(context, 0, 0, &gid), EINVAL);
    HOLDS(!ibv_query_gid_ex(context, 1, 1, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.gid_index == 1);
    HOLDS(ibv_query_gid_ex(context, 1, 1, &entry, 1) == EOPNOTSUPP && ibv_query_gid_ex(context, 1, 9, &entry, 0) == EINVAL);
    HOLDS(ibv_query_gid_table(context, entries, 3, 0) == 2 && ibv_query_gid_table(context, entries, 1, 0) == -EINVAL);
    HOLDS(ibv_query_gid_table(context, entries, 3, 4) == -EOPNOTSUPP && ibv_query_gid_table(context, NULL, 0, 0) == -EINVAL);
    HOLDS(!ibv_query_gid_type(context, 1, 0, &type) && type == 1);
    MINUS(ibv_query_gid_type(context, 1, 7, &type), EINVAL);
    HOLDS(!ibv_query_pkey(context, 1, 0, &pkey) && pkey == 0xffff && ibv_get_pkey_index(context, 1, pkey) == 0);
    MINUS(ibv_query_pkey(context, 1, 1, &pkey), EINVAL);
    MINUS(ibv_query_pkey(context, 2, 0, &pkey), EINVAL);
    MINUS(ibv_get_pkey_index(context, 1, 1), EINVAL);
    MINUS(ibv_get_pkey_index(context, 3, pkey), EINVAL);
    HOLDS(!ibv_close_device(context));
}

static void memory(void) {
    struct ibv_context *context = opened();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    HOLDS(pd);
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    char *pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 3 * PAGE, PAGE);
    mprotect(pages + 2 * PAGE, PAGE, PROT_READ);
    struct ibv_mr *mr = ibv_reg_mr(pd, pages, 2 * PAGE, all), *again = ibv_reg_mr(pd, pages + 100, PAGE, all | IBV_ACCESS_RELAXED_ORDERING);
    HOLDS(mr && again && mr->lkey != again->lkey && mr->addr == pages && mr->length == 2 * PAGE && mr->pd == pd);
    HOLDS(!ibv_dereg_mr(again));
    again = ibv_reg_mr_iova(pd, pages + 2 * PAGE, PAGE, 64, IBV_ACCESS_REMOTE_READ); /* may be read, which is all that is asked for */
    HOLDS(again);
    HOLDS(!again || !ibv_dereg_mr(again));
    FAILS(ibv_reg_mr(pd, pages + PAGE, PAGE + 1, all), EFAULT);      /* its last byte is read-only */
    FAILS(ibv_reg_mr(pd, pages + 3 * PAGE - 1, 2, 0), EFAULT);       /* its last byte is not there */
    FAILS(ibv_reg_mr(pd, NULL, PAGE, all), EFAULT);
    FAILS(ibv_reg_mr(pd, pages, 0, all), EINVAL);
    FAILS(ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 10), 100, all), EINVAL);
    FAILS(ibv_reg_mr_iova(pd, pages, PAGE, UINT64_MAX - 10, all), EINVAL);
    FAILS(ibv_reg_mr(pd, pages, PAGE, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    FAILS(ibv_reg_mr(pd, pages, PAGE, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
    FAILS(ibv_reg_mr(pd, pages, PAGE, all | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
    FAILS(ibv_reg_mr(pd, pages, PAGE, all | IBV_ACCESS_MW_BIND), EOPNOTSUPP);
    FAILS(ibv_reg_mr(pd, pages, PAGE, 1 << 19), EINVAL);
    FAILS(ibv_reg_mr(pd, pages, (size_t)1 << 40, all), ENOMEM);
    HOLDS(ibv_dealloc_pd(pd) == EBUSY);
    HOLDS(ibv_rereg_mr(mr, 0, pd, pages, PAGE, all) == IBV_REREG_MR_ERR_INPUT);
    FAILS(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, 0, all), EOPNOTSUPP);
    FAILS(ibv_alloc_mw(pd, IBV_MW_TYPE_1), EOPNOTSUPP);
    FAILS(ibv_alloc_null_mr(pd), EOPNOTSUPP);
    FAILS(ibv_alloc_dm(context, &(struct ibv_alloc_dm_attr){.length = 8}), EOPNOTSUPP);
    FAILS(ibv_alloc_td(context, &(struct ibv_td_init_attr){0}), EOPNOTSUPP);
    FAILS(ibv_alloc_parent_domain(context, &(struct ibv_parent_domain_init_attr){.pd = pd}), EOPNOTSUPP);
    HOLDS(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0) == EOPNOTSUPP);
    FAILS(ibv_import_device(0), EOPNOTSUPP);
    FAILS(ibv_import_pd(context, 1), EOPNOTSUPP);
    FAILS(ibv_import_mr(pd, 1), EOPNOTSUPP);
    FAILS(ibv_import_dm(context, 1), EOPNOTSUPP);
    ibv_unimport_pd(pd);
    ibv_unimport_mr(mr);
    ibv_unimport_dm(&(struct ibv_dm){.context = context});
    FAILS(ibv_create_srq(pd, &(struct ibv_srq_init_attr){.attr.max_wr = 1, .attr.max_sge = 1}), EOPNOTSUPP);
    FAILS(ibv_create_srq_ex(context, &(struct ibv_srq_init_attr_ex){.attr.max_wr = 1}), EOPNOTSUPP);
    struct ibv_srq srq = {.context = context};
    struct ibv_srq_attr srq_attributes;
    struct ibv_recv_wr request = {.wr_id = 1}, *bad;
    HOLDS(ibv_modify_srq(&srq, &srq_attributes, 0) == EOPNOTSUPP && ibv_query_srq(&srq, &srq_attributes) == EOPNOTSUPP);
    HOLDS(ibv_destroy_srq(&srq) == EOPNOTSUPP && ibv_post_srq_recv(&srq, &request, &bad) == EOPNOTSUPP && bad == &request);
    struct ibv_ah_attr address = {.port_num = 1};
    struct ibv_wc wc = {0};
    uint8_t mac[6];
    uint16_t vlan;
    FAILS(ibv_create_ah(pd, &address), EOPNOTSUPP);
    FAILS(ibv_create_ah_from_wc(pd, &wc, NULL, 1), EOPNOTSUPP);
    MINUS(ibv_init_ah_from_wc(context, 1, &wc, NULL, &address), EOPNOTSUPP);
    MINUS(ibv_resolve_eth_l2_from_gid(context, &address, mac, &vlan), EOPNOTSUPP);
    HOLDS(ibv_destroy_ah(&(struct ibv_ah){.context = context}) == EOPNOTSUPP);
    HOLDS(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    munmap(pages, 3 * PAGE);
}

static void queues(void) {
    struct ibv_context *context = opened(), *other = opened();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context), *theirs = ibv_create_comp_channel(other);
    struct ibv_pd *pd = ibv_alloc_pd(context), *their_pd = ibv_alloc_pd(other);
    struct ibv_cq *cq = ibv_create_cq(context, 5, &wrong, channel, 0), *their_cq = ibv_create_cq(other, 5, NULL, NULL, 0);
    HOLDS(cq && cq->cqe == 8 && cq->cq_context == &wrong && cq->channel == channel && their_cq);
    FAILS(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
    FAILS(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
    FAILS(ibv_create_cq(context, 4097, NULL, NULL, 0), EINVAL);
    FAILS(ibv_create_cq(context, 5, NULL, NULL, 1), EINVAL);
    FAILS(ibv_create_cq(context, 5, NULL, NULL, -1), EINVAL);
    FAILS(ibv_create_cq(context, 5, NULL, theirs, 0), EINVAL);
    FAILS(ibv_create_cq_ex(context, &(struct ibv_cq_init_attr_ex){.cqe = 5, .wc_flags = IBV_WC_EX_WITH_FLOW_TAG}), EOPNOTSUPP);
    FAILS(ibv_create_cq_ex(context, &(struct ibv_cq_init_attr_ex){.cqe = 5, .comp_mask = 1, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN}), EOPNOTSUPP);
    FAILS(ibv_create_cq_ex(context, &(struct ibv_cq_init_attr_ex){.cqe = 5, .comp_mask = 1u << 20}), EOPNOTSUPP);
    HOLDS(ibv_resize_cq(cq, 10) == EOPNOTSUPP && ibv_modify_cq(cq, &(struct ibv_modify_cq_attr){0}) == EOPNOTSUPP);
    HOLDS(ibv_destroy_comp_channel(channel) == EBUSY);

    struct ibv_qp_init_attr asked = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {10, 10, 2, 2, 100}};
    const struct ibv_qp_init_attr good = asked;
    struct ibv_qp *qp = ibv_create_qp(pd, &asked);
    HOLDS(qp && qp->qp_num && qp->state == IBV_QPS_RESET && asked.cap.max_send_wr >= 10 && !ibv_qp_to_qp_ex(qp));
#define REFUSED_WITH(number, ...)                                                                            \
    do {                                                                                                     \
        asked = good;                                                                                        \
        __VA_ARGS__;                                                                                         \
        FAILS(ibv_create_qp(pd, &asked), number);                                                            \
    } while (0)
    for (int type = 0; type < 12; type++)
        if (type != IBV_QPT_RC)
            REFUSED_WITH(EOPNOTSUPP, asked.qp_type = type);
    REFUSED_WITH(EOPNOTSUPP, asked.srq = (struct ibv_srq *)pd);
    REFUSED_WITH(EINVAL, asked.send_cq = NULL);
    REFUSED_WITH(EINVAL, asked.recv_cq = NULL);
    REFUSED_WITH(EINVAL, asked.send_cq = their_cq);
    REFUSED_WITH(EINVAL, asked.recv_cq = their_cq);
    REFUSED_WITH(EINVAL, asked.cap.max_send_wr = 1025);
    REFUSED_WITH(EINVAL, asked.cap.max_recv_wr = UINT32_MAX);
    REFUSED_WITH(EINVAL, asked.cap.max_send_sge = 17);
    REFUSED_WITH(EINVAL, asked.cap.max_recv_sge = UINT32_MAX);
    REFUSED_WITH(EINVAL, asked.cap.max_inline_data = 513);
    FAILS(ibv_create_qp(pd, NULL), EINVAL);
    struct ibv_qp_init_attr_ex extended = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {10, 10, 2, 2, 100},
                                           .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
                                           .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM};
    const struct ibv_qp_init_attr_ex fine = extended;
#define EX_REFUSED_WITH(number, ...)                                                                         \
    do {                                                                                                     \
        extended = fine;                                                                                     \
        __VA_ARGS__;                                                                                         \
        FAILS(ibv_create_qp_ex(context, &extended), number);                                                 \
    } while (0)
    EX_REFUSED_WITH(EINVAL, extended.pd = NULL);
    EX_REFUSED_WITH(EINVAL, extended.pd = their_pd);
    EX_REFUSED_WITH(EINVAL, extended.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    EX_REFUSED_WITH(EOPNOTSUPP, extended.comp_mask |= IBV_QP_INIT_ATTR_XRCD);
    EX_REFUSED_WITH(EOPNOTSUPP, extended.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS; extended.create_flags = 1);
    for (int bit = 0; bit < 64; bit++)
        if (!(fine.send_ops_flags >> bit & 1))
            EX_REFUSED_WITH(EOPNOTSUPP, extended.send_ops_flags |= 1ull << bit);
    struct ibv_qp *many[64];
    int made = 0;
    while (made < 64 && (many[made] = ibv_create_qp(pd, &asked)))
        made++;
    while (made)
        HOLDS(!ibv_destroy_qp(many[--made]));

    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    HOLDS(ibv_modify_qp(qp, NULL, IBV_QP_STATE) == EINVAL && ibv_query_qp(qp, NULL, 0, &asked) == EINVAL);
    HOLDS(ibv_query_qp(qp, &attributes, 0, NULL) == EINVAL);
    attributes.qp_state = IBV_QPS_RTR;
    HOLDS(ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == EINVAL);
    attributes.ah_attr.port_num = 2;
    HOLDS(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_AV) == EINVAL);
    HOLDS(!ibv_query_qp(qp, &attributes, IBV_QP_STATE, &asked) && attributes.qp_state == IBV_QPS_RESET && asked.qp_type == IBV_QPT_RC);
    HOLDS(ibv_attach_mcast(qp, NULL, 0) == EOPNOTSUPP && ibv_detach_mcast(qp, NULL, 0) == EOPNOTSUPP);
    HOLDS(ibv_set_ece(qp, &(struct ibv_ece){0}) == EOPNOTSUPP && ibv_query_ece(qp, &(struct ibv_ece){0}) == EOPNOTSUPP);
    HOLDS(!ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0));
    HOLDS(ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    HOLDS(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd));
    HOLDS(!ibv_destroy_cq(their_cq) && !ibv_destroy_comp_channel(theirs) && !ibv_dealloc_pd(their_pd));
    HOLDS(!ibv_close_device(context) && !ibv_close_device(other));
}

/* Two queue pairs of one device that write to each other. */
struct pair {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq_ex *cq;
    struct ibv_qp *qp, *peer;
    struct ibv_mr *mr;
    char *memory;
};
#define SENDS 16u

static void to_state(struct ibv_qp *qp, uint32_t dest, enum ibv_qp_state last) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    HOLDS(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = dest, .ah_attr = {.is_global = 1, .port_num = 1}};
    if (last >= IBV_QPS_RTR)
        HOLDS(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14};
    if (last >= IBV_QPS_RTS)
        HOLDS(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                         IBV_QP_MAX_QP_RD_ATOMIC));
    HOLDS(qp->state == last);
}

static struct pair pair_of(enum ibv_qp_state last) {
    struct pair p = {.context = opened()};
    p.pd = ibv_alloc_pd(p.context);
    p.channel = ibv_create_comp_channel(p.context);
    p.cq = ibv_create_cq_ex(p.context, &(struct ibv_cq_init_attr_ex){.cqe = 128, .channel = p.channel, .cq_context = p.channel,
                                                                      .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP});
    struct ibv_qp_init_attr_ex asked = {.send_cq = ibv_cq_ex_to_cq(p.cq), .recv_cq = ibv_cq_ex_to_cq(p.cq), .qp_type = IBV_QPT_RC,
                                        .cap = {SENDS, 16, 16, 16, 512}, .pd = p.pd,
                                        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM};
    p.qp = ibv_create_qp_ex(p.context, &asked);
    p.peer = ibv_create_qp_ex(p.context, &asked);
    p.memory = aligned_alloc(PAGE, 2 * PAGE);
    memset(p.memory, 0, 2 * PAGE);
    p.mr = ibv_reg_mr(p.pd, p.memory, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (last >= IBV_QPS_INIT) {
        to_state(p.qp, p.peer->qp_num, last);
        to_state(p.peer, p.qp->qp_num, last);
    }
    return p;
}

static void leave(struct pair *p) {
    HOLDS(!ibv_destroy_qp(p->qp) && !ibv_destroy_qp(p->peer) && !ibv_destroy_cq(ibv_cq_ex_to_cq(p->cq)) && !ibv_dereg_mr(p->mr));
    HOLDS(!ibv_destroy_comp_channel(p->channel) && !ibv_dealloc_pd(p->pd) && !ibv_close_device(p->context));
    free(p->memory);
}

static int wait_for(struct pair *p, int count, struct ibv_wc *wc) {
    int had = 0;
    while (had < count) {
        int got = ibv_poll_cq(ibv_cq_ex_to_cq(p->cq), count - had, wc + had);
        if (got < 0)
            return got;
        had += got;
    }
    return had;
}

static struct ibv_send_wr write_of(struct pair *p, uint64_t id, struct ibv_sge *sges, int count) {
    return (struct ibv_send_wr){.wr_id = id, .sg_list = sges, .num_sge = count, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {.remote_addr = (uintptr_t)p->memory + PAGE, .rkey = p->mr->rkey}};
}

static void states(void) {
    struct ibv_send_wr *bad_send;
    struct ibv_recv_wr *bad, take = {.wr_id = 1};
    for (enum ibv_qp_state state = IBV_QPS_RESET; state <= IBV_QPS_RTS; state++) {
        struct pair p = pair_of(state);
        struct ibv_sge sge = {(uintptr_t)p.memory, 8, p.mr->lkey};
        struct ibv_send_wr wr = write_of(&p, 1, &sge, 1);
        bad_send = NULL;
        bad = NULL;
        HOLDS(ibv_post_send(p.qp, &wr, &bad_send) == (state == IBV_QPS_RTS ? 0 : EINVAL));
        HOLDS(bad_send == (state == IBV_QPS_RTS ? NULL : &wr));
        HOLDS(ibv_post_recv(p.qp, &take, &bad) == (state == IBV_QPS_RESET ? EINVAL : 0));
        HOLDS(bad == (state == IBV_QPS_RESET ? &take : NULL));
        struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p.qp);
        ibv_wr_start(ex);
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(ex, p.mr->rkey, (uintptr_t)p.memory);
        ibv_wr_set_sge(ex, p.mr->lkey, (uintptr_t)p.memory, 8);
        HOLDS(ibv_wr_complete(ex) == (state == IBV_QPS_RTS ? 0 : EINVAL));
        struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
        HOLDS(!ibv_modify_qp(p.qp, &a, IBV_QP_STATE) && p.qp->state == IBV_QPS_ERR);
        HOLDS(!ibv_post_send(p.qp, &wr, &bad_send) && !ibv_post_recv(p.qp, &take, &bad));
        struct ibv_wc wc[8];
        int expected = 2 + (state == IBV_QPS_RTS ? 2 : 0) + (state == IBV_QPS_RESET ? 0 : 1), flushed = 0;
        HOLDS(wait_for(&p, expected, wc) == expected);
        for (int i = 0; i < expected; i++)
            flushed += wc[i].status == IBV_WC_WR_FLUSH_ERR;
        HOLDS(flushed == expected - (state == IBV_QPS_RTS ? 2 : 0));
        a.qp_state = IBV_QPS_RESET;
        HOLDS(!ibv_modify_qp(p.qp, &a, IBV_QP_STATE) && p.qp->state == IBV_QPS_RESET);
        HOLDS(!ibv_poll_cq(ibv_cq_ex_to_cq(p.cq), 8, wc));
        leave(&p);
    }
}

static void posts(void) {
    struct pair p = pair_of(IBV_QPS_RTS);
    struct ibv_sge sges[40];
    struct ibv_send_wr *bad, wr, second;
    struct ibv_recv_wr *bad_recv, take = {.wr_id = 1};
    struct ibv_wc wc[64];
    for (int i = 0; i < 40; i++)
        sges[i] = (struct ibv_sge){(uintptr_t)p.memory + i, 1, p.mr->lkey};
    for (int i = 0; i < PAGE; i++)
        p.memory[i] = (char)i;
    for (int count = 0; count <= 16; count++) {
        wr = write_of(&p, (uint64_t)count, sges, count);
        HOLDS(!ibv_post_send(p.qp, &wr, &bad) && wait_for(&p, 1, wc) == 1 && wc[0].status == IBV_WC_SUCCESS && wc[0].wr_id == (uint64_t)count);
        HOLDS(!memcmp(p.memory, p.memory + PAGE, (size_t)count));
    }
#define POST_FAILS(number, ...)                                                                              \
    do {                                                                                                     \
        wr = write_of(&p, 1, sges, 1);                                                                       \
        second = write_of(&p, 2, sges, 1);                                                                   \
        wr.next = &second;                                                                                   \
        __VA_ARGS__;                                                                                         \
        bad = NULL;                                                                                          \
        HOLDS(ibv_post_send(p.qp, &wr, &bad) == (number) && bad == &second && wait_for(&p, 1, wc) == 1 && wc[0].wr_id == 1); \
    } while (0)
    POST_FAILS(EINVAL, second.num_sge = 17);
    POST_FAILS(EINVAL, second.num_sge = -1);
    POST_FAILS(EINVAL, second.num_sge = INT32_MAX);
    POST_FAILS(EINVAL, second.num_sge = -1; second.send_flags |= IBV_SEND_INLINE);
    POST_FAILS(EINVAL, sges[1].length = 513; second.sg_list = sges + 1; second.send_flags |= IBV_SEND_INLINE);
    POST_FAILS(EINVAL, sges[1].length = 512; second.sg_list = sges + 1; second.num_sge = 2; second.send_flags |= IBV_SEND_INLINE);
    POST_FAILS(EINVAL, sges[1].length = UINT32_MAX; second.sg_list = sges + 1; second.num_sge = 2; second.send_flags |= IBV_SEND_INLINE);
    POST_FAILS(EINVAL, second.send_flags |= IBV_SEND_IP_CSUM);
    POST_FAILS(EINVAL, second.send_flags |= 1u << 31);
    for (int opcode = 0; opcode < 300; opcode++)
        if (opcode != IBV_WR_RDMA_WRITE && opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
            POST_FAILS(EOPNOTSUPP, second.opcode = opcode);
    sges[1].length = 1;
    sges[0].length = 512;
    wr = write_of(&p, 3, sges, 1);
    wr.send_flags |= IBV_SEND_INLINE;
    HOLDS(!ibv_post_send(p.qp, &wr, &bad));
    memset(p.memory, 0, 512); /* it is in the ring */
    HOLDS(wait_for(&p, 1, wc) == 1 && p.memory[PAGE + 511] == (char)511);
    sges[0].length = 1;

    struct ibv_send_wr many[SENDS + 1];
    for (unsigned i = 0; i <= SENDS; i++) {
        many[i] = write_of(&p, i, sges, 16);
        many[i].next = i < SENDS ? &many[i + 1] : NULL;
    }
    for (int round = 0; round < 40; round++) { /* five slots each: often round the ring */
        HOLDS(ibv_post_send(p.qp, many, &bad) == ENOMEM && bad == &many[SENDS]);
        HOLDS(wait_for(&p, SENDS, wc) == SENDS);
        for (unsigned i = 0; i < SENDS; i++)
            HOLDS(wc[i].wr_id == i && wc[i].status == IBV_WC_SUCCESS);
    }
    for (int i = 0; i < 16; i++)
        HOLDS(!ibv_post_recv(p.qp, &take, &bad_recv));
    HOLDS(ibv_post_recv(p.qp, &take, &bad_recv) == ENOMEM && bad_recv == &take);
    take.num_sge = 17;
    HOLDS(ibv_post_recv(p.peer, &take, &bad_recv) == EINVAL && bad_recv == &take);
    take.num_sge = -1;
    HOLDS(ibv_post_recv(p.peer, &take, &bad_recv) == EINVAL);
    struct ibv_mw_bind bind = {0};
    HOLDS(ibv_bind_mw(p.qp, &(struct ibv_mw){.context = p.context, .pd = p.pd}, &bind) && ibv_dealloc_mw(&(struct ibv_mw){.context = p.context}) == EOPNOTSUPP);
    leave(&p);
}

static void builders(void) {
    struct pair p = pair_of(IBV_QPS_RTS);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p.qp);
    struct ibv_wc wc[64];
    struct ibv_sge sges[40];
    static char data[600];
    for (int i = 0; i < 40; i++)
        sges[i] = (struct ibv_sge){(uintptr_t)p.memory + i, 1, p.mr->lkey};
    memset(data, 'd', sizeof data);
    const uintptr_t there = (uintptr_t)p.memory + PAGE;
#define BUILT(number, completions, ...)                                                                      \
    do {                                                                                                     \
        ibv_wr_start(ex);                                                                                    \
        ex->wr_id = 5;                                                                                       \
        ex->wr_flags = IBV_SEND_SIGNALED;                                                                    \
        __VA_ARGS__;                                                                                         \
        HOLDS(ibv_wr_complete(ex) == (number) && wait_for(&p, completions, wc) == (completions));            \
        for (int i = 0; i < (completions); i++)                                                              \
            HOLDS(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == 5);                                       \
    } while (0)
#define BEGIN ibv_wr_rdma_write(ex, p.mr->rkey, there)
    BUILT(0, 0, (void)0);
    BUILT(0, 1, BEGIN);
    BUILT(0, 1, BEGIN; ibv_wr_set_sge(ex, p.mr->lkey, (uintptr_t)p.memory, 8));
    BUILT(0, 1, BEGIN; ibv_wr_set_sge_list(ex, 16, sges));
    BUILT(EINVAL, 0, BEGIN; ibv_wr_set_sge_list(ex, 17, sges));
    BUILT(EINVAL, 0, BEGIN; ibv_wr_set_sge_list(ex, SIZE_MAX, sges); BEGIN; ibv_wr_set_sge_list(ex, 1, sges));
    BUILT(0, 1, BEGIN; ibv_wr_set_inline_data(ex, data, 512));
    HOLDS(p.memory[PAGE] == 'd' && p.memory[PAGE + 511] == 'd' && !p.memory[PAGE + 512]);
    BUILT(EINVAL, 0, BEGIN; ibv_wr_set_inline_data(ex, data, 513));
    BUILT(EINVAL, 0, BEGIN; ibv_wr_set_inline_data(ex, data, SIZE_MAX));
    BUILT(0, 1, BEGIN; ibv_wr_set_inline_data_list(ex, 2, (struct ibv_data_buf[]){{data, 200}, {data, 312}}));
    BUILT(EINVAL, 0, BEGIN; ibv_wr_set_inline_data_list(ex, 2, (struct ibv_data_buf[]){{data, 200}, {data, 313}}));
    BUILT(0, 1, BEGIN; ibv_wr_set_inline_data_list(ex, 0, NULL));
    BUILT(EINVAL, 0, ibv_wr_set_sge_list(ex, 1, sges));
    BUILT(EINVAL, 0, ibv_wr_set_inline_data(ex, data, 8); BEGIN);
    /* of two setters the last holds */
    memset(p.memory, 0, 2 * PAGE);
    BUILT(0, 1, BEGIN; ibv_wr_set_inline_data(ex, data, 400); ibv_wr_set_sge_list(ex, 9, sges));
    HOLDS(!p.memory[PAGE]);
    BUILT(0, 1, BEGIN; ibv_wr_set_sge_list(ex, 16, sges); ibv_wr_set_inline_data(ex, data, 100));
    BUILT(0, 1, BEGIN; ibv_wr_set_inline_data(ex, data, 500); ibv_wr_set_inline_data(ex, data, 100));
    HOLDS(p.memory[PAGE + 99] == 'd' && !p.memory[PAGE + 100]);
    ex->wr_flags = 1u << 30;
    BUILT(EINVAL, 0, ex->wr_flags = 1u << 30; BEGIN);
    BUILT(ENOMEM, 0, for (unsigned i = 0; i <= SENDS; i++) BEGIN);
    for (int round = 0; round < 20; round++)
        BUILT(0, 16, for (unsigned i = 0; i < SENDS; i++) { BEGIN; ibv_wr_set_inline_data(ex, data, 512); });
    ibv_wr_start(ex);
    BEGIN;
    ibv_wr_abort(ex);
    BUILT(0, 0, (void)0);
    leave(&p);
}

static void completions(void) {
    struct pair p = pair_of(IBV_QPS_RTS);
    struct ibv_cq *cq = ibv_cq_ex_to_cq(p.cq), *told;
    void *context;
    struct ibv_wc wc[8];
    struct ibv_sge sge = {(uintptr_t)p.memory, 8, p.mr->lkey};
    struct ibv_send_wr *bad, wr = write_of(&p, 9, &sge, 1);
    struct ibv_recv_wr *bad_recv, take = {.wr_id = 8};
    HOLDS(!ibv_poll_cq(cq, 0, NULL) && !ibv_poll_cq(cq, -1, NULL) && !ibv_poll_cq(cq, 1, wc));
    fcntl(p.channel->fd, F_SETFL, O_NONBLOCK);
    MINUS(ibv_get_cq_event(p.channel, &told, &context), EAGAIN);
    HOLDS(!ibv_req_notify_cq(cq, 0) && !ibv_req_notify_cq(cq, 1)); /* the stronger stays */
    HOLDS(!ibv_post_send(p.qp, &wr, &bad));
    poll(&(struct pollfd){.fd = p.channel->fd, .events = POLLIN}, 1, -1);
    HOLDS(!ibv_get_cq_event(p.channel, &told, &context) && told == cq && context == p.channel);
    HOLDS(!ibv_req_notify_cq(cq, 1));
    HOLDS(!ibv_post_send(p.qp, &wr, &bad) && wait_for(&p, 2, wc) == 2);
    MINUS(ibv_get_cq_event(p.channel, &told, &context), EAGAIN);
    HOLDS(!ibv_post_recv(p.peer, &take, &bad_recv));
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = 0x01020304;
    wr.send_flags = IBV_SEND_SOLICITED;
    HOLDS(!ibv_post_send(p.qp, &wr, &bad));
    poll(&(struct pollfd){.fd = p.channel->fd, .events = POLLIN}, 1, -1);
    HOLDS(!ibv_get_cq_event(p.channel, &told, &context));
    ibv_ack_cq_events(cq, 2);
    struct ibv_poll_cq_attr none = {0};
    HOLDS(ibv_start_poll(p.cq, &(struct ibv_poll_cq_attr){.comp_mask = 1}) == EINVAL);
    HOLDS(!ibv_start_poll(p.cq, &none) && p.cq->wr_id == 8 && p.cq->status == IBV_WC_SUCCESS);
    HOLDS(ibv_wc_read_opcode(p.cq) == IBV_WC_RECV_RDMA_WITH_IMM && ibv_wc_read_imm_data(p.cq) == 0x01020304 && ibv_wc_read_byte_len(p.cq) == 8);
    HOLDS(ibv_wc_read_qp_num(p.cq) == p.peer->qp_num && ibv_wc_read_src_qp(p.cq) == p.qp->qp_num && ibv_wc_read_wc_flags(p.cq) == IBV_WC_WITH_IMM);
    HOLDS(!ibv_wc_read_slid(p.cq) && !ibv_wc_read_sl(p.cq) && !ibv_wc_read_dlid_path_bits(p.cq) && !ibv_wc_read_vendor_err(p.cq));
    HOLDS(ibv_wc_read_completion_ts(p.cq) == 123 && ibv_next_poll(p.cq) == ENOENT);
    ibv_end_poll(p.cq);
    HOLDS(ibv_start_poll(p.cq, &none) == ENOENT);

    struct ibv_async_event event;
    fcntl(p.context->async_fd, F_SETFL, O_NONBLOCK);
    MINUS(ibv_get_async_event(p.context, &event), EAGAIN);
    wr.wr.rdma.rkey ^= 5;
    wr.send_flags = 0;
    HOLDS(!ibv_post_send(p.qp, &wr, &bad) && wait_for(&p, 1, wc) == 1 && wc[0].status == IBV_WC_REM_ACCESS_ERR && wc[0].vendor_err == 7);
    poll(&(struct pollfd){.fd = p.context->async_fd, .events = POLLIN}, 1, -1);
    HOLDS(!ibv_get_async_event(p.context, &event) && event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == p.qp);
    ibv_ack_async_event(&event);
    ibv_ack_async_event(&(struct ibv_async_event){.event_type = IBV_EVENT_PORT_ERR});
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr init;
    HOLDS(!ibv_query_qp(p.qp, &a, IBV_QP_STATE, &init) && a.qp_state == IBV_QPS_ERR && p.qp->state == IBV_QPS_ERR);

    struct ibv_cq *small = ibv_create_cq(p.context, 1, NULL, NULL, 0); /* overflows: an event, and an error for ever */
    struct ibv_qp_init_attr asked = {.send_cq = small, .recv_cq = small, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}, .sq_sig_all = 1};
    struct ibv_qp *quick = ibv_create_qp(p.pd, &asked);
    to_state(quick, p.peer->qp_num, IBV_QPS_RTS);
    wr = write_of(&p, 4, &sge, 1);
    wr.send_flags = 0;
    for (int i = 0; i < 3; i++)
        HOLDS(!ibv_post_send(quick, &wr, &bad));
    poll(&(struct pollfd){.fd = p.context->async_fd, .events = POLLIN}, 1, -1);
    HOLDS(!ibv_get_async_event(p.context, &event) && event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == small);
    ibv_ack_async_event(&event);
    while (!ibv_get_async_event(p.context, &event))
        ibv_ack_async_event(&event);
    HOLDS(ibv_poll_cq(small, 8, wc) == -1 && ibv_poll_cq(small, 8, wc) == -1);
    HOLDS(!ibv_destroy_qp(quick) && !ibv_destroy_cq(small));
    leave(&p);
}

/* What a forked child may ask of its parent's objects: nothing, and it is told so. */
static void child(void) {
    struct pair p = pair_of(IBV_QPS_RTS);
    struct ibv_sge sge = {(uintptr_t)p.memory, 8, p.mr->lkey};
    struct ibv_send_wr *bad, wr = write_of(&p, 9, &sge, 1);
    struct ibv_recv_wr *bad_recv, take = {.wr_id = 8};
    struct ibv_wc wc[8];
    pid_t pid = fork();
    if (!pid) {
        struct ibv_cq *cq = ibv_cq_ex_to_cq(p.cq), *told;
        struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p.qp);
        struct ibv_async_event event;
        struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
        struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
        struct ibv_device_attr d;
        struct ibv_port_attr port;
        uint16_t pkey;
        void *context;
        wrong = 0;
        HOLDS(ibv_post_send(p.qp, &wr, &bad) == EIO && bad == &wr && ibv_post_recv(p.qp, &take, &bad_recv) == EIO && bad_recv == &take);
        HOLDS(ibv_poll_cq(cq, 8, wc) == -1 && ibv_start_poll(p.cq, &(struct ibv_poll_cq_attr){0}) == EIO && ibv_req_notify_cq(cq, 0) == EIO);
        MINUS(ibv_get_cq_event(p.channel, &told, &context), EIO);
        MINUS(ibv_get_async_event(p.context, &event), EIO);
        ibv_wr_start(ex);
        ibv_wr_rdma_write(ex, p.mr->rkey, (uintptr_t)p.memory);
        HOLDS(ibv_wr_complete(ex) == EIO);
        HOLDS(ibv_modify_qp(p.qp, &a, IBV_QP_STATE) == EIO && ibv_query_qp(p.qp, &a, 0, &init) == EIO && ibv_query_device(p.context, &d) == EIO);
        HOLDS(ibv_query_port(p.context, 1, &port) == EIO);
        MINUS(ibv_query_pkey(p.context, 1, 0, &pkey), EIO);
        FAILS(ibv_alloc_pd(p.context), EIO);
        FAILS(ibv_reg_mr(p.pd, p.memory, 8, 0), EIO);
        FAILS(ibv_create_comp_channel(p.context), EIO);
        FAILS(ibv_create_cq(p.context, 8, NULL, NULL, 0), EIO);
        FAILS(ibv_create_qp(p.pd, &init), EIO);
        HOLDS(ibv_destroy_qp(p.qp) == EIO && ibv_destroy_cq(cq) == EIO && ibv_dereg_mr(p.mr) == EIO && ibv_dealloc_pd(p.pd) == EIO);
        HOLDS(ibv_destroy_comp_channel(p.channel) == EIO && ibv_close_device(p.context) == EIO);
        struct pair own = pair_of(IBV_QPS_RTS); /* it may open its own */
        HOLDS(!ibv_post_send(own.qp, &(struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, &bad));
        HOLDS(wait_for(&own, 1, wc) == 1);
        leave(&own);
        fflush(stdout);
        _exit(wrong > 0);
    }
    int status;
    HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
    HOLDS(!ibv_post_send(p.qp, &wr, &bad) && wait_for(&p, 1, wc) == 1 && wc[0].status == IBV_WC_SUCCESS);
    leave(&p);
}

/* Two threads post to one queue pair and poll one queue, while a third forks. */
static struct pair shared;
static atomic_int posted, taken;
#define WORKERS 2
#define EACH 500

static void *works(void *nothing) {
    struct ibv_sge sge = {(uintptr_t)shared.memory, 8, shared.mr->lkey};
    struct ibv_send_wr *bad, wr = write_of(&shared, 9, &sge, 1);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(shared.qp);
    struct ibv_wc wc[4];
    for (int done = 0; done < EACH || taken < WORKERS * EACH;) {
        int error = ENOMEM;
        if (done < EACH && done % 2) {
            error = ibv_post_send(shared.qp, &wr, &bad);
        } else if (done < EACH) {
            ibv_wr_start(ex);
            ex->wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_rdma_write(ex, shared.mr->rkey, (uintptr_t)shared.memory);
            ibv_wr_set_inline_data(ex, wc, 8);
            error = ibv_wr_complete(ex);
        }
        HOLDS(!error || error == ENOMEM);
        done += !error;
        posted += !error;
        int got = ibv_poll_cq(ibv_cq_ex_to_cq(shared.cq), 4, wc);
        HOLDS(got >= 0);
        for (int i = 0; i < got; i++)
            HOLDS(wc[i].status == IBV_WC_SUCCESS);
        taken += got;
    }
    return nothing;
}

static void threads(void) {
    shared = pair_of(IBV_QPS_RTS);
    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&workers[i], NULL, works, NULL);
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        if (!pid) {
            struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(shared.qp); /* whose lock a thread may have had */
            ibv_wr_start(ex);
            _exit(ibv_wr_complete(ex) != EIO || ibv_destroy_comp_channel(shared.channel) != EIO);
        }
        int status;
        HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    HOLDS(posted == WORKERS * EACH && taken == WORKERS * EACH);
    leave(&shared);
}

/* The agent goes at the first request for work: everything says so, and all can be given back. */
static void orphaned(void) {
    struct pair p = pair_of(IBV_QPS_RTS);
    struct ibv_send_wr *bad, wr = write_of(&p, 9, NULL, 0);
    struct ibv_async_event event;
    struct ibv_wc wc[8];
    struct ibv_cq *told;
    void *context;
    HOLDS(!ibv_post_send(p.qp, &wr, &bad));
    HOLDS(!ibv_get_async_event(p.context, &event) && event.event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    MINUS(ibv_get_async_event(p.context, &event), EIO);
    MINUS(ibv_get_cq_event(p.channel, &told, &context), EIO);
    HOLDS(ibv_poll_cq(ibv_cq_ex_to_cq(p.cq), 8, wc) == -1 && ibv_post_send(p.qp, &wr, &bad) == EIO);
    FAILS(ibv_alloc_pd(p.context), EIO);
    FAILS(ibv_reg_mr(p.pd, p.memory, 8, 0), EIO);
    leave(&p);
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const struct {
        const char *name;
        void (*part)(void);
    } parts[] = {{"names", names},       {"device", device},           {"memory", memory}, {"queues", queues},   {"states", states},
                 {"posts", posts},       {"builders", builders},       {"child", child},   {"threads", threads}, {"orphaned", orphaned},
                 {"completions", completions}};
    bool found = false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (count == 2 && !strcmp(words[1], parts[i].name)) {
            parts[i].part();
            found = true;
        }
    return found ? wrong : 99;
}
