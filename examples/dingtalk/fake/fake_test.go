package fake_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

const (
	listSub  = "/topapi/v2/department/listsub"
	listUser = "/topapi/v2/user/list"
)

// ask sends one request straight to the handler.
func ask(s *fake.Server, method, target, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w
}

// text returns a body as it was sent, without the line's end.
func text(w *httptest.ResponseRecorder) string { return strings.TrimSuffix(w.Body.String(), "\n") }

// login returns the query that carries the token of an app.
func login(t *testing.T, s *fake.Server, key, secret string) string {
	t.Helper()
	w := ask(s, "GET", "/gettoken?appkey="+key+"&appsecret="+secret, "")
	var out struct {
		Token string `json:"access_token"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
	require.NotEmpty(t, out.Token)
	return "?access_token=" + out.Token
}

// start makes a fake whose default app is logged in.
func start(t *testing.T, o fake.Options) (*fake.Server, string) {
	t.Helper()
	s := fake.New(o)
	return s, login(t, s, fake.DefaultAppKey, fake.DefaultAppSecret)
}

// code returns the code of an old answer, "0" for success and "deny" for a ban.
func code(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	require.Equal(t, http.StatusOK, w.Code)
	var out struct {
		ErrCode json.Number `json:"errcode"`
		SubCode string      `json:"sub_code"`
		Punish  string      `json:"punish"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
	switch {
	case out.Punish != "":
		return out.Punish
	case out.SubCode != "":
		return out.SubCode
	}
	return out.ErrCode.String()
}

// served sends a call n times and returns how many were answered with code 0.
func served(t *testing.T, s *fake.Server, target string, n int) int {
	t.Helper()
	served := 0
	for range n {
		if code(t, ask(s, "POST", target, "")) == "0" {
			served++
		}
	}
	return served
}

func TestMost(t *testing.T) {
	start := time.Unix(0, 0)
	moments := func(ms ...int) (times []time.Time) {
		for _, m := range ms {
			times = append(times, start.Add(time.Duration(m)*time.Millisecond))
		}
		return times
	}
	require.Equal(t, 0, fake.Most(nil, time.Second))
	require.Equal(t, 1, fake.Most(moments(5), time.Second))
	require.Equal(t, 3, fake.Most(moments(0, 500, 999, 1000), time.Second), "one end of the interval is open")
	require.Equal(t, 4, fake.Most(moments(0, 500, 999, 999), time.Second))
	require.Equal(t, 3, fake.Most(moments(0, 900, 1100, 1200, 3000), time.Second))
}
