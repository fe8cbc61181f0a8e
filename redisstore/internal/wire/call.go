package wire

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle/store"
)

// A Call is a script with its keys and arguments: first the time, then the frame,
// then all of More.
type Call struct {
	Script Script
	Keys   []string
	Frame  Frame
	More   []any
}

// Args returns the arguments of the call. now is "" for the server's time.
func (c Call) Args(now any) []any { return append([]any{now, []byte(c.Frame)}, c.More...) }

// A Frame is a list of numbers of 8 bytes each, the form of requests and replies
// of scripts. The numbers are doubles, as in Lua, so whole numbers are exact up to
// 2^53. The nil Frame is empty.
type Frame []byte

// Add returns the frame with whole numbers appended.
func (f Frame) Add(all ...int64) Frame {
	for _, v := range all {
		f = binary.LittleEndian.AppendUint64(f, math.Float64bits(float64(v)))
	}
	return f
}

// Increase adds one to the i-th number.
func (f Frame) Increase(i int) {
	binary.LittleEndian.PutUint64(f[8*i:], math.Float64bits(float64(f.At(i)+1)))
}

// Size returns how many numbers there are.
func (f Frame) Size() int { return len(f) / 8 }

// At returns the i-th number, from 0 on.
func (f Frame) At(i int) int64 {
	return int64(math.Float64frombits(binary.LittleEndian.Uint64(f[8*i:])))
}

// From returns the numbers from the i-th on.
func (f Frame) From(i int) Frame { return f[8*i:] }

// A Status is how a reply begins; see lua/book.lua.
type Status int64

const (
	Done            Status = iota // the call was done, perhaps by an earlier copy of it
	NeedsBoundaries               // nothing was done: the calendar's boundaries must reach to Need
	Late                          // nothing was done: a later call of the node was done before
	Shut                          // nothing was done: Gates are shut
	NeedsTime                     // nothing was done: the call must say its lengths of time again
)

// A Head is the beginning of every reply.
type Head struct {
	Status
	Now   int64 // the server's time in microseconds
	Need  int64 // NeedsBoundaries: the time up to which the boundaries must reach
	Gates []Gate
}

// A Gate is an unlimited budget that is shut: see the part answer of lua/book.lua.
type Gate struct {
	Key  string
	Left int64 // for how long, in microseconds
}

// ErrReply means that a reply is not the script's.
var ErrReply = errors.New("redisstore: an answer that cannot be understood")

// ReadHead reads the beginning of the reply to a call with those keys. If the call
// was done it also returns the numbers behind the status, from the time on. Its
// error is nil or [ErrReply].
func ReadHead(reply string, keys []string) (Head, Frame, error) {
	f := Frame(reply)
	if f.Size() < 2 || !f.isSound() {
		return Head{}, nil, ErrReply
	}

	h, rest := Head{Status: Status(f.At(0)), Now: f.At(1)}, f.From(2)

	switch h.Status {
	// What follows begins with the time, because replies read it once more.
	case Done:
		return h, f.From(1), nil

	case Late:
		return h, nil, nil

	// No start is farther away than twice MaxAhead, so a farther time is no answer of the script.
	case NeedsBoundaries, NeedsTime:
		if rest.Size() == 1 && rest.At(0)-h.Now <= 2*Micros(store.MaxAhead) {
			h.Need = rest.At(0)
			return h, nil, nil
		}

	// A pair of numbers for each gate that is shut: the index of its key, and for how long it stays shut. The first key is the record's.
	case Shut:
		for ; rest.Size() >= 2; rest = rest.From(2) {
			i := rest.At(0) - 1 // from 0 on
			if i < 1 || i >= int64(len(keys)) {
				return h, nil, ErrReply
			}
			h.Gates = append(h.Gates, Gate{keys[i], rest.At(1)})
		}

		if rest.Size() == 0 && len(h.Gates) > 0 {
			return h, nil, nil
		}
	}

	return h, nil, ErrReply
}

// maxNumber is more than any number of a script, and so small that sums and
// differences of two such numbers do not overflow.
const maxNumber = 1 << 60

// isSound reports whether the frame is numbers of 8 bytes, none of them cut off, NaN, or farther from 0 than maxNumber.
func (f Frame) isSound() bool {
	for i := range f.Size() {
		v := math.Float64frombits(binary.LittleEndian.Uint64(f[8*i:]))
		if !(math.Abs(v) <= maxNumber) { // also for NaN
			return false
		}
	}
	return len(f)%8 == 0
}

// A reader reads a reply from its beginning. Where the reply ends too early it
// reads zeros, and has failed.
type reader struct {
	rest   Frame
	failed bool // the reply was too short, or makes no sense
}

// next returns the next number.
func (r *reader) next() int64 {
	if len(r.rest) == 0 {
		r.failed = true
		return 0
	}
	v := r.rest.At(0)
	r.rest = r.rest.From(1)
	return v
}

// peek returns the next number, and does not move on. Like next it fails at the end.
func (r *reader) peek() int64 {
	if len(r.rest) == 0 {
		return r.next()
	}
	return r.rest.At(0)
}

// count reads the length of a list whose elements are one number or more each. It
// fails, and returns 0, if the rest has no room for such a list.
func (r *reader) count() int {
	n := r.next()
	if n < 0 || n > int64(r.rest.Size()) {
		r.failed = true
		return 0
	}
	return int(n)
}

// check fails the reader unless a condition holds.
func (r *reader) check(good bool) { r.failed = r.failed || !good }

// end returns the error of a reply that was too short, too long, or made no sense.
func (r *reader) end() error {
	if r.failed || len(r.rest) > 0 {
		return ErrReply
	}
	return nil
}

// Boundaries say for which time a script needs the boundaries of calendar windows:
// the scripts know no time zones. Both times are microseconds of the server's clock.
type Boundaries struct {
	Now, Until int64

	Known bool // Now follows the server's clock. If false, it is the node's time.
	Told  bool // the server has just told Now. If false, Now is an estimate.
}

// Wider returns the boundaries that a reply asks for with NeedsBoundaries or
// NeedsTime. They reach at least twice as far ahead as b.
func (b Boundaries) Wider(h Head) Boundaries {
	return Boundaries{Now: h.Now, Until: max(h.Need, h.Now+2*(b.Until-b.Now)), Known: true, Told: true}
}

// Due returns when a call that is written now should arrive, in microseconds of the
// server's clock. It is 0 if that clock is not known, or if the server has just told
// its time, because a call came late or with too few boundaries.
func (b Boundaries) Due() int64 {
	if b.Told || !b.Known {
		return 0
	}
	return b.Now
}

// ServerTime returns the server's time if the server has just told it, and
// otherwise 0.
func (b Boundaries) ServerTime() int64 {
	if !b.Told {
		return 0
	}
	return b.Now
}

// windowsAhead is how many windows beyond the needed ones are sent along, so that
// a queue of a few windows costs no second call.
const windowsAhead = 3

// AppendRule appends the rule of one key: what the script must know of the charge's
// limit. key is the 1-based index among KEYS. See read_rule in lua/entries.lua.
func (b Boundaries) AppendRule(f Frame, key int, c *store.Charge) Frame {
	tokens, flow := int64(0), int64(0)
	if c.Limit.Kind() == store.KindTokenBucket {
		tokens, flow = c.Refill()
	}

	// One key has the rule: the 1 is how many share it.
	f = f.Add(int64(key), 1, int64(c.Limit.Kind()), int64(c.Limit.Capacity()),
		Micros(c.Span()), Micros(c.Jitter), Micros(c.Pace), tokens, flow, learning(c))

	// The number of boundaries stands before them, so write 0, and the number itself once they are there.
	at := f.Size()
	f = b.appendWindows(f.Add(0), c.Limit)
	boundaries := f.Size() - at - 1
	copy(f.From(at), Frame(nil).Add(int64(boundaries)))
	return f
}

// learning returns the window by which a charge learns, in microseconds. A budget
// whose limit the upstream tells learns by the told window: 1 stands for that.
func learning(c *store.Charge) int64 {
	if c.Limit.Kind() == store.KindTold {
		return flag(c.Adaptive)
	}
	return Micros(c.LearningPeriod())
}

// appendWindows appends where the windows of a FixedWindow end: for windows of a fixed
// length that length alone, and for a calendar the boundaries. They begin one window
// before the window of Now, because Now may be a little off, and reach some windows
// beyond Until. For any other limit it appends nothing.
func (b Boundaries) appendWindows(f Frame, l store.Limit) Frame {
	if l.Kind() != store.KindFixedWindow {
		return f
	}
	if l.Per() > 0 {
		return f.Add(Micros(l.Per()))
	}

	// The first boundary is the begin of the window before.
	start, _ := l.Window(time.UnixMicro(b.Now))
	start, end := l.Window(start.Add(-1))
	f = f.Add(start.UnixMicro())

	// The first boundary beyond Until ends the last window that is needed.
	for beyond := 0; beyond <= windowsAhead; {
		f = f.Add(end.UnixMicro())
		if end.UnixMicro() > b.Until {
			beyond++
		}
		_, end = l.Window(end)
	}

	return f
}

// Micros returns a duration in microseconds, rounded up: a store that keeps
// starts a little further apart than asked keeps every promise.
func Micros(d time.Duration) int64 {
	m := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		m++
	}
	return m
}

// Wait returns a wait that scripts answer in microseconds. It is [store.Never] if it
// is longer than MaxAhead, and 0 if it is below 0.
func Wait(micros int64) time.Duration {
	if micros > Micros(store.MaxAhead) {
		return store.Never
	}
	return time.Duration(max(0, micros)) * time.Microsecond
}

// storedForm is the version of the stored form. It is part of every key, so that
// programs with different forms never share a row: see docs/run/change.md.
const storedForm = "7"

// A Space is a namespace as one node uses it: the names of its keys and channels.
type Space struct {
	Node   string     // a random name of this node, among all nodes that use the same Redis
	Tagged bool       // all keys and channels have the namespace as their hash tag: see redisstore.Options
	DB     func() int // the number of the logical database; without a function it is 0

	prefix string // all keys and channels begin with it
	tag    string // the hash tag, where there is one: see Tag
}

// NewSpace returns a namespace for a new node.
func NewSpace(namespace string) *Space {
	id := make([]byte, 9)
	rand.Read(id) // never fails

	// Braces would be taken for a hash tag, so they are escaped.
	escaped := EscapeTag(namespace)
	return &Space{
		prefix: escaped + ":" + storedForm + ":",
		tag:    "{" + escaped + "}:",
		Node:   base64.RawURLEncoding.EncodeToString(id),
	}
}

// Row returns the key of a budget's row: the namespace, the policy and the hashed key. The other policies
// of a table are not part of the key, so a budget keeps its state whatever happens to the table around it,
// and two programs with different tables share the budgets of the policies that both have.
func (n *Space) Row(b *store.Budget) string {
	var hash [22]byte // of letters
	base64.RawURLEncoding.Encode(hash[:], b.Key[:])
	return n.prefix + n.Tag() + EscapeTag(b.Policy) + ":" + string(hash[:])
}

// Leases returns the key of a budget of concurrency slots. No other kind of key ends in
// ":flight".
func (n *Space) Leases(b *store.Budget) string { return n.Row(b) + ":flight" }

// Appointments returns the key under which Redis remembers when callers that left with their places in a budget's line should come
// again. No other kind of key ends in ":places".
func (n *Space) Appointments(b *store.Budget) string { return n.Row(b) + ":places" }

// Of returns the key of the row, or of the leases, of a charge's budget.
func (n *Space) Of(c *store.Charge) string {
	if c.Limit.Kind() == store.KindConcurrency {
		return n.Leases(&c.Budget)
	}

	return n.Row(&c.Budget)
}

// Record returns the key under which Redis remembers the last call of this node for a
// group. No budget has this key: keys of budgets end in a hash of 22 letters.
func (n *Space) Record(group string) string {
	return n.prefix + n.Tag() + "calls:" + n.Node + ":" + plain.Replace(group)
}

// SetUsedRecord returns the key under which Redis remembers the node's call of SetUsed with a number. No group has
// this key: the name of a group in a key has no colon.
func (n *Space) SetUsedRecord(call int64) string {
	return n.prefix + n.Tag() + "calls:" + n.Node + ":used:" + strconv.FormatInt(call, 10)
}

// Heartbeats returns the key under which Redis remembers which nodes use a group. No
// other kind of key ends in ":presence".
func (n *Space) Heartbeats(group string) string {
	return n.prefix + n.Tag() + "nodes:" + plain.Replace(group) + ":presence"
}

// Namespace returns the common beginning of all keys, whichever node made them.
func (n *Space) Namespace() string { return n.prefix }

// Tag returns the hash tag of the namespace, or "" unless Tagged. One tag puts all budgets of a namespace into
// one slot of a cluster: one script books all budgets of a request, and only the request's program knows which
// budgets these are.
func (n *Space) Tag() string {
	if !n.Tagged {
		return ""
	}

	return n.tag
}

// Shared returns the channel on which all nodes hear of pauses and losses.
func (n *Space) Shared() string { return n.channels() + "pause" }

// Own returns the channel on which this node hears that a waiter of this node has room.
func (n *Space) Own() string { return n.OwnPrefix() + n.Node }

// OwnPrefix returns the common beginning of the Own channels of all nodes.
func (n *Space) OwnPrefix() string { return n.channels() + "wake:" }

// channels returns the common beginning of the names of all channels. The logical databases
// of one server share its channels, so the number of the database is part of the names.
func (n *Space) channels() string {
	if n.DB == nil || n.DB() == 0 {
		return n.prefix + n.Tag()
	}

	return n.prefix + "db" + strconv.Itoa(n.DB()) + ":" + n.Tag()
}

// NamespaceProblem names the fault of a namespace and what to write instead. It returns "" for a good namespace, and for "",
// which is the default namespace.
func NamespaceProblem(namespace string) string {
	// Bytes that are not UTF-8 are read as RuneError.
	unprintable := func(c rune) bool { return unicode.IsControl(c) || c == utf8.RuneError }

	switch {
	case strings.ContainsFunc(namespace, unprintable):
		return fmt.Sprintf("%q has a character that nobody sees: use letters, digits and punctuation", namespace)
	case strings.TrimSpace(namespace) != namespace:
		return fmt.Sprintf("%q begins or ends with a blank: write %q", namespace, strings.TrimSpace(namespace))
	}
	return ""
}

// EscapeTag keeps a text from beginning or ending a hash tag. No two texts become the same.
func EscapeTag(text string) string { return escape.Replace(text) }

var escape = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")

// plain is [EscapeTag] for what must not look like more than one part of a key.
var plain = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25", ":", "%3A")
