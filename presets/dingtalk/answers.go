package dingtalk

import (
	"cmp"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/peek"
)

// A refusal names the budget that an answer closes, and for how long. A refusal about nothing, or of no
// length, closes nothing.
type refusal struct {
	about subject
	lasts time.Duration
}

// refusal reads the refusal out of an answer. If the answer is no refusal, the result closes nothing.
//
// A code that means a limit closes the limit's budget, also inside the form of a ban: DingTalk answers a
// robot that sends too fast in that form, although the address is not banned. If the request has no such
// budget, a different budget is closed: see instead. A ban without such a code closes the address for at
// least Options.Ban. Both last at least the time that a ban prints, except as instead says. Without a code
// and a ban, a 429 and a 403 with a Retry-After close appAPI. No refusal is shorter than its Retry-After.
func (o Options) refusal(resp *http.Response) (r refusal) {
	f := factsOf(resp)

	// A code that needs words about a pace, and has none, names a limit only inside the form of a ban.
	namesLimit := f.limit.about != nothing && (f.punished || !f.limit.unsure)
	switch {
	case namesLimit:
		r = refusal{f.limit.about, max(f.limit.length(resp), f.wait)}

		// A ban of the address lasts at least as long as the options say.
		if f.punished && r.about == address {
			r.lasts = max(r.lasts, o.Ban)
		}
		if !r.about.isMetBy(resp.Request) {
			r = r.instead(resp)
		}

	// The ban, as JSON or as a page.
	case f.denied || f.page && o.isBan(resp):
		r = refusal{address, max(o.Ban, f.wait)}
	case resp.StatusCode == http.StatusTooManyRequests:
		return refusal{appAPI, feedback.RetryAfter(time.Second)(resp).Close}
	case resp.StatusCode == http.StatusForbidden:
		// A 403 without Retry-After is about a permission rather than a limit.
		return refusal{appAPI, feedback.RetryAfter(0)(resp).Close}
	default:
		return refusal{}
	}

	r.lasts = max(r.lasts, feedback.RetryAfter(0)(resp).Close)
	return r
}

// length returns how long a refusal closes its budget.
func (l limit) length(resp *http.Response) time.Duration {
	// The end that a refusal prints is more precise than the usual length.
	if l.ends != nil {
		if d := l.ends(resp).Close; d > 0 {
			return d
		}
	}
	return l.lasts(resp).Close
}

// printed reads the end that the old API prints into its messages. Its distance to the answer's Date or to
// the clock of this machine counts, whichever is shorter. Without Date it is not read, because no clock but
// this machine's would be known.
var printed = feedback.When{Header: map[string]string{"Date": ""}}.Then(feedback.Printed{
	Fields:  []string{"sub_msg", "errmsg"},
	Pattern: regexp.MustCompile(`(?:处罚|限制)将在 *(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) *结束`),
	As:      feedback.At(time.DateTime, beijing),
}.Answer)

// isBan reports whether an answer that is a page in place of JSON is likely to be the ban.
func (o Options) isBan(resp *http.Response) bool {
	// Pages with other statuses, of other hosts, and for requests that accept a page may be of gateways and proxies.
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusForbidden {
		return false
	}
	if resp.Request == nil || !o.hasAPIs(resp.Request) || strings.Contains(resp.Request.Header.Get("Accept"), "html") {
		return false
	}

	// Answers of other media types may be files that somebody downloads.
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(media)) {
	case "", "text/html", "text/plain", "application/json", "application/xhtml+xml":
		return true
	}
	return false
}

// isMetBy reports whether a request has a budget of the subject. A nil request may have any budget.
func (s subject) isMetBy(r *http.Request) bool {
	// All requests have a budget of the subjects before robot.
	if s < robot || r == nil {
		return true
	}

	// The rows of the other subjects match POST alone.
	if throttle.Method(r) != http.MethodPost {
		return false
	}

	switch p := throttle.RawPath(r); s {
	case robot:
		return p == customRobot || p == replies || strings.HasPrefix(p, robots)
	case webhookMonth:
		return strings.HasPrefix(p, webhooks)
	case ding:
		return p == dings
	case person:
		namesReceiver := p == tasks && receiverOfTask(r) != "" || p == pushes && receiverOfPush(r) != ""
		return namesReceiver || fits(calendars, pathOf(r, p))
	case noticesToAll:
		return sendsNotice(r) && toAll(r)
	default: // the other subjects of work notices
		return sendsNotice(r)
	}
}

// instead returns a refusal in place of r for a request that has no budget of r's subject. A refusal of at
// most a minute closes appAPI, because a limit that is not described may hold for a whole product. A longer
// refusal closes companyAPI, except for tasks, pushes and work notices: these are for many people and do
// not name the person at the limit, so a longer refusal closes appAPI for its Retry-After alone. Without a
// Retry-After a 429 closes it for a second, and any other answer not at all.
func (r refusal) instead(resp *http.Response) refusal {
	switch p := throttle.RawPath(resp.Request); {
	case p == tasks || p == pushes || sendsNotice(resp.Request):
		if r.lasts > time.Minute {
			r.lasts = throttle.RetryAfter(resp).Close
		}
		r.about = appAPI
	case r.lasts <= time.Minute:
		r.about = appAPI
	default:
		r.about = companyAPI
	}
	return r
}

// closedBy returns the reader of a row that refusals about some subjects close.
func (o Options) closedBy(subjects ...subject) feedback.Reader {
	// Each answer is compared with all subjects of the row, so keep them as bits.
	var closes uint32
	for _, s := range subjects {
		closes |= 1 << s
	}
	return func(resp *http.Response) throttle.Answer {
		if r := o.refusal(resp); closes&(1<<r.about) != 0 && r.lasts > 0 {
			return throttle.Refused(r.lasts)
		}
		return throttle.Answer{}
	}
}

// uncounted is a [throttle.Policy.Answer] of the month: a call refused by the second's limit of an
// application or an API costs nothing. For other failures it is unknown, so they keep their cost.
func uncounted(resp *http.Response) throttle.Answer {
	if factsOf(resp).limit.uncounted {
		return throttle.Answer{}.WithCost(0)
	}
	return throttle.Answer{}
}

// head is how much of a body is looked at. No refusal is longer.
const head = 4 << 10

// An answer is what an answer's body says. It is read once for all rows, and kept beside the body.
type answer struct {
	mu   sync.Mutex
	read bool
	facts

	text  window
	scan  jsonscan.Scanner
	room  [48]byte
	texts [members]string
}

// facts are what the rows need to know of a body.
type facts struct {
	limit    limit         // the limit that the code names, or the zero limit without a code of the tables
	denied   bool          // the body is surely the ban, as JSON
	punished bool          // the body has the form of a ban. It may have a code, too, and then may be no ban.
	wait     time.Duration // the time that the form of a ban prints
	page     bool          // the body is a page, HTML or XML
}

// A window is the head of a body.
type window struct{ peek.Text }

// From implements [jsonscan.Source].
func (w *window) From(off int) []byte { return w.Text.From(off, head) }

// factsOf returns the facts of an answer's body, or no facts if the body must not be read.
func factsOf(resp *http.Response) facts {
	if !mayRead(resp) {
		return facts{}
	}

	// Where nothing can be kept beside the body, each row reads for itself.
	a, text := peek.Kept[answer](resp)
	if a == nil {
		a = new(answer)
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	// The first row that asks reads the body for all rows.
	if !a.read {
		a.text = window{text}
		a.facts, a.read = a.readFacts(failed(resp)), true
	}

	return a.facts
}

// mayRead reports whether a body may be read before the caller gets it: a body that may be a refusal by its
// media type, and under any other media type the body of an error or of a short answer. A refusal may come
// as a text, without a type, and without a length. The caller wants the parts of a stream as they come, so
// no stream may be read.
func mayRead(resp *http.Response) bool {
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch {
	case media == "application/json" || media == "": // as nearly all
		return true
	case media == "text/event-stream" || media == "application/stream+json" || strings.HasPrefix(media, "multipart/"):
		return false
	case media == "application/octet-stream" || strings.HasPrefix(media, "text/"):
		return true
	case resp.StatusCode >= http.StatusBadRequest || resp.ContentLength >= 0 && resp.ContentLength <= head:
		return true
	}

	for _, kind := range []string{"json", "html", "xml"} {
		if strings.HasSuffix(media, "/"+kind) || strings.HasSuffix(media, "+"+kind) {
			return true
		}
	}

	return false
}

// failed reports whether an answer has a status with which the new API refuses. In a success, the
// member code names something unrelated.
func failed(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// The members of a body that identify the answer.
const (
	atErrcode = iota
	atSubCode
	atCode
	atPunish
	atStatus
	atSource
	atWait
	members
)

var memberNames = [members]string{"errcode", "sub_code", "code", "punish", "status", "source", "wait"}

// readFacts reads the facts out of the body. withWords says that the body may have a code of the new API,
// which is a word.
func (a *answer) readFacts(withWords bool) (f facts) {
	f.page = a.readMembers(memberNames[:], a.texts[:])

	// The old API may wrap a code. The wrapped code stands in sub_code, or in the text alone.
	number := a.texts[atErrcode]
	if number == envelope {
		number = cmp.Or(a.texts[atSubCode], a.wrappedCode())
	}

	f.limit = numbers[number]
	if f.limit.about == nothing && withWords {
		f.limit = limitOf(a.texts[atCode])
	}
	if f.limit.ifTooFast {
		f.limit.unsure = !tooFast.MatchString(a.member("errmsg") + a.member("sub_msg"))
	}

	// The ban has no code of its own, whatever the status:
	//
	//	{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"…"}
	deny := strings.EqualFold(a.texts[atPunish], "deny")
	refused := a.texts[atStatus] == "1111"
	f.denied = deny || refused && strings.EqualFold(a.texts[atSource], "x5")

	f.punished = deny || refused
	if f.punished {
		f.wait = minutes(a.texts[atWait])
	}

	return f
}

// envelope is the errcode with which the old API wraps a code.
const envelope = "88"

var (
	wrapped = regexp.MustCompile(`subcode=(\d+)`)

	// tooFast finds the texts that speak of a pace.
	tooFast = regexp.MustCompile(`(?i)too (?:fast|many|often|frequent)|per (?:second|minute|hour)|exceed \d+ times|frequen|speed|\brate\b|throttl|flow.?control|\bqp[sm]\b|` +
		`频率|频繁|限流|限速|流控|太快|过快|太多|过多|每秒|每分钟|/ ?分`)
)

// wrappedCode returns the code that the old API wraps in a text, or "".
func (a *answer) wrappedCode() string {
	if m := wrapped.FindStringSubmatch(a.member("errmsg")); m != nil {
		return m[1]
	}
	return ""
}

// minutes parses a number of minutes, at most [throttle.MaxPenalty], or 0 for an invalid number.
func minutes(text string) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0) || math.IsInf(n, 1) { // n > 0 is false for NaN, too
		return 0
	}
	return time.Duration(min(n, throttle.MaxPenalty.Minutes()) * float64(time.Minute))
}

// member returns the text of a member of the body, or "".
func (a *answer) member(name string) string {
	var text [1]string
	a.readMembers([]string{name}, text[:])
	return text[0]
}

// readMembers reads the members of the body's object, within the bytes that may be read, and stores
// the texts of the members with one of the names in texts, at the place of the name. Of a duplicate name
// the first counts. Null, "", an object and an array count as missing. page reports whether the body is a
// page in place of an object. Malformed JSON ends the reading.
func (a *answer) readMembers(names, texts []string) (page bool) {
	s := &a.scan
	s.Reset(&a.text, 0)
	s.SetRoom(a.room[:])
	s.BOM()
	if bracket := s.Peek(); bracket != '{' {
		return bracket == '<'
	}

	s.Open()
	for first := true; ; first = false {
		name, more, _ := s.Member(first)
		if !more {
			return false
		}

		i := slices.IndexFunc(names, func(n string) bool { return n == string(name) })
		c := s.Peek()
		isWanted := i >= 0 && texts[i] == ""
		if !isWanted || c == '{' || c == '[' {
			if !s.Skip() {
				return false
			}
			continue
		}

		text, ok := s.Scalar()
		if !ok {
			return false
		}

		texts[i] = strings.TrimSpace(text)
	}
}
