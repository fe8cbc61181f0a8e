package waitapi_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// TestPermit: what a permit is for, from beginning to end.
func TestPermit(t *testing.T) {
	play(t, nil, "p: 5/h, q: 1 in flight", func(s *scene) {
		a := s.do("acquire", `{"demands": [{"policy": "p", "cost": 3}, {"policy": "q"}]}`)
		require.Equal(s, 200, a.Code, a.Text)
		require.Equal(s, []any{0.0, 60.0, ""}, []any{a.Waited, a.Lifetime, a.Policy})
		require.Equal(s, 204, s.do("settle", named(a, `"cost": 2`)).Code)
		require.Equal(s, 2, s.used("p", ""))
		b := s.later(s.Context(), "acquire", want("q"))
		time.Sleep(2 * time.Second)
		require.Equal(s, 204, s.do("release", named(a)).Code)
		got := <-b
		require.Equal(s, []any{200, 2.0, "q"}, []any{got.Code, got.Waited, got.Policy}, "the slot was free")
		require.Equal(s, 204, s.do("release", named(a)).Code, "the first answer may have been lost")
		require.Equal(s, 1, s.used("q", ""), "it is not released twice")
		for path, field := range map[string]string{"settle": `"cost": 1`, "penalize": `"duration": 1`} {
			gone := s.do(path, named(a, field))
			require.Equal(s, []any{410, "the permit was released"}, []any{gone.Code, gone.Detail})
		}
		for _, unknown := range []string{"", "x", a.Permit + "x", "A" + a.Permit[1:], "B" + a.Permit[1:]} {
			if unknown != a.Permit {
				a := s.do("release", `{"permit": "`+unknown+`"}`)
				require.Equal(s, 404, a.Code)
				require.Contains(s, a.Detail, "no permit of this name")
			}
		}
		require.Equal(s, 2, s.used("p", ""), "what started stays charged")
	})
}

// TestExpiry: a permit that nobody releases holds nothing for ever.
func TestExpiry(t *testing.T) {
	play(t, func(c *waitapi.Config) { c.MaxLifetime = 2 * time.Minute }, "p: 2/h, q: 2 in flight", func(s *scene) {
		a := s.do("acquire", want("p", "q"))
		b := s.do("acquire", `{"demands": [{"policy": "q"}], "lifetime": 120}`)
		require.Equal(s, 120.0, b.Lifetime)
		c := <-s.later(s.Context(), "acquire", want("q"))
		require.Equal(s, []any{200, 60.0, "q"}, []any{c.Code, c.Waited, c.Policy})
		require.Equal(s, 1, s.used("p", ""), "its start stays charged")
		for path, field := range map[string]string{"release": `"permit": "` + a.Permit + `"`, "settle": `"cost": 1`, "penalize": `"duration": 1`} {
			body := named(a, field)
			if path == "release" {
				body = "{" + field + "}"
			}
			gone := s.do(path, body)
			require.Equal(s, []any{410, "the permit has expired, or was released"}, []any{gone.Code, gone.Detail})
		}
		require.Equal(s, 204, s.do("release", named(b)).Code)
		long := s.do("acquire", `{"demands": [{"policy": "p"}], "lifetime": 121}`)
		require.Equal(s, 400, long.Code)
		require.Equal(s, "is not a number of seconds from 0.001 to 120", long.Errors[0].Detail)
	})
}

// TestRefused: what cannot fit is refused at once.
func TestRefused(t *testing.T) {
	play(t, nil, "p: 1/100s, q: 1 in flight", func(s *scene) {
		require.Equal(s, 200, s.do("acquire", want("p", "q")).Code)
		for body, after := range map[string]string{
			want("p"): "101", // with its jitter
			`{"demands": [{"policy": "q"}], "wait": 0}`:                "1", // nobody knows when
			`{"demands": [{"policy": "p", "cost": 2}]}`:                "",  // never
			`{"demands": [{"policy": "p"}, {"policy": "q"}]}`:          "101",
			`{"demands": [{"policy": "p"}], "wait": 86400}`:            "101", // the server's bound holds
			`{"demands": [{"policy": "q"}], "wait": 0, "lifetime": 1}`: "1",
		} {
			began := time.Now()
			a := s.do("acquire", body)
			require.Equal(s, []any{429, after}, []any{a.Code, a.Get("Retry-After")}, body)
			require.NotEmpty(s, a.Policy)
			require.Zero(s, time.Since(began))
		}
		require.Equal(s, 1, s.used("p", ""), "nothing was spent")
	})
}

// TestWaitBound: the smallest of three bounds counts.
func TestWaitBound(t *testing.T) {
	play(t, func(c *waitapi.Config) { c.Lifetime = time.Hour }, "q: 1 in flight", func(s *scene) {
		require.Equal(s, 200, s.do("acquire", want("q")).Code)
		for _, c := range []struct {
			header, field string
			wait          time.Duration
		}{
			{"X: y", "", 90 * time.Second}, {"Prefer: wait=7", "", 7 * time.Second}, {"Prefer: wait=600", "", 90 * time.Second}, {"X: y", `, "wait": 0.25`, 250 * time.Millisecond},
			{"Prefer: wait=7", `, "wait": 3`, 3 * time.Second}, {"Prefer: wait=7", `, "wait": 9`, 7 * time.Second}, {"Prefer: wait=7", `, "wait": 0`, 0}, {"Prefer: wait=0", `, "wait": 5`, 0},
		} {
			began := time.Now()
			require.Equal(s, 429, s.do("acquire", `{"demands": [{"policy": "q"}]`+c.field+`}`, c.header).Code)
			require.Equal(s, c.wait, time.Since(began), "%v", c)
		}
	})
}

// TestPriority: a caller of high priority goes before those that came first.
func TestPriority(t *testing.T) {
	play(t, nil, "p: 1/10s", func(s *scene) {
		s.do("acquire", want("p"))
		var order []<-chan answer
		for _, c := range []struct{ field, header string }{{`, "priority": "low"`, "X: y"}, {"", "X: y"}, {`, "priority": "normal"`, "Priority: u=0"}, {"", "Priority: u=0"}, {`, "priority": "high"`, "Priority: u=7"}} {
			order = append(order, s.later(s.Context(), "acquire", `{"demands": [{"policy": "p"}]`+c.field+`}`, c.header))
		}
		var last float64
		for _, i := range []int{3, 4, 1, 2, 0} {
			a := <-order[i]
			require.Equal(s, 200, a.Code)
			require.Greater(s, a.Waited, last)
			last = a.Waited
		}
	})
}

// TestPenalize: a refusal that is told closes the budgets of all callers.
func TestPenalize(t *testing.T) {
	play(t, nil, "p by key: 100/h, q: 100/h", func(s *scene) {
		a := s.do("acquire", `{"demands": [{"policy": "p", "key": "`+secret+`"}, {"policy": "q", "free": true}]}`)
		require.Equal(s, 200, a.Code)
		require.Equal(s, 400, s.do("penalize", named(a, `"duration": 30, "policies": ["r"]`)).Code)
		require.Equal(s, 204, s.do("penalize", named(a, `"duration": 100, "policies": ["q"]`)).Code)
		refused := s.do("acquire", want("q"))
		require.Equal(s, []any{429, "100", "q"}, []any{refused.Code, refused.Get("Retry-After"), refused.Policy})
		require.Equal(s, 200, s.do("acquire", `{"demands": [{"policy": "p", "key": "other"}]}`).Code)
		require.Equal(s, 204, s.do("penalize", named(a, `"duration": 30`)).Code)
		b := s.do("acquire", `{"demands": [{"policy": "p", "key": "`+secret+`"}]}`)
		require.Equal(s, []any{200, 30.0, "p"}, []any{b.Code, b.Waited, b.Policy})
		require.Equal(s, 0, s.used("q", ""))
	})
}

// TestKeysOfDemands: a key for a policy without keys, and none for one with keys, is the caller's mistake.
func TestKeysOfDemands(t *testing.T) {
	play(t, nil, "p by key: 100/h, q: 100/h", func(s *scene) {
		for body, text := range map[string]string{
			want("p"): "Key: is missing: the policy has a budget for each key, so name the key",
			`{"demands": [{"policy": "p", "key": "a"}, {"policy": "q", "key": "a"}]}`: "Key: is named, but the policy has one budget for all",
		} {
			a := s.do("acquire", body)
			require.Equal(s, 400, a.Code)
			require.Contains(s, a.Detail, text)
		}
		require.Equal(s, []int{0, 0}, []int{s.used("p", "a"), s.used("q", "")})
	})
}

// TestPenaltyIsBounded: a caller closes budgets no longer than the program allows, or not at all.
func TestPenaltyIsBounded(t *testing.T) {
	for _, c := range []struct {
		max    time.Duration
		code   int
		closed time.Duration
	}{
		{0, 204, time.Hour},
		{time.Minute, 204, time.Minute},
		{-1, 403, 0},
	} {
		play(t, func(config *waitapi.Config) { config.MaxPenalty = c.max }, "p: 100/h", func(s *scene) {
			a := s.do("acquire", want("p"))
			told := s.do("penalize", named(a, `"duration": 86400`))
			require.Equal(s, c.code, told.Code)
			require.Equal(s, c.closed, s.status("p", "").Paused)
			if c.code == 403 {
				require.Equal(s, "callers of this process may not close budgets", told.Detail)
			}
		})
	}
}

// TestSettleIsBounded: a cost that nobody could have had is charged as the whole limit.
func TestSettleIsBounded(t *testing.T) {
	play(t, nil, "p: 100/h, b: 5/s burst 3, q: 7 in flight", func(s *scene) {
		a := s.do("acquire", want("p", "q"))
		for _, budget := range []string{"", `, "policy": "p"`} {
			require.Equal(s, 204, s.do("settle", named(a, `"cost": 99`+budget)).Code)
			require.Equal(s, 99, s.used("p", ""))
			require.Equal(s, 204, s.do("settle", named(a, `"cost": 2147483647`+budget)).Code)
			require.Equal(s, []int{100, 1}, []int{s.used("p", ""), s.used("q", "")})
		}

		b := s.do("acquire", want("b"))
		require.Equal(s, 204, s.do("settle", named(b, `"cost": 2147483647`)).Code)
		again := <-s.later(s.Context(), "acquire", want("b"))
		require.Equal(s, 200, again.Code)
		require.Less(s, again.Waited, 1.1, "a bucket owes no more than flows in its time")
	})
}

// TestSettleOneOfSeveral: the caller says which cost is meant.
func TestSettleOneOfSeveral(t *testing.T) {
	play(t, nil, "p by key: 100/h, q: 100/h", func(s *scene) {
		a := s.do("acquire", `{"demands": [{"policy": "p", "key": "`+secret+`", "cost": 5}, {"policy": "q", "cost": 5}]}`)
		for body, code := range map[string]int{
			`"cost": 7`:                                         400,
			`"cost": 7, "policy": "r"`:                          400,
			`"cost": 7, "policy": "p"`:                          400,
			`"cost": 7, "key": "x"`:                             400,
			`"cost": -1, "policy": "q"`:                         400,
			`"cost": 7, "policy": "q"`:                          204,
			`"cost": 3, "policy": "p", "key": "` + secret + `"`: 204,
		} {
			require.Equal(s, code, s.do("settle", named(a, body)).Code, body)
		}
		require.Equal(s, []int{3, 7}, []int{s.used("p", secret), s.used("q", "")})
	})
}

// TestMistakes: all mistakes of a body are told at once, and what it repeats of it are names of fields.
func TestMistakes(t *testing.T) {
	play(t, nil, "p: 100/h", func(s *scene) {
		for body, want := range map[string]string{
			``: "# is not one JSON value in UTF-8", `{`: "# is not one JSON value in UTF-8", `{} {}`: "# is not one JSON value in UTF-8", "\"\xff\"": "# is not one JSON value in UTF-8",
			`[]`: "# is not an object", `"a"`: "# is not an object", `null`: "# is not an object",
			`{}`:                               "#/demands is missing",
			`{"demands": [], "Wait": 1}`:       "#/demands has 0 elements: use 1 to 32 | #/Wait is not known",
			`{"demands": {}, "demands": []}`:   "#/demands is not a list | #/demands is there twice",
			`{"demands": [null], "wait": "1"}`: "#/demands/0 is not an object | #/wait is not a number of seconds from 0 to 86400",
			`{"demands": [{"policy": "` + secret + `", "cost": 0}, {"policy": 1, "free": 1}, {"policy": "p", "cost": 1.5, "key": 7}, {"policy": "p", "cost": 1, "free": true}, {}], "priority": "` + secret + `", "lifetime": -1, "a/b~c d": null, "wait": null}`: "#/demands/0/policy is no policy here | #/demands/0/cost is not an integer of 1 or more | #/demands/1/policy is no policy here | #/demands/1/free is not true or false | " +
				"#/demands/2/cost is not an integer of 1 or more | #/demands/2/key is not a string | #/demands/3/cost is set for free work: leave one out | #/demands/4/policy is missing | " +
				"#/priority is not low, normal or high | #/lifetime is not a number of seconds from 0.001 to 3600 | #/a~1b~0c%20d is not known | #/wait is null: leave it out",
			`{"demands": [` + strings.Repeat(`{"policy": "p"},`, 32) + `{"policy": "p"}]}`: "#/demands has 33 elements: use 1 to 32",
		} {
			a := s.do("acquire", body)
			require.Equal(s, 400, a.Code, body)
			var got []string
			for _, e := range a.Errors {
				got = append(got, e.Pointer+" "+e.Detail)
			}
			require.Equal(s, want, strings.Join(got, " | "), body)
			require.Contains(s, a.Detail, "the body has a mistake: "+got[0])
		}
		for body, path := range map[string]string{`{"permit": 1}`: "release", `{"cost": "1"}`: "settle", `{"permit": "", "duration": 0}`: "penalize", `{"permit": "", "duration": 86401, "policies": [1]}`: "penalize"} {
			a := s.do(path, body)
			require.Equal(s, 400, a.Code)
			require.Len(s, a.Errors, 1+strings.Count(body, `"cost"`)+strings.Count(body, `"policies"`), a.Text)
		}
		require.Zero(s, s.used("p", ""))
	})
}

// TestForms: methods, paths and types that are none of the API.
func TestForms(t *testing.T) {
	play(t, nil, "p: 100/h", func(s *scene) {
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", "text/plain; application/json", ";"} {
			r := httptest.NewRequest("POST", "/v1/acquire", strings.NewReader(want("p")))
			r.Header.Set("Content-Type", kind)
			w := httptest.NewRecorder()
			s.h.ServeHTTP(w, r)
			require.Equal(s, 415, w.Code, kind)
		}
		for _, c := range []struct {
			method, path string
			code         int
			allow        string
		}{
			{"GET", "/v1/acquire", 405, "POST"}, {"PUT", "/v1/release", 405, "POST"}, {"OPTIONS", "/v1/settle", 405, "POST"}, {"HEAD", "/v1/penalize", 405, "POST"}, {"POST", "/v1/openapi.yaml", 405, "GET, HEAD"},
			{"GET", "/v1/", 404, ""}, {"POST", "/v1/acquire/", 404, ""}, {"POST", "/acquire", 404, ""}, {"GET", "/v1/openapi.yaml", 200, ""}, {"HEAD", "/v1/openapi.yaml", 200, ""},
		} {
			w := httptest.NewRecorder()
			s.h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
			require.Equal(s, []any{c.code, c.allow}, []any{w.Code, w.Header().Get("Allow")}, "%v", c)
		}
		require.Equal(s, 200, s.do("acquire", want("p"), "Content-Type: application/json; charset=utf-8").Code)
		require.Equal(s, 413, s.do("acquire", strings.Repeat(" ", 64<<10)+want("p")).Code)
	})
}

// TestBounds: callers and permits are bounded.
func TestBounds(t *testing.T) {
	play(t, func(c *waitapi.Config) { c.Held, c.Permits = 2, 3 }, "p: 100/h, q: 1 in flight", func(s *scene) {
		q := s.do("acquire", want("q"))
		a, b := s.later(s.Context(), "acquire", want("q")), s.later(s.Context(), "acquire", want("q"))
		full := s.do("acquire", want("p"))
		require.Equal(s, []any{503, "1", "too many callers wait in this process"}, []any{full.Code, full.Get("Retry-After"), full.Detail})
		require.Equal(s, 204, s.do("release", named(q)).Code, "a permit is released all the same")
		q = <-a
		require.Equal(s, 200, s.do("acquire", want("p")).Code)
		full = s.do("acquire", want("p"))
		require.Equal(s, []any{503, "1", "too many permits are neither released nor expired"}, []any{full.Code, full.Get("Retry-After"), full.Detail})
		require.Equal(s, 204, s.do("release", named(q)).Code)
		require.Equal(s, 200, s.do("acquire", want("p")).Code)
		require.Equal(s, 200, (<-b).Code)
		time.Sleep(time.Hour)
		for range 3 {
			require.Equal(s, 200, s.do("acquire", want("p")).Code, "all have expired")
		}
	})
}

// TestClose: callers that wait are refused, permits are released, and nothing is acquired any more.
func TestClose(t *testing.T) {
	play(t, nil, "q: 1 in flight", func(s *scene) {
		a := s.do("acquire", want("q"), "Idempotency-Key: k")
		waiting := s.later(s.Context(), "acquire", want("q"))
		require.NoError(s, s.h.Close(s.Context()))
		for _, refused := range []answer{<-waiting, s.do("acquire", want("q"))} {
			require.Equal(s, []any{503, "1", "this process ends"}, []any{refused.Code, refused.Get("Retry-After"), refused.Detail})
		}
		require.Zero(s, s.used("q", ""))
		require.Equal(s, 204, s.do("release", named(a)).Code)
	})
}

// TestReload: a caller whose policy is gone is told so, and permits of the old policies go on.
func TestReload(t *testing.T) {
	play(t, nil, "p: 100/h, q: 1 in flight", func(s *scene) {
		a := s.do("acquire", want("q"))
		waiting := s.later(s.Context(), "acquire", want("q"))
		require.NoError(s, s.limiters.SetPolicies([]throttle.Policy{{Name: "new", Limit: throttle.PerHour(1)}}))
		gone := <-waiting
		require.Equal(s, []any{400, "q"}, []any{gone.Code, gone.Policy})
		require.Equal(s, 200, s.do("acquire", want("new")).Code)
		require.Equal(s, 204, s.do("release", named(a)).Code)
	})
}

// TestConfig: what makes no sense is refused.
func TestConfig(t *testing.T) {
	limiters := new(throttle.Limiters)
	for _, c := range []waitapi.Config{{}, {Limiters: limiters, Held: -1}, {Limiters: limiters, Permits: -1}, {Limiters: limiters, Lifetime: -1}, {Limiters: limiters, MaxLifetime: -1}, {Limiters: limiters, Lifetime: 2, MaxLifetime: 1}, {Limiters: limiters, MaxPenalty: throttle.MaxPenalty + 1}} {
		_, err := waitapi.New(c)
		require.Error(t, err, fmt.Sprint(c))
	}
	_, err := waitapi.New(waitapi.Config{Held: -1, Permits: -1, Lifetime: -1, MaxLifetime: -1})
	for _, field := range []string{"Limiters", "Held", "Permits", "Lifetime", "MaxLifetime"} {
		require.ErrorContains(t, err, "waitapi: Config."+field+" is", "all mistakes at once")
	}
	for _, c := range []struct{ lifetime, most, want time.Duration }{{0, 0, time.Minute}, {0, time.Second, time.Second}, {2 * time.Hour, 0, 2 * time.Hour}, {time.Second, time.Second, time.Second}} {
		play(t, func(config *waitapi.Config) { config.Lifetime, config.MaxLifetime = c.lifetime, c.most }, "p: 1/h", func(s *scene) {
			require.Equal(s, c.want.Seconds(), s.do("acquire", want("p")).Lifetime)
		})
	}
}
