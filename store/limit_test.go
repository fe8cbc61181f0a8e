package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the tests know their zones on any system

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/golden"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// kinds are the names of the kinds of limits.
var kinds = map[store.Kind]string{
	store.KindSlidingWindow: "sliding", store.KindFixedWindow: "fixed", store.KindLeakyBucket: "paced",
	store.KindTokenBucket: "bucket", store.KindConcurrency: "in flight", store.KindUnlimited: "unlimited", store.KindTold: "told",
}

// TestParseLimit reads texts, and prints what was read.
func TestParseLimit(t *testing.T) {
	golden.Lines(t, "limits", func(in string) string {
		text, err := strconv.Unquote(in)
		require.NoError(t, err)
		l, err := store.ParseLimit(text)
		if err != nil {
			require.Zero(t, l)
			reason, found := strings.CutPrefix(err.Error(), `throttle: limit "`+text+`": `)
			require.True(t, found, err)
			return "error: " + strings.NewReplacer("\n", " & ", store.LimitForms, "…").Replace(reason)
		}
		out := fmt.Sprintf("%s, %d in %v, %d at once: %v", kinds[l.Kind()], l.N(), l.Per(), l.Capacity(), l)
		if l.Kind() == store.KindFixedWindow {
			for _, at := range []string{"2026-03-29T12:00:00Z", "2026-12-31T23:30:00Z"} {
				start, end := l.Window(instant(t, at))
				out += fmt.Sprintf("; %s to %s", start.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339))
			}
		}
		return out
	})
}

// requireSameLimit compares limits by what they say. Two loads of one zone are
// two pointers.
func requireSameLimit(t *testing.T, want, got store.Limit) {
	t.Helper()
	require.Equal(t, want.Kind(), got.Kind())
	require.Equal(t, want.N(), got.N())
	require.Equal(t, want.Per(), got.Per())
	require.Equal(t, want.Capacity(), got.Capacity())
	for _, at := range []string{"2026-01-31T15:59:59Z", "2026-03-29T12:00:00Z", "2026-07-15T22:30:00Z", "2026-12-31T23:30:00Z"} {
		start, end := want.Window(instant(t, at))
		s, e := got.Window(instant(t, at))
		require.Equal(t, start.UTC(), s.UTC())
		require.Equal(t, end.UTC(), e.UTC())
	}
}

func TestLimitString(t *testing.T) {
	require.Equal(t, "no limit", store.Limit{}.String())
	require.Equal(t, "-1/0s", store.SlidingWindow(-1, 0).String())
	require.Equal(t, "1/unit 9", store.CalendarWindow(1, 9, nil).String())
	est := time.FixedZone("EST", 8*3600) // the name lies
	require.Equal(t, "1/day +08:00", store.CalendarWindow(1, store.Day, est).String())
}

func TestLimitInJSON(t *testing.T) {
	type config struct{ Each, All, None store.Limit }
	const text = `{"Each":"40/s","All":"5000/month Asia/Shanghai","None":""}`
	var c config
	require.NoError(t, json.Unmarshal([]byte(text), &c))
	require.Equal(t, store.PerSecond(40), c.Each)
	requireSameLimit(t, store.CalendarWindow(5000, store.Month, zone(t, "Asia/Shanghai")), c.All)
	require.Zero(t, c.None)

	back, err := json.Marshal(c)
	require.NoError(t, err)
	require.Equal(t, text, string(back))
}

func TestUnmarshalLimit(t *testing.T) {
	l := store.PerSecond(1)
	require.EqualError(t, l.UnmarshalText([]byte("0/s")), `throttle: limit "0/s": 0 starts: allow at least 1`)
	require.Equal(t, store.PerSecond(1), l, "an error changes nothing")
	require.NoError(t, l.UnmarshalText(nil))
	require.Zero(t, l)
}

func TestMarshalLimitThatCannotBeRead(t *testing.T) {
	_, err := store.PerSecond(0).MarshalText()
	require.EqualError(t, err, `throttle: limit "0/s": 0 starts: allow at least 1`)
	_, err = store.CalendarWindow(1, store.Day, time.FixedZone("", 100*3600)).MarshalText()
	require.ErrorContains(t, err, `"+100:00" at offset 6 is not a known time zone`)
}

func TestValidateAccepts(t *testing.T) {
	for _, l := range []store.Limit{
		store.PerSecond(1),
		store.PerSecond(min(1<<40, math.MaxInt)),
		store.SlidingWindow(1, time.Microsecond),
		store.SlidingWindow(1, 1500*time.Nanosecond),
		store.SlidingWindow(1, 366*24*time.Hour),
		store.LeakyBucket(1, time.Microsecond),
		store.LeakyBucket(1, 366*24*time.Hour),
		store.FixedWindow(1, 35*time.Millisecond+time.Microsecond),
		store.FixedWindow(1, 366*24*time.Hour),
		store.CalendarWindow(1, store.Day, nil),
		store.CalendarWindow(1, store.Week, time.UTC),
		store.CalendarWindow(1, store.Month, time.Local),
		store.CalendarWindow(1, store.Quarter, nil),
		store.CalendarWindow(1, store.Year, nil),
		store.CalendarWindow(1, store.WeekFrom(time.Sunday), nil),
		store.CalendarWindow(1, store.WeekFrom(time.Saturday), nil),
		store.TokenBucket(1, time.Microsecond, 1),
		store.TokenBucket(1, time.Second, 1),
		store.TokenBucket(1, 366*24*time.Hour, 1),
		store.TokenBucket(366*24, 366*24*time.Hour, 366*24),
		store.TokenBucket(1_000_000, time.Second, min(1<<32, math.MaxInt)),
		store.Concurrency(1),
		store.Concurrency(min(1<<40, math.MaxInt)),
		store.Unlimited(),
	} {
		require.NoError(t, l.Validate(35*time.Millisecond), "%v", l)
	}
	require.NoError(t, store.FixedWindow(1, time.Microsecond).Validate(0))
	require.NoError(t, store.PerSecond(1).Validate(time.Hour), "only fixed windows have an end")
}

func TestValidateRefuses(t *testing.T) {
	const (
		jitter = 35 * time.Millisecond
		ns     = time.Nanosecond
		noRoom = " has no room for a start that may arrive 35ms late: " +
			"use a longer window, or set Policy.Jitter to less than the window (negative for none)"
	)
	for _, c := range []struct {
		name  string
		limit store.Limit
		want  string
	}{
		{"zero", store.Limit{}, `there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`},
		{"no starts", store.PerSecond(0), "0 starts: allow at least 1"},
		{"negative", store.CalendarWindow(-3, store.Day, nil), "-3 starts: allow at least 1"},
		{"too many", store.PerSecond(min(1<<40+1, math.MaxInt)), "1099511627777 starts: allow at most 1099511627776"},
		{"no period", store.SlidingWindow(1, 0), "a period of 0s: use a positive one, such as time.Second"},
		{"backwards", store.LeakyBucket(1, -time.Second), "a period of -1s: use a positive one, such as time.Second"},
		{"fixed, no period", store.FixedWindow(1, 0), "a period of 0s: use a positive one, such as time.Second"},
		{"short", store.SlidingWindow(1, 999*ns), "a period of 999ns: use at least 1µs"},
		{"paced, short", store.LeakyBucket(1, 1*ns), "a period of 1ns: use at least 1µs"},
		{"long", store.SlidingWindow(1, 366*24*time.Hour+1), "a period of 8784h0m0.000000001s: use at most 8784h0m0s, which is 366 days"},
		{"paced, long", store.LeakyBucket(1, 400*24*time.Hour), "a period of 9600h0m0s: use at most 8784h0m0s, which is 366 days"},
		{"fraction of a microsecond", store.FixedWindow(1, time.Second+1), "a fixed window of 1.000000001s: use whole microseconds"},
		{"fixed, as long as jitter", store.FixedWindow(1, jitter), "a fixed window of 35ms" + noRoom},
		{"no unit", store.CalendarWindow(1, 0, nil), "unit 0: use Day, Week, WeekFrom, Month, Quarter or Year"},
		{"unknown unit", store.CalendarWindow(1, store.Year+1, nil), "unit 6: use Day, Week, WeekFrom, Month, Quarter or Year"},
		{"unknown day", store.CalendarWindow(1, store.WeekFrom(7), nil), "unit 23: use Day, Week, WeekFrom, Month, Quarter or Year"},
		{"no burst", store.TokenBucket(1, time.Second, 0), "a burst of 0: allow at least 1"},
		{"negative burst", store.TokenBucket(1, time.Second, -1), "a burst of -1: allow at least 1"},
		{"large burst", store.TokenBucket(1000, time.Second, min(1<<32+1, math.MaxInt)), "a burst of 4294967297: allow at most 4294967296"},
		{"no flow", store.TokenBucket(0, time.Second, 1), "0 starts: allow at least 1"},
		{"bucket, no period", store.TokenBucket(1, 0, 0), "a period of 0s: use a positive one, such as time.Second"},
		{"too fast", store.TokenBucket(1001, time.Millisecond, 5), "1001 tokens in 1ms: a bucket takes at most one each microsecond"},
		{"too slow to fill", store.TokenBucket(1, 24*time.Hour, 367), "a burst of 367 that takes more than 8784h0m0s to fill: use a smaller one"},
		{"nothing in flight", store.Concurrency(0), "0 starts: allow at least 1"},
		{"all at once", store.FixedWindow(0, 1500*ns), "0 starts: allow at least 1\n" +
			"a fixed window of 1.5µs: use whole microseconds\n" +
			"a fixed window of 1.5µs" + noRoom},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strconv.IntSize == 32 && strings.Contains(c.want, ": allow at most") {
				t.Skip("no int of 32 bits is as large")
			}
			require.EqualError(t, c.limit.Validate(jitter), c.want)
		})
	}
}

func TestUnlimited(t *testing.T) {
	l := store.Unlimited()
	require.Equal(t, store.KindUnlimited, l.Kind())
	require.Zero(t, l.N())
	require.Zero(t, l.Per())
	require.Equal(t, store.MaxCost, l.Capacity())
	text, err := l.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "unlimited", string(text))
	var again store.Limit
	require.NoError(t, again.UnmarshalText(text))
	require.Equal(t, l, again)
}

func TestSpan(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		limit  store.Limit
		jitter time.Duration
		want   time.Duration
	}{
		{store.PerSecond(20), 0, time.Second + us},
		{store.PerSecond(20), 35 * ms, 1035*ms + us},
		{store.SlidingWindow(1, 1500), 0, 3 * us}, // up to whole microseconds, and one
		{store.LeakyBucket(20, time.Second), 0, 50 * ms},
		{store.LeakyBucket(20, time.Second), 35 * ms, 51750 * us},
		{store.LeakyBucket(3, time.Second), 0, 333334 * us},
		{store.LeakyBucket(3, time.Second), us, 333335 * us},
		{store.LeakyBucket(50_000, time.Second), ms, 21 * us}, // a unit and a microsecond
		{store.TokenBucket(2, time.Second, 40), 0, 20 * time.Second},
		{store.TokenBucket(2, time.Second, 40), 35 * ms, 20*time.Second + 35*ms},
		{store.TokenBucket(3, time.Second, 1), 0, 333334 * us},
		{store.TokenBucket(1, time.Minute, 20), 0, 20 * time.Minute},
		{store.TokenBucket(1, day, 366), 0, 366 * day},
		{store.FixedWindow(1, time.Second), 35 * ms, 0},
		{store.CalendarWindow(1, store.Day, nil), 35 * ms, 0},
		{store.Concurrency(1), 35 * ms, 0},
	} {
		require.Equal(t, c.want, store.Charge{Limit: c.limit, Jitter: c.jitter}.Span(), "%v, %v", c.limit, c.jitter)
	}
}

func TestRefill(t *testing.T) {
	for _, c := range []struct {
		limit          store.Limit
		tokens, micros int64
	}{
		{store.TokenBucket(2, time.Second, 40), 1, 500_000},
		{store.TokenBucket(3, time.Second, 40), 3, 1_000_000},
		{store.TokenBucket(1, time.Minute, 20), 1, 60_000_000},
		{store.TokenBucket(1, time.Microsecond, min(1<<32, math.MaxInt)), 1, 1},
		{store.TokenBucket(7, 24*time.Hour, 200), 7, 86_400_000_000},
		{store.TokenBucket(7, 24*time.Hour, 204), 1, 12_342_857_143}, // too large to be exact
	} {
		tokens, micros := store.Charge{Limit: c.limit}.Refill()
		require.Equal(t, [2]int64{c.tokens, c.micros}, [2]int64{tokens, micros}, "%v", c.limit)
	}
}

// A bucket never fills faster than its limit says, and at most one part in a
// thousand slower; and stores can count it.
func TestRefillIsNeverFaster(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for tried := 0; tried < 20_000; {
		l := store.TokenBucket(size(dice, 44), time.Duration(size(dice, 55)), size(dice, 33))
		if l.Validate(0) != nil {
			continue
		}
		tried++
		tokens, micros := store.Charge{Limit: l}.Refill()
		require.Positive(t, tokens)
		require.Positive(t, micros)

		per := int64((l.Per() + time.Microsecond - 1) / time.Microsecond)
		want, got := big.NewRat(int64(l.N()), per), big.NewRat(tokens, micros)
		require.LessOrEqual(t, got.Cmp(want), 0, "%v: %d/%d", l, tokens, micros)
		least := new(big.Rat).Mul(want, big.NewRat(1000, 1001))
		require.Positive(t, got.Cmp(least), "%v: %d/%d", l, tokens, micros)

		full := new(big.Int).Mul(big.NewInt(int64(l.Capacity())), big.NewInt(micros))
		require.Negative(t, full.Cmp(big.NewInt(1<<45)), "%v: %d/%d", l, tokens, micros)
	}
}

// size draws a number of any size up to 2^bits.
func size(dice *rand.Rand, bits int) int { return 1 + int(dice.Uint64()>>(64-dice.IntN(bits+1))) }

func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{
		"40/s", "10000/20s", "40 per 1.05 seconds", "1000/2d", "40/s paced", "100/m fixed", "100/day",
		"7/week Europe/Berlin", "5000/month +08:00", "1/day -00:00:01", "20 in flight", "2/s burst 40", "0/s",
		"1/m burst 20", "1/s burst 0", "1/day burst 2", "4294967296/366d burst 4294967296", "3 in", "0 in flight",
		"7/week Sunday", "7/week saturday Asia/Riyadh", "9/quarter +08:00", "9/year",
		"1/1h0m0.5s", "1/9223372036854775807ns", "1/µs", "1/day Local",
		"unlimited", " unlimited", "unlimited 3", "Unlimited", "unlimited/s", "1 unlimited",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := store.ParseLimit(text)
		if err != nil {
			require.Zero(t, l)
			return
		}
		require.NoError(t, l.Validate(0))
		again, err := store.ParseLimit(l.String())
		require.NoError(t, err)
		require.Equal(t, l.String(), again.String())
		requireSameLimit(t, l, again)
	})
}

// FuzzLimitString begins at the other end: what New accepts can be printed and
// read.
func FuzzLimitString(f *testing.F) {
	for kind := range uint8(12) {
		f.Add(kind, 40, int64(time.Second), 8*3600)
		f.Add(kind, 1, int64(time.Hour+time.Microsecond), -12601)
	}
	f.Fuzz(func(t *testing.T, kind uint8, n int, per int64, offset int) {
		burst := offset
		zone := time.FixedZone("somewhere", offset%(24*3600))
		l := [...]store.Limit{
			store.SlidingWindow(n, time.Duration(per)),
			store.LeakyBucket(n, time.Duration(per)),
			store.FixedWindow(n, time.Duration(per)),
			store.CalendarWindow(n, store.Day, zone),
			store.CalendarWindow(n, store.Week, zone),
			store.CalendarWindow(n, store.Month, zone),
			store.TokenBucket(n, time.Duration(per), burst),
			store.Concurrency(n),
			store.Unlimited(),
			store.CalendarWindow(n, store.WeekFrom(time.Weekday(kind/12%7)), zone),
			store.CalendarWindow(n, store.Quarter, zone),
			store.CalendarWindow(n, store.Year, zone),
		}[kind%12]
		if l.Validate(0) != nil {
			return
		}
		text, err := l.MarshalText()
		require.NoError(t, err)
		var again store.Limit
		require.NoError(t, again.UnmarshalText(text))
		requireSameLimit(t, l, again)
	})
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}

// TestWindow finds the window of a moment.
func TestWindow(t *testing.T) {
	golden.Lines(t, "windows", func(in string) string {
		text, at, _ := strings.Cut(in, " at ")
		l, err := store.ParseLimit(text)
		require.NoError(t, err)
		start, end := l.Window(instant(t, at))
		return start.UTC().Format(time.RFC3339Nano) + " to " + end.UTC().Format(time.RFC3339Nano)
	})
	start, end := store.CalendarWindow(1, store.Day, time.FixedZone("", 100*3600)).Window(instant(t, "2026-01-02T03:04:05Z"))
	require.True(t, start.Equal(instant(t, "2026-01-01T20:00:00Z")), "an offset of no sense")
	require.True(t, end.Equal(instant(t, "2026-01-02T20:00:00Z")), "an offset of no sense")
}

func TestWindowOfOtherLimits(t *testing.T) {
	for _, l := range []store.Limit{
		{},
		store.PerSecond(1),
		store.LeakyBucket(1, time.Second),
		store.FixedWindow(1, 0),
		store.FixedWindow(1, -time.Second),
		store.FixedWindow(1, 1500),
		store.CalendarWindow(1, 0, nil),
		store.CalendarWindow(1, store.Year+1, nil),
		store.CalendarWindow(1, store.WeekFrom(time.Saturday+1), nil),
	} {
		start, end := l.Window(time.Unix(0, 0))
		require.Zero(t, start, "%v", l)
		require.Zero(t, end, "%v", l)
	}
}

func TestWindowsFollowEachOther(t *testing.T) {
	for _, per := range []time.Duration{time.Microsecond, time.Millisecond, 7 * time.Second, 1001 * time.Hour} {
		l := store.FixedWindow(1, per)
		_, end := l.Window(time.Unix(0, 0).Add(-50 * per))
		for range 100 {
			before, edge := l.Window(end.Add(-1))
			require.Equal(t, end, edge)
			require.Equal(t, per, edge.Sub(before))
			end, edge = l.Window(end)
			require.Equal(t, per, edge.Sub(end))
			end = edge
		}
	}
}

func BenchmarkWindow(b *testing.B) {
	at := time.Date(2026, 7, 15, 10, 30, 0, 0, time.UTC)
	limits := map[string]store.Limit{
		"fixed":          store.FixedWindow(1, 20*time.Second),
		"day UTC":        store.CalendarWindow(1, store.Day, nil),
		"day Berlin":     store.CalendarWindow(1, store.Day, zone(b, "Europe/Berlin")),
		"month Shanghai": store.CalendarWindow(1, store.Month, zone(b, "Asia/Shanghai")),
		"month Berlin":   store.CalendarWindow(1, store.Month, zone(b, "Europe/Berlin")),
	}
	for name, l := range limits {
		b.Run(name, func(b *testing.B) {
			start, end := l.Window(at)
			require.False(b, at.Before(start) || !at.Before(end))
			b.ReportAllocs()
			for b.Loop() {
				l.Window(at)
			}
		})
	}
}

func TestWindowDoesNotAllocate(t *testing.T) {
	at := time.Date(2026, 3, 29, 10, 30, 0, 0, time.UTC)
	l := store.CalendarWindow(1, store.Month, zone(t, "Europe/Berlin"))
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Window(at) }))
}

func ExampleWithSwitch() {
	policies := []throttle.Policy{{Name: "shop", Match: "shop.example.com/", Limit: throttle.PerMinute(1)}}

	off := new(store.Switch)
	transport, err := throttle.New(throttle.Config{Store: store.WithSwitch(memstore.New(), off), Policies: policies})
	if err != nil {
		fmt.Println(err)
		return
	}

	// A feature flag, or an admin page, turns throttle off.
	off.TurnOff(store.Off{By: "flag", Reason: "checkout is slow"})
	limiter, err := transport.Limiter("shop")
	if err != nil {
		fmt.Println(err)
		return
	}

	for range 3 {
		if _, err := limiter.Acquire(context.Background(), "", 1); err != nil {
			fmt.Println(err)
		}
	}

	state, _ := off.State()
	fmt.Println(state, off.Passed())
	// Output: off by flag: "checkout is slow" 3
}

// TestWithSwitch_CostsNothing: a start from memory costs no allocation more with a switch that is on, because the wrapped store
// says that its methods return at once.
func TestWithSwitch_CostsNothing(t *testing.T) {
	s := store.WithSwitch(memstore.New(), new(store.Switch))
	require.Same(t, s, s.Traits().InMemory)

	allocations := func(s store.Store) float64 {
		l, err := throttle.NewLimiter(s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(1_000_000)})
		require.NoError(t, err)
		return testing.AllocsPerRun(100, func() { _, _ = l.Acquire(context.Background(), "", 1) })
	}
	require.Equal(t, allocations(memstore.New()), allocations(s))
}

// TestSwitch: the context of those who wait ends when the switch is turned off, once for each time.
func TestSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s store.Switch
		first := s.WhileOn()
		require.NoError(t, first.Err())
		require.Equal(t, first, s.WhileOn())
		s.TurnOn() // which it is
		require.NoError(t, first.Err())

		// An end that has passed turns nothing off.
		s.TurnOff(store.Off{Until: time.Now()})
		require.NoError(t, first.Err())
		require.False(t, s.IsOff())

		s.TurnOff(store.Off{Until: time.Now().Add(time.Minute)})
		require.Error(t, first.Err())
		require.Error(t, s.WhileOn().Err())
		s.TurnOff(store.Off{By: "anna", Until: time.Now().Add(time.Hour)}) // for longer, with other words
		time.Sleep(time.Minute)
		state, off := s.State()
		require.True(t, off)
		require.Equal(t, "anna", state.By)

		// The end comes by itself.
		time.Sleep(time.Hour)
		require.False(t, s.IsOff())
		_, off = s.State()
		require.False(t, off)
		second := s.WhileOn()
		require.NoError(t, second.Err())

		s.TurnOff(store.Off{})
		require.Error(t, second.Err())
		time.Sleep(1000 * time.Hour)
		require.True(t, s.IsOff())
		s.TurnOn()
		require.False(t, s.IsOff())
		require.NoError(t, s.WhileOn().Err())
	})
}
