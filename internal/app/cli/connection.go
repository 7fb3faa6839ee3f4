package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus"
)

// Connection says where the NATS server is and how to log in. All programs have its
// flags, whose names are those of the nats command.
type Connection struct {
	NATS   string // URLs separated by commas; "" = no server
	Access bus.Access
	// Wait limits how long to wait for a server that can be used; 0 = no limit.
	Wait time.Duration
	// OnBlob counts the bytes of blobs; see bus.Config.
	OnBlob func(sent bool, bytes int)

	flag *pflag.Flag // --nats
}

// AtTerminal is the default of --wait for commands that people run.
const AtTerminal = 10 * time.Second

// The roles of deploy/helm/shaver/files/roles.conf.
const (
	RoleCoordinator = "coordinator"
	RoleWorker      = "worker"
	RoleOperator    = "operator"
	RoleMonitor     = "monitor"
)

// Flags adds the flags to c. without is the end of the help of --nats, which says what
// happens if the flag is not given. wait is the default of --wait.
func (n *Connection) Flags(c *cobra.Command, without string, wait time.Duration) {
	f := c.Flags()
	f.StringVar(&n.NATS, "nats", "", "`URL` of a NATS server with JetStream; several are separated by commas"+without)
	f.StringVar(&n.Access.Creds, "creds", "", "credentials `file` (.creds) for --nats")
	f.StringVar(&n.Access.NKey, "nkey", "", "`file` with the seed of an nkey, for --nats")
	f.StringVar(&n.Access.UserFile, "user-file", "", "`file` with one line, USER:PASSWORD, for --nats")
	f.StringVar(&n.Access.TLSCA, "tlsca", "", "PEM `file` of the authorities that sign the server's certificate; the connection must then use TLS")
	f.StringVar(&n.Access.TLSCert, "tlscert", "", "PEM `file` of the client's certificate; the connection must then use TLS")
	f.StringVar(&n.Access.TLSKey, "tlskey", "", "PEM `file` of the key of --tlscert")
	f.DurationVar(&n.Wait, "wait", wait, "how long to wait for a server of --nats, such as 30s or 5m; 0 = no limit")
	if wait == 0 {
		f.Lookup("wait").DefValue, f.Lookup("wait").Usage = "0s", "how long to wait for a server of --nats, such as 30s or 5m (default no limit)"
	}
	n.flag = f.Lookup("nats")
	Group(c, NATSFlags, "nats", "creds", "nkey", "user-file", "tlsca", "tlscert", "tlskey", "wait")
	Files(c, "creds", "creds")
	Files(c, "nkey")
	Files(c, "user-file")
	for _, name := range []string{"tlsca", "tlscert", "tlskey"} {
		Files(c, name, "pem", "crt", "key")
	}
}

// Servers returns the addresses without passwords, and the flag or the environment
// variable that gave them.
func (n *Connection) Servers() (addresses, from string, err error) {
	from = "--nats"
	if n.flag != nil && !n.flag.Changed || n.flag == nil && n.NATS == os.Getenv("SHAVER_NATS") {
		from = "SHAVER_NATS"
	}
	addresses, err = bus.Redacted(n.NATS)
	return addresses, from, err
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
	if n.Wait < 0 {
		return fault.Usagef("--wait %v: must not be negative", n.Wait)
	}
	if (a.TLSCert == "") != (a.TLSKey == "") {
		return fault.Usagef("--tlscert and --tlskey go together")
	}
	return nil
}

// Files returns the files that the flags name.
func (n *Connection) Files() []string {
	a := &n.Access
	return []string{a.Creds, a.NKey, a.UserFile, a.TLSCA, a.TLSCert, a.TLSKey}
}

// Connect connects a program that runs or computes jobs to the server of --nats. Once
// connected, it survives restarts of the server.
func (n *Connection) Connect(ctx context.Context, role, name string, log *zap.Logger) (*bus.Bus, error) {
	return bus.Connect(ctx, n.config(role, name, log))
}

// Operate connects a command that looks at jobs or changes them. --wait limits each of its
// waits. The command logs to stderr only what it waits for.
func (n *Connection) Operate(ctx context.Context, name string) (*bus.Bus, error) {
	log, err := Logger("text", false)
	if err != nil {
		return nil, err
	}
	config := n.config(RoleOperator, name, log.WithOptions(zap.IncreaseLevel(zap.WarnLevel)))
	config.Interactive = true
	return bus.Connect(ctx, config)
}

func (n *Connection) config(role, name string, log *zap.Logger) bus.Config {
	return bus.Config{URL: n.NATS, Access: n.Access, Wait: n.Wait, Role: role, Name: name, Log: log, OnBlob: n.OnBlob}
}
