//go:build amd64 && !purego

package vector

import "golang.org/x/sys/cpu"

//go:generate go -C ../kernel/_asm run . -level vector -out ../../vector/vector_amd64.s -stubs ../../vector/vector_amd64.go -pkg vector

// accelerated states whether the processor has the instructions of the assembly.
var accelerated = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasBMI2
