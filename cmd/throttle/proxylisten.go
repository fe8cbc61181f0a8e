package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/proxy"
)

// listening is where a sidecar is reached, and for what.
type listening struct {
	listen    string
	expose    bool
	upstreams []string // "127.0.0.1:7071=api.example.com"
	tunnels   int
}

// addFlags adds the flags.
func (l *listening) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&l.listen, "listen", "127.0.0.1:7070", "where to listen")
	f.BoolVar(&l.expose, "expose", false, "listen at addresses that other machines reach: each of them can then send requests")
	f.StringArrayVar(&l.upstreams, "upstream", nil, "an address for one host of the file alone, as 127.0.0.1:7071=api.example.com; may be repeated")
	f.IntVar(&l.tunnels, "tunnels", proxy.DefaultTunnels, "how many tunnels programs with HTTP_PROXY have at once at most; 0: none")
}

// wrongAddresses returns what is wrong with the flags.
func (l *listening) wrongAddresses() (all []error) {
	at := []string{l.listen}
	if !l.expose && !onLoopback(l.listen) {
		all = append(all, errors.New("--listen: other machines would reach this address, and could send requests: pass --expose as well"))
	}
	for _, text := range l.upstreams {
		address, host, ok := strings.Cut(text, "=")
		_, port, err := net.SplitHostPort(address)
		switch {
		case !ok || host == "" || err != nil:
			all = append(all, fmt.Errorf("--upstream %s: use ADDRESS:PORT=HOST, such as 127.0.0.1:7071=api.example.com", text))
			continue
		case !l.expose && !onLoopback(address):
			all = append(all, fmt.Errorf("--upstream %s: other machines would reach this address, and could send requests: pass --expose as well", text))
		case strings.ContainsAny(host, "/@?#* "):
			all = append(all, fmt.Errorf("--upstream %s: what follows = is a host, without a scheme and without a path", text))
		}
		for _, other := range at {
			if other == address && port != "0" {
				all = append(all, fmt.Errorf("--upstream %s: the address is taken by another flag", text))
			}
		}
		at = append(at, address)
	}
	if l.tunnels < 0 {
		all = append(all, errors.New("--tunnels: use 0 or more"))
	}
	return all
}

// missing returns what is wrong with the hosts of the flags under a table.
func (l *listening) missing(table *proxy.Table) (all []error) {
	for _, text := range l.upstreams {
		if _, host, _ := strings.Cut(text, "="); !table.Has(host) {
			all = append(all, fmt.Errorf("--upstream %s: no policy of the file names this host", text))
		}
	}
	return all
}

// maxTunnels returns what [proxy.Config.Tunnels] is.
func (l *listening) maxTunnels() int {
	if l.tunnels == 0 {
		return -1
	}
	return l.tunnels
}

// onLoopback reports whether only this machine reaches an address.
func onLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// How long a caller may take for its headers, how long it may keep a connection that it does not
// use, and how long answers may go on when the process ends. There is no bound for a whole
// request: some answers are streams.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	stopTime   = 10 * time.Second
)

// A service is an address with what is served there.
type service struct {
	net.Listener
	server *http.Server
	told   string // what stderr says of it
}

// open listens at all addresses. It tells of all that fail.
func (l *listening) open(h *proxy.Handler) (services []service, err error) {
	var errs []error
	add := func(address string, handler http.Handler, told string) {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			errs = append(errs, err)
			return
		}
		services = append(services, service{listener, newServer(handler), fmt.Sprintf(told, listener.Addr())})
	}
	add(l.listen, h, "the proxy is at http://%s/HOST/")
	for _, text := range l.upstreams {
		address, host, _ := strings.Cut(text, "=")
		add(address, h.Upstream(host), host+" is at http://%s/")
	}
	if len(errs) > 0 {
		for _, p := range services {
			p.Close()
		}
	}
	return services, errors.Join(errs...)
}

// newServer returns a server for HTTP/1.1, and for HTTP/2 from the first byte, which gRPC speaks.
// No connection changes from one to the other.
func newServer(handler http.Handler) *http.Server {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, Protocols: new(http.Protocols),
		ErrorLog: log.New(io.Discard, "", 0), // which callers do not keep to HTTP
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server
}

// shutdown lets all requests end until ctx ends: those of the servers, and those in tunnels.
func shutdown(ctx context.Context, h *proxy.Handler, services []service) {
	var ending sync.WaitGroup
	ending.Go(func() { _ = h.Shutdown(ctx) })
	for _, p := range services {
		ending.Go(func() {
			if p.server.Shutdown(ctx) != nil {
				p.server.Close() // streams that go on
			}
		})
	}
	ending.Wait()
}

// firsts are texts of which each is told once.
type firsts struct {
	mu   sync.Mutex
	told map[string]bool
}

// mostTold bounds the texts: callers and upstreams have their parts in them.
const mostTold = 100

// add reports whether a text is to be told.
func (f *firsts) add(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told[text] || len(f.told) >= mostTold {
		return false
	}
	if f.told == nil {
		f.told = make(map[string]bool)
	}
	f.told[text] = true
	return true
}
