package dingtalk

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
)

// denied is the ban as JSON, whatever the status:
//
//	{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"…"}
//
// It has no errcode, so callers that look for one take it for success.
var denied = anyText(feedback.First(
	field("punish", "deny"),
	both(field("status", "1111"), field("source", "x5")),
))

// banned closes the address of a banned answer, for as long as its "wait" says in
// minutes, but not for less than [Options.Ban].
func banned(o Options) feedback.Penalty {
	var apis feedback.When // documentation and logins of other hosts are pages
	if o.Host == everyHost {
		apis.Host = []string{"oapi.dingtalk.com", "api.dingtalk.com"}
	}
	minutes := feedback.Printed{Fields: []string{"wait"}, As: feedback.After(time.Minute)}.Penalty
	return feedback.First(
		both(denied, feedback.Longest(feedback.For(o.Ban), anyText(minutes))),
		apis.Penalty(both(page, feedback.For(o.Ban))),
	)
}

// page is the ban as HTML, where JSON was expected. Other statuses have pages of
// their own, of gateways and proxies.
func page(resp *http.Response) time.Duration {
	if resp.Request != nil && strings.Contains(resp.Request.Header.Get("Accept"), "html") {
		return 0
	}
	return anyPage(resp)
}

// anyPage leaves out what may be a file that somebody downloads.
var anyPage = feedback.When{
	Status: []int{http.StatusOK, http.StatusForbidden},
	Media:  []string{"", "text/html", "text/plain", "application/json", "application/xhtml+xml"},
}.Penalty(anyText(feedback.Text{Pattern: regexp.MustCompile(`^\x{feff}?\s*<`), Lasts: time.Second}.Penalty))

// anyText lets p see text, and what does not say what it is, as if it called
// itself JSON. Package feedback spares such bodies if they do not tell their
// length, because they may be streams; DingTalk has none, and a ban that is
// missed costs five more minutes. A body that begins with neither "{" nor "<" is
// left after its first bytes.
func anyText(p feedback.Penalty) feedback.Penalty {
	return func(resp *http.Response) time.Duration {
		media, _, _ := strings.Cut(strings.ToLower(resp.Header.Get("Content-Type")), ";")
		switch media = strings.TrimSpace(media); {
		case media == "text/event-stream":
			return p(resp)
		case media != "" && media != "application/octet-stream" && !strings.HasPrefix(media, "text/"):
			return p(resp)
		}
		shown := *resp
		shown.Header = http.Header{"Content-Type": {"application/json"}}
		shown.Header["Content-Encoding"] = resp.Header["Content-Encoding"]
		d := p(&shown)
		resp.Body = shown.Body // with what was read ahead
		return d
	}
}
