/* Asynchronous events. */
#include "mrcbed.h"

#include <sys/socket.h>

static bool of_a_queue_pair(uint32_t type) {
    switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return true;
    default:
        return false;
    }
}

/* Fills the event in, and counts it where an object's end waits for its acknowledgement. False if the object was destroyed meanwhile. */
static bool deliver(struct session *session, const struct event *event, struct ibv_async_event *to) {
    to->event_type = (enum ibv_event_type)event->type;
    to->element.port_num = (int)event->number;
    if (of_a_queue_pair(event->type)) {
        struct qp *qp = find_qp(session, (uint32_t)event->number);
        if (!qp)
            return false;
        to->element.qp = &qp->public.qp_base;
        pthread_mutex_lock(&qp->public.qp_base.mutex);
        qp->async_delivered++;
        pthread_mutex_unlock(&qp->public.qp_base.mutex);
    } else if (event->type == IBV_EVENT_CQ_ERR) {
        struct cq *cq = session->cqs;
        while (cq && cq->public.handle != event->number)
            cq = cq->next;
        if (!cq)
            return false;
        to->element.cq = ibv_cq_ex_to_cq(&cq->public);
        pthread_mutex_lock(&cq->public.mutex);
        cq->async_delivered++;
        pthread_mutex_unlock(&cq->public.mutex);
    }
    return true;
}

PUBLIC int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *to) {
    PASS(context, "IBVERBS_1.1", ibv_get_async_event, context, to);
    struct session *session = session_of(context);
    for (;;) {
        struct event event;
        ssize_t came = forked(session) ? 0 : recv(context->async_fd, &event, sizeof event, 0);
        if (came < 0) /* errno as it is: EAGAIN of a non-blocking descriptor, EINTR */
            return -1;
        if (came != sizeof event) { /* the agent's end, which is told once */
            if (!forked(session)) {
                bury(session);
                if (!atomic_exchange(&session->told, true)) {
                    *to = (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL};
                    return 0;
                }
            }
            errno = EIO;
            return -1;
        }
        pthread_mutex_lock(&session->objects);
        bool delivered = deliver(session, &event, to);
        pthread_mutex_unlock(&session->objects);
        if (delivered)
            return 0;
    }
}
BOTH(ibv_get_async_event);

/* An event of the device or a port leads to no object, whose library could be told by it: it needs no acknowledgement here or there. */
PUBLIC void ibv_ack_async_event(struct ibv_async_event *event) {
    if (of_a_queue_pair(event->event_type)) {
        struct ibv_qp *qp = event->element.qp;
        PASS(qp->context, "IBVERBS_1.1", ibv_ack_async_event, event);
        if (forked(session_of(qp->context)))
            return;
        pthread_mutex_lock(&qp->mutex);
        qp->events_completed++;
        pthread_cond_signal(&qp->cond);
        pthread_mutex_unlock(&qp->mutex);
    } else if (event->event_type == IBV_EVENT_CQ_ERR) {
        struct ibv_cq *cq = event->element.cq;
        PASS(cq->context, "IBVERBS_1.1", ibv_ack_async_event, event);
        if (forked(session_of(cq->context)))
            return;
        pthread_mutex_lock(&cq->mutex);
        cq->async_events_completed++;
        pthread_cond_signal(&cq->cond);
        pthread_mutex_unlock(&cq->mutex);
    } else if (event->event_type == IBV_EVENT_SRQ_ERR || event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED ||
               event->event_type == IBV_EVENT_WQ_FATAL) { /* objects that only others have; they begin alike */
        PASS(event->element.srq->context, "IBVERBS_1.1", ibv_ack_async_event, event);
    }
}
BOTH(ibv_ack_async_event);
