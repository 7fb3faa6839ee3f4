package coordinator_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A job ends on a server that has room for its inputs, two checkpoints and a few partials, but not
// for the partials of all shards. The bytes are those of a job with room for everything.
func TestFullServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config.RowsPerShard = 5 // 60 shards
	want, _ := b.runInPlace(b.folder)
	full, err := server.NewServer(&server.Options{
		ServerName: "full", JetStream: true, JetStreamMaxStore: 80 << 10, JetStreamMaxMemory: 1 << 20, StoreDir: t.TempDir(), DontListen: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	full.Start()
	t.Cleanup(full.Shutdown)
	if !full.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	b.server, b.config.SaveEvery = full, 2*time.Second
	core, logged := observer.New(zap.WarnLevel)
	b.config.Log = zap.New(core)
	got, _ := b.runInPlace(b.folder, b.folder)
	if !bytes.Equal(got, want) {
		t.Error("the scores have other bytes")
	}
	if logged.FilterMessageSnippet("no room for a checkpoint").Len() == 0 {
		t.Error("every checkpoint found room, so the test proves nothing")
	}
	b.wantNothing()
}
