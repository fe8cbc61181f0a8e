package feedback_test

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// TestRateLimit is about the lists of draft-ietf-httpapi-ratelimit-headers-10
// (27 September 2025).
func TestRateLimit(t *testing.T) {
	const s = time.Second
	daily := []string{"RateLimit-Policy", `"burst";q=100;w=60,"daily";q=1000;w=86400`}
	for _, c := range []struct {
		name, policy string
		fields       []string
		want         *throttle.Quota
	}{
		{"one", "", []string{"RateLimit", `"default";r=50;t=30`}, left(50, 30*s)},
		{"by name", "default", []string{"RateLimit", `"default";r=50;t=30`}, left(50, 30*s)},
		{"another name", "other", []string{"RateLimit", `"default";r=50;t=30`}, nil},
		{"names have cases", "Default", []string{"RateLimit", `"default";r=50;t=30`}, nil},
		{"the least of two", "", []string{"RateLimit", `"burst";r=5;t=1, "daily";r=3;t=4000`}, left(3, 4000*s)},
		{"one of two", "burst", []string{"RateLimit", `"burst";r=5;t=1, "daily";r=3;t=4000`}, left(5, s)},
		{"in two lines", "daily", []string{"RateLimit", `"burst";r=5;t=1`, "RateLimit", `"daily";r=3;t=4000`}, left(3, 4000*s)},
		{"other parameters", "", []string{"RateLimit", `"default";x=1.5;r=50;y;z="a";t=30`}, left(50, 30*s)},
		{"a partition", "", []string{"RateLimit", `"default";r=999;t=1;pk=:dHJpYWwxMjEzMjM=:`}, left(999, s)},
		{"a partition with pad bits", "", []string{"RateLimit", `"default";r=999;t=1;pk=:sdfjLJUOUH==:`}, left(999, s)},
		{"two partitions", "", []string{"RateLimit", `"a";r=9;t=2;pk=:YQ==:,"a";r=8;t=1;pk=:Yg==:`}, left(8, s)},
		{"more than a number of ours", "", []string{"RateLimit", `"default";r=999999999999999;t=30`}, left(1<<31-1, 30*s)},
		{"a long time", "", []string{"RateLimit", `"default";r=1;t=999999999999999`}, left(1, throttle.MaxPenalty)},

		{"without t nobody says for how long", "burst", append(daily, "RateLimit", `"burst";r=5`), left(5, time.Second)},
		{"t is nearer than the window", "burst", append(daily, "RateLimit", `"burst";r=5;t=7`), left(5, 7*s)},
		{"no t, no window", "other", append(daily, "RateLimit", `"other";r=5`), nil},
		{"no t, and policies that are malformed", "burst",
			[]string{"RateLimit", `"burst";r=5`, "RateLimit-Policy", `"burst";q=100;w=60,`}, nil},
		{"no t, and a window of another type", "burst",
			[]string{"RateLimit", `"burst";r=5`, "RateLimit-Policy", `"burst";q=100;w="60"`}, nil},
		{"no t, and policies of an older draft", "", []string{"RateLimit", `"burst";r=5`, "RateLimit-Policy", `100;w=60`}, nil},
		{"bytes are not requests", "",
			[]string{"RateLimit", `"size";r=5;t=1,"n";r=6;t=1`, "RateLimit-Policy", `"size";q=9;qu="content-bytes","n";q=9;qu="requests"`},
			left(6, s)},
		{"bytes, if they are asked for", "size",
			[]string{"RateLimit", `"size";r=5;t=1,"n";r=6;t=1`, "RateLimit-Policy", `"size";q=9;qu="content-bytes"`}, left(5, s)},
		{"a unit of another type", "",
			[]string{"RateLimit", `"size";r=5;t=1`, "RateLimit-Policy", `"size";q=9;qu=bytes`}, left(5, s)},

		{"Atlassian: far from the limit", "", []string{"RateLimit", `"global-app-quota";t=600`}, nil},
		{"far from one limit", "", []string{"RateLimit", `"a";t=600, "b";r=3;t=2`}, left(3, 2*s)},
		{"the time has come", "", []string{"RateLimit", `"default";r=50;t=0`}, nil},
		{"no name", "", []string{"RateLimit", `default;r=50;t=30`}, nil},
		{"a decimal", "", []string{"RateLimit", `"default";r=50.0;t=30`}, nil},
		{"negative", "", []string{"RateLimit", `"default";r=-1;t=30`}, nil},
		{"negative time", "", []string{"RateLimit", `"default";r=50;t=-30`}, nil},
		{"a text", "", []string{"RateLimit", `"default";r="50";t=30`}, nil},
		{"a partition of another type", "", []string{"RateLimit", `"default";r=50;t=30;pk="a"`}, nil},
		{"one malformed member spoils all", "", []string{"RateLimit", `"a";r=50;t=30, "b";r=x`}, nil},
		{"one time that is negative spoils all", "", []string{"RateLimit", `"a";r=50;t=-1, "b";r=3;t=2`}, nil},
		{"one window that is negative spoils all", "burst",
			[]string{"RateLimit", `"burst";r=5`, "RateLimit-Policy", `"burst";q=100;w=60,"daily";q=1;w=-1`}, nil},
		{"a comma at the end", "", []string{"RateLimit", `"a";r=50;t=30,`}, nil},
		{"16 digits", "", []string{"RateLimit", `"a";r=1000000000000000;t=30`}, nil},
		{"an inner list", "", []string{"RateLimit", `("a" "b");r=50;t=30`}, nil},
		{"nothing", "", nil, nil},
		{"an empty field", "", []string{"RateLimit", ""}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireQuota(t, c.want, feedback.RateLimit{Name: c.policy}.Left, answer(200, "", c.fields...))
		})
	}
	t.Run("a trailer", func(t *testing.T) {
		resp := answer(200, "")
		resp.Trailer = answer(200, "", "RateLimit", `"default";r=50;t=30`).Header
		requireQuota(t, nil, feedback.RateLimit{}.Left, resp)
	})
	t.Run("Atlassian: a prefix", func(t *testing.T) {
		resp := answer(200, "", "Beta-RateLimit", `"global-app-quota";r=11000`,
			"Beta-RateLimit-Policy", `"global-app-quota";q=65000;w=3600`)
		requireQuota(t, left(11000, time.Second), feedback.RateLimit{Prefix: "Beta-"}.Left, resp)
		requireQuota(t, nil, feedback.RateLimit{}.Left, resp)
	})
}

func TestRateLimitOfOlderDrafts(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []string
		want   *throttle.Quota
	}{
		{"-07: a dictionary", []string{"RateLimit", "limit=100, remaining=50, reset=50"}, left(50, 50*time.Second)},
		{"-07: in two lines", []string{"RateLimit", "limit=100", "RateLimit", "remaining=50, reset=50"}, left(50, 50*time.Second)},
		{"-07: with policies", []string{"RateLimit", "limit=100, remaining=50, reset=50",
			"RateLimit-Policy", "100;w=60, 10000;w=86400"}, left(50, 50*time.Second)},
		{"-07: nothing left to say", []string{"RateLimit", "limit=100"}, nil},
		{"-07: a decimal", []string{"RateLimit", "limit=100, remaining=5.0, reset=50"}, nil},
		{"-07: negative", []string{"RateLimit", "limit=100, remaining=-5, reset=50"}, nil},
		{"-06: three fields", []string{"RateLimit-Limit", "100", "RateLimit-Remaining", "50", "RateLimit-Reset", "50"},
			left(50, 50*time.Second)},
		{"-06: with a policy", []string{"RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "50",
			"RateLimit-Reset", "50", "RateLimit-Policy", "100;w=60"}, left(50, 50*time.Second)},
		{"-06: no reset", []string{"RateLimit-Remaining", "50"}, nil},
		{"the newest counts", []string{"RateLimit", `"a";r=7;t=3`, "RateLimit-Remaining", "50", "RateLimit-Reset", "50"},
			left(7, 3*time.Second)},
		{"unless it is malformed", []string{"RateLimit", `"a";r=7;t=`, "RateLimit-Remaining", "50", "RateLimit-Reset", "50"},
			left(50, 50*time.Second)},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireQuota(t, c.want, feedback.RateLimit{}.Left, answer(200, "", c.fields...))
			requireQuota(t, nil, feedback.RateLimit{Name: "b"}.Left, answer(200, "", c.fields...)) // there were no names
		})
	}
}

func TestPenaltiesOfRateLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		fields []string
		want   time.Duration
	}{
		{"nothing left", 429, []string{"RateLimit", `"default";r=0;t=30`}, 30 * time.Second},
		{"without t, for the window", 429, []string{"RateLimit", `"default";r=0`, "RateLimit-Policy", `"default";q=9;w=60`}, time.Minute},
		{"nothing left for the next", 200, []string{"RateLimit", `"default";r=0;t=30`}, 0},
		{"some left", 429, []string{"RateLimit", `"default";r=1;t=30`}, 0},
		{"nothing said", 429, nil, 0},
		{"Retry-After wins", 429, []string{"RateLimit", `"default";r=0;t=30`, "Retry-After", "2"}, 2 * time.Second},
		{"longer, too", 503, []string{"RateLimit", `"default";r=0;t=30`, "Retry-After", "90"}, 90 * time.Second},
		{"some left, of a limit that has not refused", 429, []string{"RateLimit", `"default";r=1;t=30`, "Retry-After", "7"}, 7 * time.Second},
		{"some left of a 403", 403, []string{"RateLimit", `"default";r=1;t=30`, "Retry-After", "7"}, 0},
		{"malformed", 429, []string{"RateLimit", `"default";r=`, "Retry-After", "7"}, 7 * time.Second},
		{"nothing left and nothing else said", 429, []string{"RateLimit", `"default";r=0`}, time.Second},
		{"nothing left, and more now", 429, []string{"RateLimit", `"default";r=0;t=0`}, time.Second},
		{"the least of two without a time", 429, []string{"RateLimit", `"a";r=5;t=60, "b";r=0`}, time.Second},
		{"a dictionary without a time", 429, []string{"RateLimit", `limit=9, remaining=0`}, time.Second},
		{"old fields without a time", 429, []string{"RateLimit-Remaining", "0"}, time.Second},
		{"old fields of another limit", 429, []string{"RateLimit-Remaining", "9", "RateLimit-Reset", "9", "Retry-After", "7"}, 7 * time.Second},
		{"Retry-After alone", 429, []string{"Retry-After", "7"}, 7 * time.Second},
		{"Retry-After out of a cache", 429, []string{"Retry-After", "7", "Age", "7"}, 7 * time.Second},
		{"not where it says when to follow", 303, []string{"RateLimit", `"default";r=0;t=30`, "Retry-After", "90"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireCloses(t, c.want, feedback.RateLimit{}.Answer(answer(c.status, "", c.fields...)))
		})
	}
}
