package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// A wire hands requests straight to the fake, in no time.
type wire struct{ upstream *fake.Server }

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	answer := httptest.NewRecorder()
	r = r.Clone(r.Context())
	r.RemoteAddr = "192.0.2.1:1"
	w.upstream.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// fleetOf makes four nodes that share a store and a fake.
func fleetOf(t *testing.T, c *config, o fake.Options) (*fake.Server, []member) {
	t.Helper()
	upstream := fake.New(o)
	c.base = "http://fake"
	c.key, c.secret = fake.DefaultAppKey, fake.DefaultAppSecret
	c.nodes, c.workers = 4, 16
	store := memstore.New()
	var members []member
	for range c.nodes {
		n, err := newNode(c.setup(), store, wire{upstream})
		require.NoError(t, err)
		members = append(members, n)
	}
	return upstream, members
}

// pullAll runs a pull in virtual time and returns what it left behind.
func pullAll(t *testing.T, ctx context.Context, c config, o fake.Options) (*pull, *report) {
	t.Helper()
	upstream, members := fleetOf(t, &c, o)
	p, begin := newPull(retries), time.Now()
	err := run(ctx, p, members, func(*pull) {}, time.Second)
	require.Equal(t, ctx.Err() != nil, errors.Is(err, context.Canceled), err)
	return p, newReport(c, p, upstream, time.Since(begin), ctx.Err() != nil)
}

// requireEverybodyOnce compares the address book with the company.
func requireEverybodyOnce(t *testing.T, p *pull, o fake.Options) {
	t.Helper()
	want := fake.New(o).Company()
	var got []string
	for id, times := range p.people {
		require.Equal(t, 1, times, id)
		got = append(got, id)
	}
	slices.Sort(got)
	require.Equal(t, want.UserIDs(), got)
	require.Equal(t, want.Departments(), p.departments)
}

func TestFleetKeepsWithinEveryLimit(t *testing.T) {
	soak.Only(t)
	for edition, numbers := range editions {
		perSecond := numbers.PerSecond
		for name, o := range map[string]fake.Options{
			"any second":          {},
			"clock seconds":       {FixedSecond: true},
			"refused calls count": {CountRefused: true},
		} {
			t.Run(edition+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o.PerSecond, o.People = perSecond, 400*perSecond // for 20 s
					p, r := pullAll(t, t.Context(), config{edition: edition}, o)
					requireEverybodyOnce(t, p, o)
					require.True(t, r.clean())
					require.Equal(t, perSecond, r.most(), "nearly all, and never more")
					require.Equal(t, exitDone, r.exitCode())
					require.Empty(t, r.verdict())
					for _, u := range r.apis[:2] {
						// Of 96.6 % that the jitter leaves, a short job loses up to
						// 0.95 s to the pace of the line.
						require.GreaterOrEqual(t, u.quota(perSecond, nil), 0.90, u.path)
						require.LessOrEqual(t, u.quota(perSecond, nil), 1.0, u.path)
					}
				})
			})
		}
	}
}

func TestCrowdedAPIIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := fake.Options{PerAPI: 19} // one less than the app may
		p, r := pullAll(t, t.Context(), config{edition: "standard"}, o)
		requireEverybodyOnce(t, p, o)
		require.Positive(t, r.refused["90002"])
		require.Zero(t, r.lost)
		require.Empty(t, r.reason, "the client itself has tried again")
		require.Equal(t, exitFailed, r.exitCode(), "nothing is lost, but DingTalk said no")
	})
}

func TestBanIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := fake.Options{Address: 150, AddressWindow: 20 * time.Second}
		p, r := pullAll(t, t.Context(), config{edition: "standard"}, o)
		requireEverybodyOnce(t, p, o)
		require.Positive(t, r.bans)
		require.Zero(t, r.lost)
		require.Empty(t, r.reason, "the client itself has tried again")
		require.Greater(t, r.elapsed, 5*time.Minute)
		require.Equal(t, exitFailed, r.exitCode())
	})
}

// TestProvokedFleetComesBack: an outsider trips the real rule, whatever the ban then
// looks like.
func TestProvokedFleetComesBack(t *testing.T) {
	soak.Only(t)
	for name, change := range map[string]func(*fake.Options){
		"as documented":    func(*fake.Options) {},
		"short":            func(o *fake.Options) { o.BanFor = 2 * time.Second },
		"page":             func(o *fake.Options) { o.BanHTML = true },
		"forbidden":        func(o *fake.Options) { o.BanStatus = http.StatusForbidden },
		"called a page":    func(o *fake.Options) { o.BanMedia = "text/html" },
		"called a text":    func(o *fake.Options) { o.BanMedia = "text/plain" },
		"without a length": func(o *fake.Options) { o.BanNoWait = true },
		"prolonged":        func(o *fake.Options) { o.BanProlongs = true },
		"clock windows":    func(o *fake.Options) { o.FixedAddress = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := config{edition: "standard", people: 3000, provoke: true, ban: 5 * time.Minute}
				o := c.rules()
				change(&o)
				c.ban = o.BanFor
				provoked(t, c, o)
			})
		})
	}
}

// provoked plays one provoked pull.
func provoked(t *testing.T, c config, o fake.Options) {
	t.Helper()
	upstream, members := fleetOf(t, &c, o)
	p, begin := newPull(retries), time.Now()
	stop := letIn(t.Context(), newOutsider(c.base, wire{upstream}))
	require.NoError(t, run(t.Context(), p, members, func(*pull) {}, time.Second))
	stop()
	r := newReport(c, p, upstream, time.Since(begin), false)
	requireEverybodyOnce(t, p, o)
	require.Equal(t, exitDone, r.exitCode())
	require.Contains(t, r.verdict(), "nobody is missing")
	require.Equal(t, 1, r.bans)
	require.Equal(t, map[string]int{banned: r.ban.answered}, r.refused)
	require.Less(t, r.ban.stopped, 50*time.Millisecond)
	require.GreaterOrEqual(t, r.ban.silence(), c.ban-50*time.Millisecond)
	require.LessOrEqual(t, r.most(), 20, "not one too many, afterwards either")
	require.Greater(t, r.elapsed, c.ban)
	require.Less(t, r.elapsed, c.ban+12*time.Second, "no more than the ban was lost")
	for _, u := range r.apis[:2] {
		require.GreaterOrEqual(t, u.quota(20, r.ban), 0.8, u.path)
		require.LessOrEqual(t, u.quota(20, r.ban), 1.0, u.path)
	}
}

func TestOutsiderNeedsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := pullAll(t, t.Context(), config{edition: "standard", people: 100, provoke: true, ban: time.Second}, fake.Options{People: 100})
		require.Equal(t, exitFailed, r.exitCode())
		require.Contains(t, r.verdict(), "before the outsider")
	})
}

func TestPlainFleetIsBanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config{edition: "standard", unthrottled: true, people: 3000}
		o := c.rules()
		o.Address = 50 // some departments are refused, and with them goes what they would ask for
		_, r := pullAll(t, t.Context(), c, o)
		require.Equal(t, 1, r.bans)
		require.Positive(t, r.refused["90018"])
		require.Positive(t, r.refused[banned])
		require.Positive(t, r.lost)
		require.Less(t, r.people, 3000)
		require.Greater(t, r.most(), 20)
		require.Equal(t, exitFailed, r.exitCode())
		require.Contains(t, r.verdict(), "Without the library")
	})
}

func TestProgressKnowsTheWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config{edition: "standard"}
		_, members := fleetOf(t, &c, fake.Options{})
		p := newPull(0)
		var waiting, rates []int
		require.NoError(t, run(t.Context(), p, members, func(p *pull) {
			waiting = append(waiting, p.waiting())
			rates = append(rates, p.rate(time.Now()))
		}, 2500*time.Millisecond))
		require.Len(t, waiting, 4)
		require.Equal(t, []int{64, 64}, waiting[:2], "every worker is held")
		require.InDelta(t, 14, waiting[2], 4, "the last calls flow evenly")
		require.Zero(t, waiting[3], "all is done")
		require.Equal(t, []int{38, 40}, rates[:2], "twenty of each API in a window, which last a bit longer than a second")
	})
}

func TestInterruptedFleetStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(2500*time.Millisecond, interrupt)
		p, r := pullAll(t, ctx, config{edition: "standard"}, fake.Options{})
		require.Equal(t, 2500*time.Millisecond, r.elapsed)
		require.Positive(t, p.open())
		require.Equal(t, exitInterrupted, r.exitCode())
		require.Contains(t, r.verdict(), "Interrupted: ")
	})
}
