package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// The defaults of a [Config].
const (
	DefaultMaxWait       = 5 * time.Second
	DefaultHeld          = 256
	DefaultHeldPerBudget = 128
	DefaultTunnels       = 256
	DefaultCallerIdle    = 30 * time.Second
)

// Config is what [New] needs.
type Config struct {
	// Transport sends the requests: a [throttle.Transport] whose base is one of [NewBase].
	// Required.
	Transport http.RoundTripper

	// Hosts reports whether a host may be reached, which the caller names as "host" or
	// "host:port": see [Hosts]. It is called for each request, by many goroutines. Required,
	// unless there is a Table: then it defaults to [Table.Has].
	Hosts func(host string) bool

	// Table returns the table of the policies in force: see [NewTable]. It says at which port a
	// host is that a caller names without one, and to which hosts tunnels of TLS may lead. It is
	// called for each request, by many goroutines. Defaults to nil: hosts without a port are at
	// port 443, and no tunnel of TLS is there.
	Table func() *Table

	// MaxWait is how long a request is held at most. A caller asks for less with the header
	// "Prefer: wait=2". [throttle.NoWait] holds nothing, [throttle.Forever] holds a request
	// for as long as its caller is there. Defaults to [DefaultMaxWait].
	MaxWait time.Duration

	// Held is how many requests wait at once. Another one is refused with 503. Of each body
	// at most 1 MiB is in memory, and of all bodies at most Held MiB, also of those that
	// wait no more: a body that finds no room when it comes is refused with 503. Defaults to [DefaultHeld].
	Held int

	// HeldPerBudget is how many requests wait at once for one budget. Another one is refused
	// with 503, so that one busy key leaves places to the others. It needs [Observe]. Defaults
	// to [DefaultHeldPerBudget].
	HeldPerBudget int

	// Tunnels is how many tunnels of CONNECT there are at once. When all are taken, a tunnel in which no byte was
	// carried for 5 seconds is ended and makes room for another one: a tunnel of the client with the most tunnels, and
	// of these one whose last byte was not the caller's, and of these the one that was idle for longest. A client is
	// an address of IPv4, or a /64 of IPv6, and takes room from itself and from clients that have more tunnels. If no
	// tunnel makes room, the new one is refused with 503. Negative: none. Defaults to [DefaultTunnels].
	Tunnels int

	// Token is what callers must send: "Proxy-Authorization: Bearer TOKEN", or TOKEN as the
	// password of Basic there. Callers that can only set a base URL send it in
	// http://throttle:TOKEN@…/, which makes it Basic in Authorization, if their upstream has
	// its own key elsewhere. It needs 22 characters of letters, digits and "-._~+/=", which are 128
	// random bits in base64. It is not sent on. Defaults to "": anybody may send.
	Token string

	// Waiting serves paths under /v1/ of the handler's own address, for callers that are let in: those for which
	// its method Serves(path string) bool returns true, or all if it has no such method. Defaults to nil: they
	// are paths like others.
	Waiting http.Handler

	// LetIn is called for each request that is let in: it has the token, or none is needed. It is called by many
	// goroutines. Defaults to nil: nobody is told.
	LetIn func(r *http.Request)

	// CallerIdle is how long a caller may neither send a body that is awaited nor take an answer: less than 1 KiB in
	// that time. The request is ended then, with 408 if its answer has not begun, so that a caller that stalls holds no
	// slot. An upstream may be silent for any time, and so may a gRPC stream whose answer has begun. Negative: for
	// ever. Defaults to [DefaultCallerIdle].
	CallerIdle time.Duration

	// Local lets only requests in whose Host field is localhost, an address of the
	// loopback, or one of the hosts: no web page reaches the handler under a name of its own that leads to
	// this machine. Requests that come by a socket of Unix may have any Host field.
	Local bool

	// OutsideLink is called for each link of an answer, in Location, Content-Location or Link, that
	// leads round the handler, with the link's host: such a link is left as it is. It is called by
	// many goroutines. Defaults to nil: nobody is told.
	OutsideLink func(host string)

	// BlindTunnel is called for each tunnel of TLS that is refused because TLS hides what a policy counts
	// or needs to see, with what the answer says. Most clients show their users only the status of that
	// answer. It is called by many goroutines. Defaults to nil: nobody is told.
	BlindTunnel func(detail string)
}

// check returns what is wrong with the configuration, all of it. Hosts has its default.
func (c *Config) check() error {
	var mistakes []error
	if c.Transport == nil {
		mistakes = append(mistakes, errors.New("proxy: Config.Transport is missing: use throttle.New"))
	}
	if c.Hosts == nil {
		mistakes = append(mistakes, errors.New("proxy: Config.Hosts is missing: set Hosts, or Table"))
	}
	if c.Held < 0 {
		mistakes = append(mistakes, fmt.Errorf("proxy: Config.Held is %d: use 1 or more, or 0 for %d", c.Held, DefaultHeld))
	}
	if c.HeldPerBudget < 0 {
		mistakes = append(mistakes, fmt.Errorf("proxy: Config.HeldPerBudget is %d: use 1 or more, or 0 for %d", c.HeldPerBudget, DefaultHeldPerBudget))
	}
	if c.Token != "" && !isToken(c.Token) {
		mistakes = append(mistakes, errToken)
	}

	return errors.Join(mistakes...)
}
