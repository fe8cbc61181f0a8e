package sdktest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/silenceper/wechat/v2/cache"
	"github.com/silenceper/wechat/v2/officialaccount"
	"github.com/silenceper/wechat/v2/officialaccount/config"
	"github.com/silenceper/wechat/v2/util"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/wechat"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeWeChat(store throttle.Store, base http.RoundTripper) *officialaccount.OfficialAccount {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: store,
		Policies: wechat.Policies(wechat.Options{
			Account:   "wx-app-id", // if several accounts share the store
			PerMinute: map[string]int{"/cgi-bin/user/info": 600},
		}),
		MaxWait: 5 * time.Minute, // the token stands in the URL, and is old after two hours
		Base:    base,            // leave it out in a program
	}))
	util.DefaultHTTPClient = retry.NewClient(transport).StandardClient() // the SDK has one for the process
	return officialaccount.NewOfficialAccount(&config.Config{AppID: "wx-app-id", AppSecret: "secret", Cache: cache.NewMemory()})
}

// wechatPlatform counts an API by the minute of the clock. While full says so, the
// day's calls are used up.
func wechatPlatform(full *bool) platform {
	const api = "/cgi-bin/user/info"
	asks := func(c *call) string {
		if c.URL.Path == api {
			return api
		}
		return ""
	}
	return platform{
		limits: func(c *call) []limit {
			if asks(c) == "" {
				return nil
			}
			return []limit{{budget: api, n: 600, per: time.Minute, kind: clock, cost: 1}}
		},
		scopes: func(c *call) []string { return []string{c.URL.Path} },
		refusals: []refusal{{name: "45011", closes: asks, lasts: time.Minute, reply: func(*call, time.Duration) reply {
			return ok(`{"errcode":45011,"errmsg":"api minute-quota reach limit, must slower, retry next minute rid: 6030bb31-0fd82252-5e3db6fd"}`)
		}}},
		answer: func(c *call) reply {
			switch {
			case c.URL.Path == "/cgi-bin/token":
				return ok(`{"access_token":"t-token","expires_in":7200}`)
			case c.URL.Query().Get("access_token") != "t-token":
				return ok(`{"errcode":40001,"errmsg":"invalid credential"}`)
			case *full:
				c.do("refused for the day")
				return ok(`{"errcode":45009,"errmsg":"reach max api daily quota limit rid: 647ed01a-6e0a6ea1-26ef8485"}`)
			}
			user := c.URL.Query().Get("openid")
			c.do(user)
			return ok(`{"subscribe":1,"openid":"` + user + `"}`)
		},
	}
}

// TestWeChat has one program: the SDK has one client for a process.
func TestWeChat(t *testing.T) {
	full := false
	play(t, wechatPlatform(&full), func(t *testing.T, u *upstream) {
		users := recipeWeChat(memstore.New(), u.base()).GetUser()
		ask := func(_, i int) error {
			id := fmt.Sprint("user-", i)
			user, err := users.GetUserInfo(id)
			if err == nil {
				require.Equal(t, id, user.OpenID)
			}
			return err
		}
		u.calls(0, 1, 1, ask) // has the token: the SDK holds a mutex while it gets one, for which no virtual time passes
		u.calls(1, 600, 24, ask)
		u.requireUsed("/cgi-bin/user/info", time.Minute)

		u.refuse(250)
		u.calls(601, 599, 24, ask)
		for i := range 1200 {
			u.requireOnce(fmt.Sprint("user-", i))
		}
		u.refuse(0)

		set := func(used bool) {
			u.mu.Lock()
			defer u.mu.Unlock()
			full = used
		}
		set(true)
		require.ErrorIs(t, ask(0, 1200), throttle.ErrLimited, "it is refused, and its repetition is not sent")
		require.ErrorIs(t, ask(0, 1201), throttle.ErrLimited)
		u.requireOnce("refused for the day")

		set(false)
		require.Equal(t, "2000-01-01", time.Now().UTC().Format(time.DateOnly))
		time.Sleep(time.Until(time.Date(2000, 1, 1, 16, 0, 0, 0, time.UTC))) // midnight in Beijing
		require.NoError(t, ask(0, 1202))
		require.True(t, strings.HasPrefix(time.Now().UTC().Format(time.TimeOnly), "16:00:0"), "no later than that")
	})
}
