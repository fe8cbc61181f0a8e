// Package wire is the language that a store and its scripts in Redis speak: the
// scripts, the constants that both sides share, and the form of requests and
// replies as numbers. It has no connection.
//
// Its words: a frame is a request or a reply in numbers of 8 bytes. A part is a
// file of lua/, or a piece of a file, of which scripts consist. A gate is the key of
// an unlimited budget, at which a script only looks. A generation is a row from
// the making of its key until the key is gone, and a history is all that a program
// knows of a row, in case Redis forgets starts. A record is Redis' memory of a
// program's last call. A report is all slots that a node holds, and its first
// waiters. A ticket is a place in a line for starts, and the cut of a lane is the
// first ticket that was not called yet.
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
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

//go:embed lua/*.lua
var files embed.FS

// Each script consists of some files of lua/, or parts of files, in this order.
var (
	rows = []string{"row", "rule"} // read and write rows

	// engine changes rows and their lines.
	engine = []string{"penalty", "told", "entries", "bucket", "age", "search", "turn", "queue", "offers", "served", "lanes", "deals"}
)

// BookScript books. The other scripts stand beside their requests.
var BookScript = newScript(func() string {
	return source("frame", "book", "short") +
		inner(source(join(rows, "answer")...)+
			inner(source(join(engine, "repair", "leases", "slots", "request", "line", "serve")...)))
})

// The scripts by which a program finds out whether a server can keep budgets.
var (
	CheckScript     = newScript(func() string { return source("check") })
	CheckLockScript = newScript(func() string { return source("check_lock") })
)

// Scripts are all scripts.
var Scripts []Script

// newScript returns the script whose text build returns, and adds it to Scripts.
func newScript(build func() string) Script {
	s := Script{&text{build: build}}
	Scripts = append(Scripts, s)
	return s
}

// rowScript returns the script that consists of frame, rows and the named parts.
func rowScript(names ...string) Script {
	return newScript(func() string {
		return source(join([]string{"frame"}, rows...)...) + inner(source(names...))
	})
}

// inner makes a function of a source, and runs it at once. Lua makes all functions
// of a script anew in each call: in a function of their own, they find the
// variables around that function directly, and not in a list of all variables in
// use.
func inner(source string) string { return "return (function()\n" + source + "end)()\n" }

// A Script is what Redis runs. Two Scripts are equal if the same call of newScript or FromSource has made them.
type Script struct{ *text }

// A text is the text of a script. It is joined when it is first used: a program that imports the store and never asks Redis would pay
// 50 ms and 10 MB for all scripts, when it starts.
type text struct {
	once         sync.Once
	build        func() string
	source, hash string
}

// Source returns the text in Lua.
func (t *text) Source() string {
	t.once.Do(t.make)
	return t.source
}

// Hash returns the name by which EVALSHA finds the script.
func (t *text) Hash() string {
	t.once.Do(t.make)
	return t.hash
}

// make builds the text and its hash.
func (t *text) make() {
	t.source = t.build()
	sum := sha1.Sum([]byte(t.source))
	t.hash = hex.EncodeToString(sum[:])
}

// sources returns the parts of the files of lua/ by name, with the constants that they share with Go. Most belong to several scripts,
// so they are made once.
var sources = sync.OnceValue(func() map[string]string {
	all := make(map[string]string)
	entries, _ := fs.ReadDir(files, "lua")
	for _, e := range entries {
		text, _ := fs.ReadFile(files, "lua/"+e.Name())
		for _, p := range partsOf(strings.TrimSuffix(e.Name(), ".lua"), string(text)) {
			all[p.name] = inline(p.text)
		}
	}
	return all
})

// A part is a file, or a piece of a file, of which scripts consist.
type part struct{ name, text string }

// partMark begins the line before a part, which ends with the part's name.
const partMark = "-- part: "

// partsOf returns the parts of a file of lua/, in their order. The text before the first line with partMark is a part with the name of the file. A part without text
// is left out.
func partsOf(file, text string) (all []part) {
	for i, piece := range strings.Split("\n"+text, "\n"+partMark) {
		name, rest := file, strings.TrimPrefix(piece, "\n")
		if i > 0 {
			name, rest, _ = strings.Cut(piece, "\n")
		}
		if rest != "" {
			all = append(all, part{name, strings.TrimRight(rest, "\n") + "\n"})
		}
	}
	return all
}

// source joins some parts of the files of lua/.
func source(names ...string) string {
	var parts []string
	for _, name := range names {
		parts = append(parts, sources()[name])
	}
	return strings.Join(parts, "")
}

// FromSource returns the script with that text.
func FromSource(source string) Script {
	return Script{&text{build: func() string { return source }}}
}

// join returns a new list of all names.
func join(first []string, more ...string) []string {
	// Without spare capacity append copies first.
	return append(first[:len(first):len(first)], more...)
}

// keyArgument matches the beginning of a call of Redis whose key is in a variable, as the scripts write it.
var keyArgument = regexp.MustCompile(`(redis\.p?call\('[A-Z]+', )((?:\w+\.)?key)\b`)

// Keyed returns the script with each key written as KEYS[…] in calls of Redis, or
// the script itself if it has no key in a variable. Proxies of Alibaba Cloud read the
// text of scripts, and refuse keys in variables. To find the index of a key takes time
// in each call, so only such proxies get a script in this form. Lines keep their numbers.
func (s Script) Keyed() Script {
	keyed := keyArgument.ReplaceAllString(s.Source(), "${1}KEYS[PLACE($2)]")
	if keyed == s.Source() {
		return s
	}
	return FromSource("local PLACE do local all = {} for i = 1, #KEYS do all[KEYS[i]] = i end PLACE = function(key) return all[key] end end " + keyed)
}

// redisCall matches the call of a command of Redis, and the command's name.
var redisCall = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)

// CalledAt returns the command of Redis that the script calls in a line, counted
// from 1, or "" if it calls no command there.
func (s Script) CalledAt(line int) string {
	lines := strings.Split(s.Source(), "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	if m := redisCall.FindStringSubmatch(lines[line-1]); m != nil {
		return m[1]
	}
	return ""
}

// Constants that both sides need. The scripts have the constants of the list
// shared, by its names, and the constants by which they decide as internal/ledger
// does: see [ledger.Constants].
const (
	// RecordTime is for how long Redis remembers the last call for a group: see docs/internals/once.md.
	RecordTime = 60 * time.Second

	// Stall and Steady bound the difference between the times of two calls if no clock
	// was set: Stall, and one part in Steady of the time between them.
	Stall  = ledger.Stall * time.Microsecond
	Steady = 1000

	// SetUsedTime is for how long Redis remembers a call of SetUsed. It is longer than RecordTime, because a copy that comes later takes
	// starts out of the count.
	SetUsedTime = time.Hour

	// Lease is for how long a node's requests in flight count without a new report.
	Lease = 22 * time.Second

	// LineLease is for how long a node's callers keep their places in lines for slots without a new
	// report. It is shorter than Lease, because places of a node that died hold up all others, and a node
	// that lives gets its places back with its next report.
	LineLease = 5 * time.Second

	// SureLease is for how long a lease surely lasts: near its end it may have ended.
	SureLease = Lease - time.Second

	// SuspectedAfter is how long after its last heartbeat a node is suspected to be cut off.
	SuspectedAfter = 2500 * time.Millisecond

	// Doubt is by how much the reset of a quota may be told too late.
	Doubt = ledger.Doubt * time.Microsecond

	// MinProbe is for how long the first start after a penalty is alone at the least.
	MinProbe = ledger.MinProbe * time.Microsecond

	// ToldKeep is for how long a node remembers the starts of a budget whose limit the upstream tells: longer
	// windows are known to the row alone. A row is kept for longer.
	ToldKeep = time.Minute

	// AskSoon is when waiters ask again while room in their line is not taken. MinAsk
	// and MaxAsk bound when they ask if their turn is far away.
	AskSoon = 250 * time.Millisecond
	MinAsk  = time.Second
	MaxAsk  = time.Minute
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
	{"SET_USED_MS", fmt.Sprintf("'%d'", SetUsedTime.Milliseconds())},
	{"LEASE", Lease},
	{"LINE_LEASE", LineLease},
	{"SUSPECTED_AFTER", SuspectedAfter},
	{"ASK_SOON", AskSoon},
	{"MIN_ASK", MinAsk},
	{"MAX_ASK", MaxAsk},
	{"NODE_KEEPS", ToldKeep},

	// The stored form of rows: see lua/row.lua.
	{"HEAD", "'<" + strings.Repeat("d", len(head)) + "'"},
	{"HEAD_CHANGED", "'<" + strings.Repeat("d", 1+headAt("expires")) + "'"}, // the numbers that a start changes
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
	{"TOLD", store.KindTold},

	{"FRONT", Front},
}

// head lists the numbers of a stored row's head: see lua/row.lua. Scripts know their
// indexes as ROW_SEEN and so on.
var head = []headNumber{
	{"seen", headTime}, {"lost", headTime}, {"span", headLength}, {"most", headCount}, {"till", headTime},
	{"paused", headTime}, {"frozen", headTime}, {"level", headOther}, {"unit", headOther},
	{"generation", headCount}, {"count", headCount}, {"g1", headCount}, {"n1", headCount}, {"named", headOther},
	{"older", headCount}, {"mark", headCount}, {"total", headCount}, {"size", headOther}, {"at", headOther},
	{"old", headTime}, {"before", headTime}, {"first", headTime}, {"last", headTime}, {"n", headCount}, {"expires", headTime},
	{"opens", headTime}, {"t1", headTime}, {"t2", headTime}, {"t3", headTime}, {"pin", headTime}, {"lined", headOther},
	{"ban", headLength}, {"probe", headLength}, {"times", headLength}, {"top", headOther}, {"fell", headTime}, {"learns", headLength},
	{"told", headCount}, {"each", headLength}, {"heard", headTime},
}

// A headNumber is one number of the head.
type headNumber struct {
	name string
	kind headKind
}

// A headKind is the bounds of a number of the head. All numbers are whole, except
// top.
type headKind int

const (
	headTime   headKind = iota // a time of the store's clock, or 0
	headLength                 // a length of time, or a number as small; at least 0
	headCount                  // at least 0
	headOther                  // lua/row.lua checks it by its name
)

// headAt returns the index of a number of the head, from 0 on.
func headAt(name string) int {
	return slices.IndexFunc(head, func(h headNumber) bool { return h.name == name })
}

// headTexts returns the texts that take the place of words in capitals in lua/row.lua, by word. Each is a list of the numbers of the head.
func headTexts() map[string]string {
	// list joins the texts of the numbers for which isListed is true. The text of a number is format, with the number's name in place of $.
	list := func(format, separator string, isListed func(headNumber) bool) string {
		var texts []string
		for _, h := range head {
			if isListed(h) {
				texts = append(texts, strings.ReplaceAll(format, "$", h.name))
			}
		}
		return strings.Join(texts, separator)
	}

	all := func(headNumber) bool { return true }
	ofKind := func(k headKind) string {
		return list("$", ", ", func(h headNumber) bool { return h.kind == k })
	}
	return map[string]string{
		"HEAD_NAMES":   list("$", ", ", all),
		"HEAD_FIELDS":  list("$ = $", ", ", all),
		"HEAD_VALUES":  list("r.$", ", ", all),
		"HEAD_TIMES":   ofKind(headTime),
		"HEAD_LENGTHS": ofKind(headLength),
		"HEAD_COUNTS":  ofKind(headCount),

		// row.lua tests that this sum is 0, so that all numbers are whole. top may have a fraction.
		"HEAD_FRACTIONS": list("$ % 1", " + ", func(h headNumber) bool { return h.name != "top" }),
	}
}

// constants returns the texts that take the place of names in the scripts, by name: those of headTexts, the indexes of the head's numbers, and the values of shared and
// of the ledger's constants. No name stands for two values.
var constants = sync.OnceValue(func() map[string]string {
	all := make(map[string]string)
	add := func(name, value string) {
		if _, twice := all[name]; twice {
			panic("two constants of scripts have the name " + name) // tests find it: they make all scripts
		}
		all[name] = value
	}

	maps.Copy(all, headTexts())
	for i, h := range head {
		add("ROW_"+strings.ToUpper(h.name), strconv.Itoa(i+1))
	}
	for _, c := range ledger.Constants() {
		add(c.Name, fmt.Sprint(c.Value))
	}
	for _, c := range shared {
		value := c.value
		if d, ok := value.(time.Duration); ok {
			value = d.Microseconds()
		}
		add(c.name, fmt.Sprint(value))
	}
	return all
})

// inline writes constants into a source, in the place of their names: a script may have
// 200 locals, and each that a function uses costs time in every call.
func inline(source string) string {
	var s strings.Builder
	s.Grow(len(source))
	constants := constants()

	// A run of characters is a word, or stands between two words.
	for begin, end := 0, 1; end <= len(source); end++ {
		if end < len(source) && inWord(source[end]) == inWord(source[begin]) {
			continue
		}

		run := source[begin:end]
		s.WriteString(cmp.Or(constants[run], run))
		begin = end
	}

	return s.String()
}

// inWord reports whether a name of a constant may have the character.
func inWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
