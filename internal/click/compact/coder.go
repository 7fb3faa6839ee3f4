package compact

import "math/bits"

// coder is an arithmetic coder of bits, after Rissanen and Langdon. It computes with
// integers only, so the same bits and chances give the same bytes on every machine.
//
// Each bit divides the interval [low, high] of 64-bit numbers in proportion to its chance.
// The data are the leading bytes of a number in the last interval, and further bytes of 0
// are left out.
type coder struct {
	low, high uint64
	reading   bool
	data      []byte // written so far, or all that is to be read
	at        int    // number of bytes that are the same in low and high; when reading
	number    uint64 // 8 bytes of data from at on
}

// newWriter returns a coder that writes.
func newWriter() *coder { return &coder{high: ^uint64(0)} }

// newDecoder returns a coder that reads data.
func newDecoder(data []byte) *coder {
	c := &coder{high: ^uint64(0), reading: true, data: data}
	for range 8 {
		c.number = c.number<<8 | uint64(c.byte(c.at))
		c.at++
	}
	c.at = 0
	return c
}

// byte returns a byte of the data, or 0 after their end.
func (c *coder) byte(at int) byte {
	if at < len(c.data) {
		return c.data[at]
	}
	return 0
}

// chance is the chance that a bit is 1, which adapts to the bits that were coded with it.
type chance struct {
	one   uint32 // the chance as a fraction of 2^32
	count uint32 // number of coded bits, plus the weight of the first value; at most maxCount
}

const (
	maxCount  = 1023
	minChance = 1 << 12 // the least chance of a bit, as a fraction of 2^32
)

// rates holds 2^16 / (count+1), which is how much a bit changes a chance.
var rates = func() (r [maxCount + 1]int64) {
	for n := range r {
		r[n] = 1 << 16 / int64(n+1)
	}
	return r
}()

// update adapts p to a bit.
func (p *chance) update(bit int) {
	target := int64(bit) * (1<<32 - 1)
	p.one = uint32(int64(p.one) + (target-int64(p.one))*rates[p.count]>>16)
	if p.count < maxCount {
		p.count++
	}
}

// with returns p as a chance to begin with, which has the given weight.
func (p *chance) with(weight uint32) chance { return chance{p.one, weight} }

// or returns p. If p was never used, it begins with the chance of wide and the given weight.
func (p *chance) or(wide *chance, weight uint32) *chance {
	if p.count == 0 {
		*p = wide.with(weight)
	}
	return p
}

// learn is update for a chance with which others begin. It does nothing after maxCount bits,
// which saves time, and then returns false.
func (p *chance) learn(bit int) bool {
	if p.count == maxCount {
		return false
	}
	p.update(bit)
	return true
}

// code writes a bit whose chance is p and returns it. If c reads, code returns the bit
// read and ignores the argument. It then adapts p.
func (c *coder) code(p *chance, bit int) int {
	one := min(max(p.one, minChance), 1<<32-minChance)
	part, _ := bits.Mul64(c.high-c.low, uint64(one)<<32)
	middle := c.low + part // low <= middle < high
	if c.reading {
		bit = 0
		if c.number <= middle {
			bit = 1
		}
	}
	if bit == 1 {
		c.high = middle
	} else {
		c.low = middle + 1
	}
	c.shift()
	p.update(bit)
	return bit
}

// shift writes, or passes, the first bytes that low and high have in common.
func (c *coder) shift() {
	for (c.low^c.high)>>56 == 0 {
		if c.reading {
			c.number = c.number<<8 | uint64(c.byte(c.at+8))
		} else {
			c.data = append(c.data, byte(c.low>>56))
		}
		c.at++
		c.low, c.high = c.low<<8, c.high<<8|0xff
	}
}

// end returns the fewest bytes that, followed by bytes of 0, are a number in [low, high].
func (c *coder) end() []byte {
	var tail []byte
	for n := range 8 {
		unit := uint64(1) << (8 * (8 - n)) // for n = 0 this is 0
		number := (c.low + unit - 1) &^ (unit - 1)
		if n == 0 {
			number = 0
		}
		if number >= c.low && number <= c.high {
			for i := range n {
				tail = append(tail, byte(number>>(56-8*i)))
			}
			return tail
		}
	}
	for i := range 8 {
		tail = append(tail, byte(c.low>>(56-8*i)))
	}
	return tail
}
