// Package wire is the language that a store and its scripts in Redis speak: the
// scripts, the constants that both sides share, and how requests and replies are
// written as numbers. It has no connection.
package wire

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var files embed.FS

// rows is what every script about rows begins with.
var rows = []string{"penalty", "row", "entries", "rule", "bucket", "ceiling", "age", "ramp", "search", "turn", "queue"}

// book is what the script of bookings consists of, behind the short way for calls
// that are simple.
var book = join(rows, "place", "repair", "flight", "line", "book", "stand", "serve")

// The scripts.
var (
	BookScript      = NewScript(join([]string{"gates", "hot"}, book...)...)
	PauseScript     = NewScript(join(rows, "pause")...)
	StatusScript    = NewScript(join(rows, "status")...)
	ReconcileScript = NewScript(join(rows, "place", "reconcile")...)
	ClosedScript    = NewScript("closed")
	HeartbeatScript = NewScript("heartbeat")

	FlightPauseScript  = NewScript(join(rows, "flight", "flight_pause")...)
	FlightStatusScript = NewScript(join(rows, "flight", "flight_status")...)
)

// A Script is what Redis runs, and the name by which EVALSHA finds it.
type Script struct{ Source, Hash string }

// NewScript returns the script that consists of some files of lua/, one after the
// other, behind the constants that they use.
func NewScript(names ...string) Script {
	var s strings.Builder
	for _, name := range names {
		text, _ := files.ReadFile("lua/" + name + ".lua")
		s.Write(text)
	}
	return FromSource(prelude(s.String()) + s.String())
}

// FromSource returns the script of that text.
func FromSource(source string) Script {
	sum := sha1.Sum([]byte(source))
	return Script{source, hex.EncodeToString(sum[:])}
}

func join(first []string, more ...string) []string {
	return append(first[:len(first):len(first)], more...)
}
