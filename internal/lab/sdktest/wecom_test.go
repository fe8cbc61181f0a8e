package sdktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/silenceper/wechat/v2"
	"github.com/silenceper/wechat/v2/cache"
	"github.com/silenceper/wechat/v2/util"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/wecom"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeWeCom(store throttle.Store, base http.RoundTripper) *wechat.Wechat {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: store,
		Policies: wecom.Policies(wecom.Options{
			Company: "ww-corp", App: "1000002", // if several companies or applications share the store
		}),
		MaxWait: 10 * time.Minute, // the token stands in the URL, and is good for 25 minutes at least
		Base:    base,             // leave it out in a program
	}))
	sdk := wechat.NewWechat()
	sdk.SetHTTPClient(retry.NewClient(transport).StandardClient()) // the SDK has one for the process
	sdk.SetCache(cache.NewMemory())
	return sdk // GetWork returns what calls for a company and an application
}

// wecomPlatform counts the records of attendance of a company by the minute.
func wecomPlatform() platform {
	const api = "/cgi-bin/checkin/getcheckindata"
	asks := func(c *call) string {
		if c.URL.Path == api {
			return api
		}
		return ""
	}
	refused := func(body string) func(*call, time.Duration) reply {
		return func(*call, time.Duration) reply { return ok(body) }
	}
	return platform{
		limits: func(c *call) []limit {
			if asks(c) == "" {
				return nil
			}
			return []limit{{budget: api, n: 600, per: time.Minute, cost: 1}}
		},
		scopes: func(c *call) []string { return []string{c.URL.Path} },
		refusals: []refusal{
			{name: "45009", closes: asks, lasts: time.Minute, reply: refused(`{"errcode":45009,"errmsg":"api freq out of limit, hint: [1635043469_160_1ea1b1d99cd2c82ebf782c0c06a61af4], from ip: 192.0.2.1, more info at https://open.work.weixin.qq.com/devtool/query?e=45009"}`)},
			{name: "45033", closes: asks, lasts: time.Second, reply: refused(`{"errcode":45033,"errmsg":"api concurrency out of limit"}`)},
		},
		answer: func(c *call) reply {
			if c.URL.Path == "/cgi-bin/gettoken" {
				return ok(`{"errcode":0,"errmsg":"ok","access_token":"t-token","expires_in":7200}`)
			}
			var about struct{ UserIDList []string }
			if json.Unmarshal(c.body, &about) != nil || len(about.UserIDList) != 1 || c.URL.Query().Get("access_token") != "t-token" {
				return ok(`{"errcode":40014,"errmsg":"invalid access_token"}`)
			}
			c.do(about.UserIDList[0])
			return ok(`{"errcode":0,"errmsg":"ok","checkindata":[{"userid":"` + about.UserIDList[0] + `"}]}`)
		},
	}
}

// TestWeCom has one program, and no other test beside it: the SDK has one client for a
// process.
func TestWeCom(t *testing.T) {
	defer func(client *http.Client) { util.DefaultHTTPClient = client }(util.DefaultHTTPClient)
	playAlone(t, wecomPlatform(), func(t *testing.T, u *upstream) {
		sdk := recipeWeCom(memstore.New(), u.base())
		company := newConfig(sdk.GetWork)
		company.CorpID, company.CorpSecret, company.AgentID = "ww-corp", "secret", "1000002"
		records := sdk.GetWork(company).GetCheckin()
		ask := func(_, i int) error {
			id := fmt.Sprint("member-", i)
			about := newRequest(records.GetCheckinData)
			about.UserIDList = []string{id}
			got, err := records.GetCheckinData(about)
			if err == nil {
				require.Equal(t, id, got.CheckinData[0].UserID)
			}
			return err
		}
		u.calls(0, 1, 1, ask) // has the token: the SDK holds a mutex while it gets one, for which no virtual time passes
		u.calls(1, 600, 24, ask)
		u.requireUsed("/cgi-bin/checkin/getcheckindata", time.Minute)

		u.refuse(150)
		u.calls(601, 599, 24, ask)
		for i := range 1200 {
			u.requireOnce(fmt.Sprint("member-", i))
		}
	})
}

// newConfig returns an empty configuration for what the SDK makes of one.
func newConfig[C, V any](func(*C) V) *C { return new(C) }

// newRequest returns an empty request for a method of the SDK.
func newRequest[R, A any](func(*R) (A, error)) *R { return new(R) }
