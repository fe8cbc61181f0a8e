package dingtalk_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

// TestReadUnsent has the answers of which both calls are successes, in the forms that the documentation
// and its samples have.
func TestReadUnsent(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []dingtalk.Unsent
	}{
		"all got it":           {`{"processQueryKey":"k","flowControlledStaffIdList":[],"invalidStaffIdList":["x"]}`, nil},
		"flow control":         {`{"flowControlledStaffIdList":["a","b","a",""]}`, []dingtalk.Unsent{{User: "a"}, {User: "b"}}},
		"null":                 {`{"flowControlledStaffIdList":null,"send_result":null}`, nil},
		"nothing":              {`{}`, nil},
		"a result":             {`{"errcode":0,"errmsg":"ok","send_result":{"unread_user_id_list":["z"],"forbidden_user_id_list":[],"forbidden_list":[]}}`, nil},
		"only users":           {`{"errcode":0,"send_result":{"forbidden_user_id_list":["a"]}}`, []dingtalk.Unsent{{User: "a"}}},
		"users in one text":    {`{"send_result":{"forbidden_user_id_list":"a, b"}}`, []dingtalk.Unsent{{User: "a"}, {User: "b"}}},
		"an empty text":        {`{"send_result":{"forbidden_user_id_list":""}}`, nil},
		"codes as texts":       {`{"send_result":{"forbidden_list":[{"code":"143105","count":"500","userid":"a"}]}}`, []dingtalk.Unsent{{User: "a", Code: dingtalk.PersonPerDay, Count: 500}}},
		"codes as numbers":     {`{"send_result":{"forbidden_list":[{"code":143106,"count":1,"userid":"a"}]}}`, []dingtalk.Unsent{{User: "a", Code: dingtalk.SameTextToday, Count: 1}}},
		"a code that is none":  {`{"send_result":{"forbidden_list":[{"code":"x","userid":"a"}]}}`, []dingtalk.Unsent{{User: "a"}}},
		"in both lists":        {`{"send_result":{"forbidden_user_id_list":["a","b"],"forbidden_list":[{"code":143103,"userid":"b"}]}}`, []dingtalk.Unsent{{User: "b", Code: dingtalk.AppPerMinute}, {User: "a"}}},
		"errcode in a text":    {`{"errcode":"0","flowControlledStaffIdList":["a"]}`, []dingtalk.Unsent{{User: "a"}}},
		"lists somewhere else": {`{"result":{"flowControlledStaffIdList":["a"]}}`, nil},
	} {
		got, err := dingtalk.ReadUnsent(strings.NewReader(c.body))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

// TestReadUnsent_Errors: an answer that is no success does not look as if all had got it, and an error
// holds nothing of the answer.
func TestReadUnsent_Errors(t *testing.T) {
	for want, body := range map[string]io.Reader{
		"is no success (errcode 88)": strings.NewReader(`{"errcode":88,"sub_code":"90018","errmsg":"secret"}`),
		"is no success (errcode 0)":  strings.NewReader(`{"code":"too.many.people","message":"secret"}`),
		"is no object in JSON, or":   strings.NewReader(`<html>secret`),
		"has members of other kinds": strings.NewReader(`{"send_result":{"forbidden_user_id_list":{"secret":1}}}`),
		"is longer than 4 MB":        io.MultiReader(strings.NewReader(`{"x":"`), strings.NewReader(strings.Repeat("x", 4<<20))),
		"read who got nothing: cut":  iotest.ErrReader(fmt.Errorf("cut")),
	} {
		got, err := dingtalk.ReadUnsent(body)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
		require.Nil(t, got)
	}
	_, err := dingtalk.ReadUnsent(strings.NewReader(denied))
	require.ErrorContains(t, err, "no success", "the ban has no errcode")
}

// TestWaitOfUnsent: a day ends in Beijing, and all else is taken for a minute.
func TestWaitOfUnsent(t *testing.T) {
	now := time.Date(2026, 11, 30, 15, 59, 0, 0, time.UTC) // 23:59 in Beijing
	for _, code := range []int{dingtalk.PersonPerDay, dingtalk.SameTextToday, dingtalk.SuitePersonPerDay, dingtalk.SuiteSameTextToday} {
		require.Equal(t, time.Minute, dingtalk.Unsent{Code: code}.Wait(now))
		require.Equal(t, 24*time.Hour, dingtalk.Unsent{Code: code}.Wait(now.Add(time.Minute)))
	}
	for _, code := range []int{0, 7, dingtalk.AppPerMinute, dingtalk.CompanyPerMinute, dingtalk.SuitePerMinute, dingtalk.SuiteAllPerMinute} {
		require.Equal(t, time.Minute, dingtalk.Unsent{Code: code}.Wait(now.Add(time.Minute)))
	}
}

// FuzzReadUnsent: whatever an answer says, nobody is named twice or without a name, and an answer that
// cannot be read names nobody.
func FuzzReadUnsent(f *testing.F) {
	f.Add(`{"flowControlledStaffIdList":["a","a"],"send_result":{"forbidden_user_id_list":"a,b","forbidden_list":[{"code":"143103","count":1,"userid":"b"}]}}`)
	f.Add(`{"errcode":"0","send_result":{"forbidden_list":[{"code":9e99,"userid":""}]}}`)
	f.Add(denied)
	f.Fuzz(func(t *testing.T, body string) {
		unsent, err := dingtalk.ReadUnsent(strings.NewReader(body))
		require.False(t, err != nil && unsent != nil)
		seen := make(map[string]bool)
		for _, u := range unsent {
			require.NotEmpty(t, u.User)
			require.False(t, seen[u.User])
			seen[u.User] = true
			require.Positive(t, u.Wait(time.Unix(0, 0)))
		}
	})
}
