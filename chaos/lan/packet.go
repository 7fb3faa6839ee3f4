package lan

import (
	"encoding/binary"
	"net/netip"
)

// packet is an IPv4 packet.
type packet []byte

// The protocol number and the flags of TCP.
const (
	protocolTCP = 6

	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

const ipBytes, tcpBytes = 20, 20 // sizes of headers without options

// addresses returns the sender and the receiver. ok is false if p is not IPv4.
func (p packet) addresses() (from, to netip.Addr, ok bool) {
	if len(p) < ipBytes || p[0]>>4 != 4 || p.header() < ipBytes {
		return from, to, false
	}
	return netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20])), true
}

// header returns the size of the IP header.
func (p packet) header() int { return int(p[0]&15) * 4 }

// resets returns the packets that end the TCP connection of p at the sender and at the
// receiver of p. They are nil if p is not a segment of TCP, or is a reset itself.
func (p packet) resets() (toSender, toReceiver packet) {
	if p[9] != protocolTCP || len(p) < p.header()+tcpBytes {
		return nil, nil
	}
	segment := p[p.header():]
	source, target, flags := segment[0:2], segment[2:4], segment[13]
	if flags&flagRST != 0 {
		return nil, nil
	}
	sequence, acknowledged := binary.BigEndian.Uint32(segment[4:]), binary.BigEndian.Uint32(segment[8:])
	if flags&flagACK != 0 {
		toSender = segmentOf(p[16:20], p[12:16], target, source, acknowledged, 0, flagRST)
	} else { // the receiver has sent nothing yet
		toSender = segmentOf(p[16:20], p[12:16], target, source, 0, sequence+1, flagRST|flagACK)
	}
	if flags&flagSYN == 0 {
		toReceiver = segmentOf(p[12:16], p[16:20], source, target, sequence, 0, flagRST)
	}
	return toSender, toReceiver
}

// segmentOf returns a packet with a TCP segment without data.
func segmentOf(from, to, source, target []byte, sequence, acknowledged uint32, flags byte) packet {
	p := make(packet, ipBytes+tcpBytes)
	p[0] = 4<<4 | ipBytes/4
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	p[8], p[9] = 64, protocolTCP
	copy(p[12:], from)
	copy(p[16:], to)
	binary.BigEndian.PutUint16(p[10:], checksum(p[:ipBytes], 0))
	s := p[ipBytes:]
	copy(s[0:], source)
	copy(s[2:], target)
	binary.BigEndian.PutUint32(s[4:], sequence)
	binary.BigEndian.PutUint32(s[8:], acknowledged)
	s[12], s[13] = tcpBytes/4<<4, flags
	// The checksum of TCP also covers the addresses, the protocol and the size.
	binary.BigEndian.PutUint16(s[16:], checksum(p[12:], protocolTCP+tcpBytes))
	return p
}

// checksum returns the Internet checksum (RFC 1071) of an even number of bytes, plus sum.
func checksum(b []byte, sum uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
