package dingtalk

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// A refusal is what an answer closes, and for how long; the zero refusal closes nothing.
type refusal struct {
	about subject
	lasts time.Duration
}

// refusal reads an answer. The code says what it is about. An answer that is the ban and has a code is
// about what the code names, and for no shorter time than the ban prints: a robot that sends too fast is
// told so in the form of the ban, while the address goes on. A 429 is a refusal whatever it says, and a
// Retry-After is obeyed whatever the code says.
func (o Options) refusal(resp *http.Response) (r refusal) {
	f := factsOf(resp)
	switch {
	case f.limit.about != nothing && (f.punished || !f.limit.unsure):
		r = refusal{f.limit.about, max(f.limit.length(resp), f.wait)}
		if f.punished && r.about == address {
			r.lasts = max(r.lasts, o.Ban)
		}
		if !r.about.isMetBy(resp.Request) {
			r.about = r.instead()
		}
	case f.denied || f.page && o.isBan(resp):
		r = refusal{address, max(o.Ban, f.wait)}
	case resp.StatusCode == http.StatusTooManyRequests:
		return refusal{appAPI, feedback.RetryAfter(throttle.DefaultRetryAfter)(resp)}
	case resp.StatusCode == http.StatusForbidden:
		// Without the field it is more likely to be about a permission.
		return refusal{appAPI, feedback.RetryAfter(0)(resp)}
	default:
		return refusal{}
	}
	r.lasts = max(r.lasts, feedback.RetryAfter(0)(resp))
	return r
}

// length returns for how long a refusal closes what it is about.
func (l limit) length(resp *http.Response) time.Duration {
	if l.ends != nil {
		if d := l.ends(resp); d > 0 {
			return d
		}
	}
	return l.lasts(resp)
}

// printed is the end that the old API prints into its messages, by the distance
// to the answer's Date or to the clock of this machine, whichever is shorter.
// Without Date it is of no use: whose clock would it be?
var printed = feedback.When{Header: map[string]string{"Date": ""}}.Penalty(feedback.Printed{
	Fields:  []string{"sub_msg", "errmsg"},
	Pattern: regexp.MustCompile(`(?:处罚|限制)将在 *(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) *结束`),
	As:      feedback.At(time.DateTime, beijing),
}.Penalty)

// isBan reports whether a page is the ban, as it comes where JSON was expected. Other statuses have pages
// of their own, of gateways and proxies, and so have other hosts and those that asked for a page; what
// calls itself anything else may be a file that somebody downloads.
func (o Options) isBan(resp *http.Response) bool {
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusForbidden {
		return false
	}
	if resp.Request == nil || !o.hasAPIs(resp.Request) || strings.Contains(resp.Request.Header.Get("Accept"), "html") {
		return false
	}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(media)) {
	case "", "text/html", "text/plain", "application/json", "application/xhtml+xml":
		return true
	}
	return false
}

// isMetBy reports whether a request has a budget of the kind that a refusal is about.
func (s subject) isMetBy(r *http.Request) bool {
	if s < robot || r == nil {
		return true
	}
	if throttle.Method(r) != http.MethodPost {
		return false
	}
	switch p := throttle.Path(r); s {
	case robot:
		return p == customRobot || p == replies || strings.HasPrefix(p, robots)
	case webhookMonth:
		return strings.HasPrefix(p, webhooks)
	case ding:
		return p == dings
	case person:
		return p == tasks || p == pushes || fits(calendars, pathOf(r, p))
	default:
		return strings.HasPrefix(p, workNotices)
	}
}

// instead returns what a refusal closes if its request has no budget of the right kind: for a short time
// the API, as for limits that nobody has described, which may be all of a product; for a long time
// the path alone.
func (r refusal) instead() subject {
	if r.lasts <= time.Minute {
		return appAPI
	}
	return companyAPI
}

// closedBy returns the penalty of a row that refusals about some subjects close.
func (o Options) closedBy(subjects ...subject) feedback.Penalty {
	var closes uint32
	for _, s := range subjects {
		closes |= 1 << s
	}
	return func(resp *http.Response) time.Duration {
		if r := o.refusal(resp); closes&(1<<r.about) != 0 {
			return r.lasts
		}
		return 0
	}
}

// uncounted is a [throttle.Policy.Settle] of the month: a call that an application's or an API's calls in
// a second have refused costs nothing. Of other failures nobody knows, so they cost what they cost.
func uncounted(resp *http.Response) int {
	if factsOf(resp).limit.uncounted {
		return 0
	}
	return -1
}
