-- MRC and the SRv6 micro-SIDs of mrcbed, for Wireshark and tshark (4.0 of Debian 12, and later).
--
--   tshark -X lua_script:testbed/wireshark/mrc.lua -r link.pcap
--
-- What it is for: reading captures that `mrcbed run --pcap` keeps. It shows each uSID of the outer destination by the name of
-- its switch, puts the entropy value together again, names every field of every MRC header, and checks the iCRC.
-- Layouts and choices: docs/how/wireshark.md and agents/mrc/wire.py, which a test compares with this file field by field.
-- What it must never do: change what other traffic looks like. RoCE shares UDP port 4791 with MRC: only MRC's own opcodes
-- are decoded here, everything else goes to Wireshark's InfiniBand dissector as before.

local usid = Proto("usid", "SRv6 micro-SIDs")
local mrc = Proto("mrc", "Multipath Reliable Connection")

mrc.prefs.port = Pref.uint("UDP port", 4791, "MRC's UDP destination port: RoCE's 4791; the specification prints 4971 in one place")
mrc.prefs.icrc = Pref.bool("Check the iCRC", true, "Compute the invariant CRC of every packet; large captures load faster without")

-- Addresses and uSIDs as topologies/addressing.py makes them, DSCP values as agents/packets/dscp.py (they are the operator's to choose).
local BLOCK, BLOCK_TEXT = "\xfc\xbb\xbb\x00", "fcbb:bb00::/32"
local INNER_PREFIX = "\xfd\x6d\x72\x63" .. ("\0"):rep(10) -- fd6d:7263::<host number + 1>
local CLASSES = { [48] = "CONTROL", [10] = "TRIMMABLE", [12] = "NO_TRIM", [14] = "TRIMMABLE_RETX", [18] = "TRIMMED", [20] = "TRIMMED_LASTHOP", [22] = "RETX_HIGH" }
local ECN = { [0] = "not ECT", [1] = "ECT(1)", [2] = "ECT(0)", [3] = "CE, met congestion" }
local TIERS = { [1] = "T0", [2] = "T1", [3] = "host downlink" }

local WRITE_LAST, ACK, REQUEST, RESPONSE, SACK, NACK, PROBE = 0xCB, 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE
local OPCODES = {
    [0xC6] = "WRITE First", [0xC7] = "WRITE Middle", [0xC8] = "WRITE Last", [0xC9] = "WRITE Last with immediate",
    [0xCA] = "WRITE Only", [0xCB] = "WRITE Only with immediate", [ACK] = "ACK", [REQUEST] = "Endpoint request",
    [RESPONSE] = "Endpoint response", [SACK] = "SACK", [NACK] = "NACK", [PROBE] = "Reliability Probe",
}
local WITH_IMMEDIATE = { [0xC9] = true, [0xCB] = true }
local SYNDROMES = { [0x1F] = "fine", [0x61] = "invalid request", [0x62] = "remote access error", [0x63] = "remote operational error" }
local REASONS = {
    [0x01] = "TRIMMED", [0x02] = "TRIMMED_LASTHOP", [0x06] = "NO_BITMAP", [0x07] = "NO_PKT_BUFFER", [0x0A] = "NO_RESOURCE",
    [0x0B] = "PSN_OOR_WINDOW", [0x19] = "UNEXP_EVENT",
}
local ADVICE = { [0] = "NONE", [1] = "SKIP_ONCE", [2] = "ALWAYS_SKIP" }
local OPERATIONS = { [0] = "Port Status Update", [1] = "EV Probe" }
local ICRC_STATUS = { [0] = "Bad", [1] = "Good", [2] = "Unverified" }

-- --- fields --------------------------------------------------------------------------------------------------

local U = {
    block = ProtoField.string("usid.block", "Locator block"),
    path = ProtoField.string("usid.path", "Path ahead"),
    next = ProtoField.string("usid.next", "Next"),
    left = ProtoField.uint8("usid.left", "uSIDs left"),
    sid = ProtoField.uint16("usid.sid", "uSID", base.HEX),
    name = ProtoField.string("usid.name", "Name"),
    plane = ProtoField.uint16("usid.plane", "Plane", base.DEC, nil, 0xF000),
    tier = ProtoField.uint16("usid.tier", "Tier", base.DEC, TIERS, 0x0C00),
    index = ProtoField.uint16("usid.index", "Number", base.DEC, nil, 0x03FF),
}
usid.fields = { U.block, U.path, U.next, U.left, U.sid, U.name, U.plane, U.tier, U.index }

local F = {} -- by the filter name without "mrc."
local list = {}

local function field(kind, name, ...)
    F[name] = ProtoField[kind]("mrc." .. name, ...)
    list[#list + 1] = F[name]
end

local function bits(width, name, text, mask, names)
    field("uint" .. width, name, text, base.DEC, names, mask)
end

local function flag(width, name, text, mask)
    field("bool", name, text, width, nil, mask)
end

field("string", "path", "Path")
field("uint32", "ev", "Entropy value (EV)", base.HEX)
field("uint16", "plane", "Plane, from the inner flow label")
field("uint16", "uplink", "Uplink of the first T0, from the UDP source port")
field("string", "src_host", "From")
field("string", "dst_host", "To")
field("uint8", "dscp", "Class, the outer DSCP", base.DEC, CLASSES)
field("uint8", "ecn", "Outer ECN", base.DEC, ECN)
field("bool", "trimmed", "Trimmed by a switch")

field("none", "bth", "Base Transport Header (BTH)")
field("uint8", "opcode", "Opcode", base.HEX, OPCODES)
bits(8, "bth.m", "M (order of M and SE is disputed)", 0x80)
bits(8, "bth.se", "SE", 0x40)
bits(8, "bth.pad", "Pad bytes after the payload", 0x30)
bits(8, "bth.tver", "Transport header version", 0x0F)
field("uint16", "pkey", "Partition key", base.HEX)
field("uint8", "bth.res", "Reserved", base.HEX)
field("uint24", "dqpn", "Destination QP", base.DEC)
flag(8, "ackreq", "A: asks for a SACK", 0x80)
bits(8, "bth.r", "R, reserved", 0x40)
flag(8, "rtx", "RTX: a retransmission (in a SACK: its trigger was one)", 0x20)
flag(8, "ts", "TS: timestamp header follows", 0x10)
bits(8, "bth.res4", "Reserved", 0x0F)
field("uint24", "psn", "PSN", base.DEC)

field("none", "meth", "Message Header (METH)")
field("uint16", "meth.rqmsn", "RQMSN, immediates posted before this message")
field("uint16", "meth.msn", "MSN, number of this message")
field("none", "tseth", "Timestamp Header (TSETH)")
field("none", "reth", "RDMA Header (RETH)")
field("uint64", "reth.va", "Virtual address of this packet's payload", base.HEX)
field("uint32", "reth.rkey", "Remote key", base.HEX)
field("uint32", "reth.dmalen", "Length of the whole message, bytes")
field("uint32", "imm", "Immediate data", base.HEX_DEC)
field("bytes", "payload", "Payload")
field("uint32", "payload.length", "Payload length, bytes")
field("uint32", "payload.original_length", "Payload length before trimming, bytes (pad included)")
field("bytes", "pad", "Pad")

field("none", "aeth", "Acknowledge Header (AETH)")
field("uint8", "aeth.syndrome", "Syndrome", base.HEX, SYNDROMES)
field("uint24", "aeth.msn", "MSN, messages completed so far", base.DEC)

field("none", "sack", "Selective Acknowledge Header (SETH)")
field("none", "nack", "Negative Acknowledge Header (NETH)")
for _, h in ipairs { "sack", "nack" } do
    bits(16, h .. ".type", "Type", 0xF000)
    bits(16, h .. ".nxt", "Next", 0x0F80)
    field("uint32", h .. ".entropy", "EV of the packet it answers", base.HEX)
    field("uint16", h .. ".plane", "Plane of that EV")
    field("uint16", h .. ".uplink", "Uplink of that EV")
    field("uint8", h .. ".res12", "Reserved", base.HEX)
    bits(8, h .. ".cc_type", "Congestion control type", 0xF0)
    bits(8, h .. ".cc_fl", "Congestion control flags", 0x0F)
end
bits(16, "sack.m", "M, what the sender should do with that EV", 0x0060, ADVICE)
bits(16, "sack.res", "Reserved", 0x001C)
flag(16, "sack.pr", "PR: answers a probe", 0x0002)
bits(16, "sack.r", "Reserved", 0x0001)
field("int16", "sack.ack_psn_offset", "PSN that triggered it, relative to the cumulative PSN")
field("uint24", "sack.ack_psn", "PSN that triggered it", base.DEC)
field("uint16", "sack.probe_id", "Probe id")
field("uint24", "sack.cack_psn", "Cumulative PSN, everything up to it arrived", base.DEC)
field("uint8", "sack.mpr", "MPR, receive window in units of 128 PSNs")
field("int16", "sack.sack_offset", "First PSN of the bitmap, relative to the cumulative PSN")
field("uint24", "sack.base_psn", "First PSN of the bitmap", base.DEC)
field("uint64", "sack.bitmap", "Bitmap of PSNs received", base.HEX)
field("string", "sack.received", "PSNs received, by the bitmap")
field("string", "sack.missing", "PSNs missing below the highest of these")
field("uint24", "sack.psn", "PSN received", base.DEC)
field("none", "cc", "Congestion Control State (CC_STATE)")
bits(16, "cc.r", "Reserved", 0x8000)
bits(16, "cc.ooo_count", "Packets received out of order", 0x7FFF)
bits(8, "cc.restore_cwnd", "Restore the congestion window", 0x80)
bits(8, "cc.rcv_cwnd_pen", "Receiver's penalty on the window, 1/128", 0x7F)
field("uint24", "cc.rcvd_bytes", "Received so far, units of 256 bytes", base.DEC)

bits(16, "nack.res", "Reserved", 0x007F)
field("uint8", "nack.reason", "Reason", base.HEX, REASONS)
field("uint8", "nack.vendor", "Vendor code", base.HEX)
field("uint24", "nack.nack_psn", "PSN refused", base.DEC)
field("uint8", "nack.res17", "Reserved", base.HEX)

field("none", "probe", "Probe Header (PETH)")
field("uint8", "probe.vendor", "Vendor code", base.HEX)
field("uint16", "probe.probe_id", "Probe id")
for _, h in ipairs { "sack", "nack", "probe" } do
    field("uint16", h .. ".spdcid", "SPDCID, low 16 bits of this packet's sender's QP")
    field("uint16", h .. ".dpdcid", "DPDCID, low 16 bits of its receiver's QP")
end

field("none", "endpoint", "Endpoint Header")
field("uint16", "endpoint.request_id", "Request id, low 16 bits of the PSN (bit 15 set: EV Probe)", base.HEX)
bits(8, "endpoint.request_op", "Operation", 0x03, OPERATIONS)
bits(8, "endpoint.response_op", "Operation", 0x0C, OPERATIONS)
field("uint32", "endpoint.port_status_mask", "Port status mask, bit N: port N is reachable", base.HEX)
field("string", "endpoint.ports", "Reachable ports")

for _, h in ipairs { "tseth", "cc", "nack", "probe", "endpoint" } do
    local echo = h == "cc" or h == "nack"
    field("uint16", h .. ".tx_ts", echo and "Timestamp of the packet it answers (fabric's unit, wraps)" or "Timestamp (fabric's unit, wraps)")
    if not echo then
        bits(16, h .. ".tsr", "TSR", 0x8000)
        bits(16, h .. ".ts_res", "Reserved", 0x7FF0)
        bits(16, h .. ".ftype", "FType", 0x000F)
    end
end
for _, h in ipairs { "probe", "endpoint" } do
    field("bytes", h .. ".res", "Reserved")
end

field("uint32", "icrc", "Invariant CRC (iCRC)", base.HEX)
field("uint32", "icrc.calculated", "Calculated", base.HEX)
field("uint8", "icrc.status", "iCRC status", base.DEC, ICRC_STATUS)
mrc.fields = list

local E = {
    odd_sid = ProtoExpert.new("usid.odd", "Not a uSID of this testbed", expert.group.PROTOCOL, expert.severity.WARN),
    icrc = ProtoExpert.new("mrc.icrc.bad", "iCRC is wrong: the packet was damaged on its way", expert.group.CHECKSUM, expert.severity.ERROR),
    short = ProtoExpert.new("mrc.truncated", "Packet is too short for its headers", expert.group.MALFORMED, expert.severity.ERROR),
    long = ProtoExpert.new("mrc.too_long", "More bytes than this packet's headers take", expert.group.MALFORMED, expert.severity.WARN),
    snapped = ProtoExpert.new("mrc.not_captured", "The capture kept only the beginning of this packet", expert.group.UNDECODED, expert.severity.NOTE),
    trimmed = ProtoExpert.new("mrc.trimmed.note", "A switch cut the payload off rather than drop the packet", expert.group.SEQUENCE, expert.severity.NOTE),
}
usid.experts = { E.odd_sid }
mrc.experts = { E.icrc, E.short, E.long, E.snapped, E.trimmed }

-- --- small things --------------------------------------------------------------------------------------------

-- Lua 5.2 (Wireshark 4.0) has bit32, Lua 5.4 (4.4 on) has operators, which 5.2 cannot even parse.
local bxor = bit32 and bit32.bxor or load("return function(a, b, c, d) return a ~ b ~ (c or 0) ~ (d or 0) end")()

local CRC = { {}, {}, {}, {} } -- CRC[k][byte]: what a byte leaves behind k bytes later
for i = 0, 255 do
    local c = i
    for _ = 1, 8 do
        c = c % 2 == 1 and bxor((c - 1) / 2, 0xEDB88320) or c / 2
    end
    CRC[1][i] = c
end
for k = 2, 4 do
    for i = 0, 255 do
        local c = CRC[k - 1][i]
        CRC[k][i] = bxor((c - c % 256) / 256, CRC[1][c % 256])
    end
end

-- CRC-32, four bytes a turn: a full packet takes well under a millisecond.
local function crc32(s)
    local t1, t2, t3, t4, byte = CRC[1], CRC[2], CRC[3], CRC[4], string.byte
    local crc, whole = 0xFFFFFFFF, #s - #s % 4
    for i = 1, whole, 4 do
        local a, b, c, d = byte(s, i, i + 3)
        local x = bxor(crc, a + b * 0x100 + c * 0x10000 + d * 0x1000000)
        a = x % 256
        x = (x - a) / 256
        b = x % 256
        x = (x - b) / 256
        c = x % 256
        crc = bxor(t4[a], t3[b], t2[c], t1[(x - c) / 256])
    end
    for i = whole + 1, #s do
        crc = bxor((crc - crc % 256) / 256, t1[bxor(crc % 256, byte(s, i))])
    end
    return bxor(crc, 0xFFFFFFFF)
end

-- RoCEv2's iCRC: eight bytes of FF, then the packet from the inner IPv6 header on, with what may change on the way as ones (traffic
-- class, flow label, hop limit, UDP checksum, BTH byte 4). `head`: the 48 bytes of inner IPv6 and UDP; `body`: BTH to before the iCRC.
local function icrc_of(head, body)
    local version = head:byte(1) - head:byte(1) % 16
    return crc32(("\xff"):rep(8) .. string.char(version + 15) .. "\xff\xff\xff" .. head:sub(5, 7) .. "\xff" .. head:sub(9, 46)
        .. "\xff\xff" .. body:sub(1, 4) .. "\xff" .. body:sub(6))
end

local function u16(s, at) -- big-endian, `at` from 1
    return s:byte(at) * 256 + s:byte(at + 1)
end

local function sid_name(value)
    local plane, tier, number = math.floor(value / 4096), math.floor(value / 1024) % 4, value % 1024
    if tier == 0 then
        return string.format("unknown 0x%04x", value), false
    elseif tier == 3 then
        return string.format("downlink %d", number), true -- which host that is depends on the T0 before it
    end
    return string.format("p%d-t%d-%d", plane, tier - 1, number), true
end

local function host_name(address)
    local number = u16(address, 15)
    return address:sub(1, 14) == INNER_PREFIX and number > 0 and "h" .. (number - 1) or nil
end

local function short_ev(plane, uplink)
    return string.format("p%d/u%d", plane, uplink)
end

local function ranges(psns)
    local parts, i = {}, 1
    while i <= #psns do
        local j = i
        while psns[j + 1] == (psns[j] + 1) % 0x1000000 do
            j = j + 1
        end
        parts[#parts + 1] = i == j and tostring(psns[i]) or psns[i] .. "-" .. psns[j]
        i = j + 1
    end
    return #parts > 0 and table.concat(parts, ", ") or "none"
end

-- --- the outer destination: micro-SIDs -----------------------------------------------------------------------

-- Dissectors of other protocols are never called from here: an exception in one of them ("packet size limited during capture") jumps over
-- Lua without unwinding it, and after some sixty such packets Lua is dead. Instead a glance at the frame decides, before anyone has
-- dissected it, whose UDP port 4791 is this time.

local udp_port = DissectorTable.get("udp.port")
local port, roce -- MRC's UDP port, and whose it is otherwise
local lent = {} -- UDP ports taken from other dissectors while one MRC packet goes by
local at_hand = {} -- what the frame says: its number, `outer` destination, `next` uSID; for MRC `dscp`, `ecn`, `head` (inner IPv6 and UDP)

local function names_of(address)
    local names, sids = {}, 0
    for k = 1, 6 do
        sids = u16(address, 3 + 2 * k) ~= 0 and k or sids
    end
    for k = 1, sids do
        names[k] = sid_name(u16(address, 3 + 2 * k))
    end
    return names
end

local function show_sids(tree, range)
    local names = names_of(range:bytes():raw())
    local sids = #names
    local path = sids > 0 and table.concat(names, " > ") or "none"
    local top = tree:add(usid, range):set_text("SRv6 micro-SIDs, " .. sids .. " left: " .. path)
    top:add(U.block, range(0, 4), BLOCK_TEXT)
    for k = 1, sids do
        local two = range(2 + 2 * k, 2)
        local name, known = sid_name(two:uint())
        local item = top:add(U.sid, two):append_text(" = " .. name)
        item:add(U.name, two, name)
        item:add(U.plane, two)
        item:add(U.tier, two)
        item:add(U.index, two)
        if not known then
            item:add_proto_expert_info(E.odd_sid)
        end
    end
    top:add(U.left, range(4), sids):set_generated()
    top:add(U.next, range(4, 2), names[1] or "none"):set_generated()
    top:add(U.path, range(4), path):set_generated()
end

local function restore()
    for taken, owner in pairs(lent) do
        if owner then
            udp_port:add(taken, owner)
        else
            udp_port:remove(taken, mrc)
        end
    end
    lent = {}
end

-- Asked about every Ethernet frame first; claims none.
local function glance(tvb, pinfo)
    restore()
    at_hand = { frame = pinfo.number }
    if tvb:len() < 54 or tvb(12, 2):uint() ~= 0x86DD or tvb(20, 1):uint() ~= 41 then
        return false
    end
    local outer = tvb:raw(38, 16)
    if outer:sub(1, 4) == BLOCK then
        at_hand.outer = tvb(38, 16)
        at_hand.next = names_of(outer)[1]
    end
    if tvb:len() < 103 or tvb(60, 1):uint() ~= 17 or tvb(96, 2):uint() ~= port or not OPCODES[tvb(102, 1):uint()] then
        return false
    end
    local class = math.floor(tvb(14, 2):uint() / 16) % 256
    at_hand.dscp, at_hand.ecn, at_hand.head = math.floor(class / 4), class % 4, tvb:raw(54, 48)
    -- The source port is an uplink's number, and UDP asks for the dissector of the lower port first: uplink 7 would be Echo.
    local source = tvb(94, 2):uint()
    local other = source < port and udp_port:get_dissector(source)
    if other then
        udp_port:remove(source, other)
        lent[source] = other
    end
    lent[port] = roce or false
    udp_port:add(port, mrc)
    return false
end

-- After everyone else: micro-SIDs of what is not MRC (ping, TCP, RoCE).
function usid.dissector(_, pinfo, tree)
    restore()
    if at_hand.frame ~= pinfo.number or not at_hand.outer or at_hand.shown then
        return 0
    end
    show_sids(tree, at_hand.outer)
    return 16
end

-- --- the headers ---------------------------------------------------------------------------------------------

local function show_ev(header)
    return function(item, range)
        local plane, uplink = range(0, 2):uint(), range(2, 2):uint()
        item:append_text(" (" .. short_ev(plane, uplink) .. ")")
        item:add(F[header .. ".plane"], range(0, 2))
        item:add(F[header .. ".uplink"], range(2, 2))
    end
end

local function timestamp(header, at)
    return { header .. ".tx_ts", at, 2 }, { header .. ".tsr", at + 2, 2 }, { header .. ".ts_res", at + 2, 2 }, { header .. ".ftype", at + 2, 2 }
end

-- Per header: length, then { field, offset, length, what else to show of it }.
local LAYOUTS = {
    bth = {
        12, { "opcode", 0, 1 }, { "bth.m", 1, 1 }, { "bth.se", 1, 1 }, { "bth.pad", 1, 1 }, { "bth.tver", 1, 1 }, { "pkey", 2, 2 }, { "bth.res", 4, 1 },
        { "dqpn", 5, 3 }, { "ackreq", 8, 1 }, { "bth.r", 8, 1 }, { "rtx", 8, 1 }, { "ts", 8, 1 }, { "bth.res4", 8, 1 }, { "psn", 9, 3 },
    },
    meth = { 4, { "meth.rqmsn", 0, 2 }, { "meth.msn", 2, 2 } },
    tseth = { 4, timestamp("tseth", 0) },
    reth = { 16, { "reth.va", 0, 8 }, { "reth.rkey", 8, 4 }, { "reth.dmalen", 12, 4 } },
    aeth = { 4, { "aeth.syndrome", 0, 1 }, { "aeth.msn", 1, 3 } },
    sack = {
        28, { "sack.type", 0, 2 }, { "sack.nxt", 0, 2 }, { "sack.m", 0, 2 }, { "sack.res", 0, 2 }, { "sack.pr", 0, 2 }, { "sack.r", 0, 2 },
        { "sack.ack_psn_offset", 2, 2 }, { "sack.entropy", 4, 4, show_ev("sack") }, { "sack.spdcid", 8, 2 }, { "sack.dpdcid", 10, 2 },
        { "sack.res12", 12, 1 }, { "sack.cack_psn", 13, 3 }, { "sack.cc_type", 16, 1 }, { "sack.cc_fl", 16, 1 }, { "sack.mpr", 17, 1 },
        { "sack.sack_offset", 18, 2 }, { "sack.bitmap", 20, 8 },
    },
    cc = {
        8, { "cc.tx_ts", 0, 2 }, { "cc.r", 2, 2 }, { "cc.ooo_count", 2, 2 }, { "cc.restore_cwnd", 4, 1 }, { "cc.rcv_cwnd_pen", 4, 1 }, { "cc.rcvd_bytes", 5, 3 },
    },
    nack = {
        20, { "nack.type", 0, 2 }, { "nack.nxt", 0, 2 }, { "nack.res", 0, 2 }, { "nack.reason", 2, 1 }, { "nack.vendor", 3, 1 },
        { "nack.entropy", 4, 4, show_ev("nack") }, { "nack.spdcid", 8, 2 }, { "nack.dpdcid", 10, 2 }, { "nack.res12", 12, 1 }, { "nack.nack_psn", 13, 3 },
        { "nack.cc_type", 16, 1 }, { "nack.cc_fl", 16, 1 }, { "nack.res17", 17, 1 }, { "nack.tx_ts", 18, 2 },
    },
    probe = {
        16, { "probe.res", 0, 3 }, { "probe.vendor", 3, 1 }, { "probe.probe_id", 4, 2 }, { "probe.res", 6, 2 }, { "probe.spdcid", 8, 2 },
        { "probe.dpdcid", 10, 2 }, timestamp("probe", 12),
    },
    request = {
        16, { "endpoint.res", 0, 1 }, { "endpoint.request_op", 1, 1 }, { "endpoint.res", 2, 2 }, { "endpoint.port_status_mask", 4, 4 },
        { "endpoint.res", 8, 4 }, timestamp("endpoint", 12),
    },
    response = {
        36, { "endpoint.res", 0, 1 }, { "endpoint.response_op", 1, 1 }, { "endpoint.res", 2, 26 }, { "endpoint.tx_ts", 28, 2 }, { "endpoint.res", 30, 6 },
    },
}

-- One packet on its way through: `at` is where the next header starts, `ended` why there is none.
local Walk = {}
Walk.__index = Walk

-- The next `n` bytes; nil, with the reason shown, if the packet or its capture ends before. `what` names them.
function Walk:take(n, what)
    if self.ended then
        return nil
    end
    if self.at + n > self.length then
        self.ended = "short"
        self.top:add_proto_expert_info(E.short, string.format("%s takes %d bytes, %d are left", what, n, math.max(self.length - self.at, 0)))
        return nil
    elseif self.at + n > self.captured then
        self.ended = "snapped"
        self.top:add_proto_expert_info(E.snapped)
        return nil
    end
    local range = self.tvb(self.at, n)
    self.at = self.at + n
    return range
end

-- A header by its layout; returns its tree item and bytes.
function Walk:header(name, shown)
    local layout = LAYOUTS[name]
    local range = self:take(layout[1], shown)
    if not range then
        return nil
    end
    local header = self.top:add(F[name] or F.endpoint, range)
    for i = 2, #layout do
        local key, at, n, more = layout[i][1], layout[i][2], layout[i][3], layout[i][4]
        if key == "sack.ack_psn_offset" and range(1, 1):uint() % 4 >= 2 then
            key = "sack.probe_id" -- a probe's answer has the probe's id in that place
        end
        local item = header:add(F[key], range(at, n))
        if key == "sack.mpr" then
            item:append_text(string.format(" (%d PSNs)", range(at, n):uint() * 128))
        elseif more then
            more(item, range(at, n))
        end
    end
    return header, range
end

local BODIES = {}

function BODIES.write(walk, op)
    walk:header("meth", "METH")
    if walk.ts then
        walk:header("tseth", "TSETH")
    end
    local header, reth = walk:header("reth", "RETH")
    if header then
        header:append_text(string.format(", 0x%s, whole message %d bytes", reth(0, 8):uint64():tohex(), reth(12, 4):uint()))
    end
    local imm = WITH_IMMEDIATE[op] and walk:take(4, "Immediate data")
    if imm then
        walk.top:add(F.imm, imm)
    end
    if walk.ended then
        return ""
    end
    local rest = walk.declared - walk.at - 4 -- payload and pad, by the lengths that a switch does not touch
    if walk.trimmed then
        walk.top:add(F["payload.original_length"], math.max(rest, 0)):set_generated()
        return string.format(", trimmed (of %d bytes)", math.max(rest, 0))
    end
    local pad = math.min(walk.pad, math.max(rest, 0))
    local payload = walk:take(math.max(rest - pad, 0), "Payload")
    walk.top:add(F["payload.length"], math.max(rest - pad, 0)):set_generated()
    if payload and payload:len() > 0 then
        walk.top:add(F.payload, payload)
    end
    if pad > 0 and payload then
        local padding = walk:take(pad, "Pad")
        if padding then
            walk.top:add(F.pad, padding)
        end
    end
    return string.format(", %d bytes", math.max(rest - pad, 0))
end

BODIES[ACK] = function(walk)
    local header, range = walk:header("aeth", "AETH")
    if not header then
        return ""
    end
    local code, done = range(0, 1):uint(), range(1, 3):uint()
    local text = code == 0x1F and string.format(", messages done: %d", done) or ", " .. (SYNDROMES[code] or string.format("syndrome 0x%02x", code))
    header:append_text(text)
    return text
end

BODIES[SACK] = function(walk)
    local header, range = walk:header("sack", "SETH")
    if not header then
        return ""
    end
    local word, cumulative, offset = range(0, 2):uint(), range(13, 3):uint(), range(18, 2):int()
    local base_psn = (cumulative + offset) % 0x1000000
    local received, missing, highest = {}, {}, -1
    local function bit_at(i)
        return math.floor(range(27 - math.floor(i / 8), 1):uint() / 2 ^ (i % 8)) % 2 == 1
    end
    for i = 0, 63 do
        highest = bit_at(i) and i or highest
    end
    for i = 0, highest do
        local to = bit_at(i) and received or missing
        to[#to + 1] = (base_psn + i) % 0x1000000
    end
    header:add(F["sack.base_psn"], range(18, 2), base_psn):set_generated()
    local item = header:add(F["sack.received"], range(20, 8), ranges(received)):set_generated()
    for _, psn in ipairs(received) do
        item:add(F["sack.psn"], range(20, 8), psn):set_generated():set_hidden()
    end
    header:add(F["sack.missing"], range(20, 8), ranges(missing)):set_generated()
    local text = ", up to PSN " .. cumulative
    if #received > 0 then
        text = text .. ", then " .. ranges(received)
    end
    header:append_text(text)
    if word % 4 >= 2 then
        text = text .. ", answers probe " .. range(2, 2):uint()
    else
        header:add(F["sack.ack_psn"], range(2, 2), (cumulative + range(2, 2):int()) % 0x1000000):set_generated()
    end
    local advice = math.floor(word / 32) % 4
    if advice > 0 then
        text = text .. string.format(", %s for %s", ADVICE[advice] or advice, short_ev(range(4, 2):uint(), range(6, 2):uint()))
    end
    local cc, state = walk:header("cc", "CC_STATE")
    if cc then
        cc:append_text(string.format(", %d bytes received so far", state(5, 3):uint() * 256))
    end
    return text
end

BODIES[NACK] = function(walk)
    local header, range = walk:header("nack", "NETH")
    if not header then
        return ""
    end
    local reason = range(2, 1):uint()
    local text = string.format(", %s: PSN %d on %s", REASONS[reason] or string.format("reason 0x%02x", reason), range(13, 3):uint(),
        short_ev(range(4, 2):uint(), range(6, 2):uint()))
    header:append_text(text)
    return text
end

BODIES[PROBE] = function(walk)
    local header, range = walk:header("probe", "PETH")
    if not header then
        return ""
    end
    local text = ", probe " .. range(4, 2):uint()
    header:append_text(text)
    return text
end

local function endpoint(walk, kind)
    local id = walk.tvb(10, 2)
    local header, range = walk:header(kind, kind == "request" and "ERTH" or "EETH")
    if not header then
        return ""
    end
    local op = kind == "request" and range(1, 1):uint() % 4 or math.floor(range(1, 1):uint() / 4) % 4
    local text = string.format(", %s, id 0x%04x", OPERATIONS[op] or "operation " .. op, id:uint())
    header:set_text((kind == "request" and "Endpoint Request Header (ERTH)" or "Endpoint Response Header (EETH)") .. text)
    header:add(F["endpoint.request_id"], id):set_generated()
    if kind == "request" then
        local mask, up = range(4, 4):uint(), {}
        for n = 0, 31 do
            up[#up + 1] = math.floor(mask / 2 ^ n) % 2 == 1 and n or nil
        end
        header:add(F["endpoint.ports"], range(4, 4), ranges(up)):set_generated()
        text = text .. ", ports up: " .. ranges(up)
    end
    return text
end

BODIES[REQUEST] = function(walk)
    return endpoint(walk, "request")
end
BODIES[RESPONSE] = function(walk)
    return endpoint(walk, "response")
end

-- Where the packet goes and in which class: everything that the layers below MRC know.
local function show_path(walk, below)
    local head = below.head
    local plane, uplink = u16(head, 3), u16(head, 41)
    local text = string.format("plane %d, uplink %d", plane, uplink)
    local path = walk.top:add(F.path, text):set_generated()
    path:add(F.ev, plane * 0x10000 + uplink):set_generated():append_text(" (" .. short_ev(plane, uplink) .. ")")
    path:add(F.plane, plane):set_generated()
    path:add(F.uplink, uplink):set_generated()
    local from, to = host_name(head:sub(9, 24)), host_name(head:sub(25, 40))
    if from then
        path:add(F.src_host, from):set_generated()
    end
    if to then
        path:add(F.dst_host, to):set_generated()
    end
    path:add(F.dscp, below.dscp):set_generated()
    path:add(F.ecn, below.ecn):set_generated()
    return (from or "?") .. " > " .. (to or "?") .. " ", " EV " .. short_ev(plane, uplink)
end

local checked = {} -- iCRC by frame number: a frame may be dissected many times

local function show_icrc(walk, below, number)
    if walk.trimmed or walk.ended == "short" then
        return "" -- a trimmed packet has none
    end
    local sent = walk:take(4, "iCRC")
    if not sent then
        return ""
    end
    local item = walk.top:add_le(F.icrc, sent)
    local sum = checked[number]
    if not sum and mrc.prefs.icrc then
        sum = icrc_of(below.head, walk.tvb:raw(0, walk.at - 4))
        checked[number] = sum
    end
    local status = sum == nil and 2 or sum == sent:le_uint() and 1 or 0
    item:append_text(({ [0] = " [incorrect]", " [correct]", " [unverified]" })[status])
    if sum then
        item:add(F["icrc.calculated"], sum):set_generated()
    end
    item:add(F["icrc.status"], status):set_generated()
    if status == 0 then
        item:add_proto_expert_info(E.icrc)
        return " [bad iCRC]"
    end
    return ""
end

function mrc.init()
    checked = {}
end

function mrc.dissector(tvb, pinfo, tree)
    local op = tvb:len() >= 1 and tvb(0, 1):uint()
    local below = at_hand.frame == pinfo.number and at_hand.head and at_hand
    if not OPCODES[op] or not below then
        return 0
    end
    if below.outer then
        show_sids(tree, below.outer)
        below.shown = true
    end
    local length = tvb:reported_len()
    local declared = u16(below.head, 45) - 8 -- by UDP's length, which trimming leaves alone
    local walk = setmetatable({ tvb = tvb, at = 0, length = math.min(length, declared), captured = tvb:len(), declared = declared }, Walk)
    walk.top = tree:add(mrc, tvb())
    pinfo.cols.protocol:set("MRC")
    local hosts, ev = show_path(walk, below)
    local is_write = op <= WRITE_LAST
    walk.trimmed = (is_write or op == PROBE) and (declared > length or below.dscp == 18 or below.dscp == 20)
    local info = OPCODES[op]
    local header, bth = walk:header("bth", "BTH")
    if header then
        local psn, flags = bth(9, 3):uint(), bth(8, 1):uint()
        header:append_text(string.format(", %s, QP %d, PSN %d", info, bth(5, 3):uint(), psn))
        walk.pad, walk.ts = math.floor(bth(1, 1):uint() / 16) % 4, math.floor(flags / 16) % 2 == 1
        if math.floor(flags / 32) % 2 == 1 and is_write then
            info = info .. " (retransmission)"
        end
        info = info .. ", QP " .. bth(5, 3):uint()
        if is_write or op == ACK then
            info = info .. ", PSN " .. psn
        end
        info = info .. "," .. ev .. (is_write and BODIES.write or BODIES[op])(walk, op)
        if walk.trimmed then
            walk.top:add(F.trimmed, true):set_generated():add_proto_expert_info(E.trimmed)
        end
        if flags >= 128 then
            info = info .. ", asks for a SACK"
        end
        if not walk.ended and not is_write and walk.at + 4 < walk.length then
            walk.top:add_proto_expert_info(E.long, string.format("%d bytes more than this packet's headers take", walk.length - walk.at - 4))
            walk.at = walk.length - 4
        end
        info = info .. show_icrc(walk, below, pinfo.number)
    end
    if walk.ended == "short" then
        info = info .. " [too short for its headers]"
    end
    walk.top:append_text(", " .. info)
    pinfo.cols.info:set(hosts .. info .. (below.next and ", next " .. below.next or ""))
    return tvb:len()
end

-- --- taking our places ---------------------------------------------------------------------------------------

local function settle(wanted)
    restore()
    port, roce = wanted, udp_port:get_dissector(wanted)
end

function mrc.prefs_changed()
    if mrc.prefs.port ~= port then
        settle(mrc.prefs.port)
    end
end

settle(mrc.prefs.port)
mrc:register_heuristic("eth", glance)
register_postdissector(usid)
