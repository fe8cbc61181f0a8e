package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/servers/dashboard"
)

// mostPageConns bounds the connections to the page. It is room for 1,000 viewers, who keep their connections, and for
// connections without a token, of which a later one closes the oldest.
const mostPageConns = 2048

// tokenVariable is the environment variable with the page's token, used without
// --token-file.
const tokenVariable = "THROTTLE_DASHBOARD_TOKEN"

// A dashboardServer has the flags of dashboard.
type dashboardServer struct {
	at         server
	listen     string
	tokenFile  string
	local      bool
	trustProxy bool
	watch      bool
	budgets    int
	title      string
	names      labels
}

// newDashboard returns the command dashboard, which serves a page about a fleet.
func newDashboard() *cobra.Command {
	s := &dashboardServer{}
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a page that shows a fleet, and pauses and resumes its budgets",
		Long: "Serve a page that shows which budgets are closed and why, which callers wait, and how\n" +
			"much of each limit is used. Operators pause and resume budgets on the page. Viewers\n" +
			"need the token from --token-file or $" + tokenVariable + ". Without either, the command\n" +
			"generates a token that is valid while it runs, and prints a link with the token.\n" +
			"While nobody views the page, it does not read Redis, unless --watch is set.\n" +
			"Without an address of Redis the page is that of the programs of throttle run on this machine.",
		Example: "  throttle dashboard\n" +
			"  throttle dashboard --redis redis://localhost:6379/0\n" +
			"  throttle dashboard --redis redis://redis:6379/0 --listen 0.0.0.0:7072 --token-file token --watch",
		Args: argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c) },
	}

	s.at.addFlags(c)
	f := c.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:7072", "address to listen at; an address that other machines can reach needs a token")
	f.StringVar(&s.tokenFile, "token-file", "", "file with the token of 32 or more hexadecimal digits; by default the token is in $"+tokenVariable)
	f.BoolVar(&s.local, "local", false, "viewers on this machine may look without the token; do not set it if a proxy on this machine leads to the page")
	f.BoolVar(&s.watch, "watch", false, "read the fleet every ten seconds while nobody views the page, to keep a history of 24 hours")
	f.BoolVar(&s.trustProxy, "trust-proxy", false, "the page is reached only through a proxy that sets X-Forwarded-For and X-Forwarded-Proto")
	f.IntVar(&s.budgets, "budgets", dashboard.DefaultBudgets, "maximum number of budgets on the page, the busiest first; each costs Redis one call per second while somebody views the page")
	s.names.addFlag(f)
	f.StringVar(&s.title, "title", "", "name of the fleet on the page")

	return c
}

// run serves the page of a fleet or, without an address of Redis, of throttle run, until ctx ends or SIGTERM comes.
func (s *dashboardServer) run(c *cobra.Command) error {
	token, err := readToken(s.tokenFile, tokenVariable)
	if err != nil {
		return err
	}
	if isLoose(s.tokenFile) {
		fmt.Fprintln(c.ErrOrStderr(), "throttle: "+clean(looseWarning(s.tokenFile)))
	}

	if err := s.names.read(); err != nil {
		return err
	}

	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM)
	defer stop()

	// Without an address of Redis, serve the page of throttle run, which has a token of its own.
	if !s.at.hasAddress() {
		page, pageToken, err := runPage()
		if err == nil {
			err = errors.Join(unusedFlags(c)...)
		}
		if err != nil {
			return err
		}
		return s.serve(ctx, page, c.ErrOrStderr(), "#token="+pageToken)
	}

	if token == "" && !inbound.IsLoopbackAddress(s.listen) {
		return errors.New("--listen: other machines would reach this address: pass --token-file, or set " + tokenVariable)
	}

	all, closeAll, err := s.at.connectFleet(ctx)
	if err != nil {
		return err
	}
	defer closeAll()

	// A generated token goes into the link: the operator has no second source for it.
	fragment := ""
	if token == "" {
		token = rand.Text()
		fragment = "#token=" + token
	}

	page, err := dashboard.New(dashboard.Config{
		Source: dashboard.Fleet(all), Token: token, Local: s.local, TrustProxy: s.trustProxy, Budgets: s.budgets,
		Title: cmp.Or(s.title, fleet.Clean(s.at.namespace, 99)), Label: s.names.of, LetIn: letIn, // 100 characters at most, with the … of a cut
		WrongToken: func(client string, attempts int) {
			fmt.Fprintf(c.ErrOrStderr(), "throttle: somebody tried a wrong token, from %s: attempt %d\n", client, attempts)
		},
	})
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "dashboard: ")) // the name of the package says nothing to the user
	}

	// Serve the page even if Redis is away: operators need it most when something is wrong.
	err = s.at.withTimeout(ctx, func(ctx context.Context) error { return try(ctx, all) })
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(c.ErrOrStderr(), "throttle: the page will say so, too: "+clean(err.Error()))
	}

	if s.watch {
		go page.Watch(ctx)
	}

	return s.serve(ctx, page, c.ErrOrStderr(), fragment)
}

// unusedFlags returns a mistake for each flag that has no effect on the page of throttle run.
func unusedFlags(c *cobra.Command) (mistakes []error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "listen" && f.Name != "json" {
			mistakes = append(mistakes, errors.New("--"+f.Name+": it is for a fleet with --redis, and there is no address of Redis"))
		}
	})
	return mistakes
}

// try makes a cheap call, to report a wrong address or missing rights at once.
func try(ctx context.Context, all *fleet.Fleet) error {
	_, err := all.Snapshot(ctx, 1)
	return err
}

// serve prints the address of the page with a fragment behind it, and serves the page until ctx ends, which also ends streams. It
// returns an error if it cannot listen or serve.
func (s *dashboardServer) serve(ctx context.Context, page http.Handler, talk io.Writer, fragment string) error {
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}

	door := &bounded{Listener: listener, bound: &bound{most: mostPageConns}}

	// HTTP/2 without TLS lets a proxy in front share one connection among all
	// pages. Over HTTP/1.1 browsers open one per page.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: page, Protocols: &protocols, MaxHeaderBytes: 64 << 10,
		// ctx ends streams, and letIn needs the connection.
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		// Discard errors of clients that break HTTP.
		ErrorLog: log.New(io.Discard, "", 0),
	}

	served := make(chan error, 1)
	go func() { served <- server.Serve(door) }()

	fmt.Fprintf(talk, "throttle: the page is at http://%s/%s; with the token it shows, pauses and resumes budgets\n", listener.Addr(), fragment)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}

	// Streams have ended with ctx, so a second is enough for the remaining answers.
	ending, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(ending) != nil {
		server.Close()
	}

	return nil
}
