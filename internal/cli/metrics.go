package cli

import "github.com/spf13/cobra"

// MetricsFlag adds --metrics to c, bound to address.
func MetricsFlag(c *cobra.Command, address *string) {
	c.Flags().StringVar(address, "metrics", "", "HOST:PORT to answer /healthz, /readyz and /metrics on; :PORT is of 127.0.0.1 (default none)")
}
