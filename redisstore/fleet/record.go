package fleet

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle/internal/shares"
	"github.com/fleetthrottle/throttle/store"
)

// recordVersion is the version of reports. Readers ignore unknown fields, and
// reports of a different version.
const recordVersion = 1

// Bounds of a record.
const (
	mostBudgets  = 128
	mostPolicies = 256
	mostRecord   = 64 << 10
)

// A record is a node's report. It has durations and no moments: only the server's clock counts.
type record struct {
	Version  int         `json:"version"`
	Program  string      `json:"program"`
	Host     string      `json:"host"`
	PID      int         `json:"pid"`
	Library  string      `json:"library"`
	Up       Millis      `json:"up_ms"`
	Every    Millis      `json:"every_ms"` // interval of reports
	Span     Millis      `json:"span_ms"`  // the time in which starts were counted
	File     FileState   `json:"file"`
	Switch   NodeSwitch  `json:"switch,omitzero"`
	Requests int64       `json:"requests"` // starts in that time that were not given back
	Policies []policyUse `json:"policies"`
	LeftOut  int         `json:"left_out,omitempty"` // budgets that found no room, at least
}

// A policyUse is a policy that a node has used, with the budgets of it that the node used lately.
type policyUse struct {
	Policy   string      `json:"policy"`
	Group    string      `json:"group"`
	Limit    string      `json:"limit"`
	Jitter   int64       `json:"jitter_us,omitempty"`
	Shadow   bool        `json:"shadow,omitempty"`
	Adaptive bool        `json:"adaptive,omitempty"`
	Node     bool        `json:"node,omitempty"`
	Runbook  string      `json:"runbook,omitempty"` // from FileState.Runbooks
	Budgets  []budgetUse `json:"budgets,omitempty"`
}

// A budgetUse is a budget, by its hashed key.
type budgetUse struct {
	Key    string `json:"key"`
	Starts int64  `json:"starts"`          // requests, as in a record
	Cost   int64  `json:"cost,omitempty"`  // charged cost of the starts; 0 from earlier versions
	State  *State `json:"state,omitempty"` // of a budget per node

	ClosedFor Millis `json:"closed_for_ms,omitzero"` // how long a budget per node has been closed
	ClosedBy  string `json:"closed_by,omitempty"`    // what closed it, such as ByAnswer, "" if unknown

	Waiting int    `json:"waiting,omitempty"`  // callers of the node in line
	Oldest  Millis `json:"oldest_ms,omitzero"` // how long the first of them has waited
	Left    int    `json:"left,omitempty"`     // callers that left the line without a start, in the last minute
	Refused int    `json:"refused,omitempty"`  // refused callers, in the last minute
}

// FileState is the state of the policy file that a node follows. The zero
// FileState means that the node follows none.
type FileState struct {
	Reads   int      `json:"reads,omitempty"`    // version of the file format that the node reads, 0 without one
	Pushed  bool     `json:"pushed,omitempty"`   // the node follows the pushed file
	InForce string   `json:"in_force,omitempty"` // the generation in force
	Seen    string   `json:"seen,omitempty"`     // the generation that it read last
	For     Millis   `json:"for_ms"`             // how long the generation has been in force
	Err     string   `json:"error,omitempty"`    // why Seen is not in force
	Loosens []string `json:"loosens,omitempty"`  // limits that Seen loosens, if its grace time runs
	Grace   Millis   `json:"grace_ms,omitempty"` // remaining grace time

	// Runbooks are URLs of runbooks by policy name. The node reports them with
	// its policies, and snapshots have them as [Budget.Runbook].
	Runbooks map[string]string `json:"-"`
}

// address returns text if it is a URL that a page may link to, otherwise "".
func address(text string) string {
	isSafe := len(text) <= longestText && Clean(text, longestText) == text

	// A URL with a user may have a password.
	u, err := url.Parse(text)
	isWeb := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
	if !isSafe || !isWeb {
		return ""
	}
	return text
}

// clip returns the state with texts that are safe to print, and with at most 20 of Loosens.
func (f FileState) clip() FileState {
	f.InForce, f.Seen, f.Err = Clean(f.InForce, longestName), Clean(f.Seen, longestName), Clean(f.Err, longestText)
	all := f.Loosens[:min(len(f.Loosens), 20)]
	f.Loosens = nil
	for _, text := range all {
		f.Loosens = append(f.Loosens, Clean(text, longestName))
	}
	return f
}

// State is the state of a budget at one moment: a [store.Status] for JSON.
type State struct {
	Used     int     `json:"used"`
	Booked   int     `json:"booked"`
	Waiting  int     `json:"waiting"` // cost of starts booked for later, and of callers in line
	Callers  int     `json:"callers"` // callers in line
	Wait     Millis  `json:"wait_ms"` // -1 ms if no start can be planned
	Paused   Millis  `json:"paused_ms"`
	Repeated int     `json:"repeated,omitempty"`
	Ceiling  float64 `json:"ceiling,omitempty"`
	Told     string  `json:"told,omitempty"`       // the limit that the upstream told, such as "100/m"
	ToldAgo  Millis  `json:"told_ago_ms,omitzero"` // how long ago an answer told it last; 0 without Told
	Shares   []Share `json:"shares,omitempty"`     // shares with the most waiting callers, then the rest as one share
}

// MostShares is how many shares a [State] names. The rest is one [Share].
const MostShares = shares.Most

// Share is the state of one share's callers, or of several shares together.
// Names of shares are hashed.
type Share struct {
	// Name is the name that "throttle explain" prints. "none" stands for
	// callers without a share, "common" for shares beyond the number that a
	// budget distinguishes, "other" for shares beyond [MostShares].
	Name    string `json:"share"`
	Weight  int    `json:"weight,omitempty"`
	Waiting int    `json:"waiting"`          // cost of its callers in line
	Served  int    `json:"served"`           // cost served since its callers began to wait; -1 if unknown
	Shares  int    `json:"shares,omitempty"` // number of shares in "other"
}

// StateOf converts a status. The State's texts are safe to print.
func StateOf(st store.Status) State {
	s := State{
		Used: st.Used, Booked: st.Booked, Waiting: st.Waiting, Callers: st.Callers,
		Wait: Millis{st.Wait}, Paused: Millis{st.Paused}, Repeated: st.Repeated, Ceiling: st.Ceiling,
	}
	if st.Told.N() > 0 {
		s.Told, s.ToldAgo = st.Told.String(), Millis{st.ToldAgo}
	}
	for _, l := range shares.Lines(st.Shares) {
		s.Shares = append(s.Shares, Share(l))
	}

	// JSON has no infinity: a negative wait means that the cost never fits.
	if st.Wait == store.Never {
		s.Wait.Duration = -time.Millisecond
	}
	return s
}

// clip returns the state with at most as many shares as StateOf names, and with names that are safe to print.
func (s State) clip() State {
	s.Shares = slices.Clone(s.Shares[:min(len(s.Shares), MostShares+1)])
	for i := range s.Shares {
		s.Shares[i].Name = Clean(s.Shares[i].Name, longestName)
	}
	return s
}

// age subtracts d, the time since the report, from what is left of the state's wait and pause: only the node itself could
// say its new state.
func (s *State) age(d time.Duration) {
	s.Paused.Duration = max(0, s.Paused.Duration-d)

	// A negative wait stands for a start that cannot be planned.
	if s.Wait.Duration > 0 {
		s.Wait.Duration = max(0, s.Wait.Duration-d)
	}
}

// encode returns the JSON of the record, without the runbooks, budgets and policies that do not fit into mostRecord.
func (r *record) encode() []byte {
	// Each round makes the record smaller, and a record without policies fits.
	for {
		text, err := json.Marshal(r)
		if err == nil && len(text) <= mostRecord {
			return text
		}
		r.shrink()
	}
}

// shrink drops all runbooks or, if there are none, half of each policy's budgets, a quarter of the policies, and what
// the file loosens.
func (r *record) shrink() {
	runbooks := false
	for i := range r.Policies {
		runbooks = runbooks || r.Policies[i].Runbook != ""
		r.Policies[i].Runbook = ""
	}

	// Budgets matter more than runbooks.
	if runbooks {
		return
	}

	for i := range r.Policies {
		p := &r.Policies[i]
		keep := len(p.Budgets) / 2
		r.LeftOut += len(p.Budgets) - keep
		p.Budgets = p.Budgets[:keep]
	}

	// Drop policies, too: their names alone may be too long.
	r.Policies = r.Policies[:len(r.Policies)*3/4]
	r.File.Loosens = nil
}

// decode parses a record, which may have been edited by hand.
func decode(text string) (r record, err error) {
	if len(text) > mostRecord {
		return r, errors.New("a record is too long")
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, err
	}
	if r.Version != recordVersion {
		return r, errors.New("a record is of another version")
	}

	// Bound the work of a reader: any program can write a record.
	r.Policies = r.Policies[:min(len(r.Policies), mostPolicies)]
	return r, nil
}

// useOf describes a charge's policy.
func useOf(c *store.Charge) policyUse {
	return policyUse{
		Policy: c.Budget.Policy, Group: c.Budget.Group, Limit: c.Limit.String(),
		Jitter: c.Jitter.Microseconds(), Shadow: c.Shadow, Adaptive: c.Adaptive, Node: c.Node,
	}
}

// charge returns a charge of cost 1 of the policy, without a key. Its error says that the limit cannot be parsed.
func (p *policyUse) charge() (store.Charge, error) {
	l, err := store.ParseLimit(p.Limit)
	return store.Charge{
		Budget: store.Budget{Policy: p.Policy, Group: p.Group}, Limit: l, Cost: 1,
		// Clamp values that were edited by hand, so that the multiplication cannot overflow.
		Jitter: time.Duration(max(0, min(p.Jitter, int64(24*time.Hour/time.Microsecond)))) * time.Microsecond,
		Shadow: p.Shadow, Adaptive: p.Adaptive, Node: p.Node,
	}, err
}

// encodeKey returns the hashed key of a budget as text.
func encodeKey(key [16]byte) string { return base64.RawURLEncoding.EncodeToString(key[:]) }

// decodeKey parses a text of encodeKey. ok is false for any other text.
func decodeKey(text string) (key [16]byte, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	copy(key[:], b)
	return key, err == nil && len(b) == len(key)
}

// Millis is a duration that JSON encodes as a number of milliseconds.
type Millis struct{ time.Duration }

// MarshalJSON implements [json.Marshaler].
func (m Millis) MarshalJSON() ([]byte, error) { return json.Marshal(m.Milliseconds()) }

// UnmarshalJSON implements [json.Unmarshaler]. Values beyond the range of a
// duration are clamped.
func (m *Millis) UnmarshalJSON(text []byte) error {
	var n int64
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}

	// Clamp before the multiplication: a record may hold any number.
	const most = math.MaxInt64 / int64(time.Millisecond)
	m.Duration = time.Duration(max(-most, min(n, most))) * time.Millisecond
	return nil
}

// moment parses a moment of the server's clock, in microseconds since 1970. It refuses moments before 1970, and after the
// year 9892: JSON cannot encode years beyond 9999.
func moment(text string) (time.Time, bool) {
	micros, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(micros).UTC(), err == nil && micros >= 0 && micros < 250_000_000_000_000_000
}

// Clean makes a foreign text safe to print: it escapes characters that control
// a terminal or the text direction, and cuts the text to most characters, with
// "…" at the cut.
func Clean(text string, most int) string {
	var b strings.Builder
	n := 0
	for i, c := range text {
		n++
		if n > most {
			b.WriteString("…")
			break
		}

		switch {
		// An invalid byte is decoded as RuneError, like a genuine U+FFFD. Only the text tells them apart.
		case c == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x80:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, c)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}

	return b.String()
}

// Longest texts that are read from Redis, in characters.
const (
	longestName = 200
	longestText = 500
)
