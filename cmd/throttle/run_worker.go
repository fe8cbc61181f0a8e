//go:build linux || darwin

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fleetthrottle/throttle/cmd/throttle/internal/rendezvous"
	"github.com/fleetthrottle/throttle/servers/dashboard"
)

// Times of a worker that ends: when no program is left, and for answers in progress when the next worker serves already.
const (
	shortEnd = time.Second
	longEnd  = 10 * time.Minute
)

// Files of a worker.
const (
	budgetsName = "budgets" // directory, of all rendezvous of the user
	pageName    = "page"    // socket of the page
	tokenName   = "token"   // of the page
)

// work serves the proxy and the page for the programs of a rendezvous, until d.End tells it to end, or ctx ends. The budgets are in
// Redis or, without an address of Redis, in a directory that all rendezvous of the user share.
func (r *runner) work(ctx context.Context, d rendezvous.Duty) error {
	_, s := newProxyWith()
	s.at, s.maxWait, s.private, s.talk, s.listen = r.at, r.maxWait, r.private, r.talk, d.Listener.Addr().String()
	s.budgets = filepath.Join(filepath.Dir(r.dir), budgetsName)

	// Without --file the presets extend a file without rows.
	s.extend = r.policies
	s.standby = func(context.Context) ([]byte, error) { return []byte(noFile), nil }

	store, reporter, closeStore, err := s.open()
	if err != nil {
		return err
	}
	defer closeStore()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	watched := dashboard.NewProcess(store)
	s.watch = watched.Observe

	if _, err = s.follow(ctx, r.file, watched, reporter); err != nil {
		return err
	}
	if err := r.servePage(watched); err != nil {
		return err
	}

	d.Ready()
	go func() {
		if soon := <-d.End; soon {
			s.stopTime = shortEnd
			os.Remove(filepath.Join(r.dir, pageName)) // no program is left to show
		} else {
			s.stopTime = 2*r.maxWait + longEnd // the first half is for calls that wait, so it is not shorter than their wait
			s.say("the next proxy serves, and this one ends after its last call")
		}

		cancel()
	}()

	return s.serveAt(ctx, rendezvous.Own(d.Listener, s.say))
}

// servePage begins to serve the page at a socket in the directory, for throttle dashboard, until the process ends.
func (r *runner) servePage(source dashboard.Source) error {
	token, err := tokenIn(r.dir)
	if err != nil {
		return err
	}

	page, err := dashboard.New(dashboard.Config{Source: source, Token: token, Title: "throttle run"})
	if err != nil {
		return err
	}

	// Replace the socket of an earlier worker, whose page is out of date.
	path := filepath.Join(r.dir, pageName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}

	// The next worker puts its socket at the same path, so this one must not remove the path.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)

	server := &http.Server{Handler: page, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(listener) }()
	return nil
}

// tokenIn returns the token in the file of a directory, and makes the file if need be.
func tokenIn(dir string) (string, error) {
	path := filepath.Join(dir, tokenName)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		_ = os.Remove(path) // a worker was killed, or the disk was full, before the token was written
	}

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return readToken(path, "")
	}
	if err != nil {
		return "", err
	}

	token := rand.Text()
	_, err = io.WriteString(f, token+"\n")
	return token, errors.Join(err, f.Close())
}

// errNoPage says that throttle dashboard has neither a Redis nor a program of throttle run to show.
var errNoPage = errors.New("there is no address of Redis: pass --redis, or set " + addressVariable + "; and no program of throttle run is there")

// runPage returns a handler that forwards to the web page of throttle run, and the token of that page. Programs with
// different flags have different pages: runPage takes the page with the newest socket. Without a page the error is errNoPage.
func runPage() (page http.Handler, token string, err error) {
	directory, err := rendezvous.Directory()
	if err != nil {
		return nil, "", err
	}

	sockets, err := filepath.Glob(filepath.Join(directory, "*", pageName))
	if err != nil {
		return nil, "", err
	}

	var latest time.Time
	var path string
	for _, p := range sockets {
		// A worker that was killed leaves a socket that refuses connections.
		conn, err := net.Dial("unix", p)
		if err != nil {
			continue
		}

		conn.Close()
		if info, err := os.Lstat(p); err == nil && info.ModTime().After(latest) {
			latest, path = info.ModTime(), p
		}
	}

	if path == "" {
		return nil, "", errNoPage
	}
	if token, err = tokenIn(filepath.Dir(path)); err != nil {
		return nil, "", err
	}

	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &httputil.ReverseProxy{
		// The transport dials the socket whatever the host is.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "page", r.In.Host
		},
		Transport: &http.Transport{DialContext: dial}, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}, token, nil
}
