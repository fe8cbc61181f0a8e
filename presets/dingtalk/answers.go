package dingtalk

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/peek"
)

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

// facts are what the rows want to know of a body.
type facts struct {
	limit    limit         // that the code names; the zero limit if there is no code of the table
	denied   bool          // it is the ban as JSON
	punished bool          // it is the ban, or has the form of the ban around a code
	wait     time.Duration // that the ban prints
	page     bool          // it is a page, HTML or XML
}

// A window is the head of a body.
type window struct{ peek.Text }

// From implements [jsonscan.Source].
func (w *window) From(off int) []byte { return w.Text.From(off, head) }

// factsOf reads an answer's body, unless that was done before.
func factsOf(resp *http.Response) facts {
	if !looked(resp) {
		return facts{}
	}
	a, text := peek.Kept[answer](resp)
	if a == nil {
		a = new(answer)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.read {
		a.text = window{text}
		a.facts, a.read = a.readFacts(failed(resp)), true
	}
	return a.facts
}

// looked reports whether a body may be looked at: one that may be a refusal, and that nobody can use
// one half of. A refusal may call itself text, or nothing, and need not tell its length. A body that
// begins with neither "{" nor "<" is left after its first bytes.
func looked(resp *http.Response) bool {
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

// failed reports whether an answer has a status with which the new API refuses. The code of a success is
// the name of something else.
func failed(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// The members of a body that tell what it is.
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

// readFacts reads the body. withWords says that the body may have a code of the new API.
func (a *answer) readFacts(withWords bool) (f facts) {
	f.page = a.readMembers(memberNames[:], a.texts[:])

	// The old API may wrap a code; without sub_code, the code stands in the text alone.
	number := a.texts[atErrcode]
	if number == envelope {
		number = a.texts[atSubCode]
		if m := wrapped.FindStringSubmatch(a.member("errmsg")); number == "" && m != nil {
			number = m[1]
		}
	}
	if f.limit = numbers[number]; f.limit.about == nothing && withWords {
		f.limit = limitOf(a.texts[atCode])
	}
	if f.limit.ifTooFast {
		f.limit.unsure = !tooFast.MatchString(a.member("errmsg") + a.member("sub_msg"))
	}

	// The ban has no code of its own, whatever the status:
	//
	//	{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"…"}
	deny, refused := strings.EqualFold(a.texts[atPunish], "deny"), a.texts[atStatus] == "1111"
	f.denied = deny || refused && strings.EqualFold(a.texts[atSource], "x5")
	if f.punished = deny || refused; f.punished {
		f.wait = minutes(a.texts[atWait])
	}
	return f
}

const envelope = "88"

var (
	wrapped = regexp.MustCompile(`subcode=(\d+)`)

	// tooFast finds the texts that speak of a pace.
	tooFast = regexp.MustCompile(`(?i)too (?:fast|many|often|frequent)|per (?:second|minute|hour)|frequen|speed|rate.?limit|flow.?control|\bqp[sm]\b|` +
		`频率|频繁|限流|限速|流控|太快|过快|太多|过多|每秒|每分钟|/ ?分`)
)

// minutes reads a number of minutes, of [throttle.MaxPenalty] at most; 0 if it is none.
func minutes(text string) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0) {
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

// readMembers reads the members of the object that the body is, as far as the body is looked at, and puts
// the texts of those that have one of the names into texts. Of a name that comes twice the first counts,
// and null is not there. It returns whether the body is a page in place of an object.
func (a *answer) readMembers(names, texts []string) (page bool) {
	s := &a.scan
	s.Reset(&a.text, 0)
	s.SetRoom(a.room[:])
	s.BOM()
	if first := s.Peek(); first != '{' {
		return first == '<'
	}

	s.Open()
	for first := true; ; first = false {
		name, more, _ := s.Member(first)
		if !more {
			return false
		}

		i := slices.IndexFunc(names, func(n string) bool { return n == string(name) })
		if c := s.Peek(); i < 0 || texts[i] != "" || c == '{' || c == '[' {
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
