package benchmarks

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

// dingtalkAnswer is what DingTalk answers to a call that it did not refuse.
const dingtalkAnswer = `{"errcode":0,"errmsg":"ok","result":{"dept_id":1,"name":"x"},"request_id":"15s4ab8ca3cdz"}`

// answerCalls is how many calls with an answer make a round.
const answerCalls = 5_000

// BenchmarkAnswer is a call under DingTalk's table by its preset, whose seven rows look for refusals in
// the body of the answer, beside a call under one policy: one row of that table, which looks at the same
// answer, one policy with a table of codes, and one that looks at the status of the answer only. All
// answers are alike, and all bodies are read to the end.
func BenchmarkAnswer(b *testing.B) {
	limit := throttle.PerSecond(plenty)
	one := throttle.Policy{Name: "one", Match: "*.dingtalk.com/", Limit: limit}
	codes := throttle.Policy{
		Name: "codes", Match: "*.dingtalk.com/", Limit: limit,
		Answer: feedback.Codes{Fields: []string{"errcode"}, Lasts: map[string]time.Duration{"90018": time.Second}}.Answer,
	}
	preset := dingtalk.Policies(dingtalk.Options{IPLimit: plenty, Edition: dingtalk.Edition{PerSecond: plenty}})

	row := slices.DeleteFunc(slices.Clone(preset), func(p throttle.Policy) bool { return p.Name != "dingtalk-api" })
	require.Len(b, row, 1, "premise: one row")

	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://oapi.dingtalk.com/topapi/v2/department/listsub?access_token=t", nil)
	require.NoError(b, err)
	base := answeringBase{http.Header{"Content-Type": {"application/json;charset=UTF-8"}}}
	var contestants []contestant
	for _, c := range []struct {
		name     string
		policies []throttle.Policy
	}{{"dingtalk", preset}, {"row", row}, {"one", []throttle.Policy{one}}, {"codes", []throttle.Policy{codes}}} {
		t, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: c.policies, Base: base})
		require.NoError(b, err)
		contestants = append(contestants, contestant{name: c.name, run: func(calls int) error {
			return together(1, calls, func(int) error { return read(t, req) })
		}})
	}
	contestants = append(contestants, contestant{name: "bare", run: func(calls int) error {
		return together(1, calls, func(int) error { return read(base, req) })
	}})
	race(b, answerCalls, contestants...)
}

// read sends a request, and reads its answer.
func read(t http.RoundTripper, req *http.Request) error {
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	return resp.Body.Close()
}

// An answeringBase answers at once with dingtalkAnswer.
type answeringBase struct{ header http.Header }

func (t answeringBase) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: t.header, Request: req,
		Body: io.NopCloser(strings.NewReader(dingtalkAnswer)), ContentLength: int64(len(dingtalkAnswer)),
	}, nil
}
