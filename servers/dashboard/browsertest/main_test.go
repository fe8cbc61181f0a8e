package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/servers/dashboard"
)

// browser is the one of all tests.
var browser *Browser

func TestMain(m *testing.M) {
	var err error
	if browser, err = Start(); err == nil {
		_, err = script()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := redistest.Main(m)
	browser.Close()
	os.Exit(status)
}

// token lets an operator act.
const token = "5c2f1b0e9d8a7c6b5a49382716050f1e"

// A stage is a page, and the programs that it shows.
type stage struct {
	t        *testing.T
	url      string
	limiters *throttle.Limiters
	fleet    *fleet.Fleet // nil: there is one program, without Redis
	away     atomic.Bool  // the page's server answers nothing
	cut      func()       // cuts all connections of the page's server
}

// onProcess returns a stage of one program.
func onProcess(t *testing.T) *stage {
	watched := dashboard.NewProcess(memstore.New())
	s := &stage{t: t, limiters: limiters(t, throttle.Config{MaxWait: throttle.Forever, Store: watched, Observe: watched.Observe})}
	s.run(s.limiters)
	s.serve(dashboard.Config{Source: watched, Token: token, Title: "Address book"})
	return s
}

// onFleet returns a stage of three programs that share budgets in Redis.
func onFleet(t *testing.T) *stage {
	client := redis.NewClient(&redis.Options{Addr: redistest.Single(t).Addr})
	t.Cleanup(func() { client.Close() })
	s := &stage{t: t, fleet: made(fleet.New(client, fleet.Options{}))}
	for _, name := range []string{"importer", "importer", "mailer"} {
		r := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: name, Interval: time.Second}))
		t.Cleanup(r.Close)
		s.limiters = limiters(t, throttle.Config{MaxWait: throttle.Forever, Store: r})
		s.run(s.limiters)
	}
	s.serve(dashboard.Config{Source: dashboard.Fleet(s.fleet), Token: token, Title: "Shop"})
	return s
}

func limiters(t *testing.T, c throttle.Config) *throttle.Limiters {
	t.Helper()
	c.Policies = Policies()
	l, err := throttle.NewLimiters(c)
	must(t, err)
	return l
}

// run has a program make its calls until the test ends.
func (s *stage) run(l *throttle.Limiters) {
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { Run(ctx, l) })
	s.t.Cleanup(ended.Wait)
	s.t.Cleanup(stop)
}

func (s *stage) serve(c dashboard.Config) {
	c.Local = true
	page, err := dashboard.New(c)
	must(s.t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.away.Load() {
			panic(http.ErrAbortHandler)
		}
		page.ServeHTTP(w, r)
	}))
	s.t.Cleanup(server.Close)
	s.t.Cleanup(server.CloseClientConnections)
	s.cut = server.CloseClientConnections
	s.url = server.URL + "/"
}

// open opens the page, which must have no problem when the test ends.
func (s *stage) open(query string, v View) *Page {
	s.t.Helper()
	p, err := browser.Open(s.url+query, v)
	must(s.t, err)
	s.t.Cleanup(p.Close)
	s.t.Cleanup(func() {
		for _, problem := range p.Problems() {
			s.t.Error(problem)
		}
	})
	s.await(p, `document.querySelector("#live").dataset.state === "live"`)
	return p
}

// await waits until an expression is true on a page.
func (s *stage) await(p *Page, expression string) {
	s.t.Helper()
	must(s.t, p.Await(expression))
}

// awaitText waits until an element shows a text.
func (s *stage) awaitText(p *Page, selector, text string) {
	s.t.Helper()
	s.await(p, fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

// usable fails the test for each thing that people cannot use who see or move badly.
func (s *stage) usable(p *Page) {
	s.t.Helper()
	for _, dark := range []bool{false, true} {
		must(s.t, p.Do(theme(dark)))
		all, err := p.Violations()
		must(s.t, err)
		for _, v := range all {
			s.t.Errorf("dark %t: %s", dark, v)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// made returns the value of a constructor that has no error.
func made[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
