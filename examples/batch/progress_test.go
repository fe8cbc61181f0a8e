package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// aBudget is what a store says of the budget of "orders".
func aBudget(paused time.Duration) map[throttle.Budget]throttle.Status {
	return map[throttle.Budget]throttle.Status{{Policy: "orders"}: {Limit: throttle.PerSecond(40), Paused: paused}}
}

// shown returns what a progress writes in some seconds, while work is done in each of them.
func shown(t *testing.T, p *progress, seconds int, work func(second int)) string {
	t.Helper()
	var out strings.Builder
	p.out = &out
	synctest.Test(t, func(t *testing.T) {
		hide := p.show(t.Context())
		for second := 1; second <= seconds; second++ {
			work(second)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		hide()
	})
	return out.String()
}

// TestProgress_Elsewhere: into a file a line is written after 2, 4, 8 seconds and so on, and when a budget
// is closed or the store is away, and again when that is over.
func TestProgress_Elsewhere(t *testing.T) {
	orders := &tally{source: "orders", policy: throttle.Policy{Name: "orders"}, share: 0.5, pages: 1000, found: 100}
	second := 0
	p := &progress{tallies: []*tally{orders}, status: func(context.Context) (map[throttle.Budget]throttle.Status, error) {
		switch second++; second {
		case 10, 11:
			return aBudget(time.Minute), nil
		case 13:
			return nil, errors.New("away")
		}
		return aBudget(0), nil
	}}
	out := shown(t, p, 17, func(int) {
		for range 10 {
			orders.add(50)
		}
	})
	require.Equal(t, strings.Join([]string{
		"orders 12.0% 10.0/s 46s-1m28s left", // 880 pages at 20 in 1.035 s, or at 10 a second
		"orders 14.0% 10.0/s 45s-1m26s left",
		"orders 18.0% 10.0/s 43s-1m22s left",
		"orders 20.0% closed for 1m0s, 1m42s left",
		"orders 22.0% 10.0/s 41s-1m18s left",
		"orders 23.0% | the store does not answer: nothing is sent",
		"orders 24.0% 10.0/s 40s-1m16s left",
		"orders 26.0% 10.0/s 39s-1m14s left",
		"",
	}, "\n"), out)
	require.EqualValues(t, 8500, orders.rows.Load())
}

// TestProgress_Terminal: on a terminal one line is written again and again, and is gone at the end.
func TestProgress_Terminal(t *testing.T) {
	orders := &tally{source: "orders", policy: throttle.Policy{Name: "orders"}, share: 1, pages: 20}
	p := &progress{rewrite: true, tallies: []*tally{orders}, status: func(context.Context) (map[throttle.Budget]throttle.Status, error) {
		return aBudget(0), nil
	}}
	out := shown(t, p, 3, func(second int) {
		if second > 1 {
			for range 10 {
				orders.add(50)
			}
		}
	})
	require.Equal(t, "\rorders 0.0% at least 1s left"+
		"\rorders 50.0% 10.0/s 1s left "+
		"\rorders 100.0%               "+
		"\r                            \r", out)

	orders.source = strings.Repeat("orders ", 20)
	for line := range strings.SplitSeq(shown(t, p, 3, func(int) {}), "\r") {
		require.LessOrEqual(t, len(line), columns, "a line that is too long for the terminal would not be written again")
	}
}

// TestProgress_SlowStore: a store that does not answer holds the progress for a second, and the work not
// at all.
func TestProgress_SlowStore(t *testing.T) {
	orders := &tally{source: "orders", policy: throttle.Policy{Name: "orders"}, share: 1, pages: 20}
	p := &progress{tallies: []*tally{orders}, status: func(ctx context.Context) (map[throttle.Budget]throttle.Status, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	out := shown(t, p, 4, func(int) { orders.add(1) })
	require.Contains(t, out, "| the store does not answer: nothing is sent\n")
	require.EqualValues(t, 4, orders.pulled.Load())
}

func TestShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1s": time.Millisecond, "59s": 59 * time.Second, "1m1s": time.Minute + time.Nanosecond,
		"1h1m": time.Hour + time.Second, "12h0m": 12 * time.Hour,
	} {
		require.Equal(t, want, short(d))
	}
}
