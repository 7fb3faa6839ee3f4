// Package redisrows keeps the rows of a pruned model in Redis. A loader brings them from one generation
// to the next while readers score, and readers see one generation or the other, never a mixture. It is the only
// importer of the Redis client.
//
// All keys begin with a prefix P:
//
//	P:state         State: the generation that readers use
//	P:head:G        the head of generation G, a compact file
//	P:kept:G        which rows keep an entry in generation G
//	P:B:PIECE:ID    a row that keeps an entry; B is the generation of the last whole delta
//	P:loading       loading: the delta that is being loaded, and how far
//	P:gone:G        keys of rows that keep nothing since generation G
//	P:generations   numbers of the generations that have a head or gone rows
//	P:bases         numbers B of which there are rows
//
// A row has its newest version and the one before. The loader of generation N writes versions of N, which
// readers of the generation before ignore, and then changes the state, which makes N visible at once. Then
// it removes what readers of an earlier generation need. Such readers find that a row or its version is absent, and
// read the state, which says why. If it has not changed, the row is lost.
package redisrows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"shaver/internal/base/fault"
)

// Version is the form of the keys and values.
const Version = "shaver.redis/2"

// State is the value of the key P:state.
type State struct {
	Version    string `json:"version"`
	Generation int64  `json:"generation"`
	Base       int64  `json:"base"`  // generation of the last whole delta
	Model      string `json:"model"` // digest
	Mask       string `json:"mask"`  // digest of which entries are dropped
	Check      string `json:"check"` // SHA-256 of P:head:G and P:kept:G
}

// loading is the value of the key P:loading.
type loading struct {
	Generation int64  `json:"generation"`
	Base       int64  `json:"base"`
	Delta      string `json:"delta"` // digest of its manifest
	Line       int64  `json:"line"`  // number of rows of the delta that are written
	Loader     string `json:"loader"`
}

// Store is a model in Redis. Any number of goroutines may use it at once.
type Store struct {
	client *redis.Client
	prefix string
	name   string // for errors
}

// silent discards the log of the client, whose errors are returned too.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silent{}) }

// Open connects to Redis. address is HOST:PORT, or a URL redis://USER:PASSWORD@HOST:PORT/DB, or rediss:// for
// TLS. prefix is that of all keys: letters, digits, dots, dashes and underscores.
func Open(ctx context.Context, address, prefix string) (*Store, error) {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	}
	if prefix == "" || strings.ContainsFunc(prefix, odd) {
		return nil, fault.Usagef("prefix %q: expected letters, digits, dots, dashes and underscores", prefix)
	}
	if !strings.Contains(address, "://") {
		address = "redis://" + address
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, fault.Usagef("the address of Redis is malformed: expected HOST:PORT or redis://USER:PASSWORD@HOST:PORT/DB") // without the password
	}
	o.DisableIdentity = true
	o.MaxRetries = -1 // a transaction that is sent again on another connection would not watch its keys
	s := &Store{redis.NewClient(o), prefix, fmt.Sprintf("Redis at %s, prefix %s", o.Addr, prefix)}
	if err := s.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", s.name, err), s.client.Close())
	}
	return s, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.client.Close() }

// String returns a name for errors, without a password.
func (s *Store) String() string { return s.name }

// Evicts returns the policy by which a full Redis evicts rows, or "" if it evicts none or does not say.
func (s *Store) Evicts(ctx context.Context) string {
	found, _ := s.client.ConfigGet(ctx, "maxmemory-policy").Result() // many servers forbid the question
	if policy := found["maxmemory-policy"]; strings.HasPrefix(policy, "allkeys-") {
		return policy
	}
	return ""
}

func (s *Store) key(parts ...any) string {
	b := []byte(s.prefix)
	for _, p := range parts {
		b = fmt.Append(append(b, ':'), p)
	}
	return string(b)
}

// rowKey returns the key of a row.
func (s *Store) rowKey(base int64, piece, id int) string {
	b := append([]byte(s.prefix), ':')
	b = append(strconv.AppendInt(b, base, 10), ':')
	b = append(strconv.AppendInt(b, int64(piece), 10), ':')
	return string(strconv.AppendInt(b, int64(id), 10))
}

// State returns the state, or nil if the store is empty.
func (s *Store) State(ctx context.Context) (*State, error) {
	return s.state(s.client.Get(ctx, s.key("state")))
}

func (s *Store) state(value *redis.StringCmd) (*State, error) {
	found, err := decode[State](s, value, "state")
	if err == nil && found != nil && found.Version != Version {
		err = fault.Inputf("%s: another version of shaver wrote the keys: %q, expected %q: delete them, or name another prefix, and load a whole delta", s.name, found.Version, Version)
	}
	return found, err
}

// decode decodes a JSON value, which is nil if the key does not exist.
func decode[T any](s *Store, value *redis.StringCmd, key string) (*T, error) {
	text, err := value.Bytes()
	if err == redis.Nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	to := new(T)
	if err := json.Unmarshal(text, to); err != nil {
		return nil, fault.Inputf("%s: the key %s has a value of another program: %w", s.name, s.key(key), err)
	}
	return to, nil
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings and integers only
	}
	return string(text)
}
