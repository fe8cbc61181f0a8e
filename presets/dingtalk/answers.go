package dingtalk

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// beijing is the zone of every time that DingTalk prints, and of its months.
var beijing = time.FixedZone("UTC+8", 8*60*60)

// head is how much of a body is looked at. No refusal is longer.
const head = 4 << 10

// printed is the end that the old API prints into its messages, by the distance
// to the answer's Date or to the clock of this machine, whichever is shorter.
// Without Date it is of no use: whose clock would it be?
var printed = feedback.When{Header: map[string]string{"Date": ""}}.Penalty(feedback.Printed{
	Fields:  []string{"sub_msg", "errmsg"},
	Pattern: regexp.MustCompile(`(?:处罚|限制)将在 *(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) *结束`),
	As:      feedback.At(time.DateTime, beijing),
}.Penalty)

// forAbout closes the row for as long as the answer prints, or else as the codes
// say.
func (c codes) forAbout() feedback.Penalty { return c.penalty(printed) }

// exactly closes the row for as long as the codes say.
func (c codes) exactly() feedback.Penalty { return c.penalty(nil) }

// forTheMonth closes the row until the 1st, or for the longest time that is possible:
// a call after that is refused again.
func (c codes) forTheMonth() feedback.Penalty { return c.penalty(feedback.UntilFirst(beijing)) }

var (
	subcode  = regexp.MustCompile(`subcode=(\d+)`)
	lastWord = regexp.MustCompile(`^(?:(?i)Forbidden\.AccessDenied\.)?(.*)$`)
)

// penalty finds the code where either family of the API has it: a number in
// "errcode" or, if that is 88, in what is wrapped; a word in an error's "code",
// which in a success is the name of something else. A ban has no code, whatever
// else it may hold.
func (c codes) penalty(end feedback.Penalty) feedback.Penalty {
	in := func(c codes, pattern *regexp.Regexp, fields ...string) feedback.Penalty {
		return feedback.Codes{Fields: fields, Pattern: pattern, Lasts: c, End: end, Max: head}.Penalty
	}
	numbers := in(c.numbers().and(codes{"88": envelope}), nil, "errcode")
	inside := feedback.First(in(c.numbers(), nil, "sub_code"), in(c.numbers(), subcode, "errmsg"))
	words := both(failed, in(c.words(), lastWord, "code"))
	coded := func(resp *http.Response) time.Duration {
		d := numbers(resp)
		if d == envelope {
			d = inside(resp)
		}
		if d == 0 {
			d = words(resp)
		}
		return d
	}

	return tablerow.WithoutDenials(func(resp *http.Response) time.Duration {
		d := coded(resp)
		if d > 0 && denied(resp) > 0 {
			return 0
		}
		return d
	})
}

// failed answers for errors.
func failed(resp *http.Response) time.Duration {
	if resp.StatusCode < http.StatusBadRequest {
		return 0
	}
	return time.Second
}

// envelope is for how long "errcode" 88 closes any row: not at all, but what is wrapped may. One look
// at "errcode" serves both questions: each row of the table asks them of each answer.
const envelope = feedback.NotRefused - 1

// field is a penalty for any time of answers with a field of that value.
func field(name, value string) feedback.Penalty {
	return feedback.Codes{Fields: []string{name}, Lasts: codes{value: time.Second}, Max: head}.Penalty
}

// both returns the penalty p of answers for which if is one, too.
func both(condition, p feedback.Penalty) feedback.Penalty {
	return func(resp *http.Response) time.Duration {
		if condition(resp) <= 0 {
			return 0
		}
		return p(resp)
	}
}

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
		media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		switch media = strings.ToLower(strings.TrimSpace(media)); {
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
