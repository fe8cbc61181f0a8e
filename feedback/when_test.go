package feedback_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

func TestWhen(t *testing.T) {
	resp := answer(429, "", "Content-Type", `Application/Problem+JSON ; charset="`,
		"X-Scope", "shared", "X-Scope", "Quota-Tenant-Based", "X-Empty", "")
	resp.Request = httptest.NewRequest("POST", "https://API.example.com.:8443/v1/orders/7?secret=1", nil)
	type fields = map[string]string
	for _, c := range []struct {
		name string
		when feedback.When
		want bool
	}{
		{"all", feedback.When{}, true},
		{"a status", feedback.When{Status: []int{403, 429}}, true},
		{"another status", feedback.When{Status: []int{403, 503}}, false},
		{"a method", feedback.When{Method: []string{"PUT", "post"}}, true},
		{"another method", feedback.When{Method: []string{"GET"}}, false},
		{"the host", feedback.When{Host: []string{"api.example.com"}}, true},
		{"below a host", feedback.When{Host: []string{"*.example.com"}}, true},
		{"another host", feedback.When{Host: []string{"example.com", "api.example.org"}}, false},
		{"the path", feedback.When{Path: []string{"/v1/orders/7"}}, true},
		{"below a path", feedback.When{Path: []string{"/v2/*", "/v1/*"}}, true},
		{"part of a path", feedback.When{Path: []string{"/v1/orders"}}, false},
		{"paths have cases", feedback.When{Path: []string{"/V1/*"}}, false},
		{"a media type", feedback.When{Media: []string{"application/problem+json"}}, true},
		{"a kind of media", feedback.When{Media: []string{"text/html", "application/*"}}, true},
		{"a suffix", feedback.When{Media: []string{"*+json"}}, true},
		{"another media type", feedback.When{Media: []string{"application/json"}}, false},
		{"a field", feedback.When{Header: fields{"x-scope": ""}}, true},
		{"a field that is empty", feedback.When{Header: fields{"X-Empty": ""}}, true},
		{"its value", feedback.When{Header: fields{"X-Scope": "SHARED"}}, true},
		{"a value in another line", feedback.When{Header: fields{"X-Scope": "quota-*"}}, true},
		{"within a value", feedback.When{Header: fields{"X-Scope": "*tenant*"}}, true},
		{"another value", feedback.When{Header: fields{"X-Scope": "global"}}, false},
		{"no such field", feedback.When{Header: fields{"X-Other": ""}}, false},
		{"both fields", feedback.When{Header: fields{"X-Scope": "", "Date": date}}, true},
		{"one of two fields", feedback.When{Header: fields{"X-Scope": "", "X-Other": ""}}, false},
		{"everything", feedback.When{Status: []int{429}, Method: []string{"POST"}, Path: []string{"/v1/*"},
			Host: []string{"*"}, Media: []string{"*"}, Header: fields{"X-Scope": "*"}}, true},
		{"everything but one", feedback.When{Status: []int{429}, Method: []string{"POST"}, Path: []string{"/v1/*"},
			Media: []string{"text/*"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := throttle.Refused(time.Minute).WithCost(12).WithLeft(*left(3, time.Second))
			want := throttle.Answer{}
			if c.want {
				want = said
			}
			require.Equal(t, want, c.when.Then(func(*http.Response) throttle.Answer { return said })(resp))
		})
	}
}

func TestWhenTheRequestIsUnknown(t *testing.T) {
	for _, when := range []feedback.When{
		{Method: []string{"*"}}, {Host: []string{"*"}}, {Path: []string{"*"}},
	} {
		require.Zero(t, when.Then(feedback.For(time.Second))(answer(429, "")))
	}
	requireCloses(t, time.Second, feedback.When{}.Then(feedback.For(time.Second))(answer(429, "")))

	unsent := answer(200, "")
	unsent.Request = &http.Request{Method: "GET"}
	require.Zero(t, feedback.When{Method: []string{"GET"}}.Then(feedback.For(time.Second))(unsent))

	get := answer(200, "")
	get.Request = httptest.NewRequest("GET", "/", nil)
	get.Request.Method = "" // a client's GET
	requireCloses(t, time.Second, feedback.When{Method: []string{"GET"}}.Then(feedback.For(time.Second))(get))
}

func TestWhenThereIsNoContentType(t *testing.T) {
	require.Zero(t, feedback.When{Media: []string{"application/*"}}.Then(feedback.For(time.Second))(answer(200, "")))
}
