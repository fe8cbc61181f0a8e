package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// addressVariable is the environment variable with the address of Redis, used
// without --redis, so that a password need not appear in the process list.
const addressVariable = "THROTTLE_REDIS"

// A server has the flags that locate the budgets of a fleet.
type server struct {
	address, namespace string
	hashTags           bool
	timeout            time.Duration
	identity
}

// addFlags adds the flags that name the Redis and the prefix of a fleet.
func (s *server) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.address, "redis", "", "address of Redis, such as redis://localhost:6379/0, redis+cluster://host:6379\nor redis+sentinel://host:26379/0?master_name=main")
	s.identity.flags(c)
	f.StringVar(&s.namespace, "namespace", redisstore.DefaultNamespace, "namespace of the programs in Redis")
	f.BoolVar(&s.hashTags, "hash-tags", false, "the programs set redisstore.Options.HashTags")
	f.DurationVar(&s.timeout, "timeout", 5*time.Second, "maximum time that Redis may take")
}

// hasAddress reports whether the address of Redis is known. It reads addressVariable if --redis was not
// passed.
func (s *server) hasAddress() bool {
	s.address = cmp.Or(s.address, os.Getenv(addressVariable))
	return s.address != ""
}

// errAddress reports an invalid address. The client's own error would repeat
// the address with its password.
var errAddress = errors.New("--redis: it is not an address such as redis://localhost:6379/0, redis+cluster://host:6379 or redis+sentinel://host:26379/0?master_name=main")

// oneDial is how often the client dials per attempt. With go-redis' default of
// 5, a server that refuses connections takes longer than --timeout, which then
// hides the cause.
const oneDial = 1

// connect returns a client for a server, a cluster, or servers behind sentinels, as the scheme says. It sends
// nothing. The client obeys --timeout even if Redis hangs. No error quotes the address, which may have a password.
func (s *server) connect() (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(s.address, "://")
	scheme, kind, _ := strings.Cut(scheme, "+")
	address := scheme + "://" + rest

	// The three kinds of options have no type in common, and get the same settings. go-redis obeys the deadline of a context
	// only with ContextTimeoutEnabled.
	switch kind {
	case "cluster":
		o, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, errAddress
		}

		o.ContextTimeoutEnabled, o.DialerRetries = true, cmp.Or(o.DialerRetries, oneDial)
		if o.TLSConfig, err = s.identity.config(o.TLSConfig); err != nil {
			return nil, err
		}

		o.Dialer = tlsDialer(o.TLSConfig, o.DialTimeout)
		return redis.NewClusterClient(o), nil

	case "sentinel":
		o, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, errAddress
		}

		o.ContextTimeoutEnabled, o.DialerRetries = true, cmp.Or(o.DialerRetries, oneDial)
		if o.TLSConfig, err = s.identity.config(o.TLSConfig); err != nil {
			return nil, err
		}

		o.Dialer = tlsDialer(o.TLSConfig, o.DialTimeout)
		return redis.NewFailoverClient(o), nil

	case "":
		o, err := redis.ParseURL(address)
		if err != nil {
			return nil, errAddress
		}

		o.ContextTimeoutEnabled, o.DialerRetries = true, cmp.Or(o.DialerRetries, oneDial)
		if o.TLSConfig, err = s.identity.config(o.TLSConfig); err != nil {
			return nil, err
		}

		o.Dialer = tlsDialer(o.TLSConfig, o.DialTimeout)
		return redis.NewClient(o), nil
	}

	return nil, errAddress
}

// tlsDialer returns a dialer whose connections are refusalConns, and which obeys the context: the client's own dialer of TLS
// does neither. timeout bounds a dial, and 0 stands for dialTimeout. Without TLS settings is nil, and tlsDialer returns nil,
// so that the client takes its own dialer.
func tlsDialer(settings *tls.Config, timeout time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	if settings == nil {
		return nil
	}

	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: cmp.Or(timeout, dialTimeout)}, Config: settings}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &refusalConn{conn}, nil
	}
}

// dialTimeout is the maximum time of a dial where the address has no dial_timeout, as in go-redis.
const dialTimeout = 5 * time.Second

// A refusalConn is a connection of TLS whose writes fail with the server's reason. In TLS 1.3 the handshake is complete
// for the client before the server has looked at the client's certificate (RFC 8446, section 2). A server
// that refuses the certificate sends an alert and closes the connection, and if the client writes after that, the write
// fails with a reset while the alert is unread.
type refusalConn struct{ net.Conn }

// Write writes to the connection. Its error is the server's alert, if the server closed the connection with one.
func (c *refusalConn) Write(data []byte) (int, error) {
	written, err := c.Conn.Write(data)

	// These errors of this side do not mean that the server has ended the connection.
	isOurs := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)
	if err == nil || isOurs {
		return written, err
	}

	// The server has ended the connection, so this read takes what has arrived and never waits. If it takes a byte of an
	// answer, the byte is lost with the connection.
	_, reason := c.Conn.Read(make([]byte, 1))

	// crypto/tls reports an alert of the other side as this operation.
	var alert *net.OpError
	if errors.As(reason, &alert) && alert.Op == "remote error" {
		return written, reason
	}
	return written, err
}

// withFleet calls f with the fleet, and a context that ends after --timeout. Its error has an exit code.
func (s *server) withFleet(ctx context.Context, f func(ctx context.Context, all *fleet.Fleet) error) error {
	all, closeAll, err := s.connectFleet(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	return withExitCode(f(ctx, all))
}

// withTimeout calls f with a context that ends after --timeout. Its error has an exit code.
func (s *server) withTimeout(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	return withExitCode(f(ctx))
}

// interruptGrace is how long the command waits after an interrupt for an answer
// on its way, to report the outcome.
const interruptGrace = 500 * time.Millisecond

// connectFleet returns the fleet, and a function that closes its client. It sends nothing. After an interrupt
// it closes the client with a delay of interruptGrace: a blocked read obeys the deadline of ctx, but not its
// cancellation.
func (s *server) connectFleet(ctx context.Context) (all *fleet.Fleet, closeAll func(), err error) {
	if !s.hasAddress() {
		return nil, nil, fmt.Errorf("there is no address of Redis: pass --redis, or set %s", addressVariable)
	}

	client, err := s.connect()
	if err != nil {
		return nil, nil, err
	}

	closeClient := func() { client.Close() }
	all, err = fleet.New(client, fleet.Options{Namespace: s.namespace, HashTags: s.hashTags})
	if err != nil {
		closeClient()
		return nil, nil, err
	}

	context.AfterFunc(ctx, func() { time.AfterFunc(interruptGrace, closeClient) })
	return all, closeClient, nil
}

// withExitCode returns an error of the fleet with its exit code. It returns nil, and an error that has an exit code, as they are.
func withExitCode(err error) error {
	var known *exit
	var away *fleet.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case fleet.Denied(err): // before *fleet.Error, which such an error is, too
		return &exit{exitDenied, err}
	case errors.As(err, new(*fleet.LongerError)), errors.As(err, new(*fleet.NotPausedError)),
		errors.As(err, new(*fleet.UncountedError)), errors.As(err, new(*fleet.ConflictError)):
		return &exit{exitConflict, err}
	case errors.As(err, &away), errors.Is(err, context.DeadlineExceeded):
		return &exit{exitStore, err}
	}
	return &exit{exitUsage, err}
}

// Environment variables with the files of an identity, used without the flags.
const (
	authorityVariable   = "THROTTLE_TLS_CA"
	certificateVariable = "THROTTLE_TLS_CERT"
	keyVariable         = "THROTTLE_TLS_KEY"
)

// An identity has the flags for TLS certificates of Redis and of this client, for addresses that begin with
// rediss.
type identity struct{ authority, certificate, key string }

// flags adds the flags that name the files.
func (i *identity) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&i.authority, "tls-ca", "", "PEM file with the authorities that sign the certificate of Redis, in place of the authorities of the system; or "+authorityVariable)
	f.StringVar(&i.certificate, "tls-cert", "", "PEM file with the client certificate for Redis; or "+certificateVariable)
	f.StringVar(&i.key, "tls-key", "", "PEM file with the key of --tls-cert; or "+keyVariable)
}

// config returns a copy of settings with the certificates. settings is nil for an address without TLS: then a flag with a
// certificate is a mistake, and the environment variables have no effect.
func (i *identity) config(settings *tls.Config) (*tls.Config, error) {
	if settings == nil {
		if *i != (identity{}) {
			return nil, errors.New("--tls-ca, --tls-cert, --tls-key: the address is one without TLS; one with TLS begins with rediss")
		}
		return nil, nil
	}

	settings = settings.Clone()
	if file := cmp.Or(i.authority, os.Getenv(authorityVariable)); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}

		// Trust this authority alone, not the authorities of the system.
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--tls-ca: %s has no certificate in PEM", file)
		}
	}

	certificate, key := cmp.Or(i.certificate, os.Getenv(certificateVariable)), cmp.Or(i.key, os.Getenv(keyVariable))
	if certificate == "" && key == "" {
		return settings, nil
	}
	if certificate == "" || key == "" {
		return nil, errors.New("--tls-cert, --tls-key: a certificate and its key go together")
	}

	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}

	settings.Certificates = []tls.Certificate{pair}
	return settings, nil
}

// mostToken is the largest token file, in bytes.
const mostToken = 4096

// readToken returns the token in a file or, if file is "", in an environment variable, or "" if neither is set. An empty file
// is an error, and so is one of more than mostToken bytes. Errors do not quote the token.
func readToken(file, variable string) (string, error) {
	if file == "" {
		return os.Getenv(variable), nil
	}

	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}

	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return "", fmt.Errorf("--token-file: %s is empty", file)
	case len(text) > mostToken:
		return "", fmt.Errorf("--token-file: %s is no token, but %d bytes", file, len(text))
	}

	return token, nil
}

// looseWarning is the warning of a token file that isLoose.
func looseWarning(file string) string {
	return "WARNING: other users of this machine may read or write " + file + ": chmod 600 keeps the token from them"
}

// isLoose reports whether users outside of its group may read or write a token file, or its group may write it: these
// are the bits of 026.
func isLoose(file string) bool {
	if file == "" || runtime.GOOS == "windows" {
		return false
	}
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o026 != 0
}
