// Package wire is the language that a store and its scripts in Redis speak: the
// scripts, the constants that both sides share, and how requests and replies are
// written as numbers. It has no connection.
package wire

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"io/fs"
	"regexp"
	"strings"
)

//go:embed lua/*.lua
var files embed.FS

// Each script consists of some files of lua/, one after the other.
var (
	rows = []string{"row", "rule"} // what reads and writes rows

	// engine is what knows how they change.
	engine = []string{"penalty", "entries", "bucket", "ceiling", "age", "ramp", "search", "turn", "queue", "offers", "news"}
)

// The scripts.
var (
	BookScript = FromSource(source("frame", "book", "short") +
		inner(source(join(rows, "answer", "gates")...)+
			inner(source(join(engine, "place", "history", "repair", "leases", "slots", "request", "line", "serve")...))))
	PauseScript     = newScript(join(engine, "pause")...)
	StatusScript    = newScript(join(engine, "status")...)
	ReconcileScript = newScript(join(engine, "place", "anew", "reconcile")...)
	SetUsedScript   = newScript(join(engine, "anew", "set_used")...)
	ClosedScript    = newScript("penalty", "leases", "closed")
	HeartbeatScript = newScript("heartbeat")

	SlotsPauseScript  = newScript(join(engine, "leases", "slots_pause")...)
	SlotsStatusScript = newScript(join(engine, "leases", "slots_status")...)
)

// newScript returns the script that consists of rows and those files.
func newScript(names ...string) Script {
	return FromSource(source(join([]string{"frame"}, rows...)...) + inner(source(names...)))
}

// inner makes a function of a source, which is run at once. Lua makes all functions of
// a script in each call. In a function of its own it finds the variables around that at
// once; else it looks for each in a list of all that functions use.
func inner(source string) string { return "return (function()\n" + source + "end)()\n" }

// A Script is what Redis runs, and the name by which EVALSHA finds it.
type Script struct{ Source, Hash string }

// texts are the files of lua/ by name, with the constants that they share with Go. Most are
// part of several scripts, so they are made once: every program does this when it starts.
var texts = func() map[string]string {
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
		s.WriteString(texts[name])
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

// called is how a script calls a command of Redis.
var called = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)

// CalledAt returns the command of Redis that the script calls in a line, counted from 1; "" if
// it calls none there.
func (s Script) CalledAt(line int) string {
	lines := strings.Split(s.Source, "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	if m := called.FindStringSubmatch(lines[line-1]); m != nil {
		return m[1]
	}
	return ""
}
