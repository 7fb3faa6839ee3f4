package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/kernel"
)

// KernelFlag adds --kernel, which takes effect as it is read, before anything is
// computed or packed.
func KernelFlag(c *cobra.Command) {
	c.Flags().Var(kernelValue{}, "kernel", "float32 arithmetic: "+strings.Join(kernel.Names(), ", ")+"; a job's workers and coordinator have the same")
}

// kernelValue is the process's kernel as a flag's value.
type kernelValue struct{}

func (kernelValue) String() string { return kernel.Name() }
func (kernelValue) Type() string   { return "name" }

func (kernelValue) Set(name string) error {
	if !kernel.Use(name) {
		return fmt.Errorf("this machine has %s", strings.Join(kernel.Names(), ", "))
	}
	return nil
}
