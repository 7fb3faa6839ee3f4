package cli

import "github.com/spf13/cobra"

// MetricsFlag adds --metrics to c, bound to address.
func MetricsFlag(c *cobra.Command, address *string) {
	c.Flags().StringVar(address, "metrics", "", "`address` HOST:PORT that serves /healthz, /readyz and /metrics; :PORT means 127.0.0.1:PORT (default none)")
}
