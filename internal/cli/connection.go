package cli

import (
	"context"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/bus"
	"shaver/internal/fault"
)

// Connection is where the server is and how to be let in: the flags that all
// programs have alike, with the names that the nats command gives them.
type Connection struct {
	NATS   string
	Access bus.Access
	// OnBlob counts the bytes of blobs; see bus.Config.
	OnBlob func(sent bool, bytes int)
}

// The roles of deploy/nats/roles.conf.
const (
	RoleCoordinator = "coordinator"
	RoleWorker      = "worker"
	RoleOperator    = "operator"
)

// Flags adds the flags to c; without says what happens when --nats is not given.
func (n *Connection) Flags(c *cobra.Command, without string) {
	f := c.Flags()
	f.StringVar(&n.NATS, "nats", "", "URL of a NATS server with JetStream, several with commas"+without)
	f.StringVar(&n.Access.Creds, "creds", "", "file with credentials for --nats (.creds)")
	f.StringVar(&n.Access.NKey, "nkey", "", "file with the seed of an nkey for --nats")
	f.StringVar(&n.Access.UserFile, "user-file", "", "file with the line USER:PASSWORD for --nats")
	f.StringVar(&n.Access.TLSCA, "tlsca", "", "file with the certificates (PEM) that sign the server's; demands TLS")
	f.StringVar(&n.Access.TLSCert, "tlscert", "", "file with a certificate (PEM) of our own; demands TLS")
	f.StringVar(&n.Access.TLSKey, "tlskey", "", "file with the key of --tlscert")
}

// Check returns wrong usage for flags that do not go together.
func (n *Connection) Check() error {
	a := &n.Access
	var user string // the flag that says who we are
	for _, flag := range []struct {
		name, value string
		user        bool
	}{
		{"creds", a.Creds, true}, {"nkey", a.NKey, true}, {"user-file", a.UserFile, true},
		{"tlsca", a.TLSCA, false}, {"tlscert", a.TLSCert, false}, {"tlskey", a.TLSKey, false},
	} {
		switch {
		case flag.value == "":
		case n.NATS == "":
			return fault.Usagef("--%s is for --nats, which is not given", flag.name)
		case flag.user && user != "":
			return fault.Usagef("--%s and --%s both say who we are: give one", user, flag.name)
		case flag.user:
			user = flag.name
		}
	}
	if (a.TLSCert == "") != (a.TLSKey == "") {
		return fault.Usagef("--tlscert and --tlskey go together")
	}
	return nil
}

// Connect connects to the server of --nats.
func (n *Connection) Connect(ctx context.Context, role, name string, log *zap.Logger) (*bus.Bus, error) {
	return bus.Connect(ctx, bus.Config{URL: n.NATS, Access: n.Access, Role: role, Name: name, Log: log, OnBlob: n.OnBlob})
}
