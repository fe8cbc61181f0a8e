package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/readme"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestOneFile: the file that a company copies is a whole program, of 150 lines at the most, and names the permissions
// that the calls need.
func TestOneFile(t *testing.T) {
	text, err := os.ReadFile("addressbook.go")
	require.NoError(t, err)
	require.NoError(t, readme.VetProgram(t, string(text)))
	require.LessOrEqual(t, strings.Count(string(text), "\n"), 150)
	for _, permission := range []string{"qyapi_base", "qyapi_get_department_list", "qyapi_get_department_member"} {
		require.Contains(t, string(text), permission)
	}
}

// A transport answers in place of DingTalk.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// pulls pulls from base once, and returns who was shown.
func pulls(t *testing.T, ctx context.Context, b *book, base http.RoundTripper) (shown []string, err error) {
	t.Helper()
	var mu sync.Mutex
	show = func(in ...any) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		shown = append(shown, fmt.Sprint(in[0]))
		return 0, nil
	}
	b.key, b.secret = "dingabc", "s"
	c := throttle.Config{Store: memstore.New(), MaxWait: 20 * time.Minute, Base: base}
	c.Policies = dingtalk.Policies(dingtalk.Options{App: b.key})
	if b.rdb != nil {
		c.Store = redisstore.New(b.rdb, redisstore.Options{})
	}
	err = b.pull(ctx, c)
	return shown, err
}

// apps is one application, with permissions.
func apps(permissions ...string) map[string]dingtalktest.App {
	return map[string]dingtalktest.App{"dingabc": {Secret: "s", Permissions: permissions}}
}

// TestEachPersonOnce: everybody comes, and who is in two departments comes once.
func TestEachPersonOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := dingtalktest.New(dingtalktest.Options{People: 500, Apps: apps("qyapi_get_department_list", "qyapi_get_department_member")})
		shown, err := pulls(t, t.Context(), new(book), fake)
		require.NoError(t, err)
		require.ElementsMatch(t, fake.UserIDs(), shown)
		require.Empty(t, fake.Refusals())
	})
}

// TestErrors: what the program says, which is no token and no URL of a call.
func TestErrors(t *testing.T) {
	answers := func(status int, body string) transport {
		return func(r *http.Request) (*http.Response, error) {
			status, body := status, body
			if strings.HasSuffix(r.URL.Path, "/accessToken") {
				status, body = http.StatusOK, `{"accessToken":"token-of-dingabc","expireIn":7200}`
			}
			return &http.Response{
				StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Request: r,
				Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
			}, nil
		}
	}
	for name, c := range map[string]struct {
		base http.RoundTripper
		want string
	}{
		"wrong secret": {dingtalktest.New(dingtalktest.Options{Apps: map[string]dingtalktest.App{"dingabc": {Secret: "x"}}}),
			"department 1: /v1.0/oauth2/accessToken: DingTalk answers 400 Bad Request, code invalidClientIdOrSecret: 无效的clientId或者clientSecret"},
		"no permission": {dingtalktest.New(dingtalktest.Options{Apps: apps("qyapi_get_department_list")}),
			"/topapi/v2/user/list: DingTalk answers 200 OK, code 60011: ding talk error[subcode=60011,submsg=应用尚未开通所需的权限：[qyapi_get_department_member]"},
		"no network": {transport(func(*http.Request) (*http.Response, error) { return nil, errors.New("no network") }),
			`department 1: Post "https://api.dingtalk.com": no network`},
		"out of range": {answers(200, `{"errcode":50004,"errmsg":"请求的部门id不在授权范围内"}`), "200 OK, code 50004: 请求的部门id不在授权范围内"},
		"trouble":      {answers(502, `{}`), "502 Bad Gateway, code <nil>"},
		"too long":     {answers(200, `{"errcode":0,"x":"`+strings.Repeat("x", 9<<20)+`"}`), "too large"},
		"never a token that is valid": {answers(200, `{"errcode":88,"sub_code":"40014","sub_msg":"不合法的access_token","errmsg":"ding talk error"}`),
			"200 OK, code 40014"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := pulls(t, t.Context(), new(book), c.base)
				require.ErrorContains(t, err, c.want)
				require.NotContains(t, err.Error(), "token-of-dingabc")
				require.NotContains(t, err.Error(), "access_token=")
			})
		})
	}
	require.ErrorContains(t, new(book).pull(t.Context(), throttle.Config{}), "set DINGTALK_APP_KEY and DINGTALK_APP_SECRET")
}

// TestBrokenConnections: a connection that breaks before the answer or within it costs nobody.
func TestBrokenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := dingtalktest.New(dingtalktest.Options{People: 200})
		var calls atomic.Int64
		base := transport(func(r *http.Request) (*http.Response, error) {
			resp, err := fake.RoundTrip(r)
			switch calls.Add(1) % 5 {
			case 0:
				return nil, io.ErrUnexpectedEOF
			case 1:
				resp.Body = io.NopCloser(io.MultiReader(io.LimitReader(resp.Body, 20), broken{}))
			}
			return resp, err
		})
		shown, err := pulls(t, t.Context(), new(book), base)
		require.NoError(t, err)
		require.ElementsMatch(t, fake.UserIDs(), shown)
	})
}

// broken is the end of an answer whose connection breaks.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestToken: the token is asked for once, ten minutes before its end again, and once more if DingTalk takes it for expired.
func TestToken(t *testing.T) {
	const login = "/v1.0/oauth2/accessToken"
	synctest.Test(t, func(t *testing.T) {
		fake := dingtalktest.New(dingtalktest.Options{People: 60})
		asked := func() (n int) {
			for _, a := range fake.Log() {
				if a.API == login {
					n++
				}
			}
			return n
		}
		b := new(book)
		for _, c := range []struct {
			after time.Duration
			asked int
		}{{0, 1}, {109 * time.Minute, 1}, {time.Minute, 2}} {
			time.Sleep(c.after)
			b.met.Clear()
			_, err := pulls(t, t.Context(), b, fake)
			require.NoError(t, err)
			require.Equal(t, c.asked, asked())
		}
		require.Empty(t, fake.Refusals())

		fake.ExpireTokens()
		b.met.Clear()
		shown, err := pulls(t, t.Context(), b, fake)
		require.NoError(t, err)
		require.Len(t, shown, 60)
		require.Equal(t, 3, asked())
		require.Equal(t, map[string]int{"40014": 1}, fake.Refusals())
	})
}

// TestTokenOfTheFleet: the program that comes second has the token of the first, until DingTalk refuses it.
func TestTokenOfTheFleet(t *testing.T) {
	options, err := redis.ParseURL(redistest.Single(t).URL())
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { rdb.Close() })
	fake := dingtalktest.New(dingtalktest.Options{People: 20})
	server := httptest.NewServer(fake)
	defer server.Close()
	base := tests(server.Listener.Addr().String())
	for i := range 3 {
		if i == 2 {
			fake.ExpireTokens()
		}
		shown, err := pulls(t, t.Context(), &book{rdb: rdb}, base)
		require.NoError(t, err)
		require.Len(t, shown, 20)
	}
	require.Equal(t, map[string]int{"40014": 1}, fake.Refusals())
	require.Equal(t, 2, fake.Most("/v1.0/oauth2/accessToken", time.Hour))
	require.Positive(t, rdb.TTL(t.Context(), "dingtalk-token-dingabc").Val())
}

// TestInterrupt: who interrupts has no error of DingTalk.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { interrupt(errors.New("interrupted")) })
		begin := time.Now()
		_, err := pulls(t, ctx, new(book), dingtalktest.New(dingtalktest.Options{}))
		require.EqualError(t, err, "interrupted")
		require.Equal(t, time.Second, time.Since(begin))
	})
}
