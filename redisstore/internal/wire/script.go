// Package wire is the language that a store and its scripts in Redis speak: the
// scripts, the constants that both sides share, and how requests and replies are
// written as numbers. It has no connection.
package wire

import (
	"cmp"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

//go:embed lua/*.lua
var files embed.FS

// Each script consists of some files of lua/, one after the other.
var (
	rows = []string{"row", "rule"} // what reads and writes rows

	// engine is what knows how they change.
	engine = []string{"penalty", "entries", "bucket", "ceiling", "age", "ramp", "search", "turn", "queue", "offers", "served", "lanes", "deals"}
)

// BookScript books. The other scripts stand beside their requests.
var BookScript = made(source("frame", "book", "short") +
	inner(source(join(rows, "answer")...)+
		inner(source(join(engine, "place", "repair", "leases", "slots", "request", "line", "serve")...))))

// The scripts by which a program finds out whether a server can keep budgets.
var (
	CheckScript     = made(source("check"))
	CheckLockScript = made(source("check_lock"))
)

// Scripts are all scripts.
var Scripts []Script

// newScript returns the script that consists of rows and those files.
func newScript(names ...string) Script {
	return made(source(join([]string{"frame"}, rows...)...) + inner(source(names...)))
}

// made returns the script of that text, and adds it to Scripts.
func made(source string) Script {
	s := FromSource(source)
	Scripts = append(Scripts, s)
	return s
}

// inner makes a function of a source, which is run at once. Lua makes all functions of
// a script in each call. In a function of its own it finds the variables around that at
// once; else it looks for each in a list of all that functions use.
func inner(source string) string { return "return (function()\n" + source + "end)()\n" }

// A Script is what Redis runs, and the name by which EVALSHA finds it.
type Script struct{ Source, Hash string }

// sources are the files of lua/ by name, with the constants that they share with Go. Most are
// part of several scripts, so they are made once: every program does this when it starts.
var sources = func() map[string]string {
	all := make(map[string]string)
	entries, _ := fs.ReadDir(files, "lua")
	for _, e := range entries {
		text, _ := fs.ReadFile(files, "lua/"+e.Name())
		all[strings.TrimSuffix(e.Name(), ".lua")] = inline(string(text))
	}
	return all
}()

// source joins some files of lua/.
func source(names ...string) string {
	var s strings.Builder
	for _, name := range names {
		s.WriteString(sources[name])
	}
	return s.String()
}

// FromSource returns the script of that text.
func FromSource(source string) Script {
	sum := sha1.Sum([]byte(source))
	return Script{source, hex.EncodeToString(sum[:])}
}

func join(first []string, more ...string) []string {
	return append(first[:len(first):len(first)], more...)
}

// keyArgument is how a script names a key in a call of Redis, where it does not write KEYS[…].
var keyArgument = regexp.MustCompile(`(redis\.p?call\('[A-Z]+', )((?:\w+\.)?key)\b`)

// Keyed returns the same script with each key written as KEYS[…] in calls of Redis. Proxies of Alibaba
// Cloud read the text of scripts and refuse keys in variables. Finding the place of a key costs
// time in each call, so only such proxies get a script in this form. Lines keep their numbers.
func (s Script) Keyed() Script {
	text := keyArgument.ReplaceAllString(s.Source, "${1}KEYS[PLACE($2)]")
	if text == s.Source {
		return s
	}
	return FromSource("local PLACE do local all = {} for i = 1, #KEYS do all[KEYS[i]] = i end PLACE = function(key) return all[key] end end " + text)
}

// redisCall is how a script calls a command of Redis.
var redisCall = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)

// CalledAt returns the command of Redis that the script calls in a line, counted from 1; "" if
// it calls none there.
func (s Script) CalledAt(line int) string {
	lines := strings.Split(s.Source, "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	if m := redisCall.FindStringSubmatch(lines[line-1]); m != nil {
		return m[1]
	}
	return ""
}

// Constants that both sides need to know. The scripts have those of shared, by the
// names there, and those by which they decide as internal/ledger does: see [ledger.Constants].
const (
	// RecordTime is for how long Redis remembers the last call for a group: see docs/internals/once.md.
	RecordTime = 60 * time.Second

	// Stall and Steady bound by how much the times of two calls may differ though no
	// clock was set: a little, and one part in Steady of what has passed between them.
	Stall  = ledger.Stall * time.Microsecond
	Steady = 1000

	// Lease is for how long a node's requests in flight are believed without a new report.
	Lease = 22 * time.Second

	// LineLease is for how long a node's callers keep their places in lines for slots without a new
	// report. It is shorter, because places of a node that died hold up all others, and a node that lives
	// gets them back with its next report.
	LineLease = 5 * time.Second

	// SureLease is for how long a lease surely lasts: near its end it may have ended.
	SureLease = Lease - time.Second

	// SuspectedAfter is how long after its last heartbeat a node is suspected to be cut off.
	SuspectedAfter = 2500 * time.Millisecond

	// Doubt is by how much the reset of a quota may be told too late.
	Doubt = ledger.Doubt * time.Microsecond

	// LeastProbe is for how long a budget stays closed after a penalty at the least.
	LeastProbe = ledger.LeastProbe * time.Microsecond

	// While room in a line is not taken, its waiters ask so soon; where a turn is
	// far away they ask no sooner and no later than the other two.
	AskSoon  = 250 * time.Millisecond
	AskLeast = time.Second
	AskLast  = time.Minute
)

// shared are the constants that scripts may use, in microseconds where they are
// lengths of time.
var shared = []struct {
	name  string
	value any
}{
	{"FARTHEST", store.MaxAhead},
	{"MAX_PENALTY", store.MaxPenalty},
	{"RECORD_TIME", RecordTime},
	{"STEADY", Steady},
	{"PARTS", Parts},
	{"LIVES", Lives},
	{"PAIR", 16}, // bytes of a name and a count
	{"MAX_NAMED", 16 * (Lives - 2)},
	{"NAMES", Names},
	{"LAST_ORDINAL", int64(LastOrdinal)},
	{"RECORD_MS", fmt.Sprintf("'%d'", RecordTime.Milliseconds())},
	{"LEASE", Lease},
	{"LINE_LEASE", LineLease},
	{"SUSPECTED_AFTER", SuspectedAfter},
	{"ASK_SOON", AskSoon},
	{"ASK_LEAST", AskLeast},
	{"ASK_LAST", AskLast},

	// The stored form of rows: see lua/row.lua.
	{"HEAD", "'<" + strings.Repeat("d", len(head)) + "'"},
	{"HEAD_CHANGED", "'<" + strings.Repeat("d", 1+headAt("expires")) + "'"}, // what a start changes
	{"HEAD_SIZE", 8 * len(head)},
	{"HEAD_END", fmt.Sprintf("'%d'", 8*len(head)-1)}, // as Redis counts
	{"MAX_APPENDED", 1600},                           // bytes of a string that grows: Redis reserves as much again

	// How a reply begins.
	{"DONE", Done},
	{"NEEDS_BOUNDARIES", NeedsBoundaries},
	{"NEEDS_TIME", NeedsTime},
	{"LATE", Late},
	{"SHUT", Shut},

	// What is known of the time since a call.
	{"ELAPSED_UNKNOWN", ElapsedUnknown},
	{"ELAPSED_KNOWN", ElapsedKnown},
	{"SET_FORWARD", SetForward},

	// The kinds of operations, and what became of them.
	{"RESERVE", Reserve},
	{"CANCEL", Cancel},
	{"SETTLE", Settle},
	{"RENEW", Renew},
	{"REFUSED", Refused},
	{"BOOKED", Booked},
	{"HELD", Held},
	{"UNSETTLED", Unsettled},
	{"IN_LINE", InLine},
	{"WAITING", Waiting},
	{"ALL_NOW", AllNow},

	// The kinds of limits.
	{"SLIDING_WINDOW", store.KindSlidingWindow},
	{"FIXED_WINDOW", store.KindFixedWindow},
	{"LEAKY_BUCKET", store.KindLeakyBucket},
	{"TOKEN_BUCKET", store.KindTokenBucket},
	{"CONCURRENCY", store.KindConcurrency},
	{"UNLIMITED", store.KindUnlimited},

	{"FRONT", Front},
}

// head is what a stored row begins with: see lua/row.lua. Scripts know where
// these numbers stand as ROW_SEEN and so on.
var head = []headNumber{
	{"seen", headTime}, {"lost", headTime}, {"span", headLength}, {"most", headCount}, {"till", headTime},
	{"paused", headTime}, {"frozen", headTime}, {"level", headOther}, {"unit", headOther},
	{"generation", headCount}, {"count", headCount}, {"g1", headCount}, {"n1", headCount}, {"named", headOther},
	{"older", headCount}, {"mark", headCount}, {"total", headCount}, {"size", headOther}, {"at", headOther},
	{"old", headTime}, {"before", headTime}, {"first", headTime}, {"last", headTime}, {"n", headCount}, {"expires", headTime},
	{"opens", headTime}, {"t1", headTime}, {"t2", headTime}, {"t3", headTime}, {"pin", headTime}, {"lined", headOther},
	{"ban", headLength}, {"probe", headLength}, {"times", headLength}, {"top", headOther}, {"fell", headTime}, {"learns", headLength},
}

// A headNumber is one number of the head.
type headNumber struct {
	name string
	kind headKind
}

// A headKind says within which bounds a number of the head is. All are whole, but for top.
type headKind int

const (
	headTime   headKind = iota // a time of the store's clock, or 0
	headLength                 // of time, or what is as small; at least 0
	headCount                  // at least 0
	headOther                  // lua/row.lua checks it by its name
)

// headAt is where a number of the head stands, from 0 on.
func headAt(name string) int {
	return slices.IndexFunc(head, func(h headNumber) bool { return h.name == name })
}

// headTexts are the parts of lua/row.lua in which all numbers of the head stand, or all of one kind.
func headTexts() map[string]string {
	list := func(format, between string, has func(headNumber) bool) string {
		var all []string
		for _, h := range head {
			if has(h) {
				all = append(all, strings.ReplaceAll(format, "$", h.name))
			}
		}
		return strings.Join(all, between)
	}
	any := func(headNumber) bool { return true }
	of := func(k headKind) string {
		return list("$", ", ", func(h headNumber) bool { return h.kind == k })
	}
	return map[string]string{
		"HEAD_NAMES":     list("$", ", ", any),
		"HEAD_FIELDS":    list("$ = $", ", ", any),
		"HEAD_VALUES":    list("r.$", ", ", any),
		"HEAD_FRACTIONS": list("$ % 1", " + ", func(h headNumber) bool { return h.name != "top" }),
		"HEAD_TIMES":     of(headTime),
		"HEAD_LENGTHS":   of(headLength),
		"HEAD_COUNTS":    of(headCount),
	}
}

// constants are the values of shared, of head and of the ledger, as scripts write them.
var constants = func() map[string]string {
	all := make(map[string]string)
	maps.Copy(all, headTexts())
	for i, h := range head {
		all["ROW_"+strings.ToUpper(h.name)] = strconv.Itoa(i + 1)
	}
	for _, c := range ledger.Constants() {
		all[c.Name] = fmt.Sprint(c.Value)
	}
	for _, c := range shared {
		value := c.value
		if d, ok := value.(time.Duration); ok {
			value = d.Microseconds()
		}
		all[c.name] = fmt.Sprint(value)
	}
	return all
}()

// inline writes constants into a source, in the place of their names: a script may have
// 200 locals, and each that a function uses costs time in every call.
func inline(source string) string {
	var s strings.Builder
	s.Grow(len(source))
	for source != "" {
		word := source[:max(1, len(source)-len(strings.TrimLeftFunc(source, inWord)))]
		s.WriteString(cmp.Or(constants[word], word))
		source = source[len(word):]
	}
	return s.String()
}

// inWord reports whether names have the character.
func inWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// A Call is a script and what it is told: the time comes first, then the frame.
type Call struct {
	Script Script
	Keys   []string
	Frame  Frame
	More   []any
}

// Args are the arguments of the call at a time, "" for the server's.
func (c Call) Args(now any) []any { return append([]any{now, []byte(c.Frame)}, c.More...) }
