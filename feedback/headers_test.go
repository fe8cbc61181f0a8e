package feedback_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

var (
	common  = feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}
	shopify = feedback.Headers{Used: "X-Shopify-Shop-Api-Call-Limit", Per: 500 * time.Millisecond}
	riot    = feedback.Headers{Limit: "X-App-Rate-Limit", Used: "X-App-Rate-Limit-Count", Per: 2 * time.Minute}
	binance = feedback.Headers{Used: "X-MBX-Used-Weight-1m", Size: 6000, Per: time.Minute, Clock: true}
	openai  = feedback.Headers{Remaining: "x-ratelimit-remaining-tokens", Reset: "x-ratelimit-reset-tokens"}
)

// weeks is a dialect that keeps to no cap.
func weeks(text string, _ time.Time) (time.Duration, bool) {
	n, err := strconv.Atoi(text)
	return time.Duration(n) * 7 * 24 * time.Hour, err == nil
}

// TestHeaderDialects has a case for each dialect of X-RateLimit that is known
// to be in use.
func TestHeaderDialects(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers feedback.Headers
		fields  []string
		want    *throttle.Quota
	}{
		{"GitHub: epoch", common,
			[]string{"X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", "1767323075"}, left(4999, 31*time.Second)},
		{"Discord: decimal epoch", common,
			[]string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1767323075.123"}, left(1, 30123*time.Millisecond)},
		{"Jira: ISO 8601", common,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2026-01-02T03:04:35Z"}, left(0, 31*time.Second)},
		{"seconds", common,
			[]string{"X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "30"}, left(9, 30*time.Second)},
		{"epoch in milliseconds", common,
			[]string{"X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "1767323075000"}, left(9, 31*time.Second)},
		{"lemlist: a date for people", common,
			[]string{"X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "Fri Jan 02 2026 03:04:35 GMT+0000 (UTC)"}, left(9, 31*time.Second)},
		{"Jira: cut to minutes", common,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2026-01-02T03:34Z"}, left(0, 30*time.Minute+55*time.Second)},
		{"Discord: decimal seconds",
			feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset-After"},
			[]string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset-After", "64.57"}, left(1, 64570*time.Millisecond)},
		{"OpenAI: a Go duration", openai,
			[]string{"X-Ratelimit-Remaining-Tokens", "149984", "X-Ratelimit-Reset-Tokens", "6m0s"}, left(149984, 6*time.Minute)},
		{"OpenAI: milliseconds", openai,
			[]string{"X-Ratelimit-Remaining-Tokens", "149984", "X-Ratelimit-Reset-Tokens", "12ms"}, left(149984, 12*time.Millisecond)},
		{"Anthropic: RFC 3339",
			feedback.Headers{Remaining: "anthropic-ratelimit-requests-remaining", Reset: "anthropic-ratelimit-requests-reset"},
			[]string{"Anthropic-Ratelimit-Requests-Remaining", "5", "Anthropic-Ratelimit-Requests-Reset", "2026-01-02T03:04:35Z"},
			left(5, 31*time.Second)},
		{"Shopify: used and size", shopify, []string{"X-Shopify-Shop-Api-Call-Limit", "32/40"}, left(8, 500*time.Millisecond)},
		{"Shopify: full", shopify, []string{"X-Shopify-Shop-Api-Call-Limit", "40/40"}, left(0, 500*time.Millisecond)},
		{"Shopify: more than full", shopify, []string{"X-Shopify-Shop-Api-Call-Limit", "41/40"}, left(0, 500*time.Millisecond)},
		{"Riot: lists", riot,
			[]string{"X-App-Rate-Limit", "20:1,100:120", "X-App-Rate-Limit-Count", "3:1,57:120"}, left(43, time.Second)},
		{"Riot: in another order", riot,
			[]string{"X-App-Rate-Limit", "20:1,100:120", "X-App-Rate-Limit-Count", "57:120, 3:1"}, left(43, time.Second)},
		{"Riot: in two lines", riot,
			[]string{"X-App-Rate-Limit", "20:1", "X-App-Rate-Limit", "100:120", "X-App-Rate-Limit-Count", "57:120"},
			left(43, time.Second)},
		{"Riot: another window", riot, []string{"X-App-Rate-Limit", "20:1", "X-App-Rate-Limit-Count", "3:1"}, nil},
		{"Riot: no limit", riot, []string{"X-App-Rate-Limit-Count", "57:120"}, nil},
		{"Binance: on the clock", binance, []string{"X-MBX-USED-WEIGHT-1M", "5990"}, left(10, 55*time.Second)},
		{"used, of a limit", feedback.Headers{Limit: "L", Used: "U", Reset: "R"},
			[]string{"L", "100", "U", "97", "R", "60"}, left(3, time.Minute)},
		{"a limit that is told counts", feedback.Headers{Limit: "L", Used: "U", Size: 50, Per: time.Minute},
			[]string{"L", "100", "U", "97"}, left(3, time.Second)},
		{"a limit that is not told", feedback.Headers{Limit: "L", Used: "U", Size: 99, Per: time.Minute},
			[]string{"U", "97"}, left(2, time.Second)},
		{"milliseconds", feedback.Headers{Remaining: "N", Reset: "R", As: feedback.After(time.Millisecond)},
			[]string{"N", "3", "R", "250"}, left(3, 250*time.Millisecond)},
		{"a layout", feedback.Headers{Remaining: "N", Reset: "R",
			As: feedback.At("2006-01-02 15:04:05", time.FixedZone("UTC+8", 8*60*60))},
			[]string{"N", "3", "R", "2026-01-02 11:04:35"}, left(3, 31*time.Second)},
		{"a layout that cuts to minutes", feedback.Headers{Remaining: "N", Reset: "R", As: feedback.At("02.01.2006 15:04", nil)},
			[]string{"N", "3", "R", "02.01.2026 03:05"}, left(3, 115*time.Second)},
		{"a layout that cuts to days", feedback.Headers{Remaining: "N", Reset: "R", As: feedback.At(time.DateOnly, nil)},
			[]string{"N", "3", "R", "2026-01-03"}, left(3, 20*time.Hour+55*time.Minute+56*time.Second)},
		{"a layout in UTC", feedback.Headers{Remaining: "N", Reset: "R", As: feedback.At(time.DateTime, nil)},
			[]string{"N", "3", "R", "2026-01-02 03:04:35"}, left(3, 31*time.Second)},
		{"more than a day, in a dialect of its own", feedback.Headers{Remaining: "N", Reset: "R", As: weeks},
			[]string{"N", "3", "R", "2"}, left(3, throttle.MaxPenalty)},
		{"negative, in a dialect of its own", feedback.Headers{Remaining: "N", Reset: "R", As: weeks},
			[]string{"N", "3", "R", "-2"}, nil},
		{"a window of more than a day", feedback.Headers{Remaining: "N", Per: 100 * time.Hour},
			[]string{"N", "3"}, left(3, time.Second)},
		{"more than a day", common, []string{"X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "900000"},
			left(9, throttle.MaxPenalty)},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireQuota(t, c.want, c.headers.Left, answer(200, "", c.fields...))
		})
	}
}

// TestLessThanNothing: a budget that is overdrawn has nothing left.
func TestLessThanNothing(t *testing.T) {
	resp := answer(429, "", "X-RateLimit-Remaining", "-3", "X-RateLimit-Reset", "30")
	requireQuota(t, left(0, 30*time.Second), common.Left, resp)
	requireCloses(t, 30*time.Second, common.Answer(resp))
	requireQuota(t, nil, common.Left, answer(429, "", "X-RateLimit-Remaining", "-", "X-RateLimit-Reset", "30"))
	requireQuota(t, nil, common.Left, answer(429, "", "X-RateLimit-Remaining", "--3", "X-RateLimit-Reset", "30"))
}

func TestHeadersThatSayNothing(t *testing.T) {
	for _, c := range []struct{ name, remaining, reset string }{
		{"nothing", "", ""},
		{"only what is left", "3", ""},
		{"only when", "", "30"},
		{"a word", "many", "30"},
		{"infinite", "Inf", "30"},
		{"exponent", "1e3", "30"},
		{"more than counts", "3000000000", "30"},
		{"two values", "3,4", "30"},
		{"a list", "3:1", "30"},
		{"half a pair", "3/", "30"},
		{"half a list", "3:", "30"},
		{"a reset that has passed", "3", "1767323044"},
		{"a reset now", "3", "0"},
		{"a reset that is negative", "3", "-30"},
		{"a reset without sense", "3", "soon"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := answer(429, "")
			if c.remaining != "" {
				resp.Header.Set("X-RateLimit-Remaining", c.remaining)
			}
			if c.reset != "" {
				resp.Header.Set("X-RateLimit-Reset", c.reset)
			}
			requireQuota(t, nil, common.Left, resp)
			requireCloses(t, 0, common.Answer(resp))
		})
	}
	t.Run("Per stands in for no Reset, but not for one without sense", func(t *testing.T) {
		h := feedback.Headers{Remaining: "N", Reset: "R", Per: time.Minute}
		requireQuota(t, left(3, time.Second), h.Left, answer(200, "", "N", "3"))
		requireCloses(t, time.Minute, h.Answer(answer(429, "", "N", "0")), "a refusal lasts for the window")
		requireQuota(t, nil, h.Left, answer(200, "", "N", "3", "R", "soon"))
		requireQuota(t, nil, h.Left, answer(200, "", "N", "3", "R", "1767323044"))
	})
	t.Run("no names", func(t *testing.T) {
		requireQuota(t, nil, feedback.Headers{Per: time.Minute}.Left, answer(200, "", "X-RateLimit-Remaining", "3"))
	})
	t.Run("trailers are not believed", func(t *testing.T) {
		resp := answer(200, "")
		resp.Trailer = answer(200, "", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "30").Header
		requireQuota(t, nil, common.Left, resp)
	})
}

// TestAnswersThatDoNotSpeakOfTheBudget: a 401 speaks of somebody unknown, so
// that one provider's client learned the wrong tier from it
// (PostHog/posthog#67713), and a cache of an earlier caller.
func TestAnswersThatDoNotSpeakOfTheBudget(t *testing.T) {
	fields := []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30", "RateLimit", `"default";r=0;t=30`}
	for _, c := range []struct {
		name   string
		status int
		age    string
		speaks bool
	}{
		{"200", 200, "", true},
		{"304", 304, "", true},
		{"403", 403, "", true},
		{"429", 429, "", true},
		{"fresh", 200, "0", true},
		{"401", 401, "", false},
		{"out of a cache", 200, "12", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := answer(c.status, "", fields...)
			if c.age != "" {
				resp.Header.Set("Age", c.age)
			}
			var quota *throttle.Quota
			var penalty time.Duration
			if c.speaks {
				quota = left(0, 30*time.Second)
			}
			if c.speaks && c.status >= 400 {
				penalty = 30 * time.Second
			}
			requireQuota(t, quota, common.Left, resp)
			requireQuota(t, quota, feedback.RateLimit{}.Left, resp)
			requireCloses(t, penalty, common.Answer(resp))
			requireCloses(t, penalty, feedback.RateLimit{}.Answer(resp))
			requireCloses(t, penalty, feedback.Headers{Reset: "X-RateLimit-Reset"}.Answer(resp))
		})
	}
	t.Run("another resource", func(t *testing.T) {
		core := feedback.When{Header: map[string]string{"X-RateLimit-Resource": "core"}}.Then(common.Left)
		requireQuota(t, left(0, 30*time.Second), core, answer(200, "", append(fields, "X-RateLimit-Resource", "core")...))
		requireQuota(t, nil, core, answer(200, "", append(fields, "X-RateLimit-Resource", "search")...))
		requireQuota(t, nil, core, answer(403, "", fields...))
	})
}

func TestPenaltiesOfHeaders(t *testing.T) {
	feishu := feedback.Headers{Reset: "x-ogw-ratelimit-reset"}
	old := feedback.Headers{Reset: "retry-after", As: feedback.After(time.Millisecond)}
	for _, c := range []struct {
		name    string
		headers feedback.Headers
		status  int
		fields  []string
		want    time.Duration
	}{
		{"GitHub: nothing left", common, 403,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767323075"}, 31 * time.Second},
		{"GitHub: no permission", common, 403,
			[]string{"X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", "1767323075"}, 0},
		{"the last one that was granted", common, 200,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}, 0},
		{"Retry-After wins", common, 429,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30", "Retry-After", "2"}, 2 * time.Second},
		{"Retry-After of now wins", common, 429,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30", "Retry-After", "0"}, 0},
		{"Retry-After that cannot be read", common, 429,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30", "Retry-After", "soon"}, 30 * time.Second},
		{"Retry-After of a 202", common, 202,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30", "Retry-After", "2"}, 0},
		{"Feishu: reset alone", feishu, 429, []string{"X-Ogw-Ratelimit-Reset", "52"}, 52 * time.Second},
		{"Feishu: no field", feishu, 429, nil, 0},
		{"Discord before v8: Retry-After in milliseconds", old, 429, []string{"Retry-After", "64570"}, 64570 * time.Millisecond},
		{"and of a 401", old, 401, []string{"Retry-After", "64570"}, 0},
		{"the rest of the minute", binance, 429, []string{"X-MBX-USED-WEIGHT-1M", "6001"}, 55 * time.Second},
		{"some left of the minute", binance, 200, []string{"X-MBX-USED-WEIGHT-1M", "5999"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireCloses(t, c.want, c.headers.Answer(answer(c.status, "", c.fields...)))
		})
	}
}

// TestFailuresAreNoRefusals: what used up the last of a window may have failed
// for a reason of its own, and must not be sent again for it. Status names
// others that may be refusals.
func TestFailuresAreNoRefusals(t *testing.T) {
	fields := []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30", "RateLimit", `"default";r=0;t=30`}
	statuses := func(status ...int) []feedback.Reader {
		counts, reset := common, feedback.Headers{Reset: "X-RateLimit-Reset"}
		counts.Status, reset.Status = status, status
		return []feedback.Reader{
			counts.Answer, reset.Answer, feedback.RateLimit{Status: status}.Answer,
		}
	}
	refusals := map[int]bool{403: true, 429: true, 503: true}
	for status := 200; status < 600; status++ {
		want, named := time.Duration(0), time.Duration(0)
		if refusals[status] {
			want = 30 * time.Second
		}
		if status == 400 {
			named = 30 * time.Second
		}
		for _, penalty := range statuses() {
			requireCloses(t, want, penalty(answer(status, "", fields...)), status)
		}
		for _, penalty := range statuses(400, 401) {
			requireCloses(t, named, penalty(answer(status, "", fields...)), status)
		}
	}
}

// TestRefusalsThatSayLittle: a 429 obeys its Retry-After, whatever its other fields say or fail to say;
// and one of which nothing is left closes the budget although no field says for how long. What is refused
// with something left and without a Retry-After is about another budget.
func TestRefusalsThatSayLittle(t *testing.T) {
	const remaining, reset, retry = "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"
	of := func(change func(*feedback.Headers)) feedback.Headers {
		h := common
		change(&h)
		return h
	}
	minutely := of(func(h *feedback.Headers) { h.Per = time.Minute })
	daily := of(func(h *feedback.Headers) { h.Per = 100 * time.Hour })
	short := of(func(h *feedback.Headers) { h.Per = 200 * time.Millisecond })
	onClock := of(func(h *feedback.Headers) { h.Per, h.Clock = time.Minute, true })
	forbidden := of(func(h *feedback.Headers) { h.Status = []int{403} })
	dated := feedback.Headers{Reset: reset}
	used := feedback.Headers{Used: "X-RateLimit-Used", Limit: "X-RateLimit-Limit", Reset: reset}
	millis := feedback.Headers{Remaining: remaining, Reset: retry, As: feedback.After(time.Millisecond)}

	for _, c := range []struct {
		name    string
		headers feedback.Headers
		status  int
		fields  []string
		want    time.Duration
	}{
		{"no reset", common, 429, []string{remaining, "0", retry, "1"}, time.Second},
		{"no field but Retry-After", common, 429, []string{retry, "5"}, 5 * time.Second},
		{"no field", common, 429, nil, 0},
		{"nanoseconds that have passed", common, 429, []string{remaining, "0", reset, "1554388452000000000", retry, "30"}, 30 * time.Second},
		{"nanoseconds that have passed alone", minutely, 429, []string{remaining, "0", reset, "1554388452000000000"}, time.Second},
		{"nanoseconds", common, 429, []string{remaining, "0", reset, "1767323075000000000"}, 31 * time.Second},
		{"nanoseconds beyond the window", minutely, 429, []string{remaining, "0", reset, "1767323999000000000"}, time.Minute},
		{"a date of two readings", common, 429, []string{remaining, "0", reset, "06/10/2016 13:07:24", retry, "30"}, 30 * time.Second},
		{"a date of two readings alone", common, 429, []string{remaining, "0", reset, "06/10/2016 13:07:24"}, time.Second},
		{"a date of two readings in a window", minutely, 429, []string{remaining, "0", reset, "06/10/2016 13:07:24"}, time.Minute},
		{"a date of two readings on the clock", onClock, 429, []string{remaining, "0", reset, "06/10/2016 13:07:24"}, 55 * time.Second},
		{"a date of two readings in a long window", daily, 429, []string{remaining, "0", reset, "06/10/2016 13:07:24"}, throttle.MaxPenalty},
		{"a fraction, and a reset of now", common, 429, []string{remaining, "0.0", reset, "0", "X-RateLimit-Used", "1000"}, time.Second},
		{"a reset of now in a window", daily, 429, []string{remaining, "0", reset, "0"}, time.Second},
		{"a reset of now in a short window", short, 429, []string{remaining, "0", reset, "0"}, 200 * time.Millisecond},
		{"a reset that has passed", common, 429, []string{remaining, "0", reset, "1767323044"}, time.Second},
		{"a reset that is negative", common, 429, []string{remaining, "0", reset, "-5", retry, "7"}, 7 * time.Second},
		{"an empty reset", common, 429, []string{remaining, "0", reset, ""}, time.Second},
		{"a 403 without a reset", common, 403, []string{remaining, "0"}, time.Second},
		{"a 403 with Retry-After and no reset", common, 403, []string{remaining, "0", retry, "7"}, 7 * time.Second},
		{"some left, of a budget that has not refused", common, 429, []string{remaining, "799", reset, "600", retry, "7"}, 7 * time.Second},
		{"some left", common, 429, []string{remaining, "799", reset, "600"}, 0},
		{"some left of a 403", common, 403, []string{remaining, "799", retry, "7"}, 0},
		{"a rest that is no number", common, 429, []string{remaining, "many", reset, "soon", retry, "7"}, 7 * time.Second},
		{"the last one that was granted", common, 200, []string{remaining, "0", retry, "7"}, 0},
		{"ten minutes", common, 429, []string{remaining, "0", reset, "1767323645"}, 10*time.Minute + time.Second},
		{"ten minutes with Retry-After", common, 429, []string{remaining, "0", reset, "1767323645", retry, "3"}, 3 * time.Second},
		{"a status that is none of a refusal", forbidden, 429, []string{remaining, "0", reset, "30", retry, "7"}, 0},
		{"out of a cache", common, 429, []string{remaining, "0", reset, "30", retry, "7", "Age", "3"}, 7 * time.Second},
		{"out of a cache without Retry-After", common, 429, []string{remaining, "0", reset, "30", "Age", "3"}, 0},
		{"two lines of Retry-After", common, 429, []string{remaining, "0", retry, "5", retry, "30"}, 30 * time.Second},
		{"two lines in one", common, 429, []string{remaining, "0", retry, "5, 30"}, 30 * time.Second},
		{"the same twice in one line", common, 429, []string{remaining, "0", retry, "30,30"}, 30 * time.Second},
		{"Retry-After that cannot be read", common, 429, []string{remaining, "0", reset, "soon", retry, "later"}, time.Second},
		{"only a reset that has passed", dated, 429, []string{reset, "1767323044"}, time.Second},
		{"only a reset that has passed, of a 403", dated, 403, []string{reset, "1767323044"}, 0},
		{"only a reset, and Retry-After", dated, 429, []string{retry, "7"}, 7 * time.Second},
		{"used up", used, 429, []string{"X-RateLimit-Used", "5", "X-RateLimit-Limit", "5"}, time.Second},
		{"used in part", used, 429, []string{"X-RateLimit-Used", "4", "X-RateLimit-Limit", "5", retry, "7"}, 7 * time.Second},
		{"Retry-After in a dialect of its own", millis, 429, []string{remaining, "5", retry, "64570"}, 64570 * time.Millisecond},
		{"Retry-After in words all the same", millis, 429, []string{remaining, "5", retry, "5s"}, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireCloses(t, c.want, c.headers.Answer(answer(c.status, "", c.fields...)))
		})
	}

	t.Run("two rows, of which one has refused", func(t *testing.T) {
		requests := feedback.Headers{Remaining: "R", Reset: "R-Reset"}
		tokens := feedback.Headers{Remaining: "T", Reset: "T-Reset"}
		resp := answer(429, "", "R", "40", "R-Reset", "30", "T", "0", "T-Reset", "7")
		requireCloses(t, 0, requests.Answer(resp))
		requireCloses(t, 7*time.Second, tokens.Answer(resp))
	})
}

// TestCounts has the forms in which upstreams send a count.
func TestCounts(t *testing.T) {
	docker := feedback.Headers{Remaining: "RateLimit-Remaining", Per: 6 * time.Hour}
	okta := feedback.Headers{Remaining: "X-Rate-Limit-Remaining", Limit: "X-Rate-Limit-Limit", Reset: "X-Rate-Limit-Reset"}
	used := feedback.Headers{Used: "U", Limit: "L", Per: time.Minute}
	strava := feedback.Headers{Used: "X-RateLimit-Usage", Limit: "X-RateLimit-Limit", Per: 15 * time.Minute, Clock: true, Position: 1}
	stravaDay := strava
	stravaDay.Per, stravaDay.Position = 24*time.Hour, 2
	third := strava
	third.Position = 3
	const remaining = "RateLimit-Remaining"

	for _, c := range []struct {
		name    string
		headers feedback.Headers
		fields  []string
		want    *throttle.Quota
	}{
		{"a window in a parameter", docker, []string{"RateLimit-Limit", "100;w=21600", remaining, "3;w=21600"}, left(3, time.Second)},
		{"more of it", docker, []string{remaining, "76;w=21600"}, left(76, time.Second)},
		{"a window alone", docker, []string{"RateLimit-Limit", ";w=21600", remaining, ";w=21600"}, nil},
		{"another window", docker, []string{remaining, "3;w=60"}, nil},
		{"other parameters", docker, []string{remaining, `3; burst=5;comment="a, b"`}, nil},
		{"a window that is asked for nowhere", feedback.Headers{Remaining: remaining}, []string{remaining, "3;w=21600"}, left(3, time.Second)},
		{"a window without a length", docker, []string{remaining, "3;w"}, left(3, time.Second)},
		{"a list of windows", docker, []string{remaining, "100, 9;w=60, 7;w=21600"}, left(7, time.Second)},
		{"a list of other windows", docker, []string{remaining, "100, 9;w=60"}, nil},
		{"a list of windows, none asked for", feedback.Headers{Remaining: remaining, Reset: "R"},
			[]string{remaining, "100, 9;w=60", "R", "30"}, left(100, 30*time.Second)},
		{"quoted", docker, []string{remaining, ` "3" `}, left(3, time.Second)},
		{"a fraction", docker, []string{remaining, "0.9"}, left(0, time.Second)},
		{"below nothing", docker, []string{remaining, "-3.5;w=21600"}, left(0, time.Second)},
		{"a sign", docker, []string{remaining, "+3"}, nil},
		{"a comma of thousands", docker, []string{remaining, "1,000"}, nil},
		{"the same line twice", okta, []string{"X-Rate-Limit-Limit", "600", "X-Rate-Limit-Limit", "600",
			"X-Rate-Limit-Remaining", "7", "X-Rate-Limit-Remaining", "7", "X-Rate-Limit-Reset", "1767323075", "X-Rate-Limit-Reset", "1767323075"},
			left(7, 31*time.Second)},
		{"the same twice in one line", okta, []string{"X-Rate-Limit-Remaining", "7, 7", "X-Rate-Limit-Reset", "1767323075, 1767323075"},
			left(7, 31*time.Second)},
		{"two that differ in one line", okta, []string{"X-Rate-Limit-Remaining", "7, 3", "X-Rate-Limit-Reset", "30"}, nil},
		{"a window by its long name", docker, []string{remaining, "100, 9;window=60, 7;window=21600"}, left(7, time.Second)},
		{"two lines that differ", okta, []string{"X-Rate-Limit-Remaining", "7", "X-Rate-Limit-Remaining", "3",
			"X-Rate-Limit-Reset", "30", "X-Rate-Limit-Reset", "60"}, left(3, time.Minute)},
		{"a line that is no count", okta, []string{"X-Rate-Limit-Remaining", "7", "X-Rate-Limit-Remaining", "some",
			"X-Rate-Limit-Reset", "soon", "X-Rate-Limit-Reset", "60"}, left(7, time.Minute)},
		{"what is used, in two lines that differ", used, []string{"U", "90", "U", "97", "L", "200", "L", "100"}, left(3, time.Second)},
		{"used in a fraction", used, []string{"U", "39.5", "L", "40"}, left(0, time.Second)},
		{"used and size, in a fraction", feedback.Headers{Used: "U", Per: time.Minute}, []string{"U", "30.0/40.9"}, left(10, time.Second)},
		{"left in a fraction", feedback.Headers{Remaining: "R", Per: time.Minute}, []string{"R", "3.9"}, left(3, time.Second)},
		{"used below nothing", used, []string{"U", "-5", "L", "100"}, nil},
		{"used and size, in two lines", feedback.Headers{Used: "U", Per: time.Minute}, []string{"U", "1/5", "U", "30/100"}, left(4, time.Second)},
		{"the first of a list", strava, []string{"X-RateLimit-Limit", "600,30000", "X-RateLimit-Usage", "598,27536"}, left(2, 10*time.Minute+55*time.Second)},
		{"the second", stravaDay, []string{"X-RateLimit-Limit", "600, 30000", "X-RateLimit-Usage", "598, 27536"}, left(2464, 20*time.Hour+55*time.Minute+55*time.Second)},
		{"a third that is not there", third, []string{"X-RateLimit-Limit", "600,30000", "X-RateLimit-Usage", "598,27536"}, nil},
		{"a reset beyond the window", feedback.Headers{Remaining: "N", Reset: "R", Per: time.Minute}, []string{"N", "3", "R", "86400"}, left(3, time.Minute)},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireQuota(t, c.want, c.headers.Left, answer(200, "", c.fields...))
		})
	}

	refused := answer(429, "", "X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", "1767323075", "X-Rate-Limit-Reset", "1767323075")
	requireCloses(t, 31*time.Second, okta.Answer(refused))
	requireCloses(t, 6*time.Hour, docker.Answer(answer(429, "", remaining, "0;w=21600")))
	requireCloses(t, 6*time.Hour, feedback.RateLimit{}.Answer(answer(429, "", remaining, "0;w=21600")))
	requireCloses(t, 0, docker.Answer(answer(429, "", remaining, "0;w=60")), "of another window")
	requireCloses(t, 10*time.Minute+55*time.Second, strava.Answer(answer(429, "", "X-RateLimit-Limit", "600,30000", "X-RateLimit-Usage", "601,27536")))
	requireCloses(t, 0, stravaDay.Answer(answer(429, "", "X-RateLimit-Limit", "600,30000", "X-RateLimit-Usage", "601,27536")))
}

func TestWindowsOnTheClock(t *testing.T) {
	hourly := feedback.Headers{Remaining: "N", Per: time.Hour, Clock: true}
	requireQuota(t, left(1, 55*time.Minute+55*time.Second), hourly.Left, answer(200, "", "N", "1"))
	requireQuota(t, left(1, time.Hour), hourly.Left, answer(200, "", "N", "1", "Date", "Fri, 02 Jan 2026 04:00:00 GMT"))
	requireQuota(t, left(1, time.Hour), hourly.Left, answer(200, "", "N", "1", "Date", "Mon, 01 Jan 1900 00:30:00 GMT"))
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20 * time.Minute)
		requireQuota(t, left(1, 40*time.Minute), hourly.Left, answer(200, "", "N", "1", "Date", ""))
	})
}

func TestEstimates(t *testing.T) {
	var e feedback.Estimates
	settle := func(n, cost int, inFlight time.Duration) {
		for range n {
			e.Settled("m", cost, inFlight)
		}
	}
	settle(7, 100, time.Second)
	settle(9, -1, time.Second) // not known
	require.Equal(t, 4000, e.Cost("m", 4000), "7 are too few")
	require.Equal(t, 100, e.Cost("m", 20), "but they tell of a guess that is too low")
	settle(1, 100, time.Second)
	require.Equal(t, 100, e.Cost("m", 4000))
	require.Equal(t, 4000, e.Cost("another", 4000))

	settle(400, 900, time.Second)
	require.InDelta(t, 900, e.Cost("m", 4000), 10, "what is old counts less and less")

	settle(2000, 0, 0)
	require.Equal(t, 1, e.Cost("m", 4000), "one at least")
}

// TestEstimatesCountTheTimeInFlight: of those in flight at one moment three quarters take long. The error
// of a mean of 64 costs that differ so much is 5 to 20 %.
func TestEstimatesCountTheTimeInFlight(t *testing.T) {
	var e feedback.Estimates
	for range 200 {
		e.Settled("m", 100, 10*time.Second)
		e.Settled("m", 1000, 30*time.Second)
	}
	const mean = (100*10 + 1000*30) / 40
	require.Greater(t, e.Cost("m", 0), mean)
	require.Less(t, e.Cost("m", 0), mean*6/5)
}

func TestEstimatesAreBounded(t *testing.T) {
	var e feedback.Estimates
	known := func() (n int) {
		for i := range 1000 {
			n += e.Cost(fmt.Sprint(i), 0)
		}
		return n
	}
	for i := range 1000 {
		for range 8 {
			e.Settled(fmt.Sprint(i), 1, time.Second)
		}
	}
	require.Equal(t, 256, known())
	for range 100 {
		e.Settled("huge", math.MaxInt, math.MaxInt64)
	}
	require.InDelta(t, math.MaxInt32, e.Cost("huge", 0), 1)
}
