/* RDMA verbs in C: rank 1 writes a line, with an immediate, into the memory of rank 0, which sleeps until it is there. Two hosts:
 * gcc docs/examples/verbs_write.c -o verbs_write -libverbs && sudo .venv/bin/mrcbed launch --verbs -n 2 -- ./verbs_write {server} */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OR_END(works) ((works) ? (void)0 : (perror(#works), exit(1)))
struct side { /* what the other side has to know */
    uint64_t qpn, rkey, address;
    union ibv_gid gid;
};

static int to_peer(const char *server) { /* a TCP connection, by the management network */
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7000)};
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    if (server) {
        OR_END(inet_pton(AF_INET, server, &at.sin_addr) == 1 && !connect(sock, (struct sockaddr *)&at, sizeof at));
        return sock;
    }
    OR_END(!setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &(int){1}, 4) && !bind(sock, (struct sockaddr *)&at, sizeof at) && !listen(sock, 1));
    return accept(sock, NULL, NULL);
}

int main(int count, char **words) {
    static char memory[64] = "nothing", text[64];
    struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, channel, 0), *awake;
    struct ibv_wc wc;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp *qp = ibv_create_qp(pd, &(struct ibv_qp_init_attr){.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
                                          .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_inline_data = sizeof text}});
    struct side own = {qp->qp_num, mr->rkey, (uintptr_t)memory, {{0}}}, peer;
    OR_END(!ibv_query_gid(context, 1, 0, &own.gid) && !ibv_req_notify_cq(cq, 0));
    int there = to_peer(count > 1 ? words[1] : NULL);
    OR_END(write(there, &own, sizeof own) == sizeof own && read(there, &peer, sizeof peer) == sizeof peer);
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .path_mtu = IBV_MTU_4096,
                             .dest_qp_num = peer.qpn, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid}},
                             .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    OR_END(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    to.qp_state = IBV_QPS_RTR;
    OR_END(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    to.qp_state = IBV_QPS_RTS;
    OR_END(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC));
    OR_END(!ibv_post_recv(qp, &(struct ibv_recv_wr){0}, &(struct ibv_recv_wr *){NULL}));
    OR_END(write(there, "", 1) == 1 && read(there, text, 1) == 1);
    struct ibv_sge sge = {(uintptr_t)text, snprintf(text, sizeof text, "greetings from %s", getenv("MRCBED_HOST")), 0};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_INLINE, .sg_list = &sge, .num_sge = 1,
                             .imm_data = htonl(42), .wr.rdma = {peer.address, peer.rkey}}, *no_send;
    OR_END(count == 1 || !ibv_post_send(qp, &wr, &no_send));
    OR_END(!ibv_get_cq_event(channel, &awake, (void *[]){NULL}) && ibv_poll_cq(awake, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    if (count == 1) /* rank 0 */
        printf("%u bytes with immediate %u: %s\n", wc.byte_len, ntohl(wc.imm_data), memory);
}
