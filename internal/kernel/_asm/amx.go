package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Products of digits in AMX's tiles (docs/kernels.md). A digit is a byte; three make
// a number. A tile is 16 rows of 64 bytes; a product of tiles adds, to each of 16 x 16
// sums, 64 products of bytes. Functions here use fixed registers throughout, as the
// instructions of tiles are written as bytes.
const (
	tileBytes  = 1024
	blockBytes = 3 * tileBytes // the digits of a block of 64 inputs, the highest first
)

// number is how instructions name a general register.
var number = map[reg.Register]byte{reg.RAX: 0, reg.RCX: 1, reg.RDX: 2, reg.RBX: 3, reg.RSI: 6, reg.RDI: 7}

// raw writes an instruction that neither avo nor Go's assembler knows. Those of
// tiles have a VEX prefix of three bytes (c4, e2, and one that holds an operand and
// a prefix), an opcode and a ModRM byte; those that read or write memory have a SIB
// byte and four bytes of displacement.
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

// tileLoad loads 16 rows, each stride after the one before.
func tileLoad(tile int, base, stride reg.Register, disp int) {
	tileMemory(fmt.Sprintf("TILELOADD T%d", tile), 3, tile, base, stride, disp)
}

func tileStore(tile int, base, stride reg.Register, disp int) {
	tileMemory(fmt.Sprintf("TILESTORED T%d", tile), 2, tile, base, stride, disp)
}

func tileZero(tile int) {
	raw(fmt.Sprintf("TILEZERO T%d", tile), nil, 0xc4, 0xe2, 0x7b, 0x49, 0xc0|byte(tile)<<3)
}

// tileProduct adds the products of signed bytes of a, [16, 64], and b, [16, 16, 4],
// to c, [16, 16].
func tileProduct(a, b, c int) {
	raw(fmt.Sprintf("TDPBSSD T%d, T%d, T%d", b, a, c), nil, 0xc4, 0xe2, 0x03|byte(^b&15)<<3, 0x5e, 0xc0|byte(c)<<3|byte(a))
}

// tileConfig makes every tile 16 rows of 64 bytes.
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
		build.DATA(at, operand.U64(0x0040004000400040)) // each tile's bytes a row
	}
	for at := 32; at < 48; at += 8 {
		build.DATA(at, operand.U64(0))
	}
	build.DATA(48, operand.U64(0x1010101010101010)) // each tile's rows
	build.DATA(56, operand.U64(0))
}

// amx writes the functions of level amx.
func amx() {
	tileConfigData()
	layerTiles()
	productTiles()
	digitsOfRows()
	digitsOfStates()
	tilePeak()
}

// written are constants that functions share.
var written = map[string]operand.Mem{}

// lanes returns a constant of 16 lanes that are bits.
func lanes(name string, bits uint32) operand.Mem {
	if _, ok := written[name]; !ok {
		written[name] = everyLane(name, bits)
	}
	return written[name]
}

func load(name string, r reg.Register) { build.Load(build.Param(name), r) }

// tileSums multiplies the digits at RSI, rows, with those at RDI, columns, over
// "blocks" blocks, and stores the sums of each significance at "sums", the highest
// first; products of less significance are not computed. RAX is 64. It leaves RSI
// and RDI behind what they read, and RDX at the sums.
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

// weigh sets Z0 to row RDX of the sums, weighed by significance. Z30 is 2^16 and Z31
// 2^8.
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

// layerTiles writes layerAMX: states are the rows, outputs the columns.
func layerTiles() {
	build.TEXT("layerAMX", build.NOSPLIT, "func(out *float32, outStride int, in *int8, inScale *float32, rows int, w *int8, wScale *float32, bias *float32, blocks int, panels int, floor float32, sums *int32)")
	build.Doc("layerAMX is Layer of at most 16 rows, of the digits in and w and their scales. outStride is in bytes;",
		"rows, blocks of 64 inputs and panels are at least 1; floor is 0 for ReLU, otherwise -Inf; sums is [3, 16, 16].")
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

// layerRows makes outputs of the sums at RDX, and moves on to the next panel.
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
	build.VMAXPS(reg.Z0, reg.Z29, reg.Z0) // the sum is the one that is kept if it is NaN
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

// productTiles writes productAMX: units are the rows, states the columns.
func productTiles() {
	build.TEXT("productAMX", build.NOSPLIT, "func(out *float32, in *int8, inScale *float32, w *int8, wScale *float32, bias *float32, rest *float32, wRest *float32, wanted *uint8, blocks int, groups int, panels int, floor float32, sums *int32)")
	build.Doc("productAMX is Product, of the digits in and w and their scales, of groups of 16 units, of which those",
		"are stored whose wanted is not 0, and panels of 16 states. blocks of 64 inputs, groups and panels",
		"are at least 1; rest is one more input, and wRest its weights; floor is 0 for ReLU, otherwise -Inf;",
		"sums is [3, 16, 16].")
	build.Pragma("noescape")
	tileConfig()
	weighConstants()
	build.MOVQ(operand.U32(64), reg.RAX)
	build.Label("group")
	load("in", reg.RDI)
	build.XORQ(reg.RCX, reg.RCX) // panel
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
	build.VMAXPS(reg.Z0, reg.Z29, reg.Z0) // the sum is the one that is kept if it is NaN
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

// Digits: v = x * (limit / the largest magnitude), rounded, is at most limit = 127 *
// 2^16, and so are its digits in base 256 from -128 to 127: the bytes of v + 0x808080,
// less 0x80 each. What is largest below 2^-100 counts as 0.
func digitConstants() {
	build.VMOVUPS(lanes("digitAbs", 1<<31-1), reg.Z31)
	build.VMOVUPS(lanes("digitOnes", 0x808080), reg.Z30)
	build.VMOVUPS(lanes("digitLimit", 0x4afe0000), reg.Z29)   // 127*2^16
	build.VMOVUPS(lanes("digitInverse", 0x34010204), reg.Z28) // 1/(127*2^16)
	build.VMOVUPS(lanes("digitTiny", 0x0d800000), reg.Z27)    // 2^-100
}

// digitScales sets Z26 to limit / Z0, and Z25 to Z0 / limit, or NaN if Z0 is not
// finite, which makes every output NaN; Z0 is not below 0.
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

// picks returns a constant that picks byte lane(i) of two vectors' 128 as byte i.
func picks(name string, lane func(i int) int) operand.Mem {
	return numbers(name, func(i int) (bits uint32) {
		for b := range 4 {
			bits |= uint32(lane(4*i+b)&127) << (8 * b)
		}
		return bits
	})
}

var digitName = [3]string{"High", "Middle", "Low"} // digits by significance: byte 2, 1, 0

// digitsOfRows writes rowsAMX.
func digitsOfRows() {
	build.TEXT("rowsAMX", build.NOSPLIT, "func(dst *int8, scale *float32, x *float32, stride int, columns *uint16, rows int, blocks int)")
	build.Doc("rowsAMX writes the digits of at most 16 rows of blocks of 64 inputs, [blocks, 3, 16, 64], of which those",
		"count as 0 whose bit in columns is not set, and each row's scale. stride is in bytes.")
	build.Pragma("noescape")
	digitConstants()
	for d, name := range digitName {
		build.VMOVUPS(picks("rows"+name, func(i int) int { // of vectors 0 and 1, in the lower half
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
	for _, swap := range []uint64{0x4e, 0xb1} { // halves, then quarters
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

// digitsOfStates writes statesAMX.
func digitsOfStates() {
	build.TEXT("statesAMX", build.NOSPLIT, "func(dst *int8, scale *float32, x *float32, inputs *uint16, blocks int)")
	build.Doc("statesAMX writes the digits of 16 states of a Block in blocks of 64 inputs, [blocks, 3, 16, 16, 4], of",
		"which those count as 0 whose element of inputs is 0 and not 0xffff, and each state's scale.")
	build.Pragma("noescape")
	digitConstants()
	first, second := []reg.VecPhysical{reg.Z24, reg.Z23, reg.Z22}, []reg.VecPhysical{reg.Z21, reg.Z20, reg.Z19}
	for d, name := range digitName {
		pick := func(pair int) func(i int) int { // vectors 0 and 1 to bytes 0 and 1 of a lane, 2 and 3 to the others
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
		build.SHLQ(operand.Imm(4), reg.RCX) // four inputs at a time
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
	build.XORQ(reg.R11, reg.R11) // of 16 fours
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

// tilePeak writes peakAMX.
func tilePeak() {
	build.TEXT("peakAMX", build.NOSPLIT, "func(n int)")
	build.Doc("peakAMX does n times 65536 products of bytes in tiles, and as many sums, none waiting for the one before.")
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
