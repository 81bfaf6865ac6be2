/* One end of a one-way stream of RDMA WRITEs through libibverbs, for testbed/bench/verbs.py: verbs_stream SECONDS BYTES DEPTH.
 *
 * Writes "QPN address rkey GID" to stdout, reads the same of its peer and "1" for who sends, runs, and writes what it did: messages, wall
 * time, and CPU time of posting, of polling and of everything, in ns. It sleeps on its completion channel: nothing here polls in vain. */
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "verbs_stream: %s\n", #condition);                                               \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv) {
    MUST(argc == 4);
    double seconds = atof(argv[1]);
    uint32_t bytes = (uint32_t)atoi(argv[2]), depth = (uint32_t)atoi(argv[3]);
    struct ibv_device **devices = ibv_get_device_list(NULL);
    MUST(devices && devices[0]);
    struct ibv_context *context = ibv_open_device(devices[0]);
    MUST(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    char *memory = calloc(1, bytes);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, (int)depth + 1, NULL, channel, 0);
    MUST(pd && mr && channel && cq);
    struct ibv_qp_init_attr wanted = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
                                      .cap = {.max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &wanted);
    union ibv_gid gid;
    MUST(qp && !ibv_query_gid(context, 1, 0, &gid));
    printf("%u %" PRIu64 " %u ", qp->qp_num, (uint64_t)(uintptr_t)memory, mr->rkey);
    for (int k = 0; k < 16; k++)
        printf("%02x", gid.raw[k]);
    printf("\n");
    fflush(stdout);

    unsigned qpn, rkey, sends;
    uint64_t remote;
    char hex[33];
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    MUST(scanf("%u %" SCNu64 " %u %32s %u", &qpn, &remote, &rkey, hex, &sends) == 5);
    MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = qpn, .min_rnr_timer = 12,
                                .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};
    for (int k = 0; k < 16; k++) {
        unsigned byte;
        MUST(sscanf(hex + 2 * k, "%2x", &byte) == 1);
        attr.ah_attr.grh.dgid.raw[k] = (uint8_t)byte;
    }
    MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC));

    uint64_t begun = now(CLOCK_MONOTONIC), end = begun + (uint64_t)(seconds * 1e9), elapsed = 0;
    uint64_t messages = 0, posting = 0, polling = 0;
    if (!sends) {
        usleep((useconds_t)(seconds * 1e6) + 500000);
    } else {
        struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = bytes, .lkey = mr->lkey};
        struct ibv_send_wr request = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
                                      .wr.rdma = {.remote_addr = remote, .rkey = rkey}}, *bad;
        struct ibv_wc done[64];
        uint32_t room = depth;
        MUST(!ibv_req_notify_cq(cq, 0));
        while (room < depth || elapsed < end - begun) {
            uint64_t before = now(CLOCK_THREAD_CPUTIME_ID);
            for (; room && elapsed < end - begun; room--)
                MUST(!ibv_post_send(qp, &request, &bad));
            uint64_t between = now(CLOCK_THREAD_CPUTIME_ID);
            posting += between - before;
            int count, found = 0;
            while ((count = ibv_poll_cq(cq, 64, done)) > 0) {
                for (int k = 0; k < count; k++)
                    MUST(done[k].status == IBV_WC_SUCCESS);
                found += count;
            }
            MUST(count == 0);
            polling += now(CLOCK_THREAD_CPUTIME_ID) - between;
            room += (uint32_t)found;
            messages += (uint64_t)found;
            elapsed = now(CLOCK_MONOTONIC) - begun;
            if (!found && room < depth) {
                struct ibv_cq *whose;
                void *unused;
                MUST(!ibv_get_cq_event(channel, &whose, &unused));
                ibv_ack_cq_events(cq, 1);
                MUST(!ibv_req_notify_cq(cq, 0));
            }
        }
    }
    elapsed = now(CLOCK_MONOTONIC) - begun;
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", messages, elapsed, posting, polling,
           now(CLOCK_PROCESS_CPUTIME_ID));
    return ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || ibv_close_device(context);
}
