package lan

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

var (
	alice = netip.MustParseAddr("10.77.0.1")
	bob   = netip.MustParseAddr("10.77.0.2")
)

// segment returns a packet from alice, port 1000, to bob, port 4222.
func segment(flags byte) packet {
	a, b := alice.As4(), bob.As4()
	return segmentOf(a[:], b[:], []byte{1000 >> 8, 1000 & 255}, []byte{4222 >> 8, 4222 & 255}, 100, 200, flags)
}

// The checksums of a packet are right: the sum over what they cover, with them, is zero.
func TestChecksums(t *testing.T) {
	for _, flags := range []byte{flagSYN, flagACK, flagRST} {
		p := segment(flags)
		if sum := checksum(p[:ipBytes], 0); sum != 0 {
			t.Errorf("IP: %x", sum)
		}
		if sum := checksum(p[12:], protocolTCP+tcpBytes); sum != 0 {
			t.Errorf("TCP: %x", sum)
		}
	}
	// The example of RFC 1071, section 3.
	if sum := checksum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}, 0); sum != ^uint16(0xddf2) {
		t.Errorf("%x", sum)
	}
}

// A reset comes from the other side of the connection, with a sequence number that its
// receiver accepts (RFC 9293, section 3.10.7).
func TestResets(t *testing.T) {
	toAlice, toBob := segment(flagACK).resets()
	if from, to, ok := toAlice.addresses(); !ok || from != bob || to != alice {
		t.Errorf("from %v to %v", from, to)
	}
	if !bytes.Equal(toAlice[20:24], []byte{4222 >> 8, 4222 & 255, 1000 >> 8, 1000 & 255}) || binary.BigEndian.Uint32(toAlice[24:]) != 200 || toAlice[33] != flagRST {
		t.Errorf("to the sender: % x", toAlice)
	}
	if from, to, ok := toBob.addresses(); !ok || from != alice || to != bob {
		t.Errorf("from %v to %v", from, to)
	}
	if binary.BigEndian.Uint32(toBob[24:]) != 100 || toBob[33] != flagRST {
		t.Errorf("to the receiver: % x", toBob)
	}
	toAlice, toBob = segment(flagSYN).resets()
	if toBob != nil || binary.BigEndian.Uint32(toAlice[28:]) != 101 || toAlice[33] != flagRST|flagACK {
		t.Errorf("of a SYN: % x and % x", toAlice, toBob)
	}
	if toAlice, toBob = segment(flagRST).resets(); toAlice != nil || toBob != nil {
		t.Errorf("of a reset: % x and % x", toAlice, toBob)
	}
}

func TestAddresses(t *testing.T) {
	if from, to, ok := segment(flagACK).addresses(); !ok || from != alice || to != bob {
		t.Errorf("%v, %v, %v", from, to, ok)
	}
	six := append(packet{0x60}, make(packet, 47)...)
	for _, p := range []packet{nil, segment(0)[:19], six, append(packet{0x41}, segment(0)[1:]...)} {
		if _, _, ok := p.addresses(); ok {
			t.Errorf("% x was accepted", p)
		}
	}
}
