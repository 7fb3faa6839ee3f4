package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/kernel"
)

// KernelFlag adds --kernel to c. The kernel is chosen after all flags are parsed,
// before c runs.
func KernelFlag(c *cobra.Command) {
	v := kernelValue(kernel.Name())
	c.Flags().Var(&v, "kernel", "float32 arithmetic: "+strings.Join(kernel.Names(), ", ")+"; a job's workers and coordinator have the same")
	c.PreRun = func(*cobra.Command, []string) { kernel.Use(string(v)) }
}

// kernelValue is the name of a kernel that this machine has, as a flag's value.
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
