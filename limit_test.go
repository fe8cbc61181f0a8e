package throttle_test

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

func TestParseLimit(t *testing.T) {
	sliding, paced := throttle.SlidingWindow, throttle.LeakyBucket
	fixed, bucket := throttle.FixedWindow, throttle.TokenBucket
	const day = 24 * time.Hour
	for _, c := range []struct {
		text  string
		want  throttle.Limit
		print string // "": as text
	}{
		{"40/s", throttle.PerSecond(40), ""},
		{"20/m", throttle.PerMinute(20), ""},
		{"5000/h", throttle.PerHour(5000), ""},
		{"10000/20s", sliding(10000, 20*time.Second), ""},
		{"40/1.05s", sliding(40, 1050*time.Millisecond), ""},
		{"100/200ms", sliding(100, 200*time.Millisecond), ""},
		{"7/1m30s", sliding(7, 90*time.Second), ""},
		{"7/2m", sliding(7, 2*time.Minute), ""},
		{"7/36h", sliding(7, 36*time.Hour), ""},
		{"7/1h0m5s", sliding(7, time.Hour+5*time.Second), ""},
		{"7/10m", sliding(7, 10*time.Minute), ""},
		{"7/10h", sliding(7, 10*time.Hour), ""},
		{"7/10s", sliding(7, 10*time.Second), ""},
		{"7/1µs", sliding(7, time.Microsecond), ""},
		{"1000/2d", sliding(1000, 2*day), "1000/48h"},
		{"1000/1.5d", sliding(1000, 36*time.Hour), "1000/36h"},
		{"1/1d", sliding(1, day), "1/24h"},
		{"1/60s", throttle.PerMinute(1), "1/m"},
		{"1/1s", throttle.PerSecond(1), "1/s"},
		{"1099511627776/s", throttle.PerSecond(1 << 40), ""},

		{"40/s paced", paced(40, time.Second), ""},
		{"1/2d paced", paced(1, 2*day), "1/48h paced"},
		{"100/m fixed", fixed(100, time.Minute), ""},
		{"100/1d fixed", fixed(100, day), "100/24h fixed"},
		{"100/300d fixed", fixed(100, 300*day), "100/7200h fixed"},

		{"2/s burst 40", bucket(2, time.Second, 40), ""},
		{"1/m burst 20", bucket(1, time.Minute, 20), ""},
		{"2 per 1.5 seconds burst 7", bucket(2, 1500*time.Millisecond, 7), "2/1.5s burst 7"},
		{"20 in flight", throttle.Concurrency(20), ""},
		{" 20  in\tflight ", throttle.Concurrency(20), "20 in flight"},
		{"unlimited", throttle.Unlimited(), ""},
		{"\tunlimited ", throttle.Unlimited(), "unlimited"},

		{" 40 / s ", throttle.PerSecond(40), "40/s"},
		{"40/ s", throttle.PerSecond(40), "40/s"},
		{"40 per s", throttle.PerSecond(40), "40/s"},
		{"40 per second", throttle.PerSecond(40), "40/s"},
		{"40/sec", throttle.PerSecond(40), "40/s"},
		{"40\tper\n20\u00a0seconds", sliding(40, 20*time.Second), "40/20s"},
		{"40/20sec paced", paced(40, 20*time.Second), "40/20s paced"},
		{"40/20 s paced", paced(40, 20*time.Second), "40/20s paced"},
		{"40/min", throttle.PerMinute(40), "40/m"},
		{"40 per minute", throttle.PerMinute(40), "40/m"},
		{"40 per 2 minutes", sliding(40, 2*time.Minute), "40/2m"},
		{"40 per hour fixed", fixed(40, time.Hour), "40/h fixed"},
		{"40 per 1.5 hours", sliding(40, 90*time.Minute), "40/1h30m"},
		{"40 per 2 d", sliding(40, 2*day), "40/48h"},
		{"0040/s", throttle.PerSecond(40), "40/s"},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := throttle.ParseLimit(c.text)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			if c.print == "" {
				c.print = c.text
			}
			require.Equal(t, c.print, got.String())
		})
	}
}

func TestParseLimitOfTheCalendar(t *testing.T) {
	shanghai := zone(t, "Asia/Shanghai")
	for _, c := range []struct {
		text  string
		want  throttle.Limit
		print string // "": as text
	}{
		{"100/day", throttle.CalendarWindow(100, throttle.Day, nil), ""},
		{"100/day UTC", throttle.CalendarWindow(100, throttle.Day, nil), "100/day"},
		{"100/day +00:00", throttle.CalendarWindow(100, throttle.Day, nil), "100/day"},
		{"7 per week Europe/Berlin", throttle.CalendarWindow(7, throttle.Week, zone(t, "Europe/Berlin")), "7/week Europe/Berlin"},
		{"5000/month Asia/Shanghai", throttle.CalendarWindow(5000, throttle.Month, shanghai), ""},
		{"5000/month +08:00", throttle.CalendarWindow(5000, throttle.Month, shanghai), ""},
		{"5000/month Etc/GMT-8", throttle.CalendarWindow(5000, throttle.Month, shanghai), "5000/month +08:00"},
		{"1/day -03:30", throttle.CalendarWindow(1, throttle.Day, time.FixedZone("", -12600)), ""},
		{"1/day +00:19:32", throttle.CalendarWindow(1, throttle.Day, time.FixedZone("", 1172)), ""},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := throttle.ParseLimit(c.text)
			require.NoError(t, err)
			requireSameLimit(t, c.want, got)
			if c.print == "" {
				c.print = c.text
			}
			require.Equal(t, c.print, got.String())
		})
	}
}

// requireSameLimit compares limits by what they say. Two loads of one zone are
// two pointers.
func requireSameLimit(t *testing.T, want, got throttle.Limit) {
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

func TestParseLimitErrors(t *testing.T) {
	const understood = `; understood are "40/s", "10000/20s", "40/s paced", "100/m fixed", "100/day", ` +
		`"5000/month Asia/Shanghai", "2/s burst 40", "20 in flight" and "unlimited"`
	const zones = ` is not a known time zone: write it like Asia/Shanghai or +08:00, and import time/tzdata if this system has no zones`
	for _, c := range []struct{ text, want string }{
		{"", `the end at offset 0 is not a whole number of starts` + understood},
		{"  ", `the end at offset 2 is not a whole number of starts` + understood},
		{"no limit", `"no" at offset 0 is not a whole number of starts` + understood},
		{"-1/s", `"-1/s" at offset 0 is not a whole number of starts` + understood},
		{"+1/s", `"+1/s" at offset 0 is not a whole number of starts` + understood},
		{"99999999999999999999/s", `99999999999999999999 at offset 0 is too large: allow at most 1099511627776 starts`},
		{"40", `the end at offset 2 is not "/", "per" or "in flight"` + understood},
		{"10,000/s", `",000/s" at offset 2 is not "/", "per" or "in flight"` + understood},
		{"1.5/s", `".5/s" at offset 1 is not "/", "per" or "in flight"` + understood},
		{"20 in", `the end at offset 5 is not "flight"` + understood},
		{"20 in use", `"use" at offset 6 is not "flight"` + understood},
		{"unlimited/s", `"unlimited/s" at offset 0 is not a whole number of starts` + understood},
		{"unlimited 3", `"3" at offset 10 is not the end of a limit` + understood},
		{"Unlimited", `"Unlimited" at offset 0 is not a whole number of starts` + understood},
		{"20 in flight paced", `"paced" at offset 13 is not the end of a limit` + understood},
		{"20 flight", `"flight" at offset 3 is not "/", "per" or "in flight"` + understood},
		{"40/", `the end at offset 3 is not a period` + understood},
		{"40/fortnight", `"fortnight" at offset 3 is not a period` + understood},
		{"40/S", `"S" at offset 3 is not a period` + understood},
		{"40/20", `"20" at offset 3 is not a period` + understood},
		{"40/20 paced", `"20 paced" at offset 3 is not a period` + understood},
		{"40/2 days", `"2 days" at offset 3 is not a period` + understood},
		{"40/2month", `"2month" at offset 3 is not a period` + understood},
		{"40/1.2.3s", `"1.2.3s" at offset 3 is not a period` + understood},
		{"40/.s", `".s" at offset 3 is not a period` + understood},
		{"40/ms", `"ms" at offset 3 is not a period` + understood},
		{"40/999999999d", `"999999999d" at offset 3 is not a period` + understood},
		{"40/200000d", `"200000d" at offset 3 is not a period` + understood},
		{"40/d", `"d" at offset 3 is not clear (is it "day", by the calendar, or any "24h"?)` + understood},
		{"2/s burst", `the end at offset 9 is not a whole number of starts` + understood},
		{"2/s burst 40/s", `"/s" at offset 12 is not the end of a limit` + understood},
		{"2/s burst 40 paced", `"paced" at offset 13 is not the end of a limit` + understood},
		{"2/s burst 99999999999999999999", `99999999999999999999 at offset 10 is too large: allow at most 1099511627776 starts`},
		{"2/day burst 40", `"40" at offset 12 is not the end of a limit` + understood},
		{"40/s Asia/Shanghai", `"Asia/Shanghai" at offset 5 is not "paced", "fixed", "burst" or the end` + understood},
		{"40/s paced fixed", `"fixed" at offset 11 is not the end of a limit` + understood},
		{"1/day Asia/Shanghai now", `"now" at offset 20 is not the end of a limit` + understood},
		{"1/day asia", `"asia" at offset 6` + zones},
		{"1/day fixed", `"fixed" at offset 6` + zones},
		{"1/day +8", `"+8" at offset 6` + zones},
		{"1/day ../../passwd", `"../../passwd" at offset 6` + zones},
		{"0/s", "0 starts: allow at least 1"},
		{"1/0s", "a period of 0s: use a positive one, such as time.Second"},
		{"1/0", "a period of 0s: use a positive one, such as time.Second"},
		{"1/-1s", "a period of -1s: use a positive one, such as time.Second"},
		{"0/1ns", "0 starts: allow at least 1\na period of 1ns: use at least 1µs"},
		{"1/400d", "a period of 9600h0m0s: use at most 8784h0m0s, which is 366 days"},
		{"0 in flight", "0 starts: allow at least 1"},
		{"2/s burst 0", "a burst of 0: allow at least 1"},
		{"2/0s burst 4", "a period of 0s: use a positive one, such as time.Second"},
		{"1/1500ns fixed", "a fixed window of 1.5µs: use whole microseconds"},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := throttle.ParseLimit(c.text)
			require.EqualError(t, err, `throttle: limit "`+c.text+`": `+c.want)
			require.Zero(t, got)
		})
	}
}

func TestLimitString(t *testing.T) {
	require.Equal(t, "no limit", throttle.Limit{}.String())
	require.Equal(t, "-1/0s", throttle.SlidingWindow(-1, 0).String())
	require.Equal(t, "1/unit 9", throttle.CalendarWindow(1, 9, nil).String())
	est := time.FixedZone("EST", 8*3600) // the name lies
	require.Equal(t, "1/day +08:00", throttle.CalendarWindow(1, throttle.Day, est).String())
}

func TestLimitInJSON(t *testing.T) {
	type config struct{ Each, All, None throttle.Limit }
	const text = `{"Each":"40/s","All":"5000/month Asia/Shanghai","None":""}`
	var c config
	require.NoError(t, json.Unmarshal([]byte(text), &c))
	require.Equal(t, throttle.PerSecond(40), c.Each)
	requireSameLimit(t, throttle.CalendarWindow(5000, throttle.Month, zone(t, "Asia/Shanghai")), c.All)
	require.Zero(t, c.None)

	back, err := json.Marshal(c)
	require.NoError(t, err)
	require.Equal(t, text, string(back))
}

func TestUnmarshalLimit(t *testing.T) {
	l := throttle.PerSecond(1)
	require.EqualError(t, l.UnmarshalText([]byte("0/s")), `throttle: limit "0/s": 0 starts: allow at least 1`)
	require.Equal(t, throttle.PerSecond(1), l, "an error changes nothing")
	require.NoError(t, l.UnmarshalText(nil))
	require.Zero(t, l)
}

func TestMarshalLimitThatCannotBeRead(t *testing.T) {
	_, err := throttle.PerSecond(0).MarshalText()
	require.EqualError(t, err, `throttle: limit "0/s": 0 starts: allow at least 1`)
	_, err = throttle.CalendarWindow(1, throttle.Day, time.FixedZone("", 100*3600)).MarshalText()
	require.ErrorContains(t, err, `"+100:00" at offset 6 is not a known time zone`)
}

func TestValidateAccepts(t *testing.T) {
	for _, l := range []throttle.Limit{
		throttle.PerSecond(1),
		throttle.PerSecond(1 << 40),
		throttle.SlidingWindow(1, time.Microsecond),
		throttle.SlidingWindow(1, 1500*time.Nanosecond),
		throttle.SlidingWindow(1, 366*24*time.Hour),
		throttle.LeakyBucket(1, time.Microsecond),
		throttle.LeakyBucket(1, 366*24*time.Hour),
		throttle.FixedWindow(1, 35*time.Millisecond+time.Microsecond),
		throttle.FixedWindow(1, 366*24*time.Hour),
		throttle.CalendarWindow(1, throttle.Day, nil),
		throttle.CalendarWindow(1, throttle.Week, time.UTC),
		throttle.CalendarWindow(1, throttle.Month, time.Local),
		throttle.TokenBucket(1, time.Microsecond, 1),
		throttle.TokenBucket(1, time.Second, 1),
		throttle.TokenBucket(1, 366*24*time.Hour, 1),
		throttle.TokenBucket(366*24, 366*24*time.Hour, 366*24),
		throttle.TokenBucket(1_000_000, time.Second, 1<<32),
		throttle.Concurrency(1),
		throttle.Concurrency(1 << 40),
		throttle.Unlimited(),
	} {
		require.NoError(t, l.Validate(35*time.Millisecond), "%v", l)
	}
	require.NoError(t, throttle.FixedWindow(1, time.Microsecond).Validate(0))
	require.NoError(t, throttle.PerSecond(1).Validate(time.Hour), "only fixed windows have an end")
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
		limit throttle.Limit
		want  string
	}{
		{"zero", throttle.Limit{}, `there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`},
		{"no starts", throttle.PerSecond(0), "0 starts: allow at least 1"},
		{"negative", throttle.CalendarWindow(-3, throttle.Day, nil), "-3 starts: allow at least 1"},
		{"too many", throttle.PerSecond(1<<40 + 1), "1099511627777 starts: allow at most 1099511627776"},
		{"no period", throttle.SlidingWindow(1, 0), "a period of 0s: use a positive one, such as time.Second"},
		{"backwards", throttle.LeakyBucket(1, -time.Second), "a period of -1s: use a positive one, such as time.Second"},
		{"fixed, no period", throttle.FixedWindow(1, 0), "a period of 0s: use a positive one, such as time.Second"},
		{"short", throttle.SlidingWindow(1, 999*ns), "a period of 999ns: use at least 1µs"},
		{"paced, short", throttle.LeakyBucket(1, 1*ns), "a period of 1ns: use at least 1µs"},
		{"long", throttle.SlidingWindow(1, 366*24*time.Hour+1), "a period of 8784h0m0.000000001s: use at most 8784h0m0s, which is 366 days"},
		{"paced, long", throttle.LeakyBucket(1, 400*24*time.Hour), "a period of 9600h0m0s: use at most 8784h0m0s, which is 366 days"},
		{"fraction of a microsecond", throttle.FixedWindow(1, time.Second+1), "a fixed window of 1.000000001s: use whole microseconds"},
		{"fixed, as long as jitter", throttle.FixedWindow(1, jitter), "a fixed window of 35ms" + noRoom},
		{"no unit", throttle.CalendarWindow(1, 0, nil), "unit 0: use Day, Week or Month"},
		{"unknown unit", throttle.CalendarWindow(1, throttle.Month+1, nil), "unit 4: use Day, Week or Month"},
		{"no burst", throttle.TokenBucket(1, time.Second, 0), "a burst of 0: allow at least 1"},
		{"negative burst", throttle.TokenBucket(1, time.Second, -1), "a burst of -1: allow at least 1"},
		{"large burst", throttle.TokenBucket(1000, time.Second, 1<<32+1), "a burst of 4294967297: allow at most 4294967296"},
		{"no flow", throttle.TokenBucket(0, time.Second, 1), "0 starts: allow at least 1"},
		{"bucket, no period", throttle.TokenBucket(1, 0, 0), "a period of 0s: use a positive one, such as time.Second"},
		{"too fast", throttle.TokenBucket(1001, time.Millisecond, 5), "1001 tokens in 1ms: a bucket takes at most one each microsecond"},
		{"too slow to fill", throttle.TokenBucket(1, 24*time.Hour, 367), "a burst of 367 that takes more than 8784h0m0s to fill: use a smaller one"},
		{"nothing in flight", throttle.Concurrency(0), "0 starts: allow at least 1"},
		{"all at once", throttle.FixedWindow(0, 1500*ns), "0 starts: allow at least 1\n" +
			"a fixed window of 1.5µs: use whole microseconds\n" +
			"a fixed window of 1.5µs" + noRoom},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.EqualError(t, c.limit.Validate(jitter), c.want)
		})
	}
}

func TestUnlimited(t *testing.T) {
	l := throttle.Unlimited()
	require.Equal(t, throttle.KindUnlimited, l.Kind())
	require.Zero(t, l.N())
	require.Zero(t, l.Per())
	require.Equal(t, 1<<40, l.Capacity())
	text, err := l.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "unlimited", string(text))
	var again throttle.Limit
	require.NoError(t, again.UnmarshalText(text))
	require.Equal(t, l, again)
}

// TestUnlimitedTakesNoNumbers reports all that makes no sense at once, and nothing that
// does.
func TestUnlimitedTakesNoNumbers(t *testing.T) {
	p := throttle.Policy{Name: "row", Limit: throttle.Unlimited()}
	p.Headroom = map[throttle.Priority]float64{throttle.Low: 0.5}
	p.Quota = func(*http.Response) (q throttle.Quota, ok bool) { return q, false }
	_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
	require.EqualError(t, err, strings.Join([]string{
		`throttle: policy "row": Headroom: an unlimited policy has nothing to share out: leave Headroom out, or set a limit with a number`,
		`throttle: policy "row": Quota: an unlimited policy has no number that an answer could lower: set a limit with a number`,
	}, "\n"))

	p = throttle.Policy{Name: "row", Limit: throttle.Unlimited()}
	p.Headroom = map[throttle.Priority]float64{throttle.High: 0}
	p.Cost = func(*http.Request) int { return throttle.Unlimited().Capacity() }
	p.Settle = func(*http.Response) int { return 3 }
	p.Jitter, p.Shadow, p.Scope = time.Second, true, throttle.Node
	_, err = throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
	require.NoError(t, err)
}

func TestSpan(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		limit  throttle.Limit
		jitter time.Duration
		want   time.Duration
	}{
		{throttle.PerSecond(20), 0, time.Second + us},
		{throttle.PerSecond(20), 35 * ms, 1035*ms + us},
		{throttle.SlidingWindow(1, 1500), 0, 3 * us}, // up to whole microseconds, and one
		{throttle.LeakyBucket(20, time.Second), 0, 50 * ms},
		{throttle.LeakyBucket(20, time.Second), 35 * ms, 51750 * us},
		{throttle.LeakyBucket(3, time.Second), 0, 333334 * us},
		{throttle.TokenBucket(2, time.Second, 40), 0, 20 * time.Second},
		{throttle.TokenBucket(2, time.Second, 40), 35 * ms, 20*time.Second + 35*ms},
		{throttle.TokenBucket(3, time.Second, 1), 0, 333334 * us},
		{throttle.TokenBucket(1, time.Minute, 20), 0, 20 * time.Minute},
		{throttle.TokenBucket(1, day, 366), 0, 366 * day},
		{throttle.FixedWindow(1, time.Second), 35 * ms, 0},
		{throttle.CalendarWindow(1, throttle.Day, nil), 35 * ms, 0},
		{throttle.Concurrency(1), 35 * ms, 0},
	} {
		require.Equal(t, c.want, throttle.Charge{Limit: c.limit, Jitter: c.jitter}.Span(), "%v, %v", c.limit, c.jitter)
	}
}

func TestRefill(t *testing.T) {
	for _, c := range []struct {
		limit          throttle.Limit
		tokens, micros int64
	}{
		{throttle.TokenBucket(2, time.Second, 40), 1, 500_000},
		{throttle.TokenBucket(3, time.Second, 40), 3, 1_000_000},
		{throttle.TokenBucket(1, time.Minute, 20), 1, 60_000_000},
		{throttle.TokenBucket(1, time.Microsecond, 1<<32), 1, 1},
		{throttle.TokenBucket(7, 24*time.Hour, 200), 7, 86_400_000_000},
		{throttle.TokenBucket(7, 24*time.Hour, 204), 1, 12_342_857_143}, // too large to be exact
	} {
		tokens, micros := throttle.Charge{Limit: c.limit}.Refill()
		require.Equal(t, [2]int64{c.tokens, c.micros}, [2]int64{tokens, micros}, "%v", c.limit)
	}
}

// A bucket never fills faster than its limit says, and at most one part in a
// thousand slower; and stores can count it.
func TestRefillIsNeverFaster(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for tried := 0; tried < 20_000; {
		l := throttle.TokenBucket(size(dice, 44), time.Duration(size(dice, 55)), size(dice, 33))
		if l.Validate(0) != nil {
			continue
		}
		tried++
		tokens, micros := throttle.Charge{Limit: l}.Refill()
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
		"1/1h0m0.5s", "1/9223372036854775807ns", "1/µs", "1/day Local",
		"unlimited", " unlimited", "unlimited 3", "Unlimited", "unlimited/s", "1 unlimited",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := throttle.ParseLimit(text)
		if err != nil {
			require.Zero(t, l)
			return
		}
		require.NoError(t, l.Validate(0))
		again, err := throttle.ParseLimit(l.String())
		require.NoError(t, err)
		require.Equal(t, l.String(), again.String())
		requireSameLimit(t, l, again)
	})
}

// FuzzLimitString begins at the other end: what New accepts can be printed and
// read.
func FuzzLimitString(f *testing.F) {
	for kind := range uint8(9) {
		f.Add(kind, 40, int64(time.Second), 8*3600)
		f.Add(kind, 1, int64(time.Hour+time.Microsecond), -12601)
	}
	f.Fuzz(func(t *testing.T, kind uint8, n int, per int64, offset int) {
		burst := offset
		zone := time.FixedZone("somewhere", offset%(24*3600))
		l := [...]throttle.Limit{
			throttle.SlidingWindow(n, time.Duration(per)),
			throttle.LeakyBucket(n, time.Duration(per)),
			throttle.FixedWindow(n, time.Duration(per)),
			throttle.CalendarWindow(n, throttle.Day, zone),
			throttle.CalendarWindow(n, throttle.Week, zone),
			throttle.CalendarWindow(n, throttle.Month, zone),
			throttle.TokenBucket(n, time.Duration(per), burst),
			throttle.Concurrency(n),
			throttle.Unlimited(),
		}[kind%9]
		if l.Validate(0) != nil {
			return
		}
		text, err := l.MarshalText()
		require.NoError(t, err)
		var again throttle.Limit
		require.NoError(t, again.UnmarshalText(text))
		requireSameLimit(t, l, again)
	})
}
