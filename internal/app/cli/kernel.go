package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/num/kernel"
)

// AutoKernel is the value of --kernel that leaves the choice to the program.
const AutoKernel = "auto"

// Kernel is the value of --kernel: AutoKernel, or the name of a kernel that this machine has.
type Kernel string

// KernelFlag adds --kernel to c and returns its value. usage says what AutoKernel means for
// c. Another kernel is selected after all flags are parsed and before c runs.
func KernelFlag(c *cobra.Command, usage string) *Kernel {
	k := Kernel(AutoKernel)
	c.Flags().Var(&k, "kernel", usage)
	Choices(c, "kernel", append([]string{AutoKernel}, kernel.Names()...)...)
	c.PreRun = func(*cobra.Command, []string) {
		if !k.Auto() {
			kernel.Use(string(k))
		}
	}
	return &k
}

// Auto reports whether the program chooses the kernel.
func (k *Kernel) Auto() bool { return *k == AutoKernel }

func (k *Kernel) String() string { return string(*k) }

// Type implements pflag.Value.
func (k *Kernel) Type() string { return "name" }

// Set implements pflag.Value.
func (k *Kernel) Set(name string) error {
	if name != AutoKernel && !slices.Contains(kernel.Names(), name) {
		return fmt.Errorf("expected %s or a kernel of this machine, which has %s", AutoKernel, strings.Join(kernel.Names(), ", "))
	}
	*k = Kernel(name)
	return nil
}
