package wechat_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/wechat"
)

type header = presettest.Header

const (
	qrCode   = "POST https://api.weixin.qq.com/cgi-bin/qrcode/create?access_token=t"
	users    = "https://api.weixin.qq.com/cgi-bin/user/get?access_token=t"
	template = "POST https://api.weixin.qq.com/cgi-bin/message/template/send?access_token=t"
	datacube = "POST https://api.weixin.qq.com/datacube/getusersummary?access_token=t"
	login    = "https://api.weixin.qq.com/sns/oauth2/access_token?appid=wx&code=c"

	day    = `{"errcode":45009,"errmsg":"reach max api daily quota limit rid: 647ed01a-6e0a6ea1-26ef8485"}`
	minute = `{"errcode":45011,"errmsg":"api minute-quota reach limit, must slower, retry next minute rid: 6030bb31-0fd82252-5e3db6fd"}`
)

func TestRefusals(t *testing.T) {
	presettest.Run(t, wechat.Policies(wechat.Options{}), presettest.Case{Request: qrCode}, []presettest.Case{
		{Name: "the day, at ten in Beijing", Answers: day, Header: header{"Date": "Sat, 01 Jan 2000 02:00:00 GMT"}, Closes: "wechat-day 14h"},
		{Name: "the day, at one in Beijing", Answers: day, Header: header{"Date": "Fri, 31 Dec 1999 17:00:00 GMT"}, Closes: "wechat-day 23h"},
		{Name: "the day, in the documented words", Answers: `{"errcode":45009,"errmsg":"api freq out of limit"}`, Closes: "wechat-day 16h"},
		{Name: "the minute", Answers: minute, Closes: "wechat-minute 1m"},
		{Name: "an API without a number", Request: template, Answers: day, Closes: "wechat-day 16h"},
		{Name: "an API elsewhere", Request: datacube, Answers: day, Closes: "wechat-day 16h"},
		{Name: "a gateway", Status: 429, Header: header{"Retry-After": "7"}, Answers: "slow down", Closes: "wechat-minute 7s"},
		{Name: "a gateway in front of logins", Request: login, Status: 429, Header: header{"Retry-After": "7"}, Closes: "wechat-login 7s"},
		{Name: "the day, as text without a length", Chunked: true, Header: header{"Content-Type": "text/plain"}, Answers: day, Closes: "wechat-day 16h"},
		{Name: "the day, without a type or a length", Chunked: true, Answers: day, Closes: "wechat-day 16h"},
		{Name: "the minute, as a page without a length", Chunked: true, Header: header{"Content-Type": "text/html; charset=utf-8"}, Answers: minute, Closes: "wechat-minute 1m"},
		{Name: "as text", Header: header{"Content-Type": "text/plain"}, Answers: minute, Closes: "wechat-minute 1m"},
	})
}

// TestGzip: net/http unpacks an answer in gzip, which then has no length.
func TestGzip(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(day))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(packed.Len()))
		_, _ = w.Write(packed.Bytes())
	}))
	defer upstream.Close()
	host := strings.TrimPrefix(upstream.URL, "http://")
	transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: wechat.Policies(wechat.Options{Host: host}), Base: upstream.Client().Transport})
	require.NoError(t, err)

	resp, err := transport.RoundTrip(presettest.Request(t, "POST http://"+host+"/cgi-bin/qrcode/create"))
	require.NoError(t, err)
	defer resp.Body.Close()

	require.Positive(t, throttle.AnswerOf(resp).Close)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, day, string(body))
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, wechat.Policies(wechat.Options{}), presettest.Case{Request: qrCode}, []presettest.Case{
		{Name: "success", Answers: `{"ticket":"gQH47joA","expire_seconds":60,"url":"http://weixin.qq.com/q/45009"}`},
		{Name: "success with a code", Answers: `{"errcode":0,"errmsg":"ok"}`},
		{Name: "busy", Answers: `{"errcode":-1,"errmsg":"system error"}`},
		{Name: "a token that is wrong", Answers: `{"errcode":40001,"errmsg":"invalid credential, access_token is invalid or not latest"}`},
		{Name: "too much in a message", Answers: `{"errcode":45002,"errmsg":"content size out of limit"}`},
		{Name: "too late to answer a user", Answers: `{"errcode":45015,"errmsg":"response out of time limit or subscription is canceled rid: 5f3ded7d-22929d02-4ba1f5f6"}`},
		{Name: "one user has had enough", Answers: `{"errcode":45047,"errmsg":"out of response count limit rid: 64a774ce-020c072d-6c820ec0"}`},
		{Name: "no more clearing", Answers: `{"errcode":48006,"errmsg":"forbid to clear quota because of reaching the limit"}`},
		{Name: "no permission", Answers: `{"errcode":48001,"errmsg":"api unauthorized"}`},
		{Name: "a user's login", Request: login, Answers: minute},
		{Name: "the code somewhere else", Answers: `{"errcode":0,"errmsg":"45009","quota":{"errcode":45009}}`},
		{Name: "a page", Status: 502, Header: header{"Content-Type": "text/html"}, Answers: "<html>45009</html>"},
		{Name: "a file", Request: "https://api.weixin.qq.com/cgi-bin/media/get?media_id=1", Header: header{"Content-Type": "image/jpeg"}, Answers: "\xff\xd8 45009"},
	})
}

func TestLimits(t *testing.T) {
	const refused = "wechat-day unlimited, wechat-minute unlimited, wechat-login unlimited, "
	limits := func(o wechat.Options) string { return presettest.Limits(wechat.Policies(o)) }
	require.Equal(t, refused+strings.Join([]string{
		"wechat-groups-create 100/day +08:00", "wechat-groups-get 100/day +08:00", "wechat-groups-members-update 1000/day +08:00",
		"wechat-groups-update 100/day +08:00", "wechat-media-get 1000/day +08:00", "wechat-media-upload 500/day +08:00",
		"wechat-menu-create 100/day +08:00", "wechat-menu-delete 100/day +08:00", "wechat-menu-get 1000/day +08:00",
		"wechat-message-custom-send 50000/day +08:00", "wechat-qrcode-create 10000/day +08:00", "wechat-stable_token 500000/day +08:00",
		"wechat-token 200/day +08:00", "wechat-user-get 100/day +08:00", "wechat-user-info 500000/day +08:00", "wechat-stable_token-minute 10000/m",
	}, ", "), limits(wechat.Options{Test: true}))
}

// TestOwnNumbers: an account's own numbers replace those of the table, add to them,
// and 0 takes one away.
func TestOwnNumbers(t *testing.T) {
	policies := wechat.Policies(wechat.Options{
		PerDay:    map[string]int{"/cgi-bin/user/get": 2_000, "/cgi-bin/message/template/send": 100_000, "/cgi-bin/qrcode/create": 0},
		PerMinute: map[string]int{"/datacube/getusersummary": 60},
	})
	limits := presettest.Limits(policies)
	require.Contains(t, limits, "wechat-user-get 2000/day +08:00")
	require.Contains(t, limits, "wechat-message-template-send 100000/day +08:00")
	require.Contains(t, limits, "wechat-datacube-getusersummary-minute 60/m")
	require.NotContains(t, limits, "wechat-qrcode-create")
	require.Equal(t, "wechat-day, wechat-minute, wechat-message-template-send", presettest.Rows(t, policies, presettest.Request(t, template)))

	published := presettest.Limits(wechat.Policies(wechat.Options{}))
	require.Contains(t, published, "wechat-user-get 500/day", "one table must not change the next")
}

func TestBudgets(t *testing.T) {
	policies := wechat.Policies(wechat.Options{Caller: throttle.Header("Account")})
	const refused = "wechat-day Account, wechat-minute Account"
	require.Equal(t, refused+", wechat-user-get Account", presettest.Splits(t, policies, users, "Account"))
	require.Equal(t, refused+", wechat-message-template-send Account", presettest.Splits(t, policies, template, "Account"))
	require.Equal(t, refused, presettest.Splits(t, policies, datacube, "Account"))

	request := func(line string) *http.Request { return presettest.Request(t, line) }
	require.False(t, presettest.Shared(t, policies, "wechat-day", request(users), request(template)), "another API")
	require.True(t, presettest.Shared(t, policies, "wechat-day", request(users), request(users+"&next_openid=o")), "the same API")

	a, b := wechat.Policies(wechat.Options{Account: "wx1"}), wechat.Policies(wechat.Options{Account: "wx2"})
	require.NotEqual(t, presettest.Budget(t, a, "wechat-day", request(users)), presettest.Budget(t, b, "wechat-day", request(users)))
}

// TestADayIsUsedUp: a caller with a deadline learns at once that no wait within it
// helps.
func TestADayIsUsedUp(t *testing.T) {
	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), MaxWait: time.Minute, Policies: wechat.Policies(wechat.Options{}),
		Base: presettest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, day)
			resp := w.Result()
			resp.Request = r
			return resp, nil
		})}))
	resp, err := transport.RoundTrip(presettest.Request(t, users))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	_, err = transport.RoundTrip(presettest.Request(t, users))
	var limited *throttle.LimitError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, "wechat-day", limited.Policy)
	require.True(t, limited.Paused)
}
