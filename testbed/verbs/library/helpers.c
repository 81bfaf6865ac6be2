/* Functions that take no object: names, rates, conversions of the kernel's structures. */
#include "mrcbed.h"

#include <fcntl.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <stdlib.h>
#include <stdio.h>
#include <unistd.h>

/* --- fork: rings stay with the parent (connection.c), regions are the program's own pages --- */

PUBLIC int ibv_fork_init(void);
PUBLIC int ibv_fork_init(void) { return 0; }
PUBLIC enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
PUBLIC int ibv_dontfork_range(void *base, size_t size);
PUBLIC int ibv_dontfork_range(void *base, size_t size) {
    (void)base, (void)size;
    return 0;
}
PUBLIC int ibv_dofork_range(void *base, size_t size);
PUBLIC int ibv_dofork_range(void *base, size_t size) {
    (void)base, (void)size;
    return 0;
}

/* --- names --- */

#define NAME(table, value)                                                                                   \
    ((unsigned)(value) < sizeof table / sizeof *table && table[(unsigned)(value)] ? table[(unsigned)(value)] : "unknown")

PUBLIC const char *ibv_wc_status_str(enum ibv_wc_status status) {
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
        [IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "work request flushed error",
        [IBV_WC_MW_BIND_ERR] = "memory window bind error",
        [IBV_WC_BAD_RESP_ERR] = "bad response error",
        [IBV_WC_LOC_ACCESS_ERR] = "local access error",
        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
        [IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation error",
        [IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
        [IBV_WC_REM_ABORT_ERR] = "remote aborted error",
        [IBV_WC_INV_EECN_ERR] = "invalid EE context number",
        [IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
        [IBV_WC_FATAL_ERR] = "fatal error",
        [IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
        [IBV_WC_GENERAL_ERR] = "general error",
        [IBV_WC_TM_ERR] = "tag matching error",
        [IBV_WC_TM_RNDV_INCOMPLETE] = "tag matching rendezvous incomplete",
    };
    return NAME(names, status);
}

PUBLIC const char *ibv_event_type_str(enum ibv_event_type event) {
    static const char *const names[] = {
        [IBV_EVENT_CQ_ERR] = "CQ error",
        [IBV_EVENT_QP_FATAL] = "QP fatal error",
        [IBV_EVENT_QP_REQ_ERR] = "QP invalid request error",
        [IBV_EVENT_QP_ACCESS_ERR] = "QP access error",
        [IBV_EVENT_COMM_EST] = "communication established",
        [IBV_EVENT_SQ_DRAINED] = "send queue drained",
        [IBV_EVENT_PATH_MIG] = "path migrated",
        [IBV_EVENT_PATH_MIG_ERR] = "path migration error",
        [IBV_EVENT_DEVICE_FATAL] = "device fatal error",
        [IBV_EVENT_PORT_ACTIVE] = "port active",
        [IBV_EVENT_PORT_ERR] = "port error",
        [IBV_EVENT_LID_CHANGE] = "LID change",
        [IBV_EVENT_PKEY_CHANGE] = "P_Key change",
        [IBV_EVENT_SM_CHANGE] = "SM change",
        [IBV_EVENT_SRQ_ERR] = "SRQ error",
        [IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
        [IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
        [IBV_EVENT_CLIENT_REREGISTER] = "client reregister",
        [IBV_EVENT_GID_CHANGE] = "GID change",
        [IBV_EVENT_WQ_FATAL] = "WQ fatal error",
    };
    return NAME(names, event);
}

PUBLIC const char *ibv_node_type_str(enum ibv_node_type type) {
    static const char *const names[] = {
        [IBV_NODE_CA] = "channel adapter", [IBV_NODE_SWITCH] = "switch", [IBV_NODE_ROUTER] = "router",           [IBV_NODE_RNIC] = "iWARP NIC",
        [IBV_NODE_USNIC] = "usNIC",        [IBV_NODE_USNIC_UDP] = "usNIC UDP", [IBV_NODE_UNSPECIFIED] = "unspecified",
    };
    return NAME(names, type);
}

PUBLIC const char *ibv_port_state_str(enum ibv_port_state state) {
    static const char *const names[] = {
        [IBV_PORT_NOP] = "no state change", [IBV_PORT_DOWN] = "down",     [IBV_PORT_INIT] = "init",
        [IBV_PORT_ARMED] = "armed",         [IBV_PORT_ACTIVE] = "active", [IBV_PORT_ACTIVE_DEFER] = "active defer",
    };
    return NAME(names, state);
}

/* --- rates --- */

/* Mb/s of the signalling, and multiples of 2.5 Gb/s of the data, by enum ibv_rate; 0: none. */
static const struct {
    int mbps, multiple;
} rates[] = {
    [IBV_RATE_2_5_GBPS] = {2500, 1},     [IBV_RATE_5_GBPS] = {5000, 2},       [IBV_RATE_10_GBPS] = {10000, 4},
    [IBV_RATE_20_GBPS] = {20000, 8},     [IBV_RATE_30_GBPS] = {30000, 12},    [IBV_RATE_40_GBPS] = {40000, 16},
    [IBV_RATE_60_GBPS] = {60000, 24},    [IBV_RATE_80_GBPS] = {80000, 32},    [IBV_RATE_120_GBPS] = {120000, 48},
    [IBV_RATE_14_GBPS] = {14062, 0},     [IBV_RATE_56_GBPS] = {56250, 0},     [IBV_RATE_112_GBPS] = {112500, 0},
    [IBV_RATE_168_GBPS] = {168750, 0},   [IBV_RATE_25_GBPS] = {25781, 0},     [IBV_RATE_100_GBPS] = {103125, 0},
    [IBV_RATE_200_GBPS] = {206250, 0},   [IBV_RATE_300_GBPS] = {309375, 0},   [IBV_RATE_28_GBPS] = {28125, 11},
    [IBV_RATE_50_GBPS] = {53125, 20},    [IBV_RATE_400_GBPS] = {425000, 160}, [IBV_RATE_600_GBPS] = {637500, 240},
    [IBV_RATE_800_GBPS] = {850000, 320}, [IBV_RATE_1200_GBPS] = {1275000, 480},
};
#define RATES (sizeof rates / sizeof *rates)

PUBLIC int ibv_rate_to_mult(enum ibv_rate rate) { return (unsigned)rate < RATES && rates[rate].multiple ? rates[rate].multiple : -1; }
PUBLIC int ibv_rate_to_mbps(enum ibv_rate rate) { return (unsigned)rate < RATES && rates[rate].mbps ? rates[rate].mbps : -1; }

PUBLIC enum ibv_rate mult_to_ibv_rate(int multiple) {
    for (unsigned rate = 0; rate < RATES; rate++)
        if (multiple > 0 && rates[rate].multiple == multiple)
            return (enum ibv_rate)rate;
    return IBV_RATE_MAX;
}
PUBLIC enum ibv_rate mbps_to_ibv_rate(int mbps) {
    for (unsigned rate = 0; rate < RATES; rate++)
        if (mbps > 0 && rates[rate].mbps == mbps)
            return (enum ibv_rate)rate;
    return IBV_RATE_MAX;
}

/* --- the kernel's files: a program may read any --- */

PUBLIC const char *ibv_get_sysfs_path(void);
PUBLIC const char *ibv_get_sysfs_path(void) {
    const char *path = getenv("SYSFS_PATH");
    return path && *path ? path : "/sys";
}

/* Reads a file, without its last newline; returns its bytes, or -1. */
PUBLIC int ibv_read_sysfs_file(const char *folder, const char *name, char *to, size_t size);
PUBLIC int ibv_read_sysfs_file(const char *folder, const char *name, char *to, size_t size) {
    if (!strcmp(folder, emulated_device.public.ibdev_path) && !strcmp(name, "board_id"))
        return snprintf(to, size, "mrcbed") < (int)size ? (int)strlen(to) : -1;
    char path[512];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return -1;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file < 0 ? -1 : read(file, to, size);
    if (file >= 0)
        close(file);
    if (bytes < 0 || (size_t)bytes >= size)
        return -1;
    if (bytes && to[bytes - 1] == '\n')
        bytes--;
    to[bytes] = 0;
    return (int)bytes;
}

/* Once for the drivers of a version long gone, and without effect since. */
PUBLIC void ibv_register_driver(const char *name, void *driver);
PUBLIC void ibv_register_driver(const char *name, void *driver) { (void)name, (void)driver; }

/* --- the kernel's structures, as librdmacm reads them --- */

PUBLIC void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from);
PUBLIC void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from) {
    memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof to->grh.dgid.raw);
    to->grh.flow_label = from->grh.flow_label;
    to->grh.sgid_index = from->grh.sgid_index;
    to->grh.hop_limit = from->grh.hop_limit;
    to->grh.traffic_class = from->grh.traffic_class;
    to->dlid = from->dlid;
    to->sl = from->sl;
    to->src_path_bits = from->src_path_bits;
    to->static_rate = from->static_rate;
    to->is_global = from->is_global;
    to->port_num = from->port_num;
}

PUBLIC void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from);
PUBLIC void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from) {
    to->qp_state = from->qp_state;
    to->cur_qp_state = from->cur_qp_state;
    to->path_mtu = from->path_mtu;
    to->path_mig_state = from->path_mig_state;
    to->qkey = from->qkey;
    to->rq_psn = from->rq_psn;
    to->sq_psn = from->sq_psn;
    to->dest_qp_num = from->dest_qp_num;
    to->qp_access_flags = from->qp_access_flags;
    to->cap = (struct ibv_qp_cap){from->max_send_wr, from->max_recv_wr, from->max_send_sge, from->max_recv_sge, from->max_inline_data};
    ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
    ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
    to->pkey_index = from->pkey_index;
    to->alt_pkey_index = from->alt_pkey_index;
    to->en_sqd_async_notify = from->en_sqd_async_notify;
    to->sq_draining = from->sq_draining;
    to->max_rd_atomic = from->max_rd_atomic;
    to->max_dest_rd_atomic = from->max_dest_rd_atomic;
    to->min_rnr_timer = from->min_rnr_timer;
    to->port_num = from->port_num;
    to->timeout = from->timeout;
    to->retry_cnt = from->retry_cnt;
    to->rnr_retry = from->rnr_retry;
    to->alt_port_num = from->alt_port_num;
    to->alt_timeout = from->alt_timeout;
}

/* Fields of the same names in both. */
#define COPY_PATH_REC(to, from)                                                                              \
    ((to)->dlid = (from)->dlid, (to)->slid = (from)->slid, (to)->raw_traffic = (from)->raw_traffic,          \
     (to)->flow_label = (from)->flow_label, (to)->reversible = (from)->reversible, (to)->mtu = (from)->mtu,  \
     (to)->pkey = (from)->pkey, (to)->hop_limit = (from)->hop_limit,                                         \
     (to)->traffic_class = (from)->traffic_class, (to)->numb_path = (from)->numb_path, (to)->sl = (from)->sl, \
     (to)->mtu_selector = (from)->mtu_selector, (to)->rate_selector = (from)->rate_selector,                 \
     (to)->rate = (from)->rate, (to)->packet_life_time_selector = (from)->packet_life_time_selector,         \
     (to)->packet_life_time = (from)->packet_life_time, (to)->preference = (from)->preference)

PUBLIC void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, struct ib_user_path_rec *from);
PUBLIC void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, struct ib_user_path_rec *from) {
    memcpy(to->dgid.raw, from->dgid, sizeof to->dgid.raw);
    memcpy(to->sgid.raw, from->sgid, sizeof to->sgid.raw);
    COPY_PATH_REC(to, from);
}

PUBLIC void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from);
PUBLIC void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from) {
    memcpy(to->dgid, from->dgid.raw, sizeof to->dgid);
    memcpy(to->sgid, from->sgid.raw, sizeof to->sgid);
    COPY_PATH_REC(to, from);
}
