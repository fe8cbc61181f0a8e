package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	lab "github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// The drill of docs/run/off.md, with real programs and a real Redis, before an upstream that counts.

// drillVariable has the addresses of Redis and of the upstream for a copy of the test binary that is a program of the drill.
const drillVariable = "THROTTLE_TEST_DRILL"

// drillLimit is the limit of the drill, in an hour: so what is used stays used.
const drillLimit = 3

// runDrill is a program with a reporter and a transport. For each line "send N" it sends N requests at once, and for "try N"
// requests that do not wait. When all have an answer it says how many were sent, refused, and passed because throttle was off.
func runDrill() {
	address, upstream, _ := strings.Cut(os.Getenv(drillVariable), " ")
	client := redis.NewClient(made(redis.ParseURL(address)))
	reporter := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "drill", Interval: 50 * time.Millisecond}))
	defer reporter.Close()

	var passed atomic.Int64
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: reporter, MaxWait: throttle.Forever,
		Policies: []throttle.Policy{{Name: "drill", Match: "/", Limit: throttle.PerHour(drillLimit)}},
		Observe: func(_ context.Context, e throttle.Event) {
			if e.Kind == throttle.EventOff {
				passed.Add(1)
			}
		},
	}))

	lines := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for lines.Scan() {
		word, number, _ := strings.Cut(lines.Text(), " ")
		ctx, n := context.Background(), 0
		_ = made(fmt.Sscan(number, &n))
		if word == "try" {
			ctx = throttle.WithMaxWait(ctx, throttle.NoWait)
		}

		var all sync.WaitGroup
		var sent, refused atomic.Int64
		before := passed.Load()
		for range n {
			all.Go(func() {
				resp, err := transport.RoundTrip(made(http.NewRequestWithContext(ctx, http.MethodGet, upstream, nil)))
				switch {
				case errors.Is(err, throttle.ErrLimited):
					refused.Add(1)
				case err != nil:
					panic(err)
				default:
					resp.Body.Close()
					sent.Add(1)
				}
			})
		}
		all.Wait()
		fmt.Printf("%d sent, %d refused, %d passed\n", sent.Load(), refused.Load(), passed.Load()-before)
	}
}

// TestOffDrill: three programs wait behind a limit that is used up, and behind a pause. throttle off: all their requests start,
// and are counted. throttle on: the limit holds again, as the upstream counts.
func TestOffDrill(t *testing.T) {
	t.Parallel()
	server, upstream := redistest.Single(t), lab.NewUpstream(drillLimit, time.Hour, 0)
	at := "--redis=" + server.URL()
	api := httptest.NewServer(upstream)
	t.Cleanup(api.Close)
	arrivals := func() int { return len(upstream.Arrivals()) }

	programs := make([]*process, 3)
	for i := range programs {
		programs[i] = startBinary(t, drillVariable+"="+server.URL()+" "+api.URL)
	}

	// One program uses up the limit. Then requests of all wait, and an operator has closed the budget as well.
	programs[0].say(fmt.Sprintf("send %d", drillLimit))
	programs[0].expect("3 sent, 0 refused, 0 passed")
	for _, p := range programs {
		p.say("send 8")
	}
	client := server.Client(t)
	all := made(fleet.New(client, fleet.Options{}))
	require.Eventually(t, func() bool {
		s, err := all.Snapshot(t.Context(), 0)
		return err == nil && len(s.Nodes) == 3 && s.Callers == 24
	}, time.Minute, 10*time.Millisecond)
	must(t, "pause", "drill", "--for", "1h", "--reason", "a ban", "--yes", at)
	require.Equal(t, drillLimit, arrivals(), "nothing else was sent")

	require.Contains(t, must(t, "off", "--dry-run", at), "3 programs have reported lately, and throttle is on. Nothing is done")
	require.Equal(t, drillLimit, arrivals())
	out := must(t, "off", "--for", "1h", "--by", "anna", "--reason", "drill", "--yes", "--wait", "1m", at)
	require.Regexp(t, `^throttle is off, until 20\d\d-.*Z, 3 of 3 programs have heard it\n$`, out)
	for _, p := range programs {
		p.expect("8 sent, 0 refused, 8 passed")
	}
	for _, p := range programs {
		p.say("send 20")
		p.expect("20 sent, 0 refused, 20 passed")
	}
	require.Equal(t, drillLimit+24+60, arrivals())

	// It can be seen, and who did it.
	require.Eventually(t, func() bool {
		out = must(t, "status", at)
		return strings.Contains(out, `throttle is off by anna: "drill", 59m`) && strings.Contains(out, "; 84 requests have passed")
	}, time.Minute, 10*time.Millisecond)
	require.Contains(t, out, "3 programs off, 1 closed")
	require.Contains(t, must(t, "top", "--once", at), "throttle is off by anna")
	require.Contains(t, must(t, "audit", at), "off for 1h0m0s")

	// On again: the pause holds, and when it is over, the limit.
	require.Equal(t, "throttle is on, 3 of 3 programs have heard it\n", must(t, "on", "--by", "anna", "--yes", "--wait", "1m", at))
	for _, p := range programs {
		p.say("try 8")
		p.expect("0 sent, 8 refused, 0 passed")
	}
	must(t, "resume", "drill", "--yes", at)
	must(t, "set-used", "drill", "--to", "1", "--yes", at)
	before := arrivals()
	sent := 0
	for _, p := range programs {
		p.say("try 8")
		var n int
		_ = made(fmt.Sscan(p.hear(), &n))
		sent += n
	}
	require.Equal(t, drillLimit-1, sent)
	require.Equal(t, before+drillLimit-1, arrivals())
	require.NotContains(t, must(t, "status", at), "throttle is off")

	// On twice harms nobody.
	require.Contains(t, must(t, "on", "--yes", "--wait", "1m", at), "throttle is on, 3 of 3")
}

// TestOffWithoutEverybody: a program that does not hear the command is named, and the command fails: an old version, a silent
// program, and a program that its environment has turned off.
func TestOffWithoutEverybody(t *testing.T) {
	now := func(change func(*fleet.Node)) fleet.Node {
		n := fleet.Node{ID: "abcdefgh", Program: "shop", Library: "v0.1.0"}
		change(&n)
		return n
	}
	command := &fleet.Switch{Off: true, At: time.UnixMicro(7)}
	for name, c := range map[string]struct {
		node    fleet.Node
		text    string
		settled bool
	}{
		"heard":    {now(func(n *fleet.Node) { n.Switch.At = 7 }), "", true},
		"an older": {now(func(n *fleet.Node) { n.Switch.At = 6 }), "has not heard it yet (throttle v0.1.0)", false},
		"old":      {now(func(*fleet.Node) {}), "has not heard it yet (throttle v0.1.0)", false},
		"silent":   {now(func(n *fleet.Node) { n.Silent, n.Ago = true, fleet.Millis{Duration: time.Minute} }), "silent for 1m0s: it is not known whether it has heard it", true},
		"variable": {now(func(n *fleet.Node) { n.Switch = fleet.NodeSwitch{Off: true, By: store.OffVariable} }), "", true},
	} {
		list, settled := listeners([]fleet.Node{c.node}, command)
		require.Equal(t, []switchNode{{Node: "shop/abcdef", Heard: c.text == "", Text: c.text}}, list, name)
		require.Equal(t, c.settled, settled, name)
	}

	list, _ := listeners([]fleet.Node{now(func(n *fleet.Node) { n.Switch = fleet.NodeSwitch{At: 8, Off: true, By: store.OffVariable} })}, &fleet.Switch{At: time.UnixMicro(8)})
	require.Equal(t, "is off by THROTTLE_OFF: restart it without the variable", list[0].Text)
}

// TestOffRefused: a length that is none, a question without an answer, and an answer that is no.
func TestOffRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	at := "--redis=" + server.URL()
	for _, length := range []string{"0", "-1s", "24h1ms"} {
		code, out := throttleCommand(t, "off", "--for", length, "--yes", at)
		require.Equal(t, exitUsage, code)
		require.Contains(t, out, "at most 24h0m0s")
	}
	client := server.Client(t)
	for command, want := range map[string]string{"off": "throttle is off, until", "on": "throttle is on\n"} {
		code, _ := throttleCommand(t, command, at)
		require.NotZero(t, code)
		n, err := client.Exists(t.Context(), "throttle:{fleet}:off").Result()
		require.NoError(t, err)
		require.Zero(t, n)
		require.Contains(t, must(t, command, "--yes", at), want)
		require.NoError(t, client.FlushDB(t.Context()).Err())
	}

	var result switchResult
	require.NoError(t, json.Unmarshal([]byte(must(t, "off", "--yes", "--json", "--for", "15m", at)), &result))
	require.True(t, result.Off)
	require.False(t, result.Was)
	require.Equal(t, 15*time.Minute, result.Until.Sub(result.At))
	require.NoError(t, json.Unmarshal([]byte(must(t, "on", "--yes", "--json", at)), &result))
	require.True(t, result.Was)
}
