package cli

import (
	"context"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/bus"
	"shaver/internal/fault"
)

// Connection says where the NATS server is and how to log in. All programs have its
// flags, whose names are those of the nats command.
type Connection struct {
	NATS   string // URLs separated by commas; "" = no server
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

// Flags adds the flags to c. without is the end of the help of --nats, which says what
// happens if the flag is not given.
func (n *Connection) Flags(c *cobra.Command, without string) {
	f := c.Flags()
	f.StringVar(&n.NATS, "nats", "", "`URL` of a NATS server with JetStream; several are separated by commas"+without)
	f.StringVar(&n.Access.Creds, "creds", "", "credentials `file` (.creds) for --nats")
	f.StringVar(&n.Access.NKey, "nkey", "", "`file` with the seed of an nkey, for --nats")
	f.StringVar(&n.Access.UserFile, "user-file", "", "`file` with one line, USER:PASSWORD, for --nats")
	f.StringVar(&n.Access.TLSCA, "tlsca", "", "PEM `file` of the authorities that sign the server's certificate; the connection must then use TLS")
	f.StringVar(&n.Access.TLSCert, "tlscert", "", "PEM `file` of the client's certificate; the connection must then use TLS")
	f.StringVar(&n.Access.TLSKey, "tlskey", "", "PEM `file` of the key of --tlscert")
	Files(c, "creds", "creds")
	Files(c, "nkey")
	Files(c, "user-file")
	for _, name := range []string{"tlsca", "tlscert", "tlskey"} {
		Files(c, name, "pem", "crt", "key")
	}
}

// Check returns wrong usage for flags that do not go together.
func (n *Connection) Check() error {
	a := &n.Access
	var user string // the flag that identifies the client
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
			return fault.Usagef("--%s and --%s both identify the client: give one", user, flag.name)
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
