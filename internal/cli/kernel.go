package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/kernel"
)

// KernelFlag adds --kernel to c. The kernel is selected after all flags are parsed and
// before c runs.
func KernelFlag(c *cobra.Command) {
	v := kernelValue(kernel.Name())
	c.Flags().Var(&v, "kernel", "float32 kernel, such as avx2; the workers and the coordinator of a job must use the same one")
	c.Flags().Lookup("kernel").DefValue = "the fastest of this machine"
	Choices(c, "kernel", kernel.Names()...)
	c.PreRun = func(*cobra.Command, []string) { kernel.Use(string(v)) }
}

// kernelValue is a flag's value: the name of a kernel that this machine has.
type kernelValue string

func (v *kernelValue) String() string { return string(*v) }
func (v *kernelValue) Type() string   { return "name" }

func (v *kernelValue) Set(name string) error {
	if !slices.Contains(kernel.Names(), name) {
		return fmt.Errorf("this machine has %s", strings.Join(kernel.Names(), ", "))
	}
	*v = kernelValue(name)
	return nil
}
