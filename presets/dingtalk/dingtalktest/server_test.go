package dingtalktest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
)

// The calls of an application that is logged in.
const (
	token    = "?access_token=token-of-dingabc"
	listSub  = "/topapi/v2/department/listsub"
	userList = "/topapi/v2/user/list"
	column   = "/topapi/attendance/getcolumnval" // counts for the month
	contact  = "/v1.0/contact/users/"
	login    = "/v1.0/oauth2/accessToken"
	robot    = "/robot/send?access_token=robot"
	notices  = "/topapi/message/corpconversation/asyncsend_v2"
	results  = "/topapi/message/corpconversation/getsendresult"
	batch    = "/v1.0/robot/oToMessages/batchSend"
)

const asJSON, asForm = "application/json", "application/x-www-form-urlencoded;charset=utf-8"

// newServer returns a Server in which the applications of these tests have their tokens.
func newServer(o dingtalktest.Options) *dingtalktest.Server {
	s := dingtalktest.New(o)
	for _, app := range []string{"dingabc", "another"} {
		s.Token(app)
	}
	return s
}

// request returns a call as DingTalk wants it: with the method of the API, a body that is JSON
// and, on the new API, the token of dingabc.
func request(t *testing.T, path, body string) *http.Request {
	t.Helper()
	method := http.MethodPost
	if strings.HasPrefix(path, contact) || strings.HasPrefix(path, "/gettoken") {
		method = http.MethodGet
	}
	if body == "" && path == robot {
		body = `{"msgtype":"text"}`
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "https://dingtalk"+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", asJSON)
	r.Header.Set("x-acs-dingtalk-access-token", strings.TrimPrefix(token, "?access_token="))
	return r
}

// ask sends one call and returns the answer's status and body.
func ask(t *testing.T, s *dingtalktest.Server, path, body string) (int, string) {
	t.Helper()
	return send(t, s, request(t, path, body))
}

// send sends a request and returns the answer's status and body.
func send(t *testing.T, s *dingtalktest.Server, r *http.Request) (int, string) {
	t.Helper()
	resp, err := s.RoundTrip(r)
	require.NoError(t, err)
	require.Equal(t, time.Now().UTC().Format(http.TimeFormat), resp.Header.Get("Date"))
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, strings.TrimSpace(string(answer))
}

// served sends a call n times and returns how many were served.
func served(t *testing.T, s *dingtalktest.Server, path string, n int) int {
	t.Helper()
	before := len(s.Log())
	for range n {
		ask(t, s, path, "")
	}
	log := s.Log()[before:]
	require.Len(t, log, n)
	return len(slices.DeleteFunc(log, func(a dingtalktest.Arrival) bool { return a.Refusal != "" }))
}

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(dingtalktest.Options{IPLimit: 22})
		begin := time.Now()
		ask(t, s, "/gettoken?appkey=dingabc&appsecret=secret", "")
		require.Empty(t, s.Refusals())
		served(t, s, listSub+token, 21)
		time.Sleep(time.Second)
		served(t, s, contact+"1", 2)
		log := s.Log()
		arrival := func(api, refusal string) dingtalktest.Arrival {
			return dingtalktest.Arrival{At: begin, API: api, App: "dingabc", Address: "192.0.2.1", Refusal: refusal}
		}
		require.Equal(t, arrival("/gettoken", ""), log[0])
		require.Equal(t, arrival(listSub, ""), log[20])
		require.Equal(t, arrival(listSub, "90018"), log[21])
		require.Equal(t, dingtalktest.Arrival{
			At: begin.Add(time.Second), API: contact + "{unionId}", Address: "192.0.2.1", Refusal: dingtalktest.Banned,
		}, log[22])
		require.Equal(t, map[string]int{"90018": 1, dingtalktest.Banned: 2}, s.Refusals())
		require.Equal(t, 1, s.Bans())
		require.Equal(t, 21, s.Most(listSub, time.Second))
		require.Equal(t, `API                             calls   refused   most in any second   quota used
/gettoken                       1       0         1 of 20              –
/topapi/v2/department/listsub   21      1         21 of 20             –
/v1.0/contact/users/{unionId}   2       2         2 of 20              –
bans: 1
`, s.String())
	})
}

// TestString_Quota: 41 calls need two seconds; here they took four.
func TestString_Quota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(dingtalktest.Options{})
		for range 41 {
			ask(t, s, listSub+token, "")
			time.Sleep(100 * time.Millisecond)
		}
		require.Contains(t, s.String(), "41      0         10 of 20             50 %\n")
	})
}

// TestHandleFunc: calls that match one pattern are calls of one API.
func TestHandleFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(dingtalktest.Options{})
		s.HandleFunc("/topapi/{product}/get", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.PathValue("product")) })
		_, answer := ask(t, s, "/topapi/a/get"+token, "")
		require.Equal(t, "a", answer)
		require.Equal(t, 19, served(t, s, "/topapi/b/get"+token, 30))
		require.Equal(t, 1, served(t, s, listSub+token, 1))
	})
}

func TestRoundTrip(t *testing.T) {
	s := newServer(dingtalktest.Options{})
	body := &closed{Reader: strings.NewReader("")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://oapi.dingtalk.com"+listSub+token, body)
	require.NoError(t, err)
	resp, err := s.RoundTrip(r)
	require.NoError(t, err)
	require.Same(t, r, resp.Request)
	require.Empty(t, r.RemoteAddr)
	require.True(t, body.yes)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.RoundTrip(r.WithContext(ctx))
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, s.Log(), 1)
}

// A closed body knows whether it is.
type closed struct {
	io.Reader
	yes bool
}

func (c *closed) Close() error {
	c.yes = true
	return nil
}

// TestAddresses: over a network the address is the caller's.
func TestAddresses(t *testing.T) {
	s := newServer(dingtalktest.Options{IPLimit: 1})
	for _, address := range []string{"192.0.2.7:1", "192.0.2.7:2", "192.0.2.8:1"} {
		r := request(t, robot, "")
		r.RemoteAddr = address
		s.ServeHTTP(httptest.NewRecorder(), r)
	}
	require.Equal(t, 1, s.Bans())
	require.Equal(t, "192.0.2.7", s.Log()[1].Address)
	require.Empty(t, s.Log()[2].Refusal)
}

// TestAddressBook: whoever walks the tree of departments meets everybody.
func TestAddressBook(t *testing.T) {
	type department struct {
		ID int `json:"dept_id"`
	}
	type page struct {
		More bool `json:"has_more"`
		Next int  `json:"next_cursor"`
		List []struct{ UserID string }
	}
	synctest.Test(t, func(t *testing.T) {
		s := newServer(dingtalktest.Options{})
		var met []string
		pages, departments := 0, []int{1}
		for i := 0; i < len(departments); i++ {
			for _, d := range result[[]department](t, s, listSub, `{"dept_id":%d}`, departments[i]) {
				departments = append(departments, d.ID)
			}
			for p := (page{More: true}); p.More; pages++ {
				p = result[page](t, s, userList, `{"dept_id":%d,"cursor":%d,"size":100}`, departments[i], p.Next)
				for _, user := range p.List {
					met = append(met, user.UserID)
				}
			}
		}
		require.Len(t, departments, 150)
		require.Equal(t, 156, pages, "some departments need a second page")
		require.Len(t, met, 3060, "one of fifty is in two departments")
		slices.Sort(met)
		require.Equal(t, s.UserIDs(), slices.Compact(met))
		require.Len(t, s.UserIDs(), 3000)
	})
}

// result sends one call, as soon as there is room for certain, and reads its result.
func result[T any](t *testing.T, s *dingtalktest.Server, path, format string, args ...any) T {
	t.Helper()
	time.Sleep(50 * time.Millisecond)
	_, answer := ask(t, s, path+token, fmt.Sprintf(format, args...))
	out := struct {
		ErrCode int
		Result  T
	}{ErrCode: -1}
	require.NoError(t, json.Unmarshal([]byte(answer), &out))
	require.Zero(t, out.ErrCode, answer)
	return out.Result
}
