"""Everything that touches Ryu's OpenFlow: uN tables as flows (docs/how/openvswitch.md), port
events, counters.

We call the switches, at the UNIX socket that Open vSwitch opens for every bridge. Ryu's own
listener would take whoever comes, on every interface.

    table 0   ipv6_dst = block:self::/48  ->  hop limit down by one, uSIDs 16 bits to the left, on
    to table 1 table 1   ipv6_dst = block:next::/48  ->  out of the port
    misses    dropped, and counted by a flow of their own

Shifting is one register move of the 80 bits behind the own uSID, whose source and target overlap,
which Open vSwitch does right.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from testbed.controller import framework
from testbed.controller.ryu_base import AppManager, RyuApp, hub, set_ev_cls
from testbed.controller.southbound.base import PortReport
from testbed.errors import UserError
from testbed.machine.slowness import patient, remark

handler = framework.module("controller.handler")
CONFIG_DISPATCHER, DEAD_DISPATCHER = handler.CONFIG_DISPATCHER, handler.DEAD_DISPATCHER
HANDSHAKE_DISPATCHER, MAIN_DISPATCHER = handler.HANDSHAKE_DISPATCHER, handler.MAIN_DISPATCHER
ofp_event = framework.module("controller.ofp_event")
Datapath = framework.module("controller.controller").Datapath
OFPHandler: Any = framework.module("controller.ofp_handler").OFPHandler
nicira_ext = framework.module("ofproto.nicira_ext")
ofp = framework.module("ofproto.ofproto_v1_3")
parser = framework.module("ofproto.ofproto_v1_3_parser")

T = TypeVar("T")
ANSWER_S = 10.0
ANY_STATE = [HANDSHAKE_DISPATCHER, CONFIG_DISPATCHER, MAIN_DISPATCHER, DEAD_DISPATCHER]
ANSWERS = [
    ofp_event.EventOFPFlowStatsReply,
    ofp_event.EventOFPPortDescStatsReply,
    ofp_event.EventOFPBarrierReply,
    ofp_event.EventOFPErrorMsg,
]
ETH_P_IPV6 = 0x86DD
MASK_48 = "ffff:ffff:ffff::"
SHIFT, DROP = "shift", "drop"
Action = int | str
"""An output port's number, SHIFT, DROP, or the text of a flow that is not exactly ours."""


class Flow(NamedTuple):
    """``prefix``: the destination's first 6 bytes; empty, it matches any frame."""

    table: int
    prefix: bytes
    action: Action


class Count(NamedTuple):
    packets: int
    size: int  # bytes of whole frames


def _local_socket() -> Any:
    sock: Any = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    plain = sock.setsockopt
    sock.setsockopt = lambda level, *arguments: (
        None if level == socket.IPPROTO_TCP else plain(level, *arguments)
    )
    return sock


class _Handshake(OFPHandler):
    def start(self) -> None:
        RyuApp.start(self)


class _Ear(RyuApp):
    OFP_VERSIONS = [ofp.OFP_VERSION]  # noqa: RUF012  (Ryu's own way)

    def __init__(self, now: Callable[[], int], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.now = now
        self.waiting: dict[tuple[Any, int], Any] = {}
        self.news: Any = hub.Queue()

    @set_ev_cls(ANSWERS, ANY_STATE)
    def answer(self, event: Any) -> None:
        queue = self.waiting.get((event.msg.datapath, event.msg.xid))
        if queue is not None:
            queue.put(event.msg)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port(self, event: Any) -> None:
        heard_ps = self.now()
        deleted = event.msg.reason == ofp.OFPPR_DELETE
        self.news.put(
            PortReport(event.msg.desc.name.decode(), not deleted and _up(event.msg.desc), heard_ps)
        )

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def gone(self, event: Any) -> None:
        self.news.put(None)


class Bridges:
    """OpenFlow sessions with all switches. Methods raise UserError when a switch refuses or has
    hung up."""

    def __init__(self, sockets: Mapping[str, Path], now: Callable[[], int]) -> None:
        self._sockets, self._now = sockets, now
        self._datapaths: dict[str, Any] = {}
        self._ear: Any = None

    def connect(self) -> None:
        if self._ear is not None:
            return
        manager = AppManager.get_instance()
        self._ear = manager.instantiate(_Ear, self._now)
        handshake = manager.instantiate(_Handshake)
        for app in (self._ear, handshake):
            app.start()
        for switch, path in self._sockets.items():
            sock = _local_socket()
            try:
                sock.connect(str(path))
            except OSError as error:
                reason = errno.errorcode.get(error.errno or 0, str(error))
                raise UserError(
                    f"controller: no OpenFlow switch at {path} ({reason}): start Open vSwitch first"
                ) from None
            self._datapaths[switch] = Datapath(sock, str(path))
            hub.spawn(self._serve, self._datapaths[switch])
        until = time.monotonic() + patient(ANSWER_S)
        for switch, datapath in self._datapaths.items():
            while datapath.state != MAIN_DISPATCHER:
                if datapath.state == DEAD_DISPATCHER or time.monotonic() > until:
                    ended = datapath.state == DEAD_DISPATCHER
                    reason = (
                        "it closed the connection"
                        if ended
                        else f"no answer within {patient(ANSWER_S):.0f} s{remark()}"
                    )
                    raise UserError(
                        f"controller: {switch} does not speak OpenFlow 1.3 at "
                        f"{self._sockets[switch]} ({reason})"
                    )
                hub.sleep(0.001)

        def news(switch: str) -> None:
            # Open vSwitch tells a caller nothing unasked before it has set a length for missed
            # packets; of these we want none all the same.
            port_news = 1 << ofp.OFPPR_ADD | 1 << ofp.OFPPR_DELETE | 1 << ofp.OFPPR_MODIFY
            datapath = self._datapaths[switch]
            subscription = parser.OFPSetAsync(datapath, [0, 0], [port_news, port_news], [0, 0])
            self._ask(
                switch,
                parser.OFPSetConfig(datapath, 0, 128),
                subscription,
                parser.OFPBarrierRequest(datapath),
            )

        self.each(news)

    def each(self, work: Callable[[str], T]) -> dict[str, T]:
        """An answer takes one round of Open vSwitch's single loop, so all are asked at once. Raises
        what any call raises."""
        results: dict[str, T] = {}
        failed: list[Exception] = []

        def run(switch: str) -> None:
            try:
                results[switch] = work(switch)
            except Exception as error:
                # raised below: nobody sees an exception that ends a green thread
                failed.append(error)

        hub.joinall([hub.spawn(run, switch) for switch in self._datapaths])
        if failed:
            raise failed[0]
        return results

    @staticmethod
    def _serve(datapath: Any) -> None:
        try:
            datapath.serve()
        finally:
            datapath.close()

    def ports(self, switch: str) -> dict[str, tuple[int, bool]]:
        """Return port name -> (OpenFlow number, up with carrier), without the switch's own local
        port."""
        descriptions = [
            p
            for msg in self._ask(switch, parser.OFPPortDescStatsRequest(self._datapaths[switch], 0))
            for p in msg.body
        ]
        return {
            p.name.decode(): (int(p.port_no), _up(p))
            for p in descriptions
            if p.port_no <= ofp.OFPP_MAX
        }

    def read(self, switch: str) -> dict[Flow, Count]:
        datapath = self._datapaths[switch]
        flows = [
            flow
            for msg in self._ask(switch, parser.OFPFlowStatsRequest(datapath))
            for flow in msg.body
        ]
        return {
            _flow_of(stats): Count(stats.packet_count, stats.byte_count)
            for stats in flows
            if stats.table_id in (0, 1)
        }

    def write(self, switch: str, flows: Iterable[Flow], afresh: bool) -> None:
        datapath = self._datapaths[switch]
        anything = {"out_port": ofp.OFPP_ANY, "out_group": ofp.OFPG_ANY}
        away = parser.OFPFlowMod(
            datapath,
            table_id=ofp.OFPTT_ALL,
            command=ofp.OFPFC_DELETE,
            match=parser.OFPMatch(),
            **anything,
        )
        messages = [self._added(datapath, flow) for flow in flows]
        self._ask(
            switch, *([away] if afresh else []), *messages, parser.OFPBarrierRequest(datapath)
        )

    def next_report(self) -> PortReport:
        report = self._ear.news.get()
        if report is None:
            raise UserError("controller: a switch hung up: Open vSwitch has ended")
        assert isinstance(report, PortReport)
        return report

    def _ask(self, switch: str, *messages: Any) -> list[Any]:
        datapath = self._datapaths[switch]
        queue = hub.Queue()
        keys = []
        for message in messages:
            datapath.set_xid(message)
            keys.append((datapath, message.xid))
            self._ear.waiting[keys[-1]] = queue
        replies: list[Any] = []
        try:
            for message in messages:
                datapath.send_msg(message)
            while True:
                reply = queue.get(timeout=patient(ANSWER_S))
                if isinstance(reply, parser.OFPErrorMsg):
                    raise UserError(
                        f"controller: {switch} refused a message (OpenFlow error "
                        f"{reply.type}/{reply.code})"
                    )
                replies.append(reply)
                if not getattr(reply, "flags", 0) & ofp.OFPMPF_REPLY_MORE:
                    return replies
        except hub.QueueEmpty:
            raise UserError(
                f"controller: {switch} did not answer within {patient(ANSWER_S):.0f} s"
            ) from None
        finally:
            for key in keys:
                del self._ear.waiting[key]

    @staticmethod
    def _added(datapath: Any, flow: Flow) -> Any:
        match = (
            parser.OFPMatch(eth_type=ETH_P_IPV6, ipv6_dst=(_text(flow.prefix), MASK_48))
            if flow.prefix
            else parser.OFPMatch()
        )
        return parser.OFPFlowMod(
            datapath,
            table_id=flow.table,
            priority=int(bool(flow.prefix)),
            match=match,
            instructions=_instructions(flow.action),
        )


def _text(prefix: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET6, prefix + bytes(10))


def _instructions(action: Action) -> list[Any]:
    if action == DROP:
        return []
    if action != SHIFT:
        return [
            parser.OFPInstructionActions(
                ofp.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(action, 0)]
            )
        ]
    steps = [
        parser.OFPActionDecNwTtl(),
        parser.NXActionRegMove(
            src_field="ipv6_dst_nxm", dst_field="ipv6_dst_nxm", n_bits=80, src_ofs=0, dst_ofs=16
        ),
        parser.NXActionRegLoad(ofs_nbits=nicira_ext.ofs_nbits(0, 15), dst="ipv6_dst_nxm", value=0),
        parser.NXActionRegLoad(ofs_nbits=nicira_ext.ofs_nbits(0, 15), dst="in_port_nxm", value=0),
    ]
    return [
        parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, steps),
        parser.OFPInstructionGotoTable(1),
    ]


def _wire(instructions: list[Any]) -> bytes:
    out = bytearray()
    for instruction in instructions:
        instruction.serialize(out, len(out))
    return bytes(out)


def _flow_of(stats: Any) -> Flow:
    match = dict(stats.match.items())
    prefix = b""
    if (
        set(match) == {"eth_type", "ipv6_dst"}
        and match["eth_type"] == ETH_P_IPV6
        and match["ipv6_dst"][1:] == (MASK_48,)
    ):
        prefix = socket.inet_pton(socket.AF_INET6, match["ipv6_dst"][0])[:6]
    if stats.priority == int(bool(prefix)) and bool(prefix) == bool(match):
        outputs = [
            a.port
            for i in stats.instructions
            for a in getattr(i, "actions", [])
            if isinstance(a, parser.OFPActionOutput)
        ]
        for action in (DROP, SHIFT, *outputs):
            if _wire(stats.instructions) == _wire(_instructions(action)):
                return Flow(stats.table_id, prefix, action)
    return Flow(
        stats.table_id,
        prefix,
        f"priority {stats.priority}, {match or 'any frame'}: {stats.instructions or 'drop'}",
    )


def _up(port: Any) -> bool:
    return not port.state & ofp.OFPPS_LINK_DOWN and not port.config & ofp.OFPPC_PORT_DOWN
