package welink_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/welink"
)

const users = "https://open.welink.huaweicloud.com/api/contact/v1/users"

func usual(status int) presettest.Case {
	return presettest.Case{Request: users, Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, welink.Policies(welink.Options{}), usual(200), []presettest.Case{
		presettest.Recorded(t, "refused.http").As("too many", "welink-api-second 1s"),
		{Name: "as a number, with another status", Status: 503, Answers: `{"code":48503}`, Closes: "welink-api-second 1s"},
		{Name: "Retry-After", Header: presettest.JSON("Retry-After", "9"), Answers: `{"code":"48503"}`, Closes: "welink-api-second 9s"},
		{Name: "a gateway's page", Status: 429, Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>", Closes: "welink-api-second 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, welink.Policies(welink.Options{}), usual(200), []presettest.Case{
		{Name: "done", Answers: `{"code":"0","message":"ok","data":{"code":"48503"}}`},
		{Name: "another code", Answers: `{"code":"485030","message":"48503"}`},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another host", Request: "https://login.welink.huaweicloud.com/api/auth", Status: 429},
	})
}

func TestSharedBudgets(t *testing.T) {
	with := func(path string) *http.Request {
		return presettest.Request(t, "https://open.welink.huaweicloud.com/api/"+path, "")
	}
	for _, c := range []struct {
		name, row string
		options   welink.Options
		other     string
		same      bool
	}{
		{"an API with another id", "welink-api-second", welink.Options{}, "contact/v1/users/u34", true},
		{"another API", "welink-api-minute", welink.Options{}, "contact/v1/departments", false},
		{"another version", "welink-api-minute", welink.Options{}, "contact/v2/users/u12", false},
		{"an address", "welink-ip", welink.Options{}, "contact/v1/departments", true},
		{"as the caller says", "welink-api-minute", welink.Options{Caller: throttle.RawPath}, "contact/v1/users/u34", false},
		{"endpoints of which the options say", "welink-api-minute", welink.Options{Endpoint: func(*http.Request) string { return "all" }}, "contact/v1/departments", true},
	} {
		require.Equal(t, c.same, presettest.Shared(t, welink.Policies(c.options), c.row, with("contact/v1/users/u12"), with(c.other)), c.name)
	}
}
