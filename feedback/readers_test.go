package feedback_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

// A reader is a classifier, and what can be said of it whatever it reads.
type reader struct {
	penalty   feedback.Reader
	obeys     bool          // it takes every 429 for a refusal of its own, if that has a Retry-After
	remaining string        // the field that says that nothing is left
	per       time.Duration // bounds what it says beyond Retry-After
	denies    bool          // it may say that an answer is certainly no refusal
}

const (
	leftField, usedField, limitField, resetField = "X-Left", "X-Used", "X-Limit", "X-Reset"
	minutesField                                 = "X-Minutes"
)

// readers has each classifier of the package.
var readers = func() map[string]reader {
	headers := feedback.Headers{Remaining: leftField, Reset: resetField}
	inMinutes, onClock, inMillis, atPlace := headers, headers, headers, headers
	inMinutes.Per = time.Minute
	onClock.Per, onClock.Clock = time.Hour, true
	inMillis.As = feedback.After(time.Millisecond)
	atPlace.Position = 2
	layout := headers
	layout.As = feedback.At("2006-01-02 15:04", beijing)
	sentence := feedback.Printed{Fields: []string{"message", "errmsg"}, As: feedback.Sentence}
	codes := dingtalk
	codes.End = sentence.Answer
	tooMany := feedback.When{Status: []int{429}}

	return map[string]reader{
		"headers":             {penalty: headers.Answer, obeys: true, remaining: leftField},
		"headers of a minute": {penalty: inMinutes.Answer, obeys: true, remaining: leftField, per: time.Minute},
		"headers on a clock":  {penalty: onClock.Answer, obeys: true, remaining: leftField, per: time.Hour},
		"headers in millis":   {penalty: inMillis.Answer, obeys: true, remaining: leftField},
		"headers by place":    {penalty: atPlace.Answer, obeys: true},
		"headers by a layout": {penalty: layout.Answer, obeys: true, remaining: leftField},
		"headers of use":      {penalty: feedback.Headers{Used: usedField, Limit: limitField, Reset: resetField}.Answer, obeys: true},
		"a reset alone":       {penalty: feedback.Headers{Reset: resetField}.Answer, obeys: true},
		"RateLimit":           {penalty: feedback.RateLimit{}.Answer, obeys: true},
		"RateLimit by name":   {penalty: feedback.RateLimit{Name: "a"}.Answer, obeys: true},
		"Retry-After":         {penalty: tooMany.Then(feedback.RetryAfter(time.Minute)), obeys: true},
		"midnight":            {penalty: tooMany.Then(feedback.UntilMidnight(beijing)), obeys: true},
		"the first":           {penalty: tooMany.Then(feedback.UntilFirst(nil)), obeys: true},
		"for":                 {penalty: tooMany.Then(feedback.For(time.Second)), obeys: true},
		"codes":               {penalty: dingtalk.Answer, denies: true},
		"codes with an end":   {penalty: codes.Answer, denies: true},
		"text":                {penalty: feedback.Text{Pattern: regexp.MustCompile(`slow|\d+`), Lasts: time.Second, End: sentence.Answer}.Answer},
		"printed":             {penalty: feedback.Printed{Fields: []string{"wait", "*.wait"}}.Answer},
		"printed in minutes":  {penalty: feedback.Printed{Fields: []string{"wait"}, As: feedback.After(time.Minute)}.Answer},
		"a sentence":          {penalty: sentence.Answer},
		"a page":              {penalty: feedback.Printed{As: feedback.Sentence}.Answer},
		"a header's JSON":     {penalty: feedback.Printed{Header: minutesField, Fields: []string{"*.wait", "wait"}, As: feedback.After(time.Minute)}.Answer},
		"first":               {penalty: feedback.First(dingtalk.Answer, sentence.Answer, headers.Answer), denies: true},
		"all":                 {penalty: feedback.All(dingtalk.Answer, sentence.Answer, headers.Answer), obeys: true, denies: true},
	}
}()

// quotas and cost are the classifiers that close nothing.
var (
	quotas = map[string]feedback.Reader{
		"headers":     feedback.Headers{Remaining: leftField, Reset: resetField, Per: time.Minute}.Left,
		"use":         feedback.Headers{Used: usedField, Limit: limitField, Size: 100, Per: time.Hour, Clock: true}.Left,
		"place":       feedback.Headers{Used: usedField, Limit: limitField, Position: 2, Per: time.Hour}.Left,
		"undated":     feedback.Headers{Remaining: leftField, Reset: resetField}.Left,
		"RateLimit":   feedback.RateLimit{}.Left,
		"amount":      feedback.Amount{Fields: []string{"wait", "errcode"}, Per: time.Minute}.Left,
		"a condition": feedback.When{Header: map[string]string{leftField: ""}}.Then(feedback.RateLimit{}.Left),
	}
	cost = feedback.Amount{Fields: []string{"wait", "*.wait"}}.Cost
)

// values are what upstreams write into fields, well or badly.
var values = []string{
	"", "0", "0.0", "1", "3", "30", "64.57", "799", "86400", "900000", "-1", "-3", "+5", "1_000", "1e3", "0x10", "Inf", "NaN", "٣",
	"1767323075", "1767323044", "1767323075.5", "1767323075000", "1767323075000000", "1767323075000000000", "1554388452000000000",
	"99999999999999999999999", date, "Fri, 02 Jan 2026 03:04:35 GMT", "Friday, 02-Jan-26 03:04:35 GMT", "Fri Jan  2 03:04:35 2026",
	"2026-01-02T03:04:35Z", "2026-01-02T03:05Z", "2026-01-02T03Z", "2026-01-02 11:05", "2026-01-02T03:04:35", "9999-12-31T23:59Z",
	"06/10/2016 13:07:24", "soon", "2m30s", "1h", "39.237s", "-5s", "9999999999h", "5 seconds", "an hour", "100;w=60", "3;w=60", "0;w=60",
	";w=60", "3;w=", "3;w", "20:1,100:60", "0:60", "1:", ":", "32/40", "40/40", "/", "600,30000", "598, 27536", ",", ",,", "0,0", `"0"`, `"`,
	`"a";r=0;t=30`, `"a";r=5`, `"a";r=0`, `"a";r=0;t=99999999999999`, `limit=9, remaining=0, reset=7`, `remaining=0`,
	`{"a":{"wait":5}}`, `{"wait":1e99}`, `{"wait":99999999}`, `{"wait":`, "\x00", "\xff",
}

// bodies are what upstreams write into bodies.
var bodies = []string{
	"", "{", "[]", "slow down", "retry in 5s", `{"errcode":90018}`, `{"errcode":"money","wait":7}`, `{"errcode":"forever"}`,
	`{"wait":30}`, `{"wait":-30}`, `{"wait":"2026-01-02T03:05Z"}`, `{"a":{"wait":1e30}}`, `{"wait":99999999999}`,
	`{"message":"Please retry in 39.237s.","errcode":90006}`, `{"errmsg":"请在30秒后重试","errcode":90018}`, `{"message":"try again in 99999 days"}`,
	`{"message":"retry after -5 seconds"}`, `<html>slow</html>`, "\ufeff{\"wait\":5}", `{"message":"wait ` + strings.Repeat("1s ", 500) + `"}`,
}

// requireReaders has each classifier read an answer, and requires what holds for all answers.
func requireReaders(t *testing.T, status int, body string, header http.Header) {
	t.Helper()
	resp := answer(status, body)
	resp.Header = header
	about := fmt.Sprintf("%d %q %q", status, header, body)
	asks, plain := plainSeconds(header)
	plain = plain && status == http.StatusTooManyRequests

	for name, r := range readers {
		d := lengthOf(r.penalty(resp))
		require.InDelta(t, d, lengthOf(r.penalty(resp)), float64(time.Minute), "%s: a second look at %s", name, about)
		require.LessOrEqual(t, d, throttle.MaxPenalty, "%s: %s", name, about)
		if !r.denies || d != no {
			require.GreaterOrEqual(t, d, time.Duration(0), "%s: %s", name, about)
		}

		// What an answer itself says in parts of a second may be rounded up in Retry-After.
		if plain && (r.obeys || d > 0) {
			require.Greater(t, d, asks-time.Second, "%s: %s", name, about)
		}
		nothingLeft := len(header[r.remaining]) == 1 && (header.Get(r.remaining) == "0" || header.Get(r.remaining) == "0.0")
		if status == http.StatusTooManyRequests && nothingLeft && header.Get("Age") == "" && len(header["Retry-After"]) == 0 {
			require.Positive(t, d, "%s: %s", name, about)
		}
		if r.per > 0 && len(header["Retry-After"]) == 0 {
			require.LessOrEqual(t, d, r.per, "%s: %s", name, about)
		}
	}

	for name, quota := range quotas {
		q, ok := quota(resp).Left()
		if !ok {
			require.Zero(t, q, "%s: %s", name, about)
			continue
		}
		require.GreaterOrEqual(t, q.Left, 0, "%s: %s", name, about)
		require.Positive(t, q.Reset, "%s: %s", name, about)
		require.LessOrEqual(t, q.Reset, throttle.MaxPenalty, "%s: %s", name, about)
	}
	if cost, ok := cost(resp).Cost(); ok {
		require.GreaterOrEqual(t, cost, 0, about)
	}
	requireBody(t, body, resp)
}

// plainSeconds returns what a Retry-After of a plain number of seconds asks, if there is one, and no more
// than a penalty may be.
func plainSeconds(header http.Header) (asks time.Duration, ok bool) {
	if len(header["Retry-After"]) != 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(header.Get("Retry-After"), 10, 31)
	return min(time.Duration(n)*time.Second, throttle.MaxPenalty), err == nil && n < 86400*365
}

// TestReaders: for any answer the penalty of each classifier is within bounds, is never negative for a
// refusal, and never less than what the Retry-After of a 429 asks; and no quota is negative.
func TestReaders(t *testing.T) {
	soak.WithoutRace(t)
	fields := []string{leftField, usedField, limitField, resetField, minutesField, "RateLimit", "RateLimit-Policy", "RateLimit-Remaining", "RateLimit-Reset"}
	statuses := []int{200, 202, 400, 401, 403, 418, 429, 429, 429, 429, 503}
	for seed := range uint64(soak.Seeds(20_000, 3_000)) {
		r := rand.New(rand.NewPCG(seed, 8))
		pick := func(of []string) string { return of[r.IntN(len(of))] }
		header := http.Header{"Date": {pick([]string{date, date, date, "", "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"})}}
		if r.IntN(2) == 0 {
			header.Set("Content-Type", pick([]string{"application/json", "text/html", "text/plain", "text/event-stream"}))
		}
		for _, field := range fields {
			for range max(0, r.IntN(4)-1) {
				header.Add(field, pick(values))
			}
		}
		if r.IntN(2) == 0 {
			header.Set("Retry-After", pick([]string{"1", "7", "30", "3600", "999999", "0", pick(values)}))
		}
		if r.IntN(8) == 0 {
			header.Set("Age", "5")
		}
		requireReaders(t, statuses[r.IntN(len(statuses))], pick(bodies), header)
	}
}

// FuzzReaders is TestReaders for texts that nobody has thought of.
func FuzzReaders(f *testing.F) {
	for i, value := range values {
		f.Add(429, value, values[(i*7+3)%len(values)], values[(i*5+1)%len(values)], bodies[i%len(bodies)])
	}
	f.Fuzz(func(t *testing.T, status int, left, reset, retryAfter, body string) {
		header := http.Header{
			"Date": {date}, leftField: {left}, resetField: {reset}, "Retry-After": {retryAfter},
			usedField: {left}, limitField: {reset}, minutesField: {body}, "RateLimit": {left}, "RateLimit-Policy": {reset},
		}
		if retryAfter == "" {
			header.Del("Retry-After")
		}
		if len(body) > 4<<10 || status == http.StatusSwitchingProtocols {
			t.Skip("a body that is not looked at in full")
		}
		requireReaders(t, status, body, header)
	})
}

// TestMomentsThatAreCut: a moment in any form counts to somewhere between the beginning and the end of the
// second, minute, hour or day that it was cut to, and is not over before.
func TestMomentsThatAreCut(t *testing.T) {
	iso := func(layout string) []string { return []string{layout + "Z07:00", layout + "Z0700", layout + " -0700"} }
	own := func(layout string) []string { return []string{layout} }
	for _, c := range []struct {
		unit    time.Duration
		layouts []string
		own     bool // it is read in its own layout
	}{
		{time.Second, append(iso("2006-01-02T15:04:05"), http.TimeFormat, time.RFC850, time.RFC1123Z, time.ANSIC, time.RubyDate), false},
		{time.Minute, append(iso("2006-01-02T15:04"), iso("2006-01-02 15:04")...), false},
		{time.Hour, iso("2006-01-02T15"), false},
		{time.Second, own(time.DateTime), true},
		{time.Minute, own("02.01.2006 15:04"), true},
		{time.Hour, own("2006-01-02 15h"), true},
		{24 * time.Hour, own(time.DateOnly), true},
	} {
		r := rand.New(rand.NewPCG(3, uint64(c.unit)))
		for range 500 {
			sent := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(r.IntN(86400)) * time.Second)
			moment := sent.Add(time.Duration(r.IntN(20*3600)-7200) * time.Second)
			floor := moment.Truncate(c.unit)
			for _, layout := range c.layouts {
				header := []string{"Date", sent.Format(http.TimeFormat), "N", "3", "R", moment.Format(layout)}
				h := feedback.Headers{Remaining: "N", Reset: "R"}
				if c.own {
					h.As = feedback.At(layout, nil)
				}
				q, ok := h.Left(answer(200, "", header...)).Left()
				require.Equal(t, floor.Add(c.unit).After(sent), ok, "%s at %s", moment.Format(layout), sent)
				if ok {
					require.GreaterOrEqual(t, q.Reset, floor.Sub(sent), "%s at %s", moment.Format(layout), sent)
					require.LessOrEqual(t, q.Reset, min(floor.Add(c.unit).Sub(sent), throttle.MaxPenalty), "%s at %s", moment.Format(layout), sent)
				}
			}
		}
	}
}
