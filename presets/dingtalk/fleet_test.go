package dingtalk_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
	"github.com/fleetthrottle/throttle/retry"
)

// The APIs that a fleet calls, with limits of their own.
const (
	oldAPI = "/topapi/v2/department/listsub"
	newAPI = "/v1.0/contact/users/{unionId}"
)

// fleet has four nodes with 16 workers each make n calls of both APIs, and returns how
// long that took. No call may fail.
func fleet(t *testing.T, ding *dingtalktest.Server, o dingtalk.Options, n int) time.Duration {
	t.Helper()
	o.App = "dingabc"
	begin, store, todo := time.Now(), memstore.New(), make(chan bool)
	token := ding.Token(o.App)
	var working sync.WaitGroup
	for range 4 {
		transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: dingtalk.Policies(o), Base: ding})
		require.NoError(t, err)
		client := retry.NewClient(transport).StandardClient()
		for range 16 {
			working.Go(func() {
				for old := range todo {
					method, url, want := http.MethodGet, "https://api.dingtalk.com/v1.0/contact/users/7", `"nick"`
					if old {
						method, url, want = http.MethodPost, "https://oapi.dingtalk.com"+oldAPI+"?access_token="+token, `"errcode":0`
					}
					r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
					if err != nil {
						t.Error(err)
						continue
					}
					r.Header.Set("x-acs-dingtalk-access-token", token)
					resp, err := client.Do(r)
					if err != nil {
						t.Error(err)
						continue
					}
					body, err := io.ReadAll(resp.Body)
					if err != nil || !strings.Contains(string(body), want) {
						t.Error(string(body), err)
					}
				}
			})
		}
	}
	for i := range 2 * n {
		todo <- i%2 == 0
	}
	close(todo)
	working.Wait()
	return time.Since(begin)
}

// TestFleetKeepsWithinEveryLimit: nothing is refused, and little of the quota is left, however
// DingTalk counts.
func TestFleetKeepsWithinEveryLimit(t *testing.T) {
	soak.Only(t)
	for _, edition := range []dingtalk.Edition{dingtalk.Standard, dingtalk.Professional, dingtalk.Exclusive} {
		for name, o := range map[string]dingtalktest.Options{
			"any second":          {},
			"clock seconds":       {FixedWindows: true},
			"refused calls count": {CountRefused: true},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o.Edition = edition
					ding := dingtalktest.New(o)
					took := fleet(t, ding, dingtalk.Options{Edition: edition}, 20*edition.PerSecond)
					require.Empty(t, ding.Refusals())
					require.Equal(t, edition.PerSecond, ding.Most(oldAPI, time.Second), "nearly all, and never more")
					require.Equal(t, edition.PerSecond, ding.Most(newAPI, time.Second))
					// Of 96.6 % that the jitter leaves, a short job loses up to 0.95 s to
					// the pace of the line: 19 of 20.6 s are 92 %.
					require.GreaterOrEqual(t, took, 19*time.Second)
					require.Less(t, took, 21*time.Second)
				})
			})
		}
	}
}

// TestCrowdedAPIIsTriedAgain: others use what the application could.
func TestCrowdedAPIIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ding := dingtalktest.New(dingtalktest.Options{PerAPI: 19}) // one less than the application may
		fleet(t, ding, dingtalk.Options{}, 100)
		require.Positive(t, ding.Refusals()["90002"])
		require.Len(t, ding.Refusals(), 1)
	})
}

// TestFleetWaitsForTheEndOfABan: an outsider gets the address banned, whatever the ban then looks
// like. All stop, and all come back.
func TestFleetWaitsForTheEndOfABan(t *testing.T) {
	answers := func(status int, media, body string) dingtalktest.Options {
		return dingtalktest.Options{BanAnswer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}}
	}
	for name, o := range map[string]dingtalktest.Options{
		"as documented":    {},
		"short":            {Ban: 2 * time.Second},
		"page":             answers(200, "text/html; charset=utf-8", "<!DOCTYPE html><html><body>deny</body></html>"),
		"forbidden":        answers(403, "application/json", denied),
		"called a page":    answers(200, "text/html", denied),
		"called a text":    answers(200, "text/plain", denied),
		"without a length": answers(200, "application/json", `{"status":1111,"source":"x5","punish":"deny"}`),
		"prolonged":        {BanProlongs: true},
		"clock windows":    {FixedWindows: true},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "as documented" {
				soak.Only(t)
			}
			synctest.Test(t, func(t *testing.T) {
				o.IPLimit = 1000 // of which the fleet needs 300
				ding := dingtalktest.New(o)
				time.AfterFunc(3500*time.Millisecond, func() {
					for client := (&http.Client{Transport: ding}); ding.Bans() == 0; {
						resp, err := client.Get("https://oapi.dingtalk.com/outsider")
						if err == nil {
							resp.Body.Close()
						}
					}
				})
				ban := 5 * time.Minute
				if o.Ban > 0 {
					ban = o.Ban
				}
				took := fleet(t, ding, dingtalk.Options{Ban: o.Ban}, 150)
				require.Equal(t, 1, ding.Bans())
				refused := ding.Refusals()
				delete(refused, "unknown") // the outsider's
				refused[dingtalktest.Banned]--
				require.Len(t, refused, 1)
				require.LessOrEqual(t, refused[dingtalktest.Banned], 2, "those that were on their way")
				require.LessOrEqual(t, ding.Most(oldAPI, time.Second), 20, "not one too many, afterwards either")
				require.Greater(t, took, ban)
				require.Less(t, took, ban+12*time.Second, "no more than the ban was lost")
			})
		})
	}
}
