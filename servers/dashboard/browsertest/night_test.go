package browsertest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
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

// TestFirstView: what an operator needs at night is in the first view: what is closed, since when, by what, which program's requests wait,
// and what helps. The tab says the same.
func TestFirstView(t *testing.T) {
	s := onFleet(t)
	p := s.open("", View{Width: 1280, Height: 900})
	s.awaitText(p, "#rows", "warehouse trial")
	s.await(p, `document.title === "Shop" || document.title.endsWith(" · Shop")`)

	target, err := s.fleet.Find(t.Context(), fleet.Query{Name: "openai requests"})
	must(t, err)
	must(t, s.fleet.Pause(t.Context(), target, time.Hour, "ann", "the bill"))
	s.awaitText(p, "#verdict", "openai requests is closed")
	s.awaitText(p, "#subline", "opens at")

	const first = ".line[data-kind=closed]"
	s.awaitText(p, first, "paused by ann: the bill · since ")
	s.awaitText(p, first, "Resume opens it at once.")
	s.awaitText(p, first, "throttle resume 'openai requests/")
	s.await(p, `/importer|mailer/.test(document.querySelector("`+first+`").innerText)`)
	s.await(p, `document.querySelector("#rows .line") === document.querySelector("`+first+`")`)
	s.await(p, `document.querySelectorAll("`+first+`").length === 1 && document.querySelector("`+first+`").getBoundingClientRect().bottom < innerHeight`)
	s.await(p, `document.title === "openai requests is closed · Shop"`)
	s.await(p, `document.querySelector("#icon").href.endsWith("/icon-closed.svg")`)
	s.usable(p)

	// On a phone the figures come before the rows, and the budget that is closed is in view.
	must(t, p.Look(View{Width: 360, Height: 740}))
	s.await(p, `document.querySelector("#figures").getBoundingClientRect().bottom < innerHeight`)
	s.await(p, `document.querySelector("`+first+`").getBoundingClientRect().top < innerHeight`)
}

// TestStoreAway: while Redis is away the page says so where it said "live", is as of the last data, counts nothing down and draws no line
// through the outage; so does a page that is opened then.
func TestStoreAway(t *testing.T) {
	server := redistest.Single(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { client.Close() })
	s := &stage{t: t, fleet: made(fleet.New(client, fleet.Options{}))}
	r := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "importer", Interval: time.Second}))
	t.Cleanup(r.Close)
	s.limiters = limiters(t, throttle.Config{MaxWait: throttle.Forever, Store: r})
	s.run(s.limiters)
	s.serve(dashboard.Config{Source: dashboard.Fleet(s.fleet), Token: token, Title: "Shop"})

	p := s.open("", View{})
	s.awaitText(p, "#rows", "warehouse trial")
	warehouse, err := s.limiters.Limiter("warehouse")
	must(t, err)
	must(t, warehouse.Pause(t.Context(), "", time.Hour))
	s.awaitText(p, "#verdict", "warehouse is closed")
	server.Stop()
	s.await(p, `document.querySelector("#live").dataset.state === "away"`)

	const next = ".line[data-kind=closed] .row .alarm"
	late, err := browser.Open(s.url, View{})
	must(t, err)
	t.Cleanup(late.Close)
	s.await(late, `document.querySelector("#live").dataset.state === "away"`)
	for _, page := range []*Page{p, late} {
		s.awaitText(page, "#verdict", "cannot be read")
		s.await(page, `document.title === "The budgets cannot be read · Shop"`)
		s.await(page, `document.querySelector("#icon").href.endsWith("/icon-away.svg")`)
		s.await(page, `document.querySelector("#figures").classList.contains("stale")`)
		s.await(page, `/^at \d\d:\d\d:\d\d$/.test(document.querySelector("`+next+`").innerText)`)
	}
	if as, of := asOf(p), asOf(late); as == "" || as != of {
		t.Errorf("one page is as of %q, another as of %q", as, of)
	}
	s.usable(late)

	// Nothing of it changes while nothing new is known.
	live, at, line := p.Text("#live"), p.Text(next), `document.querySelector(".line .spark .line").getAttribute("d")`
	drawn, err := Value[string](p, line)
	must(t, err)
	_, err = Value[bool](p, `window.readings = 0, new EventSource("events").addEventListener("change", () => window.readings++), true`)
	must(t, err)
	s.await(p, "window.readings >= 3")
	again, err := Value[string](p, line)
	must(t, err)
	if live != p.Text("#live") || at != p.Text(next) || drawn != again {
		t.Errorf("%q became %q, %q became %q, %q became %q", live, p.Text("#live"), at, p.Text(next), drawn, again)
	}
}

// asOf returns the moment that a page says its data are of.
func asOf(p *Page) string {
	_, at, _ := strings.Cut(p.Text("#live"), "as of ")
	return at
}

// A cable is a program's way to Redis, which can be cut.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.New("the cable is cut")
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cable) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, conn := range c.conns {
		conn.Close()
	}
}

// TestSilentProgram: a program that reports no more is in the first view, with a word and a colour, and has no starts.
func TestSilentProgram(t *testing.T) {
	server := redistest.Single(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { client.Close() })
	var own cable
	program := redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: own.dial})
	t.Cleanup(func() { program.Close() })

	s := &stage{t: t, fleet: made(fleet.New(client, fleet.Options{}))}
	r := made(fleet.Start(program, redisstore.New(program, redisstore.Options{}), fleet.ReporterOptions{Program: "importer", Interval: time.Second}))
	t.Cleanup(r.Close)
	s.limiters = limiters(t, throttle.Config{MaxWait: throttle.Forever, Store: r})
	s.run(s.limiters)
	s.serve(dashboard.Config{Source: dashboard.Fleet(s.fleet), Token: token, Title: "Shop"})
	p := s.open("", View{})
	s.awaitText(p, "#nodes", "importer")
	s.await(p, `document.querySelector("#silent").hidden`)

	own.sever()
	s.awaitText(p, "#silent", "1 program is silent")
	s.await(p, `document.querySelector("#glance").dataset.state !== "calm"`)
	s.awaitText(p, "#f-programs-about", "1 silent")
	s.await(p, `document.title !== "Shop"`)
	s.awaitText(p, "#nodes", "silent for")
	s.await(p, `document.querySelector("#nodes tbody tr").children[4].innerText === "–"`)
	s.usable(p)
}

// TestOff: that throttle is off is the first thing that the page says, with who turned it off and why, until it is on again.
func TestOff(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Single(t).Addr})
	t.Cleanup(func() { client.Close() })
	s := &stage{t: t, fleet: made(fleet.New(client, fleet.Options{}))}
	r := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "importer", Interval: time.Second}))
	t.Cleanup(r.Close)
	s.limiters = limiters(t, throttle.Config{MaxWait: throttle.Forever, Store: r})
	s.run(s.limiters)
	s.serve(dashboard.Config{Source: dashboard.Fleet(s.fleet), Token: token, Title: "Shop"})
	p := s.open("", View{})
	s.awaitText(p, "#nodes", "importer")
	s.await(p, `document.querySelector("#off").hidden`)

	_, _, err := s.fleet.TurnOff(t.Context(), time.Hour, "anna", "the limits are wrong")
	must(t, err)
	s.awaitText(p, "#verdict", "Throttle is off")
	s.awaitText(p, "#off", "Off in 1 × program: importer/")
	s.awaitText(p, "#off", "off by anna: \"the limits are wrong\"")
	s.await(p, `document.querySelector("#glance").dataset.state === "closed"`)
	s.awaitText(p, "#acts", "off, 1 h")
	s.usable(p)

	_, _, err = s.fleet.TurnOn(t.Context(), "anna", "")
	must(t, err)
	s.await(p, `document.querySelector("#off").hidden`)
}

// TestSlotsHold: requests that wait for a slot wait, though nobody knows when a slot is free.
func TestSlotsHold(t *testing.T) {
	watched := dashboard.NewProcess(memstore.New())
	render, err := throttle.NewLimiter(watched, throttle.Policy{Name: "render", Limit: throttle.Concurrency(1)})
	must(t, err)
	permit, err := render.Acquire(t.Context(), "", 1)
	must(t, err)
	var ended sync.WaitGroup
	for range 2 {
		ended.Go(func() { _, _ = render.Acquire(t.Context(), "", 1) })
	}
	t.Cleanup(ended.Wait)
	s := &stage{t: t}
	s.serve(dashboard.Config{Source: watched, Token: token, Title: "Shop"})

	p := s.open("", View{})
	s.awaitText(p, "#verdict", "requests wait")
	s.awaitText(p, "#subline", "render")
	s.awaitText(p, "#f-waiting", "2")
	s.await(p, `document.querySelector("#icon").href.endsWith("/icon-waits.svg")`)
	s.awaitText(p, "#rows", "The only slot is in use")

	permit.Release()
	s.awaitText(p, "#f-waiting", "1")
}

// TestMoreClosedThanShown: the headline counts the closed budgets that have no row, too.
func TestMoreClosedThanShown(t *testing.T) {
	watched := dashboard.NewProcess(memstore.New())
	tenants, err := throttle.NewLimiter(watched, throttle.Policy{Name: "tenants", Keyed: true, Limit: throttle.PerSecond(1)})
	must(t, err)
	for _, key := range []string{"a", "b", "c"} {
		must(t, tenants.Pause(t.Context(), key, time.Hour))
	}
	s := &stage{t: t}
	s.serve(dashboard.Config{Source: watched, Token: token, Title: "Shop", Budgets: 1})
	p := s.open("", View{})
	s.awaitText(p, "#verdict", "3 budgets are closed")
	s.awaitText(p, "#f-closed", "3")
}

// TestLinkWithToken: a link with the token unlocks the page and leaves the address; locking takes the proof back, in other tabs too.
func TestLinkWithToken(t *testing.T) {
	s := onProcess(t)
	p := s.open("#token="+token, View{})
	s.await(p, `document.querySelector("#lock").innerText === "Lock"`)
	s.await(p, `!location.href.includes("token")`)
	s.awaitText(p, "#rows", "warehouse")

	// A page in another tab of the browser hears of the lock by its channel.
	_, err := Value[bool](p, `window.other = open(location.href), true`)
	must(t, err)
	s.await(p, `window.other.document.querySelector("#lock")?.innerText === "Lock"`)
	_, err = Value[bool](p, `document.querySelector("#lock").click(), true`)
	must(t, err)
	s.await(p, `document.querySelector("#lock").innerText === "Unlock"`)
	s.await(p, `window.other.document.querySelector("#lock")?.innerText === "Unlock"`)
}
