package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The functions in this file multiply digits in AMX tiles (see docs/internals/kernels.md). A digit
// is a byte, and three digits make a number. A tile is 16 rows of 64 bytes. Multiplying
// two tiles adds 64 products of bytes to each of 16 x 16 sums. The functions use fixed
// registers throughout, because the tile instructions are written as bytes.
const (
	tileBytes  = 1024
	blockBytes = 3 * tileBytes // digits of a block of 64 inputs, most significant digit first
)

// number is the encoding of each general register in an instruction.
var number = map[reg.Register]byte{reg.RAX: 0, reg.RCX: 1, reg.RDX: 2, reg.RBX: 3, reg.RSI: 6, reg.RDI: 7}

// raw emits an instruction that neither avo nor Go's assembler knows. A tile instruction
// consists of a VEX prefix of three bytes, an opcode and a ModRM byte. The prefix is c4,
// e2 and a byte that encodes an operand and a mandatory prefix. An instruction that
// accesses memory also has a SIB byte and four bytes of displacement.
func raw(comment string, reads []reg.Register, bytes ...byte) {
	build.Comment(comment)
	var inputs []operand.Op
	for _, r := range reads {
		inputs = append(inputs, r)
	}
	for _, b := range bytes {
		build.Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []operand.Op{operand.U8(b)}, Inputs: inputs})
	}
}

func tileMemory(comment string, prefix byte, tile int, base, stride reg.Register, disp int) {
	d := uint32(disp)
	raw(comment, []reg.Register{base, stride}, 0xc4, 0xe2, 0x78|prefix, 0x4b, 0x84|byte(tile)<<3, number[stride]<<3|number[base], byte(d), byte(d>>8), byte(d>>16), byte(d>>24))
}

// tileLoad loads 16 rows that are stride bytes apart.
func tileLoad(tile int, base, stride reg.Register, disp int) {
	tileMemory(fmt.Sprintf("TILELOADD T%d", tile), 3, tile, base, stride, disp)
}

func tileStore(tile int, base, stride reg.Register, disp int) {
	tileMemory(fmt.Sprintf("TILESTORED T%d", tile), 2, tile, base, stride, disp)
}

func tileZero(tile int) {
	raw(fmt.Sprintf("TILEZERO T%d", tile), nil, 0xc4, 0xe2, 0x7b, 0x49, 0xc0|byte(tile)<<3)
}

// tileProduct adds the products of signed bytes of tiles a, [16, 64], and b, [16, 16, 4],
// to tile c, [16, 16].
func tileProduct(a, b, c int) {
	raw(fmt.Sprintf("TDPBSSD T%d, T%d, T%d", b, a, c), nil, 0xc4, 0xe2, 0x03|byte(^b&15)<<3, 0x5e, 0xc0|byte(c)<<3|byte(a))
}

// tileConfig configures every tile as 16 rows of 64 bytes.
func tileConfig() {
	build.LEAQ(operand.NewDataAddr(operand.NewStaticSymbol("tiles"), 0), reg.RSI)
	raw("LDTILECFG", []reg.Register{reg.RSI}, 0xc4, 0xe2, 0x78, 0x49, 0x06)
}

func tileRelease() { raw("TILERELEASE", nil, 0xc4, 0xe2, 0x78, 0x49, 0xc0) }

func tileConfigData() {
	build.GLOBL("tiles", attr.RODATA|attr.NOPTR)
	build.DATA(0, operand.U64(1)) // palette
	build.DATA(8, operand.U64(0))
	for at := 16; at < 32; at += 8 {
		build.DATA(at, operand.U64(0x0040004000400040)) // bytes per row of four tiles
	}
	for at := 32; at < 48; at += 8 {
		build.DATA(at, operand.U64(0))
	}
	build.DATA(48, operand.U64(0x1010101010101010)) // rows of eight tiles
	build.DATA(56, operand.U64(0))
}

// amx generates the functions of level amx.
func amx() {
	tileConfigData()
	layerTiles()
	productTiles()
	digitsOfRows()
	digitsOfStates()
	tilePeak()
}

// written holds the constants that several functions share.
var written = map[string]operand.Mem{}

// lanes returns a constant whose 16 lanes all equal bits.
func lanes(name string, bits uint32) operand.Mem {
	if _, ok := written[name]; !ok {
		written[name] = everyLane(name, bits)
	}
	return written[name]
}

func load(name string, r reg.Register) { build.Load(build.Param(name), r) }

// tileSums multiplies the digits at RSI, rows, by those at RDI, columns, over "blocks"
// blocks. It stores one sum for each of the three highest significances at "sums",
// highest first. It omits the products of lower significance. RAX must be 64. On return
// RSI and RDI point behind the data read, and RDX points to the sums.
func tileSums() {
	for c := range 3 {
		tileZero(c)
	}
	load("blocks", reg.RBX)
	build.Label("block")
	tileLoad(3, reg.RSI, reg.RAX, 0)
	tileLoad(6, reg.RDI, reg.RAX, 0)
	tileProduct(3, 6, 0)
	tileLoad(4, reg.RSI, reg.RAX, tileBytes)
	tileProduct(4, 6, 1)
	tileLoad(5, reg.RSI, reg.RAX, 2*tileBytes)
	tileProduct(5, 6, 2)
	tileLoad(7, reg.RDI, reg.RAX, tileBytes)
	tileProduct(3, 7, 1)
	tileProduct(4, 7, 2)
	tileLoad(6, reg.RDI, reg.RAX, 2*tileBytes)
	tileProduct(3, 6, 2)
	build.ADDQ(operand.U32(blockBytes), reg.RSI)
	build.ADDQ(operand.U32(blockBytes), reg.RDI)
	build.DECQ(reg.RBX)
	build.JNZ(operand.LabelRef("block"))
	load("sums", reg.RDX)
	for c := range 3 {
		tileStore(c, reg.RDX, reg.RAX, c*tileBytes)
	}
}

// weigh sets Z0 to the weighted total of the sums at RDX, for one row. Z30 must be 2^16
// and Z31 2^8.
func weigh() {
	build.VCVTDQ2PS(operand.Mem{Base: reg.RDX}, reg.Z2)
	build.VCVTDQ2PS(operand.Mem{Base: reg.RDX, Disp: tileBytes}, reg.Z1)
	build.VCVTDQ2PS(operand.Mem{Base: reg.RDX, Disp: 2 * tileBytes}, reg.Z0)
	build.VFMADD231PS(reg.Z31, reg.Z1, reg.Z0)
	build.VFMADD231PS(reg.Z30, reg.Z2, reg.Z0)
}

func weighConstants() {
	build.VMOVUPS(lanes("weigh16", 0x47800000), reg.Z30)
	build.VMOVUPS(lanes("weigh8", 0x43800000), reg.Z31)
	build.VBROADCASTSS(stack("floor"), reg.Z29)
}

// layerTiles generates layerAMX. The rows of its tiles are states and the columns are
// outputs.
func layerTiles() {
	build.TEXT("layerAMX", build.NOSPLIT, "func(out *float32, outStride int, in *int8, inScale *float32, rows int, w *int8, wScale *float32, bias *float32, blocks int, panels int, floor float32, sums *int32)")
	build.Doc("layerAMX computes Layer for at most 16 rows, from the digits in and w and their scales. outStride is in",
		"bytes. rows, panels and blocks, the number of blocks of 64 inputs, are at least 1. floor is 0 for ReLU,",
		"otherwise -Inf. sums is scratch memory, [3, 16, 16].")
	build.Pragma("noescape")
	tileConfig()
	weighConstants()
	build.MOVQ(operand.U32(64), reg.RAX)
	load("w", reg.RDI)
	build.Label("panel")
	load("in", reg.RSI)
	tileSums()
	layerRows()
	build.DECQ(stack("panels"))
	build.JNZ(operand.LabelRef("panel"))
	tileRelease()
	build.VZEROUPPER()
	build.RET()
}

// layerRows computes outputs from the sums at RDX, and advances to the next panel.
func layerRows() {
	load("wScale", reg.R8)
	load("bias", reg.R9)
	load("out", reg.R10)
	load("outStride", reg.R11)
	load("inScale", reg.R12)
	load("rows", reg.RBX)
	build.VMOVUPS(operand.Mem{Base: reg.R8}, reg.Z28)
	build.VMOVUPS(operand.Mem{Base: reg.R9}, reg.Z27)
	build.Label("row")
	weigh()
	build.VMULPS_BCST(operand.Mem{Base: reg.R12}, reg.Z0, reg.Z0)
	build.VFMADD213PS(reg.Z27, reg.Z28, reg.Z0)
	build.VMAXPS(reg.Z0, reg.Z29, reg.Z0) // max returns the sum if either operand is NaN
	build.VMOVUPS(reg.Z0, operand.Mem{Base: reg.R10})
	build.ADDQ(reg.R11, reg.R10)
	build.ADDQ(operand.Imm(64), reg.RDX)
	build.ADDQ(operand.Imm(4), reg.R12)
	build.DECQ(reg.RBX)
	build.JNZ(operand.LabelRef("row"))
	for _, name := range []string{"wScale", "bias", "out"} {
		build.ADDQ(operand.U32(panelBytes), stack(name))
	}
}

// productTiles generates productAMX. The rows of its tiles are units and the columns are
// states.
func productTiles() {
	build.TEXT("productAMX", build.NOSPLIT, "func(out *float32, in *int8, inScale *float32, w *int8, wScale *float32, bias *float32, rest *float32, wRest *float32, wanted *uint8, blocks int, groups int, panels int, floor float32, sums *int32)")
	build.Doc("productAMX computes Product from the digits in and w and their scales, for groups of 16 units and panels",
		"of 16 states. It stores only the units whose wanted is not 0. groups, panels and blocks, the number of",
		"blocks of 64 inputs, are at least 1. rest is one more input in float32, and wRest holds its weights.",
		"floor is 0 for ReLU, otherwise -Inf. sums is scratch memory, [3, 16, 16].")
	build.Pragma("noescape")
	tileConfig()
	weighConstants()
	build.MOVQ(operand.U32(64), reg.RAX)
	build.Label("group")
	load("in", reg.RDI)
	build.XORQ(reg.RCX, reg.RCX) // number of the panel
	build.Label("panel")
	load("w", reg.RSI)
	tileSums()
	load("wScale", reg.R8)
	load("bias", reg.R9)
	load("wanted", reg.R10)
	load("out", reg.R11)
	load("inScale", reg.R12)
	build.MOVQ(reg.RCX, reg.R13)
	build.SHLQ(operand.Imm(6), reg.R13)
	build.ADDQ(reg.R13, reg.R11)
	build.VMOVUPS(operand.Mem{Base: reg.R12, Index: reg.R13, Scale: 1}, reg.Z28)
	load("rest", reg.R12)
	build.VMOVUPS(operand.Mem{Base: reg.R12, Index: reg.R13, Scale: 1}, reg.Z27)
	load("wRest", reg.R12)
	build.MOVQ(operand.U32(16), reg.RBX)
	build.Label("unit")
	build.CMPB(operand.Mem{Base: reg.R10}, operand.Imm(0))
	build.JE(operand.LabelRef("next"))
	weigh()
	build.VMULPS_BCST(operand.Mem{Base: reg.R8}, reg.Z0, reg.Z0)
	build.VBROADCASTSS(operand.Mem{Base: reg.R9}, reg.Z3)
	build.VFMADD231PS_BCST(operand.Mem{Base: reg.R12}, reg.Z27, reg.Z3)
	build.VFMADD213PS(reg.Z3, reg.Z28, reg.Z0)
	build.VMAXPS(reg.Z0, reg.Z29, reg.Z0) // max returns the sum if either operand is NaN
	build.VMOVUPS(reg.Z0, operand.Mem{Base: reg.R11})
	build.Label("next")
	build.ADDQ(operand.Imm(64), reg.RDX)
	build.ADDQ(operand.Imm(4), reg.R8)
	build.ADDQ(operand.Imm(4), reg.R9)
	build.ADDQ(operand.Imm(4), reg.R12)
	build.INCQ(reg.R10)
	build.ADDQ(operand.U32(stateBytes), reg.R11)
	build.DECQ(reg.RBX)
	build.JNZ(operand.LabelRef("unit"))
	build.INCQ(reg.RCX)
	build.CMPQ(reg.RCX, stack("panels"))
	build.JL(operand.LabelRef("panel"))
	build.ADDQ(operand.U32(64), stack("wScale"))
	build.ADDQ(operand.U32(64), stack("bias"))
	build.ADDQ(operand.U32(64), stack("wRest"))
	build.ADDQ(operand.U32(16), stack("wanted"))
	build.ADDQ(operand.U32(16*stateBytes), stack("out"))
	build.MOVQ(reg.RSI, stack("w"))
	build.DECQ(stack("groups"))
	build.JNZ(operand.LabelRef("group"))
	tileRelease()
	build.VZEROUPPER()
	build.RET()
}

// digitConstants loads the constants that convert a number x to digits. v = x * limit /
// (the largest magnitude) is rounded to an integer. limit is 127 * 2^16, so the digits of
// v in base 256 lie between -128 and 127. They are the bytes of v + 0x808080, minus 0x80
// each. If the largest magnitude is below 2^-100, all numbers count as 0.
func digitConstants() {
	build.VMOVUPS(lanes("digitAbs", 1<<31-1), reg.Z31)
	build.VMOVUPS(lanes("digitOnes", 0x808080), reg.Z30)
	build.VMOVUPS(lanes("digitLimit", 0x4afe0000), reg.Z29)   // 127*2^16
	build.VMOVUPS(lanes("digitInverse", 0x34010204), reg.Z28) // 1/(127*2^16)
	build.VMOVUPS(lanes("digitTiny", 0x0d800000), reg.Z27)    // 2^-100
}

// digitScales sets Z26 to limit / Z0 and Z25 to Z0 / limit. Z0 must not be negative. If
// Z0 is not finite, Z25 is NaN, which makes every output NaN.
func digitScales() {
	build.VPCMPUD(operand.Imm(5), reg.Z27, reg.Z0, reg.K2) // 5: not less than
	build.VDIVPS_Z(reg.Z0, reg.Z29, reg.K2, reg.Z26)
	build.VSUBPS(reg.Z0, reg.Z0, reg.Z25) // 0, or NaN
	build.VFMADD231PS_Z(reg.Z0, reg.Z28, reg.K2, reg.Z25)
}

// digits sets v to the three digits of v*Z26.
func digits(v reg.VecPhysical) {
	build.VMULPS(v, reg.Z26, v)
	build.VCVTPS2DQ(v, v)
	build.VPADDD(reg.Z30, v, v)
	build.VPXORD(reg.Z30, v, v)
}

// picks returns a constant for VPERMI2B. Byte i of the result is byte lane(i) of the 128
// bytes of two vectors.
func picks(name string, lane func(i int) int) operand.Mem {
	return numbers(name, func(i int) (bits uint32) {
		for b := range 4 {
			bits |= uint32(lane(4*i+b)&127) << (8 * b)
		}
		return bits
	})
}

var digitName = [3]string{"High", "Middle", "Low"} // digits by significance: bytes 2, 1 and 0 of a number

// digitsOfRows generates rowsAMX.
func digitsOfRows() {
	build.TEXT("rowsAMX", build.NOSPLIT, "func(dst *int8, scale *float32, x *float32, stride int, columns *uint16, rows int, blocks int)")
	build.Doc("rowsAMX writes the digits of at most 16 rows of x, in blocks of 64 inputs, [blocks, 3, 16, 64], and each",
		"row's scale. An input counts as 0 if its bit in columns is not set. stride is in bytes.")
	build.Pragma("noescape")
	digitConstants()
	for d, name := range digitName {
		build.VMOVUPS(picks("rows"+name, func(i int) int { // from vectors 0 and 1 to the lower half
			if i >= 32 {
				return 0
			}
			return i/16*64 + i%16*4 + 2 - d
		}), []reg.VecPhysical{reg.Z24, reg.Z23, reg.Z22}[d])
	}
	load("dst", reg.RDI)
	load("scale", reg.R8)
	load("x", reg.RSI)
	load("stride", reg.R9)
	load("rows", reg.RBX)
	build.Label("row")
	load("columns", reg.R10)
	load("blocks", reg.RCX)
	build.MOVQ(reg.RSI, reg.RDX)
	build.VPXORD(reg.Z0, reg.Z0, reg.Z0)
	build.VPXORD(reg.Z5, reg.Z5, reg.Z5)
	build.Label("largest")
	vector := func(i int, v reg.VecPhysical) {
		build.KMOVW(operand.Mem{Base: reg.R10, Disp: 2 * i}, reg.K1)
		build.VMOVUPS_Z(operand.Mem{Base: reg.RDX, Disp: 64 * i}, reg.K1, v)
	}
	next := func(label string) {
		build.ADDQ(operand.U32(256), reg.RDX)
		build.ADDQ(operand.Imm(8), reg.R10)
		build.DECQ(reg.RCX)
		build.JNZ(operand.LabelRef(label))
	}
	for i := range 4 {
		vector(i, reg.Z1)
		build.VPANDD(reg.Z31, reg.Z1, reg.Z1)
		largest := []reg.VecPhysical{reg.Z0, reg.Z5}[i%2]
		build.VPMAXUD(reg.Z1, largest, largest)
	}
	next("largest")
	build.VPMAXUD(reg.Z5, reg.Z0, reg.Z0)
	for _, swap := range []uint64{0x4e, 0xb1} { // exchange halves, then quarters
		build.VSHUFF64X2(operand.Imm(swap), reg.Z0, reg.Z0, reg.Z1)
		build.VPMAXUD(reg.Z1, reg.Z0, reg.Z0)
	}
	for _, swap := range []uint64{0x4e, 0xb1} {
		build.VPSHUFD(operand.Imm(swap), reg.Z0, reg.Z1)
		build.VPMAXUD(reg.Z1, reg.Z0, reg.Z0)
	}
	digitScales()
	build.VMOVSS(reg.X25, operand.Mem{Base: reg.R8})

	load("columns", reg.R10)
	load("blocks", reg.RCX)
	build.MOVQ(reg.RSI, reg.RDX)
	build.MOVQ(reg.RDI, reg.R11)
	build.Label("digits")
	v := []reg.VecPhysical{reg.Z0, reg.Z1, reg.Z2, reg.Z3}
	for i := range v {
		vector(i, v[i])
		digits(v[i])
	}
	for d, pick := range []reg.VecPhysical{reg.Z24, reg.Z23, reg.Z22} {
		build.VMOVDQU32(pick, reg.Z4)
		build.VPERMI2B(v[1], v[0], reg.Z4)
		build.VMOVDQU32(pick, reg.Z5)
		build.VPERMI2B(v[3], v[2], reg.Z5)
		build.VINSERTI64X4(operand.Imm(1), reg.Y5, reg.Z4, reg.Z4)
		build.VMOVDQU32(reg.Z4, operand.Mem{Base: reg.R11, Disp: d * tileBytes})
	}
	build.ADDQ(operand.U32(blockBytes), reg.R11)
	next("digits")
	build.ADDQ(operand.Imm(64), reg.RDI)
	build.ADDQ(operand.Imm(4), reg.R8)
	build.ADDQ(reg.R9, reg.RSI)
	build.DECQ(reg.RBX)
	build.JNZ(operand.LabelRef("row"))
	build.VZEROUPPER()
	build.RET()
}

// digitsOfStates generates statesAMX.
func digitsOfStates() {
	build.TEXT("statesAMX", build.NOSPLIT, "func(dst *int8, scale *float32, x *float32, inputs *uint16, blocks int)")
	build.Doc("statesAMX writes the digits of 16 states of a Block, in blocks of 64 inputs, [blocks, 3, 16, 16, 4], and",
		"each state's scale. An input counts as 0 if its element of inputs is 0; otherwise the element is 0xffff.")
	build.Pragma("noescape")
	digitConstants()
	first, second := []reg.VecPhysical{reg.Z24, reg.Z23, reg.Z22}, []reg.VecPhysical{reg.Z21, reg.Z20, reg.Z19}
	for d, name := range digitName {
		pick := func(pair int) func(i int) int { // vectors 0 and 1 to bytes 0 and 1 of a lane, vectors 2 and 3 to bytes 2 and 3
			return func(i int) int {
				if i%4/2 != pair {
					return 0
				}
				return i%2*64 + i/4*4 + 2 - d
			}
		}
		build.VMOVUPS(picks("statesFirst"+name, pick(0)), first[d])
		build.VMOVUPS(picks("statesSecond"+name, pick(1)), second[d])
	}
	build.MOVQ(operand.U64(0xaaaaaaaa), reg.RAX)
	build.KMOVD(reg.EAX, reg.K3)
	load("dst", reg.RDI)
	load("scale", reg.R8)
	vector := func(i int, v reg.VecPhysical) {
		build.KMOVW(operand.Mem{Base: reg.R10, Disp: 2 * i}, reg.K1)
		build.VMOVUPS_Z(operand.Mem{Base: reg.RDX, Disp: stateBytes * i}, reg.K1, v)
	}
	begin := func() {
		load("inputs", reg.R10)
		load("x", reg.RDX)
		load("blocks", reg.RCX)
		build.SHLQ(operand.Imm(4), reg.RCX) // the loop takes four inputs at a time
	}
	next := func(label string) {
		build.ADDQ(operand.U32(4*stateBytes), reg.RDX)
		build.ADDQ(operand.Imm(8), reg.R10)
		build.DECQ(reg.RCX)
		build.JNZ(operand.LabelRef(label))
	}
	begin()
	build.VPXORD(reg.Z0, reg.Z0, reg.Z0)
	build.VPXORD(reg.Z5, reg.Z5, reg.Z5)
	build.Label("largest")
	for i := range 4 {
		vector(i, reg.Z1)
		build.VPANDD(reg.Z31, reg.Z1, reg.Z1)
		largest := []reg.VecPhysical{reg.Z0, reg.Z5}[i%2]
		build.VPMAXUD(reg.Z1, largest, largest)
	}
	next("largest")
	build.VPMAXUD(reg.Z5, reg.Z0, reg.Z0)
	digitScales()
	build.VMOVUPS(reg.Z25, operand.Mem{Base: reg.R8})

	begin()
	build.XORQ(reg.R11, reg.R11) // counts groups of four inputs; 16 groups make a block
	build.Label("digits")
	v := []reg.VecPhysical{reg.Z0, reg.Z1, reg.Z2, reg.Z3}
	for i := range v {
		vector(i, v[i])
		digits(v[i])
	}
	for d := range digitName {
		build.VMOVDQU32(first[d], reg.Z4)
		build.VPERMI2B(v[1], v[0], reg.Z4)
		build.VMOVDQU32(second[d], reg.Z5)
		build.VPERMI2B(v[3], v[2], reg.Z5)
		build.VPBLENDMW(reg.Z5, reg.Z4, reg.K3, reg.Z4)
		build.VMOVDQU32(reg.Z4, operand.Mem{Base: reg.RDI, Disp: d * tileBytes})
	}
	build.ADDQ(operand.Imm(64), reg.RDI)
	build.INCQ(reg.R11)
	build.TESTQ(operand.U32(15), reg.R11)
	build.JNZ(operand.LabelRef("same"))
	build.ADDQ(operand.U32(2*tileBytes), reg.RDI)
	build.Label("same")
	next("digits")
	build.VZEROUPPER()
	build.RET()
}

// tilePeak generates peakAMX.
func tilePeak() {
	build.TEXT("peakAMX", build.NOSPLIT, "func(n int)")
	build.Doc("peakAMX performs n times 65536 independent multiply-adds of bytes in tiles.")
	tileConfig()
	for tile := range 8 {
		tileZero(tile)
	}
	load("n", reg.RBX)
	build.Label("loop")
	for c := range 4 {
		tileProduct(4+c/2, 6+c%2, c)
	}
	build.DECQ(reg.RBX)
	build.JNZ(operand.LabelRef("loop"))
	tileRelease()
	build.RET()
}
