package fleet

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/shares"
	"github.com/fleetthrottle/throttle/store"
)

// recordVersion is the version of what nodes report. A reader ignores fields that it does
// not know, and records of another version.
const recordVersion = 1

// The bounds of a record.
const (
	mostBudgets  = 128
	mostPolicies = 256
	mostRecord   = 64 << 10
)

// A record is what a node reports of itself. It holds lengths of time and no moments:
// only the server's clock counts.
type record struct {
	Version  int         `json:"version"`
	Program  string      `json:"program"`
	Host     string      `json:"host"`
	PID      int         `json:"pid"`
	Library  string      `json:"library"`
	Up       Millis      `json:"up_ms"`
	Every    Millis      `json:"every_ms"` // how often it reports
	Span     Millis      `json:"span_ms"`  // the time in which starts were counted
	File     FileState   `json:"file"`
	Requests int64       `json:"requests"` // that got a start in that time and did not give it back
	Policies []policyUse `json:"policies"`
	LeftOut  int         `json:"left_out,omitempty"` // budgets that found no room
}

// A policyUse is a policy that a node has used, and its budgets that it used lately.
type policyUse struct {
	Policy   string      `json:"policy"`
	Group    string      `json:"group"`
	Limit    string      `json:"limit"`
	Jitter   int64       `json:"jitter_us,omitempty"`
	Shadow   bool        `json:"shadow,omitempty"`
	Adaptive bool        `json:"adaptive,omitempty"`
	Node     bool        `json:"node,omitempty"`
	Runbook  string      `json:"runbook,omitempty"` // what FileState.Runbooks has
	Budgets  []budgetUse `json:"budgets,omitempty"`
}

// A budgetUse is a budget, by its hashed key.
type budgetUse struct {
	Key    string `json:"key"`
	Starts int64  `json:"starts"`          // requests, as in a record
	Cost   int64  `json:"cost,omitempty"`  // what they were charged; of an earlier version 0
	State  *State `json:"state,omitempty"` // of one that is the node's own

	Waiting int    `json:"waiting,omitempty"`  // callers of the node in its line
	Oldest  Millis `json:"oldest_ms,omitzero"` // how long the first of them has waited
	Left    int    `json:"left,omitempty"`     // callers that left the line without a start, in the last minute
	Refused int    `json:"refused,omitempty"`  // callers that were refused, in the last minute
}

// A FileState is what a node says of the file of policies that it follows.
type FileState struct {
	Reads   int      `json:"reads,omitempty"`    // the version of the form that it reads; 0: it reads none
	Pushed  bool     `json:"pushed,omitempty"`   // it follows what is pushed
	InForce string   `json:"in_force,omitempty"` // the generation in force
	Seen    string   `json:"seen,omitempty"`     // the generation that it read last
	For     Millis   `json:"for_ms"`             // how long that in force has been so
	Err     string   `json:"error,omitempty"`    // why what was seen is not in force
	Loosens []string `json:"loosens,omitempty"`  // what it would no longer hold, if it waits
	Grace   Millis   `json:"grace_ms,omitempty"` // and for how long it waits still

	// Runbooks are the addresses of pages that say what to do while a budget is closed, by the name of the policy. A node
	// reports them with its policies. Snapshots have them as [Budget.Runbook].
	Runbooks map[string]string `json:"-"`
}

// address returns an address that a page may link to; "" for any other text.
func address(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || len(text) > longestText || Clean(text, longestText) != text {
		return ""
	}
	return text
}

// clip bounds what may be of any length.
func (f FileState) clip() FileState {
	f.InForce, f.Seen, f.Err = Clean(f.InForce, longestName), Clean(f.Seen, longestName), Clean(f.Err, longestText)
	all := f.Loosens[:min(len(f.Loosens), 20)]
	f.Loosens = nil
	for _, text := range all {
		f.Loosens = append(f.Loosens, Clean(text, longestName))
	}
	return f
}

// A State is what a budget is like at one moment: [store.Status], for JSON.
type State struct {
	Used     int     `json:"used"`
	Booked   int     `json:"booked"`
	Waiting  int     `json:"waiting"` // costs: of what is booked for later, and of callers in line
	Callers  int     `json:"callers"` // callers in line
	Wait     Millis  `json:"wait_ms"` // -1: no start can be planned
	Paused   Millis  `json:"paused_ms"`
	Repeated int     `json:"repeated,omitempty"`
	Ceiling  float64 `json:"ceiling,omitempty"`
	Shares   []Share `json:"shares,omitempty"` // those that wait most, and in the end all others together
}

// MostShares is how many shares of a budget's callers a [State] names. All others are one [Share] together.
const MostShares = shares.Most

// A Share is what the callers of one share are like, or those of several together. The names that programs give
// shares are hashed.
type Share struct {
	// Name is what "throttle explain" prints; "none" of callers without a share, "common" of the shares beyond those that a budget tells
	// apart, "other" of all beyond [MostShares].
	Name    string `json:"share"`
	Weight  int    `json:"weight,omitempty"`
	Waiting int    `json:"waiting"`          // the costs of its callers in line
	Served  int    `json:"served"`           // what it had since its callers began to wait; -1: not known
	Shares  int    `json:"shares,omitempty"` // how many are other
}

// StateOf is the state that a status describes.
func StateOf(st store.Status) State {
	s := State{st.Used, st.Booked, st.Waiting, st.Callers, Millis{st.Wait}, Millis{st.Paused}, st.Repeated, st.Ceiling, nil}
	for _, l := range shares.Lines(st.Shares) {
		s.Shares = append(s.Shares, Share(l))
	}
	if st.Wait == store.Never {
		s.Wait.Duration = -time.Millisecond
	}
	return s
}

// clip bounds what a node says of shares.
func (s State) clip() State {
	s.Shares = slices.Clone(s.Shares[:min(len(s.Shares), MostShares+1)])
	for i := range s.Shares {
		s.Shares[i].Name = Clean(s.Shares[i].Name, longestName)
	}
	return s
}

// encode returns the record with as many budgets as have room.
func (r *record) encode() []byte {
	for {
		text, err := json.Marshal(r)
		if err == nil && len(text) <= mostRecord {
			return text
		}
		r.shrink()
	}
}

// shrink leaves out a part of what takes the most room.
func (r *record) shrink() {
	runbooks := false
	for i := range r.Policies {
		runbooks = runbooks || r.Policies[i].Runbook != ""
		r.Policies[i].Runbook = ""
	}

	if runbooks {
		return // budgets matter more
	}

	for i := range r.Policies {
		p := &r.Policies[i]
		keep := len(p.Budgets) / 2
		r.LeftOut += len(p.Budgets) - keep
		p.Budgets = p.Budgets[:keep]
	}

	r.Policies = r.Policies[:len(r.Policies)*3/4]
	r.File.Loosens = nil
}

// decode reads a record that somebody may have written by hand.
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

// charge returns a charge of cost 1 of the policy, without a key.
func (p *policyUse) charge() (store.Charge, error) {
	l, err := store.ParseLimit(p.Limit)
	return store.Charge{
		Budget: store.Budget{Policy: p.Policy, Group: p.Group}, Limit: l, Cost: 1,
		Jitter: time.Duration(max(0, min(p.Jitter, int64(24*time.Hour/time.Microsecond)))) * time.Microsecond,
		Shadow: p.Shadow, Adaptive: p.Adaptive, Node: p.Node,
	}, err
}

// encodeKey and decodeKey write the hashed key of a budget.
func encodeKey(key [16]byte) string { return base64.RawURLEncoding.EncodeToString(key[:]) }

func decodeKey(text string) (key [16]byte, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	copy(key[:], b)
	return key, err == nil && len(b) == len(key)
}
