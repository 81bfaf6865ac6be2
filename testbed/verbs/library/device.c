/* The one device: listing it, opening it, and what it says of itself. */
#include "mrcbed.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PKEY 0xffff /* the default partition, the only one */

static bool is_our_device(struct ibv_device *device) { return device == &emulated_device.public; }

static int failed(int error) {
    errno = error;
    return -1;
}

PUBLIC struct ibv_device **ibv_get_device_list(int *count) {
    if (!inside(NULL)) {
        static __typeof__(&ibv_get_device_list) there;
        if (!there)
            there = real("ibv_get_device_list", "IBVERBS_1.1");
        return there(count);
    }
    struct ibv_device **list = calloc(2, sizeof *list);
    if (list)
        list[0] = &emulated_device.public;
    if (count)
        *count = list != NULL;
    return list;
}
BOTH(ibv_get_device_list);

PUBLIC void ibv_free_device_list(struct ibv_device **list) {
    if (!list)
        return;
    if (list[0] && !is_our_device(list[0])) {
        static __typeof__(&ibv_free_device_list) there;
        if (!there)
            there = real("ibv_free_device_list", "IBVERBS_1.1");
        there(list);
        return;
    }
    free(list);
}
BOTH(ibv_free_device_list);

PUBLIC const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }
BOTH(ibv_get_device_name);

PUBLIC __be64 ibv_get_device_guid(struct ibv_device *device) {
    if (!is_our_device(device)) {
        static __typeof__(&ibv_get_device_guid) there;
        if (!there)
            there = real("ibv_get_device_guid", "IBVERBS_1.1");
        return there(device);
    }
    uint64_t guid = 0;
    inside(&guid);
    return htobe64(guid);
}
BOTH(ibv_get_device_guid);

PUBLIC int ibv_get_device_index(struct ibv_device *device) {
    if (!is_our_device(device)) {
        static __typeof__(&ibv_get_device_index) there;
        if (!there)
            there = real("ibv_get_device_index", "IBVERBS_1.9");
        return there(device);
    }
    return -1; /* the kernel does not know it */
}

PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device) {
    if (!is_our_device(device)) {
        static __typeof__(&ibv_open_device) there;
        if (!there)
            there = real("ibv_open_device", "IBVERBS_1.1");
        return there(device);
    }
    struct session *session = session_open();
    return session ? &session->verbs.context : NULL;
}
BOTH(ibv_open_device);

PUBLIC int ibv_close_device(struct ibv_context *context) {
    PASS(context, "IBVERBS_1.1", ibv_close_device, context);
    if (forked(session_of(context)))
        return EIO;
    session_close(session_of(context));
    return 0;
}
BOTH(ibv_close_device);

PUBLIC int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes) {
    PASS(context, "IBVERBS_1.1", ibv_query_device, context, attributes);
    struct session *session = session_of(context);
    if (gone(session) || !attributes)
        return attributes ? EIO : EINVAL;
    const struct limits *limits = &session->limits;
    *attributes = (struct ibv_device_attr){
        .node_guid = htobe64(limits->guid),
        .sys_image_guid = htobe64(limits->guid),
        .max_mr_size = limits->mr_bytes,
        .page_size_cap = (uint64_t)sysconf(_SC_PAGESIZE),
        .max_qp = (int)limits->qps,
        .max_qp_wr = (int)limits->wrs,
        .device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID,
        .max_sge = (int)limits->sges,
        .max_cq = (int)limits->cqs,
        .max_cqe = (int)limits->cqes,
        .max_mr = (int)limits->mrs,
        .max_pd = (int)limits->pds,
        .atomic_cap = IBV_ATOMIC_NONE,
        .max_pkeys = 1,
        .phys_port_cnt = (uint8_t)limits->ports,
    };
    snprintf(attributes->fw_ver, sizeof attributes->fw_ver, "mrcbed %d", MRCBED_VERSION);
    return 0;
}
BOTH(ibv_query_device);

int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attributes,
                    size_t bytes) {
    if (input && input->comp_mask)
        return EINVAL;
    struct ibv_device_attr_ex all = {.completion_timestamp_mask = UINT64_MAX, .hca_core_clock = 1000000}; /* kHz: ns of the network */
    int error = ibv_query_device(context, &all.orig_attr);
    if (error)
        return error;
    all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
    all.phys_port_cnt_ex = all.orig_attr.phys_port_cnt;
    memset(attributes, 0, bytes);
    memcpy(attributes, &all, bytes < sizeof all ? bytes : sizeof all);
    return 0;
}

/* InfiniBand knows a rate as lanes times the rate of a lane: takes the pair nearest to Mb/s, of equally near ones that of four lanes. */
static void set_rate(struct ibv_port_attr *port, uint64_t rate) {
    static const struct {
        uint8_t code;
        unsigned lanes;
    } widths[] = {{2, 4}, {1, 1}, {16, 2}, {4, 8}, {8, 12}};
    static const struct {
        uint8_t code;
        unsigned rate;
    } speeds[] = {{1, 2500}, {2, 5000}, {4, 10000}, {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
    uint64_t nearest = UINT64_MAX;
    for (unsigned w = 0; w < sizeof widths / sizeof *widths; w++)
        for (unsigned s = 0; s < sizeof speeds / sizeof *speeds; s++) {
            uint64_t this = (uint64_t)widths[w].lanes * speeds[s].rate, away = this > rate ? this - rate : rate - this;
            if (away < nearest) {
                nearest = away;
                port->active_width = widths[w].code;
                port->active_speed = speeds[s].code;
            }
        }
}

int query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *attributes, size_t bytes) {
    struct session *session = session_of(context);
    struct answer answer;
    uint64_t argument = number;
    int error = ask(session, MRCBED_QUERY_PORT, &argument, 1, -1, &answer, NULL, 0);
    if (error)
        return error;
    struct ibv_port_attr port = {
        .state = (enum ibv_port_state)answer.results[0],
        .max_mtu = IBV_MTU_4096,
        .active_mtu = (enum ibv_mtu)answer.results[3],
        .gid_tbl_len = (int)session->limits.gids,
        .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        .max_msg_sz = 1u << 30,
        .pkey_tbl_len = 1,
        .max_vl_num = 1,
        .phys_state = (uint8_t)answer.results[1],
        .link_layer = IBV_LINK_LAYER_ETHERNET,
        .flags = IBV_QPF_GRH_REQUIRED,
    };
    set_rate(&port, answer.results[2]);
    memset(attributes, 0, bytes);
    memcpy(attributes, &port, bytes < sizeof port ? bytes : sizeof port);
    return 0;
}

/* For programs compiled before the extended context: their structure ends before `flags`. */
PUBLIC int (ibv_query_port)(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *attributes) {
    PASS(context, "IBVERBS_1.1", ibv_query_port, context, number, attributes);
    return query_port(context, number, (struct ibv_port_attr *)attributes, offsetof(struct ibv_port_attr, flags));
}
BOTH(ibv_query_port);

static int gid_at(struct ibv_context *context, uint32_t port, uint32_t index, union ibv_gid *gid, uint64_t *type) {
    struct answer answer;
    int error = ask(session_of(context), MRCBED_QUERY_GID, (uint64_t[]){port, index}, 2, -1, &answer, NULL, 0);
    if (error)
        return error;
    memcpy(gid->raw, answer.results, sizeof gid->raw);
    *type = answer.results[2];
    return 0;
}

PUBLIC int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    PASS(context, "IBVERBS_1.1", ibv_query_gid, context, port, index, gid);
    uint64_t type;
    int error = gid_at(context, port, (uint32_t)index, gid, &type);
    return error ? failed(error) : 0;
}
BOTH(ibv_query_gid);

/* The kind of a GID as the kernel's files number it: 1 for RoCE v2. Private by its version, yet ibv_devinfo calls it. */
PUBLIC int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, uint32_t *type);
PUBLIC int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, uint32_t *type) {
    PASS(context, "IBVERBS_PRIVATE_34", ibv_query_gid_type, context, port, index, type);
    union ibv_gid gid;
    uint64_t kind;
    int error = gid_at(context, port, index, &gid, &kind);
    if (error)
        return failed(error);
    *type = (uint32_t)kind;
    return 0;
}

static int gid_entry(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, size_t bytes) {
    struct ibv_gid_entry all = {.gid_index = index, .port_num = port};
    uint64_t type;
    int error = gid_at(context, port, index, &all.gid, &type);
    if (error)
        return error;
    all.gid_type = type ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    memcpy(entry, &all, bytes < sizeof all ? bytes : sizeof all);
    return 0;
}

PUBLIC int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
                             size_t bytes) {
    PASS(context, "IBVERBS_1.11", _ibv_query_gid_ex, context, port, index, entry, flags, bytes);
    return flags ? EOPNOTSUPP : gid_entry(context, port, index, entry, bytes);
}

PUBLIC ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most, uint32_t flags, size_t bytes) {
    PASS(context, "IBVERBS_1.11", _ibv_query_gid_table, context, entries, most, flags, bytes);
    struct session *session = session_of(context);
    if (flags)
        return -EOPNOTSUPP;
    size_t count = 0;
    for (uint32_t port = 1; port <= session->limits.ports; port++)
        for (uint32_t index = 0; index < session->limits.gids; index++, count++) {
            if (count == most)
                return -EINVAL;
            int error = gid_entry(context, port, index, (struct ibv_gid_entry *)((char *)entries + count * bytes), bytes);
            if (error)
                return -error;
        }
    return (ssize_t)count;
}

PUBLIC int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey) {
    PASS(context, "IBVERBS_1.1", ibv_query_pkey, context, port, index, pkey);
    if (gone(session_of(context)))
        return failed(EIO);
    if (port < 1 || port > session_of(context)->limits.ports || index)
        return failed(EINVAL);
    *pkey = htobe16(PKEY);
    return 0;
}
BOTH(ibv_query_pkey);

PUBLIC int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey) {
    PASS(context, "IBVERBS_1.5", ibv_get_pkey_index, context, port, pkey);
    bool known = port >= 1 && port <= session_of(context)->limits.ports && pkey == htobe16(PKEY);
    return known ? 0 : failed(EINVAL);
}
