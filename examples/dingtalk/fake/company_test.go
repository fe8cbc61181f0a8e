package fake_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

// get sends one call, a second after the one before, and reads its result.
func get[T any](t *testing.T, s *fake.Server, target, format string, args ...any) T {
	t.Helper()
	time.Sleep(50 * time.Millisecond)
	w := ask(s, "POST", target, fmt.Sprintf(format, args...))
	var out struct {
		ErrCode int `json:"errcode"`
		Result  T   `json:"result"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
	require.Zero(t, out.ErrCode, w.Body)
	return out.Result
}

func TestWalkingTheTreeMeetsEverybodyOnce(t *testing.T) {
	type department struct {
		ID int64 `json:"dept_id"`
	}
	type page struct {
		More bool `json:"has_more"`
		Next int  `json:"next_cursor"`
		List []struct{ UserID, Name string }
	}
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{})
		var met []string
		pages := 0
		departments := []int64{fake.Root}
		for i := 0; i < len(departments); i++ {
			for _, d := range get[[]department](t, s, listSub+token, `{"dept_id":%d}`, departments[i]) {
				departments = append(departments, d.ID)
			}
			for p := (page{More: true}); p.More; pages++ {
				p = get[page](t, s, listUser+token, `{"dept_id":%d,"cursor":%d,"size":100}`, departments[i], p.Next)
				for _, user := range p.List {
					met = append(met, user.UserID)
				}
			}
		}
		require.Len(t, departments, 150)
		require.Equal(t, s.Company().Departments(), len(departments))
		require.Equal(t, s.Company().Pages(100), pages)
		require.Greater(t, pages, 150, "some departments need a second page")
		slices.Sort(met)
		require.Equal(t, s.Company().UserIDs(), met)
		require.Len(t, met, 3000)
	})
}

func TestOnePerson(t *testing.T) {
	s, token := start(t, fake.Options{People: 5})
	w := ask(s, "POST", "/topapi/v2/user/get"+token, `{"userid":"user000005"}`)
	require.Equal(t, `{"errcode":0,"errmsg":"ok","result":{"userid":"user000005","unionid":"union000005",`+
		`"name":"Employee 0005","dept_id_list":[1]}}`, text(w))
	require.Equal(t, "60121", code(t, ask(s, "POST", "/topapi/v2/user/get"+token, `{"userid":"nobody"}`)))
	require.Equal(t, "60003", code(t, ask(s, "POST", listSub+token, `{"dept_id":2}`)))
}

func TestTokensLiveTwoHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{})
		time.Sleep(time.Hour)
		require.Equal(t, token, login(t, s, fake.DefaultAppKey, fake.DefaultAppSecret))
		time.Sleep(2*time.Hour - 1)
		require.Equal(t, "0", code(t, ask(s, "POST", listSub+token, "")))
		time.Sleep(time.Nanosecond)
		require.Equal(t, "40014", code(t, ask(s, "POST", listSub+token, "")))
	})
}

func TestNewAPIGivesTheSameToken(t *testing.T) {
	s, token := start(t, fake.Options{})
	w := ask(s, "POST", "/v1.0/oauth2/accessToken", `{"appKey":"dingexample","appSecret":"dingexample-secret"}`)
	require.Equal(t, `{"accessToken":"`+strings.TrimPrefix(token, "?access_token=")+`","expireIn":7200}`, text(w))
}
